"""Any pydantic-ai agent: instructions, prompts, dependencies, toolsets, outputs, capabilities, tracing."""

import asyncio
import warnings
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, RunContext, Tool
from pydantic_ai.agent import WrapperAgent
from pydantic_ai.capabilities import AbstractCapability, ModelFallback, ProcessHistory
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ImageUrl, ModelMessage, ModelResponse, SystemPromptPart, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.toolsets import FunctionToolset

from tests.unit.attempt.rig import AGENT, Rig, Script, calls, says, scripted
from thread_objects.agents import RunRequest, bind
from thread_objects.contract.states import ToolClass


def test_instructions_and_system_prompt_reach_the_model_in_every_run(rig: Rig, script: Script):
    """Instructions are said anew at each request; the system prompt opens the conversation once."""
    script.steps = {"one": [calls(("look", "c0")), says("1")], "two": [says("2")]}
    agent = scripted(script, instructions="Be brief.", system_prompt="You are a desk.")

    @agent.tool_plain
    async def look() -> str:
        return "seen"

    rig.serve(bind(agent, id=AGENT, tools={"look": ToolClass.READONLY}))
    rig.submit("one")
    with rig.crashing("turn:after-results-append"):
        rig.attempt()
    rig.settle()
    rig.restart()
    rig.submit("two")
    rig.settle()
    for messages in script.seen:
        prompts = [part.content for message in messages for part in message.parts if isinstance(part, SystemPromptPart)]
        assert prompts == ["You are a desk."]
        assert messages[-1].instructions == "Be brief."


@dataclass
class Deps:
    """What tools need."""

    thread: str


@pytest.mark.parametrize("asynchronous", [False, True])
def test_dependencies_are_made_for_each_attempt(rig: Rig, script: Script, asynchronous: bool):
    """`make_deps` sees which Submission it is for."""
    script.steps = {"go": [calls(("look", "c0")), says("done")]}
    agent = scripted(script, deps_type=Deps)

    @agent.tool
    async def look(ctx: RunContext[Deps]) -> str:
        return ctx.deps.thread

    async def later(request: RunRequest) -> Deps:
        await asyncio.sleep(0)
        return Deps(request.thread_id)

    make = later if asynchronous else (lambda request: Deps(request.thread_id))
    rig.serve(bind(agent, id=AGENT, make_deps=make))
    sid = rig.submit("go", thread="my-thread")
    rig.attempt(thread="my-thread")
    assert rig.payloads(sid, "ToolCallSettled")[0]["result"] == "my-thread"


def test_dependencies_that_cannot_be_made_fail_the_run(rig: Rig, script: Script):
    """With its diagnostic, not with silence."""
    script.steps = {"go": [says("done")]}

    def make(_request: RunRequest) -> Deps:
        raise ConnectionError("no database")

    rig.serve(bind(scripted(script, deps_type=Deps), id=AGENT, make_deps=make))
    sid = rig.submit("go")
    assert rig.attempt().ended == "settled"
    assert rig.settlement(sid)["diagnostic"] == {"errorTag": "ConnectionError", "message": "no database"}


def test_toolsets_of_every_kind_are_served(rig: Rig, script: Script):
    """Prefixed and dynamic toolsets; a dynamic one is treated as `other_tools` unless it is named."""

    def look() -> str:
        return "seen"

    script.steps = {"go": [calls(("far_look", "c0"), ("later", "c1")), says("done")]}
    agent = scripted(script, toolsets=[FunctionToolset([look]).prefixed("far")])

    @agent.toolset
    def more(_ctx: RunContext[Any]) -> FunctionToolset[Any]:
        return FunctionToolset([Tool(look, name="later")])

    rig.serve(bind(agent, id=AGENT, tools={"far_look": ToolClass.READONLY}, other_tools=ToolClass.IDEMPOTENT))
    sid = rig.submit("go")
    with rig.crashing("tools:after-dispatch-fence", 2):
        rig.attempt()
    rig.settle()
    assert rig.settlement(sid)["result"] == "done"
    classes = {c["toolName"]: c["toolClass"] for c in rig.payloads(sid, "ModelResponseRecorded")[0]["calls"]}
    assert classes == {"far_look": "readonly", "later": "idempotent"}


class Answer(BaseModel):
    """An output."""

    n: int


@pytest.mark.parametrize("strategy", ["early", "graceful", "exhaustive"])
def test_every_end_strategy_ends_with_a_whole_batch(rig: Rig, script: Script, strategy: Any):
    """A final answer beside function calls: every call has its result in the log, whatever the strategy ran."""
    script.steps = {
        "go": [calls(("look", "c0"), ("final_result", "c1", {"n": 1}), ("look", "c2"))],
        "on": [calls(("final_result", "c0", {"n": 2}))],
    }
    agent = scripted(script, output_type=Answer, end_strategy=strategy)

    @agent.tool_plain
    async def look() -> str:
        return "seen"

    rig.serve(bind(agent, id=AGENT, tools={"look": ToolClass.READONLY}))
    sid = rig.submit("go")
    on = rig.submit("on")
    assert rig.settle() == ["settled", "settled"]
    assert rig.settlement(sid)["result"] == {"n": 1}
    assert sorted(p["toolCallId"] for p in rig.payloads(sid, "ToolCallSettled")) == ["c0", "c1", "c2"]
    assert rig.settlement(on)["result"] == {"n": 2}


@pytest.mark.parametrize("strategy", ["graceful", "exhaustive"])
def test_a_batch_with_a_final_answer_is_taken_up_after_a_crash(rig: Rig, script: Script, strategy: Any):
    """Recorded results are served, the output call runs again, the model is not asked again."""
    script.steps = {"go": [calls(("look", "c0"), ("final_result", "c1", {"n": 1}), ("look", "c2"))]}
    agent = scripted(script, output_type=Answer, end_strategy=strategy)
    ran: list[str] = []

    @agent.tool_plain
    async def look() -> str:
        ran.append("look")
        return "seen"

    rig.serve(bind(agent, id=AGENT, tools={"look": ToolClass.READONLY}))
    sid = rig.submit("go")
    with rig.crashing("terminalize:before-canonical-append"):
        rig.attempt()
    assert rig.settle() == ["settled"]
    assert script.asked == 1
    assert rig.settlement(sid)["result"] == {"n": 1}


def test_an_unknown_tool_is_answered_and_never_open(rig: Rig, script: Script):
    """A hallucinated name is declared as rejected and told to the model."""
    script.steps = {"go": [calls(("no_such_tool", "c0")), says("sorry")]}
    rig.serve(bind(scripted(script), id=AGENT))
    sid = rig.submit("go")
    assert rig.attempt().ended == "settled"
    (declared,) = rig.payloads(sid, "ModelResponseRecorded")[0]["calls"]
    assert declared["rejected"] is True
    assert "Unknown tool name" in rig.payloads(sid, "ToolCallSettled")[0]["result"]


@pytest.mark.parametrize("crash", [False, True])
def test_arguments_that_are_no_json_are_answered(rig: Rig, script: Script, crash: bool):
    """Text that does not parse is recorded as it came; a crash in between changes nothing."""
    broken = ModelResponse(parts=[ToolCallPart("look", '{"n": ', tool_call_id="c0")])
    script.steps = {"go": [broken, says("sorry")]}
    agent = scripted(script)

    @agent.tool_plain
    async def look(n: int) -> str:
        return f"saw {n}"

    rig.serve(bind(agent, id=AGENT))
    sid = rig.submit("go")
    if crash:
        with rig.crashing("turn:after-response-append"):
            rig.attempt()
    rig.settle()
    (declared,) = rig.payloads(sid, "ModelResponseRecorded")[0]["calls"]
    assert (declared["arguments"], declared["rejected"]) == ('{"n": ', True)
    assert rig.payloads(sid, "ToolCallUnknown") == []
    assert rig.settlement(sid)["result"] == "sorry"


def test_a_history_processor_shapes_what_is_sent_not_what_is_kept(rig: Rig, script: Script):
    """Only the last exchanges are sent; the log keeps all, and a later Run is cut in the same way."""

    def keep_two(messages: list[ModelMessage]) -> list[ModelMessage]:
        return messages[-1:]

    script.steps = {"one": [says("1")], "two": [says("2")], "three": [says("3")]}
    agent = scripted(script, capabilities=[ProcessHistory(keep_two)])
    rig.serve(bind(agent, id=AGENT))
    for prompt in ("one", "two", "three"):
        sid = rig.submit(prompt)
        rig.settle()
        rig.restart()
        assert rig.settlement(sid)["outcome"] == "completed"
    assert [len(messages) for messages in script.seen] == [1, 1, 1]


def test_a_fallback_model_is_asked_before_anything_is_asked_again(rig: Rig, script: Script):
    """An agent's own fallback answers; our retries are for what is left when it has none."""
    script.steps = {"go": [ModelHTTPError(503, "scripted", "down")]}
    other = Script(steps={"go": [says("from the other")]})
    agent = scripted(script, capabilities=[ModelFallback(FunctionModel(other, model_name="other"))])
    rig.serve(bind(agent, id=AGENT))
    sid = rig.submit("go")
    rig.attempt()
    assert rig.settlement(sid)["result"] == "from the other"
    assert (script.asked, other.asked, rig.slept) == (1, 1, [])


class Noting(AbstractCapability[Any]):
    """A capability of the user's own, inside ours."""

    id = "noting"

    def __init__(self) -> None:
        self.ran: list[str] = []

    async def wrap_tool_execute(self, ctx, *, call, tool_def, args, handler):
        self.ran.append(call.tool_call_id)
        return f"{await handler(args)}!"


def test_a_users_own_hooks_run_with_the_handler_and_not_for_a_recorded_result(rig: Rig, script: Script):
    """What is recorded is what they made of it; serving it again does not run them again."""
    script.steps = {"go": [calls(("look", "c0"), ("wait", "c1")), says("done")]}
    noting = Noting()
    agent = scripted(script, capabilities=[noting])

    @agent.tool_plain
    async def look() -> str:
        return "seen"

    @agent.tool_plain
    async def wait() -> str:
        while "ToolCallSettled" not in rig.kinds(sid):
            await asyncio.sleep(0.002)
        return "waited"

    tools = {"look": ToolClass.READONLY, "wait": ToolClass.READONLY}
    rig.serve(bind(agent, id=AGENT, tools=tools))
    sid = rig.submit("go")
    with rig.crashing("turn:before-results-append"):
        rig.attempt()
    rig.settle()
    assert noting.ran == ["c0", "c1", "c1"]
    assert [p["result"] for p in rig.payloads(sid, "ToolCallSettled")] == ["seen!", "waited!"]


def test_a_tool_that_is_found_by_search_stays_found_after_a_crash(rig: Rig, script: Script):
    """Deferred tools: the reveal is part of the history that is rebuilt."""
    script.steps = {
        "go": [calls(("search_tools", "c0", {"queries": ["weather"]})), calls(("weather", "c1")), says("sunny")]
    }
    agent = scripted(script)

    @agent.tool_plain(defer_loading=True)
    async def weather() -> str:
        """The weather today."""
        return "sun"

    rig.serve(bind(agent, id=AGENT, other_tools=ToolClass.READONLY))
    sid = rig.submit("go")
    with rig.crashing("turn:after-results-append"):
        rig.attempt()
    rig.settle()
    results = {p["toolName"]: p["result"] for p in rig.payloads(sid, "ToolCallSettled")}
    assert results["weather"] == "sun"
    assert rig.settlement(sid)["result"] == "sunny"


def test_tracing_changes_nothing(rig: Rig, script: Script):
    """F21: instrumentation on, warnings as errors: the same records."""
    script.steps = {"go": [calls(("look", "c0")), says("done")]}
    agent = scripted(script, instructions="x")
    agent.instrument = True

    @agent.tool_plain
    async def look() -> str:
        return "seen"

    rig.serve(bind(agent, id=AGENT))
    sid = rig.submit("go")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rig.attempt().ended == "settled"
    assert rig.settlement(sid)["result"] == "done"


def test_two_agents_share_one_thread(rig: Rig, script: Script):
    """Each reads what the other said; each input is run by the agent it names."""
    other = Script(steps={"b": [says("b said")]})
    script.steps = {"a": [says("a said")], "a again": [says("a again")]}
    rig.serve(bind(scripted(script), id="a"), bind(scripted(other), id="b"))
    for prompt, agent in (("a", "a"), ("b", "b"), ("a again", "a")):
        rig.submit(prompt, agent=agent)
    assert rig.settle() == ["settled"] * 3
    said = [part.content for message in script.seen[-1] for part in message.parts]
    assert said == ["a", "a said", "b", "b said", "a again"]


def test_an_input_of_several_parts_is_a_prompt_of_several_parts(rig: Rig):
    """Texts and pydantic-ai's own file items; any other JSON is its text."""
    seen: list[Any] = []

    async def model(messages: list[ModelMessage], _info: Any) -> ModelResponse:
        seen.append(messages[-1].parts[-1].content)
        return ModelResponse(parts=[TextPart("ok")])

    rig.serve(bind(Agent(FunctionModel(model)), id=AGENT))
    rig.submit(["what is this?", {"kind": "image-url", "url": "https://example.com/a.png"}])
    rig.submit({"order": 7})
    assert rig.settle() == ["settled", "settled"]
    assert seen[0][0] == "what is this?"
    assert isinstance(seen[0][1], ImageUrl)
    assert seen[1] == '{"order":7}'


def test_a_wrapped_agent_is_an_agent(rig: Rig, script: Script):
    """Whatever offers pydantic-ai's own loop."""
    script.steps = {"go": [calls(("look", "c0")), says("done")]}
    agent = scripted(script)

    @agent.tool_plain
    async def look() -> str:
        return "seen"

    rig.serve(bind(WrapperAgent(agent), id=AGENT, tools={"look": ToolClass.READONLY}))
    sid = rig.submit("go")
    with rig.crashing("turn:after-response-append"):
        rig.attempt()
    rig.settle()
    assert rig.settlement(sid)["result"] == "done"
