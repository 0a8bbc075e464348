"""The counters that a Run takes along: usage, and how often each tool and the output may still be tried again.

Rule guarded: a crash refills nothing.
"""

from dataclasses import dataclass, field
from typing import Any

from pydantic import JsonValue, TypeAdapter
from pydantic_ai import RunUsage
from pydantic_ai.run import AgentRun

from thread_objects.agents.transcript import Turn
from thread_objects.contract.states import CallKind

_USAGE = TypeAdapter(RunUsage)


@dataclass(slots=True)
class Counters:
    """Where a Run stands between two requests."""

    usage: RunUsage = field(default_factory=RunUsage)
    retries: dict[str, int] = field(default_factory=dict)
    output_retries: int = 0


def counters_after(turn: Turn | None) -> Counters:
    """The counters as a Turn left them. Its own are from before its batch; a closed batch has moved them on."""
    if turn is None:
        return Counters()
    state: dict[str, Any] = turn.state
    found = Counters(
        usage=_USAGE.validate_python(state.get("usage", {})),
        retries=dict(state.get("retries", {})),
        output_retries=int(state.get("outputRetries", 0)),
    )
    if not turn.closed:
        return found  # the batch is run through again and counts by itself
    retried: dict[str, int] = {}
    for call in turn.calls.values():
        part = call.settled.part if call.settled is not None else {}
        if part.get("outcome", "success") == "success":
            found.retries.pop(call.declared.tool_name, None)
        elif part.get("outcome") == "retried":
            # pydantic-ai notes the attempt only where it charged one.
            if (attempt := (part.get("retry") or {}).get("attempt")) is not None:
                retried[call.declared.tool_name] = int(attempt)
            found.output_retries += call.declared.call_kind is CallKind.OUTPUT
    found.retries.update(retried)
    return found


def counted(run: AgentRun[Any, Any]) -> dict[str, JsonValue]:
    """The counters of a live run, as a response carries them; those at rest are left out."""
    manager = run.ctx.deps.tool_manager
    usage = {name: value for name, value in _USAGE.dump_python(run.usage, mode="json").items() if value}
    state: dict[str, JsonValue] = {"usage": usage}
    if manager.ctx is not None and manager.ctx.retries:
        state["retries"] = dict(manager.ctx.retries)
    if run.ctx.state.output_retries_used:
        state["outputRetries"] = run.ctx.state.output_retries_used
    return state
