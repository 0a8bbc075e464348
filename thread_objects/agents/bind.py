"""`bind`: a pydantic-ai agent becomes a binding, or a `BindingError` says why it cannot.

Rule guarded: whatever is wrong with an agent is said when it is bound, before any Submission names it.
"""

import types
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import Any, Union, get_args, get_origin

from pydantic import JsonValue, ValidationError
from pydantic_ai import DeferredToolRequests
from pydantic_ai.agent import AbstractAgent, WrapperAgent
from pydantic_ai.durable_exec import BaseDurabilityCapability
from pydantic_ai.models import Model, infer_model
from pydantic_ai.output import PendingModelResponse, ToolOutput

from thread_objects.agents.binding import Completed, Journal, RunRequest
from thread_objects.agents.drive import Drive
from thread_objects.agents.policy import (
    ApprovalAnswer,
    ApprovalPolicy,
    ApprovalQuestion,
    RunPolicy,
    ToolPolicy,
)
from thread_objects.agents.prompts import InputAdapter, Prompt, default_prompt
from thread_objects.agents.survey import Surveyed, survey
from thread_objects.contract import limits
from thread_objects.contract.states import ToolClass
from thread_objects.core.canonical import RECORD
from thread_objects.core.digests import of_value
from thread_objects.errors import BindingError

MakeDeps = Callable[[RunRequest], Any | Awaitable[Any]]
"""Makes an Attempt's dependencies. Called once per Attempt; may be asynchronous."""

_UNSET: Any = object()


def bind(
    agent: AbstractAgent[Any, Any],
    *,
    id: str,  # noqa: A002 - the word of the contract
    tools: Mapping[str, ToolClass | ToolPolicy] | None = None,
    other_tools: ToolClass | ToolPolicy = ToolClass.UNCERTAIN,
    approval: ApprovalPolicy | None = None,
    policy: RunPolicy | None = None,
    deps: Any = _UNSET,
    make_deps: MakeDeps | None = None,
    input_adapter: InputAdapter | None = None,
    version: str = "",
) -> "PydanticAgentBinding":
    """Bind an agent, with its tools, toolsets, MCP servers, output type and instructions, under a stable id.

    `tools` says how calls of each tool are treated; tools it does not name are treated as `other_tools`
    (`uncertain` by default: never run again after a possible start). A tool declared with
    `requires_approval=True` needs approval here too. `approval` may answer approval questions at once.
    `deps` is shared by all Runs; `make_deps` makes them anew for each Attempt. `version` enters the digests, for
    changes that nothing else shows.

    Raises `BindingError`; a bound agent raises it never again.
    """
    given = _policies(id, tools or {}, other_tools)
    _check_agent(id, agent)
    model = _own_model(id, agent)
    _check_output(id, agent)
    found = survey(agent.toolsets)
    _check_tools(id, found, given)
    _check_deps(id, agent, deps, make_deps)
    if policy is not None and not isinstance(policy, RunPolicy):
        raise BindingError(agent_id=id, reason=f"policy is a {type(policy).__name__}, not a RunPolicy")
    return PydanticAgentBinding(
        agent,
        id=id,
        model=model,
        found=found,
        given=given,
        other=_as_policy(id, "other_tools", other_tools),
        approval=approval,
        policy=policy or RunPolicy(),
        deps=None if deps is _UNSET else deps,
        make_deps=make_deps,
        input_adapter=input_adapter,
        version=version,
    )


class PydanticAgentBinding:
    """A bound pydantic-ai agent. Made by `bind` only."""

    def __init__(
        self,
        agent: AbstractAgent[Any, Any],
        *,
        id: str,  # noqa: A002
        model: Model | None,
        found: Surveyed,
        given: Mapping[str, ToolPolicy],
        other: ToolPolicy,
        approval: ApprovalPolicy | None,
        policy: RunPolicy,
        deps: Any,
        make_deps: MakeDeps | None,
        input_adapter: InputAdapter | None,
        version: str,
    ) -> None:
        self.agent = agent
        self.model = model
        self.prompt: Callable[[JsonValue], Prompt] = input_adapter or default_prompt
        self._id = id
        self._policy = policy
        self._approval = approval
        self._deps = deps
        self._make_deps = make_deps
        self._other = other
        self._tools = {name: _joined(given.get(name, other), found, name) for name in {*found.tools, *given}}
        self._digests = _digests(agent, found, self._tools, other, version)

    @property
    def id(self) -> str:
        """The agent id that Submissions name."""
        return self._id

    @property
    def digests(self) -> Mapping[str, str]:
        """Digests of definition, model and tools."""
        return self._digests

    @property
    def policy(self) -> RunPolicy:
        """What one Run may spend."""
        return self._policy

    def tool(self, name: str) -> ToolPolicy:
        """How calls of this tool are treated."""
        return self._tools.get(name, self._other)

    async def answer(self, question: ApprovalQuestion) -> ApprovalAnswer | None:
        """What the approval policy says at once; None when somebody has to decide."""
        if self._approval is None:
            return None
        answer = self._approval(question)
        return await answer if isawaitable(answer) else answer

    async def dependencies(self, request: RunRequest) -> Any:
        """The dependencies of one Attempt."""
        if self._make_deps is None:
            return self._deps
        made = self._make_deps(request)
        return await made if isawaitable(made) else made

    async def run(self, request: RunRequest, journal: Journal) -> Completed:
        """Advance the Run from its last committed fact to its end."""
        drive = Drive(self, request, journal)
        completed = await drive.run()
        while request.run.completed is None and await journal.follow_up(completed, self.prompt):
            drive = Drive(self, request, journal, after=drive)
            completed = await drive.run()
        return completed


def _policies(
    agent_id: str, tools: Mapping[str, ToolClass | ToolPolicy], other: ToolClass | ToolPolicy
) -> dict[str, ToolPolicy]:
    if not isinstance(agent_id, str) or not 1 <= len(agent_id) <= limits.NAME_CHARS_MAX:
        raise BindingError(agent_id=str(agent_id)[:64], reason="the id must be a text of 1..256 characters")
    if not isinstance(tools, Mapping):
        raise BindingError(agent_id=agent_id, reason=f"tools is a {type(tools).__name__}, not a mapping of names")
    _as_policy(agent_id, "other_tools", other)
    return {name: _as_policy(agent_id, name, given) for name, given in tools.items()}


def _as_policy(agent_id: str, name: str, given: ToolClass | ToolPolicy) -> ToolPolicy:
    if isinstance(given, ToolPolicy):
        return given
    try:
        return ToolPolicy(tool_class=ToolClass(given))
    except (ValueError, ValidationError):
        raise BindingError(
            agent_id=agent_id, reason=f"{name!r} is given {given!r}, which is neither a ToolClass nor a ToolPolicy"
        ) from None


def _joined(given: ToolPolicy, found: Surveyed, name: str) -> ToolPolicy:
    """The policy with what the tool itself declares: its approval, and a shorter bound of its own."""
    known = found.tools.get(name)
    if known is None:
        return given
    shorter = given.timeout_ms if known.timeout_ms is None else min(given.timeout_ms, known.timeout_ms)
    return given.model_copy(update={"approval": given.approval or known.approval, "timeout_ms": shorter})


def _check_agent(agent_id: str, agent: Any) -> None:
    if not isinstance(agent, AbstractAgent):
        raise BindingError(agent_id=agent_id, reason=f"a {type(agent).__name__} is no pydantic-ai agent")
    durable: list[str] = []
    agent.root_capability.apply(
        lambda leaf: durable.append(type(leaf).__name__) if isinstance(leaf, BaseDurabilityCapability) else None
    )
    if durable:
        raise BindingError(agent_id=agent_id, reason=f"it is bound to another durable engine already ({durable[0]})")
    if agent.event_stream_handler is not None:
        raise BindingError(agent_id=agent_id, reason="its event stream handler would never be called")
    if _limits_runs(agent):
        raise BindingError(
            agent_id=agent_id,
            reason="max_concurrency counts the runs of one event loop and every Attempt has its own; "
            "limit the worker's `attempts`, or the model",
        )
    if agent.model is None and agent.root_capability.get_model() is None:
        raise BindingError(agent_id=agent_id, reason="it has no model")


def _limits_runs(agent: AbstractAgent[Any, Any]) -> bool:
    while isinstance(agent, WrapperAgent):
        agent = agent.wrapped
    return getattr(agent, "_concurrency_limiter", None) is not None


def _own_model(agent_id: str, agent: AbstractAgent[Any, Any]) -> Model | None:
    """The model of an agent that names it only. Made once: one made per run would open connections per run."""
    if not isinstance(agent.model, str) or agent.root_capability.has_resolve_model_id:
        return None
    try:
        return infer_model(agent.model)
    except Exception as error:
        raise BindingError(agent_id=agent_id, reason=f"its model cannot be had: {error}") from error


def _check_output(agent_id: str, agent: AbstractAgent[Any, Any]) -> None:
    for output in _outputs(agent.output_type):
        if output in (DeferredToolRequests, PendingModelResponse):
            raise BindingError(
                agent_id=agent_id,
                reason=f"its output type includes {output.__name__}, which would end a run with work still open",
            )


def _outputs(spec: Any) -> list[Any]:
    if isinstance(spec, ToolOutput):
        return _outputs(spec.output)
    if isinstance(spec, (list, tuple)):
        return [found for item in spec for found in _outputs(item)]
    if get_origin(spec) in (Union, types.UnionType):
        return [found for item in get_args(spec) for found in _outputs(item)]
    return [spec]


def _check_tools(agent_id: str, found: Surveyed, given: Mapping[str, ToolPolicy]) -> None:
    if found.refused:
        raise BindingError(agent_id=agent_id, reason=found.refused[0])
    if found.duplicates:
        raise BindingError(agent_id=agent_id, reason=f"two of its tools are called {found.duplicates[0]!r}")
    unknown = sorted(set(given) - set(found.tools))
    if unknown and not found.open:
        known = ", ".join(sorted(found.tools)) or "none"
        raise BindingError(agent_id=agent_id, reason=f"it has no tool {unknown[0]!r} (its tools: {known})")


def _check_deps(agent_id: str, agent: AbstractAgent[Any, Any], deps: Any, make_deps: MakeDeps | None) -> None:
    if deps is not _UNSET and make_deps is not None:
        raise BindingError(agent_id=agent_id, reason="both deps and make_deps are given")
    wanted = agent.deps_type
    if make_deps is not None or wanted in (type(None), Any, object):
        return
    if deps is _UNSET:
        raise BindingError(agent_id=agent_id, reason="it needs dependencies: give deps or make_deps")
    if isinstance(wanted, type) and not isinstance(deps, wanted) and get_origin(wanted) is None:
        raise BindingError(
            agent_id=agent_id, reason=f"its deps are a {type(deps).__name__}, it wants a {wanted.__name__}"
        )


def _digests(
    agent: AbstractAgent[Any, Any],
    found: Surveyed,
    tools: Mapping[str, ToolPolicy],
    other: ToolPolicy,
    version: str,
) -> dict[str, str]:
    model = agent.model
    said: JsonValue = [type(model).__name__, model.model_name] if isinstance(model, Model) else str(model)
    return {
        "agent": of_value({"name": agent.name, "output": _output_schema(agent), "version": version}),
        "model": of_value(said),
        "tools": of_value(
            {
                "known": {
                    name: {**policy.contract(), "schema": found.tools[name].schema if name in found.tools else None}
                    for name, policy in tools.items()
                },
                "opaque": sorted(found.opaque),
                "other": other.contract(),
            }
        ),
    }


def _output_schema(agent: AbstractAgent[Any, Any]) -> JsonValue:
    try:
        schema: JsonValue = agent.output_json_schema()
        of_value(schema, RECORD)
    except Exception:  # noqa: BLE001 - an output without a schema says so in many ways
        return [getattr(output, "__qualname__", type(output).__qualname__) for output in _outputs(agent.output_type)]
    return schema
