"""Explains a Submission: the classifier's decision in an operator's words, with the evidence behind it.

Reads only, and decides nothing of its own: the decision is the one that recovery would execute on the same facts, the
disposition the one it would leave behind if nobody contended.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Literal

from thread_objects.contract import limits
from thread_objects.contract import operations as o
from thread_objects.contract.messages import LogRecord
from thread_objects.contract.records import SubagentRequested
from thread_objects.contract.states import Outcome, ResolutionKind, SubmissionState
from thread_objects.contract.views import Fault
from thread_objects.contract.wire import Json
from thread_objects.core.evidence import evidence_of
from thread_objects.core.obligations import age_seconds
from thread_objects.core.recovery import (
    Decision,
    Evidence,
    OpenCall,
    Snapshot,
    approval_intent,
    classify,
    predicted_disposition,
    tag,
    unknown_intent,
    with_admissions,
)
from thread_objects.core.recovery.decisions import ApplyUnknownResolutions

RetryContract = Callable[[str, OpenCall], bool | None]
"""(agent id, call) -> whether the code still offers the call's operation; None where nobody here can tell."""


@dataclass(frozen=True, slots=True)
class RowTimes:
    """Instants of a row, epoch milliseconds. The maps are by tool call id."""

    admitted_at: int
    ready_at: int | None = None
    suspended_at: int | None = None
    settled_at: int | None = None
    unknown_since: dict[str, int] = field(default_factory=dict)
    approval_since: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Facts:
    """All that is known of one Submission, read in one transaction."""

    snapshot: Snapshot
    records: Sequence[LogRecord]
    host_records: Sequence[LogRecord]
    object_id: str
    principal: str
    outcome: Outcome | None
    claims: int
    times: RowTimes
    admission: Callable[[SubagentRequested], str]
    """Whether a requested child exists: `admitted`, `not-admitted` or `indeterminate`."""
    behind: o.BehindView | None = None
    fault: Fault | None = None


def explain(facts: Facts, now: int, *, retry_contract: RetryContract | None = None) -> o.Explanation:
    """Explain one Submission. Raises `UndecodableRecord` for a record that this version cannot read."""
    snapshot, times = facts.snapshot, facts.times
    evidence = with_admissions(snapshot, evidence_of(snapshot, facts.records, facts.host_records), facts.admission)
    decision = classify(snapshot, evidence)
    contract = _contract(snapshot, evidence, decision, retry_contract)
    state_since = {
        SubmissionState.SUSPENDED: times.suspended_at,
        SubmissionState.UNKNOWN: min(times.unknown_since.values(), default=None),
        SubmissionState.SETTLED: times.settled_at,
    }.get(snapshot.state)
    return o.Explanation(
        submission_id=snapshot.submission_id,
        receipt_id=snapshot.receipt_id,
        thread_id=snapshot.thread_id,
        object_id=facts.object_id,
        principal=facts.principal,
        agent_id=snapshot.agent_id,
        queue_sequence=snapshot.queue_sequence,
        state=snapshot.state,
        outcome=facts.outcome,
        decision=tag(decision),
        meaning=decision.meaning,
        disposition=predicted_disposition(decision, retry_supported=contract != "unsupported"),
        details={item.name: _plain(getattr(decision, item.name)) for item in fields(decision)},
        retry_contract=contract,
        admitted_age_seconds=age_seconds(times.admitted_at, now),
        ready_age_seconds=_age(times.ready_at, now),
        state_age_seconds=_age(state_since, now),
        owner=_owner(snapshot, now),
        claims=facts.claims,
        abort=_abort(snapshot, now),
        behind=facts.behind,
        host_submission_id=snapshot.host_submission_id,
        unknown_calls=tuple(
            _unknown_call(call, times, now) for call in evidence.open_tool_calls[: limits.EXPLAINED_CALLS_MAX]
        ),
        unknown_intents=tuple(
            o.UnknownIntentView(
                tool_call_id=intent.tool_call_id,
                resolution=intent.kind,
                author=intent.author,
                reason=_cut(intent.reason),
                resolved_at=intent.resolved_at,
            )
            for intent in snapshot.unknown_resolutions[: limits.EXPLAINED_CALLS_MAX]
        ),
        approvals=_approvals(snapshot, evidence, times, now)[: limits.EXPLAINED_CALLS_MAX],
        evidence=_evidence_view(snapshot, evidence),
        fault=facts.fault,
    )


def _contract(
    snapshot: Snapshot, evidence: Evidence, decision: Decision, retry_contract: RetryContract | None
) -> Literal["not-needed", "supported", "unsupported", "unchecked"]:
    """Whether the stored permissions to retry still name operations that the code offers."""
    if not isinstance(decision, ApplyUnknownResolutions):
        return "not-needed"
    permitted = [
        call
        for call in evidence.ordinary_open_calls()
        if (intent := unknown_intent(snapshot, call)) is not None and intent.kind is ResolutionKind.SAFE_TO_RETRY
    ]
    if not permitted:
        return "not-needed"
    told = [None if retry_contract is None else retry_contract(snapshot.agent_id, call) for call in permitted]
    if False in told:
        return "unsupported"
    return "unchecked" if None in told else "supported"


def _plain(value: object) -> Json:
    """A decision's field without anything that a conversation holds: calls are told by their ids."""
    if isinstance(value, OpenCall):
        return value.call_id
    if isinstance(value, tuple):
        return [_plain(item) for item in value[: limits.EXPLAINED_CALLS_MAX]]
    if isinstance(value, Enum):
        return str(value.value)
    return value if isinstance(value, str | bool | int) or value is None else str(value)


def _age(since: int | None, now: int) -> int | None:
    return None if since is None else age_seconds(since, now)


def _cut(text: str) -> str:
    return text if len(text) <= limits.EXPLAINED_TEXT_CHARS_MAX else f"{text[: limits.EXPLAINED_TEXT_CHARS_MAX]}…"


def _owner(snapshot: Snapshot, now: int) -> o.OwnerView | None:
    owner = snapshot.ownership
    if owner is None:
        return None
    return o.OwnerView(
        attempt_id=owner.attempt_id,
        epoch=owner.epoch,
        lease_until=owner.lease_until,
        lease_live=owner.lease_until > now,
    )


def _abort(snapshot: Snapshot, now: int) -> o.AbortView | None:
    intent = snapshot.abort_intent
    if intent is None:
        return None
    return o.AbortView(
        author=intent.author,
        reason=_cut(intent.reason),
        requested_at=intent.requested_at,
        age_seconds=age_seconds(intent.requested_at, now),
    )


def _unknown_call(call: OpenCall, times: RowTimes, now: int) -> o.UnknownCallView:
    since = times.unknown_since.get(call.call_id)
    return o.UnknownCallView(
        tool_call_id=call.call_id,
        tool_name=_cut(call.name),
        turn=call.turn,
        tool_class=call.tool_class,
        marked=call.marked,
        resolved=call.resolved_records > 0 and not call.marked,
        since=since,
        age_seconds=_age(since, now),
    )


def _approvals(snapshot: Snapshot, evidence: Evidence, times: RowTimes, now: int) -> tuple[o.ApprovalView, ...]:
    """Requests without a canonical decision, and the decided ones of the batch that is in hand."""
    pending = (
        (request.call_id, request.turn, None, approval_intent(snapshot, request))
        for request in evidence.approvals_pending
    )
    batch = evidence.pending_batch
    decided = (
        (approval.call_id, batch.turn, approval.decision, None)
        for approval in (() if batch is None else batch.approvals)
        if batch is not None and approval.decision is not None
    )
    return tuple(
        o.ApprovalView(
            tool_call_id=call_id,
            turn=turn,
            decision=canonical if intent is None else intent.decision,
            canonical=canonical is not None,
            resolver=None if intent is None else intent.resolver,
            age_seconds=_age(times.approval_since.get(call_id), now),
        )
        for call_id, turn, canonical, intent in (*pending, *decided)
    )


def _evidence_view(snapshot: Snapshot, evidence: Evidence) -> o.EvidenceView:
    batch, most = evidence.pending_batch, limits.EXPLAINED_CALLS_MAX
    return o.EvidenceView(
        thread_materialized=evidence.thread_materialized,
        input_recorded=evidence.input_recorded,
        settlement_outcome=evidence.settlement_outcome,
        abort_recorded=evidence.abort_recorded,
        pending_batch=None if batch is None else o.PendingBatchView(turn=batch.turn, call_count=batch.call_count),
        open_calls=tuple(call.call_id for call in evidence.open_tool_calls[:most]),
        open_calls_total=len(evidence.open_tool_calls),
        open_delegations=tuple(call.call_id for call in evidence.open_delegation_calls[:most]),
        open_worker_calls=tuple(call.call_id for call in evidence.open_worker_calls[:most]),
        host_settlement_outcome=evidence.host_settlement_outcome,
        joined_input_covered=None if snapshot.host_submission_id is None else evidence.joined_input_covered,
    )
