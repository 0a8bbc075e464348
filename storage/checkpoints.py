"""Checkpoints: derived views of a Thread, each bound to the end of a batch by sequence and tail digest.

Rule guarded: a checkpoint is optional and never recovery truth. One that does not fit the log is refused when it is
saved, and passed over when it is read; nothing fails for want of one.
"""

from thread_objects.contract.limits import CHECKPOINTS_KEPT
from thread_objects.core.canonical import RECORD, Unpersistable, canonical, parse
from thread_objects.errors import CheckpointRejected, ThreadNotMaterialized
from thread_objects.ports import CHECKPOINT_VERSION, Checkpoint

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
    tx.run(
        "INSERT INTO checkpoints (thread_id, sequence, digest, version, saved_at, body)"
        " VALUES (:thread_id, :sequence, :digest, :version, :now, :body) ON CONFLICT (thread_id, sequence)"
        " DO UPDATE SET digest = :digest, version = :version, saved_at = :now, body = :body",
        {
            "thread_id": thread_id,
            "sequence": sequence,
            "digest": checkpoint.digest,
            "version": checkpoint.version,
            "now": now,
            "body": body,
        },
    )
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
    for sequence, digest, version, body in tx.all(
        "SELECT sequence, digest, version, body FROM checkpoints"
        " WHERE thread_id = :thread_id AND sequence <= :at_or_before ORDER BY sequence DESC",
        {"thread_id": thread_id, "at_or_before": at_or_before},
    ):
        if version != CHECKPOINT_VERSION or log.digest_at(tx, thread_id, sequence) != digest:
            continue
        try:
            return Checkpoint(thread_id, sequence, digest, parse(body), version)
        except ValueError:
            continue  # disposable: whoever asks reads the log instead
    return None


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
