"""Checkpoints: derived views of a Thread, each bound to the end of a batch by sequence and tail digest.

Rule guarded: a checkpoint is optional and never recovery truth. One that does not fit the log is refused when it is
saved, and passed over when it is read; nothing fails for want of one.
"""

from thread_objects.contract.limits import CHECKPOINTS_KEPT
from thread_objects.core.canonical import RECORD, Unpersistable, canonical, parse
from thread_objects.errors import CheckpointRejected, ThreadNotMaterialized
from thread_objects.ports import CHECKPOINT_VERSION, Checkpoint, CheckpointPlace

from . import lanes, log
from .engine import Transaction


def save(tx: Transaction, checkpoint: Checkpoint, *, now: int) -> None:
    """Keep a checkpoint and let the older ones go."""
    thread_id, sequence = checkpoint.thread_id, checkpoint.sequence
    if checkpoint.version != CHECKPOINT_VERSION:
        raise CheckpointRejected(thread_id=thread_id, reason="unsupported-version")
    try:
        body = canonical(checkpoint.body, RECORD)
    except Unpersistable as error:
        raise log.refused("checkpoint", error) from error
    # Under the lock, so that retention cannot remove in between what this would bring back.
    lane = lanes.lock(tx, thread_id)
    if lane is None or not lane.materialized:
        raise ThreadNotMaterialized(thread_id=thread_id)
    if sequence > lane.tail_sequence:
        raise CheckpointRejected(thread_id=thread_id, reason="ahead-of-tail")
    if log.digest_at(tx, thread_id, sequence) != checkpoint.digest:
        raise CheckpointRejected(thread_id=thread_id, reason="digest-mismatch")
    if checkpoint.retained_at != lane.retained_at:
        raise CheckpointRejected(thread_id=thread_id, reason="redacted")
    tx.run(
        "INSERT INTO checkpoints (thread_id, sequence, digest, version, follows, saved_at, body)"
        " VALUES (:thread_id, :sequence, :digest, :version, :follows, :now, :body) ON CONFLICT (thread_id, sequence)"
        " DO UPDATE SET digest = :digest, version = :version, follows = :follows, saved_at = :now, body = :body",
        {
            "thread_id": thread_id,
            "sequence": sequence,
            "digest": checkpoint.digest,
            "version": checkpoint.version,
            "follows": checkpoint.follows,
            "now": now,
            "body": body,
        },
    )
    _let_go(tx, checkpoint)


def _let_go(tx: Transaction, checkpoint: Checkpoint) -> None:
    """Delete what the new one takes the place of."""
    thread_id = checkpoint.thread_id
    if checkpoint.follows:
        tx.run(
            "DELETE FROM checkpoints WHERE thread_id = :thread_id AND sequence > :follows AND sequence < :sequence",
            {"thread_id": thread_id, "follows": checkpoint.follows, "sequence": checkpoint.sequence},
        )
        return
    kept = tx.one(
        "SELECT sequence FROM checkpoints WHERE thread_id = :thread_id ORDER BY sequence DESC LIMIT 1 OFFSET :kept",
        {"thread_id": thread_id, "kept": CHECKPOINTS_KEPT - 1},
    )
    if kept is not None:
        tx.run(
            "DELETE FROM checkpoints WHERE thread_id = :thread_id AND sequence < :oldest",
            {"thread_id": thread_id, "oldest": kept[0]},
        )


def load(tx: Transaction, thread_id: str, *, at_or_before: int) -> Checkpoint | None:
    """The newest one that fits."""
    for sequence, digest, version, follows, body in tx.all(
        "SELECT sequence, digest, version, follows, body FROM checkpoints"
        " WHERE thread_id = :thread_id AND sequence <= :at_or_before ORDER BY sequence DESC",
        {"thread_id": thread_id, "at_or_before": at_or_before},
    ):
        if version != CHECKPOINT_VERSION or log.digest_at(tx, thread_id, sequence) != digest:
            continue
        try:
            return Checkpoint(thread_id, sequence, digest, parse(body), version, follows)
        except ValueError:
            continue  # disposable: whoever asks reads the log instead
    return None


def chain(tx: Transaction, thread_id: str) -> list[CheckpointPlace]:
    """The longest gapless row of pieces, in order, that the log bears out now."""
    places = {
        sequence: CheckpointPlace(follows, sequence)
        for sequence, follows in tx.all(
            "SELECT c.sequence, c.follows FROM checkpoints c"
            " JOIN records r ON r.thread_id = c.thread_id AND r.sequence = c.sequence AND r.digest = c.digest"
            " WHERE c.thread_id = :thread_id AND c.version = :version ORDER BY c.sequence DESC",
            {"thread_id": thread_id, "version": CHECKPOINT_VERSION},
        )
    }
    for last in places.values():
        found = [last]
        while (before := places.get(found[-1].follows)) is not None:
            found.append(before)
        if found[-1].follows == 0:
            return found[::-1]
    return []


def load_chain(tx: Transaction, thread_id: str) -> list[Checkpoint]:
    """The pieces with their bodies; none when one of them cannot be read."""
    found = []
    for place in chain(tx, thread_id):
        row = tx.one(
            "SELECT digest, body FROM checkpoints WHERE thread_id = :thread_id AND sequence = :sequence",
            {"thread_id": thread_id, "sequence": place.sequence},
        )
        try:
            digest, body = row if row is not None else ("", "")
            found.append(Checkpoint(thread_id, place.sequence, digest, parse(body), follows=place.follows))
        except ValueError:
            return []
    return found


def bindings(tx: Transaction, thread_id: str) -> list[tuple[int, str]]:
    """(sequence, digest) of every stored checkpoint, whether it fits or not."""
    rows = tx.all(
        "SELECT sequence, digest FROM checkpoints WHERE thread_id = :thread_id ORDER BY sequence",
        {"thread_id": thread_id},
    )
    return [(sequence, digest) for sequence, digest in rows]


def drop(tx: Transaction, thread_id: str) -> None:
    """Forget all of a Thread's."""
    tx.run("DELETE FROM checkpoints WHERE thread_id = :thread_id", {"thread_id": thread_id})
