"""The database goes away in the middle, or does not hold what it should: nothing that is known is thrown away."""

import asyncio
from typing import Any

import pytest
from pydantic_ai import ToolOutput

from activities import commits
from tests.unit.attempt.rig import AGENT, Rig, Script, calls, says, scripted
from thread_objects.agents import bind
from thread_objects.contract.states import SubmissionState, ToolClass
from thread_objects.errors import CorruptRecord, StoreUnavailable


class Flaky:
    """A store whose method fails a number of times, before or after it did its work."""

    def __init__(self, store: Any, method: str, failures: int, *, late: bool = False, after: int = 0) -> None:
        self._store = store
        self._method = method
        self.failures = failures
        self._late = late
        self._after = after

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._store, name)
        if name != self._method:
            return real

        def call(*args: Any, **more: Any) -> Any:
            if self._after > 0:
                self._after -= 1
                return real(*args, **more)
            if self.failures > 0:
                self.failures -= 1
                if self._late:
                    real(*args, **more)
                raise StoreUnavailable(reason="away")
            return real(*args, **more)

        return call


@pytest.fixture
def ran(rig: Rig, script: Script, monkeypatch) -> list[str]:
    """An agent that pays, and how often it did. Waiting for the store takes no time."""
    monkeypatch.setattr(commits, "PAUSE_S", 0.001)
    monkeypatch.setattr(commits, "PATIENCE_S", 0.02)
    script.steps = {"go": [calls(("pay", "c0"), ("pay", "c1")), says("paid")]}
    agent = scripted(script)
    ran: list[str] = []

    @agent.tool_plain
    async def pay() -> str:
        ran.append("pay")
        return "paid"

    rig.serve(bind(agent, id=AGENT))
    return ran


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("after", [0, 1])
def test_a_commit_waits_for_a_store_that_comes_back(rig: Rig, ran: list[str], script: Script, late: bool, after: int):
    """A response that was paid for and results of uncertain calls are offered again, and stand once."""
    rig.store = Flaky(rig.store, "append", 3, late=late, after=after)
    rig.restart()
    sid = rig.submit("go")
    assert rig.attempt().ended == "settled"
    assert (ran, script.asked) == (["pay", "pay"], 2)
    assert rig.kinds(sid).count("ModelResponseRecorded") == 2
    assert rig.kinds(sid).count("ToolCallSettled") == 2


@pytest.mark.parametrize("output_too", [False, True])
@pytest.mark.parametrize("failures", [1, 3])
def test_results_that_were_committed_unseen_stand_once(
    rig: Rig, script: Script, monkeypatch, failures: int, output_too: bool
):
    """LOG-002, LOG-004: a result that its siblings' commits meet in the log is no conflict, and fails no Run."""
    monkeypatch.setattr(commits, "PAUSE_S", 0.001)
    batch = [("quick", "c0"), ("slow", "c1"), ("quick", "c2")]
    if output_too:
        batch.append(("final_result", "c3", {"response": "paid"}))
    script.steps = {"go": [calls(*batch), says("paid")]}
    agent = scripted(script, output_type=[ToolOutput(str, name="final_result"), str], end_strategy="exhaustive")
    ran: list[str] = []

    @agent.tool_plain
    async def quick() -> str:
        ran.append("quick")
        return "quick"

    @agent.tool_plain
    async def slow() -> str:
        ran.append("slow")
        await asyncio.sleep(0.05)
        return "slow"

    rig.serve(bind(agent, id=AGENT))
    rig.store = Flaky(rig.store, "append", failures, late=True, after=1)
    rig.restart()
    sid = rig.submit("go")
    assert rig.attempt().ended == "settled"
    assert rig.settlement(sid)["result"] == "paid"
    assert sorted(ran) == ["quick", "quick", "slow"]
    results = {p["toolCallId"]: p["result"] for p in rig.payloads(sid, "ToolCallSettled")}
    assert {call: results[call] for call in ("c0", "c1", "c2")} == {"c0": "quick", "c1": "slow", "c2": "quick"}
    assert len(rig.payloads(sid, "ToolCallSettled")) == len(batch)


def test_a_store_that_stays_away_fails_the_attempt_and_settles_nothing(rig: Rig, ran: list[str]):
    """A retryable error for the queue; the next Attempt goes on from what is committed."""
    real = rig.store
    rig.store = Flaky(real, "append", 1_000)
    rig.restart()
    sid = rig.submit("go")
    with pytest.raises(StoreUnavailable):
        rig.attempt()
    assert ran == []
    rig.ended.append(rig.last_attempt)
    rig.store = real
    rig.restart()
    rig.settle()
    assert rig.settlement(sid)["result"] == "paid"


def test_a_settlement_that_was_published_unseen_stands(rig: Rig, ran: list[str], script: Script):
    """The commit went through, its answer did not: the next Attempt finds nothing to do."""
    rig.store = Flaky(rig.store, "finish", 1, late=True)
    rig.restart()
    sid = rig.submit("go")
    with pytest.raises(StoreUnavailable):
        rig.attempt()
    rig.ended.append(rig.last_attempt)
    assert rig.settle() == []
    assert rig.settlement(sid)["result"] == "paid"
    assert (script.asked, ran) == (2, ["pay", "pay"])


def test_looking_for_an_abort_survives_a_store_that_is_away(rig: Rig, script: Script):
    """A poll that fails is a poll that is repeated."""

    async def slow(_messages):
        import asyncio

        await asyncio.sleep(0.1)
        return says("done")

    script.steps = {"go": [slow]}
    rig.serve(bind(scripted(script), id=AGENT))
    rig.store = Flaky(rig.store, "abort_intent", 2)
    rig.restart()
    sid = rig.submit("go")
    assert rig.attempt().ended == "settled"
    assert rig.settlement(sid)["result"] == "done"
    assert rig.store.failures == 0


def test_a_transcript_that_does_not_decode_is_a_fault_of_the_thread(rig: Rig, script: Script, monkeypatch):
    """Nothing is settled; the claim is given back; the fault is there to be seen and tried again later."""
    script.steps = {"one": [says("1")], "two": [says("2")]}
    rig.serve(bind(scripted(script), id=AGENT))
    rig.submit("one")
    rig.settle()
    rig.restart()
    sid = rig.submit("two")

    def corrupt(*_args: Any, **_more: Any) -> Any:
        raise CorruptRecord(thread_id="thread", sequence=2, decoder="records")

    with monkeypatch.context() as broken:
        broken.setattr(rig.store, "records", corrupt)
        answer = rig.attempt()
    assert (answer.ended, answer.recovered.fault.error_tag) == ("faulted", "CorruptRecord")
    assert rig.state(sid) is SubmissionState.INPUT_APPLIED
    assert rig.snapshot(sid).ownership is None
    assert rig.attempt().ended == "faulted"
    rig.clock.at += 5_000
    assert rig.settle() == ["settled"]


def test_a_batch_larger_than_a_log_batch_is_committed_in_several(rig: Rig, script: Script):
    """300 calls of one response: all results stand, in declaration order, and the next request has them all."""
    script.steps = {"go": [calls(*(("look", f"c{n}") for n in range(300))), says("done")]}
    agent = scripted(script)

    @agent.tool_plain
    async def look() -> str:
        return "seen"

    rig.serve(bind(agent, id=AGENT, tools={"look": ToolClass.READONLY}))
    sid = rig.submit("go")
    assert rig.attempt().ended == "settled"
    assert [p["toolCallId"] for p in rig.payloads(sid, "ToolCallSettled")] == [f"c{n}" for n in range(300)]
    assert len(script.seen[-1][-1].parts) == 300
