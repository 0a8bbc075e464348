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
from thread_objects.errors import LedgerError, SettlementConflict
from thread_objects.ports import Claim, Tail

from . import (
    approvals,
    claims,
    joining,
    lanes,
    log,
    marks,
    parents,
    projection,
    settlements,
    submissions,
    surveys,
    unknown,
)
from .engine import Transaction
from .submissions import Submission


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
    joins: bool,
    mark_through: int,
    now: int,
) -> tuple[Settlement, ThreadView]:
    """Settle, with whatever input the Run took, and tell the parent of a child."""
    with claims.fenced(claim):
        settlement = settlements.finish(tx, claim, before, settled, now=now)
    if joins:
        deployment_id = before[-1].records[-1].deployment_id if before else ""
        joining.settle_all(tx, claim, settled, deployment_id=deployment_id, now=now)
    if claim.parent is not None:
        parents.tell(tx, submissions.get(tx, claim.submission_id), now=now)
    return settlement, _leave(tx, claim, mark_through)


def suspend(
    tx: Transaction, claim: Claim, batch: Batch | None, calls: tuple[str, ...], *, mark_through: int, now: int
) -> tuple[bool, ThreadView, Tail]:
    """Suspend until the listed calls are decided. False when they are: the claim goes on."""
    row, tail = _before_suspending(tx, claim, batch)
    waits = not approvals.decided(tx, claim.submission_id, calls)
    if waits:
        _suspend(tx, claim, row, approvals.APPROVAL_PENDING, suspension_calls=submissions.names_text(calls), now=now)
    return waits, _leave(tx, claim, mark_through), tail


def suspend_for_children(
    tx: Transaction, claim: Claim, batch: Batch | None, children: tuple[str, ...], *, mark_through: int, now: int
) -> tuple[bool, ThreadView, Tail]:
    """Suspend until the listed children are settled. False when they are: the claim goes on."""
    if not children:
        raise LedgerError(f"{claim.submission_id}: waits for no child", operation=ledger.Operation.SUSPEND.value)
    row, tail = _before_suspending(tx, claim, batch)
    waits = not parents.all_settled(tx, children)
    if waits:
        listed = submissions.names_text(children)
        _suspend(tx, claim, row, parents.WAITING_FOR_CHILD, suspension_children=listed, now=now)
    return waits, _leave(tx, claim, mark_through), tail


def _before_suspending(tx: Transaction, claim: Claim, batch: Batch | None) -> tuple[Submission, Tail]:
    encoded = [log.encode(batch)] if batch is not None else []
    with claims.fenced(claim):
        tail = log.append(tx, claim, encoded)
    row = submissions.get(tx, claim.submission_id)
    submissions.target_of(ledger.Operation.SUSPEND, row)
    return row, tail


def _suspend(tx: Transaction, claim: Claim, row: Submission, reason: str, *, now: int, **listed: str) -> None:
    submissions.move(tx, row, ledger.Operation.SUSPEND, suspension_reason=reason, suspended_at=now, **listed)
    lanes.release(tx, claim)
    tx.notify = True


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
