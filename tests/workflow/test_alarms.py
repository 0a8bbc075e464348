"""Application alarms on real servers: one timer for all of them, delivered at least once, listed, replaced, cancelled."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHandle
from temporalio.testing import WorkflowEnvironment

from tests.alarmed import ASYNC, SYNC, extensions, script
from tests.deployment import connected, running_worker, settings_for, until
from tests.replaying import replay_current, replay_object
from tests.scripted import AGENT, effects
from tests.temporal_servers import start_time_skipping, stop_time_skipping
from tests.workflow.conftest import Deployed
from thread_objects.contract import limits, names
from thread_objects.errors import DurableAlarmError, InvalidInput, NotFound
from thread_objects.extensions import Extensions
from thread_objects.settings import Settings

NOW = datetime(2020, 1, 1, tzinfo=UTC)
"""Long past: due at once."""


@pytest.fixture
async def deployed(settings: Settings, thread_id: str) -> AsyncIterator[Deployed]:
    """A deployment whose worker has the handlers; every history replays."""
    async with running_worker(settings, extensions=extensions), connected(settings) as client:
        yield Deployed(settings, client, client.temporal, thread_id)
        await replay_object(client.temporal, thread_id)


def deliveries(ledger: Path) -> list[str]:
    """Alarm id and attempt of every delivery, in order."""
    return [name.rpartition("/")[0] if name.count("/") > 1 else name for name in effects(ledger)]


async def timers(handle: WorkflowHandle[Any, Any]) -> tuple[int, int]:
    """How many timers were started, and how many were outstanding at most."""
    started, outstanding, most = 0, 0, 0
    async for event in handle.fetch_history_events():
        match EventType.Name(event.event_type):
            case "EVENT_TYPE_TIMER_STARTED":
                started, outstanding = started + 1, outstanding + 1
            case "EVENT_TYPE_TIMER_FIRED" | "EVENT_TYPE_TIMER_CANCELED":
                outstanding -= 1
        most = max(most, outstanding)
    return started, most


async def test_an_alarm_is_set_listed_delivered_and_gone(deployed: Deployed, tmp_path: Path) -> None:
    """Either kind of handler; the list shows it until a delivery ended well."""
    client, thread, ledger = deployed.client, deployed.thread, tmp_path / "ledger"
    far = datetime.now(UTC) + timedelta(days=400)
    payload = script(ledger)
    first = await client.set_alarm(thread, SYNC, "far", run_at=far, payload=payload)
    assert (first.replayed, first.replaced) == (False, False)
    assert (await client.set_alarm(thread, SYNC, "far", run_at=far, payload=payload)).replayed
    for tag in (SYNC, ASYNC):
        await client.set_alarm(thread, tag, f"due-{tag}", run_at=NOW, payload=payload)

    async def both() -> bool:
        return len(await client.alarms(thread)) == 1

    await until(both)
    assert Counter(deliveries(ledger)) == {"due-sync/1": 1, "due-async/1": 1}
    (left,) = await client.alarms(thread)
    assert (left.alarm_id, left.run_at, left.payload, left.attempts) == ("far", first.run_at, payload, 0)
    assert (await client.report(thread)).alarm.alarms_total == 1
    moved = await client.set_alarm(thread, SYNC, "far", run_at=NOW, payload=payload)
    assert moved.replaced

    async def none() -> bool:
        return not await client.alarms(thread)

    await until(none)
    assert deliveries(ledger)[-1] == "far/1"
    assert not (await client.cancel_alarm(thread, SYNC, "far")).cancelled


async def test_a_failing_handler_is_retried_with_backoff_under_one_key(deployed: Deployed, tmp_path: Path) -> None:
    """The list tells attempts and the class of the failure, the history holds nothing that the handler said."""
    client, thread, ledger = deployed.client, deployed.thread, tmp_path / "ledger"
    await client.set_alarm(thread, ASYNC, "a", run_at=NOW, payload=script(ledger, fail=2))

    async def failed_twice() -> Any:
        return [alarm for alarm in await client.alarms(thread) if alarm.attempts == 2 and alarm.failure]

    ((standing,), report) = (await until(failed_twice), await client.report(thread))
    assert standing.failure == "LookupError"
    assert standing.next_at > standing.run_at
    assert report.alarm.alarms[0].failure == "LookupError"

    async def done() -> bool:
        return not await client.alarms(thread)

    await until(done)
    assert deliveries(ledger) == ["a/1", "a/2", "a/3"]
    assert len({name.rpartition("/")[2] for name in effects(ledger)}) == 1
    times = [float(line.split()[2]) for line in ledger.read_text().splitlines()]
    first, second = (later - earlier for earlier, later in pairwise(times))
    assert first >= 0.5 and second >= 1.0
    history = await deployed.temporal.get_workflow_handle(thread).fetch_history()
    assert "secret text" not in history.to_json()


@pytest.mark.parametrize("beside", [None, Extensions(alarms={"another": print})], ids=["no handlers", "another tag"])
async def test_a_tag_without_handler_stays_listed_with_a_typed_failure(
    settings: Settings, thread_id: str, beside: Extensions | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It backs off, visibly, until a worker with the handler is there; also where no worker takes any delivery."""
    monkeypatch.setattr(limits, "ALARM_PICKUP_MS", 500)
    async with connected(settings) as client:
        async with running_worker(settings, extensions=beside):
            await client.set_alarm(thread_id, SYNC, "a", run_at=NOW, payload=None)

            async def shown() -> Any:
                return [a for a in (await client.report(thread_id)).alarm.alarms if a.failure]

            (standing,) = await until(shown)
            assert standing.failure == "AlarmHandlerUnavailable"
        taken: list[str] = []
        async with running_worker(settings, extensions=Extensions(alarms={SYNC: lambda a: taken.append(a.alarm_id)})):

            async def done() -> bool:
                return not await client.alarms(thread_id)

            await until(done)
        assert taken == ["a"]


async def test_deliveries_hold_up_neither_input_nor_one_another(deployed: Deployed, tmp_path: Path) -> None:
    """Four at a time take their time; a fifth waits for room; a submit in between takes no longer for it."""
    client, thread, ledger = deployed.client, deployed.thread, tmp_path / "ledger"
    for n in range(5):
        hold = {} if n == 4 else {"hold": 1.5}
        await client.set_alarm(thread, ASYNC, f"a{n}", run_at=NOW + timedelta(n), payload=script(ledger, **hold))
    await until(lambda: len(deliveries(ledger)) == 4)
    began = time.monotonic()
    receipt = await client.submit(thread, AGENT, "say hi", key="k")
    assert (await client.wait(receipt, timeout=20)).result == "hi"
    assert time.monotonic() - began < 1.4
    assert len(deliveries(ledger)) == 4
    await until(lambda: len(deliveries(ledger)) == 9)
    assert deliveries(ledger)[:4] == [f"a{n}/1" for n in range(4)]
    assert [name for name in deliveries(ledger) if name.startswith("a4")] == ["a4/1"]


async def test_cancelled_while_it_is_delivered_it_ends_and_is_not_repeated(deployed: Deployed, tmp_path: Path) -> None:
    """Even a delivery that fails then."""
    client, thread, ledger = deployed.client, deployed.thread, tmp_path / "ledger"
    await client.set_alarm(thread, ASYNC, "a", run_at=NOW, payload=script(ledger, hold=0.5))
    await until(lambda: deliveries(ledger) == ["a/1"])
    answer = await client.cancel_alarm(thread, ASYNC, "a")
    assert (answer.cancelled, answer.delivering) == (True, True)
    assert await client.alarms(thread) == []
    await until(lambda: deliveries(ledger) == ["a/1", "a/end"])
    again = await client.cancel_alarm(thread, ASYNC, "a")
    assert not again.cancelled


async def test_what_is_outside_the_bounds_is_refused_typed(deployed: Deployed) -> None:
    """An update raises before anything is written; a signal leaves its trace in the refusal list."""
    client, thread = deployed.client, deployed.thread
    await client.set_alarm(thread, SYNC, "a", run_at=datetime.now(UTC) + timedelta(days=1))
    heavy = "x" * limits.ALARM_PAYLOAD_BYTES_MAX
    with pytest.raises(DurableAlarmError, match="bytes") as refused:
        await client.set_alarm(thread, SYNC, "b", run_at=NOW, payload=heavy)
    assert refused.value.operation == "set alarm"
    with pytest.raises(InvalidInput, match="time zone"):
        await client.set_alarm(thread, SYNC, "b", run_at=datetime(2030, 1, 1))
    with pytest.raises(InvalidInput, match="tag"):
        await client.set_alarm(thread, "", "b", run_at=NOW)
    with pytest.raises(NotFound):
        await client.cancel_alarm(f"{thread}-absent", SYNC, "b")
    handle = deployed.temporal.get_workflow_handle(thread)
    good = {"threadId": thread, "tag": SYNC, "alarmId": "b", "runAt": 1}
    for bad in ({**good, "payload": heavy}, {**good, "runAt": "soon"}, {**good, "threadId": "another"}, 7):
        await handle.signal(names.SET_ALARM, bad)
    await handle.signal(names.CANCEL_ALARM, {"tag": SYNC})

    async def five() -> Any:
        report = await client.report(thread)
        return report if report.refused_total == 5 else None

    report = await until(five)
    assert [(r.name, r.code) for r in report.refusals] == [
        ("set_alarm", "DurableAlarmError"),
        *[("set_alarm", "InvalidInput")] * 3,
        ("cancel_alarm", "InvalidInput"),
    ]
    assert [alarm.alarm_id for alarm in await client.alarms(thread)] == ["a"]


async def test_a_signal_sets_and_cancels_as_an_update_does(deployed: Deployed, tmp_path: Path) -> None:
    """For senders that do not wait for an answer."""
    client, thread, ledger = deployed.client, deployed.thread, tmp_path / "ledger"
    await client.wait(await client.submit(thread, AGENT, "say hi", key="k"), timeout=20)
    handle = deployed.temporal.get_workflow_handle(thread)
    alarm = {"threadId": thread, "tag": SYNC, "runAt": 1, "payload": script(ledger)}
    await handle.signal(names.SET_ALARM, {**alarm, "alarmId": "never", "runAt": int(time.time() * 1e3) + 900_000})
    await handle.signal(names.CANCEL_ALARM, {**alarm, "alarmId": "never"})
    await handle.signal(names.SET_ALARM, {**alarm, "alarmId": "a"})

    async def none() -> bool:
        return not await client.alarms(thread)

    await until(lambda: deliveries(ledger))
    await until(none)
    assert deliveries(ledger) == ["a/1"]


async def test_continue_as_new_carries_alarms_and_waits_for_a_delivery(
    settings: Settings, thread_id: str, tmp_path
) -> None:
    """A delivery that runs ends in the history it began in; what is listed travels whole; nothing new starts between."""
    ledger = tmp_path / "ledger"
    small = settings.model_copy(update={"continue_updates": 8})
    async with running_worker(small, extensions=extensions), connected(small) as client:
        far = datetime.now(UTC) + timedelta(days=3)
        await client.set_alarm(thread_id, SYNC, "far", run_at=far, payload={"any": [1, None]})
        await client.set_alarm(thread_id, ASYNC, "now", run_at=NOW, payload=script(ledger, hold=1.0))
        await until(lambda: deliveries(ledger) == ["now/1"])
        (listed,) = [alarm for alarm in await client.alarms(thread_id) if alarm.alarm_id == "far"]
        for _ in range(6):
            await client.wake(thread_id)
        await client.set_alarm(thread_id, SYNC, "due", run_at=NOW, payload=script(ledger))
        assert (await client.report(thread_id)).run_count == 1
        assert deliveries(ledger) == ["now/1"]

        async def moved() -> bool:
            return (await client.report(thread_id)).run_count == 2

        await until(moved)
        await until(lambda: len(deliveries(ledger)) == 3)
        assert deliveries(ledger) == ["now/1", "now/end", "due/1"]

        async def only_far() -> bool:
            return await client.alarms(thread_id) == [listed]

        await until(only_far)


async def test_an_object_that_outgrows_its_trigger_moves_and_delivers_again(
    settings: Settings, thread_id: str, tmp_path
) -> None:
    """A handler cannot hold a history open: past a quarter more the delivery is left behind, and repeated."""
    ledger = tmp_path / "ledger"
    small = settings.model_copy(update={"continue_updates": 8})
    async with running_worker(small, extensions=extensions), connected(small) as client:
        await client.set_alarm(thread_id, ASYNC, "a", run_at=NOW, payload=script(ledger, hold=3))
        await until(lambda: deliveries(ledger) == ["a/1"])
        for _ in range(9):
            await client.wake(thread_id)

        async def moved() -> bool:
            return (await client.report(thread_id)).run_count == 2

        await until(moved)
        await until(lambda: "a/2" in deliveries(ledger))
        (alarm,) = await client.alarms(thread_id)
        assert (alarm.attempts, alarm.delivering) == (2, True)
        await client.cancel_alarm(thread_id, ASYNC, "a")
        handle = client.temporal.get_workflow_handle(thread_id)
        await handle.terminate("seen enough")


# --- time ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def skipping() -> Iterator[WorkflowEnvironment]:
    """A time-skipping server for this module: its clock stands still for as long as anybody's handler runs."""
    environment = start_time_skipping()
    yield environment
    stop_time_skipping(environment)


@pytest.fixture
async def days(
    skipping: WorkflowEnvironment, tmp_path: Path, task_queue: str, thread_id: str
) -> AsyncIterator[Deployed]:
    """A deployment on that server, with one settled Submission behind it."""
    address = skipping.client.service_client.config.target_host
    settings = settings_for(address, f"sqlite:///{tmp_path}/threads.db", task_queue)
    async with running_worker(settings, extensions=extensions), connected(settings) as client:
        receipt = await client.submit(thread_id, AGENT, "say hi", key="k")
        await client.wait(receipt, timeout=30)
        handle = client.temporal.get_workflow_handle(thread_id)

        async def resting() -> bool:
            report = await client.report(thread_id)
            return report.generation.processed >= report.generation.dirty and report.alarm.maintenance is None

        await until(resting)
        yield Deployed(settings, client, client.temporal, thread_id)
        await replay_current(client.temporal, thread_id)
        await handle.terminate("the test is over")


async def test_alarms_share_one_timer_and_fire_on_their_day(
    days: Deployed, skipping: WorkflowEnvironment, tmp_path: Path
) -> None:
    """An idle object with alarms has one timer, that of the next one; a cancelled alarm never fires."""
    client, thread, ledger = days.client, days.thread, tmp_path / "ledger"
    handle = days.temporal.get_workflow_handle(thread)
    now = await skipping.get_current_time()
    for alarm_id, hours in (("day", 24), ("later", 36), ("never", 30), ("two-days", 48)):
        at = now + timedelta(hours=hours)
        await client.set_alarm(thread, SYNC, alarm_id, run_at=at, payload=script(ledger))
    await client.cancel_alarm(thread, SYNC, "never")
    assert await timers(handle) == (1, 1)
    before = (await handle.describe()).history_length
    await asyncio.wait_for(skipping.sleep(timedelta(hours=23)), 60)
    assert (await handle.describe()).history_length == before
    assert deliveries(ledger) == []
    await asyncio.wait_for(skipping.sleep(timedelta(hours=9)), 60)
    await until(lambda: deliveries(ledger) == ["day/1"])
    await asyncio.wait_for(skipping.sleep(timedelta(hours=18)), 60)
    await until(lambda: len(deliveries(ledger)) == 3)
    assert deliveries(ledger) == ["day/1", "later/1", "two-days/1"]

    async def none() -> bool:
        return not await client.alarms(thread)

    await until(none)
    assert await timers(handle) == (3, 1)
    assert (await client.report(thread)).alarm.timer is None


async def test_an_alarm_and_a_maintenance_deadline_share_the_timer(
    days: Deployed, skipping: WorkflowEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The earlier of both is timed, never two at once; neither moves the other."""
    client, thread, ledger = days.client, days.thread, tmp_path / "ledger"
    handle = days.temporal.get_workflow_handle(thread)
    at = await skipping.get_current_time() + timedelta(hours=1)
    armed = await client.set_alarm(thread, SYNC, "hour", run_at=at, payload=script(ledger))
    monkeypatch.setattr("activities.advance.Advance.run", _broken)
    receipt = await client.submit(thread, AGENT, "say at last", key="k2")

    async def backing_off() -> Any:
        report = await client.report(thread)
        deadline = report.alarm.maintenance
        return report if report.passes[-1].failure and deadline and report.alarm.timer == deadline else None

    report = await until(backing_off)
    assert report.alarm.timer < armed.run_at
    assert [(alarm.alarm_id, alarm.next_at) for alarm in report.alarm.alarms] == [("hour", armed.run_at)]
    monkeypatch.undo()
    await asyncio.wait_for(skipping.sleep(timedelta(minutes=5)), 60)
    assert (await client.wait(receipt, timeout=30)).result == "at last"
    assert deliveries(ledger) == []
    await asyncio.wait_for(skipping.sleep(timedelta(hours=1)), 60)
    await until(lambda: deliveries(ledger) == ["hour/1"])
    assert (await timers(handle))[1] == 1


def _broken(*_: Any) -> Any:
    raise LookupError("staged")
