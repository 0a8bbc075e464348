"""The canonical batches by which stored intents and recovery's findings reach the log.

Every batch is built from facts that are not canonical yet, so it is appended once; ids of later rounds are numbered
from the evidence.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import groupby

from thread_objects.contract import ids, limits
from thread_objects.contract.records import (
    AbortRequested,
    AnyPayload,
    Batch,
    Record,
    RepairAnnotated,
    SubmissionSettled,
    ToolApprovalDecided,
    ToolCallResolved,
    ToolCallSettled,
    ToolCallUnknown,
)
from thread_objects.contract.states import Outcome, Resolution, ResolutionKind
from thread_objects.core.recovery.evidence import Evidence, OpenCall
from thread_objects.core.recovery.intents import approval_intent, resolution_of, unknown_intent
from thread_objects.core.recovery.snapshot import AbortFact, Snapshot, UnknownIntent


def _batch(batch_id: str, now: int, deployment_id: str, *found: tuple[str, AnyPayload]) -> Batch:
    return Batch(
        batch_id=batch_id,
        records=tuple(
            Record(record_id=record_id, created_at=now, deployment_id=deployment_id, payload=payload)
            for record_id, payload in found
        ),
    )


def resolution_batch(
    snapshot: Snapshot, call: OpenCall, intent: UnknownIntent, now: int, *, deployment_id: str = ""
) -> Batch:
    """One intent, canonical: a result settles and resolves its call; a permission only resolves it.

    A call closed from outside has a result and no part; whoever reads it to the model makes one. Append a permission
    before its call is run: the record is what shows that it was used.
    """
    run = ids.run_id(snapshot.submission_id)
    resolution = resolution_of(intent)
    if resolution is None:
        raise ValueError("an abort closes no call")
    resolved = ToolCallResolved(
        run_id=run,
        turn=call.turn,
        tool_call_id=call.call_id,
        resolution=resolution,
        author=intent.author,
        reason=intent.reason,
        resolved_at=intent.resolved_at,
    )
    found: list[tuple[str, AnyPayload]] = [
        (ids.tool_resolved_record(run, call.turn, call.call_id, call.resolved_records), resolved)
    ]
    if intent.kind is ResolutionKind.COMPLETED_WITH_RESULT:
        settled = ToolCallSettled(
            run_id=run,
            turn=call.turn,
            tool_call_id=call.call_id,
            tool_name=call.name,
            result=intent.result,
            is_failure=intent.is_failure,
        )
        found.insert(0, (ids.tool_settled_record(run, call.turn, call.call_id), settled))
    batch_id = ids.resolution_batch(snapshot.submission_id, call.call_id, len(call.resolved))
    return _batch(batch_id, now, deployment_id, *found)


def resolution_batches(
    snapshot: Snapshot, evidence: Evidence, now: int, *, deployment_id: str = "", facts_only: bool = False
) -> tuple[Batch, ...]:
    """All intents that answer an open call and are not canonical yet.

    `facts_only` leaves permissions out: a Submission that is about to settle runs nothing any more.
    """
    found = []
    for call in evidence.ordinary_open_calls():
        intent = unknown_intent(snapshot, call)
        if intent is None or (facts_only and resolution_of(intent) is Resolution.SAFE_RETRY):
            continue
        found.append(resolution_batch(snapshot, call, intent, now, deployment_id=deployment_id))
    return tuple(found)


def approval_batches(snapshot: Snapshot, evidence: Evidence, now: int, *, deployment_id: str = "") -> tuple[Batch, ...]:
    """All stored decisions on requests without a canonical one, in the order they were asked."""
    run = ids.run_id(snapshot.submission_id)
    found = []
    for request in evidence.approvals_pending:
        intent = approval_intent(snapshot, request)
        if intent is None:
            continue
        decided = ToolApprovalDecided(
            run_id=run,
            turn=request.turn,
            tool_call_id=request.call_id,
            decision=intent.decision,
            resolver=intent.resolver,
            reason=intent.reason,
        )
        record_id = ids.approval_decision_record(run, request.turn, request.call_id)
        batch_id = ids.approval_decision_batch(snapshot.submission_id, request.call_id, request.earlier_decisions)
        found.append(_batch(batch_id, now, deployment_id, (record_id, decided)))
    return tuple(found)


def unknown_batches(
    snapshot: Snapshot, calls: Sequence[tuple[OpenCall, str]], now: int, *, deployment_id: str = ""
) -> tuple[Batch, ...]:
    """The unknown records of these (call, reason), Turn by Turn. A call whose statement still stands needs none."""
    run = ids.run_id(snapshot.submission_id)
    found = []
    fresh = sorted((said for said in calls if not said[0].marked), key=lambda said: said[0].turn)
    for turn, of_turn in groupby(fresh, key=lambda said: said[0].turn):
        batch = list(of_turn)
        for part, first in enumerate(range(0, len(batch), limits.BATCH_RECORDS_MAX)):
            some = batch[first : first + limits.BATCH_RECORDS_MAX]
            records = [
                (
                    ids.tool_unknown_record(run, turn, call.call_id, call.unknown_records),
                    ToolCallUnknown(
                        run_id=run, turn=turn, tool_call_id=call.call_id, tool_name=call.name, reason=reason
                    ),
                )
                for call, reason in some
            ]
            batch_id = ids.unknown_batch(snapshot.submission_id, turn, some[0][0].unknown_batches + part)
            found.append(_batch(batch_id, now, deployment_id, *records))
    return tuple(found)


def closing_batches(
    snapshot: Snapshot,
    evidence: Evidence,
    reason: str,
    now: int,
    *,
    deployment_id: str = "",
    suspects: Collection[tuple[int, str]] | None = None,
) -> tuple[Batch, ...]:
    """What a Submission about to settle says of its open calls: the stored facts, and that the rest is unknown.

    `suspects`: (turn, call id) of those that may have started, where that is known.
    """
    left = []
    for call in evidence.ordinary_open_calls():
        intent = unknown_intent(snapshot, call)
        answered = intent is not None and intent.kind is not ResolutionKind.SAFE_TO_RETRY
        if not answered and (suspects is None or (call.turn, call.call_id) in suspects):
            left.append((call, reason))
    return (
        *resolution_batches(snapshot, evidence, now, deployment_id=deployment_id, facts_only=True),
        *unknown_batches(snapshot, left, now, deployment_id=deployment_id),
    )


def abort_batch(snapshot: Snapshot, intent: AbortFact, now: int, *, deployment_id: str = "") -> Batch:
    """The abort intent, canonical."""
    sid = snapshot.submission_id
    requested = AbortRequested(submission_id=sid, author=intent.author, reason=intent.reason)
    return _batch(ids.abort_batch(sid), now, deployment_id, (ids.abort_record(sid), requested))


def aborted_settlement(snapshot: Snapshot, evidence: Evidence) -> SubmissionSettled:
    """The settlement of an aborted Submission; it names a Run only where one began."""
    sid = snapshot.submission_id
    return SubmissionSettled(
        submission_id=sid,
        settlement_id=ids.settlement_id(sid),
        receipt_id=snapshot.receipt_id,
        outcome=Outcome.ABORTED,
        run_id=ids.run_id(sid) if evidence.input_recorded else None,
        usage_summary=evidence.usage if evidence.input_recorded else None,
    )


def repair_batch(
    snapshot: Snapshot, decision: str, now: int, *, deployment_id: str = "", asked: Mapping[str, str] | None = None
) -> Batch:
    """The audit of one executed decision. Record and batch share their id: one audit per decision and row.

    `asked`: who had it executed, and why, where recovery did not do so by itself.
    """
    record_id = ids.repair_record(snapshot.submission_id, decision)
    annotated = RepairAnnotated(
        reason=f"recovery:{decision}",
        details={"submissionId": snapshot.submission_id, "state": snapshot.state.value, **(asked or {})},
    )
    return _batch(record_id, now, deployment_id, (record_id, annotated))
