"""F5: whatever became of earlier Runs, the model reads a history in which calls and results pair."""

import asyncio
import threading

import pytest

from tests.unit.attempt.rig import AGENT, Rig, Script, calls, says, scripted, unpaired
from thread_objects.agents import ToolPolicy, bind
from thread_objects.contract.states import Decision, ResolutionKind, SubmissionState, ToolClass


@pytest.fixture
def shop(rig: Rig, script: Script):
    """An agent with one tool of each kind, served; `paid` counts."""
    agent = scripted(script)
    paid: list[str] = []
    started = threading.Event()

    @agent.tool_plain
    async def look() -> str:
        return "seen"

    @agent.tool_plain
    async def pay() -> str:
        paid.append("pay")
        started.set()
        return "paid"

    @agent.tool_plain
    async def hang() -> str:
        started.set()
        await asyncio.sleep(60)
        return "late"

    @agent.tool_plain
    async def refund() -> str:
        return "refunded"

    @agent.tool_plain
    async def broken() -> str:
        raise ValueError("broken")

    script.steps = {
        "pay": [calls(("look", "c0"), ("pay", "c1")), says("paid")],
        "hang": [calls(("look", "c0"), ("hang", "c1")), says("x")],
        "refund": [calls(("look", "c0"), ("refund", "c1")), says("x")],
        "broken": [calls(("look", "c0"), ("broken", "c1")), says("x")],
        "turns": [calls(("look", "c0")), calls(("look", "c1")), calls(("look", "c2"))],
        "silent": [RuntimeError("no answer")],
        "after": [says("after")],
        "and after": [calls(("look", "c0")), says("and after")],
    }
    rig.serve(
        bind(
            agent,
            id=AGENT,
            tools={"look": ToolClass.READONLY, "refund": ToolPolicy(approval=True), "hang": ToolClass.UNCERTAIN},
        )
    )
    rig.paid, rig.hanging = paid, started  # type: ignore[attr-defined]
    return rig


def told(script: Script, name: str) -> list[str]:
    """What the last request says of calls of this tool."""
    return [
        str(part.content)
        for message in script.seen[-1]
        for part in message.parts
        if part.part_kind == "tool-return" and part.tool_name == name
    ]


def both_after(rig: Rig, script: Script) -> None:
    """Two further inputs settle, remembered or not, and what they read pairs."""
    for prompt in ("after", "and after"):
        sid = rig.submit(prompt)
        rig.settle()
        assert rig.settlement(sid)["result"] == prompt
        assert all(unpaired(messages) == [] for messages in script.seen)
        rig.restart()


def test_after_an_unknown_outcome(shop: Rig, script: Script):
    """The parked call is told as unknown; when it is resolved, its Run takes its own place in the history."""
    sid = shop.submit("pay")
    with shop.crashing("turn:before-results-append"):
        shop.attempt()
    shop.settle()
    assert shop.state(sid) is SubmissionState.UNKNOWN
    both_after(shop, script)
    assert "unknown" in told(script, "pay")[0]
    shop.resolve(sid, "c1", ResolutionKind.COMPLETED_WITH_RESULT, "paid, says the bank")
    assert shop.settle() == ["settled"]
    own = script.seen[-1]
    assert [p.content for m in own for p in m.parts if p.part_kind == "user-prompt"] == ["pay"]
    assert told(script, "pay") == ["paid, says the bank"]
    both_after(shop, script)
    assert told(script, "pay") == ["paid, says the bank"]
    assert shop.paid == ["pay"]


def test_after_an_abort_in_the_middle_of_a_batch(shop: Rig, script: Script):
    """The interrupted call is told as unknown."""
    sid = shop.submit("hang")
    threading.Thread(target=lambda: (shop.hanging.wait(10), shop.abort(sid))).start()
    shop.attempt()
    assert shop.settlement(sid)["outcome"] == "aborted"
    both_after(shop, script)
    assert "unknown" in told(script, "hang")[0]


def test_after_an_abort_before_the_batch_started(shop: Rig, script: Script):
    """A suspended batch that was aborted is told as not executed."""
    sid = shop.submit("refund")
    shop.attempt()
    shop.abort(sid)
    shop.settle()
    both_after(shop, script)
    assert "Not executed" in told(script, "refund")[0]


def test_after_a_denial(shop: Rig, script: Script):
    """The denied call is told as denied, its siblings as not executed."""
    sid = shop.submit("refund")
    shop.attempt()
    shop.decide(sid, "c1", Decision.DENIED)
    shop.settle()
    both_after(shop, script)
    assert "denied" in told(script, "refund")[0]


def test_after_a_failed_tool(shop: Rig, script: Script):
    """The failure is its result."""
    shop.submit("broken")
    shop.settle()
    both_after(shop, script)
    assert told(script, "broken") == ["ValueError: broken"]


def test_after_a_model_that_never_answered(shop: Rig, script: Script):
    """The unanswered input stays part of the conversation."""
    shop.submit("silent")
    shop.settle()
    both_after(shop, script)
    prompts = [p.content for m in script.seen[-1] for p in m.parts if p.part_kind == "user-prompt"]
    assert prompts == ["silent", "after", "and after"]


def test_after_a_policy_that_ran_out_between_batches(shop: Rig, script: Script):
    """Every batch is whole, the last one included."""
    sid = shop.submit("turns")
    shop.registry.get(AGENT)._policy = shop.registry.get(AGENT).policy.model_copy(update={"turns_max": 2})
    shop.attempt()
    assert shop.settlement(sid)["policyLimit"] == "turns"
    both_after(shop, script)


@pytest.mark.parametrize("prompt", ["pay", "turns", "refund"])
@pytest.mark.parametrize(
    "failpoint",
    ["claim:after", "turn:after-response-append", "turn:after-results-append", "terminalize:after-canonical-append"],
)
def test_after_a_crash_at_each_boundary(shop: Rig, script: Script, prompt: str, failpoint: str):
    """Kill, then abort what is left, then new input: nothing is refused by a provider."""
    script.steps["turns"].append(says("enough"))
    sid = shop.submit(prompt)
    if prompt == "refund" and failpoint not in ("claim:after", "turn:after-response-append"):
        failpoint = "approval:after-suspend"
    with shop.crashing(failpoint):
        shop.attempt()
    shop.settle()
    if shop.state(sid) is not SubmissionState.SETTLED:
        shop.abort(sid)
        shop.settle()
    assert shop.state(sid) is SubmissionState.SETTLED
    both_after(shop, script)
