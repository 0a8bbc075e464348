"""Settles aborted work whose owner is gone.

Nothing is rolled back and nothing is invented: open calls keep an audit that they may have happened, decisions and
facts that were already given become canonical, and then the Submission settles.
"""

from thread_objects import failpoints
from thread_objects.contract.records import Batch
from thread_objects.contract.states import Disposition, SubmissionState
from thread_objects.core.recovery import (
    Evidence,
    Snapshot,
    abort_batch,
    aborted_settlement,
    approval_batches,
    classify,
    closing_batches,
)
from thread_objects.core.recovery.classify import WAITING_FOR_CHILD
from thread_objects.core.recovery.decisions import SettleAborted

from .short_claims import Held, ShortClaims, read_snapshot

RESOLVER = "recovery"
DENIED = "the submission was aborted before this call was decided"
OPEN = "open when the submission was aborted"


class AbortRepair:
    """Executes SettleAborted."""

    def __init__(self, claims: ShortClaims) -> None:
        self._claims = claims
        self._store = claims.store
        self._watch = claims.watch

    def settle(self, snapshot: Snapshot, evidence: Evidence) -> Disposition:
        """Settle aborted, or leave the row to whoever owns the Thread."""
        decision = SettleAborted()
        if snapshot.state is SubmissionState.SUSPENDED:
            woken = self._closed_suspension(snapshot)
            if woken is None:
                return Disposition.DEFERRED
            snapshot, evidence = woken
        untouched = (
            snapshot.state is SubmissionState.READY and not evidence.abort_recorded and not evidence.open_tool_calls
        )
        if untouched and not evidence.input_recorded and self._settled_unclaimed(snapshot):
            return Disposition.REPAIRED
        with self._claims.claimed(snapshot, decision) as held:
            if held is not None:
                self._settle_held(held)
                return Disposition.REPAIRED
        if untouched and self._settled_unclaimed(snapshot):
            return Disposition.REPAIRED
        return Disposition.DEFERRED

    def _settled_unclaimed(self, snapshot: Snapshot) -> bool:
        """Work that nobody owns and that left nothing open settles at any place in the queue."""
        now = self._watch.repairing("publish queued abort")
        return self._store.publish_queued_abort(snapshot.submission_id, now=now) is not None

    def _closed_suspension(self, snapshot: Snapshot) -> tuple[Snapshot, Evidence] | None:
        """Deny what is undecided, so that no Run can resume; the row as it is then, if it still settles aborted."""
        if snapshot.suspension is not None and snapshot.suspension.reason == WAITING_FOR_CHILD:
            return None
        sid = snapshot.submission_id
        now = self._watch.repairing("close suspension")
        self._store.deny_pending_approvals(sid, resolver=RESOLVER, reason=DENIED, now=now)
        failpoints.hit("recovery:close-suspension:after")
        found = read_snapshot(self._store, sid, self._watch)
        if found is None or found.state is SubmissionState.SUSPENDED:
            return None
        evidence = self._claims.evidence(found)
        return (found, evidence) if classify(found, evidence) == SettleAborted() else None

    def _settle_held(self, held: Held) -> None:
        snapshot = held.snapshot
        if snapshot.state is SubmissionState.ADMITTED:
            now = self._watch.repairing("materialize")
            self._store.materialize_and_ready(snapshot.submission_id, deployment_id=self._claims.deployment_id, now=now)
        self._claims.audit(held, SettleAborted())
        now = self._watch.repairing("settle aborted")
        failpoints.hit("recovery:settle-aborted:before")
        self._store.finish(
            held.claim,
            self._last_words(snapshot, held.evidence, now),
            aborted_settlement(snapshot, held.evidence),
            joins=bool(snapshot.joins),
            now=now,
        )
        held.ended = True
        failpoints.hit("recovery:settle-aborted:after")

    def _last_words(self, snapshot: Snapshot, evidence: Evidence, now: int) -> list[Batch]:
        deployment_id = self._claims.deployment_id
        batches: list[Batch] = []
        if snapshot.abort_intent is not None and not evidence.abort_recorded:
            batches.append(abort_batch(snapshot, snapshot.abort_intent, now, deployment_id=deployment_id))
        batches += approval_batches(snapshot, evidence, now, deployment_id=deployment_id)
        batches += closing_batches(snapshot, evidence, OPEN, now, deployment_id=deployment_id)
        return batches
