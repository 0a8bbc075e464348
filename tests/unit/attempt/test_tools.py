"""What a tool may do to an Attempt: take long, block, return too much, ask who it is, be made of Steps."""

import asyncio
import hashlib
import threading
import time
from typing import Any

import pytest
from pydantic_ai import ToolReturn
from pydantic_ai.messages import BinaryContent, ToolReturnPart, UserPromptPart

from activities.control import Control
from tests.unit.attempt.rig import AGENT, PRINCIPAL, Rig, Script, calls, says, scripted
from thread_objects.agents import (
    CompletedWithResult,
    LostCall,
    NeverStarted,
    SafeToRetry,
    ToolCall,
    ToolPolicy,
    bind,
    current_call,
)
from thread_objects.contract.limits import TOOL_RESULT_BYTES_MAX, TURN_BYTES_MAX
from thread_objects.contract.states import SubmissionState, ToolClass


def returned(script: Script) -> dict[str, Any]:
    """What the model read of its last batch."""
    return {p.tool_call_id: p.content for p in script.seen[-1][-1].parts if isinstance(p, ToolReturnPart)}


@pytest.mark.parametrize("tool_class", [ToolClass.READONLY, ToolClass.IDEMPOTENT])
def test_a_repeatable_call_that_overruns_is_told_to_the_model(rig: Rig, script: Script, tool_class: ToolClass):
    """The result is a failure that says so; the Run goes on."""
    script.steps = {"go": [calls(("slow", "c0")), says("noted")]}
    agent = scripted(script)

    @agent.tool_plain
    async def slow() -> str:
        await asyncio.sleep(60)
        return "late"

    rig.serve(bind(agent, id=AGENT, tools={"slow": ToolPolicy(tool_class=tool_class, timeout_ms=20)}))
    sid = rig.submit("go")
    assert rig.attempt().ended == "settled"
    (settled,) = rig.payloads(sid, "ToolCallSettled")
    assert (settled["isFailure"], settled["result"]) == (True, "Timed out after 0.02 seconds.")
    assert rig.settlement(sid)["result"] == "noted"


def test_an_uncertain_call_that_overruns_becomes_unknown(rig: Rig, script: Script):
    """Its effect may have happened: the sibling's result is kept, the call is marked, the row parked."""
    script.steps = {"go": [calls(("pay", "c0"), ("look", "c1")), says("paid")], "later": [says("later")]}
    agent = scripted(script)
    ran: list[str] = []

    @agent.tool_plain
    async def pay() -> str:
        ran.append("pay")
        await asyncio.sleep(60)
        return "paid"

    @agent.tool_plain
    async def look() -> str:
        await asyncio.sleep(0.05)
        return "seen"

    rig.serve(bind(agent, id=AGENT, tools={"pay": ToolPolicy(timeout_ms=20), "look": ToolClass.READONLY}))
    sid = rig.submit("go")
    later = rig.submit("later")
    answer = rig.attempt()
    assert (answer.ended, answer.view.unknown) == ("unknown", 1)
    assert rig.state(sid) is SubmissionState.UNKNOWN
    assert [p["toolCallId"] for p in rig.payloads(sid, "ToolCallSettled")] == ["c1"]
    assert [p["toolCallId"] for p in rig.payloads(sid, "ToolCallUnknown")] == ["c0"]
    assert rig.settle() == ["settled"]
    assert rig.settlement(later)["result"] == "later"
    assert ran == ["pay"]


def test_a_reconciler_closes_what_overran(rig: Rig, script: Script):
    """It is asked about exactly this call, and the Run goes on with what it says."""
    script.steps = {"go": [calls(("pay", "c0", {"amount": 5})), says("paid")]}
    agent = scripted(script)
    asked: list[LostCall] = []

    @agent.tool_plain
    async def pay(amount: int) -> str:
        await asyncio.sleep(60)
        return f"paid {amount}"

    def look_up(call: LostCall) -> CompletedWithResult:
        asked.append(call)
        return CompletedWithResult("paid 5, says the bank")

    rig.serve(bind(agent, id=AGENT, tools={"pay": ToolPolicy(timeout_ms=20, reconciler=look_up)}))
    sid = rig.submit("go")
    assert rig.settle() == ["yielded", "settled"]
    (call,) = asked
    assert (call.tool_name, call.arguments, call.submission_id) == ("pay", {"amount": 5}, sid)
    assert returned(script) == {"c0": "paid 5, says the bank"}
    assert rig.settlement(sid)["result"] == "paid"


@pytest.mark.parametrize("verdict", [NeverStarted(), SafeToRetry()])
def test_a_reconcilers_permission_runs_the_call_again(rig: Rig, script: Script, verdict: Any):
    """The proof belongs to the very next claim; the call runs once more and the Run ends."""
    script.steps = {"go": [calls(("pay", "c0")), says("paid")]}
    agent = scripted(script)
    ran: list[str] = []

    @agent.tool_plain
    async def pay() -> str:
        ran.append("pay")
        return "paid"

    rig.serve(bind(agent, id=AGENT, tools={"pay": ToolPolicy(reconciler=lambda _call: verdict)}))
    sid = rig.submit("go")
    with rig.crashing("turn:before-results-append"):
        rig.attempt()
    assert rig.settle() == ["settled"]
    assert ran == ["pay", "pay"]
    assert rig.payloads(sid, "ToolCallUnknown") == []


def test_a_synchronous_tool_that_hangs_is_bounded(rig: Rig, script: Script):
    """Its thread is left behind; the Attempt goes on."""
    release = threading.Event()
    script.steps = {"go": [calls(("hang", "c0")), says("noted")]}
    agent = scripted(script)

    @agent.tool_plain
    def hang() -> str:
        release.wait(30)
        return "late"

    rig.serve(bind(agent, id=AGENT, tools={"hang": ToolPolicy(tool_class=ToolClass.READONLY, timeout_ms=50)}))
    sid = rig.submit("go")
    began = time.monotonic()
    try:
        assert rig.attempt().ended == "settled"
    finally:
        release.set()
    assert time.monotonic() - began < 5
    assert rig.settlement(sid)["result"] == "noted"


def test_an_agents_own_shorter_bound_counts(rig: Rig, script: Script):
    """A pydantic-ai `timeout` on an uncertain tool does not turn into an invitation to repeat it."""
    script.steps = {"go": [calls(("pay", "c0")), says("never")]}
    agent = scripted(script)

    @agent.tool_plain(timeout=0.02)
    async def pay() -> str:
        await asyncio.sleep(60)
        return "paid"

    rig.serve(bind(agent, id=AGENT))
    sid = rig.submit("go")
    assert rig.attempt().ended == "unknown"
    assert rig.state(sid) is SubmissionState.UNKNOWN


def test_a_tool_that_blocks_the_loop_is_noticed_by_whoever_beats_for_it(rig: Rig, script: Script):
    """The heartbeat's thread sees that the loop is silent for longer than the tool may take."""
    script.steps = {"go": [calls(("block", "c0")), says("done")]}
    agent = scripted(script)
    control = Control()
    silent: list[bool] = []

    @agent.tool_plain
    async def block() -> str:
        silent.append(control.silent())
        return "ok"

    rig.serve(bind(agent, id=AGENT))
    rig.submit("go")
    assert rig.attempt(control=control).ended == "settled"
    assert silent == [False]


@pytest.mark.parametrize(
    "result",
    ["x" * (4 * 1_048_576), {"rows": ["y" * 1_000] * 4_200}, list(range(5_000)), ["z"] * 300_000],
    ids=["text", "data", "too-many-items", "both"],
)
def test_a_result_that_is_too_large_is_kept_as_an_excerpt(rig: Rig, script: Script, result: Any):
    """F2: at once, with head, tail, original size and digest; the model reads exactly what is recorded."""
    script.steps = {"go": [calls(("big", "c0")), says("done")]}
    agent = scripted(script)

    @agent.tool_plain
    async def big() -> Any:
        return result

    rig.serve(bind(agent, id=AGENT))
    sid = rig.submit("go")
    assert rig.attempt().ended == "settled"
    (settled,) = rig.payloads(sid, "ToolCallSettled")
    kept = settled["result"]
    assert kept["truncated"] is True
    if isinstance(result, str):
        assert (kept["bytes"], kept["sha256"]) == (len(result), hashlib.sha256(result.encode()).hexdigest())
    assert kept["head"] and kept["tail"]
    assert len(str(settled)) < TOOL_RESULT_BYTES_MAX
    assert returned(script) == {"c0": kept}
    assert rig.settlement(sid)["result"] == "done"


def test_the_results_of_one_turn_have_a_bound_together(rig: Rig, script: Script):
    """Forty results of 200 KB are more than a Turn may hold: each keeps its share."""
    script.steps = {"go": [calls(*(("big", f"c{n}") for n in range(40))), says("done")]}
    agent = scripted(script)

    @agent.tool_plain
    async def big() -> str:
        return "x" * 200_000

    rig.serve(bind(agent, id=AGENT, tools={"big": ToolClass.READONLY}))
    sid = rig.submit("go")
    assert rig.attempt().ended == "settled"
    kept = rig.payloads(sid, "ToolCallSettled")
    assert len(kept) == 40
    assert sum(len(str(payload)) for payload in kept) < TURN_BYTES_MAX
    assert rig.settlement(sid)["result"] == "done"


def test_files_and_further_content_survive_a_crash(rig: Rig, script: Script):
    """A ToolReturn's value, its content for the model and a file come back as they were."""
    picture = BinaryContent(data=bytes(range(256)), media_type="image/png")
    script.steps = {"go": [calls(("draw", "c0"), ("look", "c1")), says("done")]}
    agent = scripted(script)

    @agent.tool_plain
    async def draw() -> ToolReturn:
        return ToolReturn(return_value={"drawn": 1}, content=["look:", picture], metadata={"k": "v"})

    @agent.tool_plain
    async def look() -> list[Any]:
        return ["here", picture]

    rig.serve(bind(agent, id=AGENT, tools={"draw": ToolClass.READONLY, "look": ToolClass.READONLY}))
    sid = rig.submit("go")
    with rig.crashing("turn:after-results-append"):
        rig.attempt()
    rig.settle()
    assert rig.settlement(sid)["result"] == "done"
    (content,) = (p.content for p in script.seen[-1][-1].parts if isinstance(p, UserPromptPart))
    assert content[0] == "look:"
    assert content[1].data == picture.data
    assert returned(script)["c0"] == {"drawn": 1}
    assert returned(script)["c1"][1].data == picture.data


def test_a_file_that_is_too_large_is_left_out_with_a_notice(rig: Rig, script: Script):
    """A cut file is no file: its type, size and digest are told instead."""
    data = b"\x00" * 400_000
    script.steps = {"go": [calls(("draw", "c0")), says("done")]}
    agent = scripted(script)

    @agent.tool_plain
    async def draw() -> BinaryContent:
        return BinaryContent(data=data, media_type="image/png")

    rig.serve(bind(agent, id=AGENT))
    rig.submit("go")
    assert rig.attempt().ended == "settled"
    assert hashlib.sha256(data).hexdigest() in returned(script)["c0"]
    assert "400000 bytes" in returned(script)["c0"]


def test_a_handler_may_ask_which_call_it_serves(rig: Rig, script: Script):
    """Ids, class, principal, and a key that is the same in every Attempt; synchronous handlers too."""
    script.steps = {"go": [calls(("order", "c0"), ("plain", "c1")), says("done")]}
    agent = scripted(script)
    seen: list[ToolCall] = []

    @agent.tool_plain
    async def order() -> str:
        seen.append(current_call())
        return "ordered"

    @agent.tool_plain
    def plain() -> str:
        seen.append(current_call())
        return "ok"

    rig.serve(bind(agent, id=AGENT, tools={"order": ToolClass.IDEMPOTENT, "plain": ToolClass.IDEMPOTENT}))
    sid = rig.submit("go")
    with rig.crashing("turn:before-call-results-append"):
        rig.attempt()
    rig.settle()
    orders = [call for call in seen if call.tool_name == "order"]
    assert len(orders) == 2
    assert orders[0].idempotency_key == orders[1].idempotency_key
    assert orders[0].attempt != orders[1].attempt
    assert (orders[0].submission_id, orders[0].principal, orders[0].turn) == (sid, PRINCIPAL, 1)
    assert len({call.idempotency_key for call in seen}) == 2
    with pytest.raises(LookupError):
        current_call()


def test_a_recorded_step_is_not_entered_again(rig: Rig, script: Script):
    """EVI-025: with steps a and b, a done: after the crash a's body does not run again, b does."""
    script.steps = {"go": [calls(("book", "c0")), says("booked")]}
    agent = scripted(script)
    entered: list[str] = []

    @agent.tool_plain
    async def book() -> str:
        call = current_call()

        async def flight() -> dict[str, int]:
            entered.append("flight")
            return {"seat": 7}

        async def hotel() -> str:
            entered.append("hotel")
            return "room 12"

        seat = await call.step("flight", flight)
        room = await call.step("hotel: with, [separators]", hotel)
        return f"{seat['seat']} {room}"

    rig.serve(bind(agent, id=AGENT, tools={"book": ToolPolicy(durable=True)}))
    sid = rig.submit("go")
    with rig.crashing("step:after-step-append"):
        rig.attempt()
    assert entered == ["flight"]
    rig.settle()
    assert entered == ["flight", "hotel"]
    assert rig.payloads(sid, "ToolCallSettled")[0]["result"] == "7 room 12"
    assert rig.payloads(sid, "ToolCallUnknown") == []


@pytest.mark.parametrize(("durable", "names"), [(False, ["a"]), (True, ["a", "a"])])
def test_a_step_that_no_record_could_answer_is_refused(rig: Rig, script: Script, durable: bool, names: list[str]):
    """A tool that is not durable has no Steps, and a name stands for one Step."""
    script.steps = {"go": [calls(("book", "c0")), says("never")]}
    agent = scripted(script)

    @agent.tool_plain
    async def book() -> str:
        async def body() -> int:
            return 1

        for name in names:
            await current_call().step(name, body)
        return "booked"

    rig.serve(bind(agent, id=AGENT, tools={"book": ToolPolicy(durable=durable)}))
    sid = rig.submit("go")
    rig.attempt()
    assert rig.settlement(sid)["diagnostic"]["errorTag"] == "StepDiverged"


def test_calls_of_one_batch_run_beside_one_another_unless_the_tool_says_otherwise(rig: Rig, script: Script):
    """pydantic-ai's own `sequential` stays a barrier; what comes after it starts after it."""
    script.steps = {"go": [calls(("a", "c0"), ("alone", "c1"), ("a", "c2")), says("done")]}
    agent = scripted(script)
    order: list[str] = []

    @agent.tool_plain
    async def a() -> str:
        order.append("a+")
        await asyncio.sleep(0.01)
        order.append("a-")
        return "a"

    @agent.tool_plain(sequential=True)
    async def alone() -> str:
        order.append("alone")
        return "alone"

    rig.serve(bind(agent, id=AGENT))
    rig.submit("go")
    assert rig.attempt().ended == "settled"
    assert order == ["a+", "a-", "alone", "a+", "a-"]
