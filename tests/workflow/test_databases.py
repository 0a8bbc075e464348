"""The same main path on PostgreSQL, and what happens while a database is away."""

import asyncio
import sqlite3
import time
from pathlib import Path

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

from tests.deployment import connected, running_worker, settings_for, until
from tests.scripted import AGENT, effects
from tests.temporal_servers import DevServer
from tests.workflow.conftest import Deployed
from thread_objects import calls
from thread_objects.contract import limits
from thread_objects.contract.states import Outcome
from thread_objects.errors import Busy, SignalRefused
from thread_objects.settings import Settings


async def test_the_main_path_on_postgresql(
    dev_server: DevServer, postgres_url: str, task_queue: str, thread_id: str
) -> None:
    """Two workers share a database and a task queue; every thread settles in order."""
    settings = settings_for(dev_server.address, postgres_url, task_queue)
    async with running_worker(settings), running_worker(settings), connected(settings) as client:
        threads = [f"{thread_id}-{k}" for k in range(6)]

        async def talk(thread: str) -> list[object]:
            told: list[object] = []
            for n in range(4):
                receipt = await client.submit(thread, AGENT, f"call look {n}; say {n}", key=f"k{n}")
                told.append((await client.wait(receipt, timeout=30)).result)
            return told

        assert await asyncio.gather(*(talk(thread) for thread in threads)) == [["0", "1", "2", "3"]] * 6


async def test_a_pool_of_two_serves_fifty_attempts(
    dev_server: DevServer, postgres_url: str, task_queue: str, thread_id: str, tmp_path: Path
) -> None:
    """F22: fifty Attempts on two connections: no error, and none is taken for dead while its model thinks past a heartbeat timeout."""
    settings = settings_for(dev_server.address, postgres_url, task_queue, database_pool=2, attempts=50)
    ledger = tmp_path / "effects"
    script = f"call look a@{ledger}; hang 6; call look b@{ledger}; say done"
    async with running_worker(settings), connected(settings) as client:
        threads = [f"{thread_id}-{k}" for k in range(50)]
        receipts = await asyncio.gather(*(client.submit(thread, AGENT, script, key="k") for thread in threads))
        settled = await asyncio.gather(*(client.wait(receipt, timeout=90) for receipt in receipts))
        assert {(one.outcome, one.result) for one in settled} == {(Outcome.COMPLETED, "done")}
        kinds = [[record.kind for record in await client.log(thread)] for thread in threads]
    assert sorted(effects(ledger)) == ["a"] * 50 + ["b"] * 50
    assert not any("ModelResponseInterrupted" in of_thread for of_thread in kinds)


async def test_while_the_database_is_locked_signals_stay_and_updates_are_told(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing accepted is lost: a waiting update is answered busy within its bound, the signal settles later."""
    import sqlite3

    from thread_objects import calls

    receipt = await deployed.client.submit(deployed.thread, AGENT, "say first", key="first")
    await deployed.client.wait(receipt, timeout=20)
    monkeypatch.setattr(calls, "RETRY_S", 0.0)
    url = deployed.settings.database_url
    assert url is not None
    lock = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=10)
    lock.execute("BEGIN IMMEDIATE")
    try:
        began = time.monotonic()
        pending = await deployed.client.submit_signal(deployed.thread, AGENT, "say later", key="signal")
        with pytest.raises(Busy):
            await deployed.client.submit(deployed.thread, AGENT, "say update", key="update")
        assert time.monotonic() - began < 15
        report = await deployed.client.report(deployed.thread)
        assert report.inbox == 1
    finally:
        lock.execute("ROLLBACK")
        lock.close()
    settlement = await deployed.client.wait(pending, timeout=30)
    assert (settlement.outcome, settlement.result) == (Outcome.COMPLETED, "later")


async def test_a_client_learns_of_an_outcome_before_the_workflow_comes_round(
    settings: Settings, thread_id: str, tmp_path: Path
) -> None:
    """Waiting reads the database: many waiters, one poller, no event of the workflow."""
    del tmp_path
    async with running_worker(settings), connected(settings) as client:
        receipts = [await client.submit(thread_id, AGENT, f"say {n}", key=f"k{n}") for n in range(8)]
        settled = await asyncio.gather(*(client.wait(receipt, timeout=30) for receipt in receipts for _ in range(5)))
        assert [settlement.result for settlement in settled] == [str(n) for n in range(8) for _ in range(5)]

        async def counted() -> bool:
            return (await client.report(thread_id)).settled_total == 8

        await until(counted)


async def test_a_saturated_inbox_answers_busy_and_loses_nothing_accepted(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Design §4: at most 1.5 MiB waits in the workflow; past that updates are refused, typed and retryable."""
    receipt = await deployed.client.submit(deployed.thread, AGENT, "say first", key="first")
    await deployed.client.wait(receipt, timeout=20)
    monkeypatch.setattr(calls, "RETRY_S", 0.0)
    url = deployed.settings.database_url
    assert url is not None
    lock = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=10)
    lock.execute("BEGIN IMMEDIATE")
    try:
        text = "say " + "y" * 60_000
        sent = [await deployed.client.submit_signal(deployed.thread, AGENT, text, key=f"k{n}") for n in range(30)]

        async def saturated() -> bool:
            return (await deployed.client.report(deployed.thread)).saturated

        await until(saturated, timeout_s=30)
        with pytest.raises(Busy):
            await deployed.client.submit(deployed.thread, AGENT, "say update", key="update")
        report = await deployed.client.report(deployed.thread)
    finally:
        lock.execute("ROLLBACK")
        lock.close()
    refused = {entry.submission_id for entry in report.refusals}
    assert report.inbox + report.refused_total == len(sent)
    kept = [pending for pending in sent if pending.submission_id not in refused]
    assert len(kept) == report.inbox
    for pending in kept:
        assert (await deployed.client.wait(pending, timeout=60)).outcome is Outcome.COMPLETED
    for pending in sent:
        if pending.submission_id in refused:
            with pytest.raises(SignalRefused):
                await deployed.client.wait(pending, timeout=20)


async def test_an_update_behind_a_full_batch_is_told_too(deployed: Deployed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Signals that wait for storage must not keep an update from its bounded answer."""
    receipt = await deployed.client.submit(deployed.thread, AGENT, "say first", key="first")
    await deployed.client.wait(receipt, timeout=20)
    monkeypatch.setattr(calls, "RETRY_S", 0.0)
    url = deployed.settings.database_url
    assert url is not None
    lock = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=10)
    lock.execute("BEGIN IMMEDIATE")
    try:
        for n in range(limits.BATCH_MUTATIONS_MAX + 1):
            await deployed.client.submit_signal(deployed.thread, AGENT, f"say {n}", key=f"k{n}")
        with pytest.raises(Busy):
            await deployed.client.submit(deployed.thread, AGENT, "say update", key="update")
    finally:
        lock.execute("ROLLBACK")
        lock.close()


async def test_signals_that_grow_when_written_again_still_fit_a_move(
    settings: Settings, thread_id: str, tmp_path: Path
) -> None:
    """Saturation counts what is carried: numbers sent short and told long must not outgrow a payload."""
    moving = settings.model_copy(update={"continue_events": 60})
    async with running_worker(moving), connected(moving) as client:
        await client.wait(await client.submit(thread_id, AGENT, "say first", key="first"), timeout=20)
        handle = client.temporal.get_workflow_handle(thread_id)
        lock = sqlite3.connect(tmp_path / "threads.db", isolation_level=None, timeout=10)
        lock.execute("BEGIN IMMEDIATE")
        try:
            head = f'{{"threadId":"{thread_id}","agentId":"{AGENT}","principal":"p","input":[{"1e15," * 4_000}1]'
            for n in range(60):
                data = f'{head},"key":"k{n}"}}'.encode()
                await handle.signal("submit", RawValue(Payload(metadata={"encoding": b"json/plain"}, data=data)))

            async def moved() -> bool:
                return (await client.report(thread_id)).run_count > 1

            await until(moved)
        finally:
            lock.execute("ROLLBACK")
            lock.close()

        async def applied() -> bool:
            report = await client.report(thread_id)
            return report.inbox == 0 and report.applied_total + report.refused_total == 61

        assert await until(applied, timeout_s=40)
