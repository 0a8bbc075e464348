"""Settlements: published once, read from their canonical record, finalized from it.

Rules guarded: exactly one canonical `SubmissionSettled` per Submission; its authority is checked in the transaction
that appends it; a repetition answers the first winner; the row takes its outcome from the record, never the reverse.
"""

from collections.abc import Sequence

from pydantic import ValidationError

from thread_objects.contract import ids
from thread_objects.contract.messages import LogRecord, Settlement
from thread_objects.contract.records import Batch, SubmissionSettled
from thread_objects.contract.states import Outcome, SubmissionState
from thread_objects.core import batches, redaction
from thread_objects.errors import (
    AppendConflict,
    CorruptRecord,
    FenceRejected,
    LedgerError,
    OwnershipLost,
    SettlementConflict,
)
from thread_objects.ports import Claim

from . import lanes, log, parents, submissions
from .engine import Transaction
from .submissions import Submission


def finish(
    tx: Transaction, claim: Claim, before: Sequence[Batch], settled: SubmissionSettled, *, now: int
) -> Settlement:
    """Publish under the claim (authority Owned) and finalize."""
    _check_identity(claim.submission_id, claim.receipt_id, settled)
    deployment_id = before[-1].records[-1].deployment_id if before else ""
    last = batches.settlement(settled, deployment_id=deployment_id, now=now)
    encoded = [log.encode(batch) for batch in (*before, last)]
    try:
        log.append(tx, claim, encoded, release=True)
    except (FenceRejected, OwnershipLost, AppendConflict):
        # A settlement that is canonical already is the answer, whatever the token or the content says.
        replay = published(tx, claim.thread_id, claim.submission_id)
        if replay is None:
            raise
        return _first_winner(tx, claim, replay, settled, now)
    done = tx.run(
        "UPDATE submissions SET state = 'settled', outcome = :outcome, settled_at = :now, input = NULL"
        " WHERE submission_id = :submission_id AND state IN ('ready', 'input-applied', 'unknown', 'admitted')",
        {"outcome": settled.outcome.value, "now": now, "submission_id": claim.submission_id},
    )
    if done != 1:
        raise LedgerError(f"{claim.submission_id}: not settleable from its state", operation="finalizeSettlement")
    return told(claim.thread_id, settled, now)


def _first_winner(tx: Transaction, claim: Claim, record: LogRecord, wanted: SubmissionSettled, now: int) -> Settlement:
    found = decode(record)
    if found.outcome is not wanted.outcome:
        raise SettlementConflict(submission_id=claim.submission_id, existing_outcome=found.outcome.value)
    return finalize(tx, claim.submission_id, now=now)


def published(tx: Transaction, thread_id: str, submission_id: str) -> LogRecord | None:
    """The canonical settlement record, if there is one."""
    return log.record(tx, thread_id, ids.settlement_id(submission_id))


def decode(record: LogRecord) -> SubmissionSettled:
    """The settlement that a record states; an invalid one is corrupt."""
    try:
        return SubmissionSettled.model_validate(record.payload)
    except ValidationError as error:
        raise CorruptRecord(
            thread_id=record.thread_id, sequence=record.sequence, decoder="SubmissionSettled"
        ) from error


def abort_queued(tx: Transaction, lane: lanes.Lane, row: Submission, *, deployment_id: str, now: int) -> Settlement:
    """Settle aborted what never ran (authority QueuedAbort): the canonical abort first, then the settlement alone."""
    if row.state is not SubmissionState.READY or row.abort is None or lane.owner_submission_id == row.submission_id:
        raise LedgerError(f"{row.submission_id}: not a queued row with an abort", operation="publishQueuedAbort")
    settled = batches.settled(row.submission_id, row.receipt_id, Outcome.ABORTED)
    encoded = [
        log.encode(batch)
        for batch in (
            batches.abort_requested(
                row.submission_id, row.abort.author, row.abort.reason, deployment_id=deployment_id, now=now
            ),
            batches.settlement(settled, deployment_id=deployment_id, now=now),
        )
    ]
    log.append_unowned(tx, lane, encoded, row.submission_id)
    submissions.settle(tx, row, Outcome.ABORTED, now=now)
    parents.tell(tx, row, now=now)
    return told(row.thread_id, settled, now)


def finalize(tx: Transaction, submission_id: str, *, now: int) -> Settlement:
    """Bring the row to what its canonical record says. Repeating changes nothing."""
    seen = submissions.get(tx, submission_id)
    lane = lanes.locked(tx, seen.thread_id)
    row = submissions.get(tx, submission_id)
    record = published(tx, row.thread_id, submission_id)
    if record is None and row.redacted_at is not None:
        return _tombstone(row)
    if record is None:
        raise LedgerError(f"{submission_id}: no canonical settlement", operation="finalizeSettlement")
    settled = decode(record)
    _check_identity(row.submission_id, row.receipt_id, settled)
    if row.state is SubmissionState.SETTLED and row.outcome != settled.outcome.value:
        raise LedgerError(f"{submission_id}: settled with another outcome", operation="finalizeSettlement")
    if row.state is SubmissionState.SUSPENDED:
        row = submissions.wake(tx, row)
    parents.tell(tx, row, now=now)
    row = submissions.settle(tx, row, settled.outcome, now=now)
    lanes.drop_owner(tx, lane, submission_id)
    tx.notify = True
    return told(row.thread_id, settled, row.settled_at or now)


def of_row(tx: Transaction, row: Submission) -> Settlement | None:
    """The settlement of a settled row, from its record."""
    if row.state is not SubmissionState.SETTLED:
        return None
    record = published(tx, row.thread_id, row.submission_id)
    if record is None and row.redacted_at is not None:
        return _tombstone(row)
    if record is None:
        raise CorruptRecord(thread_id=row.thread_id, decoder="settlement-missing")
    settled_at = row.settled_at or record.created_at
    return told(row.thread_id, decode(record), settled_at, redacted=redaction.redacted(record.payload))


def _tombstone(row: Submission) -> Settlement:
    """What is left of a settlement whose record retention deleted."""
    return Settlement(
        submission_id=row.submission_id,
        settlement_id=ids.settlement_id(row.submission_id),
        receipt_id=row.receipt_id,
        thread_id=row.thread_id,
        outcome=Outcome(row.outcome or ""),
        run_id=None if row.input_applied is None else ids.run_id(row.submission_id),
        settled_at=row.settled_at or 0,
        redacted=True,
    )


def _check_identity(submission_id: str, receipt_id: str, settled: SubmissionSettled) -> None:
    expected = (submission_id, ids.settlement_id(submission_id), receipt_id)
    if (settled.submission_id, settled.settlement_id, settled.receipt_id) != expected:
        raise LedgerError(f"{submission_id}: the settlement names another Submission", operation="finalizeSettlement")


def told(thread_id: str, settled: SubmissionSettled, settled_at: int, *, redacted: bool = False) -> Settlement:
    """The settlement as clients read it."""
    return Settlement(
        submission_id=settled.submission_id,
        settlement_id=settled.settlement_id,
        receipt_id=settled.receipt_id,
        thread_id=thread_id,
        outcome=settled.outcome,
        run_id=settled.run_id,
        result=settled.result,
        diagnostic=settled.diagnostic,
        finish_reason=settled.finish_reason,
        exhausted=settled.exhausted,
        policy_limit=settled.policy_limit,
        usage=settled.usage_summary,
        settled_at=settled_at,
        redacted=redacted,
    )
