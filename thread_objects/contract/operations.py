"""What an operator asks and is told: operations and who asks for them, explanations, obligations, retries.

Control data only: ids, names, states and instants. No input, argument, result or message of a conversation is in here.
Ages are whole seconds, rounded down.
"""

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, model_validator

from thread_objects.contract import limits
from thread_objects.contract.messages import Id, Name
from thread_objects.contract.reports import Verification
from thread_objects.contract.states import Decision, Disposition, Outcome, ResolutionKind, SubmissionState, ToolClass
from thread_objects.contract.views import BindingWait, Fault, Registry, ThreadView
from thread_objects.contract.wire import Wire


class Operation(StrEnum):
    """What an authoriser is asked about. Submitting is not in it: admission has a policy of its own."""

    EXPLAIN = "explain"
    EXPLAIN_THREAD = "explainThread"
    VERIFY = "verify"
    RETRY = "retry"
    WAKE = "wake"
    SCAN_OBLIGATIONS = "scanObligations"
    OBSERVE = "observe"
    """Reading or following a Thread's log, and waiting for it to grow."""
    AWAIT_SETTLEMENT = "awaitSettlement"
    ABORT = "abort"
    RESOLVE_UNKNOWN = "resolveUnknown"
    RESOLVE_APPROVAL = "resolveApproval"
    STATUS = "status"
    """Where a Submission stands, by id or by key."""
    REPORT = "report"
    EXPORT = "export"
    IMPORT = "import"
    RETAIN = "retain"
    RESTORE_FENCE = "restoreFence"
    REBUILD_WORK = "rebuildWork"


# --- explanations -------------------------------------------------------------------------------------------------


class UnknownCallView(Wire):
    """A call that may have happened. `resolved`: a resolution is canonical; a stored intent alone is none."""

    tool_call_id: str
    tool_name: str
    turn: int
    tool_class: ToolClass
    marked: bool
    """An Unknown Outcome is on record for it."""
    resolved: bool
    since: int | None = None
    age_seconds: int | None = None


class UnknownIntentView(Wire):
    """What somebody said of an unknown call, as it is stored; canonical only once a worker takes it up."""

    tool_call_id: str
    resolution: ResolutionKind
    author: str
    reason: str
    resolved_at: int


class ApprovalView(Wire):
    """A call that an approval was requested for, with what was decided so far (stored, or canonical already)."""

    tool_call_id: str
    turn: int
    decision: Decision | None = None
    canonical: bool = False
    resolver: str | None = None
    age_seconds: int | None = None


class PendingBatchView(Wire):
    """A committed response of which a call has no result yet."""

    turn: int
    call_count: int


class EvidenceView(Wire):
    """What the log says of a Submission, as far as it decides."""

    thread_materialized: bool
    input_recorded: bool
    settlement_outcome: Outcome | None = None
    abort_recorded: bool = False
    pending_batch: PendingBatchView | None = None
    open_calls: tuple[str, ...] = ()
    """Calls that may have had their effect and that nothing closes, at most `limits.EXPLAINED_CALLS_MAX`."""
    open_calls_total: int = 0
    open_delegations: tuple[str, ...] = ()
    open_worker_calls: tuple[str, ...] = ()
    host_settlement_outcome: Outcome | None = None
    joined_input_covered: bool | None = None
    """None for a row that is joined to nothing."""


class OwnerView(Wire):
    """Who owns a Submission. A lease that ran out takes nothing away; it only lets somebody else claim."""

    attempt_id: str
    epoch: int
    lease_until: int
    lease_live: bool


class AbortView(Wire):
    """The abort intent."""

    author: str
    reason: str
    requested_at: int
    age_seconds: int


class BehindView(Wire):
    """What stands before a Submission in its Lane."""

    count: int
    head_submission_id: str
    head_state: SubmissionState


class Explanation(Wire):
    """What is owed to a Submission, what recovery would decide now, and what that would leave behind.

    `disposition` is what executing `decision` leaves when nobody contends. `retry_contract` tells whether a stored
    permission to retry still has its operation: `unchecked` where nobody with the agent's binding was asked.
    """

    submission_id: str
    receipt_id: str
    thread_id: str
    object_id: str
    principal: str
    agent_id: str
    queue_sequence: int
    state: SubmissionState
    outcome: Outcome | None = None
    decision: str
    meaning: str
    disposition: Disposition
    details: dict[str, JsonValue] = {}
    retry_contract: Literal["not-needed", "supported", "unsupported", "unchecked"] = "not-needed"
    admitted_age_seconds: int
    ready_age_seconds: int | None = None
    state_age_seconds: int | None = None
    """Since when it is suspended, unknown or settled; None in the other states."""
    owner: OwnerView | None = None
    claims: int = 0
    abort: AbortView | None = None
    behind: BehindView | None = None
    host_submission_id: str | None = None
    unknown_calls: tuple[UnknownCallView, ...] = ()
    unknown_intents: tuple[UnknownIntentView, ...] = ()
    approvals: tuple[ApprovalView, ...] = ()
    evidence: EvidenceView
    fault: Fault | None = None
    binding_wait: BindingWait | None = None
    """No worker binds the agent: the head waits, without a timer, for a registry that does."""


class Unreadable(Wire):
    """A Submission that cannot be explained: a stored record of it cannot be decoded."""

    submission_id: str
    sequence: int | None = None
    decoder: str = ""


class ThreadExplanation(Wire):
    """A Thread and its unsettled Submissions in queue order; `next_after` where there are more."""

    thread_id: str
    object_id: str
    materialized: bool
    epoch: int
    tail_sequence: int
    view: ThreadView
    created_age_seconds: int
    owner_submission_id: str | None = None
    submissions: tuple[Explanation, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()
    next_after: int | None = None
    fault: Fault | None = None
    binding_waits: tuple[BindingWait, ...] = ()


# --- obligations ---------------------------------------------------------------------------------------------------


class BlockedOn(StrEnum):
    """What an unsettled Submission waits for."""

    UNKNOWN = "unknown"
    APPROVAL = "approval"
    WAITING_FOR_CHILD = "waitingForChild"
    READY_AGED = "ready-aged"
    RUNNING_AGED = "running-aged"


class Severity(StrEnum):
    """How late it is, by the thresholds of who asks."""

    OK = "ok"
    AGING = "aging"
    OVERDUE = "overdue"


class ObligationsQuery(Wire):
    """Which obligations to list. `after` is the `next_after` of the page before, opaque.

    A page looks at a bounded number of rows, so with filters it may be short, or empty with a `next_after`.
    """

    aging_seconds: Annotated[int, Field(ge=0, le=limits.SERIAL_MAX)]
    overdue_seconds: Annotated[int, Field(ge=0, le=limits.SERIAL_MAX)]
    thread_id: Id | None = None
    agent_id: Name | None = None
    principal: Id | None = None
    blocked_on: tuple[BlockedOn, ...] = ()
    severity_min: Severity = Severity.OK
    after: Annotated[str, Field(max_length=limits.RECOVERY_CURSOR_CHARS_MAX)] | None = None
    limit: Annotated[int, Field(ge=1, le=limits.OBLIGATIONS_PAGE_MAX)] = 100

    @model_validator(mode="after")
    def _overdue_is_aging_too(self) -> Self:
        if self.overdue_seconds < self.aging_seconds:
            raise ValueError("overdueSeconds must not be below agingSeconds")
        return self


class Obligation(Wire):
    """An unsettled Submission. `since` is where its age counts from."""

    thread_id: str
    submission_id: str
    principal: str
    agent_id: str
    queue_sequence: int
    state: SubmissionState
    blocked_on: BlockedOn
    since: int
    age_seconds: int
    severity: Severity
    abort_requested: bool = False
    faulted: bool = False


class ObligationsPage(Wire):
    """Obligations in the order of their Threads and queues, and where to go on."""

    obligations: tuple[Obligation, ...] = ()
    next_after: str | None = None


# --- retries ----------------------------------------------------------------------------------------------------------


class RetryAnswer(Wire):
    """The decision that was executed for a Submission, and what it left behind."""

    submission_id: str
    decision: str
    disposition: Disposition
    author: str
    reason: str
    executed_at: int


# --- how they travel --------------------------------------------------------------------------------------------------


class InspectRequest(Wire):
    """A read of an operator on its way to a worker. `caller` is who asks, for the worker's authoriser."""

    operation: Operation
    caller: str = ""
    thread_id: str | None = None
    submission_id: str | None = None
    after: int = 0
    limit: int = limits.EXPLAINED_ROWS_MAX
    obligations: ObligationsQuery | None = None
    require_all_settled: bool = False


class InspectAnswer(Wire):
    """Exactly one of these, or nothing where the Submission or Thread does not exist."""

    explanation: Explanation | None = None
    thread: ThreadExplanation | None = None
    obligations: ObligationsPage | None = None
    verification: Verification | None = None
    tail_sequence: int | None = None


class RetryRequest(Wire):
    """One retry on its way to a worker."""

    object_id: str
    thread_id: str
    submission_id: str
    author: str
    reason: str
    producer_id: str
    attempt_id: str
    ended_attempts: tuple[str, ...] = ()


class RetryDone(Wire):
    """What the activity answers: the retry's answer and the Thread's view after it."""

    answer: RetryAnswer
    view: ThreadView
    registry: Registry = Registry()
