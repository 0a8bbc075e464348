"""Admission: one row for each (Thread, principal, key), ready at once, or nothing at all.

Rules guarded: a known key answers with its first identities before any limit or policy is looked at; the limits
follow in a fixed order (input bytes, queue depth, storage size), then group, fence and policy; a refusal writes
nothing. The Thread is materialised, with its created record, in the transaction that admits its first input, so an
admitted row is a ready one. Only a child waits `admitted`, for its lineage.
"""

from thread_objects.admission import AdmissionRules
from thread_objects.contract import ids
from thread_objects.contract.limits import HOST_THREADS_MAX
from thread_objects.contract.messages import Receipt, Submit
from thread_objects.contract.states import SubmissionState
from thread_objects.core import batches, digests
from thread_objects.core.canonical import Unpersistable, byte_length, canonical, escape_text
from thread_objects.errors import AdmissionConflict, AdmissionLimitExceeded, InvalidInput

from . import admitting, lanes, log, submissions
from .engine import Transaction
from .lanes import refuse_elsewhere
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
    rules: AdmissionRules,
    deployment_id: str,
    now: int,
    shared_host: bool = False,
) -> tuple[Receipt, bool]:
    """Admit, or answer a known key. Second value: whether this batch item was the one that admitted it."""
    text = _canonical_input(submit)
    facts = _canonical_facts(submit)
    digest = digests.of_text(text)
    known = submissions.find_key(tx, submit.thread_id, submit.principal, submit.key)
    if known is not None:
        return _replay(submit, known, digest, facts, source)
    lane = lanes.lock(tx, submit.thread_id)
    if lane is not None:
        refuse_elsewhere(lane.thread_id, lane.object_id, object_id)
    depth = _check_limits(tx, submit, lane, text, limits)
    if shared_host and depth == 0:
        _check_host(tx, object_id)
    if submit.facts is not None or rules.policy is not None:
        admitting.judge(tx, submit, lane, rules, nonterminal=depth)
    if lane is None:
        lane = lanes.create(tx, submit.thread_id, object_id, now=now)
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
    parent = submit.facts.parent if submit.facts is not None else None
    tx.run(
        "INSERT INTO submissions (submission_id, thread_id, object_id, queue_sequence, receipt_id, principal,"
        " idempotency_key, agent_id, state, epoch, claims, admitted_at, admitted_by, ready_at, parent_submission_id,"
        " parent_call_id, admission_group, admission_facts, input_digest, input)"
        " VALUES (:submission_id, :thread_id, :object_id, :queue_sequence, :receipt_id, :principal, :key, :agent_id,"
        " :state, 0, 0, :now, :source, :ready_at, :parent, :parent_call, :group, :facts, :digest, :input)",
        {
            "submission_id": receipt.submission_id,
            "thread_id": submit.thread_id,
            "object_id": object_id,
            "queue_sequence": receipt.queue_sequence,
            "receipt_id": receipt.receipt_id,
            "principal": submit.principal,
            "key": submit.key,
            "agent_id": submit.agent_id,
            # A child is ready when its lineage is recorded, not before.
            "state": (SubmissionState.READY if parent is None else SubmissionState.ADMITTED).value,
            "ready_at": now if parent is None else None,
            "parent": parent.submission_id if parent is not None else None,
            "parent_call": parent.tool_call_id if parent is not None else None,
            "group": submit.facts.group if submit.facts is not None else None,
            "facts": facts,
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


def _canonical_facts(submit: Submit) -> str | None:
    """The facts as they are compared. Facts that say nothing are no facts."""
    if submit.facts is None:
        return None
    said = submit.facts.model_dump(by_alias=True, exclude_none=True)
    try:
        return canonical(said) if said else None
    except Unpersistable as error:
        raise log.refused("facts", error) from error


def _replay(submit: Submit, known: Submission, digest: str, facts: str | None, source: str) -> tuple[Receipt, bool]:
    same = (known.input_digest, known.agent_id, known.admission_facts) == (digest, submit.agent_id, facts)
    if not same:
        raise AdmissionConflict(
            thread_id=submit.thread_id,
            principal=submit.principal,
            idempotency_key=submit.key,
            existing_input_digest=known.input_digest,
            attempted_input_digest=digest,
        )
    own = bool(source) and known.admitted_by == source
    return receipt_of(known, replayed=not own), own


def receipt_of(row: Submission, *, replayed: bool) -> Receipt:
    """The Receipt of a row."""
    return Receipt(
        thread_id=row.thread_id,
        principal=row.principal,
        key=row.idempotency_key,
        submission_id=row.submission_id,
        receipt_id=row.receipt_id,
        run_id=ids.run_id(row.submission_id),
        queue_sequence=row.queue_sequence,
        input_digest=row.input_digest,
        admitted_at=row.admitted_at,
        replayed=replayed,
    )


def _check_host(tx: Transaction, object_id: str) -> None:
    """A Thread that owes nothing yet is refused where its host owes as many as one scan can hold."""
    row = tx.one(
        "SELECT COUNT(*) FROM (SELECT DISTINCT thread_id FROM submissions WHERE object_id = :object_id"
        f" AND {OPEN} LIMIT :most) AS owing",
        {"object_id": object_id, "most": HOST_THREADS_MAX},
    )
    if row is not None and row[0] >= HOST_THREADS_MAX:
        raise AdmissionLimitExceeded(limit="host-threads", actual=row[0], maximum=HOST_THREADS_MAX)


def _check_limits(tx: Transaction, submit: Submit, lane: lanes.Lane | None, text: str, limits: StoreLimits) -> int:
    """Refuse what is beyond a limit; the lane's unsettled rows otherwise."""
    depth = 0
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
    return depth
