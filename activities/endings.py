"""How a drive ends from the Attempt's side. None of these is an error."""

from collections.abc import Sequence

from thread_objects.agents.binding import Stop
from thread_objects.contract.views import ThreadView


class HandBack(Stop):
    """The work is handed back at a Turn boundary: time to yield, or somebody asked for it."""


class Suspended(Stop):
    """The Submission waits for an approval; the claim has ended."""

    def __init__(self, view: ThreadView) -> None:
        super().__init__("suspended")
        self.view = view


class CallsLost(Stop):
    """Calls that may not be run again are open, and nobody has said what became of them."""

    def __init__(self, tool_call_ids: Sequence[str]) -> None:
        super().__init__("calls lost")
        self.tool_call_ids = tuple(tool_call_ids)
