"""Finds out what became of calls whose worker died, and states openly what nobody can say.

In this order: an intent that is already stored, the tool's class, the tool's reconciler. Only what is left uncertain
becomes an Unknown Outcome. Nothing is run here.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from thread_objects import failpoints
from thread_objects.contract import ids, limits
from thread_objects.contract.states import Disposition, ResolutionKind, ToolClass
from thread_objects.core.canonical import PERSISTED, canonical
from thread_objects.core.recovery import (
    CompletedWithResult,
    LostCall,
    NeverStarted,
    OpenCall,
    Permit,
    Reconciled,
    SafeToRetry,
    Snapshot,
    UnknownIntent,
    resolution_batch,
    unknown_batches,
    unknown_intent,
)
from thread_objects.core.recovery.decisions import MarkUnknown
from thread_objects.errors import BindingUnavailable, InvalidInput
from thread_objects.ports import Reconciler

from .reconcile import ReconcilerFailed, ask
from .short_claims import Held, ShortClaims

RECONCILER = "reconciler"
LOST = "the worker was lost before a result was recorded"
UNSUPPORTED = "a retry was permitted, but the code no longer offers the original operation"

Reconcilers = Callable[[str, str], Reconciler | None]
"""(agent id, tool name) -> the registered reconciler. Raises `BindingUnavailable` when nobody can be asked."""

RetrySupported = Callable[[str, OpenCall], bool]
"""(agent id, call) -> whether the code still offers the call's operation under the contract it was declared with."""


def no_reconcilers(_agent_id: str, _tool_name: str) -> Reconciler | None:
    """Nothing is registered: every lost call is uncertain."""
    return None


def always_supported(_agent_id: str, _call: OpenCall) -> bool:
    """Every permission to retry holds."""
    return True


@dataclass(slots=True)
class _Findings:
    """Of the calls of one decision: those nobody can say anything of, each with the reason, and those left open
    because they may be retried or because whoever should say something could not be asked.
    """

    uncertain: list[tuple[OpenCall, str]] = field(default_factory=list)
    open: list[OpenCall] = field(default_factory=list)


class UnknownRepair:
    """Executes MarkUnknown."""

    def __init__(
        self, claims: ShortClaims, *, reconcilers: Reconcilers, retry_supported: RetrySupported, permits: set[Permit]
    ) -> None:
        self._claims = claims
        self._watch = claims.watch
        self._reconcilers = reconcilers
        self._retry_supported = retry_supported
        self._permits = permits

    def mark(self, snapshot: Snapshot, decision: MarkUnknown) -> Disposition:
        """Reconcile every listed call and mark the uncertain remainder."""
        with self._claims.claimed(snapshot, decision) as held:
            if held is None:
                return Disposition.DEFERRED
            self._claims.audit(held, decision)
            found = _Findings()
            for call in decision.calls:
                self._settle_one(held, call, found)
            if found.uncertain:
                self._mark_remainder(held, found)
                return Disposition.UNKNOWN
            return Disposition.DEFERRED if found.open else Disposition.REPAIRED
        return Disposition.DEFERRED

    def unsupported(self, snapshot: Snapshot, calls: tuple[OpenCall, ...]) -> bool:
        """Whether a stored permission to retry names an operation that is no longer offered."""
        return any(
            intent.kind is ResolutionKind.SAFE_TO_RETRY and not self._retry_supported(snapshot.agent_id, call)
            for call in calls
            if (intent := unknown_intent(snapshot, call)) is not None
        )

    def _settle_one(self, held: Held, call: OpenCall, found: _Findings) -> None:
        intent = unknown_intent(held.snapshot, call)
        if intent is not None and intent.kind is ResolutionKind.COMPLETED_WITH_RESULT:
            self._record(held, call, intent)
        elif intent is not None and self.unsupported(held.snapshot, (call,)):
            # The permission is recorded as given; that it was of no use is what the new unknown record says.
            self._record(held, call, intent)
            found.uncertain.append((replace(call, marked=False), UNSUPPORTED))
        elif intent is not None or call.tool_class is ToolClass.IDEMPOTENT:
            found.open.append(call)
        else:
            self._reconcile(held, call, found)

    def _reconcile(self, held: Held, call: OpenCall, found: _Findings) -> None:
        try:
            verdict = self._asked(held, call)
            if isinstance(verdict, CompletedWithResult):
                canonical(verdict.result, PERSISTED)
                self._record(held, call, self._as_intent(call, verdict))
                return
        except (BindingUnavailable, ReconcilerFailed, InvalidInput, ValueError):
            # No proof either way, and a result that cannot be stored is none: the next pass asks again.
            found.open.append(call)
            return
        if isinstance(verdict, NeverStarted | SafeToRetry):
            sid = held.snapshot.submission_id
            self._permits.add(Permit(sid, call.turn, call.call_id, held.claim.epoch))
            found.open.append(call)
        else:
            found.uncertain.append((call, LOST))

    def _asked(self, held: Held, call: OpenCall) -> Reconciled | None:
        self._watch.repairing("reconcile call")
        snapshot = held.snapshot
        reconciler = self._reconcilers(snapshot.agent_id, call.name)
        if reconciler is None:
            return None
        lost = LostCall(
            agent_id=snapshot.agent_id,
            thread_id=snapshot.thread_id,
            submission_id=snapshot.submission_id,
            run_id=ids.run_id(snapshot.submission_id),
            turn=call.turn,
            tool_call_id=call.call_id,
            tool_name=call.name,
            arguments=call.arguments,
        )
        timeout_ms = min(limits.RECONCILE_TIMEOUT_MS, self._watch.left_ms())
        verdict = ask(reconciler, lost, timeout_ms=timeout_ms)
        self._claims.renew(held)
        return verdict

    def _as_intent(self, call: OpenCall, verdict: CompletedWithResult) -> UnknownIntent:
        return UnknownIntent(
            tool_call_id=call.call_id,
            kind=ResolutionKind.COMPLETED_WITH_RESULT,
            result=verdict.result,
            is_failure=verdict.is_failure,
            author=RECONCILER,
            reason=verdict.reason,
            resolved_at=self._watch.now(),
        )

    def _record(self, held: Held, call: OpenCall, intent: UnknownIntent) -> None:
        now = self._watch.repairing("record resolution")
        batch = resolution_batch(held.snapshot, call, intent, now, deployment_id=self._claims.deployment_id)
        self._claims.append(held, batch, "record resolution")
        failpoints.hit("recovery:resolution:after")

    def _mark_remainder(self, held: Held, found: _Findings) -> None:
        now = self._watch.repairing("mark unknown")
        deployment_id = self._claims.deployment_id
        batches = unknown_batches(held.snapshot, found.uncertain, now, deployment_id=deployment_id)
        marked = {call.call_id: call.name for call, _ in found.uncertain}
        failpoints.hit("mark-unknown:before")
        self._claims.store.mark_unknown(held.claim, batches, marked, now=now)
        held.ended = True
        failpoints.hit("mark-unknown:after")
