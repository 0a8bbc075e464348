"""How an Attempt sits inside pydantic-ai's run: one capability, outermost, for one run.

Rule guarded: pydantic-ai's loop stays its own. Approval tools look like plain functions to it, because approvals
are decided before the batch; retries of a model request have one owner; every call passes the guard.
"""

import random
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from pydantic_ai import RetryModelRequest, RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.capabilities.abstract import CapabilityOrdering
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.models import Model, ModelRequestContext
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from thread_objects.agents.binding import Journal
from thread_objects.agents.declare import with_own_ids
from thread_objects.agents.failures import asked_delay_ms, may_pass
from thread_objects.agents.guard import CallGuard
from thread_objects.agents.home import at_home
from thread_objects.agents.policy import RunPolicy
from thread_objects.contract import limits

# Longer than any bound of ours, so that ours decides. pydantic-ai gives a call with a bound a thread that can be
# left behind when the call is cancelled, which is what makes a hanging synchronous tool interruptible.
_NEVER_S = limits.CALL_TIMEOUT_MS_MAX / 1_000 * 2


class ThreadCapability(AbstractCapability[Any]):
    """The Attempt's side of one pydantic-ai run."""

    id = "thread-objects"

    def __init__(self, policy: RunPolicy, journal: Journal, guard: CallGuard, retries: dict[str, int]) -> None:
        self._policy = policy
        self._journal = journal
        self._guard = guard
        self._retries = retries
        self.needs_approval: set[str] = set()
        """Tools that declare `requires_approval`, as seen in this run."""
        self.used_ids: Collection[str] = ()
        self.turn = 0
        self.asked = 0
        """Failed requests of the current step."""

    def get_ordering(self) -> CapabilityOrdering:
        """Outside of everything the agent brings."""
        return CapabilityOrdering(position="outermost")

    async def before_run(self, ctx: RunContext[Any]) -> None:
        """Give a resumed run its tools' retry counters back."""
        if self._retries and ctx.tool_manager is not None:
            ctx.tool_manager.ctx = replace(ctx, retries=dict(self._retries))

    async def prepare_tools(self, ctx: RunContext[Any], tool_defs: list[ToolDefinition]) -> list[ToolDefinition]:
        """Present approval tools as plain functions, and take over every bound on time."""
        del ctx
        prepared: list[ToolDefinition] = []
        for tool in tool_defs:
            if tool.kind == "external":
                raise UserError(f"tool {tool.name!r} would get its result from outside the run; bind cannot serve it")
            if tool.kind == "unapproved":
                self.needs_approval.add(tool.name)
            prepared.append(replace(tool, kind="function", timeout=_NEVER_S) if tool.kind != "output" else tool)
        return prepared

    def get_wrapper_model(self, model: Model) -> Model | None:
        """A model with connections of its own lives on one event loop, whichever Attempt asks it."""
        return at_home(model)

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Make every call id the Run's own."""
        del ctx, request_context
        return with_own_ids(response, self.used_ids, self.turn)

    async def on_model_request_error(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, error: Exception
    ) -> ModelResponse:
        """Ask again, within the policy, if the failure may pass."""
        del ctx, request_context
        asked = asked_delay_ms(error)
        spent = self.asked >= self._policy.model_retries_max
        if spent or not may_pass(error) or (asked or 0) > self._policy.model_retry_after_ms_max:
            raise error
        self.asked += 1
        await self._journal.pause(asked if asked is not None else self._backoff_ms())
        raise RetryModelRequest from error

    def _backoff_ms(self) -> int:
        full = min(self._policy.model_retry_cap_ms, self._policy.model_retry_base_ms << (self.asked - 1))
        return full - int(full * 0.25 * random.random())  # noqa: S311 - jitter keeps a herd apart

    async def wrap_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: dict[str, Any], handler: Any
    ) -> Any:
        """Every call passes the guard."""
        del ctx, tool_def
        return await self._guard.execute(call.tool_call_id, lambda: handler(args))


def request_settings(policy: RunPolicy) -> Any:
    """Settings of each request: its time, and no retries by the provider's client.

    The client's are named only to models that know the setting, since others warn.
    """

    def settings(ctx: RunContext[Any]) -> ModelSettings:
        own = (ctx.model_settings or {}).get("request_timeout")
        timeout = policy.model_timeout_ms / 1_000
        chosen = ModelSettings(request_timeout=timeout if own is None else min(float(own), timeout))  # type: ignore[arg-type]
        if "max_retries" not in getattr(ctx.model, "unsupported_settings", ()):
            chosen["max_retries"] = 0
        return chosen

    return settings
