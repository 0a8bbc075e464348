"""A life without end: continue-as-new under load that never pauses, with nothing lost and nothing done twice."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.deployment import connected, running_worker, until
from tests.scripted import AGENT
from tests.workflow.conftest import Deployed
from thread_objects.contract.states import Outcome
from thread_objects.settings import Settings

SENT = 1_000


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """A tiny trigger, so that the object moves every few batches."""
    return settings.model_copy(update={"continue_events": 120, "continue_updates": 25, "queue_depth": 2_000})


async def test_a_thousand_signals_and_updates_cross_many_runs(deployed: Deployed) -> None:
    """Nothing lost: each key has one receipt, one settlement, in queue order; the state is carried whole."""
    client, thread = deployed.client, deployed.thread

    async def by_signal(n: int) -> str:
        return (await client.submit_signal(thread, AGENT, f"say {n}", key=f"s{n}")).submission_id

    async def by_update(n: int) -> str:
        return (await client.submit(thread, AGENT, f"say {n}", key=f"u{n}")).submission_id

    async def sender(send: Any, numbers: range) -> list[str]:
        return [await send(n) for n in numbers]

    lanes = [sender(by_signal, range(k, SENT // 2, 4)) for k in range(4)]
    lanes += [sender(by_update, range(k, SENT // 2, 6)) for k in range(6)]
    sent = [sid for lane in await asyncio.gather(*lanes) for sid in lane]
    assert len(set(sent)) == SENT
    settlements = await asyncio.gather(*(client.wait(sid, thread_id=thread, timeout=240) for sid in sent))
    assert {settlement.outcome for settlement in settlements} == {Outcome.COMPLETED}

    statuses = [await client.status(sid) for sid in sent]
    sequences = sorted(status.queue_sequence for status in statuses if status is not None)
    assert sequences == list(range(1, SENT + 1))
    order, after = [], 0
    while page := await client.log(thread, after=after, limit=1024):
        order += [record.payload["submissionId"] for record in page if record.kind == "SubmissionSettled"]
        after = page[-1].sequence
    by_sequence = {status.submission_id: status.queue_sequence for status in statuses if status is not None}
    assert [by_sequence[sid] for sid in order] == sequences

    async def at_rest() -> Any:
        report = await client.report(thread)
        return report if report.generation.processed >= report.generation.dirty and not report.attempts else None

    report = await until(at_rest)
    assert report.run_count > 5
    assert (report.settled_total, report.inbox, report.refused_total) == (SENT, 0, 0)


async def test_the_state_after_is_the_state_before(settings: Settings, thread_id: str) -> None:
    """What one run leaves is what the next one starts with: generations, rows, refusals, passes, counters."""
    quiet = settings.model_copy(update={"continue_events": 5_000, "continue_updates": 3})
    async with running_worker(quiet), connected(quiet) as client:
        receipt = await client.submit(thread_id, AGENT, "call refund x; say done", key="k1")

        async def suspended() -> Any:
            report = await client.report(thread_id)
            waits = [call for view in report.threads for call in view.open_calls]
            return report if waits and report.alarm.maintenance is None else None

        handle = client.temporal.get_workflow_handle(thread_id)
        await handle.signal("nonsense", 1)
        await until(suspended)
        await client.wake(thread_id)
        before = await client.report(thread_id)
        assert before.run_count == 1
        await client.wake(thread_id)

        async def moved() -> Any:
            report = await client.report(thread_id)
            return report if report.run_count == 2 else None

        after = await until(moved)
        for name in (
            "lanes",
            "alarm",
            "threads",
            "refusals",
            "refused_total",
            "passes",
            "registry_key",
            "applied_total",
        ):
            assert getattr(after, name) == getattr(before, name), name
        assert (after.generation.dirty, after.generation.processed) == (
            before.generation.dirty,
            before.generation.processed,
        )
        await client.resolve_approval(thread_id, receipt.submission_id, "c0", "approved", resolver="me")
        assert (await client.wait(receipt, timeout=20)).result == "done"


async def test_a_running_attempt_yields_and_resumes_in_the_next_run(settings: Settings, thread_id: str) -> None:
    """Activities do not survive continue-as-new: the Attempt comes to a Turn boundary, the Run goes on."""
    async with running_worker(settings), connected(settings) as client:
        steps = "; ".join("call slow 0.1" for _ in range(40))
        receipt = await client.submit(thread_id, AGENT, f"{steps}; say end", key="k")
        for n in range(60):
            await client.wake(thread_id)
            await asyncio.sleep(0.02 if n % 2 else 0)
        settlement = await client.wait(receipt, timeout=60)
        assert settlement.result == "end"
        assert (await client.report(thread_id)).run_count >= 2
        log = await client.log(thread_id, limit=1024)
        responses = [record.record_id for record in log if record.kind == "ModelResponseRecorded"]
        assert len(responses) == len(set(responses)) == 41


async def test_an_object_that_carries_more_than_its_trigger_still_applies_it(
    settings: Settings, thread_id: str, tmp_path: Path
) -> None:
    """What a run begins with is no reason to move again: nothing accepted may travel for ever."""
    small = settings.model_copy(update={"continue_bytes": 65_536, "continue_events": 1_000})
    async with running_worker(small), connected(small) as client:
        receipt = await client.submit(thread_id, AGENT, "say first", key="first")
        await client.wait(receipt, timeout=20)
        lock = sqlite3.connect(tmp_path / "threads.db", isolation_level=None, timeout=10)
        lock.execute("BEGIN IMMEDIATE")
        try:
            text = "say " + "y" * 50_000
            sent = [await client.submit_signal(thread_id, AGENT, text, key=f"k{n}") for n in range(3)]

            async def moved() -> bool:
                return (await client.report(thread_id)).run_count > 1

            await until(moved)
        finally:
            lock.execute("ROLLBACK")
            lock.close()
        for pending in sent:
            assert (await client.wait(pending, timeout=20)).outcome is Outcome.COMPLETED
