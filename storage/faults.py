"""Faults: why the recovery of a Thread failed, how often, and when to try again. Outside the log.

Rule guarded: a fault goes only with a whole clean recovery; nothing else erases it or brings its retry forward.
"""

from thread_objects.contract.views import Fault
from thread_objects.core.canonical import canonical, parse
from thread_objects.core.faults import RecoveryFailure, next_fault
from thread_objects.errors import CorruptRecord

from . import lanes
from .engine import Transaction

_COLUMNS = (
    "thread_id, phase, reason, error_tag, operation, causes, causes_truncated, decoder, sequence, first_failed_at,"
    " last_failed_at, retry_at, attempts"
)


def read(tx: Transaction, thread_id: str) -> Fault | None:
    """The retained fault."""
    row = tx.one(f"SELECT {_COLUMNS} FROM faults WHERE thread_id = :thread_id", {"thread_id": thread_id})
    if row is None:
        return None
    fields = dict(zip(_COLUMNS.split(", "), row, strict=True))
    try:
        fields["causes"] = tuple(parse(fields["causes"]))
        return Fault(**fields)
    except (ValueError, TypeError) as error:
        raise CorruptRecord(thread_id=thread_id, decoder="fault") from error


def record(tx: Transaction, thread_id: str, failure: RecoveryFailure, *, now: int) -> Fault:
    """Store or update the fault."""
    lane = lanes.locked(tx, thread_id)
    try:
        before = read(tx, thread_id)
    except CorruptRecord:
        before = None  # unreadable, so not used: the count begins anew
    fault = next_fault(before, thread_id, failure, now)
    names = _COLUMNS.split(", ")
    changes = ", ".join(f"{name} = :{name}" for name in names[1:])
    tx.run(
        f"INSERT INTO faults (object_id, {_COLUMNS}) VALUES (:object_id, {', '.join(':' + name for name in names)})"
        f" ON CONFLICT (thread_id) DO UPDATE SET {changes}",
        {
            **fault.model_dump(),
            "object_id": lane.object_id,
            "causes": canonical(list(fault.causes)),
            "causes_truncated": int(fault.causes_truncated),
        },
    )
    return fault


def clear(tx: Transaction, thread_id: str) -> bool:
    """Delete the fault."""
    return tx.run("DELETE FROM faults WHERE thread_id = :thread_id", {"thread_id": thread_id}) == 1
