"""What a Run may spend, and what may be done with a tool call that has no result.

Rule guarded: nothing a Run does is unbounded, and nothing is repeated unless its tool says that it may be.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from thread_objects.contract import limits
from thread_objects.contract.states import Decision, ToolClass
from thread_objects.core.recovery import LostCall, Reconciled


@dataclass(frozen=True, slots=True)
class ApprovalQuestion:
    """A call that may not start before somebody approved exactly these arguments."""

    thread_id: str
    submission_id: str
    run_id: str
    principal: str
    turn: int
    tool_call_id: str
    tool_name: str
    arguments: JsonValue
    arguments_digest: str


@dataclass(frozen=True, slots=True)
class ApprovalAnswer:
    """An answer given at once by policy; `resolver` is recorded as given."""

    decision: Decision
    resolver: str
    reason: str = ""


ApprovalPolicy = Callable[[ApprovalQuestion], "ApprovalAnswer | Awaitable[ApprovalAnswer | None] | None"]
"""Answers at once, or None: then the Submission is suspended until somebody decides."""

TimeoutMs = Annotated[int, Field(ge=1, le=limits.CALL_TIMEOUT_MS_MAX)]


class ToolPolicy(BaseModel):
    """How calls of one tool are treated.

    `timeout_ms` bounds each call. A `readonly` or `idempotent` call that overruns it is told to the model as a
    failure; an `uncertain` one becomes an Unknown Outcome, since its effect may have happened.
    `durable`: the handler is split into named Steps (`current_call().step(...)`) and may be entered again.
    `reconciler` is asked what became of a call that left no result.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    tool_class: ToolClass = ToolClass.UNCERTAIN
    approval: bool = False
    timeout_ms: TimeoutMs = limits.TOOL_TIMEOUT_MS
    durable: bool = False
    reconciler: Callable[[LostCall], Reconciled | Awaitable[Reconciled]] | None = None

    def contract(self) -> dict[str, JsonValue]:
        """What of this policy belongs to the operation's contract (and so to the binding's digest)."""
        return {"class": self.tool_class.value, "approval": self.approval, "durable": self.durable}


class RunPolicy(BaseModel):
    """What one Run may spend, over all its Attempts. Exhaustion settles `failed` with `AgentPolicyError`.

    `tokens_max` None means no token bound; tokens are counted as the provider reports them. `model_timeout_ms`
    bounds each request; `model_retries_max` further requests are made after failures that may pass, waiting from
    `model_retry_base_ms` doubling up to `model_retry_cap_ms`, or as long as the provider asked for (never longer
    than `model_retry_after_ms_max`: then the request has failed). The provider clients' own retries are off.

    `steering_per_seam` is how much queued input, of the same principal and agent, a running Run takes at each seam
    (after a complete tool batch, before the next request); 0 leaves all of it to Runs of its own. `follow_up` lets a
    Run that would end take one queued input and go on; off by default, since then one Run answers for several inputs
    that were sent one after the other.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    turns_max: Annotated[int, Field(ge=1, le=100_000)] = limits.RUN_TURNS_MAX
    tool_calls_max: Annotated[int, Field(ge=0, le=limits.RUN_TOOL_CALLS_MAX)] = limits.RUN_TOOL_CALLS_MAX
    duration_ms: Annotated[int, Field(ge=1, le=31_536_000_000)] = limits.RUN_DURATION_MS
    tokens_max: Annotated[int, Field(ge=1)] | None = None
    model_timeout_ms: TimeoutMs = limits.MODEL_TIMEOUT_MS
    model_retries_max: Annotated[int, Field(ge=0, le=20)] = limits.MODEL_RETRIES_MAX
    model_retry_base_ms: Annotated[int, Field(ge=0, le=60_000)] = limits.MODEL_RETRY_BASE_MS
    model_retry_cap_ms: Annotated[int, Field(ge=0, le=300_000)] = limits.MODEL_RETRY_CAP_MS
    model_retry_after_ms_max: Annotated[int, Field(ge=0, le=300_000)] = limits.MODEL_RETRY_AFTER_MS_MAX
    steering_per_seam: Annotated[int, Field(ge=0, le=limits.STEERING_PER_SEAM_MAX)] = limits.STEERING_PER_SEAM
    follow_up: bool = False
    tool_result_bytes_max: Annotated[int, Field(ge=1_024, le=limits.TOOL_RESULT_BYTES_MAX)] = (
        limits.TOOL_RESULT_BYTES_MAX
    )
