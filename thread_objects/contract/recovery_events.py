"""Recovery events: what happened to the recovery of a Thread, told once for each Submission it holds up.

Rule guarded: an event is a fact with a number. Redelivery repeats it unchanged; consumers tell repetitions by
(object, sequence).
"""

from enum import StrEnum

from thread_objects.contract.wire import Wire


class Transition(StrEnum):
    """What became of a Thread's fault, as one of its Submissions meets it."""

    CREATED = "created"
    CHANGED = "changed"
    CLEARED = "cleared"


class Failure(Wire):
    """Why a recovery failed: class names and static operation names, never a message or a payload."""

    phase: str
    reason: str
    error_tag: str
    operation: str
    causes: tuple[str, ...] = ()
    causes_truncated: bool = False
    decoder: str = ""
    sequence: int | None = None


class RecoveryEvent(Wire):
    """One event. `sequence` counts from 1 in its object and is never used twice.

    `created`: the Submission is held up by a failed recovery. `changed`: the failure is another one. `cleared`: the
    Thread recovered; `failure` is the last one it had.
    """

    schema_version: int = 1
    sequence: int
    transition: Transition
    thread_id: str
    submission_id: str
    occurred_at: int
    first_failed_at: int
    failure: Failure


class EventStanding(Wire):
    """How far an object's events are: the last that is stored, and the last that was acknowledged."""

    sequence: int = 0
    acknowledged: int = 0

    @property
    def pending(self) -> bool:
        """Whether an event waits for its delivery."""
        return self.sequence > self.acknowledged
