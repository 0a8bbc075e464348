"""A retry executes exactly the classifier's decision, leaves its audit, and is refused where there is nothing to do."""

from typing import Any

import pytest

from activities.retrying import retry_submission
from tests.contract.recovery.family import STEPS, Family
from tests.contract.recovery.lab import THREAD, Lab, declared
from thread_objects.contract import ids
from thread_objects.contract.operations import InspectRequest, Operation
from thread_objects.contract.states import Disposition, ResolutionKind, SubmissionState, ToolClass
from thread_objects.core.faults import RecoveryFailure
from thread_objects.core.recovery import CompletedWithResult, SafeToRetry
from thread_objects.errors import NotFound, RecoveryBlocked, RetryRefused


def retry(
    lab: Lab, sid: str, *, attempt: str = "retry-1", thread: str = THREAD, **more: Any
) -> tuple[str, Disposition]:
    """Retry as an operator."""
    return retry_submission(
        lab.store,
        thread,
        sid,
        author="ops",
        reason="looked at it",
        producer_id="producer",
        attempt_id=attempt,
        clock=lab.clock,
        **more,
    )


def audits(lab: Lab, sid: str) -> list[dict[str, Any]]:
    """The audits in the log."""
    return lab.payloads(sid, "RepairAnnotated")


def predicted(lab: Lab, sid: str) -> tuple[str, Disposition]:
    """What explain shows for the row now."""
    request = InspectRequest(operation=Operation.EXPLAIN, submission_id=sid)
    found = lab.store.inspect(request, now=lab.clock.now()).explanation
    assert found is not None
    return found.decision, found.disposition


def test_a_lost_readiness_is_repaired_and_audited(lab: Lab):
    """ADM-010: RepairReadiness by ops is executed, repaired, and audited with who asked and why, once."""
    sid = lab.submit()
    lab.tear("UPDATE submissions SET state = 'admitted', ready_at = NULL")
    told = predicted(lab, sid)
    assert retry(lab, sid) == told == ("RepairReadiness", Disposition.REPAIRED)
    assert lab.state(sid) is SubmissionState.READY
    (audit,) = audits(lab, sid)
    assert audit["reason"] == "recovery:RepairReadiness"
    assert (audit["details"]["author"], audit["details"]["reason"]) == ("ops", "looked at it")
    lab.tear("UPDATE submissions SET state = 'admitted', ready_at = NULL")
    assert retry(lab, sid) == told
    assert len(audits(lab, sid)) == 1


def test_a_lost_marker_is_repaired_under_a_claim(lab: Lab):
    """ADM-002: RepairInputMarker executes as predicted, and the retry's audit is there though recovery leaves none."""
    sid = lab.submit()
    claim = lab.claim()
    lab.store.release(claim, now=lab.clock.now())
    lab.tear("UPDATE submissions SET state = 'ready', input_applied = NULL")
    told = predicted(lab, sid)
    assert retry(lab, sid) == told == ("RepairInputMarker", Disposition.REPAIRED)
    assert lab.state(sid) is SubmissionState.INPUT_APPLIED
    assert [audit["details"]["author"] for audit in audits(lab, sid)] == ["ops"]


def test_a_lost_call_is_marked_and_audited_by_its_own_claim(lab: Lab):
    """MarkUnknown takes a claim; its audit carries the operator's name, whatever its disposition becomes."""
    sid = lab.lost(declared("c1"))
    assert retry(lab, sid) == ("MarkUnknown", Disposition.UNKNOWN)
    assert lab.state(sid) is SubmissionState.UNKNOWN
    assert [audit["details"]["author"] for audit in audits(lab, sid)] == ["ops"]
    with pytest.raises(RetryRefused):
        retry(lab, sid)


def test_a_reconciler_is_asked_and_its_proof_is_not_kept(lab: Lab):
    """A result closes the call; a proof that it may run leaves it to the next Attempt, which asks for its own."""
    sid = lab.lost(declared("c1"), declared("c2"))

    def reconcile(call: Any) -> Any:
        return CompletedWithResult(result=5) if call.tool_call_id == "c1" else SafeToRetry()

    assert retry(lab, sid, reconcilers=lambda *_: reconcile) == ("MarkUnknown", Disposition.DEFERRED)
    assert lab.kinds(sid).count("ToolCallResolved") == 1
    assert [call.call_id for call in lab.evidence(sid).open_tool_calls] == ["c2"]
    assert lab.snapshot(sid).ownership is None


@pytest.mark.parametrize("resolved", [False, True])
def test_settled_and_parked_work_is_refused_unchanged(lab: Lab, resolved: bool):
    """ADM-007, ADM-008: NoAction and AwaitUnknownResolution execute nothing and say what they wait for."""
    sid = lab.lost(declared("c1"))
    lab.recover()
    lab.pass_lease()
    if resolved:
        lab.resolve(sid, "c1", ResolutionKind.COMPLETED_WITH_RESULT, result=1)
        lab.settle(lab.claim("attempt-2"))
    before = lab.log_length()
    with pytest.raises(RetryRefused) as refused:
        retry(lab, sid)
    expected = ("settled", "NoAction") if resolved else ("await-unknown-resolution", "AwaitUnknownResolution")
    assert (refused.value.refused_because, refused.value.decision_tag) == expected
    assert lab.log_length() == before


@pytest.mark.parametrize("suspended", [True, False])
def test_an_approval_is_somebodys_to_give(lab: Lab, suspended: bool):
    """AwaitApprovalDecision is refused, also where only the suspension was lost: recovery restores that by itself."""
    sid = lab.submit()
    claim = lab.ask(lab.respond(lab.claim(), declared("c1", approval=True)), "c1")
    if suspended:
        lab.suspend(claim, "c1")
    lab.pass_lease()
    state, before = lab.state(sid), lab.log_length()
    with pytest.raises(RetryRefused) as refused:
        retry(lab, sid)
    assert refused.value.refused_because == "await-approval-decision"
    assert (lab.state(sid), lab.log_length()) == (state, before)


def test_beside_a_living_owner_a_retry_changes_nothing(lab: Lab):
    """The claim decides: with a live lease the decision is deferred, without one it is executed."""
    sid = lab.submit()
    lab.respond(lab.claim(), declared("c1"))
    before = lab.log_length()
    assert retry(lab, sid) == ("MarkUnknown", Disposition.DEFERRED)
    assert lab.log_length() == before
    assert retry(lab, sid, ended_attempts=["attempt-1"]) == ("MarkUnknown", Disposition.UNKNOWN)


def test_what_a_worker_resumes_is_left_to_it(lab: Lab):
    """ResumePendingToolBatch executes nothing here and leaves no audit."""
    sid = lab.lost(declared("c1", ToolClass.READONLY))
    before = lab.log_length()
    assert retry(lab, sid) == ("ResumePendingToolBatch", Disposition.DEFERRED)
    assert lab.log_length() == before


def test_an_abort_is_settled_and_audited_after_its_settlement(lab: Lab):
    """SettleAborted by ops: the settlement is the Run's last fact, the audit follows, and the log stays whole."""
    sid = lab.lost(declared("c1", ToolClass.READONLY))
    lab.abort(sid)
    assert retry(lab, sid) == ("SettleAborted", Disposition.REPAIRED)
    assert lab.state(sid) is SubmissionState.SETTLED
    assert [audit["details"]["author"] for audit in audits(lab, sid)] == ["ops"]
    found = lab.store.inspect(InspectRequest(operation=Operation.VERIFY, thread_id=THREAD), now=lab.clock.now())
    assert found.verification is not None
    assert found.verification.ok


def test_a_blocked_thread_is_not_claimed_whoever_asks(lab: Lab):
    """While a fault is retained, and where the log cannot be read, the retry is refused in class names only."""
    sid = lab.lost(declared("c1"))
    lab.store.record_fault(
        THREAD,
        RecoveryFailure(phase="history", reason="failure", error_tag="CorruptRecord", operation="read history"),
        now=lab.clock.now(),
    )
    with pytest.raises(RecoveryBlocked, match="CorruptRecord in read history"):
        retry(lab, sid)
    lab.store.clear_fault(THREAD, now=lab.clock.now())
    lab.tear("UPDATE records SET body = '{\"secret\":1}' WHERE record_id = ?", ids.input_record(sid))
    with pytest.raises(RecoveryBlocked) as blocked:
        retry(lab, sid)
    assert "CorruptRecord in read history" in blocked.value.failure
    assert "secret" not in str(blocked.value)
    owner = lab.snapshot(sid).ownership
    assert owner is not None
    assert (owner.attempt_id, owner.epoch) == ("attempt-1", 1)  # nobody has claimed since
    assert lab.store.fault(THREAD) is None


@pytest.mark.parametrize("last", [step for step in STEPS if step not in {"suspend", "child"}])
def test_what_explain_predicts_is_what_a_retry_executes(lab: Lab, last: str):
    """At each crash point of a delegation, also where only the child's own row tells: decision and disposition agree."""
    family = Family(lab).upto(last)
    lab.pass_lease()
    told = predicted(lab, family.sid)
    assert retry(lab, family.sid) == told


def test_another_threads_submission_is_not_found(lab: Lab):
    """An id alone does not reach across Threads."""
    sid = lab.submit()
    for thread, submission in (("thread-2", sid), (THREAD, "sub-nobody")):
        with pytest.raises(NotFound):
            retry(lab, submission, thread=thread)
