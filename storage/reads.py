"""What clients read: status by id or key, settlements, pages of the log that fit the wire."""

from collections.abc import Sequence
from typing import Any

from thread_objects.admission import AdmissionLookup, Admitted, NotAdmitted
from thread_objects.contract import ids
from thread_objects.contract.activities import ReadAnswer, ReadRequest
from thread_objects.contract.limits import READ_PAGE_RECORDS_MAX
from thread_objects.contract.messages import AdmissionFacts, LogRecord, Pending, Settlement, SubmissionStatus

from . import admission, lanes, log, settlements, submissions
from .engine import Transaction, listed
from .submissions import Submission

_READ_BYTES_MAX = 1_048_576
_IDS_PER_STATEMENT = 256


def status(tx: Transaction, submission_id: str) -> SubmissionStatus | None:
    """Where a Submission stands."""
    row = submissions.find(tx, submission_id)
    return None if row is None else _status(tx, row)


def of_thread(found: SubmissionStatus | None, thread_id: str | None) -> SubmissionStatus | None:
    """The status, unless it is another Thread's than the one named: an id alone must not reach across."""
    return None if found is not None and thread_id not in (None, found.thread_id) else found


def owner(tx: Transaction, thread_id: str) -> str | None:
    """The Thread Object that owns a Thread."""
    lane = lanes.look(tx, thread_id)
    return None if lane is None else lane.object_id


def find(tx: Transaction, thread_id: str, principal: str, key: str) -> SubmissionStatus | None:
    """The Submission of an idempotency key."""
    row = submissions.find_key(tx, thread_id, principal, key)
    return None if row is None else _status(tx, row)


def resolve_admission(tx: Transaction, thread_id: str, principal: str, key: str) -> AdmissionLookup:
    """The row of a key, or the proof that there is none."""
    row = submissions.find_key(tx, thread_id, principal, key)
    if row is None:
        return NotAdmitted()
    facts = None
    if row.admission_facts is not None:
        facts = AdmissionFacts.model_validate(log.parse_body(thread_id, None, row.admission_facts))
    return Admitted(admission.receipt_of(row, replayed=True), _status(tx, row), facts)


def settled_among(tx: Transaction, submission_ids: Sequence[str]) -> dict[str, Settlement]:
    """The settlements among these ids."""
    found: dict[str, Settlement] = {}
    for start in range(0, len(submission_ids), _IDS_PER_STATEMENT):
        names, params = listed("submission", submission_ids[start : start + _IDS_PER_STATEMENT])
        for row in tx.all(
            f"SELECT {submissions.COLUMNS} FROM submissions WHERE submission_id IN {names} AND state = 'settled'",
            params,
        ):
            settlement = settlements.of_row(tx, submissions.read(row))
            if settlement is not None:
                found[settlement.submission_id] = settlement
    return found


def answer(tx: Transaction, request: ReadRequest) -> ReadAnswer:
    """One read of a client without a database. A page may be short: it fits the wire and holds at least one record."""
    if request.owner_of is not None:
        return ReadAnswer(object_id=owner(tx, request.owner_of))
    found = None
    if request.submission_id is not None:
        found = of_thread(status(tx, request.submission_id), request.thread_id)
    elif request.thread_id is not None and request.principal is not None and request.key is not None:
        found = find(tx, request.thread_id, request.principal, request.key)
    records: list[LogRecord] = []
    if request.limit > 0 and request.thread_id is not None:
        room = _READ_BYTES_MAX
        for record in log.page(
            tx, request.thread_id, after=request.after, limit=min(request.limit, READ_PAGE_RECORDS_MAX)
        ):
            room -= len(record.model_dump_json(by_alias=True).encode())
            if room < 0 and records:
                break
            records.append(record)
    return ReadAnswer(status=found, records=tuple(records))


def _status(tx: Transaction, row: Submission) -> SubmissionStatus:
    lane = lanes.look(tx, row.thread_id)
    return SubmissionStatus(
        submission_id=row.submission_id,
        receipt_id=row.receipt_id,
        thread_id=row.thread_id,
        principal=row.principal,
        key=row.idempotency_key,
        agent_id=row.agent_id,
        queue_sequence=row.queue_sequence,
        state=row.state,
        owned=lane is not None and lane.owner_submission_id == row.submission_id,
        epoch=row.epoch,
        admitted_at=row.admitted_at,
        abort_requested=row.abort_requested,
        approvals=_approvals(tx, row) if row.outcome is None else (),
        unknown_calls=_unknown_calls(tx, row),
        settlement=settlements.of_row(tx, row),
    )


def _approvals(tx: Transaction, row: Submission) -> tuple[Pending, ...]:
    return _pending(
        tx,
        row,
        "SELECT tool_call_id, tool_name, turn, requested_at FROM approvals"
        " WHERE submission_id = :submission_id AND decision IS NULL ORDER BY turn, requested_at, tool_call_id",
    )


def _unknown_calls(tx: Transaction, row: Submission) -> tuple[Pending, ...]:
    return _pending(
        tx,
        row,
        "SELECT u.tool_call_id, u.tool_name, u.turn, u.marked_at FROM unknown_calls u"
        " WHERE u.submission_id = :submission_id AND u.closed_at IS NULL AND NOT EXISTS"
        " (SELECT 1 FROM unknown_resolutions r WHERE r.submission_id = u.submission_id"
        " AND r.tool_call_id = u.tool_call_id AND r.kind <> 'abort-submission')"
        " ORDER BY u.turn, u.marked_at, u.tool_call_id",
    )


def _pending(tx: Transaction, row: Submission, sql: str) -> tuple[Pending, ...]:
    waiting = tx.all(sql, {"submission_id": row.submission_id})
    declared: dict[int, dict[str, Any]] = {}
    for turn in {turn for _, _, turn, _ in waiting}:
        declared[turn] = _arguments(tx, row, turn)
    return tuple(
        Pending(
            submission_id=row.submission_id,
            tool_call_id=call,
            tool_name=tool,
            turn=turn,
            since=since,
            arguments=declared[turn].get(call),
        )
        for call, tool, turn, since in waiting
    )


def _arguments(tx: Transaction, row: Submission, turn: int) -> dict[str, Any]:
    """The arguments of a Turn's calls, from the response that declares them."""
    response = log.record(tx, row.thread_id, ids.response_record(ids.run_id(row.submission_id), turn))
    calls = response.payload.get("calls", []) if response is not None else []
    return {str(call.get("toolCallId")): call.get("arguments") for call in calls if isinstance(call, dict)}
