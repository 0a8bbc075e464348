"""Control views: what the workflow knows of the ledger. Ids, states and counts; never a payload.

A view is bounded whatever the queue's length, since it becomes part of the workflow's history.
"""

from typing import Literal

from pydantic import Field

from thread_objects.contract.recovery_events import Failure
from thread_objects.contract.states import Disposition, Outcome, SubmissionState
from thread_objects.contract.wire import Wire


class RowView(Wire):
    """One nonterminal row, control data only."""

    submission_id: str
    queue_sequence: int
    state: SubmissionState
    agent_id: str = ""
    abort_requested: bool = False


class OpenCall(Wire):
    """A call that waits for somebody: an approval, or the closure of an Unknown Outcome."""

    submission_id: str
    tool_call_id: str
    tool_name: str
    waits_for: Literal["approval", "unknown"]
    since: int


class ThreadView(Wire):
    """One Thread's nonterminal rows, folded.

    `head` is the lowest unsettled row after skipping `unknown` rows without an abort intent; `unknown` counts the
    skipped ones anywhere in the lane (they are parked once recovered). The rows after the head fall into `quiet`
    followers (`ready`, `joined`, `suspended`, all without an abort intent: nothing to do until the head moves) and
    `busy` followers (everything else: somebody has to act).
    """

    thread_id: str
    nonterminal: int
    head: RowView | None = None
    unknown: int = 0
    quiet: int = 0
    busy: int = 0
    fault_retry_at: int | None = None
    open_calls: tuple[OpenCall, ...] = ()
    """Calls that wait for somebody, oldest first, at most `limits.OPEN_CALLS_MAX` of them."""


def _absent(value: object) -> bool:
    return value is None


def _false(value: bool) -> bool:
    return not value


class Page(Wire):
    """A part of a round over the Threads of a shared host: the ids behind `after`.

    The round began behind `origin`. When it has come to the last id it goes on from the first one (`wrapped`), and ends
    at its origin.
    """

    after: str | None = None
    origin: str | None = None
    wrapped: bool = False


class Survey(Wire):
    """All Threads of an object that have nonterminal rows, in thread-id order (code points).

    Of a shared host one page of them, with the `following` one where there is one. `partial`: the views of some
    Threads only, from a batch that touched them; it says nothing of the others.

    `duties` names Threads with canonical duties of their own, rows or not; `truncated` says that either list was cut.
    """

    threads: tuple[ThreadView, ...] = ()
    truncated: bool = False
    duties: tuple[str, ...] = ()
    following: Page | None = Field(None, exclude_if=_absent)
    partial: bool = Field(False, exclude_if=_false)
    event_sequence: int = 0
    """Recovery events up to this one are stored and not all acknowledged; 0 when none waits."""


class Registry(Wire):
    """The registry key of the worker that answered, with its deployment order (an integer allocated in SQL)."""

    key: str = ""
    deployment: int = 0


class Fault(Wire):
    """A retained recovery failure of one Thread: class names and static operation names only.

    `recipients` counts the Submissions it was told of.
    """

    schema_version: int = 1
    thread_id: str
    phase: str
    reason: str
    error_tag: str
    operation: str
    causes: tuple[str, ...] = ()
    causes_truncated: bool = False
    decoder: str = ""
    sequence: int | None = None
    first_failed_at: int
    last_failed_at: int
    retry_at: int
    attempts: int
    recipients: int = 0

    @property
    def failure(self) -> Failure:
        """Why, without when and how often."""
        return Failure.model_validate(self.model_dump(include=set(Failure.model_fields)))


class Decided(Wire):
    """One recovery decision as it was executed."""

    submission_id: str
    decision: str
    disposition: Disposition


class Recovered(Wire):
    """What recovering one Thread found and did."""

    thread_id: str
    recovered: int = 0
    repaired: bool = False
    decisions: tuple[Decided, ...] = ()
    """At most the first 32; the counters cover all."""
    fault: Fault | None = None
    retry_at: int | None = None
    cursor: str | None = None
    event_sequence: int = 0
    """The last recovery event that was stored with this answer, 0 for none: its lane is due at once."""


class SettledView(Wire):
    """A Submission that this Attempt settled."""

    submission_id: str
    outcome: Outcome


class BindingWait(Wire):
    """A head whose agent has no current binding; kept until the registry changes."""

    thread_id: str
    submission_id: str
    reported_at: int
    agent_id: str = ""
