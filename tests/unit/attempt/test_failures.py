"""What goes wrong in a Run settles it `failed`, with a diagnostic, never with silence."""

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import ModelRetry
from pydantic_ai.exceptions import (
    ModelConnectionError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ToolFailed,
)

from tests.unit.attempt.rig import AGENT, Rig, Script, calls, says, scripted
from thread_objects.agents import RunPolicy, bind
from thread_objects.contract.states import SubmissionState, ToolClass

SECRET = "provider payload with a secret"


def http(status: int, *, after: str | None = None) -> ModelHTTPError:
    """What a provider's client raises."""
    headers = {"retry-after": after} if after is not None else None
    return ModelHTTPError(status, "scripted", {"error": SECRET}, headers=headers)


def failing(*errors: Exception, then: str = "done"):
    """A step that fails with these errors in turn, then answers."""
    left = list(errors)

    def step(_messages):
        if left:
            raise left.pop(0)
        return says(then)

    return step


@pytest.mark.parametrize(
    ("error", "asked"),
    [
        (http(500), 4),
        (http(503), 4),
        (http(529), 4),
        (http(429), 4),
        (http(408), 4),
        (ModelConnectionError("scripted", "no route"), 4),
        (http(400), 1),
        (http(401), 1),
        (http(403), 1),
        (http(404), 1),
        (ModelQuotaExceededError("scripted", "spent"), 1),
        (RuntimeError("a bug"), 1),
    ],
)
def test_a_model_that_always_fails_is_asked_a_bounded_number_of_times(
    rig: Rig, script: Script, error: Exception, asked: int
):
    """F14, F34: exact counts, one owner of retries, then a failed Settlement that says what it was."""
    script.steps = {"go": [error]}
    rig.serve(bind(scripted(script), id=AGENT))
    sid = rig.submit("go")
    assert rig.attempt().ended == "settled"
    assert script.asked == asked
    settlement = rig.settlement(sid)
    assert settlement["outcome"] == "failed"
    assert settlement["diagnostic"]["errorTag"] == type(error).__name__
    assert SECRET not in str(settlement)
    assert settlement["result"] is None


def test_a_model_that_recovers_is_not_noticed(rig: Rig, script: Script):
    """F34: 503 twice, then an answer: completed; the waits grow from the base and stay within the cap."""
    script.steps = {"go": [failing(http(503), http(503))]}
    rig.serve(bind(scripted(script), id=AGENT, policy=RunPolicy(model_retry_base_ms=400, model_retry_cap_ms=500)))
    sid = rig.submit("go")
    rig.attempt()
    assert rig.settlement(sid)["result"] == "done"
    first, second = rig.slept
    assert 0.3 <= first <= 0.4
    assert 0.375 <= second <= 0.5


def test_retry_after_is_honoured_to_the_letter(rig: Rig, script: Script):
    """F14: 429 with Retry-After 2 s waits 2 s, neither less nor with jitter."""
    script.steps = {"go": [failing(http(429, after="2"))]}
    rig.serve(bind(scripted(script), id=AGENT))
    rig.submit("go")
    assert rig.attempt().ended == "settled"
    assert rig.slept == [2.0]


def test_a_provider_that_asks_for_an_hour_is_not_waited_for(rig: Rig, script: Script):
    """Past the policy's bound the request has failed."""
    script.steps = {"go": [failing(http(429, after="3600"))]}
    rig.serve(bind(scripted(script), id=AGENT))
    sid = rig.submit("go")
    rig.attempt()
    assert rig.settlement(sid)["diagnostic"]["errorTag"] == "ModelHTTPError"
    assert rig.slept == []


def test_each_request_has_its_own_retries(rig: Rig, script: Script):
    """The count starts anew with every Turn."""
    script.steps = {"go": [failing(http(500), http(500), then="x")]}
    first, second = failing(http(500), http(500)), failing(http(500), http(500))

    def one(messages):
        first(messages)
        return calls(("look", "c0"))

    script.steps = {"go": [one, second]}
    agent = scripted(script)

    @agent.tool_plain
    async def look() -> str:
        return "seen"

    rig.serve(bind(agent, id=AGENT))
    sid = rig.submit("go")
    rig.attempt()
    assert rig.settlement(sid)["result"] == "done"
    assert script.asked == 6


def test_a_model_that_hangs_is_bounded(rig: Rig, script: Script):
    """Each request has the policy's time; then it counts as failed and is made again."""
    attempts = 0

    async def hangs(_messages):
        nonlocal attempts
        attempts += 1
        await asyncio.sleep(60)

    script.steps = {"go": [hangs]}
    rig.serve(bind(scripted(script), id=AGENT, policy=RunPolicy(model_timeout_ms=30, model_retries_max=1)))
    sid = rig.submit("go")
    rig.attempt()
    assert attempts == 2
    assert rig.settlement(sid)["diagnostic"]["errorTag"] == "ModelRequestTimeout"


def test_a_tool_that_raises_ends_the_run_after_its_siblings(rig: Rig, script: Script):
    """The failure is recorded with its call, the sibling's result is kept, later input reads a paired history."""
    script.steps = {"go": [calls(("broken", "c0"), ("pay", "c1")), says("never")], "later": [says("later")]}
    agent = scripted(script)
    paid: list[str] = []

    @agent.tool_plain
    async def broken() -> str:
        await asyncio.sleep(0.001)
        raise ValueError("cannot do that")

    @agent.tool_plain
    async def pay() -> str:
        await asyncio.sleep(0.01)
        paid.append("pay")
        return "paid"

    rig.serve(bind(agent, id=AGENT))
    sid = rig.submit("go")
    later = rig.submit("later")
    assert rig.settle() == ["settled", "settled"]
    settlement = rig.settlement(sid)
    assert settlement["diagnostic"] == {"errorTag": "ValueError", "message": "cannot do that"}
    assert paid == ["pay"]
    results = {p["toolCallId"]: (p["isFailure"], p["result"]) for p in rig.payloads(sid, "ToolCallSettled")}
    assert results["c1"] == (False, "paid")
    assert results["c0"][0] is True
    assert rig.payloads(sid, "ToolCallUnknown") == []
    assert rig.settlement(later)["result"] == "later"


def test_a_tool_may_ask_the_model_to_try_again(rig: Rig, script: Script):
    """pydantic-ai's ModelRetry stays a message to the model; the counter survives a crash."""
    script.steps = {"go": [calls(("look", "c0")), calls(("look", "c1")), calls(("look", "c2")), says("never")]}
    agent = scripted(script, retries=2)

    @agent.tool_plain
    async def look() -> str:
        raise ModelRetry("not yet")

    rig.serve(bind(agent, id=AGENT, tools={"look": ToolClass.READONLY}))
    sid = rig.submit("go")
    with rig.crashing("turn:after-results-append", 2):
        rig.attempt()
    rig.settle()
    settlement = rig.settlement(sid)
    assert settlement["diagnostic"]["errorTag"] == "UnexpectedModelBehavior"
    assert "exceeded max retries count of 2" in settlement["diagnostic"]["message"]
    assert script.asked == 3


def test_a_tool_may_say_that_it_failed(rig: Rig, script: Script):
    """pydantic-ai's ToolFailed is a failed result that the model reads; the Run goes on."""
    script.steps = {"go": [calls(("look", "c0")), says("understood")]}
    agent = scripted(script)

    @agent.tool_plain
    async def look() -> str:
        raise ToolFailed("out of stock")

    rig.serve(bind(agent, id=AGENT))
    sid = rig.submit("go")
    rig.attempt()
    (settled,) = rig.payloads(sid, "ToolCallSettled")
    assert (settled["isFailure"], settled["result"]) == (True, "out of stock")
    assert rig.settlement(sid)["result"] == "understood"


ALONE = RunPolicy(steering_per_seam=0)
"""Queued input gets a Run of its own."""


class Answer(BaseModel):
    """A structured output."""

    n: int


def test_a_structured_output_is_validated_retried_and_recorded(rig: Rig, script: Script):
    """Output calls are declared with kind `output`, get their result, and are never open."""
    script.steps = {
        "go": [calls(("final_result", "c0", {"n": "many"})), calls(("final_result", "c1", {"n": 7}))],
        "later": [calls(("final_result", "c2", {"n": 8}))],
    }
    rig.serve(bind(scripted(script, output_type=Answer), id=AGENT, policy=ALONE))
    sid = rig.submit("go")
    later = rig.submit("later")
    assert rig.settle() == ["settled", "settled"]
    assert rig.settlement(sid)["result"] == {"n": 7}
    declared = [call for p in rig.payloads(sid, "ModelResponseRecorded") for call in p["calls"]]
    assert [call["callKind"] for call in declared] == ["output", "output"]
    assert [p["toolCallId"] for p in rig.payloads(sid, "ToolCallSettled")] == ["c0", "c1"]
    assert rig.settlement(later)["result"] == {"n": 8}


def test_a_text_that_is_no_output_is_answered_and_survives_a_crash(rig: Rig, script: Script):
    """A response without calls that does not end the Run is recorded with the request that answers it."""
    script.steps = {"go": [says("prose"), calls(("final_result", "c1", {"n": 7}))]}
    rig.serve(bind(scripted(script, output_type=Answer, retries={"output": 1}), id=AGENT))
    sid = rig.submit("go")
    with rig.crashing("turn:after-response-append"):
        rig.attempt()
    asked = script.asked
    rig.settle()
    assert rig.settlement(sid)["result"] == {"n": 7}
    assert script.asked == asked + 1
    (feedback,) = script.seen[-1][-1].parts
    assert "Invalid JSON" in str(feedback.content)


def test_output_retries_are_not_refilled_by_a_crash(rig: Rig, script: Script):
    """One retry is one retry, over all Attempts."""
    script.steps = {"go": [says("prose"), says("more prose"), says("and more")]}
    rig.serve(bind(scripted(script, output_type=Answer, retries={"output": 1}), id=AGENT))
    sid = rig.submit("go")
    with rig.crashing("turn:after-response-append"):
        rig.attempt()
    rig.settle()
    assert rig.settlement(sid)["diagnostic"]["errorTag"] == "UnexpectedModelBehavior"
    assert script.asked == 2


def test_an_output_call_whose_result_was_lost_is_judged_again(rig: Rig, script: Script):
    """Between the response and the answer to it: judged again, recorded, and told as what it was."""
    script.steps = {
        "go": [calls(("final_result", "c0", {"n": "many"})), calls(("final_result", "c1", {"n": 7}))],
        "on": [calls(("final_result", "c0", {"n": 8}))],
    }
    rig.serve(bind(scripted(script, output_type=Answer), id=AGENT, policy=ALONE))
    sid = rig.submit("go")
    rig.submit("on")
    with rig.crashing("turn:after-response-append"):
        rig.attempt()
    assert rig.settle() == ["settled", "settled"]
    assert rig.settlement(sid)["result"] == {"n": 7}
    assert [p["toolCallId"] for p in rig.payloads(sid, "ToolCallSettled")] == ["c0", "c1"]
    assert "Not executed" not in str(script.seen[-1])


class Unspeakable:
    """No JSON."""


@pytest.mark.parametrize("output", [float("nan"), Unspeakable(), "x" * 1_100_000])
def test_an_output_that_cannot_be_kept_fails_the_run(rig: Rig, script: Script, output: Any):
    """NaN, an object, a megabyte: failed and said so, never lost and never retried for ever."""
    script.steps = {"go": [calls(("give", "c0"))], "later": [says("x")]}

    def give() -> Any:
        """The output."""
        return output

    rig.serve(bind(scripted(script, output_type=give), id=AGENT))
    script.steps["go"] = [calls(("final_result", "c0"))]
    sid = rig.submit("go")
    assert rig.attempt().ended == "settled"
    assert rig.settlement(sid)["outcome"] == "failed"


@pytest.mark.parametrize(
    ("policy", "limit", "maximum"),
    [
        (RunPolicy(turns_max=2), "turns", 2),
        (RunPolicy(tool_calls_max=3), "tool-calls", 3),
        (RunPolicy(tokens_max=1), "tokens", 1),
    ],
)
def test_a_policy_that_is_used_up_fails_with_its_limit(
    rig: Rig, script: Script, policy: RunPolicy, limit: str, maximum: int
):
    """AgentPolicyError with policyLimit; the bound holds over Attempts and nothing runs past it."""
    script.steps = {"go": [calls(("look", "c0"), ("look", "c1"))]}
    agent = scripted(script)
    ran: list[str] = []

    @agent.tool_plain
    async def look() -> str:
        ran.append("look")
        return "seen"

    rig.serve(bind(agent, id=AGENT, policy=policy))
    sid = rig.submit("go")
    assert rig.attempt().ended == "settled"
    settlement = rig.settlement(sid)
    assert (settlement["outcome"], settlement["policyLimit"]) == ("failed", limit)
    assert settlement["diagnostic"]["errorTag"] == "AgentPolicyError"
    assert str(maximum) in settlement["diagnostic"]["message"]
    assert len(ran) <= 4


def test_the_duration_ends_a_model_call_in_progress(rig: Rig, script: Script):
    """The Run's deadline is wall clock; a hanging model does not stretch it."""

    async def hangs(_messages):
        rig.clock.at += 5_000
        await asyncio.sleep(60)

    script.steps = {"go": [hangs]}
    rig.serve(bind(scripted(script), id=AGENT, policy=RunPolicy(duration_ms=1_000)))
    sid = rig.submit("go")
    assert rig.attempt().ended == "settled"
    assert rig.settlement(sid)["policyLimit"] == "duration"


def test_a_missing_binding_parks_the_work(rig: Rig, script: Script):
    """Unbound, with the ids the workflow needs; the work is done once a deploy has the agent again."""
    script.steps = {"go": [says("done")]}
    binding = bind(scripted(script), id=AGENT)
    rig.serve(binding)
    sid = rig.submit("go")
    rig.serve()
    answer = rig.attempt()
    assert (answer.ended, answer.submission_id, answer.agent_id) == ("unbound", sid, AGENT)
    assert rig.state(sid) is SubmissionState.READY
    rig.serve(binding)
    assert rig.attempt().ended == "settled"


def test_an_input_this_deploy_cannot_read_stays_owed(rig: Rig, script: Script):
    """The claim is released, nothing is settled, and the next deploy reads it."""
    script.steps = {"go": [says("done")]}

    def adapter(_value):
        raise KeyError("text")

    rig.serve(bind(scripted(script), id=AGENT, input_adapter=adapter))
    sid = rig.submit("go")
    answer = rig.attempt()
    assert (answer.ended, answer.submission_id) == ("unbound", sid)
    assert rig.snapshot(sid).ownership is None
    rig.serve(bind(scripted(script), id=AGENT))
    assert rig.attempt().ended == "settled"
