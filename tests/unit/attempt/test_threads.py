"""Attempts beside one another, the loop of each, the flags that reach it, and the beat that nothing blocks."""

import asyncio
import contextvars
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from temporalio.testing import ActivityEnvironment

from activities import pulse as pulses
from activities.control import Control
from activities.event_loop import run_on_own_loop
from activities.pulse import Pulse
from tests.unit.attempt.rig import AGENT, Rig, Script, calls, says, scripted
from thread_objects.agents import bind
from thread_objects.contract.activities import AttemptRequest


def test_attempts_of_one_agent_run_beside_one_another(rig: Rig, script: Script):
    """Eight Threads at once on one agent, synchronous and asynchronous tools mixed: each gets its own answers."""
    script.steps = {f"go {n}": [calls(("a", "c0"), ("b", "c1")), says(f"done {n}")] for n in range(8)}
    agent = scripted(script)

    @agent.tool_plain
    async def a() -> str:
        await asyncio.sleep(0.01)
        return "a"

    @agent.tool_plain
    def b() -> str:
        time.sleep(0.01)
        return "b"

    rig.serve(bind(agent, id=AGENT))
    sids = [rig.submit(f"go {n}", thread=f"t{n}") for n in range(8)]
    now = rig.clock.now()

    def attempt(n: int) -> str:
        request = AttemptRequest(
            object_id=f"t{n}",
            thread_id=f"t{n}",
            producer_id="p",
            attempt_id=f"a{n}",
            yield_at=now + 600_000,
            deadline_at=now + 840_000,
        )
        return rig.activities.advance(request, Control()).ended

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(attempt, range(8))) == ["settled"] * 8
    assert [rig.settlement(sid)["result"] for sid in sids] == [f"done {n}" for n in range(8)]


def test_a_blocking_tool_does_not_hold_up_another_attempt(rig: Rig, script: Script):
    """Each Attempt has a thread and a loop of its own."""
    release = threading.Event()
    script.steps = {"block": [calls(("block", "c0")), says("blocked")], "quick": [says("quick")]}
    agent = scripted(script)

    @agent.tool_plain
    async def block() -> str:
        release.wait(10)
        return "ok"

    rig.serve(bind(agent, id=AGENT))
    rig.submit("block", thread="slow")
    quick = rig.submit("quick", thread="fast")
    with ThreadPoolExecutor(1) as threads:
        blocked = threads.submit(rig.attempt, thread="slow")
        try:
            assert rig.attempt(thread="fast").ended == "settled"
            assert not blocked.done()
        finally:
            release.set()
        assert blocked.result(10).ended == "settled"
    assert rig.settlement(quick)["result"] == "quick"


def test_a_loop_is_kept_until_something_is_stuck_on_it():
    """A clean loop is used again; one with a task that does not end is given up."""

    async def which() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    async def leaves_a_task() -> asyncio.AbstractEventLoop:
        async def stuck() -> None:
            while True:
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    continue

        task = asyncio.get_running_loop().create_task(stuck())
        await asyncio.sleep(0)
        left.append(task)
        return asyncio.get_running_loop()

    left: list[asyncio.Task[None]] = []
    first = run_on_own_loop(which())
    assert run_on_own_loop(which()) is first
    stuck_on = run_on_own_loop(leaves_a_task())
    assert stuck_on.is_closed()
    assert run_on_own_loop(which()) is not stuck_on
    left[0]._log_destroy_pending = False  # type: ignore[attr-defined]  # left behind on purpose


def test_a_flag_set_before_the_loop_listens_wakes_it_when_it_does():
    """No order of events loses it, and it wakes once."""
    control = Control()
    woken: list[str] = []
    control.tell()
    control.attach(lambda: woken.append("late"))
    assert woken == ["late"]
    control.tell()
    assert woken == ["late"]
    other = Control()
    other.attach(lambda: woken.append("early"))
    other.tell()
    other.tell()
    assert woken == ["late", "early"]
    assert other.told


def test_a_loop_is_silent_when_it_outlasts_what_it_runs(monkeypatch):
    """Silence counts from the last sign of life, against the patience that was asked for; none without a loop."""
    at = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: at[0])
    control = Control()
    assert not control.silent()
    control.alive(5.0)
    at[0] = 105.0
    assert not control.silent()
    at[0] = 105.1
    assert control.silent()
    control.attach(None)
    assert not control.silent()


def in_activity(work, *, cancelled: bool = False, heartbeats: list | None = None):
    """Run something as the activity of a test environment."""
    environment = ActivityEnvironment()
    environment.on_heartbeat = lambda *_details: heartbeats.append(1) if heartbeats is not None else None
    if cancelled:
        environment.cancel()
    return environment.run(work)


def test_a_cancelled_activity_is_told_to_look(monkeypatch):
    """Cancellation reaches the Attempt as a flag."""
    control = Control()
    in_activity(lambda: Pulse.look(contextvars.copy_context(), control))
    assert not control.told
    in_activity(lambda: Pulse.look(contextvars.copy_context(), control), cancelled=True)
    assert control.told


@pytest.mark.parametrize("silent", [False, True])
def test_a_beat_goes_out_unless_the_loop_is_silent_for_too_long(monkeypatch, silent: bool):
    """A blocked loop within its patience still beats; past it, whoever waits learns by the missing beat."""
    monkeypatch.setattr(pulses, "LOOK_S", 0.002)
    monkeypatch.setattr(pulses, "BEAT_S", 0.0)
    beats: list[int] = []
    control = Control()
    monkeypatch.setattr(control, "silent", lambda: silent)
    looked = threading.Event()
    monkeypatch.setattr(Pulse, "look", staticmethod(lambda _context, _control: looked.set()))

    def work() -> None:
        with Pulse().beating(control):
            assert looked.wait(5)
            end = time.monotonic() + (5 if not silent else 0.05)
            while not beats and time.monotonic() < end:
                time.sleep(0.002)

    in_activity(work, heartbeats=beats)
    assert bool(beats) is not silent


def test_what_one_beat_raises_does_not_stop_the_others(monkeypatch):
    """An activity that ends between two looks concerns nobody else."""
    monkeypatch.setattr(pulses, "LOOK_S", 0.002)
    pulse, looked = Pulse(), threading.Event()
    broken, whole = Control(), Control()

    def look(_context, control) -> None:
        if control is broken:
            raise RuntimeError("not in activity context")
        looked.set()

    monkeypatch.setattr(Pulse, "look", staticmethod(look))
    with pulse.beating(broken), pulse.beating(whole):
        assert looked.wait(5)
