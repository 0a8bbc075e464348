"""What recovery reads and does to single rows. Every step may be repeated; evidence decides, never a clock."""

from thread_objects.contract.messages import Settlement
from thread_objects.contract.states import SubmissionState
from thread_objects.core import ledger
from thread_objects.core.batches import EncodedBatch
from thread_objects.core.recovery import AbortFact, Ownership, Snapshot, Suspension
from thread_objects.errors import NotFound
from thread_objects.ports import RecoveryStart

from . import admission, approvals, children, faults, lanes, log, settlements, submissions, unknown, work
from .engine import Transaction
from .submissions import OPEN, Submission


def start(tx: Transaction, thread_id: str, *, limit: int, now: int) -> RecoveryStart:
    """The retained fault and the first page; no page before the fault's retry is due."""
    fault = faults.read(tx, thread_id)
    found = work.look(tx, thread_id) if fault is None or fault.retry_at <= now else None
    if found is None:
        return RecoveryStart(fault, [])
    return RecoveryStart(fault, _rows(tx, found.lane, after=0, limit=limit), found.owed)


def page(tx: Transaction, thread_id: str, *, after: int, limit: int) -> list[Snapshot]:
    """Snapshots of nonterminal rows past a queue sequence, without the fresh ones."""
    found = work.look(tx, thread_id)
    return [] if found is None else _rows(tx, found.lane, after=after, limit=limit)


def _rows(tx: Transaction, lane: lanes.Lane, *, after: int, limit: int) -> list[Snapshot]:
    rows = tx.all(
        f"SELECT {submissions.COLUMNS} FROM submissions WHERE object_id = :object_id AND thread_id = :thread_id"
        f" AND {OPEN} AND queue_sequence > :after AND NOT (state = 'ready' AND claims = 0 AND abort_at IS NULL)"
        " ORDER BY queue_sequence LIMIT :limit",
        {"object_id": lane.object_id, "thread_id": lane.thread_id, "after": after, "limit": limit},
    )
    return [_snapshot(tx, lane, submissions.read(row)) for row in rows]


def snapshot(tx: Transaction, submission_id: str) -> Snapshot | None:
    """One row's recovery snapshot."""
    row = submissions.find(tx, submission_id)
    lane = lanes.look(tx, row.thread_id) if row is not None else None
    return _snapshot(tx, lane, row) if lane is not None and row is not None else None


_JOINED, _CHILD = 0, 1
_OTHERS = (
    f"SELECT {_JOINED}, submission_id, '', '', '', state, outcome, queue_sequence"
    " FROM submissions WHERE host_submission_id = :submission_id"
    f" UNION ALL SELECT {_CHILD}, c.reservation_id, c.parent_call_id, c.status, c.child_submission_id, s.state,"
    " s.outcome, 0 FROM child_reservations c LEFT JOIN submissions s ON s.submission_id = c.child_submission_id"
    " WHERE c.parent_submission_id = :submission_id ORDER BY 1, 8, 3"
)
"""Rows tied to this one: inputs its Run took, and its children. One look for both; almost no row has any."""


def _snapshot(tx: Transaction, lane: lanes.Lane, row: Submission) -> Snapshot:
    owned = lane.owner_submission_id == row.submission_id
    abort = row.abort
    suspension = None
    if row.suspension_reason is not None:
        suspension = Suspension(row.suspension_reason, row.listed_calls, row.listed_children)
    linkage = None
    if row.parent_submission_id is not None and row.parent_call_id is not None:
        linkage = (row.parent_submission_id, row.parent_call_id)
    others = tx.all(_OTHERS, {"submission_id": row.submission_id})
    joins = tuple(found[1] for found in others if found[0] == _JOINED)
    reservations, attachments = children.as_recovery_sees([tuple(found[1:7]) for found in others if found[0] == _CHILD])
    return Snapshot(
        submission_id=row.submission_id,
        receipt_id=row.receipt_id,
        thread_id=row.thread_id,
        queue_sequence=row.queue_sequence,
        agent_id=row.agent_id,
        state=row.state,
        ownership=Ownership(
            lane.owner_attempt_id or "", lane.owner_producer_id or "", lane.epoch, lane.lease_until or 0
        )
        if owned
        else None,
        input_applied=row.input_applied,
        abort_intent=AbortFact(abort.author, abort.reason, abort.requested_at) if abort is not None else None,
        joins=joins,
        host_submission_id=row.host_submission_id,
        suspension=suspension,
        approval_decisions=approvals.intents(tx, row.submission_id),
        unknown_calls=unknown.open_calls(tx, row.submission_id),
        unknown_resolutions=unknown.intents(tx, row.thread_id, row.submission_id),
        child_reservations=reservations,
        child_attachments=attachments,
        parent_linkage=linkage,
        thread_materialized=bool(lane.materialized),
    )


def _locked_row(tx: Transaction, submission_id: str) -> tuple[lanes.Lane, Submission]:
    seen = submissions.find(tx, submission_id)
    if seen is None:
        raise NotFound(what="submission", id=submission_id)
    lane = lanes.locked(tx, seen.thread_id)
    return lane, submissions.get(tx, submission_id)  # again: the lock may have waited for a change


def make_ready(tx: Transaction, submission_id: str, *, deployment_id: str, now: int) -> None:
    """Materialise the Thread, ensure its created record, mark the row ready (a child only behind its lineage)."""
    lane, row = _locked_row(tx, submission_id)
    admission.ensure_materialized(tx, lane, row.agent_id, deployment_id=deployment_id, now=now)
    established = row.parent is None or children.has_lineage(tx, row.thread_id)
    if row.state is SubmissionState.ADMITTED and established:
        submissions.move(tx, row, ledger.Operation.MARK_READY, ready_at=now)


def annotate(tx: Transaction, submission_id: str, batch: EncodedBatch) -> bool:
    """Append the audit of a repair that took no claim. False for an empty log, which gets none."""
    lane, row = _locked_row(tx, submission_id)
    if not lane.materialized or lane.tail_sequence == 0:
        return False
    log.append_unowned(tx, lane, [batch], row.submission_id)
    return True


def publish_queued_abort(tx: Transaction, submission_id: str, *, now: int) -> Settlement | None:
    """Settle aborted without a claim, where nobody has one."""
    lane, row = _locked_row(tx, submission_id)
    if row.state is not SubmissionState.READY or row.abort is None or lane.owner_submission_id == submission_id:
        return None
    return settlements.abort_queued(tx, lane, row, deployment_id="", now=now)


def apply_unknown_resolutions(tx: Transaction, submission_id: str) -> bool:
    """Wake a covered unknown row. False when it stays unknown."""
    _, row = _locked_row(tx, submission_id)
    return unknown.wake_if_covered(tx, row).state is not SubmissionState.UNKNOWN


def wake_suspended(tx: Transaction, submission_id: str) -> bool:
    """Wake a decided suspension. False when it stays suspended."""
    _, row = _locked_row(tx, submission_id)
    return approvals.wake_if_decided(tx, row).state is not SubmissionState.SUSPENDED
