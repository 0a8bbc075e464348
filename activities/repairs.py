"""Executes recovery decisions, each as an idempotent transaction or under a short claim.

Whoever loses a race leaves the row to the winner: the answer is then `deferred`, and nothing was changed.
"""

from typing import assert_never

from thread_objects.contract.states import Disposition
from thread_objects.contract.sweeps import WorkOwner
from thread_objects.core.recovery import Decision, Evidence, Permit, Snapshot
from thread_objects.core.recovery import decisions as d
from thread_objects.errors import AppendConflict, FenceRejected, OwnershipLost, SettlementConflict
from thread_objects.ports import Duty

from .abort_repair import AbortRepair
from .child_repair import ChildRepair
from .join_repair import JoinRepair
from .short_claims import ShortClaims
from .unknown_repair import Reconcilers, RetrySupported, UnknownRepair


class Repairs:
    """Executes the decisions of one recovery of one Thread."""

    def __init__(
        self,
        claims: ShortClaims,
        *,
        reconcilers: Reconcilers,
        retry_supported: RetrySupported,
        permits: set[Permit],
    ) -> None:
        self._claims = claims
        self._store = claims.store
        self._watch = claims.watch
        self._abort = AbortRepair(claims)
        self._children = ChildRepair(claims)
        self._joins = JoinRepair(claims)
        self._unknown = UnknownRepair(claims, reconcilers=reconcilers, retry_supported=retry_supported, permits=permits)

    def read_evidence(self, snapshot: Snapshot) -> Evidence:
        """The evidence behind a snapshot."""
        return self._claims.evidence(snapshot)

    def serve(self, duty: Duty) -> Disposition:
        """Do what a duty asks for that outlived its Submission."""
        if duty.owner is WorkOwner.OPERATION:
            # Nobody can say whether the call happened; the Submission is settled, so it will not be run either.
            return Disposition.UNKNOWN
        if duty.owner is WorkOwner.CHILD:
            return self._children.serve(duty)
        # No other owner has work of this kind yet.
        return Disposition.DEFERRED

    def execute(self, snapshot: Snapshot, evidence: Evidence, decision: Decision) -> Disposition:
        """Carry out a decision. Safe to repeat; safe beside a living owner."""
        try:
            return self._executed(snapshot, evidence, decision)
        except (OwnershipLost, FenceRejected, SettlementConflict):
            return Disposition.DEFERRED
        except AppendConflict as conflict:
            if conflict.conflict != "tail":
                raise
            return Disposition.DEFERRED

    def _executed(  # noqa: C901, PLR0911, PLR0912 - one arm per effect
        self, snapshot: Snapshot, evidence: Evidence, decision: Decision
    ) -> Disposition:
        if self._children.overdue(snapshot, evidence, decision):
            return self._children.wind_up(snapshot, decision)
        match decision:
            case d.NoAction():
                return Disposition.NONE
            case d.FinalizeLedgerFromHistory():
                return self._finalize(snapshot)
            case d.SettleAborted():
                return self._abort.settle(snapshot, evidence)
            case d.MarkUnknown():
                return self._unknown.mark(snapshot, decision)
            case d.ApplyUnknownResolutions():
                return self._apply_resolutions(snapshot, evidence)
            case d.AwaitUnknownResolution():
                return Disposition.UNKNOWN
            case d.AwaitApprovalDecision():
                return Disposition.DEFERRED if decision.suspended else self._suspend(snapshot, decision)
            case d.ResumeSuspended():
                return self._wake(snapshot)
            case d.RepairInputMarker():
                return self._mark_input(snapshot, decision)
            case d.CompleteMaterialization() | d.RepairReadiness():
                return self._make_ready(snapshot)
            # Left to the worker, or to whoever the row waits for.
            case (
                d.ApplyInput()
                | d.ResumePendingToolBatch()
                | d.ResumeFromTurnBoundary()
                | d.AwaitHostSettlement()
                | d.AwaitChildSettlement()
                | d.AwaitChildAdmissionResolution()
                | d.AwaitParentEstablishment()
            ):
                return Disposition.DEFERRED
            case d.RepairJoinMarker() | d.RevertJoining():
                return self._joins.repair(snapshot, evidence, decision)
            case d.SettleJoinedWithHost():
                return self._joins.settle(snapshot)
            case d.CompleteChildAdmission(call_id=call_id):
                return self._children.complete_admission(snapshot, evidence, call_id)
            case d.RepairSubagentStartLink():
                return self._children.repair_link(snapshot, evidence, decision)
            case d.EnsureWaitingForChild():
                return self._children.ensure_waiting(snapshot, decision)
            case d.ResumeWaitingParent(children=children):
                return self._children.resume_parent(snapshot, children)
            case d.ApplyJoinAccounting(call_id=call_id):
                return self._children.apply_accounting(snapshot, evidence, call_id)
            case d.PropagateChildAbort():
                return self._children.propagate_abort(snapshot, decision)
            case d.ReleaseOrphanChildReservation():
                return self._children.release_orphans(snapshot, decision)
            case _:
                assert_never(decision)

    def _finalize(self, snapshot: Snapshot) -> Disposition:
        now = self._watch.repairing("finalize")
        self._store.finalize(snapshot.submission_id, now=now)
        return Disposition.REPAIRED

    def _apply_resolutions(self, snapshot: Snapshot, evidence: Evidence) -> Disposition:
        if self._unknown.unsupported(snapshot, evidence.ordinary_open_calls()):
            return Disposition.UNKNOWN
        now = self._watch.repairing("apply unknown resolutions")
        woken = self._store.apply_unknown_resolutions(snapshot.submission_id, now=now)
        return Disposition.REPAIRED if woken else Disposition.UNKNOWN

    def _suspend(self, snapshot: Snapshot, decision: d.AwaitApprovalDecision) -> Disposition:
        with self._claims.claimed(snapshot, decision) as held:
            if held is None:
                return Disposition.DEFERRED
            self._claims.audit(held, decision)
            now = self._watch.repairing("suspend")
            suspended, _, _ = self._store.suspend(held.claim, None, [decision.call_id], now=now)
            held.ended = suspended
            return Disposition.REPAIRED if suspended else Disposition.DEFERRED
        return Disposition.DEFERRED

    def _wake(self, snapshot: Snapshot) -> Disposition:
        now = self._watch.repairing("wake suspended")
        self._store.wake_suspended(snapshot.submission_id, now=now)
        return Disposition.DEFERRED

    def _mark_input(self, snapshot: Snapshot, decision: d.RepairInputMarker) -> Disposition:
        with self._claims.claimed(snapshot, decision) as held:
            if held is None:
                return Disposition.DEFERRED
            now = self._watch.repairing("mark input applied")
            held.claim = self._store.mark_input_applied(held.claim, now=now)
            return Disposition.REPAIRED
        return Disposition.DEFERRED

    def _make_ready(self, snapshot: Snapshot) -> Disposition:
        now = self._watch.repairing("materialize and ready")
        self._store.materialize_and_ready(snapshot.submission_id, deployment_id=self._claims.deployment_id, now=now)
        return Disposition.REPAIRED
