"""Executes, for an operator, the one decision that recovery would come to for a Submission. Never another one.

Refused where the decision is to wait for somebody or to do nothing. A repair leaves its audit, with who asked and why;
everything may be repeated and may run beside a living owner, whose claim then wins.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from thread_objects import failpoints
from thread_objects.clock import Clock
from thread_objects.contract.states import Disposition
from thread_objects.core.recovery import Decision, Evidence, Snapshot, classify, repair_batch, tag
from thread_objects.core.recovery.decisions import AwaitApprovalDecision, AwaitUnknownResolution, NoAction
from thread_objects.errors import NotFound, RecoveryBlocked, RetryRefused, StoreUnavailable
from thread_objects.ports import Store

from .failure import recovery_failure
from .repairs import Repairs
from .short_claims import ShortClaims
from .unknown_repair import Reconcilers, RetrySupported, always_supported, no_reconcilers
from .watch import Watch

_REFUSED: dict[type[Decision], str] = {
    NoAction: "settled",
    AwaitUnknownResolution: "await-unknown-resolution",
    AwaitApprovalDecision: "await-approval-decision",
}


def retry_submission(
    store: Store,
    thread_id: str,
    submission_id: str,
    *,
    author: str,
    reason: str,
    producer_id: str,
    attempt_id: str,
    clock: Clock,
    ended_attempts: Sequence[str] = (),
    reconcilers: Reconcilers = no_reconcilers,
    retry_supported: RetrySupported = always_supported,
    deployment_id: str = "",
) -> tuple[str, Disposition]:
    """The tag of the decision, and what executing it left behind.

    Raises `NotFound`, `RetryRefused`, and `RecoveryBlocked` while the Thread has a fault or where this failed itself.
    A reconciler's proof that a call may run is not kept: the next Attempt asks for its own.
    """
    watch = Watch(clock)
    asked = {"author": author, "reason": reason}
    claims = ShortClaims(
        store,
        watch,
        producer_id=producer_id,
        attempt_id=attempt_id,
        ended_attempts=ended_attempts,
        deployment_id=deployment_id,
        asked=asked,
    )
    repairs = Repairs(claims, reconcilers=reconcilers, retry_supported=retry_supported, permits=set())
    try:
        snapshot, evidence, decision = _decided(claims, thread_id, submission_id)
        disposition = repairs.execute(snapshot, evidence, decision)
    except (NotFound, RetryRefused, RecoveryBlocked, StoreUnavailable):
        raise
    except Exception as error:  # told in class names: a fault's message may hold what somebody said
        failure = recovery_failure(error, watch)
        raise RecoveryBlocked(thread_id=thread_id, failure=f"{failure.error_tag} in {failure.operation}") from error
    if disposition is Disposition.REPAIRED:
        _audit(store, snapshot, decision, watch.now(), asked=asked, deployment_id=deployment_id)
    return tag(decision), disposition


def _decided(claims: ShortClaims, thread_id: str, submission_id: str) -> tuple[Snapshot, Evidence, Decision]:
    """The decision, unless it is to wait or to do nothing."""
    store = claims.store
    claims.watch.reading("read snapshot")
    snapshot = store.snapshot(submission_id)
    if snapshot is None or snapshot.thread_id != thread_id:
        raise NotFound(what="submission", id=submission_id)
    fault = store.fault(thread_id)
    if fault is not None:
        # A Thread whose recovery failed is not claimed before recovery has tried it again, whoever asks.
        raise RecoveryBlocked(thread_id=thread_id, failure=f"{fault.error_tag} in {fault.operation}")
    evidence = claims.evidence(snapshot)
    decision = classify(snapshot, evidence)
    refused_because = _REFUSED.get(type(decision))
    if refused_because is not None:
        raise RetryRefused(submission_id=submission_id, refused_because=refused_because, decision_tag=tag(decision))
    return snapshot, evidence, decision


def _audit(
    store: Store, snapshot: Snapshot, decision: Decision, now: int, *, asked: Mapping[str, str], deployment_id: str
) -> None:
    """Leave the audit where the execution left none. Its failure is ignored: what was done is done."""
    batch = repair_batch(snapshot, tag(decision), now, deployment_id=deployment_id, asked=asked)
    failpoints.hit("retry:before-audit")
    with suppress(Exception):
        store.annotate(snapshot.submission_id, batch)
    failpoints.hit("retry:after-audit")
