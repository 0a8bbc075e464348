"""Messages as the contract defines them, with values that tests can recognise."""

from typing import Any

from thread_objects.contract.lanes import Installed, LaneInfo
from thread_objects.contract.messages import (
    AbortAnswer,
    ApprovalAnswer,
    Diagnostic,
    LogRecord,
    Pending,
    PendingReceipt,
    Receipt,
    Settlement,
    SubmissionStatus,
    UnknownAnswer,
    UsageSummary,
)
from thread_objects.contract.operations import (
    AbortView,
    ApprovalView,
    BehindView,
    BlockedOn,
    EvidenceView,
    Explanation,
    Obligation,
    ObligationsPage,
    OwnerView,
    PendingBatchView,
    RetryAnswer,
    Severity,
    ThreadExplanation,
    UnknownCallView,
    UnknownIntentView,
    Unreadable,
)
from thread_objects.contract.reports import (
    AlarmView,
    Check,
    GenerationView,
    LaneFailure,
    LaneView,
    MaintenancePassReport,
    ObjectReport,
    RefusedInput,
    Verification,
)
from thread_objects.contract.states import (
    AlarmOutcome,
    CheckOutcome,
    Decision,
    Disposition,
    Outcome,
    PassPhase,
    ResolutionKind,
    SubmissionState,
    ToolClass,
)
from thread_objects.contract.views import BindingWait, Fault, OpenCall, RowView, ThreadView

THREAD, SUBMISSION, RECEIPT, CALL = "orders", "sub-1", "rcp-1", "call_0"
AT = 1_750_000_000_123
AT_TEXT = "2025-06-15T15:06:40.123Z"


def pending_receipt() -> PendingReceipt:
    return PendingReceipt(
        thread_id=THREAD,
        principal="local",
        key="k1",
        submission_id=SUBMISSION,
        receipt_id=RECEIPT,
        run_id=f"run:{SUBMISSION}",
    )


def receipt(**changes: Any) -> Receipt:
    facts = pending_receipt().model_dump() | {"queue_sequence": 7, "input_digest": "d" * 64, "admitted_at": AT}
    return Receipt(**(facts | changes))


def settlement(outcome: Outcome = Outcome.COMPLETED, **changes: Any) -> Settlement:
    facts: dict[str, Any] = {
        "submission_id": SUBMISSION,
        "settlement_id": f"settlement:{SUBMISSION}",
        "receipt_id": RECEIPT,
        "thread_id": THREAD,
        "outcome": outcome,
        "run_id": f"run:{SUBMISSION}",
        "settled_at": AT,
        "usage": UsageSummary(turns=2, tool_calls=1, input_tokens=1_200, output_tokens=34),
    }
    if outcome is Outcome.COMPLETED:
        facts["result"] = "Order 1001 is on its way."
    if outcome is Outcome.FAILED:
        facts["diagnostic"] = Diagnostic(error_tag="ModelError", message="503 from the provider")
    return Settlement(**(facts | changes))


def pending(call: str = CALL, tool: str = "refund") -> Pending:
    return Pending(
        submission_id=SUBMISSION, tool_call_id=call, tool_name=tool, turn=1, since=AT, arguments={"order_id": 1001}
    )


def status(state: SubmissionState = SubmissionState.SUSPENDED, **changes: Any) -> SubmissionStatus:
    facts: dict[str, Any] = {
        "submission_id": SUBMISSION,
        "receipt_id": RECEIPT,
        "thread_id": THREAD,
        "principal": "local",
        "key": "k1",
        "agent_id": "support",
        "queue_sequence": 7,
        "state": state,
        "owned": False,
        "epoch": 3,
        "admitted_at": AT,
        "abort_requested": False,
        "approvals": (pending(),),
    }
    return SubmissionStatus(**(facts | changes))


def report(**changes: Any) -> ObjectReport:
    head = RowView(submission_id=SUBMISSION, queue_sequence=7, state=SubmissionState.SUSPENDED, agent_id="support")
    waits = OpenCall(submission_id=SUBMISSION, tool_call_id=CALL, tool_name="refund", waits_for="approval", since=AT)
    facts: dict[str, Any] = {
        "object_id": THREAD,
        "generation": GenerationView(dirty=9, processed=9, nonterminal=1),
        "alarm": alarm(),
        "lanes": (
            LaneView(
                id="digest",
                revision=1,
                due_at=AT,
                stalls=8,
                progress_key=None,
                not_before=AT,
                state="parked",
                reported=True,
            ),
        ),
        "installed": Installed(publication=True, lanes=(LaneInfo(id="digest", allowance_ms=1_000),)),
        "lane_failures": (LaneFailure(lane="digest", failure="digest: timeout", at=AT),),
        "threads": (ThreadView(thread_id=THREAD, nonterminal=2, head=head, unknown=1, open_calls=(waits,)),),
        "attempts": (),
        "inbox": 0,
        "inbox_bytes": 0,
        "saturated": False,
        "refusals": (RefusedInput(name="submit", bytes=1_900_000, digest="e" * 64, code="InvalidInput", at=AT),),
        "refused_total": 1,
        "passes": (
            MaintenancePassReport(
                phase=PassPhase.CAUGHT_UP, settled=2, alarm=AlarmOutcome.CLEARED, started_at=AT, ended_at=AT + 20
            ),
        ),
        "faults": (
            Fault(
                thread_id=THREAD,
                phase="load",
                reason="corrupt",
                error_tag="CorruptRecord",
                operation="recovery_page",
                first_failed_at=AT,
                last_failed_at=AT,
                retry_at=AT + 5_000,
                attempts=1,
            ),
        ),
        "binding_waits": (BindingWait(thread_id=THREAD, submission_id=SUBMISSION, reported_at=AT, agent_id="absent"),),
    }
    return ObjectReport(**(facts | changes))


def alarm() -> AlarmView:
    return AlarmView(maintenance=None)


def abort_answer() -> AbortAnswer:
    return AbortAnswer(submission_id=SUBMISSION, author="ada", reason="", requested_at=AT)


def approval_answer() -> ApprovalAnswer:
    return ApprovalAnswer(
        submission_id=SUBMISSION,
        tool_call_id=CALL,
        decision=Decision.APPROVED,
        resolver="ada",
        reason="",
        decided_at=AT,
        state=SubmissionState.INPUT_APPLIED,
    )


def unknown_answer() -> UnknownAnswer:
    return UnknownAnswer(
        submission_id=SUBMISSION,
        tool_call_id=CALL,
        resolution=ResolutionKind.NEVER_HAPPENED,
        author="ada",
        reason="",
        resolved_at=AT,
        state=SubmissionState.INPUT_APPLIED,
    )


def record(sequence: int, kind: str, **payload: Any) -> LogRecord:
    return LogRecord(
        thread_id=THREAD,
        sequence=sequence,
        record_id=f"record-{sequence}",
        batch_id=f"batch-{sequence}",
        kind=kind,
        created_at=AT,
        payload=payload,
        offset=str(sequence),
    )


def records() -> list[LogRecord]:
    run, turn = f"run:{SUBMISSION}", {"runId": f"run:{SUBMISSION}", "turn": 1, "turnId": "t"}
    call = {"toolCallId": CALL, "toolName": "refund"}
    words = {"kind": "response", "parts": [{"part_kind": "text", "content": "One moment."}]}
    declared = {**call, "arguments": {"order_id": 1001}, "argumentsDigest": "a" * 64, "approval": True}
    return [
        record(1, "ThreadCreated", agentId="support"),
        record(2, "UserInputRecorded", submissionId=SUBMISSION, input="Refund order 1001", runId=run),
        record(3, "RunStarted", runId=run, startedAt=AT, deadlineAt=AT + 3_600_000),
        record(4, "ModelResponseRecorded", **turn, messages=[words], messagesDigest="b" * 64, calls=[declared]),
        record(5, "ToolApprovalRequested", **turn, **call, argumentsDigest="a" * 64),
        record(6, "ToolApprovalDecided", **turn, **call, decision="approved", resolver="ada", reason="fine"),
        record(7, "ToolCallSettled", **turn, **call, result={"refunded": True}),
        record(8, "ToolCallUnknown", **turn, **call, reason="the worker died"),
        record(9, "ToolCallResolved", **turn, **call, resolution="never-started", author="ada", reason=""),
        record(10, "ToolStepSettled", **turn, **call, stepName="pay", output=1, outputDigest="c" * 64),
        record(11, "ModelResponseInterrupted", runId=run, supersededEpoch=2, attemptId="a1", reason="owner died"),
        record(12, "AbortRequested", submissionId=SUBMISSION, author="ada", reason="no longer needed"),
        record(13, "RepairAnnotated", reason="recovery:repair"),
        record(14, "RunFailed", runId=run, failure={"errorTag": "ModelError", "message": "503"}),
        record(15, "RunCompleted", runId=run, output="Done."),
        record(
            16,
            "SubmissionSettled",
            submissionId=SUBMISSION,
            settlementId=f"settlement:{SUBMISSION}",
            receiptId=RECEIPT,
            outcome="completed",
            runId=run,
            result="Done.",
        ),
        record(17, "KindOfALaterVersion", weather="fine"),
    ]


def explanation(**changes: Any) -> Explanation:
    """An unknown outcome, with everything that an explanation may hold."""
    base = Explanation(
        submission_id=SUBMISSION,
        receipt_id=RECEIPT,
        thread_id=THREAD,
        object_id=THREAD,
        principal="local",
        agent_id="support",
        queue_sequence=7,
        state=SubmissionState.UNKNOWN,
        decision="AwaitUnknownResolution",
        meaning="an outcome is unknown; waiting for a resolution",
        disposition=Disposition.UNKNOWN,
        details={"call_id": CALL},
        admitted_age_seconds=3_600,
        state_age_seconds=90,
        claims=2,
        owner=OwnerView(attempt_id="att-1", epoch=3, lease_until=AT, lease_live=False),
        abort=AbortView(author="ada", reason="", requested_at=AT, age_seconds=5),
        behind=BehindView(count=2, head_submission_id="sub-head", head_state=SubmissionState.READY),
        unknown_calls=(
            UnknownCallView(
                tool_call_id=CALL,
                tool_name="refund",
                turn=1,
                tool_class=ToolClass.UNCERTAIN,
                marked=True,
                resolved=False,
                since=AT,
                age_seconds=90,
            ),
        ),
        unknown_intents=(
            UnknownIntentView(
                tool_call_id=CALL,
                resolution=ResolutionKind.NEVER_HAPPENED,
                author="ada",
                reason="",
                resolved_at=AT,
            ),
        ),
        approvals=(ApprovalView(tool_call_id="call-2", turn=1, decision=Decision.APPROVED),),
        evidence=EvidenceView(
            thread_materialized=True,
            input_recorded=True,
            open_calls=(CALL,),
            open_calls_total=1,
            pending_batch=PendingBatchView(turn=1, call_count=2),
        ),
        fault=Fault(
            thread_id=THREAD,
            phase="history",
            reason="failure",
            error_tag="CorruptRecord",
            operation="read history",
            first_failed_at=AT,
            last_failed_at=AT,
            retry_at=AT,
            attempts=1,
        ),
        binding_wait=BindingWait(thread_id=THREAD, submission_id=SUBMISSION, reported_at=AT, agent_id="support"),
    )
    return base.model_copy(update=changes)


def thread_explanation() -> ThreadExplanation:
    """A Thread with one Submission to explain and one that cannot be read."""
    return ThreadExplanation(
        thread_id=THREAD,
        object_id="host-1",
        materialized=True,
        epoch=3,
        tail_sequence=42,
        view=ThreadView(thread_id=THREAD, nonterminal=2),
        created_age_seconds=7_200,
        submissions=(explanation(),),
        unreadable=(Unreadable(submission_id="sub-bad", sequence=9, decoder="record"),),
        next_after=8,
        fault=explanation().fault,
    )


def verification(*, ok: bool = True) -> Verification:
    """All passed, or one failed with more findings than are told."""
    gap = Check(
        name="sequence-contiguity",
        outcome=CheckOutcome.FAILED,
        reason="sequence 2 is followed by 4",
        details=("sequence 2 is followed by 4",),
        findings=3,
    )
    checks = (
        Check(name="sequence-contiguity", outcome=CheckOutcome.PASSED) if ok else gap,
        Check(name="digest-chain", outcome=CheckOutcome.SKIPPED, reason="no digests"),
    )
    return Verification(thread_id=THREAD, ok=ok, records=42, submissions=2, checks=checks)


def retry_answer() -> RetryAnswer:
    """A repair that was executed."""
    return RetryAnswer(
        submission_id=SUBMISSION,
        decision="RepairReadiness",
        disposition=Disposition.REPAIRED,
        author="ada",
        reason="looked",
        executed_at=AT,
    )


def obligations() -> dict[str | None, ObligationsPage]:
    """Two pages, by their cursors; the first one is short."""

    def owed(thread: str, severity: Severity) -> Obligation:
        return Obligation(
            thread_id=thread,
            submission_id=f"sub-{thread}",
            principal="local",
            agent_id="support",
            queue_sequence=1,
            state=SubmissionState.READY,
            blocked_on=BlockedOn.READY_AGED,
            since=AT,
            age_seconds=61,
            severity=severity,
            abort_requested=True,
        )

    return {
        None: ObligationsPage(obligations=(owed("t1", Severity.AGING),), next_after="next"),
        "next": ObligationsPage(obligations=(owed("t2", Severity.OVERDUE), owed("t3", Severity.OK))),
    }
