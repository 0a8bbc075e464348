"""The work inventory: who still owes something for a call, whether or not their Submission is settled.

Rules guarded: an item is written and taken away in the transaction that opens or closes its duty. An inventory that is
missing, half rebuilt, or of a kind nobody here knows is told as such; it is never read as "nothing is owed".
"""

from typing import NamedTuple

from thread_objects.contract.sweeps import WorkOwner
from thread_objects.errors import WorkDiscoveryUnavailable
from thread_objects.ports import Duty

from . import lanes
from .engine import Transaction
from .submissions import OPEN

COMPLETE = -1
"""`threads.work_through` of an inventory that is kept up. NULL: there is none. From 0 on: rebuilt through here."""

_OF_CALL = (
    " thread_id = (SELECT thread_id FROM submissions WHERE submission_id = :submission_id)"
    " AND queue_sequence = (SELECT queue_sequence FROM submissions WHERE submission_id = :submission_id)"
    " AND call_id = :call_id"
)


class Inventory(NamedTuple):
    """A Thread's lane, and whether anything is listed for it."""

    lane: lanes.Lane
    owed: bool


_LOOK = (
    f"SELECT {lanes.COLUMNS}, work_through, EXISTS (SELECT 1 FROM work_items w WHERE w.thread_id = threads.thread_id)"
    " FROM threads WHERE thread_id = :thread_id"
)


def look(tx: Transaction, thread_id: str) -> Inventory | None:
    """The Thread's row and its inventory's standing. Raises `WorkDiscoveryUnavailable` for one that cannot be used."""
    row = tx.one(_LOOK, {"thread_id": thread_id})
    if row is None:
        return None
    *lane, through, owed = row
    check(thread_id, through)
    return Inventory(lanes.Lane(*lane), bool(owed))


def check(thread_id: str, through: int | None) -> None:
    """Refuse an inventory that does not say everything."""
    if through != COMPLETE:
        reason = "missing-index" if through is None else "incomplete-rebuild" if through >= 0 else "unsupported"
        raise WorkDiscoveryUnavailable(thread_id=thread_id, reason=reason)


# --- items ---------------------------------------------------------------------------------------------------------


def owe(tx: Transaction, owner: WorkOwner, submission_id: str, call_id: str) -> None:
    """List a duty; listing it again changes nothing."""
    tx.run(
        "INSERT INTO work_items (thread_id, queue_sequence, call_id, object_id, submission_id, owner)"
        " SELECT thread_id, queue_sequence, :call_id, object_id, submission_id, :owner FROM submissions"
        " WHERE submission_id = :submission_id ON CONFLICT (thread_id, queue_sequence, call_id) DO NOTHING",
        {"owner": owner.value, "submission_id": submission_id, "call_id": call_id},
    )


def list_imported(tx: Transaction, thread_id: str) -> None:
    """List what is open in a Thread whose rows were written whole."""
    for owner, call_id, duties in (
        (WorkOwner.OPERATION, "d.tool_call_id", "unknown_calls d ON d.submission_id = s.submission_id"),
        (WorkOwner.CHILD, "d.parent_call_id", "child_reservations d ON d.parent_submission_id = s.submission_id"),
    ):
        is_open = "d.closed_at IS NULL" if owner is WorkOwner.OPERATION else "d.status <> 'released'"
        tx.run(
            "INSERT INTO work_items (thread_id, queue_sequence, call_id, object_id, submission_id, owner)"
            f" SELECT s.thread_id, s.queue_sequence, {call_id}, s.object_id, s.submission_id, :owner FROM submissions s"
            f" JOIN {duties} WHERE s.thread_id = :thread_id AND {is_open}"
            " ON CONFLICT (thread_id, queue_sequence, call_id) DO NOTHING",
            {"thread_id": thread_id, "owner": owner.value},
        )


def done(tx: Transaction, submission_id: str, call_ids: list[str]) -> None:
    """Take duties off the list."""
    tx.many(
        f"DELETE FROM work_items WHERE{_OF_CALL}",
        [{"submission_id": submission_id, "call_id": call_id} for call_id in call_ids],
    )


def page(tx: Transaction, thread_id: str, *, after: tuple[int, str], limit: int) -> list[Duty]:
    """Items past a place, in order. One of an owner nobody here knows makes the inventory unusable."""
    found = look(tx, thread_id)
    if found is None:
        return []
    rows = tx.all(
        "SELECT w.owner, w.submission_id, w.queue_sequence, w.call_id, s.state FROM work_items w"
        " LEFT JOIN submissions s ON s.submission_id = w.submission_id WHERE w.thread_id = :thread_id"
        " AND (w.queue_sequence, w.call_id) > (:sequence, :call_id) ORDER BY w.queue_sequence, w.call_id LIMIT :limit",
        {"thread_id": thread_id, "sequence": after[0], "call_id": after[1], "limit": limit},
    )
    try:
        return [Duty(WorkOwner(owner), sid, seq, call, state == "settled") for owner, sid, seq, call, state in rows]
    except ValueError as error:
        raise WorkDiscoveryUnavailable(thread_id=thread_id, reason="unsupported") from error


def threads(tx: Transaction, object_id: str, *, after: str | None, limit: int) -> list[str]:
    """Threads of an object, by id, that have nonterminal rows or listed duties."""
    rows = tx.all(
        f"SELECT thread_id FROM (SELECT DISTINCT thread_id FROM submissions WHERE object_id = :object_id AND {OPEN}"
        " AND thread_id > :after UNION SELECT thread_id FROM work_items WHERE object_id = :object_id"
        " AND thread_id > :after) AS owing ORDER BY thread_id LIMIT :limit",
        {"object_id": object_id, "after": after or "", "limit": limit},
    )
    return [row[0] for row in rows]
