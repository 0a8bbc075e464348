"""Finds a requested child, or admits it: by its key, from the canonical request alone.

Rule guarded: one child for each request, whoever asks and how often; where nobody can say whether it exists, it is
waited for.
"""

from thread_objects import failpoints
from thread_objects.admission import Admitted, NotAdmitted
from thread_objects.child_owner import ChildOwner
from thread_objects.contract.messages import Receipt
from thread_objects.contract.records import SubagentRequested
from thread_objects.core.recovery import Evidence, Snapshot, child_submit, lineage_batch, with_admissions
from thread_objects.core.recovery.delegation import ADMITTED, NOT_ADMITTED
from thread_objects.errors import AdmissionLimitExceeded, AdmissionPolicyError, StoreUnavailable

from .watch import Watch

INDETERMINATE = "indeterminate"


class ChildAdmissions:
    """The children of one Thread's Submissions, at their owner."""

    def __init__(self, owner: ChildOwner, watch: Watch, *, deployment_id: str) -> None:
        self._owner = owner
        self._watch = watch
        self._deployment_id = deployment_id

    def looked_up(self, snapshot: Snapshot, evidence: Evidence) -> Evidence:
        """The evidence with what the owner says of requested children that nothing else is known of."""
        return with_admissions(snapshot, evidence, lambda request: self._admission(snapshot, request))

    def find(self, snapshot: Snapshot, request: SubagentRequested) -> Receipt | None:
        """The child of a request, if it is known to exist."""
        found = self._lookup(snapshot, request)
        return found if isinstance(found, Receipt) else None

    def admit(self, snapshot: Snapshot, request: SubagentRequested) -> Receipt | None:
        """Admit the child and finish what it lacks. None when its owner cannot say, or has no room for it now."""
        now = self._watch.repairing("admit child")
        try:
            receipt = self._owner.admit(child_submit(snapshot, request), deployment_id=self._deployment_id, now=now)
        except (AdmissionLimitExceeded, AdmissionPolicyError, StoreUnavailable):
            return None
        failpoints.hit("subagent:after-admit")
        self.establish(snapshot, request, receipt)
        return receipt

    def establish(self, snapshot: Snapshot, request: SubagentRequested, receipt: Receipt) -> None:
        """Lineage and readiness of a child that exists."""
        now = self._watch.repairing("establish child")
        lineage = lineage_batch(snapshot, request, now, deployment_id=self._deployment_id)
        self._owner.establish(receipt.submission_id, lineage, now=now)
        failpoints.hit("subagent:after-child-ready")
        self._owner.wake(receipt.thread_id, now=now)

    def abort(self, child: str, *, author: str, reason: str) -> bool:
        """Ask for a child's abort, once. False when it is settled."""
        now = self._watch.repairing("abort child")
        return self._owner.abort(child, author=author, reason=reason, deployment_id=self._deployment_id, now=now)

    def _admission(self, snapshot: Snapshot, request: SubagentRequested) -> str:
        found = self._lookup(snapshot, request)
        if isinstance(found, Receipt):
            return ADMITTED
        return NOT_ADMITTED if isinstance(found, NotAdmitted) else INDETERMINATE

    def _lookup(self, snapshot: Snapshot, request: SubagentRequested) -> Receipt | NotAdmitted | None:
        """The child, proof of its absence, or None: nobody can say, or the key was used for something else."""
        self._watch.reading("look up child")
        found = self._owner.lookup(request.child_thread_id, request.child_principal, request.child_idempotency_key)
        if isinstance(found, NotAdmitted):
            return found
        if isinstance(found, Admitted) and found.facts is not None:
            wanted = child_submit(snapshot, request).facts
            return found.receipt if wanted is not None and found.facts.parent == wanted.parent else None
        return None
