"""Which stored intent still speaks for a call.

An intent answers the uncertainty it was given for. Once a permission to run is canonical the call may have
run again, so neither the same intent nor another one of that round permits a second repetition; the log tells
whether one was used.
"""

from thread_objects.contract.states import Decision as ApprovalDecision
from thread_objects.contract.states import Resolution, ResolutionKind
from thread_objects.core.recovery.evidence import Evidence, OpenCall, PendingApproval
from thread_objects.core.recovery.snapshot import ApprovalIntent, Snapshot, UnknownIntent

# Facts before permissions: later truth may stand beside an earlier permission and then decides.
_PRECEDENCE = (
    ResolutionKind.COMPLETED_WITH_RESULT,
    ResolutionKind.NEVER_HAPPENED,
    ResolutionKind.SAFE_TO_RETRY,
)


def resolution_of(intent: UnknownIntent) -> Resolution | None:
    """What the canonical record of an intent says. None for an abort, which closes no call."""
    match intent.kind:
        case ResolutionKind.COMPLETED_WITH_RESULT:
            return Resolution.FAILED_WITH_ERROR if intent.is_failure else Resolution.COMPLETED_WITH_RESULT
        case ResolutionKind.NEVER_HAPPENED:
            return Resolution.NEVER_STARTED
        case ResolutionKind.SAFE_TO_RETRY:
            return Resolution.SAFE_RETRY
        case ResolutionKind.ABORT_SUBMISSION:
            return None


def unknown_intent(snapshot: Snapshot, call: OpenCall) -> UnknownIntent | None:
    """The intent that answers this open call, or None."""
    spent = {(past.resolution, past.resolved_at) for past in call.resolved}
    own = {
        intent.kind: intent
        for intent in snapshot.unknown_resolutions
        if intent.tool_call_id == call.call_id and (resolution_of(intent), intent.resolved_at) not in spent
    }
    # A permission was used and nothing was marked since: what else was said is about the earlier run, not this one.
    used = call.unknown_records > 0 and not call.marked
    return next((own[kind] for kind in (_PRECEDENCE[:1] if used else _PRECEDENCE) if kind in own), None)


def covered(snapshot: Snapshot, evidence: Evidence) -> bool:
    """Every ordinary open call has an intent that still speaks for it."""
    return all(unknown_intent(snapshot, call) is not None for call in evidence.ordinary_open_calls())


def approval_intent(snapshot: Snapshot, request: PendingApproval) -> ApprovalIntent | None:
    """The stored decision on this request, or None."""
    for intent in snapshot.approval_decisions:
        if intent.tool_call_id == request.call_id and (
            intent.turn == request.turn or (intent.turn == 0 and request.earlier_decisions == 0)
        ):
            return intent
    return None


def undecided(snapshot: Snapshot, evidence: Evidence) -> str | None:
    """The one approval to be asked next, by call id. A denial ends the batch: nothing after it is asked."""
    requests = {request.call_id: request for request in evidence.approvals_pending}
    batch = evidence.pending_batch
    if batch is None:
        open_requests = (r for r in requests.values() if approval_intent(snapshot, r) is None)
        return next((request.call_id for request in open_requests), None)
    for approval in batch.approvals:
        request = requests.get(approval.call_id, PendingApproval(approval.call_id, batch.turn))
        intent = approval_intent(snapshot, request)
        decision = approval.decision or (intent.decision if intent is not None else None)
        if decision is None:
            return approval.call_id
        if decision is ApprovalDecision.DENIED:
            return None
    return None
