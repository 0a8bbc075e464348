"""A Run from its input to its end: what is committed when, and what the model reads."""

import asyncio

from pydantic_ai.messages import ToolReturnPart

from activities.supervise import Pace
from tests.unit.attempt.rig import AGENT, Rig, Script, calls, says, scripted
from thread_objects.agents import RunPolicy, bind
from thread_objects.contract.states import Outcome, SubmissionState, ToolClass


def test_a_final_answer_is_one_batch_and_one_transaction(rig: Rig, script: Script):
    """Response, output and settlement of a one-turn Run are committed together; nothing of the log is read."""
    script.steps = {"hi": [says("hello")]}
    rig.serve(bind(scripted(script), id=AGENT))
    sid = rig.submit("hi")
    rig.hits.clear()
    answer = rig.attempt()
    assert (answer.ended, answer.settled.outcome, answer.submission_id) == ("settled", Outcome.COMPLETED, sid)
    assert rig.shape(sid) == [
        "input:*",
        "run-started:run:*",
        "model-response:run:*:1",
        "run-completed:run:*",
        "settlement:*",
    ]
    batches = {r.record_id.split(":")[0]: r.batch_id for r in rig.store.run_records(sid)}
    assert batches["model-response"] == batches["run-completed"] != batches["settlement"]
    assert rig.settlement(sid)["result"] == "hello"
    assert rig.state(sid) is SubmissionState.SETTLED
    assert rig.hits == [
        "claim:before",
        "claim:after",
        "terminalize:before-canonical-append",
        "terminalize:after-canonical-append",
    ]


def test_a_fresh_submission_costs_one_claim_and_one_finish(rig: Rig, script: Script, monkeypatch):
    """The hot path: recovery's look, the claim with its input, the end with its settlement."""
    script.steps = {"hi": [says("hello")]}
    rig.serve(bind(scripted(script), id=AGENT))
    rig.submit("hi")
    used: list[str] = []
    real = rig.store

    class Counting:
        def __getattr__(self, name: str):
            used.append(name)
            return getattr(real, name)

    rig.store = Counting()
    rig.pace = Pace()
    rig.restart()
    assert rig.attempt().ended == "settled"
    assert used == ["recovery_start", "begin", "finish"]


def test_a_response_is_committed_before_its_tools_run(rig: Rig, script: Script):
    """The declaration is canonical when a handler starts, with class, kind and arguments."""
    script.steps = {"go": [calls(("look", "c0", {"n": 1})), says("done")]}
    agent = scripted(script)
    seen: list[list[str]] = []

    @agent.tool_plain
    async def look(n: int) -> str:
        seen.append(rig.kinds(sid))
        return f"saw {n}"

    rig.serve(bind(agent, id=AGENT, tools={"look": ToolClass.READONLY}))
    sid = rig.submit("go")
    assert rig.attempt().ended == "settled"
    assert seen == [["UserInputRecorded", "RunStarted", "ModelResponseRecorded"]]
    (declared,) = rig.payloads(sid, "ModelResponseRecorded")[0]["calls"]
    assert (declared["toolCallId"], declared["toolClass"], declared["callKind"]) == ("c0", "readonly", "ordinary")
    assert declared["arguments"] == {"n": 1}
    (settled,) = rig.payloads(sid, "ToolCallSettled")
    assert (settled["result"], settled["isFailure"]) == ("saw 1", False)


def test_results_that_arrive_together_cost_one_commit_in_declaration_order(rig: Rig, script: Script):
    """Two tools that finish in the same turn of the loop are one batch."""
    script.steps = {"go": [calls(("slow", "c0"), ("quick", "c1")), says("done")]}
    agent = scripted(script)
    both = asyncio.Event()

    @agent.tool_plain
    async def slow() -> str:
        await both.wait()
        return "slow"

    @agent.tool_plain
    async def quick() -> str:
        await asyncio.sleep(0.01)
        both.set()
        await asyncio.sleep(0)
        return "quick"

    rig.serve(bind(agent, id=AGENT))
    sid = rig.submit("go")
    assert rig.attempt().ended == "settled"
    settled = [r for r in rig.store.run_records(sid) if r.kind == "ToolCallSettled"]
    assert [r.payload["toolCallId"] for r in settled] == ["c0", "c1"]
    assert {r.batch_id for r in settled} == {f"turn-results:run:{sid}:1"}


def test_a_result_is_committed_while_its_sibling_still_runs(rig: Rig, script: Script):
    """A crash of the slow call must not make the quick one uncertain."""
    script.steps = {"go": [calls(("slow", "c0"), ("quick", "c1")), says("done")]}
    agent = scripted(script)
    kinds: list[list[str]] = []

    @agent.tool_plain
    async def slow() -> str:
        while "ToolCallSettled" not in rig.kinds(sid):
            await asyncio.sleep(0.005)
        kinds.append(rig.kinds(sid))
        return "slow"

    @agent.tool_plain
    async def quick() -> str:
        return "quick"

    rig.serve(bind(agent, id=AGENT))
    sid = rig.submit("go")
    assert rig.attempt().ended == "settled"
    assert kinds[0][-1] == "ToolCallSettled"
    settled = [r for r in rig.store.run_records(sid) if r.kind == "ToolCallSettled"]
    assert [r.batch_id for r in settled] == [f"turn-results:run:{sid}:1:c1", f"turn-results:run:{sid}:1"]
    returns = [p for p in script.seen[-1][-1].parts if isinstance(p, ToolReturnPart)]
    assert [(p.tool_call_id, p.content) for p in returns] == [("c0", "slow"), ("c1", "quick")]


def test_a_follow_up_reads_the_conversation_before_it(rig: Rig, script: Script):
    """The second input sees the first exchange, tools included, whether remembered or read again."""
    script.steps = {"one": [calls(("look", "c0")), says("first")], "two": [says("second")], "three": [says("third")]}
    agent = scripted(script)

    @agent.tool_plain
    async def look() -> dict[str, int]:
        return {"n": 1}

    rig.serve(bind(agent, id=AGENT))
    for prompt in ("one", "two"):
        rig.submit(prompt)
        assert rig.attempt().ended == "settled"
    remembered = script.seen[-1]
    rig.restart()
    rig.submit("three")
    assert rig.attempt().ended == "settled"
    read_again = script.seen[-1][: len(remembered)]
    assert [_said(message) for message in remembered] == [_said(message) for message in read_again]
    assert len(remembered) == 5


def test_the_same_call_ids_from_the_model_never_meet(rig: Rig, script: Script):
    """F33: two threads, two Runs of one thread, and two Turns of one Run all use `call_0`."""
    script.steps = {
        "a": [calls(("look", "call_0")), calls(("look", "call_0"), ("look", "call_0")), says("a done")],
        "b": [calls(("look", "call_0")), says("b done")],
    }
    agent = scripted(script)

    @agent.tool_plain
    async def look() -> str:
        return "seen"

    rig.serve(bind(agent, id=AGENT, policy=RunPolicy(steering_per_seam=0)))
    sids = [rig.submit("a", thread="t1"), rig.submit("b", thread="t1"), rig.submit("a", thread="t2")]
    assert rig.settle(thread="t1") == ["settled", "settled"]
    assert rig.settle(thread="t2") == ["settled"]
    assert [rig.settlement(sid)["result"] for sid in sids] == ["a done", "b done", "a done"]
    ids = [p["toolCallId"] for p in rig.payloads(sids[0], "ToolCallSettled")]
    assert len(ids) == len(set(ids)) == 3
    assert ids[0] == "call_0"


def test_nothing_claimable_is_idle(rig: Rig, script: Script):
    """An Attempt on a Thread without work changes nothing."""
    script.steps = {"hi": [says("hello")]}
    rig.serve(bind(scripted(script), id=AGENT))
    rig.submit("hi")
    assert rig.settle() == ["settled"]
    tail = rig.store.tail("thread")
    assert rig.attempt().ended == "idle"
    assert rig.store.tail("thread") == tail


def test_usage_is_summed_over_the_run(rig: Rig, script: Script):
    """The settlement tells turns, calls and tokens."""
    script.steps = {"go": [calls(("look", "c0"), ("look", "c1")), says("done")]}
    agent = scripted(script)

    @agent.tool_plain
    async def look() -> str:
        return "seen"

    rig.serve(bind(agent, id=AGENT))
    sid = rig.submit("go")
    rig.attempt()
    usage = rig.settlement(sid)["usageSummary"]
    responses = rig.payloads(sid, "ModelResponseRecorded")
    assert (usage["turns"], usage["toolCalls"]) == (2, 2)
    assert usage["inputTokens"] == sum(r["inputTokens"] for r in responses) > 0
    assert usage["outputTokens"] == sum(r["outputTokens"] for r in responses) > 0


def _said(message) -> list[tuple[str, object]]:
    return [(part.part_kind, getattr(part, "content", None) or getattr(part, "args", None)) for part in message.parts]
