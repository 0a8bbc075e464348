"""Claims that recovery takes for one decision and gives back.

The claim is the only authority on liveness. Under it the row is read and classified once more: a decision that no
longer holds is dropped, since whoever was at work in between has changed what is to be done.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from thread_objects import failpoints
from thread_objects.child_owner import ChildOwner
from thread_objects.contract import limits
from thread_objects.contract.records import Batch
from thread_objects.core.evidence import UndecodableRecord, evidence_of
from thread_objects.core.recovery import Decision, Evidence, Snapshot, classify, repair_batch, tag
from thread_objects.errors import CorruptRecord, OwnershipLost, ThreadError
from thread_objects.ports import Claim, ClaimRequest, Store

from .child_admissions import ChildAdmissions
from .shared_children import SharedChildren
from .watch import Watch


def read_snapshot(store: Store, submission_id: str, watch: Watch) -> Snapshot | None:
    """One row's snapshot."""
    watch.reading("read snapshot")
    return store.snapshot(submission_id)


@dataclass(slots=True)
class Held:
    """A claim while a decision is executed under it, with the row as read under it.

    `ended` is set by whatever gives the claim back in its own transaction (settling, suspending, marking).
    """

    claim: Claim
    snapshot: Snapshot
    evidence: Evidence
    renewed_at: int
    ended: bool = False


class ShortClaims:
    """Takes and returns the claims of one recovery of one Thread."""

    def __init__(
        self,
        store: Store,
        watch: Watch,
        *,
        producer_id: str,
        attempt_id: str,
        ended_attempts: Sequence[str],
        deployment_id: str,
        asked: Mapping[str, str] | None = None,
        children: ChildOwner | None = None,
    ) -> None:
        self.store = store
        self.watch = watch
        self.deployment_id = deployment_id
        self.children = ChildAdmissions(children or SharedChildren(store), watch, deployment_id=deployment_id)
        self.asked = asked
        """Who had the decision executed, and why; told in its audit. None: recovery did so by itself."""
        self._producer_id = producer_id
        self._attempt_id = attempt_id
        self._ended_attempts = tuple(ended_attempts)

    def evidence(self, snapshot: Snapshot) -> Evidence:
        """The evidence behind a snapshot. Raises `CorruptRecord` for a record that cannot be decoded."""
        self.watch.reading("read history")
        records = self.store.run_records(snapshot.submission_id)
        host = snapshot.host_submission_id
        host_records = [] if host is None else self.store.run_records(host)
        try:
            found = evidence_of(snapshot, records, host_records)
        except UndecodableRecord as error:
            raise CorruptRecord(thread_id=error.thread_id, sequence=error.sequence, decoder=error.kind) from error
        return self.children.looked_up(snapshot, found)

    @contextmanager
    def claimed(
        self,
        snapshot: Snapshot,
        decision: Decision,
        *,
        owner: str | None = None,
        confirm: Callable[[Decision], bool] | None = None,
    ) -> Iterator[Held | None]:
        """The claim, or None: somebody else owns the Thread, is ahead in its lane, or changed the row.

        `owner` is the Submission to claim, by default the row's own. Under the claim the decision must be the same
        again, or one that `confirm` takes as well.
        """
        wanted = confirm or (lambda found: found == decision)
        request = ClaimRequest(
            thread_id=snapshot.thread_id,
            producer_id=self._producer_id,
            attempt_id=self._attempt_id,
            ended_attempts=self._ended_attempts,
        )
        now = self.watch.repairing("claim")
        claim = self.store.claim_submission(request, owner or snapshot.submission_id, now=now)
        if claim is None:
            yield None
            return
        failpoints.hit("recovery:claim:after")
        held: Held | None = None
        try:
            held = self._confirmed(claim, snapshot, wanted, now)
            yield held
        except BaseException:
            if held is None or not held.ended:
                # The error that is on its way says more than a failure to give the claim back.
                with suppress(ThreadError):
                    self.store.release(claim, now=self.watch.now())
            raise
        if held is None or not held.ended:
            # Losing the claim here takes nothing back: everything done under it is committed.
            with suppress(OwnershipLost):
                self.store.release(claim if held is None else held.claim, now=self.watch.now())

    def _confirmed(self, claim: Claim, snapshot: Snapshot, wanted: Callable[[Decision], bool], now: int) -> Held | None:
        found = read_snapshot(self.store, snapshot.submission_id, self.watch)
        if found is None:
            return None
        evidence = self.evidence(found)
        return Held(claim, found, evidence, now) if wanted(classify(found, evidence)) else None

    def append(self, held: Held, batch: Batch, operation: str) -> None:
        """Append under the claim."""
        now = self.watch.repairing(operation)
        held.claim = held.claim.at(self.store.append(held.claim, batch, now=now))

    def renew(self, held: Held) -> None:
        """Keep the claim while somebody else's code takes its time."""
        now = self.watch.repairing("renew ownership")
        if now - held.renewed_at >= limits.LEASE_RENEWAL_MS:
            held.claim = self.store.renew(held.claim, now=now)
            held.renewed_at = now

    def audit(self, held: Held, decision: Decision) -> None:
        """Leave the audit of a decision that is executed under a claim. Its failure is ignored.

        The id is the decision's: one audit each, so repeating the repair later collides on purpose.
        """
        if held.claim.tail.sequence == 0:
            return
        now = self.watch.repairing("audit repair")
        batch = repair_batch(held.snapshot, tag(decision), now, deployment_id=self.deployment_id, asked=self.asked)
        with suppress(Exception):
            held.claim = held.claim.at(self.store.append(held.claim, batch, now=now))
