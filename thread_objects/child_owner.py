"""The owner of children's Threads, as recovery asks it: a child may live in another Thread Object than its parent.

Rules guarded: a key is admitted once, whoever asks; only proof of absence permits an admission; a hint may be lost.
"""

from typing import Protocol

from thread_objects.admission import AdmissionLookup
from thread_objects.contract.messages import Receipt, Submit
from thread_objects.contract.records import Batch


class ChildOwner(Protocol):
    """Every call may be repeated."""

    def lookup(self, thread_id: str, principal: str, key: str) -> AdmissionLookup:
        """What became of a key: admitted, proven absent, or nobody can say now."""

    def admit(self, submit: Submit, *, deployment_id: str, now: int) -> Receipt:
        """Admit by key and materialise the child's Thread. Refusals are typed errors."""

    def establish(self, submission_id: str, lineage: Batch, *, now: int) -> None:
        """Make the child's lineage canonical in its own log, then mark it ready."""

    def abort(self, submission_id: str, *, author: str, reason: str, deployment_id: str, now: int) -> bool:
        """Store one durable abort. False when the child is settled: then it is joined, not aborted."""

    def wake(self, thread_id: str, *, now: int) -> None:
        """A hint to whoever serves this Thread: something changed there that its owner did not do."""
