"""The ends of an Attempt's ownership: release, settle, suspend, unknown. Each tells the Thread's view with it.

Rule guarded: what an Attempt leaves behind commits together with the end of its claim, so nobody ever sees one
without the other; and the view that goes back to the workflow is read in that same transaction.
"""

from collections.abc import Mapping, Sequence

from thread_objects.contract.messages import Settlement
from thread_objects.contract.records import Batch, SubmissionSettled
from thread_objects.contract.states import SubmissionState
from thread_objects.contract.views import ThreadView
from thread_objects.core import ledger
from thread_objects.errors import SettlementConflict
from thread_objects.ports import Claim, Tail

from . import approvals, claims, lanes, log, marks, projection, settlements, submissions, surveys, unknown
from .engine import Transaction


def release(tx: Transaction, claim: Claim, *, mark_through: int) -> ThreadView:
    """Give the head back."""
    lanes.release(tx, claim)
    return _leave(tx, claim, mark_through)


def finish(
    tx: Transaction,
    claim: Claim,
    before: Sequence[Batch],
    settled: SubmissionSettled,
    *,
    mark_through: int,
    now: int,
) -> tuple[Settlement, ThreadView]:
    """Settle."""
    with claims.fenced(claim):
        settlement = settlements.finish(tx, claim, before, settled, now=now)
    return settlement, _leave(tx, claim, mark_through)


def suspend(
    tx: Transaction, claim: Claim, batch: Batch | None, calls: tuple[str, ...], *, mark_through: int, now: int
) -> tuple[bool, ThreadView, Tail]:
    """Suspend until the listed calls are decided. False when they are: the claim goes on."""
    encoded = [log.encode(batch)] if batch is not None else []
    with claims.fenced(claim):
        tail = log.append(tx, claim, encoded)
    row = submissions.get(tx, claim.submission_id)
    submissions.target_of(ledger.Operation.SUSPEND, row)
    if approvals.decided(tx, claim.submission_id, calls):
        return False, _leave(tx, claim, mark_through), tail
    submissions.move(
        tx,
        row,
        ledger.Operation.SUSPEND,
        suspension_reason=approvals.APPROVAL_PENDING,
        suspension_calls=submissions.names_text(calls),
        suspended_at=now,
    )
    lanes.release(tx, claim)
    tx.notify = True
    return True, _leave(tx, claim, mark_through), tail


def mark_unknown(
    tx: Transaction,
    claim: Claim,
    batches: Sequence[Batch],
    calls: Mapping[str, str],
    *,
    mark_through: int,
    now: int,
) -> ThreadView:
    """Mark the row unknown with these open calls. Marking the same again changes nothing."""
    row = submissions.get(tx, claim.submission_id)
    if row.outcome is not None:
        raise SettlementConflict(submission_id=row.submission_id, existing_outcome=row.outcome)
    if row.state is SubmissionState.UNKNOWN and set(calls) <= set(unknown.open_calls(tx, row.submission_id)):
        lane = lanes.locked(tx, claim.thread_id)
        if lane.owner_submission_id == claim.submission_id and lane.epoch == claim.epoch:
            lanes.release(tx, claim)
        return _leave(tx, claim, mark_through)
    with claims.fenced(claim):
        log.append(tx, claim, [log.encode(batch) for batch in batches], release=True)
    row = submissions.get(tx, claim.submission_id)
    for call, tool in calls.items():
        projection.mark(tx, row.submission_id, call, tool, 0, now)
    submissions.move(tx, row, ledger.Operation.MARK_UNKNOWN)
    return _leave(tx, claim, mark_through)


def _leave(tx: Transaction, claim: Claim, mark_through: int) -> ThreadView:
    marks.clear(tx, claim.object_id, mark_through)
    return surveys.view(tx, claim.object_id, claim.thread_id)
