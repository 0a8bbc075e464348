"""Recipients of a fault: every nonterminal Submission that was seen while it is retained.

They stay listed after their settlement, until the fault is cleared. Read and written in blocks, in row order.
"""

from collections.abc import Callable, Iterator, Sequence

from .engine import Transaction, listed
from .submissions import OPEN

BLOCK = 128


def blocks(tx: Transaction, thread_id: str) -> Iterator[list[str]]:
    """The recipients of a Thread's fault."""
    return _blocks(
        lambda after: tx.all(
            "SELECT queue_sequence, submission_id FROM fault_recipients WHERE thread_id = :thread_id"
            " AND queue_sequence > :after ORDER BY queue_sequence LIMIT :limit",
            {"thread_id": thread_id, "after": after, "limit": BLOCK},
        )
    )


def admit(tx: Transaction, object_id: str, thread_id: str) -> Iterator[list[str]]:
    """List the nonterminal rows that are not recipients yet; each block is written before it is told."""
    missing = (
        f"SELECT queue_sequence, submission_id FROM submissions s WHERE object_id = :object_id"
        f" AND thread_id = :thread_id AND {OPEN} AND queue_sequence > :after AND NOT EXISTS (SELECT 1 FROM"
        " fault_recipients r WHERE r.thread_id = s.thread_id AND r.queue_sequence = s.queue_sequence)"
        " ORDER BY queue_sequence LIMIT :limit"
    )

    def read(after: int) -> Sequence[tuple[int, str]]:
        params = {"object_id": object_id, "thread_id": thread_id, "after": after, "limit": BLOCK}
        rows = [(int(sequence), str(submission_id)) for sequence, submission_id in tx.all(missing, params)]
        tx.many(
            "INSERT INTO fault_recipients (thread_id, queue_sequence, submission_id)"
            " VALUES (:thread_id, :sequence, :submission_id)",
            [
                {"thread_id": thread_id, "sequence": sequence, "submission_id": submission_id}
                for sequence, submission_id in rows
            ],
        )
        return rows

    return _blocks(read)


def unlisted(tx: Transaction, object_id: str, thread_ids: Sequence[str]) -> list[str]:
    """Those Threads that have nonterminal rows which are not recipients."""
    names, params = listed("thread", thread_ids)
    rows = tx.all(
        f"SELECT DISTINCT s.thread_id FROM submissions s WHERE s.object_id = :object_id AND s.thread_id IN {names}"
        f" AND {OPEN} AND NOT EXISTS (SELECT 1 FROM fault_recipients r WHERE r.thread_id = s.thread_id"
        " AND r.queue_sequence = s.queue_sequence) ORDER BY s.thread_id",
        {"object_id": object_id, **params},
    )
    return [row[0] for row in rows]


def count(tx: Transaction, thread_id: str) -> int:
    """How many are listed."""
    row = tx.one("SELECT COUNT(*) FROM fault_recipients WHERE thread_id = :thread_id", {"thread_id": thread_id})
    return 0 if row is None else int(row[0])


def drop(tx: Transaction, thread_id: str) -> None:
    """Forget the recipients with their fault."""
    tx.run("DELETE FROM fault_recipients WHERE thread_id = :thread_id", {"thread_id": thread_id})


def _blocks(read: Callable[[int], Sequence[tuple[int, str]]]) -> Iterator[list[str]]:
    after = 0
    while True:
        rows = read(after)
        if rows:
            yield [submission_id for _, submission_id in rows]
        if len(rows) < BLOCK:
            return
        after = rows[-1][0]
