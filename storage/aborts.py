"""Abort intents: the first one wins and stays; queued work that never ran settles with it.

Rules guarded: a canonical settlement beats an abort; a joined input belongs to its host; suspended, unknown and
running work only learns of the intent here and is settled by its owner or by recovery.
"""

from thread_objects.contract import ids
from thread_objects.contract.messages import Abort, AbortAnswer
from thread_objects.contract.states import SubmissionState
from thread_objects.core import ledger
from thread_objects.errors import JoinedToHost, NotFound, SettlementConflict
from thread_objects.ports import AbortIntent

from . import lanes, settlements, submissions
from .engine import Transaction
from .submissions import Submission


def request(
    tx: Transaction, abort: Abort, *, source: str, deployment_id: str, now: int
) -> tuple[AbortAnswer, bool, str | None]:
    """Store the intent. Answers with whether it is new, and the Submission whose Attempt should be told to look."""
    lane = lanes.lock(tx, abort.thread_id)
    row = submissions.find(tx, abort.submission_id)
    if lane is None or row is None or row.thread_id != abort.thread_id:
        raise NotFound(what="submission", id=abort.submission_id)
    if source and row.abort_by == source:  # this very item, met again
        return _answer(row), True, _running(lane, row)
    refuse_settled(tx, row)
    if row.state is SubmissionState.JOINED:
        raise JoinedToHost(submission_id=row.submission_id, host_submission_id=row.host_submission_id)
    if row.abort is not None:
        return _answer(row).model_copy(update={"replayed": True}), False, None
    never_claimed = ledger.fresh(row.state, row.claims, row.abort_requested)
    row = intend(tx, row, abort.author, abort.reason, source=source, now=now)
    if never_claimed:
        settlements.abort_queued(tx, lane, row, deployment_id=deployment_id, now=now)
        return _answer(submissions.get(tx, row.submission_id)), True, None
    return _answer(row), True, _running(lane, row)


def request_by_id(
    tx: Transaction, submission_id: str, *, author: str, reason: str, deployment_id: str, now: int
) -> AbortAnswer:
    """Store the intent outside any batch."""
    abort = Abort(
        thread_id=submissions.get(tx, submission_id).thread_id,
        submission_id=submission_id,
        author=author,
        reason=reason,
    )
    return request(tx, abort, source="", deployment_id=deployment_id, now=now)[0]


def intend(tx: Transaction, row: Submission, author: str, reason: str, *, source: str, now: int) -> Submission:
    """Store an intent on a row that has none; the first one stays."""
    tx.run(
        "UPDATE submissions SET abort_at = :now, abort_author = :author, abort_reason = :reason, abort_by = :source"
        " WHERE submission_id = :submission_id AND abort_at IS NULL",
        {
            "now": now,
            "author": author,
            "reason": reason,
            "source": source,
            "submission_id": row.submission_id,
        },
    )
    tx.notify = True
    return submissions.get(tx, row.submission_id)


def intent(tx: Transaction, submission_id: str) -> AbortIntent | None:
    """The intent; reads one row and nothing else."""
    row = tx.one(
        "SELECT abort_author, abort_reason, abort_at FROM submissions WHERE submission_id = :submission_id",
        {"submission_id": submission_id},
    )
    return (
        None if row is None or row[2] is None else AbortIntent(row[0], row[1], row[2], ids.abort_record(submission_id))
    )


def refuse_settled(tx: Transaction, row: Submission) -> None:
    """Settled work, or work whose settlement is canonical already, takes no more commands."""
    if row.outcome is not None:
        raise SettlementConflict(submission_id=row.submission_id, existing_outcome=row.outcome)
    record = settlements.published(tx, row.thread_id, row.submission_id)
    if record is not None:
        outcome = settlements.decode(record).outcome
        raise SettlementConflict(submission_id=row.submission_id, existing_outcome=outcome.value)


def _running(lane: lanes.Lane, row: Submission) -> str | None:
    return row.submission_id if lane.owner_submission_id == row.submission_id else None


def _answer(row: Submission) -> AbortAnswer:
    return AbortAnswer(
        submission_id=row.submission_id,
        author=row.abort_author or "",
        reason=row.abort_reason or "",
        requested_at=row.abort_at or 0,
        # Only work that never ran settles with the request itself; a repeated answer says no more than the first.
        settled=row.state is SubmissionState.SETTLED and row.claims == 0,
    )
