"""An abort is canonical before anything is interrupted, and ends the Run within about a second."""

import asyncio
import threading
import time

import pytest

from activities.control import Control
from tests.unit.attempt.rig import AGENT, Rig, Script, calls, says, scripted
from thread_objects.agents import ToolPolicy, bind
from thread_objects.contract.states import Decision, ResolutionKind, SubmissionState, ToolClass

SOON_S = 5.0
"""About a second, on a machine that has other things to do; what hangs here hangs for a minute."""


def attempt_and(rig: Rig, happens: threading.Event, then) -> tuple[object, float]:
    """Run an Attempt; once `happens`, do `then` on another thread. The answer, and how long it took after that."""
    began: list[float] = []

    def wait() -> None:
        assert happens.wait(10)
        began.append(time.monotonic())
        then()

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        answer = rig.attempt()
    finally:
        thread.join(10)
    return answer, time.monotonic() - began[0]


def test_an_abort_closes_the_model_call(rig: Rig, script: Script):
    """ABT-002, F13: AbortRequested stands before the settlement; the model's task was cancelled, not left behind."""
    asked, closed = threading.Event(), threading.Event()

    async def slow(_messages):
        asked.set()
        try:
            await asyncio.sleep(60)
        finally:
            closed.set()

    script.steps = {"go": [slow], "later": [says("later")]}
    rig.serve(bind(scripted(script), id=AGENT))
    sid = rig.submit("go")
    later = rig.submit("later")
    answer, took_s = attempt_and(rig, asked, lambda: rig.abort(sid))
    assert (answer.ended, answer.settled.outcome) == ("settled", "aborted")
    assert took_s < SOON_S
    assert closed.is_set()
    assert rig.kinds(sid)[-2:] == ["AbortRequested", "SubmissionSettled"]
    assert rig.settlement(sid)["outcome"] == "aborted"
    assert rig.settle() == ["settled"]
    assert rig.settlement(later)["result"] == "later"


def test_an_abort_leaves_an_audit_for_each_running_uncertain_call(rig: Rig, script: Script):
    """Open ordinary calls get a ToolCallUnknown; readonly ones and those that never started do not."""
    started = threading.Event()
    script.steps = {"go": [calls(("pay", "c0"), ("look", "c1"), ("quick", "c2")), says("never")]}
    agent = scripted(script)

    @agent.tool_plain
    async def pay() -> str:
        started.set()
        await asyncio.sleep(60)
        return "paid"

    @agent.tool_plain
    async def look() -> str:
        await asyncio.sleep(60)
        return "seen"

    @agent.tool_plain
    async def quick() -> str:
        return "quick"

    rig.serve(bind(agent, id=AGENT, tools={"look": ToolClass.READONLY}))
    sid = rig.submit("go")
    answer, took_s = attempt_and(rig, started, lambda: rig.abort(sid))
    assert answer.settled.outcome == "aborted"
    assert took_s < SOON_S
    assert [p["toolCallId"] for p in rig.payloads(sid, "ToolCallUnknown")] == ["c0"]
    assert [p["toolCallId"] for p in rig.payloads(sid, "ToolCallSettled")] == ["c2"]
    assert rig.kinds(sid)[-3:] == ["AbortRequested", "ToolCallUnknown", "SubmissionSettled"]


def test_a_fact_given_while_the_call_runs_again_outlives_the_abort(rig: Rig, script: Script):
    """UNK-007: what an operator was told is stored becomes canonical, and is not called unknown after all."""
    script.steps = {"go": [calls(("pay", "c0")), says("never")]}
    agent = scripted(script)
    started = threading.Event()
    ran: list[str] = []

    @agent.tool_plain
    async def pay() -> str:
        ran.append("pay")
        started.set()
        await asyncio.sleep(60)
        return "paid"

    rig.serve(bind(agent, id=AGENT))
    sid = rig.submit("go")
    with rig.crashing("tools:after-dispatch-fence"):
        rig.attempt()
    rig.settle()
    rig.resolve(sid, "c0", ResolutionKind.SAFE_TO_RETRY)

    def stop() -> None:
        rig.resolve(sid, "c0", ResolutionKind.COMPLETED_WITH_RESULT, "paid before")
        rig.abort(sid)

    answer, _ = attempt_and(rig, started, stop)
    assert (answer.settled.outcome, ran) == ("aborted", ["pay"])
    assert [p["result"] for p in rig.payloads(sid, "ToolCallSettled")] == ["paid before"]
    assert len(rig.payloads(sid, "ToolCallUnknown")) == 1
    assert [p["resolution"] for p in rig.payloads(sid, "ToolCallResolved")] == ["safe-retry", "completed-with-result"]


def test_a_synchronous_tool_that_hangs_does_not_hold_the_abort(rig: Rig, script: Script):
    """The thread is left behind, the Submission settles, and the thread's late result is nowhere."""
    started, release = threading.Event(), threading.Event()
    script.steps = {"go": [calls(("hang", "c0")), says("never")]}
    agent = scripted(script)

    @agent.tool_plain
    def hang() -> str:
        started.set()
        release.wait(30)
        return "late"

    rig.serve(bind(agent, id=AGENT))
    sid = rig.submit("go")
    try:
        answer, took_s = attempt_and(rig, started, lambda: rig.abort(sid))
    finally:
        release.set()
    assert answer.settled.outcome == "aborted"
    assert took_s < SOON_S
    assert rig.payloads(sid, "ToolCallSettled") == []
    assert rig.kinds(sid)[-2:] == ["ToolCallUnknown", "SubmissionSettled"]


def test_a_cancelled_attempt_looks_for_the_abort_at_once(rig: Rig, script: Script):
    """Cancelling tells it to look: with an intent it aborts without waiting for its next poll."""
    rig.pace = type(rig.pace)(abort_poll_ms=60_000)
    rig.restart()
    asked = threading.Event()

    async def slow(_messages):
        asked.set()
        await asyncio.sleep(60)

    script.steps = {"go": [slow]}
    rig.serve(bind(scripted(script), id=AGENT))
    sid = rig.submit("go")
    control = Control()

    def tell() -> None:
        asked.wait(10)
        rig.abort(sid)
        control.tell()

    thread = threading.Thread(target=tell)
    thread.start()
    answer = rig.attempt(control=control)
    thread.join()
    assert answer.settled.outcome == "aborted"


@pytest.mark.parametrize("failpoint", ["abort:before-canonical-append", "abort:after-canonical-append"])
def test_a_crash_in_the_abort_ends_aborted_all_the_same(rig: Rig, script: Script, failpoint: str):
    """The intent is durable; whoever comes next settles, once, without asking the model again."""
    asked = threading.Event()

    async def slow(_messages):
        asked.set()
        await asyncio.sleep(60)

    script.steps = {"go": [slow]}
    rig.serve(bind(scripted(script), id=AGENT))
    sid = rig.submit("go")
    with rig.crashing(failpoint):
        attempt_and(rig, asked, lambda: rig.abort(sid))
    rig.settle()
    assert rig.settlement(sid)["outcome"] == "aborted"
    assert rig.kinds(sid).count("AbortRequested") == 1
    assert script.asked == 1


def test_an_abort_of_a_suspended_submission_runs_nothing(rig: Rig, script: Script):
    """ABT-007: the question is closed, the tool never runs."""
    script.steps = {"go": [calls(("refund", "c0")), says("never")]}
    agent = scripted(script)
    ran: list[str] = []

    @agent.tool_plain
    async def refund() -> str:
        ran.append("refund")
        return "x"

    rig.serve(bind(agent, id=AGENT, tools={"refund": ToolPolicy(approval=True)}))
    sid = rig.submit("go")
    assert rig.attempt().ended == "suspended"
    rig.abort(sid)
    rig.settle()
    assert rig.settlement(sid)["outcome"] == "aborted"
    assert rig.state(sid) is SubmissionState.SETTLED
    assert ran == []
    assert rig.payloads(sid, "ToolApprovalDecided") == [] or (
        rig.payloads(sid, "ToolApprovalDecided")[0]["decision"] == Decision.DENIED
    )


def test_an_abort_that_comes_with_the_answer_wins_or_loses_but_settles_once(rig: Rig, script: Script):
    """An accepted abort that is seen before the settlement is published decides it."""

    async def answers(_messages):
        rig.abort(sid)
        await asyncio.sleep(0.2)
        return says("too late")

    script.steps = {"go": [answers]}
    rig.serve(bind(scripted(script), id=AGENT))
    sid = rig.submit("go")
    assert rig.attempt().ended == "settled"
    assert rig.settlement(sid)["outcome"] == "aborted"
