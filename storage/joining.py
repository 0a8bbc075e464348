"""Joining: queued input that a Run takes at a seam, until it is settled with its host or given back.

Rules guarded. Only the host's live claim takes, in queue order, and only input of its own principal and agent that
never ran. Input is consumed once a later response of the host is canonical: then it settles as the host does.
Otherwise it goes back and is delivered exactly once, from the log where the log holds it.
"""

from collections.abc import Sequence

from thread_objects.contract import ids
from thread_objects.contract.messages import Settlement
from thread_objects.contract.records import Batch, SubmissionSettled
from thread_objects.contract.states import SubmissionState
from thread_objects.core import batches, ledger
from thread_objects.errors import LedgerError, OwnershipLost
from thread_objects.ports import Claim
from thread_objects.ties import Joining

from . import claims, lanes, log, parents, settlements, submissions
from .engine import Transaction
from .submissions import OPEN, Submission

_JOIN_STATES = (SubmissionState.JOINING, SubmissionState.JOINED)


def claim(tx: Transaction, host: Claim, max_count: int) -> tuple[Joining, ...]:
    """Take the contiguous prefix behind the host; whatever may not join ends it."""
    if max_count < 1:
        raise LedgerError("max_count must be at least 1", operation="claimJoining")
    lane = lanes.hold(tx, host)
    rows = tx.all(
        f"SELECT {submissions.COLUMNS} FROM submissions WHERE object_id = :object_id AND thread_id = :thread_id"
        f" AND {OPEN} AND queue_sequence > :after AND NOT (state = 'ready' AND abort_at IS NOT NULL)"
        " AND NOT (state IN ('joining', 'joined') AND host_submission_id = :host)"
        " ORDER BY queue_sequence LIMIT :limit",
        {
            "object_id": lane.object_id,
            "thread_id": lane.thread_id,
            "after": host.queue_sequence,
            "host": host.submission_id,
            "limit": max_count,
        },
    )
    taken: list[Joining] = []
    for row in map(submissions.read, rows):
        if not ledger.joins(row.state, row.claims, own_kind=_own_kind(row, host)):
            break
        submissions.move(tx, row, ledger.Operation.CLAIM_JOINING, host_submission_id=host.submission_id)
        value = submissions.stored_input(tx, row.submission_id)
        taken.append(Joining(row.submission_id, row.receipt_id, row.queue_sequence, value))
    return tuple(taken)


def _own_kind(row: Submission, host: Claim) -> bool:
    own = (row.principal, row.agent_id) == (host.principal, host.agent_id)
    return own and row.parent is None and row.input_applied is None


def apply(tx: Transaction, host: Claim, submission_id: str, batch: Batch) -> Claim:
    """Append the input under the host's claim and mark its row."""
    with claims.fenced(host):
        tail = log.append(tx, host, [log.encode(batch)])
    mark(tx, host, submission_id, None)
    return host.at(tail)


def mark(tx: Transaction, host: Claim, submission_id: str, position: int | None) -> None:
    """Mark a row joined whose input is canonical."""
    lanes.hold(tx, host)
    row = submissions.get(tx, submission_id)
    recorded = log.record(tx, host.thread_id, ids.input_record(submission_id))
    if recorded is None:
        raise LedgerError(f"{submission_id}: its input is not canonical", operation="markJoined")
    if row.host_submission_id != host.submission_id:
        raise LedgerError(f"{submission_id}: not joined to this run", operation="markJoined")
    if any(place not in (None, recorded.sequence) for place in (position, row.input_applied)):
        raise LedgerError(f"{submission_id}: its input stands elsewhere", operation="markJoined")
    if row.state is SubmissionState.JOINED and row.input_applied is not None:
        return
    submissions.move(tx, row, ledger.Operation.MARK_JOINED, input_applied=recorded.sequence, input=None)
    tx.notify = True


def revert(tx: Transaction, submission_id: str, host_submission_id: str, token: str | None) -> bool:
    """Give a row back under the guard; False when nothing was to be changed."""
    lane, row = _locked(tx, submission_id)
    if row.state not in _JOIN_STATES or row.host_submission_id != host_submission_id:
        return False
    over = settlements.published(tx, row.thread_id, host_submission_id) is not None
    if not over:
        if token is None:
            raise LedgerError(f"{submission_id}: its host is not settled", operation="revertJoining")
        if lane.owner_submission_id != host_submission_id or lane.owner_token != token:
            raise OwnershipLost(submission_id=host_submission_id, actual_epoch=lane.epoch)
    position = _position(tx, row)
    if position is None:
        _give_back(tx, row, ledger.Operation.REVERT_JOINING, None)
        return True
    if over and not covered(tx, host_submission_id, position):
        _give_back(tx, row, ledger.Operation.RETURN_JOINED, position)
        return True
    if row.state is SubmissionState.JOINED or over:
        return False
    raise LedgerError(f"{submission_id}: its input is canonical and its host lives", operation="revertJoining")


def settle(
    tx: Transaction, submission_id: str, host_submission_id: str, *, deployment_id: str, now: int
) -> Settlement | None:
    """Settle a joined row as its host settled. None: the host never answered it, so it is ready again."""
    lane, row = _locked(tx, submission_id)
    if settlements.published(tx, row.thread_id, submission_id) is not None:
        return settlements.finalize(tx, submission_id, now=now)
    if row.state not in _JOIN_STATES or row.host_submission_id != host_submission_id:
        raise LedgerError(f"{submission_id}: not joined to {host_submission_id}", operation="publishJoined")
    record = settlements.published(tx, row.thread_id, host_submission_id)
    if record is None:
        raise LedgerError(f"{host_submission_id}: no canonical settlement", operation="publishJoined")
    host = settlements.decode(record)
    return _resolve(tx, lane, row, host, deployment_id=deployment_id, now=now)[1]


def settle_all(tx: Transaction, host: Claim, settled: SubmissionSettled, *, deployment_id: str, now: int) -> None:
    """Settle or give back every row of a host that settles in this transaction."""
    lane = lanes.locked(tx, host.thread_id)
    for row in of_host(tx, host.submission_id):
        if row.state in _JOIN_STATES:
            lane, _ = _resolve(tx, lane, row, settled, deployment_id=deployment_id, now=now)


def _resolve(
    tx: Transaction, lane: lanes.Lane, row: Submission, host: SubmissionSettled, *, deployment_id: str, now: int
) -> tuple[lanes.Lane, Settlement | None]:
    position = _position(tx, row)
    if position is None:
        _give_back(tx, row, ledger.Operation.REVERT_JOINING, None)
        return lane, None
    if not covered(tx, host.submission_id, position):
        _give_back(tx, row, ledger.Operation.RETURN_JOINED, position)
        return lane, None
    own = batches.settled(
        row.submission_id, row.receipt_id, host.outcome, run_id=host.run_id, diagnostic=host.diagnostic
    )
    batch = batches.settlement(own, deployment_id=deployment_id, now=now)
    lane = log.append_unowned(tx, lane, [log.encode(batch)], row.submission_id)
    submissions.settle(tx, row, own.outcome, now=now)
    parents.tell(tx, row, now=now)
    return lane, settlements.told(row.thread_id, own, now)


def of_host(tx: Transaction, host_submission_id: str) -> Sequence[Submission]:
    """The rows that a host took, in queue order, settled ones too."""
    rows = tx.all(
        f"SELECT {submissions.COLUMNS} FROM submissions WHERE host_submission_id = :host ORDER BY queue_sequence",
        {"host": host_submission_id},
    )
    return [submissions.read(row) for row in rows]


def covered(tx: Transaction, host_submission_id: str, position: int) -> bool:
    """Whether a response of the host came after this record."""
    row = tx.one(
        "SELECT 1 FROM records WHERE submission_id = :host AND sequence > :position"
        " AND kind = 'ModelResponseRecorded' LIMIT 1",
        {"host": host_submission_id, "position": position},
    )
    return row is not None


def _position(tx: Transaction, row: Submission) -> int | None:
    if row.input_applied is not None:
        return row.input_applied
    recorded = log.record(tx, row.thread_id, ids.input_record(row.submission_id))
    return None if recorded is None else recorded.sequence


def _give_back(tx: Transaction, row: Submission, operation: ledger.Operation, position: int | None) -> None:
    # Where the input is canonical its place is kept, so that the Run it gets later finds it instead of appending it.
    changes = {} if position is None else {"input_applied": position, "input": None}
    submissions.move(tx, row, operation, host_submission_id=None, **changes)
    tx.notify = True


def _locked(tx: Transaction, submission_id: str) -> tuple[lanes.Lane, Submission]:
    lane = lanes.locked(tx, submissions.get(tx, submission_id).thread_id)
    return lane, submissions.get(tx, submission_id)
