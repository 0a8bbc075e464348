"""The declaration of a response's tool calls: the only one they get.

Rule guarded: what a call may do after a crash is decided before it can start, from its recorded class and kind,
never from its name.
"""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from pydantic import JsonValue, ValidationError
from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability, Instrumentation
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.run import AgentRun
from pydantic_ai.toolsets import ToolsetTool

from thread_objects.agents.policy import ToolPolicy
from thread_objects.contract.records import DeclaredCall
from thread_objects.contract.states import CallKind, ToolClass
from thread_objects.core.digests import of_value

_CALL_ID_CHARS_MAX = 200


def declare(
    response: ModelResponse,
    tools: Mapping[str, ToolsetTool[Any]],
    policy_of: Callable[[str], ToolPolicy],
    needs_approval: Collection[str],
    judge: RunContext[Any] | None,
) -> tuple[DeclaredCall, ...]:
    """Declare the tool calls of a response, in its order. Output tools are declared with kind `output`.

    `judge`: the context to validate arguments in; None when hooks may repair them, so that nothing is rejected.
    """
    return tuple(
        _declare(part, tools.get(part.tool_name), policy_of(part.tool_name), needs_approval, judge)
        for part in response.tool_calls
    )


def repairs_arguments(run: AgentRun[Any, Any]) -> bool:
    """Whether a capability of the run takes part in validation, and may let a call run that the schema refuses."""
    found: list[bool] = []
    run.ctx.deps.root_capability.apply(lambda leaf: found.append(_takes_part(type(leaf))))
    return any(found)


def _takes_part(kind: type[Any]) -> bool:
    return kind is not Instrumentation and any(
        getattr(kind, hook) is not getattr(AbstractCapability, hook)
        for hook in ("before_tool_validate", "wrap_tool_validate", "on_tool_validate_error")
    )


def _declare(
    part: ToolCallPart,
    tool: ToolsetTool[Any] | None,
    policy: ToolPolicy,
    needs_approval: Collection[str],
    judge: RunContext[Any] | None,
) -> DeclaredCall:
    arguments = _arguments(part)
    if tool is not None and tool.tool_def.kind == "output":
        kind, tool_class, approval = CallKind.OUTPUT, ToolClass.READONLY, False
    else:
        kind = CallKind.DURABLE if policy.durable else CallKind.ORDINARY
        tool_class, approval = policy.tool_class, policy.approval or part.tool_name in needs_approval
    return DeclaredCall(
        tool_call_id=part.tool_call_id,
        tool_name=part.tool_name,
        arguments=arguments,
        arguments_digest=of_value(arguments),
        tool_class=tool_class,
        call_kind=kind,
        approval=approval,
        rejected=kind is not CallKind.OUTPUT
        and (tool is None or (judge is not None and not _valid(part, tool, judge.validation_context))),
    )


def _arguments(part: ToolCallPart) -> JsonValue:
    """The arguments as the model sent them; text that is no JSON stays text."""
    if not isinstance(part.args, str):
        return dict(part.args or {})
    try:
        parsed: JsonValue = json.loads(part.args or "{}", parse_constant=_refuse)
    except (ValueError, RecursionError):
        return part.args
    return parsed


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def _valid(part: ToolCallPart, tool: ToolsetTool[Any], context: Any) -> bool:
    """Whether the arguments fit the tool's schema. Its own validator function is left for when the call runs."""
    try:
        if isinstance(part.args, str):
            tool.args_validator.validate_json(part.args or "{}", context=context)
        else:
            tool.args_validator.validate_python(part.args or {}, context=context)
    except (ValidationError, ValueError):
        return False
    except Exception:  # noqa: BLE001 - a validator that fails otherwise proves nothing
        return True
    return True


def with_own_ids(response: ModelResponse, used: Collection[str], turn: int) -> ModelResponse:
    """The response with call ids that no other call of the Run has. Some models start from `call_0` every time."""
    seen = set(used)
    given = {part.tool_call_id for part in response.tool_calls}
    changed = False
    parts = list(response.parts)
    for index, part in enumerate(parts):
        if not isinstance(part, ToolCallPart):
            continue
        own = part.tool_call_id
        if not own or own in seen or len(own) > _CALL_ID_CHARS_MAX:
            own = f"{own[: _CALL_ID_CHARS_MAX - 40]}~{turn}.{index}"
            while own in seen or own in given:
                own += "~"
            parts[index] = replace(part, tool_call_id=own)
            changed = True
        seen.add(own)
    return replace(response, parts=parts) if changed else response
