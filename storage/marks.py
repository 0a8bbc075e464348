"""Marks: a batch that was committed by a workflow task that never was leaves one, and a sweep finds it.

Rule guarded: a mark goes only with a batch whose answer the workflow has recorded, or with a pass that began later.
"""

from collections.abc import Sequence

from thread_objects.contract.activities import ApplyRequest
from thread_objects.ports import OldMark

from .engine import Transaction, listed
from .submissions import OPEN


def leave(tx: Transaction, request: ApplyRequest, *, worker: str, now: int) -> None:
    """Leave this batch's mark. An older one that nobody recorded keeps its age."""
    tx.run(
        "INSERT INTO objects (object_id, worker, mark, marked_at) VALUES (:object_id, :worker, :mark, :now)"
        " ON CONFLICT (object_id) DO UPDATE SET worker = :worker, mark = :mark, marked_at = CASE"
        " WHEN objects.mark IS NOT NULL AND objects.mark > :through THEN objects.marked_at ELSE :now END",
        {
            "object_id": request.object_id,
            "worker": worker,
            "mark": request.mark,
            "through": request.applied_through,
            "now": now,
        },
    )


def leave_old(tx: Transaction, object_id: str, *, now: int) -> None:
    """Leave a mark that the next sweep takes for an old one: rows have come that no workflow knows of.

    Its number is the time, which is past every batch that an object ever counted: its workflow takes it for work.
    """
    tx.run(
        "INSERT INTO objects (object_id, worker, mark, marked_at) VALUES (:object_id, '', :mark, 0)"
        " ON CONFLICT (object_id) DO UPDATE SET marked_at = 0, mark = CASE"
        " WHEN objects.mark IS NOT NULL AND objects.mark > :mark THEN objects.mark + 1 ELSE :mark END",
        {"object_id": object_id, "mark": now},
    )


def leave_old_at(tx: Transaction, thread_id: str, *, now: int) -> None:
    """The same, at the object that a Thread belongs to."""
    row = tx.one("SELECT object_id FROM threads WHERE thread_id = :thread_id", {"thread_id": thread_id})
    if row is not None:
        leave_old(tx, row[0], now=now)


def clear(tx: Transaction, object_id: str, through: int) -> None:
    """Remove the mark if it is not newer."""
    if through > 0:
        tx.run(
            "UPDATE objects SET mark = NULL, marked_at = NULL WHERE object_id = :object_id AND mark <= :through",
            {"object_id": object_id, "through": through},
        )


def old(tx: Transaction, *, before: int, limit: int) -> list[OldMark]:
    """Objects with a mark left before an instant, oldest first."""
    rows = tx.all(
        "SELECT object_id, mark, marked_at, worker FROM objects WHERE mark IS NOT NULL AND marked_at < :before"
        " ORDER BY marked_at LIMIT :limit",
        {"before": before, "limit": limit},
    )
    return [OldMark(*row) for row in rows]


def of_workers(tx: Transaction, workers: Sequence[str], *, limit: int) -> list[str]:
    """Objects last served by these workers that have a mark or nonterminal rows."""
    names, params = listed("worker", workers)
    rows = tx.all(
        f"SELECT o.object_id FROM objects o WHERE o.worker IN {names} AND (o.mark IS NOT NULL OR EXISTS"
        f" (SELECT 1 FROM submissions WHERE object_id = o.object_id AND {OPEN})) ORDER BY o.object_id LIMIT :limit",
        {**params, "limit": limit},
    )
    return [row[0] for row in rows]


_LATE = (
    " AND state = 'ready' AND ready_at <= :ready_by"
    " AND EXISTS (SELECT 1 FROM threads t WHERE t.thread_id = s.thread_id AND t.owner_token IS NULL)"
    " AND NOT EXISTS (SELECT 1 FROM submissions e WHERE e.object_id = s.object_id AND e.thread_id = s.thread_id"
    " AND e.queue_sequence < s.queue_sequence AND e.state <> 'settled' AND e.state <> 'unknown')"
)
"""A head that nobody has taken up."""


def owed_by(tx: Transaction, agents: Sequence[str], *, after: str, limit: int, ready_by: int | None) -> list[str]:
    """Objects past `after`, by id, with input of these agents that waits for no more than a worker.

    With `ready_by` only those whose head is ready since then, and that nobody works on.
    """
    names, params = listed("agent", agents)
    rows = tx.all(
        f"SELECT DISTINCT object_id FROM submissions s WHERE {OPEN} AND object_id > :after"
        f" AND state IN ('ready', 'input-applied') AND agent_id IN {names}"
        f"{'' if ready_by is None else _LATE} ORDER BY object_id LIMIT :limit",
        {**params, "after": after, "limit": limit, **({} if ready_by is None else {"ready_by": ready_by})},
    )
    return [row[0] for row in rows]
