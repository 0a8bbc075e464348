"""Faults: why the recovery of a Thread failed, how often, and when to try again. Outside the log.

Rule guarded: a fault goes only with a whole clean recovery; nothing else erases it or brings its retry forward.
"""

from thread_objects.contract.limits import FAULT_ATTEMPTS_MAX, FAULT_RETRY_BASE_MS, FAULT_RETRY_CAP_MS
from thread_objects.contract.views import Fault
from thread_objects.core.canonical import canonical, parse
from thread_objects.errors import CorruptRecord
from thread_objects.ports import RecoveryFailure

from . import lanes
from .engine import Transaction

_DOUBLINGS_MAX = 30
_COLUMNS = "thread_id, phase, reason, error_tag, operation, causes, first_failed_at, last_failed_at, retry_at, attempts"


def read(tx: Transaction, thread_id: str) -> Fault | None:
    """The retained fault."""
    row = tx.one(f"SELECT {_COLUMNS} FROM faults WHERE thread_id = :thread_id", {"thread_id": thread_id})
    if row is None:
        return None
    fields = dict(zip(_COLUMNS.split(", "), row, strict=True))
    try:
        causes = tuple(parse(fields.pop("causes")))
    except (ValueError, TypeError) as error:
        raise CorruptRecord(thread_id=thread_id, decoder="fault") from error
    return Fault(causes=causes, **fields)


def record(tx: Transaction, thread_id: str, failure: RecoveryFailure, *, now: int) -> Fault:
    """Store or update the fault."""
    lanes.locked(tx, thread_id)
    before = read(tx, thread_id)
    attempts = before.attempts if before is not None else 0
    fault = Fault(
        thread_id=thread_id,
        phase=failure.phase,
        reason=failure.reason,
        error_tag=failure.error_tag,
        operation=failure.operation,
        causes=failure.causes,
        first_failed_at=before.first_failed_at if before is not None else now,
        last_failed_at=now,
        retry_at=now + min(FAULT_RETRY_CAP_MS, FAULT_RETRY_BASE_MS * 2 ** min(_DOUBLINGS_MAX, attempts)),
        attempts=min(FAULT_ATTEMPTS_MAX, attempts + 1),
    )
    names = _COLUMNS.split(", ")
    changes = ", ".join(f"{name} = :{name}" for name in names[1:])
    tx.run(
        f"INSERT INTO faults ({_COLUMNS}) VALUES ({', '.join(':' + name for name in names)})"
        f" ON CONFLICT (thread_id) DO UPDATE SET {changes}",
        {**fault.model_dump(), "causes": canonical(list(fault.causes))},
    )
    return fault


def clear(tx: Transaction, thread_id: str) -> bool:
    """Delete the fault."""
    return tx.run("DELETE FROM faults WHERE thread_id = :thread_id", {"thread_id": thread_id}) == 1
