"""After a restore: nobody who worked on the lost future may go on here.

A backup knows the ownership tokens of its own moment. Whoever holds one of them may since have written to the database
that is gone, and would go on here as if that were there; and what was numbered after the backup will be numbered again.

Rule guarded: every epoch rises by a gap that no lost future can have reached, and every ownership ends: its token is
replaced by one that nobody holds and its lease is over. So the next claim supersedes it, and says so in the log.
"""

from thread_objects.contract.limits import RESTORE_GAP
from thread_objects.ports import FencedPage

from . import marks
from .engine import Transaction
from .submissions import OPEN

_NOBODY = "fenced-by-restore"
"""Tokens are random; this one is no claim's."""


def fence(tx: Transaction, *, after: str, limit: int, now: int) -> FencedPage:
    """Fence the Threads past `after`, by id. The last page fences the numbers that belong to no Thread."""
    ids = [
        row[0]
        for row in tx.all(
            "SELECT thread_id FROM threads WHERE thread_id > :after ORDER BY thread_id LIMIT :limit FOR UPDATE",
            {"after": after, "limit": limit},
        )
    ]
    if not ids:
        _raise_counters(tx)
        return FencedPage(None, 0, 0)
    page = {"after": after, "through": ids[-1]}
    tx.run(
        "UPDATE threads SET epoch = epoch + :gap,"
        " lease_until = CASE WHEN owner_token IS NULL THEN NULL ELSE 0 END,"
        " owner_token = CASE WHEN owner_token IS NULL THEN NULL ELSE :nobody END"
        " WHERE thread_id > :after AND thread_id <= :through",
        {**page, "gap": RESTORE_GAP, "nobody": _NOBODY},
    )
    owed = tx.all(
        "SELECT DISTINCT t.object_id FROM threads t WHERE t.thread_id > :after AND t.thread_id <= :through AND EXISTS"
        f" (SELECT 1 FROM submissions s WHERE s.object_id = t.object_id AND s.thread_id = t.thread_id AND s.{OPEN})",
        page,
    )
    for (object_id,) in owed:
        # Its workflow remembers the lost future and may take everything for done.
        marks.leave_old(tx, object_id, now=now)
    tx.notify = True
    return FencedPage(ids[-1], len(ids), len(owed))


def _raise_counters(tx: Transaction) -> None:
    """Numbers that workflows remember: of deployments, and of recovery events that were all delivered."""
    tx.run("UPDATE deployments SET number = number + :gap WHERE number >= 0", {"gap": RESTORE_GAP})
    tx.run(
        "UPDATE recovery_event_counters SET sequence = sequence + :gap, acknowledged = acknowledged + :gap"
        " WHERE sequence = acknowledged",
        {"gap": RESTORE_GAP},
    )
