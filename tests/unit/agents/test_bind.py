"""F32: whatever is wrong with an agent is said when it is bound; what is right is bound once and for all."""

from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, DeferredToolRequests, RunContext, Tool
from pydantic_ai.agent import WrapperAgent
from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import CombinedToolset, ExternalToolset, FunctionToolset

from thread_objects.agents import LostCall, RunPolicy, ToolPolicy, Uncertain, bind
from thread_objects.contract import limits
from thread_objects.contract.states import ToolClass
from thread_objects.errors import BindingError


def look(place: str = "here") -> str:
    """Look around."""
    return place


def agent(**more: Any) -> Agent[Any, Any]:
    """An agent with one tool."""
    return Agent(TestModel(), tools=[look], **more)


class Deps(BaseModel):
    """Dependencies."""


class Watched(WrapperAgent[Any, Any]):
    """An agent with a handler for streamed events."""

    @property
    def event_stream_handler(self) -> Any:
        return lambda _ctx, _events: None


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (lambda: bind("agent", id="a"), "no pydantic-ai agent"),
        (lambda: bind(Agent(tools=[look]), id="a"), "no model"),
        (lambda: bind(Agent("no-such-provider:model", defer_model_check=True), id="a"), "model cannot be had"),
        (lambda: bind(agent(), id=""), "1..256 characters"),
        (lambda: bind(agent(), id="x" * 257), "1..256 characters"),
        (lambda: bind(agent(), id=7), "1..256 characters"),
        (lambda: bind(agent(), id="a", tools={"loook": ToolClass.READONLY}), "no tool 'loook' (its tools: look)"),
        (lambda: bind(agent(), id="a", tools={"look": "sometimes"}), "neither a ToolClass nor a ToolPolicy"),
        (lambda: bind(agent(), id="a", tools=[look]), "not a mapping"),
        (lambda: bind(agent(), id="a", other_tools=7), "neither a ToolClass nor a ToolPolicy"),
        (lambda: bind(agent(), id="a", policy={"turns_max": 3}), "not a RunPolicy"),
        (lambda: bind(agent(output_type=[str, DeferredToolRequests]), id="a"), "DeferredToolRequests"),
        (lambda: bind(agent(output_type=str | DeferredToolRequests), id="a"), "DeferredToolRequests"),
        (
            lambda: bind(agent(toolsets=[ExternalToolset([ToolDefinition(name="out")])]), id="a"),
            "from outside the run",
        ),
        (
            lambda: bind(agent(toolsets=[FunctionToolset([Tool(look, name="l")]).approval_required()]), id="a"),
            "decides on approval inside the call",
        ),
        (lambda: bind(agent(toolsets=[FunctionToolset([look])]), id="a"), "two of its tools are called 'look'"),
        (lambda: bind(agent(max_concurrency=2), id="a"), "every Attempt has its own"),
        (lambda: bind(WrapperAgent(agent(max_concurrency=2)), id="a"), "every Attempt has its own"),
        (lambda: bind(Watched(agent()), id="a"), "never be called"),
        (lambda: bind(agent(deps_type=Deps), id="a"), "needs dependencies"),
        (lambda: bind(agent(deps_type=Deps), id="a", deps="deps"), "its deps are a str, it wants a Deps"),
        (lambda: bind(agent(deps_type=Deps), id="a", deps=Deps(), make_deps=lambda _r: Deps()), "both deps and make"),
    ],
)
def test_a_wrong_binding_is_refused_with_its_reason(given, reason: str):
    """F32: typed, at bind time, and it names what is wrong."""
    with pytest.raises(BindingError) as refused:
        given()
    assert reason in refused.value.reason


@pytest.mark.parametrize(
    ("more", "policy"),
    [
        ({"timeout_ms": 0}, ToolPolicy),
        ({"timeout_ms": limits.CALL_TIMEOUT_MS_MAX + 1}, ToolPolicy),
        ({"aproval": True}, ToolPolicy),
        ({"reconciler": "look it up"}, ToolPolicy),
        ({"turns_max": 0}, RunPolicy),
        ({"tool_calls_max": limits.RUN_TOOL_CALLS_MAX + 1}, RunPolicy),
        ({"turns": 3}, RunPolicy),
    ],
)
def test_a_policy_outside_its_bounds_is_refused(more: dict[str, Any], policy: type[BaseModel]):
    """Configuration: unknown keys and values out of bounds are errors."""
    with pytest.raises(ValueError, match="validation error"):
        policy(**more)


def test_defaults_permit_least():
    """A tool nobody named is uncertain, needs no approval, and is bounded."""
    policy = bind(agent(), id="a").tool("look")
    assert (policy.tool_class, policy.approval, policy.durable) == (ToolClass.UNCERTAIN, False, False)
    assert policy.timeout_ms == limits.TOOL_TIMEOUT_MS
    run = bind(agent(), id="a").policy
    assert (run.turns_max, run.tool_calls_max, run.duration_ms, run.tokens_max, run.model_retries_max) == (
        100,
        4_096,
        3_600_000,
        None,
        3,
    )


def test_tools_are_known_through_prefixes_and_renames():
    """Policies name tools as the model does."""
    toolset = CombinedToolset(
        [
            FunctionToolset([look]).prefixed("far"),
            FunctionToolset([look]).renamed({"glance": "look"}),
            FunctionToolset([Tool(look, name="stare")]).filtered(lambda _ctx, _tool: True),
        ]
    )
    bound = bind(
        agent(toolsets=[toolset]),
        id="a",
        tools=dict.fromkeys(("far_look", "glance", "stare", "look"), ToolClass.READONLY),
    )
    assert {bound.tool(name).tool_class for name in ("far_look", "glance", "stare", "look")} == {ToolClass.READONLY}


def test_a_toolset_known_only_at_run_time_may_hold_any_name():
    """Dynamic toolsets and MCP servers list their tools when the run asks; their names cannot be checked before."""
    bound_to = agent()

    @bound_to.toolset
    def more(_ctx: RunContext[Any]) -> FunctionToolset[Any]:
        return FunctionToolset([Tool(look, name="later")])

    bound = bind(bound_to, id="a", tools={"later": ToolClass.IDEMPOTENT}, other_tools=ToolClass.READONLY)
    assert bound.tool("later").tool_class is ToolClass.IDEMPOTENT
    assert bound.tool("anything").tool_class is ToolClass.READONLY


def test_what_a_tool_declares_itself_counts_too():
    """Its own approval is kept, and the shorter of two bounds."""
    own = Agent(TestModel(), tools=[Tool(look, requires_approval=True, timeout=2)])
    bound = bind(own, id="a", tools={"look": ToolPolicy(timeout_ms=5_000)})
    assert (bound.tool("look").approval, bound.tool("look").timeout_ms) == (True, 2_000)


def test_digests_change_with_the_contract_and_with_nothing_else():
    """The same agent made again has the same digests; tools, model, output and version each change one."""
    plain = bind(agent(), id="a").digests
    assert bind(agent(), id="b").digests == plain
    assert bind(agent(), id="a", policy=RunPolicy(turns_max=3)).digests == plain
    changed = {
        "tools": bind(agent(), id="a", tools={"look": ToolClass.READONLY}).digests,
        "model": bind(Agent(TestModel(model_name="other"), tools=[look]), id="a").digests,
        "agent": bind(agent(), id="a", version="2").digests,
    }
    for name, digests in changed.items():
        assert {key for key in plain if digests[key] != plain[key]} == {name}
    assert bind(agent(output_type=int), id="a").digests["agent"] != plain["agent"]


def test_a_reconciler_and_an_approval_policy_may_be_asynchronous():
    """Whatever asks outside systems may await them."""

    async def look_up(_call: LostCall) -> Uncertain:
        return Uncertain()

    bound = bind(agent(), id="a", tools={"look": ToolPolicy(reconciler=look_up)})
    assert bound.tool("look").reconciler is look_up
