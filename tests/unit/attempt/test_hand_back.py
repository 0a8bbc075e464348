"""Yield, cancellation and shutdown: the work is handed back, nothing committed is lost, nothing is settled by it."""

import asyncio
import threading

import pytest

from activities.control import Control
from activities.supervise import Pace
from tests.unit.attempt.rig import AGENT, Rig, Script, calls, says, scripted
from thread_objects import failpoints
from thread_objects.agents import bind
from thread_objects.contract.states import SubmissionState, ToolClass
from thread_objects.errors import FenceRejected, OwnershipLost, StoreUnavailable
from thread_objects.ports import ClaimRequest


def shop(script: Script, rig: Rig, effects: list[str]):
    """An agent whose tools may move the clock or wait."""
    agent = scripted(script)

    @agent.tool_plain
    async def look() -> str:
        effects.append("look")
        rig.clock.at += 1_000
        return "seen"

    return agent


def test_an_attempt_yields_at_a_turn_boundary_when_its_time_is_over(rig: Rig, script: Script):
    """The batch in progress is finished and committed; the next Attempt goes on without asking again."""
    script.steps = {"go": [calls(("look", "c0")), calls(("look", "c1")), says("done")]}
    effects: list[str] = []
    rig.serve(bind(shop(script, rig, effects), id=AGENT, tools={"look": ToolClass.READONLY}))
    sid = rig.submit("go")
    answer = rig.attempt(yield_in_ms=500)
    assert (answer.ended, answer.mark_cleared > 0) == ("yielded", True)
    assert effects == ["look"]
    assert rig.kinds(sid)[-1] == "ToolCallSettled"
    assert rig.snapshot(sid).ownership is None
    assert rig.attempt().ended == "settled"
    assert effects == ["look", "look"]
    assert script.asked == 3


def test_a_cancellation_without_an_abort_closes_the_model_call_and_hands_back(rig: Rig, script: Script):
    """Nothing is lost by it but the answer that had not come."""
    asked = threading.Event()

    async def slow(_messages):
        asked.set()
        await asyncio.sleep(60)

    script.steps = {"go": [calls(("look", "c0")), slow, says("done")]}
    effects: list[str] = []
    rig.serve(bind(shop(script, rig, effects), id=AGENT, tools={"look": ToolClass.READONLY}))
    sid = rig.submit("go")
    control = Control()
    threading.Thread(target=lambda: (asked.wait(10), control.tell())).start()
    assert rig.attempt(control=control).ended == "yielded"
    assert rig.state(sid) is SubmissionState.INPUT_APPLIED
    assert "SubmissionSettled" not in rig.kinds(sid)
    script.steps["go"][1] = says("done")
    rig.restart()
    assert rig.attempt().ended == "settled"
    assert effects == ["look"]


def test_a_running_uncertain_tool_is_not_abandoned_for_a_yield(rig: Rig, script: Script):
    """It is waited for, its result is committed, and only then is the work handed back."""
    started = threading.Event()
    script.steps = {"go": [calls(("pay", "c0")), says("done")]}
    agent = scripted(script)
    paid: list[str] = []

    @agent.tool_plain
    async def pay() -> str:
        started.set()
        await asyncio.sleep(0.2)
        paid.append("pay")
        return "paid"

    rig.serve(bind(agent, id=AGENT))
    sid = rig.submit("go")
    control = Control()
    threading.Thread(target=lambda: (started.wait(10), control.tell())).start()
    assert rig.attempt(control=control).ended == "yielded"
    assert rig.kinds(sid)[-1] == "ToolCallSettled"
    assert rig.attempt().ended == "settled"
    assert paid == ["pay"]


def test_a_tool_that_outlasts_the_grace_becomes_unknown_honestly(rig: Rig, script: Script):
    """After the grace the work is handed back; nobody runs the call again."""
    rig.pace = Pace(abort_poll_ms=20, tool_grace_ms=100)
    started = threading.Event()
    script.steps = {"go": [calls(("pay", "c0")), says("done")]}
    agent = scripted(script)
    ran: list[str] = []

    @agent.tool_plain
    async def pay() -> str:
        ran.append("pay")
        started.set()
        await asyncio.sleep(60)
        return "paid"

    rig.serve(bind(agent, id=AGENT))
    sid = rig.submit("go")
    control = Control()
    threading.Thread(target=lambda: (started.wait(10), control.tell())).start()
    assert rig.attempt(control=control).ended == "yielded"
    rig.settle()
    assert rig.state(sid) is SubmissionState.UNKNOWN
    assert ran == ["pay"]


def test_readonly_tools_are_not_waited_for(rig: Rig, script: Script):
    """What may be repeated is interrupted at once and repeated later."""
    rig.pace = Pace(abort_poll_ms=20, interrupt_grace_ms=300, tool_grace_ms=60_000)
    started = threading.Event()
    script.steps = {"go": [calls(("look", "c0")), says("done")]}
    agent = scripted(script)
    waits = [60.0, 0.0]

    @agent.tool_plain
    async def look() -> str:
        started.set()
        await asyncio.sleep(waits.pop(0))
        return "seen"

    rig.serve(bind(agent, id=AGENT, tools={"look": ToolClass.READONLY}))
    rig.submit("go")
    control = Control()
    threading.Thread(target=lambda: (started.wait(10), control.tell())).start()
    assert rig.attempt(control=control).ended == "yielded"
    assert rig.attempt().ended == "settled"


def test_an_attempt_told_before_it_claims_claims_nothing(rig: Rig, script: Script):
    """A worker that shuts down takes no new work."""
    script.steps = {"go": [says("done")]}
    rig.serve(bind(scripted(script), id=AGENT))
    sid = rig.submit("go")
    control = Control()
    control.tell()
    assert rig.attempt(control=control).ended == "yielded"
    assert rig.state(sid) is SubmissionState.READY


def test_a_superseded_attempt_writes_nothing_more(rig: Rig, script: Script):
    """EVI-014: its response is fenced, no settlement of its own, and it ends quietly."""

    async def slow(_messages):
        now = rig.clock.now()
        rig.store.claim(ClaimRequest("thread", "other", "attempt-other", (rig.last_attempt,)), now=now)
        return says("from the dead")

    script.steps = {"go": [slow]}
    rig.serve(bind(scripted(script), id=AGENT))
    sid = rig.submit("go")
    answer = rig.attempt()
    assert answer.ended == "yielded"
    assert rig.kinds(sid) == ["UserInputRecorded", "RunStarted"]
    assert rig.snapshot(sid).ownership.attempt_id == "attempt-other"


@pytest.mark.parametrize("lost", [OwnershipLost, FenceRejected])
def test_a_renewal_that_fails_ends_the_attempt(rig: Rig, script: Script, monkeypatch, lost):
    """The model call is closed; nothing is written by who is no owner any more."""
    asked, closed = threading.Event(), threading.Event()

    async def slow(_messages):
        asked.set()
        try:
            await asyncio.sleep(60)
        finally:
            closed.set()

    def renew(claim, *, now):
        if not asked.is_set():
            return claim
        fields = {"submission_id": claim.submission_id, "actual_epoch": 9}
        if lost is FenceRejected:
            fields = {"thread_id": claim.thread_id, "actual": 9, "attempted": 1}
        raise lost(**fields)

    script.steps = {"go": [slow]}
    rig.pace = Pace(abort_poll_ms=10, renewal_ms=0)
    rig.serve(bind(scripted(script), id=AGENT))
    sid = rig.submit("go")
    monkeypatch.setattr(rig.store, "renew", renew)
    assert rig.attempt().ended == "yielded"
    assert closed.is_set()
    assert rig.kinds(sid) == ["UserInputRecorded", "RunStarted"]


def test_the_lease_is_renewed_while_the_run_goes_on(rig: Rig, script: Script):
    """LED: the lease moves with the clock, so that a long model call keeps its claim."""
    leases: list[int] = []

    async def slow(_messages):
        leases.append(rig.snapshot(sid).ownership.lease_until)
        rig.clock.at += 10_001
        for _ in range(200):
            await asyncio.sleep(0.005)
            leases.append(rig.snapshot(sid).ownership.lease_until)
            if leases[-1] > leases[0]:
                break
        return says("done")

    script.steps = {"go": [slow]}
    rig.pace = Pace(abort_poll_ms=10)
    rig.serve(bind(scripted(script), id=AGENT))
    sid = rig.submit("go")
    assert rig.attempt().ended == "settled"
    assert leases[-1] - leases[0] == 10_001


def test_the_attempts_own_deadline_hands_back_before_temporal_gives_up(rig: Rig, script: Script):
    """GEN-022: a model call that would outlast the Attempt is closed and made again later."""

    async def slow(_messages):
        rig.clock.at += 900_000
        await asyncio.sleep(60)

    script.steps = {"go": [slow, says("done")]}
    rig.serve(bind(scripted(script), id=AGENT))
    sid = rig.submit("go")
    assert rig.attempt(deadline_in_ms=840_000).ended == "yielded"
    assert rig.state(sid) is SubmissionState.INPUT_APPLIED
    assert rig.snapshot(sid).ownership is None


@pytest.mark.parametrize("tool_class", [ToolClass.UNCERTAIN, ToolClass.READONLY])
def test_a_superseded_attempt_starts_no_uncertain_handler(rig: Rig, script: Script, monkeypatch, tool_class):
    """EVI-014: stopped between its response and the dispatch, it wakes after others answered for its call."""
    script.steps = {"go": [calls(("pay", "c0")), says("done")]}
    agent = scripted(script)
    ran: list[str] = []

    @agent.tool_plain
    async def pay() -> str:
        ran.append("pay")
        return "paid"

    def hit(name: str) -> None:
        if name == "tools:before-dispatch-fence":
            rig.clock.at += 6_000
            request = ClaimRequest("thread", "other", "attempt-other", (rig.last_attempt,))
            assert rig.store.claim(request, now=rig.clock.now()) is not None

    rig.serve(bind(agent, id=AGENT, tools={"pay": tool_class}))
    sid = rig.submit("go")
    monkeypatch.setattr(failpoints, "hit", hit)
    assert rig.attempt().ended == "yielded"
    assert ran == ([] if tool_class is ToolClass.UNCERTAIN else ["pay"])
    assert rig.payloads(sid, "ToolCallSettled") == []
    assert rig.snapshot(sid).ownership.attempt_id == "attempt-other"


@pytest.mark.parametrize(("late_ms", "starts"), [(6_000, True), (31_000, False)])
def test_a_store_that_is_away_leaves_the_dispatch_to_the_lease(
    rig: Rig, script: Script, monkeypatch, late_ms: int, starts: bool
):
    """Nobody can be asked whether the claim stands: within the lease the handler starts, after it it does not."""
    script.steps = {"go": [calls(("pay", "c0")), says("done")]}
    agent = scripted(script)
    ran: list[str] = []

    @agent.tool_plain
    async def pay() -> str:
        ran.append("pay")
        return "paid"

    def hit(name: str) -> None:
        if name == "tools:before-dispatch-fence":
            rig.clock.at += late_ms

    def away(*_args, **_more):
        raise StoreUnavailable(reason="away")

    rig.serve(bind(agent, id=AGENT))
    sid = rig.submit("go")
    monkeypatch.setattr(failpoints, "hit", hit)
    monkeypatch.setattr(rig.store, "renew", away)
    if starts:
        assert rig.attempt().ended == "settled"
    else:
        with pytest.raises(StoreUnavailable):
            rig.attempt()
        assert rig.state(sid) is SubmissionState.INPUT_APPLIED
    assert ran == ["pay"] * starts
