"""What clients send (mutations) and what they get back (receipts, settlements, status)."""

from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue

from thread_objects.contract import limits
from thread_objects.contract.lanes import LaneId
from thread_objects.contract.states import Decision, Outcome, ResolutionKind, SubmissionState
from thread_objects.contract.wire import Wire

Id = Annotated[str, Field(min_length=1, max_length=limits.ID_CHARS_MAX)]
Name = Annotated[str, Field(min_length=1, max_length=limits.NAME_CHARS_MAX)]
Reason = Annotated[str, Field(max_length=limits.REASON_CHARS_MAX)]


def _empty(value: object) -> bool:
    return not value


class ParentLink(Wire):
    """The delegation call that a child Submission answers. Immutable."""

    submission_id: Id
    tool_call_id: Id


class AdmissionFacts(Wire):
    """What an admission says besides its input. A repetition must say the same; present and absent differ.

    `group`: at most one unsettled Submission of a group in a Thread, another one is refused `occupied`. `fence`: any
    JSON that the worker's fence interpreter judges inside the admission's transaction; without an interpreter it
    refuses. `parent` makes a child: it is not ready before its lineage is recorded. `worker` and `message` name
    where the input came from.
    """

    parent: ParentLink | None = None
    worker: Id | None = None
    message: Id | None = None
    group: Id | None = None
    fence: JsonValue = None


class Submit(Wire):
    """Admit one input to a Thread.

    `input` is any JSON value within the persisted-JSON bounds; a plain string is a user prompt.
    (thread_id, principal, key) is the idempotency key: repeating it with the same input and the same facts returns
    the first Receipt, with another input or other facts refuses with `AdmissionConflict`.
    """

    kind: Literal["submit"] = "submit"
    thread_id: Id
    agent_id: Name
    principal: Id
    key: Id
    input: JsonValue
    lanes: tuple[LaneId, ...] = Field((), max_length=limits.LANES_NAMED_MAX, exclude_if=_empty)
    """Lanes that have something to do because of this input; due as soon as it is stored. Not part of its identity."""
    facts: AdmissionFacts | None = Field(None, exclude_if=_empty)


class Abort(Wire):
    """Ask for a Submission to be aborted. The first intent wins; repeating is safe."""

    kind: Literal["abort"] = "abort"
    thread_id: Id
    submission_id: Id
    author: Name
    reason: Reason


class ResolveApproval(Wire):
    """Answer an approval request. The same answer may be repeated; another one conflicts."""

    kind: Literal["resolve_approval"] = "resolve_approval"
    thread_id: Id
    submission_id: Id
    tool_call_id: Id
    decision: Decision
    resolver: Name
    reason: Reason = ""


class ResolveUnknown(Wire):
    """Close, or permit a retry of, a call whose outcome is unknown.

    `result` and `is_failure` belong to `completed-with-result` only.
    """

    kind: Literal["resolve_unknown"] = "resolve_unknown"
    thread_id: Id
    submission_id: Id
    tool_call_id: Id
    resolution: ResolutionKind
    result: JsonValue = None
    is_failure: bool = False
    author: Name
    reason: Reason = ""


class Schedule(Wire):
    """Make a lane due by `due_at`, in epoch milliseconds.

    With a `cursor` it is progress, and counts only if the cursor is higher than every one the lane has seen.
    `attempt_id` is set by a running Attempt, which may name neither native work nor the publication.
    """

    kind: Literal["schedule"] = "schedule"
    lane: LaneId
    due_at: Annotated[int, Field(ge=0, le=limits.SERIAL_MAX)]
    cursor: Annotated[int, Field(ge=0, le=limits.SERIAL_MAX)] | None = None
    attempt_id: Id | None = None


class Scheduled(Wire):
    """The lane after a `Schedule`. `counted` is False for a cursor that it had seen: nothing was changed."""

    lane: str
    due_at: int | None
    counted: bool


class Retry(Wire):
    """Execute, now, what recovery would decide for a Submission. Asked as an update only: it is answered.

    Never reaches the inbox: it changes nothing by itself, and everything it does may be repeated.
    """

    kind: Literal["retry"] = "retry"
    thread_id: Id
    submission_id: Id
    author: Name
    reason: Annotated[str, Field(min_length=1, max_length=limits.REASON_CHARS_MAX)]


class Wake(Wire):
    """A hint. Grants nothing and proves nothing; `mark` is set by the mark sweep only.

    `late`: with a registry, that a head which it serves has stayed untouched for long.
    """

    kind: Literal["wake"] = "wake"
    mark: Annotated[int, Field(ge=0, le=limits.SERIAL_MAX)] | None = None
    registry_key: Name | None = None
    deployment: Annotated[int, Field(ge=0, le=limits.SERIAL_MAX)] | None = None
    late: bool = Field(False, exclude_if=_empty)


Mutation = Annotated[Submit | Abort | ResolveApproval | ResolveUnknown, Field(discriminator="kind")]
"""What the pump hands to storage. (`Wake` never reaches storage.)"""


class PendingReceipt(Wire):
    """What the sender of a signal holds: derived identities, no queue sequence yet."""

    thread_id: str
    principal: str
    key: str
    submission_id: str
    receipt_id: str
    run_id: str


class Receipt(PendingReceipt):
    """Durable identity of an accepted Submission. An identifier, never a capability."""

    queue_sequence: int
    input_digest: str
    admitted_at: int
    replayed: bool = False


class Diagnostic(Wire):
    """All that a failed Settlement says: no stack, no cause, no provider payload."""

    error_tag: Annotated[str, Field(min_length=1, max_length=limits.DIAGNOSTIC_TAG_CHARS_MAX)]
    message: Annotated[str, Field(max_length=limits.DIAGNOSTIC_MESSAGE_CHARS_MAX)]


class UsageSummary(Wire):
    """Sums over all Attempts of a Run; None where the provider did not tell."""

    turns: int = 0
    tool_calls: int = 0
    input_tokens: int | None = None
    output_tokens: int | None = None


class Settlement(Wire):
    """The single terminal outcome of a Submission, as read from its canonical record."""

    submission_id: str
    settlement_id: str
    receipt_id: str
    thread_id: str
    outcome: Outcome
    run_id: str | None = None
    result: JsonValue = None
    diagnostic: Diagnostic | None = None
    finish_reason: str | None = None
    exhausted: str | None = None
    policy_limit: str | None = None
    usage: UsageSummary | None = None
    settled_at: int
    redacted: bool = False
    """Retention took result and diagnostic; the outcome stays."""


class AbortAnswer(Wire):
    """The abort intent in force (the first one, whoever asked again)."""

    submission_id: str
    author: str
    reason: str
    requested_at: int
    settled: bool = False
    replayed: bool = False


class ApprovalAnswer(Wire):
    """The recorded decision."""

    submission_id: str
    tool_call_id: str
    decision: Decision
    resolver: str
    reason: str
    decided_at: int
    state: SubmissionState
    replayed: bool = False


class UnknownAnswer(Wire):
    """The recorded resolution."""

    submission_id: str
    tool_call_id: str
    resolution: ResolutionKind
    author: str
    reason: str
    resolved_at: int
    state: SubmissionState
    replayed: bool = False


class Pending(Wire):
    """A call that waits for somebody."""

    submission_id: str
    tool_call_id: str
    tool_name: str
    turn: int
    since: int
    arguments: JsonValue = None


class SubmissionStatus(Wire):
    """Where a Submission stands, from the database. Cheap; safe to ask as often as one likes."""

    submission_id: str
    receipt_id: str
    thread_id: str
    principal: str
    key: str
    agent_id: str
    queue_sequence: int
    state: SubmissionState
    owned: bool
    epoch: int
    admitted_at: int
    abort_requested: bool
    approvals: tuple[Pending, ...] = ()
    unknown_calls: tuple[Pending, ...] = ()
    settlement: Settlement | None = None


class LogRecord(Wire):
    """One committed record of a Thread's log. `offset` is opaque: hand it back to resume after this record."""

    thread_id: str
    sequence: int
    record_id: str
    batch_id: str
    kind: str
    created_at: int
    payload: dict[str, Any]
    offset: str
