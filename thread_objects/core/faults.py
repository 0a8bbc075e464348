"""Retained recovery failures: one per Thread, retried after 5, 10, 20, 40, 60, 60 ... seconds.

A fault settles nothing, proves nothing and permits no replay. It only says when to look again.
"""

from dataclasses import dataclass
from typing import Literal

from thread_objects.contract import limits
from thread_objects.contract.views import Fault

# Far above the cap already; keeps the power small however long a Thread stays broken.
_DOUBLINGS_MAX = 30


@dataclass(frozen=True, slots=True)
class RecoveryFailure:
    """What a fault says of a failure: class names and static names, never a message or a payload.

    `phase` tells whether reading the log failed or executing a decision. `decoder` and `sequence` point at a
    stored row that could not be decoded.
    """

    phase: Literal["history", "recovery"]
    reason: Literal["failure", "defect", "timeout"]
    error_tag: str
    operation: str
    causes: tuple[str, ...] = ()
    causes_truncated: bool = False
    decoder: str = ""
    sequence: int | None = None


def retry_delay_ms(attempts: int) -> int:
    """The wait after the failure that follows `attempts` earlier ones."""
    return min(limits.FAULT_RETRY_CAP_MS, limits.FAULT_RETRY_BASE_MS << min(_DOUBLINGS_MAX, attempts))


def next_fault(previous: Fault | None, thread_id: str, failure: RecoveryFailure, now: int) -> Fault:
    """The Thread's fault after one more failure at `now`.

    Raises `ValueError` when the stored fault belongs to another Thread: such a row is refused, never used.
    """
    if previous is not None and previous.thread_id != thread_id:
        raise ValueError("stored fault names another thread")
    attempts = 0 if previous is None else previous.attempts
    return Fault(
        thread_id=thread_id,
        phase=failure.phase,
        reason=failure.reason,
        error_tag=failure.error_tag,
        operation=failure.operation,
        causes=failure.causes,
        causes_truncated=failure.causes_truncated,
        decoder=failure.decoder,
        sequence=failure.sequence,
        first_failed_at=now if previous is None else previous.first_failed_at,
        last_failed_at=now,
        retry_at=now + retry_delay_ms(attempts),
        attempts=min(limits.FAULT_ATTEMPTS_MAX, attempts + 1),
    )
