"""Executes what recovery decides about children: their admission, their link, the wait for them, and their budget.

Rules guarded: new holds and links need the parent's claim; giving budget back needs history alone; an aborted parent
aborts each child once and waits for it; after the parent's deadline no child comes into being.
"""

from collections.abc import Sequence

from thread_objects import failpoints
from thread_objects.contract.states import Disposition, SubmissionState
from thread_objects.core.recovery import (
    APPROVAL_PENDING,
    WAITING_FOR_CHILD,
    WHOLE_CHARGED,
    Decision,
    DelegationCall,
    DelegationView,
    Evidence,
    Snapshot,
    started_batch,
)
from thread_objects.core.recovery import decisions as d
from thread_objects.core.recovery.delegation import ADMITTED, RELEASED, views
from thread_objects.ports import Duty

from .abort_repair import DENIED, RESOLVER
from .child_budget import ChildBudget, childless
from .short_claims import Held, ShortClaims, read_snapshot

ABORT_AUTHOR = "parent"
ABORT_REASON = "the parent submission was aborted"


class ChildRepair:
    """Executes the decisions about delegations."""

    def __init__(self, claims: ShortClaims) -> None:
        self._claims = claims
        self._store = claims.store
        self._watch = claims.watch
        self._children = claims.children
        self._budget = ChildBudget(claims.store, claims.watch)

    # --- establishing a child ------------------------------------------------------------------------------------

    def complete_admission(self, snapshot: Snapshot, evidence: Evidence, call_id: str) -> Disposition:
        """Admit a requested child that is known not to exist."""
        call = _call(evidence, call_id)
        if call is None or call.request is None:
            return Disposition.DEFERRED
        return _repaired(self._children.admit(snapshot, call.request) is not None)

    def repair_link(self, snapshot: Snapshot, evidence: Evidence, decision: d.RepairSubagentStartLink) -> Disposition:
        """Link a child that exists to its parent."""
        call = _call(evidence, decision.call_id)
        if call is None or call.request is None:
            return Disposition.DEFERRED
        receipt = self._children.find(snapshot, call.request)
        if receipt is None:
            return Disposition.DEFERRED
        self._children.establish(snapshot, call.request, receipt)
        with self._claims.claimed(snapshot, decision) as held:
            if held is None:
                return Disposition.DEFERRED
            self._claims.audit(held, decision)
            return _repaired(self._link(held, decision.call_id))
        return Disposition.DEFERRED

    def _link(self, held: Held, call_id: str) -> bool:
        """Start record and attachment, of a child that its owner finds."""
        view = _view(held.snapshot, held.evidence, call_id)
        if view is None or view.call is None or view.call.request is None:
            return False
        request = view.call.request
        receipt = self._children.find(held.snapshot, request)
        if receipt is None:
            return False
        if not view.started:
            now = self._watch.repairing("link child")
            batch = started_batch(held.snapshot, request, receipt, now, deployment_id=self._claims.deployment_id)
            self._claims.append(held, batch, "link child")
            failpoints.hit("subagent:after-start")
        self._attach(held, view, receipt.submission_id)
        return True

    def _attach(self, held: Held, view: DelegationView, child: str) -> None:
        reservation = view.reservation
        if reservation is None or reservation.child_submission_id is not None or view.status == RELEASED:
            return
        now = self._watch.repairing("attach child")
        self._store.attach_child(held.claim, reservation.reservation_id, child, now=now)
        failpoints.hit("subagent:after-attach")

    def _attach_started(self, held: Held) -> None:
        """Children whose start is canonical belong to their reservations, whoever died before saying so."""
        for view in views(held.snapshot, held.evidence):
            if view.started and view.child is not None:
                self._attach(held, view, view.child)

    # --- waiting -------------------------------------------------------------------------------------------------

    def ensure_waiting(self, snapshot: Snapshot, decision: d.EnsureWaitingForChild) -> Disposition:
        """Suspend a parent whose children are at work."""
        with self._claims.claimed(snapshot, decision) as held:
            if held is None:
                return Disposition.DEFERRED
            self._claims.audit(held, decision)
            return _repaired(self._wait(held, decision.children))
        return Disposition.DEFERRED

    def _wait(self, held: Held, children: Sequence[str]) -> bool:
        self._attach_started(held)
        now = self._watch.repairing("suspend for children")
        failpoints.hit("subagent:before-suspend")
        held.ended, _, _ = self._store.suspend_for_children(held.claim, None, children, now=now)
        failpoints.hit("subagent:after-suspend")
        return held.ended

    def resume_parent(self, snapshot: Snapshot, children: Sequence[str]) -> Disposition:
        """Tell a parent of its settled children. One that does not wait is left to whoever joins them."""
        self._close_approvals(snapshot)
        for child in children:
            now = self._watch.repairing("record child settled")
            self._store.record_child_settled(snapshot.submission_id, child, now=now)
            failpoints.hit("subagent:after-child-settled")
        return _repaired(snapshot.state is SubmissionState.SUSPENDED)

    def _close_approvals(self, snapshot: Snapshot) -> None:
        """Under an abort nobody decides any more: what waits for a decision is denied, so that children can end."""
        waits = snapshot.suspension
        if snapshot.abort_intent is not None and waits is not None and waits.reason == APPROVAL_PENDING:
            now = self._watch.repairing("close suspension")
            self._store.deny_pending_approvals(snapshot.submission_id, resolver=RESOLVER, reason=DENIED, now=now)
            failpoints.hit("recovery:close-suspension:after")

    # --- aborting ------------------------------------------------------------------------------------------------

    def propagate_abort(self, snapshot: Snapshot, decision: d.PropagateChildAbort) -> Disposition:
        """Abort each child once; the parent waits until they are settled, and settles after them."""
        for child in decision.children:
            self._children.abort(child, author=ABORT_AUTHOR, reason=ABORT_REASON)
            failpoints.hit("subagent:after-child-abort")
        waits = snapshot.suspension
        if waits is not None and waits.reason == WAITING_FOR_CHILD:
            return Disposition.REPAIRED
        self._close_approvals(snapshot)
        with self._claims.claimed(snapshot, decision) as held:
            # Uncertain work is never suspended: it is looked at again until its children are settled.
            if held is None or held.snapshot.state is not SubmissionState.INPUT_APPLIED:
                return Disposition.DEFERRED
            self._claims.audit(held, decision)
            self._wait(held, decision.children)
            return Disposition.REPAIRED
        return Disposition.DEFERRED

    # --- budget --------------------------------------------------------------------------------------------------

    def apply_accounting(self, snapshot: Snapshot, evidence: Evidence, call_id: str) -> Disposition:
        """Give back the budget of a joined child."""
        view = _view(snapshot, evidence, call_id)
        return _repaired(view is not None and self._budget.settle(view))

    def release_orphans(self, snapshot: Snapshot, decision: d.ReleaseOrphanChildReservation) -> Disposition:
        """Give back what was reserved for children that never were requested.

        A living owner may be about to request one, and only the claim tells. A suspended row has no owner.
        """
        if snapshot.state is SubmissionState.SUSPENDED:
            return self._release_all(decision.reservation_ids)
        with self._claims.claimed(snapshot, decision) as held:
            if held is None:
                return Disposition.DEFERRED
            self._claims.audit(held, decision)
            return self._release_all(decision.reservation_ids)
        return Disposition.DEFERRED

    def _release_all(self, reservation_ids: Sequence[str]) -> Disposition:
        done = [self._budget.release(reservation_id) for reservation_id in reservation_ids]
        return _repaired(all(done))

    # --- after the deadline ----------------------------------------------------------------------------------------

    def overdue(self, snapshot: Snapshot, evidence: Evidence, decision: Decision) -> bool:
        """Whether the parent's deadline replaces this decision."""
        if evidence.deadline_at is None or self._watch.now() < evidence.deadline_at:
            return False
        if isinstance(decision, d.MarkUnknown):
            return any(row.status != RELEASED for row in snapshot.child_reservations)
        return isinstance(
            decision, d.CompleteChildAdmission | d.RepairSubagentStartLink | d.AwaitChildAdmissionResolution
        )

    def wind_up(self, snapshot: Snapshot, decision: Decision) -> Disposition:
        """Admit nobody: release what is childless, link children that exist, finish canonical joins."""
        with self._claims.claimed(snapshot, decision) as held:
            if held is None:
                return Disposition.DEFERRED
            self._claims.audit(held, decision)
            for view in views(held.snapshot, held.evidence):
                if self._budget.settle(view) or view.status == RELEASED:
                    continue
                if childless(view) and view.reservation is not None:
                    self._budget.release(view.reservation.reservation_id)
                elif view.child is not None or view.admission == ADMITTED:
                    self._establish_and_link(held, view)
            found = read_snapshot(self._store, snapshot.submission_id, self._watch)
            still = () if found is None else found.child_reservations
            return _repaired(all(row.status == RELEASED for row in still))
        return Disposition.DEFERRED

    def _establish_and_link(self, held: Held, view: DelegationView) -> None:
        request = None if view.call is None else view.call.request
        receipt = None if request is None else self._children.find(held.snapshot, request)
        if request is not None and receipt is not None:
            self._children.establish(held.snapshot, request, receipt)
            self._link(held, view.call_id)

    # --- duties that outlived the parent ---------------------------------------------------------------------------

    def serve(self, duty: Duty) -> Disposition:
        """Give back what a settled parent still holds. Its child, should one be at work, is aborted first."""
        snapshot = read_snapshot(self._store, duty.submission_id, self._watch)
        if snapshot is None:
            return Disposition.DEFERRED
        view = _view(snapshot, self._claims.evidence(snapshot), duty.call_id)
        if view is None or view.reservation is None or view.status == RELEASED:
            return Disposition.DEFERRED
        if self._budget.settle(view):
            return Disposition.REPAIRED
        reservation_id = view.reservation.reservation_id
        if childless(view):
            return _repaired(self._budget.release(reservation_id))
        child = self._known_child(snapshot, view)
        if child is not None and not self._children.abort(child, author=ABORT_AUTHOR, reason=ABORT_REASON):
            return _repaired(self._budget.release(reservation_id, WHOLE_CHARGED))
        return Disposition.DEFERRED

    def _known_child(self, snapshot: Snapshot, view: DelegationView) -> str | None:
        if view.child is not None or view.call is None or view.call.request is None:
            return view.child
        receipt = self._children.find(snapshot, view.call.request)
        return None if receipt is None else receipt.submission_id


def _call(evidence: Evidence, call_id: str) -> DelegationCall | None:
    return next((call for call in evidence.open_delegation_calls if call.call_id == call_id), None)


def _view(snapshot: Snapshot, evidence: Evidence, call_id: str) -> DelegationView | None:
    return next((view for view in views(snapshot, evidence) if view.call_id == call_id), None)


def _repaired(done: bool) -> Disposition:
    return Disposition.REPAIRED if done else Disposition.DEFERRED
