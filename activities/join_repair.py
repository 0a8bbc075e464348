"""Repairs joined input: what a host took and did not say, and what it left behind when it settled.

Rules guarded: only the host's own claim, or its canonical settlement, decides about input that it took; consumed input
is marked, never given back; input that the host never answered is delivered again, exactly once.
"""

from thread_objects import failpoints
from thread_objects.contract.states import Disposition
from thread_objects.core.recovery import Decision, Evidence, Snapshot
from thread_objects.core.recovery.decisions import RepairJoinMarker, RevertJoining

from .short_claims import ShortClaims


def _about_joining(decision: Decision) -> bool:
    # Either may have become the other while the claim was taken: the second read decides.
    return isinstance(decision, RepairJoinMarker | RevertJoining)


class JoinRepair:
    """Executes RepairJoinMarker, RevertJoining and SettleJoinedWithHost."""

    def __init__(self, claims: ShortClaims) -> None:
        self._claims = claims
        self._store = claims.store
        self._watch = claims.watch

    def repair(self, snapshot: Snapshot, evidence: Evidence, decision: Decision) -> Disposition:
        """Mark a joining input joined, or give it back."""
        host, sid = snapshot.host_submission_id, snapshot.submission_id
        if host is None:
            return Disposition.DEFERRED
        if evidence.host_settlement_outcome is not None:
            if evidence.input_recorded and evidence.joined_input_covered:
                return Disposition.DEFERRED
            now = self._watch.repairing("revert joining")
            return self._repaired(self._store.revert_joining(sid, host, now=now))
        with self._claims.claimed(snapshot, decision, owner=host, confirm=_about_joining) as held:
            if held is None or held.snapshot.host_submission_id != host:
                return Disposition.DEFERRED
            self._claims.audit(held, decision)
            failpoints.hit("join:before-marker")
            if held.evidence.input_recorded:
                self._store.mark_joined(held.claim, sid, now=self._watch.repairing("mark joined"))
                done = True
            else:
                now = self._watch.repairing("revert joining")
                done = self._store.revert_joining(sid, host, token=held.claim.token, now=now)
            failpoints.hit("join:after-marker")
            return self._repaired(done)
        return Disposition.DEFERRED

    def settle(self, snapshot: Snapshot) -> Disposition:
        """Settle a joined input as its host settled; what the host never answered is ready again."""
        host = snapshot.host_submission_id
        if host is None:
            return Disposition.DEFERRED
        now = self._watch.repairing("settle joined")
        failpoints.hit("join:before-settle")
        self._store.settle_joined(snapshot.submission_id, host, deployment_id=self._claims.deployment_id, now=now)
        failpoints.hit("join:after-settle")
        return Disposition.REPAIRED

    @staticmethod
    def _repaired(done: bool) -> Disposition:
        return Disposition.REPAIRED if done else Disposition.DEFERRED
