"""Inputs and answers of the activities that run users' waves."""

from thread_objects.contract.lanes import Installed
from thread_objects.contract.wire import Wire


class WaveRequest(Wire):
    """One wave of a lane. `allowance_ms` counts from the moment the object asked for it.

    `through` and `after` are for recovery events: the last one stored when the wave was charged, and the last one
    that is known as acknowledged.
    """

    object_id: str
    lane: str
    allowance_ms: int
    after: int = 0
    through: int = 0
    installed: str = ""
    """Digest of what the object knows to be installed; a worker that has something else says so."""


class PublishRequest(Wire):
    """One wave of the publication: `generation` is prepared if given, then it drains.

    `committed`: after a mutation instead; then what is published is marked as outdated first.
    """

    object_id: str
    allowance_ms: int
    generation: int | None = None
    committed: bool = False
    installed: str = ""


class WaveAnswer(Wire):
    """How a wave ended: when the next one is due, and the lanes that have new facts. A failure carries one too.

    `acknowledged`: recovery events through this one are with their consumer.
    """

    due_at: int | None = None
    progressed: tuple[str, ...] = ()
    acknowledged: int = 0
    installed: Installed | None = None
