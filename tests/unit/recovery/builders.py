"""Short ways to write down a row, its evidence, and the log of one Run."""

from dataclasses import replace
from typing import Any

from thread_objects.contract import ids
from thread_objects.contract import records as r
from thread_objects.contract.messages import LogRecord
from thread_objects.contract.states import (
    CallKind,
    Decision,
    Outcome,
    Resolution,
    ResolutionKind,
    SubmissionState,
    ToolClass,
)
from thread_objects.core.recovery import (
    AbortFact,
    ApprovalIntent,
    Evidence,
    OpenCall,
    Snapshot,
    UnknownIntent,
)
from thread_objects.core.recovery.evidence import BatchApproval, DelegationCall, PendingApproval, PendingBatch

SID = "sub-1"
RUN = ids.run_id(SID)
THREAD = "thread-1"
ABORT = AbortFact("operator", "stop", 900)


def row(state: str | SubmissionState = "input-applied", **facts: Any) -> Snapshot:
    """A row in a state, with an input marker where the state has one."""
    state = SubmissionState(state)
    unmarked = {SubmissionState.ADMITTED, SubmissionState.READY, SubmissionState.JOINING}
    base = Snapshot(
        submission_id=SID,
        receipt_id="rcp-1",
        thread_id=THREAD,
        queue_sequence=1,
        agent_id="agent",
        state=state,
        input_applied=None if state in unmarked else 2,
    )
    return replace(base, **facts)


def log(**facts: Any) -> Evidence:
    """Evidence of a Run whose input is recorded and that owes nothing else."""
    return replace(Evidence(thread_materialized=True, input_recorded=True), **facts)


def open_call(call_id: str, turn: int = 1, **facts: Any) -> OpenCall:
    """An uncertain call without a result."""
    return OpenCall(call_id, f"tool_{call_id}", turn, **facts)


def fact(call_id: str, result: Any = "done", *, is_failure: bool = False, at: int = 500) -> UnknownIntent:
    """A stored result."""
    return UnknownIntent(call_id, ResolutionKind.COMPLETED_WITH_RESULT, result, is_failure, "ann", "seen", at)


def intent(call_id: str, kind: ResolutionKind, at: int = 500) -> UnknownIntent:
    """A stored resolution without a result."""
    return UnknownIntent(call_id, kind, None, False, "ann", "checked", at)


def decided(call_id: str, decision: str, turn: int = 0) -> ApprovalIntent:
    """A stored approval decision."""
    return ApprovalIntent(call_id, Decision(decision), "bob", "because", 600, turn)


def pending(call_id: str, turn: int = 1, earlier: int = 0) -> PendingApproval:
    """A request without a canonical decision."""
    return PendingApproval(call_id, turn, earlier)


def batch(turn: int = 1, count: int = 1, **approvals: str | None) -> PendingBatch:
    """A pending batch with its requested calls and their canonical decisions."""
    listed = tuple(BatchApproval(c, None if a is None else Decision(a)) for c, a in approvals.items())
    return PendingBatch(turn, count, listed)


def delegation(call_id: str = "d1", turn: int = 1, **facts: Any) -> DelegationCall:
    """An open delegation call."""
    return DelegationCall(call_id, "ask_expert", turn, **facts)


class RunLog:
    """Writes the records of one Submission in order."""

    def __init__(self, sid: str = SID) -> None:
        self.sid = sid
        self.run = ids.run_id(sid)
        self.records: list[LogRecord] = []

    def add(self, payload: r.AnyPayload, batch_id: str | None = None) -> "RunLog":
        """The next record."""
        n = len(self.records) + 1
        self.records.append(
            LogRecord(
                thread_id=THREAD,
                sequence=n,
                record_id=f"record-{self.sid}-{n}",
                batch_id=batch_id or f"batch-{self.sid}-{n}",
                kind=payload.kind,
                created_at=1_000 + n,
                payload=payload.model_dump(mode="json", by_alias=True),
                offset=str(n),
            )
        )
        return self

    def input(self) -> "RunLog":
        """The canonical input and the Run's start."""
        self.add(r.UserInputRecorded(submission_id=self.sid, run_id=self.run, input="hi"))
        return self.add(r.RunStarted(run_id=self.run, started_at=1, deadline_at=2))

    def response(self, turn: int, *calls: r.DeclaredCall) -> "RunLog":
        """A model response."""
        return self.add(
            r.ModelResponseRecorded(
                run_id=self.run,
                turn_id=ids.turn_id(self.run, turn),
                turn=turn,
                messages=[],
                messages_digest="",
                calls=calls,
            )
        )

    def settled(self, call_id: str, turn: int = 0) -> "RunLog":
        """A call's result."""
        return self.add(r.ToolCallSettled(run_id=self.run, turn=turn, tool_call_id=call_id, tool_name="t", result=1))

    def unknown(self, call_id: str, turn: int, batch_id: str | None = None) -> "RunLog":
        """The statement that a call may have happened."""
        return self.add(
            r.ToolCallUnknown(run_id=self.run, turn=turn, tool_call_id=call_id, tool_name="t", reason="lost"), batch_id
        )

    def resolved(self, call_id: str, resolution: str, turn: int = 0, at: int = 0) -> "RunLog":
        """A canonical resolution."""
        return self.add(
            r.ToolCallResolved(
                run_id=self.run,
                turn=turn,
                tool_call_id=call_id,
                resolution=Resolution(resolution),
                author="ann",
                reason="",
                resolved_at=at,
            )
        )

    def requested(self, call_id: str, turn: int = 1, *, blocks: bool = True) -> "RunLog":
        """An approval request."""
        return self.add(
            r.ToolApprovalRequested(
                run_id=self.run,
                turn_id=ids.turn_id(self.run, turn),
                turn=turn,
                tool_call_id=call_id,
                tool_name="t",
                arguments_digest="",
                blocks_initial_dispatch=blocks,
            )
        )

    def decided(self, call_id: str, decision: str, turn: int = 1) -> "RunLog":
        """A canonical decision."""
        return self.add(
            r.ToolApprovalDecided(
                run_id=self.run,
                turn=turn,
                tool_call_id=call_id,
                decision=Decision(decision),
                resolver="bob",
                reason="",
            )
        )

    def settlement(self, outcome: str = "completed") -> "RunLog":
        """The Submission's settlement."""
        said = {"failed": {"diagnostic": {"error_tag": "E", "message": "m"}}}.get(outcome, {})
        return self.add(
            r.SubmissionSettled(
                submission_id=self.sid,
                settlement_id=ids.settlement_id(self.sid),
                receipt_id="rcp-1",
                outcome=Outcome(outcome),
                **said,
            )
        )


def call(
    call_id: str,
    tool_class: str = "uncertain",
    kind: str = "ordinary",
    *,
    approval: bool = False,
    rejected: bool = False,
) -> r.DeclaredCall:
    """A declared call."""
    return r.DeclaredCall(
        tool_call_id=call_id,
        tool_name=f"tool_{call_id}",
        arguments={"n": 1},
        arguments_digest="",
        tool_class=ToolClass(tool_class),
        call_kind=CallKind(kind),
        approval=approval,
        rejected=rejected,
    )
