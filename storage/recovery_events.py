"""Recovery events of an object: numbered where faults are stored, kept until their consumer has them.

Rule guarded: numbers rise by one in each object and are never used again, whatever was acknowledged. The counter's row
is locked by the transaction that stores events, so they become visible in their order.
"""

from collections.abc import Sequence

from thread_objects.contract.recovery_events import EventStanding, Failure, RecoveryEvent, Transition
from thread_objects.contract.views import Fault
from thread_objects.core.canonical import canonical, parse
from thread_objects.errors import CorruptRecord, LedgerError

from .engine import Transaction

_COLUMNS = "sequence, transition, thread_id, submission_id, occurred_at, first_failed_at, failure"


def add(
    tx: Transaction, object_id: str, fault: Fault, transition: Transition, submissions: Sequence[str], *, now: int
) -> int:
    """Store one event for each Submission, in order; the last one's number, 0 for none."""
    if not submissions:
        return 0
    tx.run(
        "INSERT INTO recovery_event_counters (object_id, sequence, acknowledged) VALUES (:object_id, :count, 0)"
        " ON CONFLICT (object_id) DO UPDATE SET sequence = recovery_event_counters.sequence + :count",
        {"object_id": object_id, "count": len(submissions)},
    )
    last = standing(tx, object_id).sequence
    failure = canonical(fault.failure.model_dump(by_alias=True))
    tx.many(
        f"INSERT INTO recovery_events (object_id, {_COLUMNS}) VALUES (:object_id, :sequence, :transition, :thread_id,"
        " :submission_id, :now, :first_failed_at, :failure)",
        [
            {
                "object_id": object_id,
                "sequence": sequence,
                "transition": transition.value,
                "thread_id": fault.thread_id,
                "submission_id": submission_id,
                "now": now,
                "first_failed_at": fault.first_failed_at,
                "failure": failure,
            }
            for sequence, submission_id in enumerate(submissions, last - len(submissions) + 1)
        ],
    )
    return last


def standing(tx: Transaction, object_id: str) -> EventStanding:
    """How far the object's events are."""
    row = tx.one(
        "SELECT sequence, acknowledged FROM recovery_event_counters WHERE object_id = :object_id",
        {"object_id": object_id},
    )
    return EventStanding() if row is None else EventStanding(sequence=row[0], acknowledged=row[1])


def page(tx: Transaction, object_id: str, *, after: int, limit: int) -> list[RecoveryEvent]:
    """Stored events past a number, in order. One that cannot be decoded is told, never skipped."""
    rows = tx.all(
        f"SELECT {_COLUMNS} FROM recovery_events WHERE object_id = :object_id AND sequence > :after"
        " ORDER BY sequence LIMIT :limit",
        {"object_id": object_id, "after": after, "limit": limit},
    )
    found = []
    for row in rows:
        fields = dict(zip(_COLUMNS.split(", "), row, strict=True))
        try:
            fields["failure"] = Failure.model_validate(parse(fields["failure"]))
            found.append(RecoveryEvent(**fields))
        except (ValueError, TypeError) as error:
            raise CorruptRecord(thread_id=fields["thread_id"], decoder="recovery-event") from error
    return found


def acknowledge(tx: Transaction, object_id: str, sequence: int) -> EventStanding:
    """Everything through a number is delivered. A number from before changes nothing."""
    tx.run(
        "UPDATE recovery_event_counters SET acknowledged = :sequence"
        " WHERE object_id = :object_id AND acknowledged < :sequence AND sequence >= :sequence",
        {"object_id": object_id, "sequence": sequence},
    )
    now_at = standing(tx, object_id)
    if sequence > now_at.sequence:
        raise LedgerError(f"event {sequence} of {object_id} was never stored", operation="acknowledgeRecoveryEvent")
    tx.run(
        "DELETE FROM recovery_events WHERE object_id = :object_id AND sequence <= :through",
        {"object_id": object_id, "through": now_at.acknowledged},
    )
    return now_at
