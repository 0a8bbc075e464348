"""Claims: who may advance a Thread now, and the input that a claim makes canonical.

Rules guarded: one ownership per Thread; every grant has a higher epoch; an expired lease may be taken over, a live one
only when its activity was seen to end; uncertain work is not claimable until somebody asks to abort it.
"""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from thread_objects.contract import ids
from thread_objects.contract.limits import LEASE_MS
from thread_objects.contract.messages import LogRecord
from thread_objects.contract.records import Batch
from thread_objects.contract.states import SubmissionState
from thread_objects.core import batches, ledger
from thread_objects.errors import FenceRejected, LedgerError, OwnershipLost
from thread_objects.ports import Claim, ClaimRequest, Tail

from . import lanes, log, submissions
from .engine import Transaction
from .submissions import Submission

_TOKEN_BYTES = 16


def fresh_token() -> str:
    """A token nobody can guess."""
    return secrets.token_hex(_TOKEN_BYTES)


def grant(tx: Transaction, request: ClaimRequest, *, now: int, only: str | None = None) -> Claim | None:
    """Claim the head and change nothing else."""
    found = _grantable(tx, request, now)
    if found is None:
        return None
    lane, head = found
    if only is not None and head.submission_id != only:
        return None
    token = fresh_token()
    _take(tx, lane, head, request, token=token, tail=lane.tail, now=now)
    tx.run(
        "UPDATE submissions SET claims = claims + 1, epoch = :epoch WHERE submission_id = :submission_id",
        {"epoch": lane.epoch + 1, "submission_id": head.submission_id},
    )
    return _claim(tx, lane, head, request, token=token, now=now)


def begin(
    tx: Transaction,
    request: ClaimRequest,
    *,
    run_duration_ms: Callable[[str], int],
    deployment_id: str,
    now: int,
) -> Claim | None:
    """Claim the head; the input of a ready row becomes canonical with it."""
    found = _grantable(tx, request, now)
    if found is None:
        return None
    lane, head = found
    if head.state is SubmissionState.ADMITTED:
        return None  # its Thread is not materialised: recovery's work
    if head.state is not SubmissionState.READY:
        return grant(tx, request, now=now)
    duration_ms = run_duration_ms(head.agent_id)
    token = fresh_token()
    touched = head.claims > 0 or head.input_applied is not None
    recorded = log.record(tx, lane.thread_id, ids.input_record(head.submission_id)) if touched else None
    if recorded is not None:
        value, position = recorded.payload.get("input"), recorded.sequence
        tail = _started(tx, lane, head, recorded, duration_ms=duration_ms, deployment_id=deployment_id, now=now)
    else:
        value = submissions.stored_input(tx, head.submission_id)
        position = lane.tail_sequence + 1
        encoded = log.encode(
            batches.run_input(head.submission_id, value, duration_ms=duration_ms, deployment_id=deployment_id, now=now)
        )
        tail = log.insert(tx, lane.thread_id, lane.tail, [encoded], head.submission_id)
    _take(tx, lane, head, request, token=token, tail=tail, now=now)
    moved = submissions.move(
        tx,
        head,
        ledger.Operation.MARK_INPUT_APPLIED,
        input_applied=position,
        claims=head.claims + 1,
        epoch=lane.epoch + 1,
        input=None,
    )
    return _claim(
        tx,
        lane._replace(tail_sequence=tail.sequence, tail_digest=tail.digest),
        moved,
        request,
        token=token,
        now=now,
        value=value,
    )


def _started(
    tx: Transaction,
    lane: lanes.Lane,
    head: Submission,
    recorded: LogRecord,
    *,
    duration_ms: int,
    deployment_id: str,
    now: int,
) -> Tail:
    """The tail with the start of a Run whose input another Run recorded and never answered."""
    run = ids.run_id(head.submission_id)
    if recorded.payload.get("runId") in (None, run) or log.record(tx, lane.thread_id, ids.run_started_record(run)):
        return lane.tail
    batch = batches.run_start(head.submission_id, duration_ms=duration_ms, deployment_id=deployment_id, now=now)
    return log.insert(tx, lane.thread_id, lane.tail, [log.encode(batch)], head.submission_id)


def apply_input(tx: Transaction, claim: Claim, batch: Batch) -> Claim:
    """Append the input batch and set the marker."""
    with fenced(claim):
        tail = log.append(tx, claim, [log.encode(batch)])
    return mark_input_applied(tx, claim.at(tail))


def mark_input_applied(tx: Transaction, claim: Claim) -> Claim:
    """Set the marker of an input that is canonical already."""
    lane = lanes.hold(tx, claim)
    row = submissions.get(tx, claim.submission_id)
    recorded = log.record(tx, claim.thread_id, ids.input_record(claim.submission_id))
    if recorded is None:
        raise LedgerError(f"{claim.submission_id}: its input is not canonical", operation="markInputApplied")
    if row.input_applied is None:
        row = submissions.move(
            tx, row, ledger.Operation.MARK_INPUT_APPLIED, input_applied=recorded.sequence, input=None
        )
    return replace(claim, state=row.state, input_applied=True, tail=lane.tail)


@contextmanager
def fenced(claim: Claim) -> Iterator[None]:
    """A ledger operation of a stale epoch has lost its ownership."""
    try:
        yield
    except FenceRejected as error:
        raise OwnershipLost(submission_id=claim.submission_id, actual_epoch=error.actual) from error


def _grantable(tx: Transaction, request: ClaimRequest, now: int) -> tuple[lanes.Lane, Submission] | None:
    lane = lanes.lock(tx, request.thread_id)
    if lane is None or lane.blocked(request.ended_attempts, now):
        return None
    head = submissions.head(tx, lane.object_id, lane.thread_id)
    if head is None or not ledger.claimable(head.state, head.abort_requested):
        return None
    return lane, head


def _take(
    tx: Transaction,
    lane: lanes.Lane,
    head: Submission,
    request: ClaimRequest,
    *,
    token: str,
    tail: Tail,
    now: int,
) -> None:
    taken = lanes.take(
        tx,
        lane,
        submission_id=head.submission_id,
        attempt_id=request.attempt_id,
        producer_id=request.producer_id,
        token=token,
        tail=tail,
        now=now,
    )
    if not taken:
        raise LedgerError(f"{lane.thread_id}: the lane moved under its lock", operation="claim")


def _claim(
    tx: Transaction,
    lane: lanes.Lane,
    row: Submission,
    request: ClaimRequest,
    *,
    token: str,
    now: int,
    value: object = None,
) -> Claim:
    if value is None:
        value = _input(tx, row)
    return Claim(
        thread_id=row.thread_id,
        object_id=row.object_id,
        submission_id=row.submission_id,
        receipt_id=row.receipt_id,
        agent_id=row.agent_id,
        principal=row.principal,
        key=row.idempotency_key,
        queue_sequence=row.queue_sequence,
        state=row.state,
        input=value,  # type: ignore[arg-type]  # what `parse` returns is JSON
        input_applied=row.input_applied is not None,
        attempt_id=request.attempt_id,
        token=token,
        epoch=lane.epoch + 1,
        superseded_epoch=lane.epoch if lane.owner_token is not None else None,
        lease_until=now + LEASE_MS,
        retained_at=lane.retained_at,
        admitted_at=row.admitted_at,
        tail=lane.tail,
        abort=row.abort,
        parent=row.parent,
    )


def _input(tx: Transaction, row: Submission) -> object:
    recorded = log.record(tx, row.thread_id, ids.input_record(row.submission_id))
    return submissions.stored_input(tx, row.submission_id) if recorded is None else recorded.payload.get("input")
