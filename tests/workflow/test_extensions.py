"""Extensions on a real server: publication, projection, messages, lanes, recovery events, as one scripted set."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.function import FunctionModel

from examples import notes
from storage import StoreLimits, open_store
from storage.store import SqlStore
from tests.contract.test_recovery_events import FAILURE
from tests.deployment import connected, running_worker, until
from tests.replaying import replay_current
from tests.scripted import AGENT, registry
from thread_objects.agents import Registry, bind, schedule_lane, schedule_lane_sync
from thread_objects.client import ThreadClient
from thread_objects.contract import names
from thread_objects.contract.messages import Schedule
from thread_objects.contract.object import Carried, ObjectStart
from thread_objects.contract.reports import ObjectReport
from thread_objects.contract.states import LanePhase, Outcome, SubmissionState, ToolClass
from thread_objects.core.due_queue import MESSAGES, NATIVE, PROJECTION, PUBLICATION, RECOVERY_EVENTS
from thread_objects.errors import InvalidInput, LaneRefused, StoreUnavailable
from thread_objects.extensions import Due, Extensions, Lane, WaveContext
from thread_objects.objects import TASK_TIMEOUT, object_config
from thread_objects.settings import Settings


@dataclass
class Script:
    """One publication, projection, message driver and consumer of events.

    `told` are the calls in order; `plan` says by call what the next ones answer or raise.
    """

    told: list[str] = field(default_factory=list)
    plan: dict[str, list[Any]] = field(default_factory=dict)
    timeout_ms: int = 20_000

    def act(self, name: str) -> Any:
        """Note a call, and do as planned."""
        self.told.append(name)
        planned = self.plan.get(name)
        answer = planned.pop(0) if planned else None
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def invalidate(self, _context: WaveContext) -> None:
        self.act("invalidate")

    def prepare_generation(self, _context: WaveContext, _generation: int) -> None:
        self.act("prepare generation")

    async def drain(self, _context: WaveContext) -> Due:
        return self.act("drain")

    def backfill(self, context: WaveContext) -> Due:
        later = self.act("backfill")
        return None if later is None else context.now + later

    def prepare(self, _context: WaveContext) -> str:
        self.act("prepare")
        return "letter"

    async def deliver(self, context: WaveContext, prepared: str) -> Due:
        context.progress(NATIVE)
        return self.act(f"deliver {prepared}")

    async def publish(self, _context: WaveContext, event: Any) -> None:
        self.act(f"event {event.sequence} {event.transition}")

    def lane(self, lane_id: str, **more: Any) -> Lane:
        """A lane whose calls are told by its id."""
        return Lane(lane_id, lambda _context: self.act(lane_id), **more)


@asynccontextmanager
async def served(
    settings: Settings, extensions: Extensions, agents: Registry = registry
) -> AsyncIterator[ThreadClient]:
    """A worker with these extensions, and a client."""
    async with running_worker(settings, agents, extensions), connected(settings) as client:
        yield client


async def at_rest(client: ThreadClient, thread: str) -> ObjectReport:
    """Wait until nothing runs and nothing is due."""

    async def look() -> Any:
        report = await client.report(thread)
        quiet = not report.attempts and report.alarm.maintenance is None
        return report if quiet and report.generation.processed >= report.generation.dirty else None

    return await until(look)


async def row(client: ThreadClient, thread: str, lane: str) -> Any:
    """One row of the due queue."""
    return next((row for row in (await client.report(thread)).lanes if row.id == lane), None)


async def start_parking(
    client: ThreadClient, settings: Settings, thread: str, lane: str, extensions: Extensions
) -> None:
    """An object whose lane was charged seven times in a row: the next charge parks it."""
    installed = extensions.installed.model_copy(update={"deployment": 1}).model_dump(mode="json", by_alias=True)
    due = {"id": lane, "revision": 3, "dueAt": 0, "stalls": 7, "notBefore": 0, "state": "pending"}
    native = {"id": NATIVE, "revision": 3, "dueAt": 0, "state": "pending"}
    carried = Carried(
        maintenance={"rows": [due, native], "record": {"dirty": 2, "processed": 1}, "installed": installed}
    )
    await client.temporal.start_workflow(
        names.WORKFLOW_TYPE,
        ObjectStart(config=object_config(settings), carried=carried),
        id=thread,
        task_queue=settings.task_queue,
        task_timeout=TASK_TIMEOUT,
    )


# --- publication -----------------------------------------------------------------------------------------------------


async def test_a_required_publication_runs_before_native_work(settings: Settings, thread_id: str) -> None:
    """After the mutation invalidate and drain; then the barrier prepares and drains; only then the Attempt."""
    script = Script()
    async with served(settings, Extensions(publication=script)) as client:
        receipt = await client.submit(thread_id, AGENT, "say done", key="k")
        assert (await client.wait(receipt, timeout=20)).result == "done"
        report = await at_rest(client, thread_id)
        assert script.told[:4] == ["invalidate", "drain", "prepare generation", "drain"]
        assert report.installed.publication
        assert report.lane_failures == ()
        await replay_current(client.temporal, thread_id)


async def test_a_failing_hook_never_fails_the_operation(settings: Settings, thread_id: str) -> None:
    """LAN-028: the Receipt is the same, the failure is told; the barrier then backs off and native work waits for it."""
    script = Script(plan={"invalidate": [OSError("disk")], "drain": [ConnectionError("away"), None]})
    async with served(settings, Extensions(publication=script)) as client:
        began = time.monotonic()
        receipt = await client.submit(thread_id, AGENT, "say done", key="k")
        assert receipt.queue_sequence == 1
        assert (await client.wait(receipt, timeout=20)).outcome is Outcome.COMPLETED
        # The hook stopped at its invalidation; the barrier's own drain failed once and was charged a second for it.
        assert time.monotonic() - began > 0.9
        assert script.told[:5] == ["invalidate", "prepare generation", "drain", "prepare generation", "drain"]
        report = await at_rest(client, thread_id)
        failures = [one.failure for one in report.passes if one.failure]
        assert failures == [f"{PUBLICATION}: failure ConnectionError"]
        assert report.lane_failures == ()


async def test_a_publication_that_keeps_failing_parks_with_one_report(settings: Settings, thread_id: str) -> None:
    """Its eighth charge: parked for an hour, reported once; native work does not run, the Submission stays owed."""
    script = Script(plan={"drain": [ConnectionError("away")] * 50})
    extensions = Extensions(publication=script)
    async with served(settings, extensions) as client:
        await start_parking(client, settings, thread_id, PUBLICATION, extensions)

        async def passed() -> Any:
            report = await client.report(thread_id)
            return report if len(report.passes) > seen and not report.attempts else None

        seen = 0
        first = await until(passed)
        assert first.parked_reports == ("publication",)
        seen = len(first.passes)
        receipt = await client.submit(thread_id, AGENT, "say never", key="k")
        await client.wake(thread_id)
        report = await until(passed)
        assert report.parked_reports == ("publication",)
        status = await client.status(receipt.submission_id)
        assert (status.state, status.owned, status.epoch) == (SubmissionState.READY, False, 0)
        parked = await row(client, thread_id, PUBLICATION)
        assert (parked.state, parked.stalls) == ("parked", 8)
        assert script.told.count("drain") == 2, "the barrier's and the hook's"


# --- projection and messages -------------------------------------------------------------------------------------------


async def test_projection_and_messages_run_once_they_are_installed(settings: Settings, thread_id: str) -> None:
    """The object learns of them with its first answer; both go on until they say that nothing is left."""
    script = Script(plan={"backfill": [1_000, None]})
    async with served(settings, Extensions(projection=script, messages=script)) as client:
        receipt = await client.submit(thread_id, AGENT, "say done", key="k")
        assert (await client.wait(receipt, timeout=20)).result == "done"
        await until(lambda: script.told.count("backfill") == 2)
        assert script.told.index("deliver letter") == script.told.index("prepare") + 1
        report = await at_rest(client, thread_id)
        assert {row.id: row.due_at for row in report.lanes if row.id in (PROJECTION, MESSAGES)} == {
            PROJECTION: None,
            MESSAGES: None,
        }
        await replay_current(client.temporal, thread_id)


# --- lanes ---------------------------------------------------------------------------------------------------------------


async def test_a_lane_is_scheduled_cut_at_its_allowance_and_backs_off(settings: Settings, thread_id: str) -> None:
    """LAN-010 on a server: a typed failure at the allowance, one charge, a second's floor; its sibling is not touched."""
    script = Script()
    ended: list[float] = []

    async def hangs(context: WaveContext) -> Due:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(time.monotonic())
        return None

    lanes = [Lane("hangs", hangs, allowance_ms=800), script.lane("good", phase=LanePhase.AFTER_NATIVE)]
    async with served(settings, Extensions(lanes=lanes)) as client:
        began = time.monotonic()
        await client.schedule(thread_id, "good", 0)
        scheduled = await client.schedule(thread_id, "hangs", 0)
        assert (scheduled.lane, scheduled.counted) == ("hangs", True)

        async def failed() -> Any:
            report = await client.report(thread_id)
            return report if any(one.failure for one in report.passes) else None

        report = await until(failed)
        assert 0.5 < ended[0] - began < 5
        assert [(one.lane, one.failure) for one in report.lane_failures] == [("hangs", "hangs: timeout")]
        hanging = await row(client, thread_id, "hangs")
        assert (hanging.stalls, hanging.due_at is not None) == (1, True)
        await until(lambda: "good" in script.told)


async def test_a_lane_of_a_redeployed_worker_appears_without_a_change_of_workflow_code(
    settings: Settings, thread_id: str
) -> None:
    """Unknown lanes are refused with a type; the next deployment's worker is asked, and then they run."""
    script = Script()
    async with served(settings, Extensions()) as client:
        receipt = await client.submit(thread_id, AGENT, "say one", key="1")
        await client.wait(receipt, timeout=20)
        with pytest.raises(LaneRefused) as refused:
            await client.schedule(thread_id, "digest", 0)
        assert (refused.value.lane, (await client.report(thread_id)).installed.lanes) == ("digest", ())
        with pytest.raises(LaneRefused):
            await client.submit(thread_id, AGENT, "say never", key="never", lanes=["digest"])
        assert await client.find(thread_id, "local", "never") is None
        with pytest.raises(InvalidInput):
            await client.schedule(thread_id, "digest", -1)
        await client.temporal.get_workflow_handle(thread_id).signal(names.SCHEDULE, Schedule(lane="digest", due_at=0))

        async def refusal() -> Any:
            return (await client.report(thread_id)).refusals

        assert [(one.name, one.code) for one in await until(refusal)] == [("schedule", "LaneRefused")]
    async with served(settings, Extensions(lanes=[script.lane("digest", allowance_ms=5_000)])) as client:
        await client.schedule(thread_id, "digest", 0)
        await until(lambda: script.told == ["digest"])
        receipt = await client.submit(thread_id, AGENT, "say two", key="2", lanes=["digest"])
        assert (await client.wait(receipt, timeout=20)).result == "two"
        await until(lambda: script.told == ["digest", "digest"])
        report = await at_rest(client, thread_id)
        assert [(lane.id, lane.allowance_ms) for lane in report.installed.lanes] == [("digest", 5_000)]
        await replay_current(client.temporal, thread_id)


async def test_a_lane_that_went_with_its_deployment_is_told_until_it_is_back(
    settings: Settings, thread_id: str
) -> None:
    """LAN-002 on a server: nobody takes its wave, so the object asks what is installed, and stands still, visibly."""
    script = Script()
    async with served(settings, Extensions(lanes=[script.lane("digest", allowance_ms=500)])) as client:
        await client.schedule(thread_id, "digest", 0)
        await until(lambda: script.told == ["digest"])

        async def completed() -> Any:
            # A schedule without a cursor that comes before is answered by the wave that runs.
            return (await row(client, thread_id, "digest")).due_at is None

        await until(completed)
    async with served(settings, Extensions(release="2")) as client:
        await client.schedule(thread_id, "digest", 0)

        async def noticed() -> Any:
            return not (await client.report(thread_id)).installed.lanes

        await until(noticed)
        with pytest.raises(LaneRefused):
            await client.schedule(thread_id, "digest", 0)
        receipt = await client.submit(thread_id, AGENT, "say still here", key="k")

        async def told() -> Any:
            return [one for one in (await client.report(thread_id)).passes if "no handler" in (one.failure or "")]

        await until(told)
        assert (await client.status(receipt.submission_id)).settlement is None
    async with served(settings, Extensions(lanes=[script.lane("digest")], release="3")) as client:
        assert (await client.wait(receipt, timeout=40)).result == "still here"
        await until(lambda: len(script.told) == 2)


async def test_a_question_that_waits_for_storage_holds_no_timer_back(
    settings: Settings, thread_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked in vain what is installed, and with a batch in vain: both are tried again, and nobody has to knock."""
    lane = Script().lane("digest", allowance_ms=500)
    async with served(settings, Extensions(lanes=[lane])) as client:
        await client.schedule(thread_id, "digest", int(time.time() * 1_000) + 3_600_000)
    async with served(settings, Extensions(release="2")) as client:
        await client.submit(thread_id, AGENT, "say hi", key="k1")

        async def told() -> bool:
            return any("no handler" in (one.failure or "") for one in (await client.report(thread_id)).passes)

        await until(told)

        tried: list[str] = []

        def away(what: str) -> Any:
            def call(*_args: Any, **_named: Any) -> Any:
                tried.append(what)
                raise StoreUnavailable(reason="away")

            return call

        with monkeypatch.context() as outage:
            outage.setattr(SqlStore, "survey", away("survey"))
            outage.setattr(SqlStore, "apply", away("apply"))
            await client.wake(thread_id)
            await until(lambda: "survey" in tried)
            receipt = await client.submit_signal(thread_id, AGENT, "say hi", key="k2")
            await until(lambda: tried.count("apply") >= 20)

        async def admitted() -> bool:
            found = await client.status(receipt.submission_id)
            return found is not None and found.state is SubmissionState.READY

        await until(admitted)
        assert (await client.report(thread_id)).applied_total == 2


async def test_an_after_native_wave_gives_way_to_new_input(settings: Settings, thread_id: str) -> None:
    """LAN-015: it is cancelled and cleans up, its charge stays, the input settles at once; later it goes on."""
    began, ended = asyncio.Event(), []
    loop = asyncio.get_running_loop()

    async def slow(context: WaveContext) -> Due:
        loop.call_soon_threadsafe(began.set)
        if ended:
            ended.append("done")
            return None
        try:
            await asyncio.sleep(120)
        except asyncio.CancelledError:
            ended.append("cancelled" if context.cancelled else "?")
            raise
        return None

    lane = Lane("slow", slow, allowance_ms=180_000, phase=LanePhase.AFTER_NATIVE)
    async with served(settings, Extensions(lanes=[lane])) as client:
        await client.schedule(thread_id, "slow", 0)
        await asyncio.wait_for(began.wait(), 20)
        asked = time.monotonic()
        settled = await client.wait(await client.submit(thread_id, AGENT, "say quick", key="k"), timeout=20)
        assert (settled.result, time.monotonic() - asked < 10) == ("quick", True)
        charged = await row(client, thread_id, "slow")
        assert charged.stalls in (1, 2)
        await until(lambda: ended == ["cancelled", "done"])
        report = await at_rest(client, thread_id)
        assert [one.failure for one in report.passes if one.failure] == []
        await replay_current(client.temporal, thread_id)


async def test_a_cursor_counts_only_when_it_rises(settings: Settings, thread_id: str) -> None:
    """The same cursor again changes nothing, not even the deadline."""
    script = Script()
    async with served(settings, Extensions(lanes=[script.lane("digest")])) as client:
        ahead = int(time.time() * 1_000) + 3_600_000
        assert (await client.schedule(thread_id, "digest", ahead, cursor=7)).counted
        again = await client.schedule(thread_id, "digest", 0, cursor=7)
        assert (again.counted, again.due_at) == (False, ahead)
        assert (await client.schedule(thread_id, "digest", 0, cursor=8)).counted
        await until(lambda: script.told == ["digest"])


async def test_a_tool_schedules_a_lane_of_its_object(settings: Settings, thread_id: str) -> None:
    """Async and plain tools alike; neither native work nor the publication."""
    script = Script()
    agent = Agent(FunctionModel(_calls_both, model_name="both"))

    @agent.tool_plain
    async def later(lane: str) -> str:
        await schedule_lane(lane, 0, cursor=1)
        return "ok"

    @agent.tool_plain
    def plainly(lane: str) -> str:
        try:
            schedule_lane_sync(NATIVE, 0)
        except LaneRefused:
            schedule_lane_sync(lane, 0, cursor=2)
        return "ok"

    tools = {"later": ToolClass.IDEMPOTENT, "plainly": ToolClass.IDEMPOTENT}
    agents = Registry([bind(agent, id="both", tools=tools)])
    extensions = Extensions(lanes=[script.lane("a"), script.lane("b")])
    async with served(settings, extensions, agents) as client:
        receipt = await client.submit(thread_id, "both", "go", key="k")
        assert (await client.wait(receipt, timeout=20)).result == "done"
        await until(lambda: sorted(script.told) == ["a", "b"])
        handle = client.temporal.get_workflow_handle(thread_id)
        await handle.signal(names.SCHEDULE, Schedule(lane=NATIVE, due_at=0, attempt_id="x"))

        async def refusal() -> Any:
            return (await client.report(thread_id)).refusals

        assert [one.code for one in await until(refusal)] == ["LaneRefused"]
    with pytest.raises(LookupError):
        await schedule_lane("a", 0)


async def test_two_hundred_due_lanes_do_not_slow_a_submit(settings: Settings, thread_id: str) -> None:
    """They are a queue of their own: receipt and Settlement take about as long as without them."""
    script = Script()

    async def busy(context: WaveContext) -> Due:
        script.act(context.lane)
        await asyncio.sleep(0.2)
        return None

    lanes = [Lane(f"lane-{n:03}", busy, allowance_ms=60_000) for n in range(200)]

    async def seconds(client: ThreadClient, thread: str, key: str) -> float:
        began = time.monotonic()
        receipt = await client.submit(thread, AGENT, f"say {key}", key=key)
        await client.wait(receipt, timeout=30)
        return time.monotonic() - began

    async with served(settings, Extensions(lanes=lanes)) as client:
        await seconds(client, thread_id, "first")
        usual = max([await seconds(client, thread_id, f"usual-{n}") for n in range(3)])
        handle = client.temporal.get_workflow_handle(thread_id)
        await asyncio.gather(*(handle.signal(names.SCHEDULE, Schedule(lane=lane.id, due_at=0)) for lane in lanes))
        await until(lambda: script.told)
        loaded = [await seconds(client, thread_id, f"loaded-{n}") for n in range(3)]
        assert len(set(script.told)) < 200, "the lanes had ended before the submits: nothing was measured"
        assert min(loaded) < 5 * usual + 1.0
        assert max(script.told.count(lane.id) for lane in lanes) <= 1


# --- recovery events -------------------------------------------------------------------------------------------------------


async def test_recovery_events_arrive_in_order_across_a_failing_handler(settings: Settings, thread_id: str) -> None:
    """SWP-022, SWP-024: 1 is taken, 2 again and then what follows; meanwhile native work settles."""
    script = Script(plan={"event 2 created": [ConnectionError("away"), ConnectionError("away")]})
    store = open_store(settings.database_url, limits=StoreLimits())
    try:
        async with served(settings, Extensions(recovery_events=script)) as client:
            receipts = [await client.submit(thread_id, AGENT, f"hang 0.5; say {key}", key=key) for key in ("c", "d")]
            # Some time ago, so that the recovery is tried again at once.
            now = int(time.time() * 1_000) - 10_000
            await asyncio.to_thread(store.record_fault, thread_id, FAILURE, now=now)
            third = await client.submit(thread_id, AGENT, "say e", key="e")
            for receipt in (*receipts, third):
                assert (await client.wait(receipt, timeout=30)).outcome is Outcome.COMPLETED
            await until(lambda: any(word.startswith("event 3") for word in script.told))
            report = await at_rest(client, thread_id)
            events = [word.split()[1] for word in script.told]
            assert events[:4] == ["1", "2", "2", "2"]
            assert events[3:] == [str(n) for n in range(2, len(events) - 1)]
            assert await client.recovery_status(thread_id) is None
            assert {row.id: row.due_at for row in report.lanes}[RECOVERY_EVENTS] is None
            assert (await asyncio.to_thread(store.event_standing, thread_id)).pending is False
    finally:
        store.close()


def _calls_both(messages: list[Any], _info: Any) -> Any:
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart

    if len(messages) > 1:
        return ModelResponse(parts=[TextPart("done")])
    return ModelResponse(parts=[ToolCallPart("later", {"lane": "a"}), ToolCallPart("plainly", {"lane": "b"})])


async def test_a_schedule_during_a_wave_is_not_that_waves(settings: Settings, thread_id: str) -> None:
    """The wave may have looked before there was anything to see: it runs once more."""
    began, release = threading.Event(), threading.Event()
    runs: list[str] = []

    def looks(context: WaveContext) -> Due:
        runs.append(context.key)
        began.set()
        release.wait(10)
        return None

    async with served(settings, Extensions(lanes=[Lane("digest", looks)])) as client:
        await client.schedule(thread_id, "digest", 0)
        await until(began.is_set)
        await client.schedule(thread_id, "digest", 0)
        release.set()
        await until(lambda: len(runs) == 2)
        await at_rest(client, thread_id)
        assert len(set(runs)) == 2


async def test_the_example_indexes_what_its_tool_notes(
    settings: Settings, thread_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """examples/notes.py, served and used as its docstring says: every note is in the index, none twice."""
    monkeypatch.setattr(notes, "FOLDER", tmp_path / "notes")
    async with served(settings, notes.extensions, notes.registry) as client:
        said = ("buy milk", "call Ada", "water the plants")
        receipts = [await client.submit(thread_id, "notes", text, key=text) for text in said]
        # A note that was sent while another was taken may have joined its Run, whose result is then the last one's.
        results = [(await client.wait(receipt, timeout=20)).result for receipt in receipts]
        assert "Noted: water the plants." in results
        index = tmp_path / "notes" / f"{thread_id}.index"
        wanted = [["buy", "milk"], ["ada", "call"], ["plants", "the", "water"]]
        await until(lambda: index.exists() and json.loads(index.read_text()) == wanted)
        await at_rest(client, thread_id)
