"""Idle objects cost their rows and nothing else: `make idle OBJECTS=10000` asks for as many as one likes."""

import asyncio
import os
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from temporalio.api.enums.v1 import EventType

from storage.store import SqlStore
from tests.deployment import WorkerCommand, connected, until
from tests.scripted import AGENT
from tests.temporal_servers import DevServer
from tests.workflow.conftest import Deployed
from tests.workflow.test_rest import at_rest, event_types
from thread_objects.client import ThreadClient
from thread_objects.settings import Settings

OBJECTS = int(os.environ.get("IDLE_OBJECTS", "40"))
QUIET_S = 3.0
AT_A_TIME = 32
CPU_SHARE_MAX = 0.1
"""Of one core: beats and sweeps of the worker, and the SDK's own pollers."""
TABLES = ("objects", "threads", "submissions", "records")


@pytest.fixture
async def client(settings: Settings, dev_server: DevServer, tmp_path: Path) -> AsyncIterator[ThreadClient]:
    """A worker in a process of its own, so that its time can be told."""
    worker = WorkerCommand(
        settings={
            "THREADS_ADDRESS": dev_server.address,
            "THREADS_DATABASE_URL": str(settings.database_url),
            "THREADS_TASK_QUEUE": settings.task_queue,
            "THREADS_SQLITE_SYNCHRONOUS": "NORMAL",
        },
        log=tmp_path / "worker.log",
    )
    await asyncio.to_thread(worker.start)
    try:
        async with connected(settings) as client:
            client.worker_pid = worker.process.pid  # type: ignore[attr-defined]
            yield client
    finally:
        await asyncio.to_thread(worker.stop)


async def each(numbers: range, do: Any) -> list[Any]:
    """Do it for all of them, a bounded number at a time."""
    gate = asyncio.Semaphore(AT_A_TIME)

    async def one(number: int) -> Any:
        async with gate:
            return await do(number)

    return await asyncio.gather(*(one(number) for number in numbers))


def rows(database: Path) -> dict[str, int]:
    """How many rows the tables of objects and Threads have."""
    with closing(sqlite3.connect(database)) as raw:
        return {table: raw.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0] for table in TABLES}


async def test_idle_objects_cost_nothing_but_their_rows(client: ThreadClient, thread_id: str, tmp_path: Path) -> None:
    """No timer, no activity, no new event of any of them, no new row, and a worker that rests."""
    began = time.monotonic()

    async def settle(number: int) -> None:
        pending = await client.submit_signal(f"{thread_id}-{number}", AGENT, "say hi", key="k")
        await client.wait(pending, timeout=600)

    await each(range(OBJECTS), settle)
    settled_s = time.monotonic() - began

    async def length(number: int) -> int:
        described = await client.temporal.get_workflow_handle(f"{thread_id}-{number}").describe()
        raw = described.raw_description
        busy = bool(raw.pending_activities) or raw.HasField("pending_workflow_task")
        return -1 if busy else int(described.history_length)

    async def resting() -> list[int] | None:
        lengths = await each(range(OBJECTS), length)
        await asyncio.sleep(1.0)
        return lengths if -1 not in lengths and await each(range(OBJECTS), length) == lengths else None

    lengths = await until(resting, timeout_s=120)
    before = rows(tmp_path / "threads.db")
    assert before == {"objects": OBJECTS, "threads": OBJECTS, "submissions": OBJECTS, "records": 6 * OBJECTS}
    worker = psutil.Process(client.worker_pid)  # type: ignore[attr-defined]
    cpu, since = sum(worker.cpu_times()[:2]), time.monotonic()
    await asyncio.sleep(QUIET_S)
    share = (sum(worker.cpu_times()[:2]) - cpu) / (time.monotonic() - since)
    assert await each(range(OBJECTS), length) == lengths
    assert rows(tmp_path / "threads.db") == before
    assert share < CPU_SHARE_MAX

    async def open_timers(number: int) -> int:
        started = ended = 0
        async for event in client.temporal.get_workflow_handle(f"{thread_id}-{number}").fetch_history_events():
            name = EventType.Name(event.event_type)
            started += name == "EVENT_TYPE_TIMER_STARTED"
            ended += name in {"EVENT_TYPE_TIMER_FIRED", "EVENT_TYPE_TIMER_CANCELED"}
        return started - ended

    assert sum(await each(range(OBJECTS), open_timers)) == 0
    print(f"{OBJECTS} objects settled in {settled_s:.1f} s; idle: {share:.1%} of a core")


async def test_a_caught_up_wake_reads_nothing_from_storage(deployed: Deployed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Maintenance §8: no activity is scheduled, and the store's only visitor is the worker's own beat."""
    await deployed.client.wait(await deployed.client.submit(deployed.thread, AGENT, "say hi", key="k"), timeout=20)
    await until(lambda: at_rest(deployed))
    asked: list[str] = []
    beats = {"worker_seen", "workers_silent_since", "worker_gone", "old_marks", "objects_owed_by", "objects_of_workers"}

    def spied(name: str, method: Any) -> Any:
        def call(store: SqlStore, *args: Any, **kwargs: Any) -> Any:
            asked.append(name)
            return method(store, *args, **kwargs)

        return call

    for name, method in list(vars(SqlStore).items()):
        if callable(method) and not name.startswith("_") and name not in beats:
            monkeypatch.setattr(SqlStore, name, spied(name, method))
    handle = deployed.temporal.get_workflow_handle(deployed.thread)
    before = await event_types(handle)
    for _ in range(5):
        await deployed.client.wake(deployed.thread)
    added = (await event_types(handle))[len(before) :]
    assert added
    assert [name for name in added if "ACTIVITY" in name or "MARKER" in name or "TIMER" in name] == []
    assert asked == []
    await deployed.client.wait(await deployed.client.submit(deployed.thread, AGENT, "say hi", key="k2"), timeout=20)
    assert "apply" in asked
