"""Admission: one row for each (Thread, principal, key), ready at once, or nothing at all.

Rules guarded: a known key answers with its first identities before any limit is looked at; the limits follow in a
fixed order (input bytes, queue depth, storage size); a refusal writes nothing. The Thread is materialised, with its
created record, in the transaction that admits its first input, so an admitted row is a ready one.
"""

from thread_objects.contract import ids
from thread_objects.contract.messages import Receipt, Submit
from thread_objects.contract.states import SubmissionState
from thread_objects.core import batches, digests
from thread_objects.core.canonical import Unpersistable, byte_length, canonical, escape_text
from thread_objects.errors import AdmissionConflict, AdmissionLimitExceeded, InvalidInput, LedgerError

from . import lanes, log, submissions
from .engine import Transaction
from .limits import StoreLimits
from .submissions import OPEN, Submission

_KEY_BYTES_MAX = 2_400
"""The key's index entry must fit a page of either database."""


def admit(
    tx: Transaction,
    submit: Submit,
    object_id: str,
    *,
    source: str,
    limits: StoreLimits,
    deployment_id: str,
    now: int,
) -> tuple[Receipt, bool]:
    """Admit, or answer a known key. Second value: whether this batch item was the one that admitted it."""
    text = _canonical_input(submit)
    digest = digests.of_text(text)
    known = submissions.find_key(tx, submit.thread_id, submit.principal, submit.key)
    if known is not None:
        return _replay(submit, known, digest, source)
    lane = lanes.lock(tx, submit.thread_id)
    _check_limits(tx, submit, lane, text, limits)
    if lane is None:
        lane = lanes.create(tx, submit.thread_id, object_id, now=now)
    elif lane.object_id != object_id:
        raise LedgerError(f"thread {submit.thread_id} belongs to object {lane.object_id}", operation="admit")
    lane = ensure_materialized(tx, lane, submit.agent_id, deployment_id=deployment_id, now=now)
    lane = lanes.next_in_queue(tx, lane)
    receipt = Receipt(
        thread_id=submit.thread_id,
        principal=submit.principal,
        key=submit.key,
        submission_id=ids.submission_id(submit.thread_id, submit.principal, submit.key),
        receipt_id=ids.receipt_id(submit.thread_id, submit.principal, submit.key),
        run_id=ids.run_id(ids.submission_id(submit.thread_id, submit.principal, submit.key)),
        queue_sequence=lane.queue_last,
        input_digest=digest,
        admitted_at=now,
    )
    tx.run(
        "INSERT INTO submissions (submission_id, thread_id, object_id, queue_sequence, receipt_id, principal,"
        " idempotency_key, agent_id, state, epoch, claims, admitted_at, admitted_by, ready_at, input_digest, input)"
        " VALUES (:submission_id, :thread_id, :object_id, :queue_sequence, :receipt_id, :principal, :key, :agent_id,"
        " :state, 0, 0, :now, :source, :now, :digest, :input)",
        {
            "submission_id": receipt.submission_id,
            "thread_id": submit.thread_id,
            "object_id": object_id,
            "queue_sequence": receipt.queue_sequence,
            "receipt_id": receipt.receipt_id,
            "principal": submit.principal,
            "key": submit.key,
            "agent_id": submit.agent_id,
            "state": SubmissionState.READY.value,
            "now": now,
            "source": source,
            "digest": digest,
            "input": text,
        },
    )
    return receipt, True


def ensure_materialized(
    tx: Transaction, lane: lanes.Lane, agent_id: str, *, deployment_id: str, now: int
) -> lanes.Lane:
    """A log at least at epoch 0, with its created record."""
    if not lane.materialized:
        lane = lanes.materialize(tx, lane, lane.epoch)
    if lane.tail_sequence == 0:
        created = batches.thread_created(lane.thread_id, agent_id, deployment_id=deployment_id, now=now)
        lane = log.append_unowned(tx, lane, [log.encode(created)], None)
    return lane


def _canonical_input(submit: Submit) -> str:
    size = sum(byte_length(escape_text(part)) for part in (submit.thread_id, submit.principal, submit.key))
    if size > _KEY_BYTES_MAX:
        raise InvalidInput(what="key", limit="bytes", actual=size, maximum=_KEY_BYTES_MAX)
    try:
        return canonical(submit.input)
    except Unpersistable as error:
        raise log.refused("input", error) from error


def _replay(submit: Submit, known: Submission, digest: str, source: str) -> tuple[Receipt, bool]:
    if known.input_digest != digest or known.agent_id != submit.agent_id:
        raise AdmissionConflict(
            thread_id=submit.thread_id,
            principal=submit.principal,
            idempotency_key=submit.key,
            existing_input_digest=known.input_digest,
            attempted_input_digest=digest,
        )
    own = known.admitted_by == source
    return (
        Receipt(
            thread_id=known.thread_id,
            principal=known.principal,
            key=known.idempotency_key,
            submission_id=known.submission_id,
            receipt_id=known.receipt_id,
            run_id=ids.run_id(known.submission_id),
            queue_sequence=known.queue_sequence,
            input_digest=known.input_digest,
            admitted_at=known.admitted_at,
            replayed=not own,
        ),
        own,
    )


def _check_limits(tx: Transaction, submit: Submit, lane: lanes.Lane | None, text: str, limits: StoreLimits) -> None:
    size = byte_length(text)
    if size > limits.input_bytes:
        raise AdmissionLimitExceeded(limit="input-bytes", actual=size, maximum=limits.input_bytes)
    if lane is not None:
        row = tx.one(
            f"SELECT COUNT(*) FROM submissions WHERE object_id = :object_id AND thread_id = :thread_id AND {OPEN}",
            {"object_id": lane.object_id, "thread_id": submit.thread_id},
        )
        depth = row[0] if row is not None else 0
        if depth >= limits.queue_depth:
            raise AdmissionLimitExceeded(limit="queue-depth", actual=depth, maximum=limits.queue_depth)
    stored = tx.size_bytes()
    if stored > limits.database_bytes:
        raise AdmissionLimitExceeded(limit="database-bytes", actual=stored, maximum=limits.database_bytes)
