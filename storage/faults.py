"""Faults: why the recovery of a Thread failed, how often, and when to try again. Outside the log.

Rules guarded: a fault goes only with a whole clean recovery; nothing else erases it or brings its retry forward. The
record, its recipients, their events and the next event's number are one transaction.
"""

from thread_objects.contract.recovery_events import Transition
from thread_objects.contract.views import Fault
from thread_objects.core.canonical import canonical, parse
from thread_objects.core.faults import RecoveryFailure, next_fault
from thread_objects.errors import CorruptRecord
from thread_objects.ports import FaultChange

from . import lanes, recipients, recovery_events
from .engine import Transaction

_COLUMNS = (
    "thread_id, phase, reason, error_tag, operation, causes, causes_truncated, decoder, sequence, first_failed_at,"
    " last_failed_at, retry_at, attempts, recipients"
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


def record(tx: Transaction, thread_id: str, failure: RecoveryFailure, *, now: int) -> FaultChange:
    """Store or update the fault. Known recipients hear of a change before new ones hear of the fault."""
    lane = lanes.locked(tx, thread_id)
    try:
        before = read(tx, thread_id)
    except CorruptRecord:
        before = None  # unreadable, so not used: the count begins anew
    fault = next_fault(before, thread_id, failure, now)
    last = 0
    if before is None or before.failure != fault.failure:
        for known in recipients.blocks(tx, thread_id):
            last = recovery_events.add(tx, lane.object_id, fault, Transition.CHANGED, known, now=now)
    told, count = _tell_new(tx, lane, fault, now=now)
    if before is None:
        count = recipients.count(tx, thread_id)
    else:
        count += before.recipients
    fault = fault.model_copy(update={"recipients": count})
    _store(tx, lane.object_id, fault)
    return FaultChange(fault, told or last)


def clear(tx: Transaction, thread_id: str, *, now: int) -> FaultChange:
    """Delete the fault; every recipient hears of it, settled or not."""
    lane = lanes.lock(tx, thread_id)
    before = read(tx, thread_id) if lane is not None else None
    if lane is None or before is None:
        return FaultChange(None)
    last = 0
    for known in recipients.blocks(tx, thread_id):
        last = recovery_events.add(tx, lane.object_id, before, Transition.CLEARED, known, now=now)
    recipients.drop(tx, thread_id)
    tx.run("DELETE FROM faults WHERE thread_id = :thread_id", {"thread_id": thread_id})
    return FaultChange(before, last)


def note_recipients(tx: Transaction, object_id: str, thread_ids: list[str], *, now: int) -> None:
    """New nonterminal rows of faulted Threads become recipients; when to retry stays as it is.

    A fault that cannot be read tells nobody: the recovery that meets it replaces it, and then everybody is told.
    """
    lanes.lock_all(tx, set(thread_ids))
    for thread_id in thread_ids:
        lane = lanes.lock(tx, thread_id)
        try:
            fault = read(tx, thread_id) if lane is not None else None
        except CorruptRecord:
            continue
        if lane is None or fault is None or lane.object_id != object_id:
            continue
        _, count = _tell_new(tx, lane, fault, now=now)
        tx.run(
            "UPDATE faults SET recipients = recipients + :count WHERE thread_id = :thread_id",
            {"thread_id": thread_id, "count": count},
        )


def of_object(tx: Transaction, object_id: str) -> list[str]:
    """The object's faulted Threads, in code-point order."""
    rows = tx.all(
        "SELECT thread_id FROM faults WHERE object_id = :object_id ORDER BY thread_id", {"object_id": object_id}
    )
    return [row[0] for row in rows]


def _tell_new(tx: Transaction, lane: lanes.Lane, fault: Fault, *, now: int) -> tuple[int, int]:
    last = count = 0
    for new in recipients.admit(tx, lane.object_id, lane.thread_id):
        last = recovery_events.add(tx, lane.object_id, fault, Transition.CREATED, new, now=now)
        count += len(new)
    return last, count


def _store(tx: Transaction, object_id: str, fault: Fault) -> None:
    names = _COLUMNS.split(", ")
    changes = ", ".join(f"{name} = :{name}" for name in names[1:])
    tx.run(
        f"INSERT INTO faults (object_id, {_COLUMNS}) VALUES (:object_id, {', '.join(':' + name for name in names)})"
        f" ON CONFLICT (thread_id) DO UPDATE SET {changes}",
        {
            **fault.model_dump(exclude={"schema_version"}),
            "object_id": object_id,
            "causes": canonical(list(fault.causes)),
            "causes_truncated": int(fault.causes_truncated),
        },
    )
