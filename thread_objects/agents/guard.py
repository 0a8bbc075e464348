"""The guard that every tool call passes: permission, recorded results, time, size, and the call's own identity.

Rule guarded: a handler runs only if the log permits it; a call that has a result gets that result; a handler that
is cancelled, overruns or fails never takes its siblings down with it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import ValidationError
from pydantic_ai import ApprovalRequired, CallDeferred, ModelRetry, ToolReturn
from pydantic_ai.exceptions import (
    RunCancelled,
    SkipToolExecution,
    ToolFailed,
    ToolFailedError,
    ToolRetryError,
)
from pydantic_ai.messages import ToolReturnPart, UserPromptPart

from thread_objects.agents.binding import Journal, RunRequest
from thread_objects.agents.call import RecordedStep, ToolCall, served, serving
from thread_objects.agents.failures import diagnose
from thread_objects.agents.policy import ToolPolicy
from thread_objects.agents.results import bounded, from_settled
from thread_objects.agents.transcript import Call, Turn
from thread_objects.contract import limits
from thread_objects.contract.states import CallKind, ToolClass
from thread_objects.core.recovery.reconciled import idempotency_key

CONTROL = (
    ModelRetry,
    ToolFailed,
    ToolRetryError,
    ToolFailedError,
    CallDeferred,
    ApprovalRequired,
    SkipToolExecution,
    RunCancelled,
    ValidationError,
)
"""What a tool may raise without ending the Run: pydantic-ai answers the model with it, or handles it."""


class CallGuard:
    """The calls of one Turn on their way to their handlers."""

    def __init__(
        self, request: RunRequest, journal: Journal, policy_of: Callable[[str], ToolPolicy], bytes_max: int
    ) -> None:
        self._request = request
        self._journal = journal
        self._policy_of = policy_of
        self._bytes_max = bytes_max
        self._turn: Turn | None = None
        self._bytes_each = bytes_max
        self.returned: set[str] = set()
        """Calls whose handler has ended; their results are about to arrive."""
        self.lost: list[str] = []
        """Calls of class `uncertain` that overran their time."""
        self.fatal: Exception | None = None
        """The first failure that ends the Run once the batch is done."""

    def open(self, turn: Turn) -> None:
        """Turn to the calls of this Turn."""
        self._turn = turn
        self.returned = set()
        # The results of one Turn together have a bound as well.
        self._bytes_each = min(self._bytes_max, limits.TURN_BYTES_MAX // max(1, len(turn.calls)))

    async def execute(self, tool_call_id: str, handler: Callable[[], Awaitable[Any]]) -> Any:
        """One call: serve its recorded result, or run its handler if that is permitted."""
        call = self._turn.calls.get(tool_call_id) if self._turn is not None else None
        if call is None or self._turn is None:
            return await handler()  # a call inside a call: part of the outer one's effect
        if call.settled is not None:
            return _recorded(call)
        if call.declared.rejected:
            # Declared as never running, so nobody was asked whether it may.
            raise ToolFailed("Not executed: the arguments were refused.")
        if self.fatal is not None:
            raise ToolFailed("Not executed: another call of this batch failed.")
        self._journal.start(self._turn.turn, tool_call_id)
        token = serving(self._identity(self._turn, call))
        try:
            return bounded(await self._timed(call, handler), self._bytes_each)
        except CONTROL:
            raise
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Nobody cancelled this call: something inside the tool cancelled itself.
            self.fatal = self.fatal or RuntimeError(f"tool call {tool_call_id} cancelled itself")
            raise ToolFailed("Cancelled from within.") from None
        except Exception as error:
            self.fatal = self.fatal or error
            said = diagnose(error)
            raise ToolFailed(f"{said.error_tag}: {said.message}"[:1_000]) from error
        finally:
            served(token)
            self.returned.add(tool_call_id)
            self._journal.finish(tool_call_id)

    async def _timed(self, call: Call, handler: Callable[[], Awaitable[Any]]) -> Any:
        declared = call.declared
        timeout_ms = self._policy_of(declared.tool_name).timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1_000) as limit:
                return await handler()
        except TimeoutError:
            if not limit.expired():
                raise
        if declared.tool_class is ToolClass.UNCERTAIN and declared.call_kind is CallKind.ORDINARY:
            self.lost.append(declared.tool_call_id)
        raise ToolFailed(f"Timed out after {timeout_ms / 1_000:g} seconds.")

    def _identity(self, turn: Turn, call: Call) -> ToolCall:
        request, declared = self._request, call.declared
        durable = declared.call_kind is CallKind.DURABLE
        call_id = declared.tool_call_id

        async def record(name: str, output: Any) -> None:
            await self._journal.step(call_id, name, output)

        return ToolCall(
            thread_id=request.thread_id,
            submission_id=request.submission_id,
            run_id=request.run.run_id,
            principal=request.principal,
            turn=turn.turn,
            tool_call_id=call_id,
            tool_name=declared.tool_name,
            tool_class=declared.tool_class,
            attempt=request.attempt,
            idempotency_key=idempotency_key(request.run.run_id, turn.turn, call_id),
            recorded={
                name: RecordedStep(step.output, step.output_digest)
                for (owner, name), step in request.run.steps.items()
                if owner == call_id
            },
            record_step=record if durable else None,
        )


def _recorded(call: Call) -> Any:
    """A recorded result, raised or returned as the handler's own was."""
    assert call.settled is not None  # noqa: S101 - the caller looked
    part, *extra = from_settled(call.settled)
    assert isinstance(part, ToolReturnPart)  # noqa: S101 - what a settled call begins with
    if part.outcome == "retried":
        raise ModelRetry(part.content if isinstance(part.content, str) else part.model_response_str())
    if part.outcome != "success":
        raise ToolFailed(part.content if isinstance(part.content, str) else part.model_response_str())
    users = [item for item in extra if isinstance(item, UserPromptPart)]
    return ToolReturn(return_value=part.content, content=users[0].content if users else None, metadata=part.metadata)
