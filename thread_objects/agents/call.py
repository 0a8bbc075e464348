"""What a tool's handler may ask about the call it serves.

Rule guarded: an `idempotent` tool gets the same key in every Attempt of the same call, and a Step that is
recorded is never entered again.
"""

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import JsonValue, TypeAdapter
from pydantic_core import to_jsonable_python

from thread_objects.contract.states import ToolClass
from thread_objects.core.digests import of_value
from thread_objects.errors import StepDiverged

T = TypeVar("T")

_current: ContextVar["ToolCall | None"] = ContextVar("thread_objects_tool_call", default=None)


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """A Step's output as the log holds it."""

    output: JsonValue
    digest: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The call that the running handler serves. `attempt` tells Attempts apart; everything else is the same in all.

    `idempotency_key` identifies the call's effect: hand it to whatever system is asked to do it once.
    """

    thread_id: str
    submission_id: str
    run_id: str
    principal: str
    turn: int
    tool_call_id: str
    tool_name: str
    tool_class: ToolClass
    attempt: str
    idempotency_key: str
    recorded: dict[str, RecordedStep] = field(default_factory=dict, repr=False)
    record_step: Callable[[str, JsonValue], Awaitable[None]] | None = field(default=None, repr=False)
    entered: set[str] = field(default_factory=set, repr=False)

    async def step(self, name: str, body: Callable[[], Awaitable[T]], output_type: Any = None) -> T:
        """Run `body` once and record its output under `name`; on re-entry return the recorded output instead.

        Only for tools declared `durable`. A failing body is not recorded and runs again on re-entry, and so does one
        whose record was lost in a crash: give what it calls an idempotency key. The output must be JSON or of
        `output_type`, which is also what a recorded output is read back as. Names are unique within one call.
        """
        if self.record_step is None:
            raise self._diverged(name, "the tool is not declared durable")
        if name in self.entered:
            raise self._diverged(name, "entered twice")
        self.entered.add(name)
        found = self.recorded.get(name)
        if found is None:
            produced = to_jsonable_python(await body())
            await self.record_step(name, produced)
        else:
            produced = found.output
            if of_value(produced) != found.digest:
                raise self._diverged(name, "the recorded output is not the one that was recorded")
        value: T = TypeAdapter(output_type).validate_python(produced) if output_type is not None else produced
        return value

    def _diverged(self, name: str, reason: str) -> StepDiverged:
        return StepDiverged(run_id=self.run_id, tool_call_id=self.tool_call_id, step=name, reason=reason)


def current_call() -> ToolCall:
    """The call being served. Raises `LookupError` outside of a tool's handler."""
    call = _current.get()
    if call is None:
        raise LookupError("no tool call is being served here")
    return call


def serving(call: ToolCall) -> Any:
    """Make this the call being served in the running context; hand the token back to `served`."""
    return _current.set(call)


def served(token: Any) -> None:
    """End what `serving` began."""
    _current.reset(token)
