"""Unknown Outcomes: calls that may have happened, and what somebody says became of them.

Rules guarded. A call has at most one fact and one permission. The same one may be repeated, another of the same kind
conflicts. A fact may follow a permission; no permission follows a fact, and no fact contradicts a committed result.
All open calls covered (abort-submission covers none) wakes the row. Settled work takes facts only, for a declared call
that is still open; they become canonical at once, since no later claim would do it, and nothing reopens.
"""

from typing import NamedTuple

from thread_objects.contract import ids
from thread_objects.contract.messages import LogRecord, ResolveUnknown, UnknownAnswer
from thread_objects.contract.states import ResolutionKind, SubmissionState
from thread_objects.core import ledger, redaction
from thread_objects.core.canonical import PERSISTED, RECORD, Unpersistable, canonical
from thread_objects.core.evidence import UndecodableRecord, evidence_of
from thread_objects.core.recovery import OpenCall, Snapshot, UnknownIntent, resolution_batch
from thread_objects.errors import CorruptRecord, LedgerError, NotFound, UnknownResolutionConflict

from . import aborts, lanes, log, submissions, work
from .engine import Transaction
from .submissions import Submission

_OPERATION = "recordUnknownResolution"
_FACT = "fact"
_PERMISSION = "permission"
_CATEGORY = {
    ResolutionKind.COMPLETED_WITH_RESULT: _FACT,
    ResolutionKind.NEVER_HAPPENED: _FACT,
    ResolutionKind.SAFE_TO_RETRY: _PERMISSION,
    ResolutionKind.ABORT_SUBMISSION: _PERMISSION,
}


class _Stored(NamedTuple):
    kind: str
    is_failure: int
    author: str
    reason: str
    resolved_at: int
    resolved_by: str
    result: str


def resolve(
    tx: Transaction, asked: ResolveUnknown, *, source: str, deployment_id: str, now: int
) -> tuple[UnknownAnswer, bool, str | None]:
    """Store a resolution. Answers with whether it is new, and the Submission whose Attempt should be told to look."""
    result = _result_text(asked)
    lane = lanes.lock(tx, asked.thread_id)
    row = submissions.find(tx, asked.submission_id)
    if lane is None or row is None or row.thread_id != asked.thread_id:
        raise NotFound(what="submission", id=asked.submission_id)
    category = _CATEGORY[asked.resolution]
    stored = _stored(tx, asked, category)
    if stored is not None:
        same = (stored.kind, stored.is_failure) == (asked.resolution.value, asked.is_failure)
        if not same or stored.result not in (result, redaction.stand_in(result)):
            raise _conflict(asked)
        own = stored.resolved_by == source
        return (
            _answer(asked, stored, row.state, replayed=not own),
            own,
            _running(lane, asked) if own else None,
        )
    fresh = _Stored(asked.resolution.value, int(asked.is_failure), asked.author, asked.reason, now, source, result)
    _check(tx, row, asked, category, result)
    if row.state is SubmissionState.SETTLED:
        _close_settled(tx, lane, row, asked, fresh, deployment_id=deployment_id, now=now)
    _insert(tx, asked, category, fresh)
    if asked.resolution is ResolutionKind.ABORT_SUBMISSION:
        row = aborts.intend(tx, row, asked.author, asked.reason, source=source, now=now)
    else:
        row = wake_if_covered(tx, row)
    return _answer(asked, fresh, row.state, replayed=False), True, _running(lane, asked)


def _running(lane: lanes.Lane, asked: ResolveUnknown) -> str | None:
    aborting = asked.resolution is ResolutionKind.ABORT_SUBMISSION
    return asked.submission_id if aborting and lane.owner_submission_id == asked.submission_id else None


def _check(tx: Transaction, row: Submission, asked: ResolveUnknown, category: str, result: str) -> None:
    """Refuse what may not be stored for this call."""
    if category == _PERMISSION:
        aborts.refuse_settled(tx, row)
        if _stored(tx, asked, _FACT) is not None:
            raise _conflict(asked)
    if row.state is SubmissionState.SETTLED:
        return  # the log decides
    turn = _marked_turn(tx, asked)
    if turn is None:
        raise NotFound(what="unknown call", id=asked.tool_call_id)
    committed = log.record(
        tx, row.thread_id, ids.tool_settled_record(ids.run_id(row.submission_id), turn, asked.tool_call_id)
    )
    if committed is not None and not _agrees(committed, asked, result):
        raise _conflict(asked)


def _agrees(committed: LogRecord, asked: ResolveUnknown, result: str) -> bool:
    """Whether a claim says what the committed result says."""
    if asked.resolution is not ResolutionKind.COMPLETED_WITH_RESULT:
        return False
    recorded = (committed.payload.get("result"), bool(committed.payload.get("isFailure")))
    return (canonical(recorded[0], RECORD), recorded[1]) == (result, asked.is_failure)


def open_calls(tx: Transaction, submission_id: str) -> tuple[str, ...]:
    """The marked calls that no record has closed."""
    rows = tx.all(
        "SELECT tool_call_id FROM unknown_calls WHERE submission_id = :submission_id AND closed_at IS NULL"
        " ORDER BY turn, marked_at, tool_call_id",
        {"submission_id": submission_id},
    )
    return tuple(row[0] for row in rows)


def intents(tx: Transaction, thread_id: str, submission_id: str) -> tuple[UnknownIntent, ...]:
    """The stored resolutions of a Submission; of one call the fact after the permission."""
    rows = tx.all(
        "SELECT tool_call_id, kind, result, is_failure, author, reason, resolved_at FROM unknown_resolutions"
        " WHERE submission_id = :submission_id ORDER BY resolved_at, tool_call_id, category DESC",
        {"submission_id": submission_id},
    )
    return tuple(
        UnknownIntent(
            call,
            ResolutionKind(kind),
            log.parse_body(thread_id, None, result),
            bool(failed),
            author,
            reason,
            at,
        )
        for call, kind, result, failed, author, reason, at in rows
    )


def covered(tx: Transaction, thread_id: str, submission_id: str) -> bool:
    """Whether every open call has a resolution that closes it or permits its retry."""
    said = {
        intent.tool_call_id
        for intent in intents(tx, thread_id, submission_id)
        if intent.kind is not ResolutionKind.ABORT_SUBMISSION
    }
    return said.issuperset(open_calls(tx, submission_id))


def wake_if_covered(tx: Transaction, row: Submission) -> Submission:
    """Wake an unknown row whose calls are covered; any other row stays."""
    tx.notify = True
    if row.state is not SubmissionState.UNKNOWN or not covered(tx, row.thread_id, row.submission_id):
        return row
    return submissions.move(tx, row, ledger.Operation.WAKE_UNKNOWN)


def _result_text(asked: ResolveUnknown) -> str:
    if asked.resolution is not ResolutionKind.COMPLETED_WITH_RESULT and (asked.result is not None or asked.is_failure):
        raise LedgerError(f"{asked.resolution} has no result", operation=_OPERATION)
    try:
        return canonical(asked.result, PERSISTED)
    except Unpersistable as error:
        raise log.refused("result", error) from error


def _stored(tx: Transaction, asked: ResolveUnknown, category: str) -> _Stored | None:
    row = tx.one(
        f"SELECT {', '.join(_Stored._fields)} FROM unknown_resolutions WHERE submission_id = :submission_id"
        " AND tool_call_id = :tool_call_id AND category = :category",
        {"submission_id": asked.submission_id, "tool_call_id": asked.tool_call_id, "category": category},
    )
    return None if row is None else _Stored(*row)


def _insert(tx: Transaction, asked: ResolveUnknown, category: str, stored: _Stored) -> None:
    tx.run(
        "INSERT INTO unknown_resolutions (submission_id, tool_call_id, category, kind, is_failure, author, reason,"
        " resolved_at, resolved_by, result) VALUES (:submission_id, :tool_call_id, :category, :kind, :is_failure,"
        " :author, :reason, :resolved_at, :resolved_by, :result)",
        {
            "submission_id": asked.submission_id,
            "tool_call_id": asked.tool_call_id,
            "category": category,
            **stored._asdict(),
        },
    )


def _marked_turn(tx: Transaction, asked: ResolveUnknown) -> int | None:
    """The Turn of a marked call."""
    row = tx.one(
        "SELECT turn FROM unknown_calls WHERE submission_id = :submission_id AND tool_call_id = :tool_call_id",
        {"submission_id": asked.submission_id, "tool_call_id": asked.tool_call_id},
    )
    return None if row is None else row[0]


def _open_in_log(tx: Transaction, row: Submission, tool_call_id: str) -> tuple[Snapshot, OpenCall] | None:
    """A call that the log declares and does not close, of whatever Turn."""
    snapshot = Snapshot(row.submission_id, row.receipt_id, row.thread_id, row.queue_sequence, row.agent_id, row.state)
    try:
        evidence = evidence_of(snapshot, log.of_run(tx, row.submission_id), [])
    except UndecodableRecord as error:
        raise CorruptRecord(thread_id=error.thread_id, sequence=error.sequence, decoder=error.kind) from error
    for call in evidence.open_tool_calls:
        if call.call_id == tool_call_id:
            return snapshot, call
    return None


def _close_settled(
    tx: Transaction,
    lane: lanes.Lane,
    row: Submission,
    asked: ResolveUnknown,
    stored: _Stored,
    *,
    deployment_id: str,
    now: int,
) -> None:
    """Append a fact about settled work. A call that is not open any more takes none."""
    found = _open_in_log(tx, row, asked.tool_call_id)
    if found is None:
        raise LedgerError(f"{row.submission_id}: {asked.tool_call_id} is no open call of its run", operation=_OPERATION)
    snapshot, call = found
    intent = UnknownIntent(
        asked.tool_call_id,
        asked.resolution,
        asked.result,
        asked.is_failure,
        stored.author,
        stored.reason,
        stored.resolved_at,
    )
    batch = resolution_batch(snapshot, call, intent, now, deployment_id=deployment_id)
    lane = log.append_unowned(tx, lane, [log.encode(batch)], asked.submission_id)
    work.done(tx, asked.submission_id, [asked.tool_call_id])
    tx.run(
        "UPDATE unknown_calls SET closed_at = :sequence WHERE submission_id = :submission_id"
        " AND tool_call_id = :tool_call_id AND closed_at IS NULL",
        {
            "sequence": lane.tail_sequence,
            "submission_id": asked.submission_id,
            "tool_call_id": asked.tool_call_id,
        },
    )


def _conflict(asked: ResolveUnknown) -> UnknownResolutionConflict:
    return UnknownResolutionConflict(submission_id=asked.submission_id, tool_call_id=asked.tool_call_id)


def _answer(asked: ResolveUnknown, stored: _Stored, state: SubmissionState, *, replayed: bool) -> UnknownAnswer:
    return UnknownAnswer(
        submission_id=asked.submission_id,
        tool_call_id=asked.tool_call_id,
        resolution=ResolutionKind(stored.kind),
        author=stored.author,
        reason=stored.reason,
        resolved_at=stored.resolved_at,
        state=state,
        replayed=replayed,
    )
