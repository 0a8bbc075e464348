"""Children in the same database as their parents: every Thread Object's rows are there, whoever serves them."""

from thread_objects.admission import AdmissionLookup
from thread_objects.contract.messages import Receipt, Submit
from thread_objects.contract.records import Batch
from thread_objects.errors import SettlementConflict
from thread_objects.ports import Store


class SharedChildren:
    """`ChildOwner` on the shared store. A child's Thread is its own Thread Object."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def lookup(self, thread_id: str, principal: str, key: str) -> AdmissionLookup:
        """What became of a key."""
        return self._store.resolve_admission(thread_id, principal, key)

    def admit(self, submit: Submit, *, deployment_id: str, now: int) -> Receipt:
        """Admit by key."""
        return self._store.admit(submit, submit.thread_id, deployment_id=deployment_id, now=now)

    def establish(self, submission_id: str, lineage: Batch, *, now: int) -> None:
        """Lineage, then ready."""
        self._store.record_lineage(submission_id, lineage, now=now)

    def abort(self, submission_id: str, *, author: str, reason: str, deployment_id: str, now: int) -> bool:
        """Store the abort; a settled child is beyond it."""
        try:
            self._store.request_abort(submission_id, author=author, reason=reason, deployment_id=deployment_id, now=now)
        except SettlementConflict:
            return False
        child = self._store.snapshot(submission_id)
        if child is not None:
            self.wake(child.thread_id, now=now)
        return True

    def wake(self, thread_id: str, *, now: int) -> None:
        """A mark at the child's object: the next sweep starts or wakes its workflow."""
        self._store.hint_object_of(thread_id, now=now)
