"""What an operator reads: explanations of Submissions and Threads, the Thread's recovery status, its log's end.

Reads only, each in one transaction, so that row, evidence and decision are of one moment. No body of a conversation
leaves here; records are read to be decided upon.
"""

from collections.abc import Sequence

from thread_objects.contract import limits
from thread_objects.contract.operations import (
    BehindView,
    Explanation,
    InspectAnswer,
    InspectRequest,
    Operation,
    ThreadExplanation,
    Unreadable,
)
from thread_objects.contract.records import SubagentRequested
from thread_objects.contract.states import Outcome, SubmissionState
from thread_objects.core.evidence import UndecodableRecord
from thread_objects.core.explain import Facts, RetryContract, RowTimes, explain
from thread_objects.core.obligations import age_seconds
from thread_objects.core.recovery.delegation import ADMITTED, NOT_ADMITTED
from thread_objects.errors import CorruptRecord, InvalidInput

from . import faults, lanes, log, obligations, recoveries, submissions, surveys, verifications
from .engine import Transaction
from .submissions import NOT_SKIPPED, OPEN, Submission


def answer(
    tx: Transaction, request: InspectRequest, *, now: int, retry_contract: RetryContract | None
) -> InspectAnswer:
    """The answer to one question of an operator."""
    match request.operation:
        case Operation.EXPLAIN if request.submission_id is not None:
            return InspectAnswer(
                explanation=explanation(
                    tx, request.submission_id, request.thread_id, now=now, retry_contract=retry_contract
                )
            )
        case Operation.EXPLAIN_THREAD if request.thread_id is not None:
            return InspectAnswer(
                thread=thread_explanation(
                    tx,
                    request.thread_id,
                    after=request.after,
                    limit=request.limit,
                    now=now,
                    retry_contract=retry_contract,
                )
            )
        case Operation.SCAN_OBLIGATIONS if request.obligations is not None:
            return InspectAnswer(obligations=obligations.page(tx, request.obligations, now=now))
        case Operation.OBSERVE if request.thread_id is not None:
            return InspectAnswer(tail_sequence=tails(tx, [request.thread_id]).get(request.thread_id, 0))
        case Operation.VERIFY if request.thread_id is not None:
            return InspectAnswer(
                verification=verifications.verification(
                    tx, request.thread_id, require_all_settled=request.require_all_settled
                )
            )
        case _:
            raise InvalidInput(what=f"inspect: {request.operation} needs other ids")


def explanation(
    tx: Transaction, submission_id: str, thread_id: str | None, *, now: int, retry_contract: RetryContract | None
) -> Explanation | None:
    """Explain a Submission; None where there is none, or it is another Thread's than the one named."""
    row = submissions.find(tx, submission_id)
    lane = lanes.look(tx, row.thread_id) if row is not None else None
    if row is None or lane is None or thread_id not in (None, row.thread_id):
        return None
    head = submissions.head(tx, lane.object_id, row.thread_id)
    try:
        return explain(_facts(tx, row, head, _before(tx, row)), now, retry_contract=retry_contract)
    except UndecodableRecord as error:
        raise CorruptRecord(thread_id=error.thread_id, sequence=error.sequence, decoder=error.kind) from error


def thread_explanation(
    tx: Transaction, thread_id: str, *, after: int, limit: int, now: int, retry_contract: RetryContract | None
) -> ThreadExplanation | None:
    """Explain a page of a Thread's unsettled Submissions. A row that cannot be read hides no other."""
    lane = lanes.look(tx, thread_id)
    if lane is None:
        return None
    limit = max(1, min(limit, limits.EXPLAINED_ROWS_MAX))
    rows = tx.all(
        f"SELECT {submissions.COLUMNS} FROM submissions WHERE object_id = :object_id AND thread_id = :thread_id"
        f" AND {OPEN} AND queue_sequence > :after ORDER BY queue_sequence LIMIT :limit",
        {"object_id": lane.object_id, "thread_id": thread_id, "after": after, "limit": limit + 1},
    )
    found_rows = [submissions.read(row) for row in rows]
    page = found_rows[:limit]
    head = submissions.head(tx, lane.object_id, thread_id)
    explained: list[Explanation] = []
    unreadable: list[Unreadable] = []
    before = _before(tx, page[0]) if page else 0
    room, through = limits.EXPLAINED_BYTES_MAX, after
    for row in page:
        found = _explained(tx, row, head, before, now=now, retry_contract=retry_contract)
        room -= len(found.model_dump_json(by_alias=True).encode())
        if room < 0 and through > after:
            break
        through = row.queue_sequence
        explained += [found] if isinstance(found, Explanation) else []
        unreadable += [found] if isinstance(found, Unreadable) else []
        before += 0 if row.state is SubmissionState.UNKNOWN and row.abort is None else 1
    (created_at,) = tx.one("SELECT created_at FROM threads WHERE thread_id = :thread_id", {"thread_id": thread_id}) or (
        now,
    )
    return ThreadExplanation(
        thread_id=thread_id,
        object_id=lane.object_id,
        materialized=bool(lane.materialized),
        epoch=lane.epoch,
        tail_sequence=lane.tail_sequence,
        view=surveys.view(tx, lane.object_id, thread_id),
        created_age_seconds=age_seconds(created_at, now),
        owner_submission_id=lane.owner_submission_id,
        submissions=tuple(explained),
        unreadable=tuple(unreadable),
        next_after=through if found_rows and through < found_rows[-1].queue_sequence else None,
        fault=faults.read(tx, thread_id),
    )


def _explained(
    tx: Transaction,
    row: Submission,
    head: Submission | None,
    before: int,
    *,
    now: int,
    retry_contract: RetryContract | None,
) -> Explanation | Unreadable:
    try:
        return explain(_facts(tx, row, head, before), now, retry_contract=retry_contract)
    except UndecodableRecord as error:
        return Unreadable(submission_id=row.submission_id, sequence=error.sequence, decoder=error.kind)
    except CorruptRecord as error:
        return Unreadable(submission_id=row.submission_id, sequence=error.sequence, decoder=error.decoder)


def tails(tx: Transaction, thread_ids: Sequence[str]) -> dict[str, int]:
    """How long the logs of these Threads are; nothing for a Thread that does not exist."""
    found: dict[str, int] = {}
    for thread_id in thread_ids:
        row = tx.one("SELECT tail_sequence FROM threads WHERE thread_id = :thread_id", {"thread_id": thread_id})
        if row is not None:
            found[thread_id] = row[0]
    return found


def _before(tx: Transaction, row: Submission) -> int:
    """How many unsettled rows stand before this one and are not parked."""
    counted = tx.one(
        f"SELECT COUNT(*) FROM submissions WHERE object_id = :object_id AND thread_id = :thread_id AND {OPEN}"
        f" AND queue_sequence < :sequence AND {NOT_SKIPPED}",
        {"object_id": row.object_id, "thread_id": row.thread_id, "sequence": row.queue_sequence},
    )
    return 0 if counted is None else int(counted[0])


def _facts(tx: Transaction, row: Submission, head: Submission | None, before: int) -> Facts:
    snapshot = recoveries.snapshot(tx, row.submission_id)
    if snapshot is None:
        raise CorruptRecord(thread_id=row.thread_id, decoder="thread-row")
    ready_at, suspended_at = tx.one(
        "SELECT ready_at, suspended_at FROM submissions WHERE submission_id = :submission_id",
        {"submission_id": row.submission_id},
    ) or (None, None)
    unknown = tx.all(
        "SELECT tool_call_id, marked_at FROM unknown_calls WHERE submission_id = :submission_id AND closed_at IS NULL",
        {"submission_id": row.submission_id},
    )
    approvals = tx.all(
        "SELECT tool_call_id, requested_at FROM approvals WHERE submission_id = :submission_id",
        {"submission_id": row.submission_id},
    )
    host = row.host_submission_id
    behind = None
    if row.outcome is None and head is not None and head.queue_sequence < row.queue_sequence:
        behind = BehindView(count=before, head_submission_id=head.submission_id, head_state=head.state)
    return Facts(
        snapshot=snapshot,
        records=log.of_run(tx, row.submission_id),
        host_records=() if host is None else log.of_run(tx, host),
        object_id=row.object_id,
        principal=row.principal,
        outcome=None if row.outcome is None else Outcome(row.outcome),
        claims=row.claims,
        times=RowTimes(
            admitted_at=row.admitted_at,
            ready_at=ready_at,
            suspended_at=suspended_at,
            settled_at=row.settled_at,
            unknown_since=dict(unknown),
            approval_since=dict(approvals),
        ),
        admission=lambda request: _admission(tx, row.submission_id, request),
        behind=behind,
        fault=faults.read(tx, row.thread_id),
    )


def _admission(tx: Transaction, parent: str, request: SubagentRequested) -> str:
    """Whether a requested child is in this database, under its own key and as this parent's."""
    child = submissions.find_key(tx, request.child_thread_id, request.child_principal, request.child_idempotency_key)
    if child is None:
        return NOT_ADMITTED
    mine = (child.parent_submission_id, child.parent_call_id) == (parent, request.tool_call_id)
    return ADMITTED if mine else "indeterminate"
