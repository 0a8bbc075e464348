"""Canonical record kinds: immutable, versioned facts of a Thread's log, the only recovery truth.

Every record is checked when it is built and again when it is decoded (fail closed). Payload bodies that belong
to pydantic-ai (messages, parts) are stored inside as its own documented JSON, untouched.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, JsonValue, TypeAdapter, model_validator

from thread_objects.contract.messages import Diagnostic, Id, Name, ParentLink, Reason, UsageSummary
from thread_objects.contract.states import CallKind, Decision, Outcome, Resolution, ToolClass
from thread_objects.contract.wire import Wire


class Payload(Wire):
    """Base of all payloads; `kind` is the tag."""


class ThreadCreated(Payload):
    """First record of a Thread."""

    kind: Literal["ThreadCreated"] = "ThreadCreated"
    agent_id: str
    definitions: dict[str, str] = {}


class UserInputRecorded(Payload):
    """An input became part of the conversation."""

    kind: Literal["UserInputRecorded"] = "UserInputRecorded"
    submission_id: str
    input_kind: Literal["user", "steering", "follow-up"] = "user"
    run_id: str | None = None
    input: JsonValue


class RunStarted(Payload):
    """Start time and deadline of the logical Run; they survive Attempts."""

    kind: Literal["RunStarted"] = "RunStarted"
    run_id: str
    started_at: int
    deadline_at: int


class DeclaredCall(Wire):
    """A tool call as the committed response declares it: the call's only declaration."""

    tool_call_id: Id
    tool_name: str
    arguments: JsonValue
    arguments_digest: str
    tool_class: ToolClass = ToolClass.UNCERTAIN
    call_kind: CallKind = CallKind.ORDINARY
    approval: bool = False
    rejected: bool = False
    """True when the arguments did not validate: proof that this call never ran."""


class ModelResponseRecorded(Payload):
    """The model's answer of one Turn, with every tool call it declares.

    `messages` holds the pydantic-ai messages that are new with this Turn: the request where it cannot be rebuilt
    from earlier records, and the response, always last.
    """

    kind: Literal["ModelResponseRecorded"] = "ModelResponseRecorded"
    run_id: str
    turn_id: str
    turn: Annotated[int, Field(ge=1)]
    messages: list[dict[str, Any]]
    messages_digest: str
    calls: tuple[DeclaredCall, ...] = ()
    input_tokens: int | None = None
    output_tokens: int | None = None
    state: dict[str, JsonValue] = {}
    """Counters that a resumed Run needs back (retries, usage)."""


class ToolCallSettled(Payload):
    """A call's result, as the model will read it.

    `part` is the pydantic-ai part without its content, which is `result`; `extra` are further parts that follow the
    batch's results. A call closed from outside (a resolution) has a result and no part.
    """

    kind: Literal["ToolCallSettled"] = "ToolCallSettled"
    run_id: str
    turn: int = 0
    tool_call_id: str
    tool_name: str
    result: JsonValue = None
    part: dict[str, Any] = {}
    extra: tuple[dict[str, Any], ...] = ()
    is_failure: bool = False


class ToolCallUnknown(Payload):
    """The call may have happened."""

    kind: Literal["ToolCallUnknown"] = "ToolCallUnknown"
    run_id: str
    turn: int
    tool_call_id: str
    tool_name: str
    reason: Reason


class ToolCallResolved(Payload):
    """Somebody, or a reconciler, said what became of a call."""

    kind: Literal["ToolCallResolved"] = "ToolCallResolved"
    run_id: str
    turn: int = 0
    tool_call_id: str
    resolution: Resolution
    author: Name
    reason: Reason
    resolved_at: int = 0
    """When the stored intent behind it was given; ties the two together, so that no intent is used twice."""


class ToolStepSettled(Payload):
    """The output of one Step of a durable tool (success only)."""

    kind: Literal["ToolStepSettled"] = "ToolStepSettled"
    run_id: str
    tool_call_id: str
    step_name: Name
    output: JsonValue
    output_digest: str


class ToolApprovalRequested(Payload):
    """A call waits for approval. `blocks_initial_dispatch`: no handler of the Turn can have started yet."""

    kind: Literal["ToolApprovalRequested"] = "ToolApprovalRequested"
    run_id: str
    turn_id: str
    turn: int
    tool_call_id: str
    tool_name: str
    arguments_digest: str
    blocks_initial_dispatch: bool = True


class ToolApprovalDecided(Payload):
    """The canonical decision, bound to the exact arguments by the request's digest."""

    kind: Literal["ToolApprovalDecided"] = "ToolApprovalDecided"
    run_id: str
    turn: int
    tool_call_id: str
    decision: Decision
    resolver: Name
    reason: Reason


class ModelResponseInterrupted(Payload):
    """Written before a model is called again for a Turn whose owner died."""

    kind: Literal["ModelResponseInterrupted"] = "ModelResponseInterrupted"
    run_id: str
    superseded_epoch: int
    attempt_id: str
    reason: Reason


class RunCompleted(Payload):
    """Fixes a Run's output."""

    kind: Literal["RunCompleted"] = "RunCompleted"
    run_id: str
    output: JsonValue


class RunFailed(Payload):
    """Fixes a Run's failure."""

    kind: Literal["RunFailed"] = "RunFailed"
    run_id: str
    failure: Diagnostic


class AbortRequested(Payload):
    """The abort intent, canonical before the Run is interrupted."""

    kind: Literal["AbortRequested"] = "AbortRequested"
    submission_id: str
    author: Name
    reason: Reason


class SubmissionSettled(Payload):
    """The settlement: exactly one per Submission, ever."""

    kind: Literal["SubmissionSettled"] = "SubmissionSettled"
    submission_id: str
    settlement_id: str
    receipt_id: str
    outcome: Outcome
    run_id: str | None = None
    result: JsonValue = None
    diagnostic: Diagnostic | None = None
    run_disposition: str | None = None
    finish_reason: Literal["budget-exhausted"] | None = None
    exhausted: str | None = None
    policy_limit: str | None = None
    usage_summary: UsageSummary | None = None

    @model_validator(mode="after")
    def _outcome_and_fields_agree(self) -> Self:
        failed = self.outcome is Outcome.FAILED
        completed = self.outcome is Outcome.COMPLETED
        rules = {
            "a failed outcome has exactly a diagnostic": failed == (self.diagnostic is not None),
            "only a completed outcome has a result": completed or self.result is None,
            "finishReason belongs to completed": self.finish_reason is None or completed,
            "exhausted needs finishReason": self.exhausted is None or self.finish_reason is not None,
            "runDisposition belongs to an ordinary completion of a run": self.run_disposition is None
            or (completed and self.run_id is not None and self.result is not None and self.finish_reason is None),
            "policyLimit belongs to a failed AgentPolicyError": self.policy_limit is None
            or (failed and self.diagnostic is not None and self.diagnostic.error_tag == "AgentPolicyError"),
        }
        broken = [rule for rule, holds in rules.items() if not holds]
        if broken:
            raise ValueError("; ".join(broken))
        return self


class SubagentRequested(Payload):
    """Parent's log: a child is wanted. All that its admission needs, so that anybody may complete it."""

    kind: Literal["SubagentRequested"] = "SubagentRequested"
    run_id: str
    turn_id: str
    turn: int
    tool_call_id: str
    delegation_id: str
    target_agent_id: str
    target_digests: dict[str, str] = {}
    child_input: JsonValue
    child_input_digest: str
    grant_digest: str
    reservation_id: str
    reservation_digest: str
    child_thread_id: str
    child_principal: str
    child_idempotency_key: str


class SubagentStarted(Payload):
    """Parent's log: the child exists and has a Receipt."""

    kind: Literal["SubagentStarted"] = "SubagentStarted"
    run_id: str
    tool_call_id: str
    child_thread_id: str
    child_submission_id: str
    child_receipt_id: str
    child_run_id: str


class SubagentJoined(Payload):
    """Parent's log: the child's outcome became the call's result, and what it cost is final."""

    kind: Literal["SubagentJoined"] = "SubagentJoined"
    run_id: str
    tool_call_id: str
    child_submission_id: str
    child_settlement_id: str
    child_outcome: Outcome
    child_result_digest: str
    projected_result_digest: str
    usage_summary: UsageSummary | None = None
    reservation_id: str
    final_accounting: JsonValue


class SubagentLineageRecorded(Payload):
    """Child's log: which call of which Submission it answers. No Turn of the child runs before it."""

    kind: Literal["SubagentLineageRecorded"] = "SubagentLineageRecorded"
    parent_link: ParentLink
    parent_submission_id: str
    child_definition_digests: dict[str, str] = {}
    child_input_digest: str
    grant_digest: str


class RepairAnnotated(Payload):
    """Audit of a repair executed under a claim."""

    kind: Literal["RepairAnnotated"] = "RepairAnnotated"
    reason: Reason
    details: dict[str, JsonValue] = {}


AnyPayload = Annotated[
    ThreadCreated
    | UserInputRecorded
    | RunStarted
    | ModelResponseRecorded
    | ToolCallSettled
    | ToolCallUnknown
    | ToolCallResolved
    | ToolStepSettled
    | ToolApprovalRequested
    | ToolApprovalDecided
    | ModelResponseInterrupted
    | RunCompleted
    | RunFailed
    | AbortRequested
    | SubmissionSettled
    | SubagentRequested
    | SubagentStarted
    | SubagentJoined
    | SubagentLineageRecorded
    | RepairAnnotated,
    Field(discriminator="kind"),
]

PAYLOADS: TypeAdapter[AnyPayload] = TypeAdapter(AnyPayload)


class Record(Wire):
    """A record before its commit."""

    record_id: Annotated[str, Field(min_length=1, max_length=1_024)]
    family: Literal["thread"] = "thread"
    schema_version: Literal[1] = 1
    created_at: int
    deployment_id: str = ""
    payload: AnyPayload


class Batch(Wire):
    """1..256 records appended atomically; the id is an idempotency key."""

    batch_id: Annotated[str, Field(min_length=1, max_length=1_024)]
    records: Annotated[tuple[Record, ...], Field(min_length=1, max_length=256)]
