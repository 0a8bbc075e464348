"""An object at rest costs nothing: no timer, no activity, no event."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHandle
from temporalio.testing import WorkflowEnvironment

from tests.deployment import connected, running_worker, settings_for, until
from tests.scripted import AGENT
from tests.temporal_servers import start_time_skipping, stop_time_skipping
from tests.workflow.conftest import Deployed
from thread_objects.client import ThreadClient
from thread_objects.errors import StreamEnded


async def event_types(handle: WorkflowHandle[Any, Any]) -> list[str]:
    """The names of all events of the current run."""
    return [EventType.Name(event.event_type) async for event in handle.fetch_history_events()]


async def at_rest(deployed: Any) -> bool:
    """Nothing dirty, no alarm."""
    report = await deployed.client.report(deployed.thread)
    return bool(report.generation.processed >= report.generation.dirty and report.alarm.maintenance is None)


async def test_a_one_turn_submission_starts_no_timer(deployed: Deployed) -> None:
    """The slot is armed by the mutation and cleared by the pass; the physical timer never starts."""
    receipt = await deployed.client.submit(deployed.thread, AGENT, "say hi", key="k")
    await deployed.client.wait(receipt, timeout=20)
    await until(lambda: at_rest(deployed))
    events = await event_types(deployed.temporal.get_workflow_handle(deployed.thread))
    assert not [name for name in events if "TIMER" in name]
    assert events.count("EVENT_TYPE_ACTIVITY_TASK_SCHEDULED") == 1
    assert len(events) <= 20


async def test_a_caught_up_wake_runs_no_activity_and_no_storage_read(deployed: Deployed) -> None:
    """Maintenance §8: a caught-up native step does no scan, no recovery, no history read."""
    receipt = await deployed.client.submit(deployed.thread, AGENT, "say hi", key="k")
    await deployed.client.wait(receipt, timeout=20)
    await until(lambda: at_rest(deployed))
    handle = deployed.temporal.get_workflow_handle(deployed.thread)
    before = await event_types(handle)
    passes = (await deployed.client.report(deployed.thread)).passes
    for _ in range(3):
        await deployed.client.wake(deployed.thread)
    added = (await event_types(handle))[len(before) :]
    assert not [name for name in added if "MARKER" in name or "ACTIVITY" in name or "TIMER" in name]
    assert (await deployed.client.report(deployed.thread)).passes == passes


async def test_waiting_costs_no_event(deployed: Deployed) -> None:
    """Twenty waiters for two seconds, with and without a database: the object's history does not move."""
    receipt = await deployed.client.submit(deployed.thread, AGENT, "hang 3; say late", key="k")
    handle = deployed.temporal.get_workflow_handle(deployed.thread)
    await until(lambda: running(deployed))
    async with connected(deployed.settings, with_database=False) as bare:
        waiters = [
            asyncio.create_task(client.wait(receipt, timeout=20))
            for client in [deployed.client, bare]
            for _ in range(10)
        ]
        before = (await handle.describe()).history_length
        await asyncio.sleep(1.5)
        assert (await handle.describe()).history_length == before
        settled = await asyncio.gather(*waiters)
    assert {settlement.result for settlement in settled} == {"late"}


async def running(deployed: Deployed) -> bool:
    """The Attempt is under way and the report says so."""
    return bool((await deployed.client.report(deployed.thread)).attempts)


async def test_a_follower_of_a_closed_client_is_told(deployed: Deployed) -> None:
    """F35: a stream that ends without a terminal event raises."""
    receipt = await deployed.client.submit(deployed.thread, AGENT, "say hi", key="k")
    await deployed.client.wait(receipt, timeout=20)
    client = await ThreadClient.connect(deployed.settings)
    seen = []
    with pytest.raises(StreamEnded):
        async for record in client.follow(deployed.thread):
            seen.append(record.kind)
            if record.kind == "SubmissionSettled":
                await client.close()
    assert seen[-1] == "SubmissionSettled"
    ended = [record.kind async for record in deployed.client.follow(deployed.thread, until=receipt.submission_id)]
    assert ended == seen


@pytest.fixture
def own_time() -> Iterator[WorkflowEnvironment]:
    """A time-skipping server of one's own: objects that other tests left behind would hold its clock."""
    environment = start_time_skipping()
    yield environment
    stop_time_skipping(environment)


async def test_an_idle_object_gains_no_event_in_a_day(
    own_time: WorkflowEnvironment, tmp_path: Path, task_queue: str, thread_id: str
) -> None:
    """An idle object has no timer: a day of skipped time leaves its history as it was."""
    address = own_time.client.service_client.config.target_host
    settings = settings_for(address, f"sqlite:///{tmp_path}/threads.db", task_queue)
    async with running_worker(settings), connected(settings) as client:
        receipt = await client.submit(thread_id, AGENT, "call look a; say hi", key="k")
        assert (await client.wait(receipt, timeout=30)).result == "hi"

        async def resting() -> bool:
            report = await client.report(thread_id)
            return report.generation.processed >= report.generation.dirty and report.alarm.timer is None

        await until(resting)
        handle = client.temporal.get_workflow_handle(thread_id)
        before = (await handle.describe()).history_length
        await asyncio.wait_for(own_time.sleep(86_400), 60)
        assert (await handle.describe()).history_length == before
        later = await client.submit(thread_id, AGENT, "say again", key="k2")
        assert (await client.wait(later, timeout=30)).result == "again"
