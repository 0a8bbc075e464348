"""A Thread's row: the lock of its lane and log, the fence, the tail, and the one ownership.

Rule guarded: fences are decided inside the UPDATE. A stale token or epoch changes nothing and is told who is ahead.
"""

from dataclasses import replace
from typing import NamedTuple

from thread_objects.contract.limits import LEASE_MS
from thread_objects.core.digests import EMPTY_TAIL
from thread_objects.errors import FenceRejected, NotFound, OwnershipLost, ThreadPlacedElsewhere
from thread_objects.ports import Claim, Tail

from .engine import Transaction, listed


class Lane(NamedTuple):
    """A Thread's row as read under its lock."""

    thread_id: str
    object_id: str
    materialized: int
    queue_last: int
    epoch: int
    tail_sequence: int
    tail_digest: str
    owner_submission_id: str | None
    owner_attempt_id: str | None
    owner_producer_id: str | None
    owner_token: str | None
    lease_until: int | None
    retained_at: int = 0

    @property
    def tail(self) -> Tail:
        """The end of the log."""
        return Tail(self.tail_sequence, self.tail_digest, self.queue_last)

    def blocked(self, ended_attempts: tuple[str, ...], now: int) -> bool:
        """Whether a live lease stands. Its own producer's counts too; one whose activity ended does not."""
        return self.lease_until is not None and self.lease_until > now and self.owner_attempt_id not in ended_attempts


COLUMNS = ", ".join(Lane._fields)
_SELECT = f"SELECT {COLUMNS} FROM threads WHERE thread_id = :thread_id"
_NO_OWNER = (
    "owner_submission_id = NULL, owner_attempt_id = NULL, owner_producer_id = NULL, owner_token = NULL,"
    " lease_until = NULL"
)
_FENCED = "thread_id = :thread_id AND epoch = :epoch AND owner_token = :token"


def lock(tx: Transaction, thread_id: str) -> Lane | None:
    """The Thread's row, locked until the transaction ends."""
    row = tx.one(_SELECT + " FOR UPDATE", {"thread_id": thread_id})
    return None if row is None else Lane(*row)


def locked(tx: Transaction, thread_id: str) -> Lane:
    """As `lock`, of a Thread that exists."""
    lane = lock(tx, thread_id)
    if lane is None:
        raise NotFound(what="thread", id=thread_id)
    return lane


def lock_all(tx: Transaction, thread_ids: set[str]) -> dict[str, str]:
    """Lock several Threads in the one order that everybody uses. Answers which object each of them belongs to."""
    names, params = listed("thread", sorted(thread_ids))
    rows = tx.all(
        f"SELECT thread_id, object_id FROM threads WHERE thread_id IN {names} ORDER BY thread_id FOR UPDATE", params
    )
    return {row[0]: row[1] for row in rows}


def refuse_elsewhere(thread_id: str, owner: str | None, object_id: str) -> None:
    """A Thread belongs to the object that admitted its first input, whatever a placement says since."""
    if owner is not None and owner != object_id:
        raise ThreadPlacedElsewhere(thread_id=thread_id, object_id=owner)


def look(tx: Transaction, thread_id: str) -> Lane | None:
    """The Thread's row, unlocked."""
    row = tx.one(_SELECT, {"thread_id": thread_id})
    return None if row is None else Lane(*row)


def create(tx: Transaction, thread_id: str, object_id: str, *, now: int) -> Lane:
    """A Thread with an empty, unmaterialised log."""
    tx.run(
        "INSERT INTO threads (thread_id, object_id, created_at, materialized, queue_last, epoch, tail_sequence,"
        " tail_digest) VALUES (:thread_id, :object_id, :now, 0, 0, 0, 0, :digest)",
        {"thread_id": thread_id, "object_id": object_id, "now": now, "digest": EMPTY_TAIL},
    )
    return Lane(thread_id, object_id, 0, 0, 0, 0, EMPTY_TAIL, None, None, None, None, None)


def materialize(tx: Transaction, lane: Lane, epoch: int) -> Lane:
    """Create the log, or raise its epoch. A lower epoch is refused."""
    if epoch < lane.epoch:
        raise FenceRejected(thread_id=lane.thread_id, actual=lane.epoch, attempted=epoch)
    tx.run(
        "UPDATE threads SET materialized = 1, epoch = :epoch WHERE thread_id = :thread_id",
        {"thread_id": lane.thread_id, "epoch": epoch},
    )
    return lane._replace(materialized=1, epoch=epoch)


def next_in_queue(tx: Transaction, lane: Lane) -> Lane:
    """Allocate the next queue sequence."""
    tx.run(
        "UPDATE threads SET queue_last = :next WHERE thread_id = :thread_id",
        {"thread_id": lane.thread_id, "next": lane.queue_last + 1},
    )
    return lane._replace(queue_last=lane.queue_last + 1)


def take(
    tx: Transaction,
    lane: Lane,
    *,
    submission_id: str,
    attempt_id: str,
    producer_id: str,
    token: str,
    tail: Tail,
    now: int,
) -> bool:
    """Make this attempt the owner at the next epoch. False when the row moved since it was read."""
    return (
        tx.run(
            "UPDATE threads SET epoch = epoch + 1, tail_sequence = :sequence, tail_digest = :digest,"
            " owner_submission_id = :submission_id, owner_attempt_id = :attempt_id, owner_producer_id = :producer_id,"
            " owner_token = :token, lease_until = :lease_until"
            " WHERE thread_id = :thread_id AND epoch = :epoch AND tail_sequence = :tail_sequence",
            {
                "thread_id": lane.thread_id,
                "epoch": lane.epoch,
                "tail_sequence": lane.tail_sequence,
                "sequence": tail.sequence,
                "digest": tail.digest,
                "submission_id": submission_id,
                "attempt_id": attempt_id,
                "producer_id": producer_id,
                "token": token,
                "lease_until": now + LEASE_MS,
            },
        )
        == 1
    )


def renew(tx: Transaction, claim: Claim, token: str, *, now: int) -> Claim:
    """Extend the lease under this token from now on; an earlier end is never written."""
    lease_until = max(claim.lease_until, now + LEASE_MS)
    done = tx.run(
        "UPDATE threads SET owner_token = :next_token,"
        " lease_until = CASE WHEN lease_until > :lease_until THEN lease_until ELSE :lease_until END"
        f" WHERE {_FENCED}",
        {**_fence(claim), "lease_until": lease_until, "next_token": token},
    )
    if not done:
        raise lost(tx, claim)
    return replace(claim, lease_until=lease_until, token=token)


def advance(tx: Transaction, claim: Claim, at: Tail, to: Tail, *, release: bool) -> Tail | None:
    """Move the tail under the claim, and with `release` end it. None when the fence or the tail is another.

    The same statement tells whether somebody queued behind the claim, so that a Run never asks for that alone.
    """
    row = tx.one(
        f"UPDATE threads SET tail_sequence = :sequence, tail_digest = :digest{', ' + _NO_OWNER if release else ''}"
        f" WHERE {_FENCED} AND tail_sequence = :at_sequence AND tail_digest = :at_digest RETURNING queue_last",
        {
            **_fence(claim),
            "sequence": to.sequence,
            "digest": to.digest,
            "at_sequence": at.sequence,
            "at_digest": at.digest,
        },
    )
    return None if row is None else replace(to, queue_last=row[0])


def release(tx: Transaction, claim: Claim) -> None:
    """End the claim."""
    if not tx.run(f"UPDATE threads SET {_NO_OWNER} WHERE {_FENCED}", _fence(claim)):
        raise lost(tx, claim)


def hold(tx: Transaction, claim: Claim) -> Lane:
    """The locked row, if the claim still stands; `OwnershipLost` otherwise."""
    lane = locked(tx, claim.thread_id)
    if lane.epoch != claim.epoch or lane.owner_token != claim.token:
        raise OwnershipLost(submission_id=claim.submission_id, actual_epoch=lane.epoch)
    return lane


def move_tail(tx: Transaction, lane: Lane, to: Tail) -> Lane:
    """Move the tail without a claim, under the row's lock and at its epoch."""
    tx.run(
        "UPDATE threads SET tail_sequence = :sequence, tail_digest = :digest WHERE thread_id = :thread_id",
        {"thread_id": lane.thread_id, "sequence": to.sequence, "digest": to.digest},
    )
    return lane._replace(tail_sequence=to.sequence, tail_digest=to.digest)


def drop_owner(tx: Transaction, lane: Lane, submission_id: str) -> None:
    """End whatever ownership this Submission has: it is settled."""
    if lane.owner_submission_id == submission_id:
        tx.run(f"UPDATE threads SET {_NO_OWNER} WHERE thread_id = :thread_id", {"thread_id": lane.thread_id})


def lost(tx: Transaction, claim: Claim) -> OwnershipLost:
    """The error of a claim that does not stand any more."""
    lane = locked(tx, claim.thread_id)
    return OwnershipLost(submission_id=claim.submission_id, actual_epoch=lane.epoch)


def _fence(claim: Claim) -> dict[str, object]:
    return {"thread_id": claim.thread_id, "epoch": claim.epoch, "token": claim.token}
