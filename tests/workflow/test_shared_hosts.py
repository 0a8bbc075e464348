"""Shared hosts: several Threads in one Thread Object, each as if it were alone."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.deployment import connected, running_worker, until
from tests.replaying import replay_object
from tests.scripted import AGENT, effects
from thread_objects.client import ThreadClient
from thread_objects.contract import limits, names
from thread_objects.contract.messages import PendingReceipt, Receipt, Submit, Wake
from thread_objects.contract.states import Outcome, SubmissionState
from thread_objects.errors import AdmissionLimitExceeded, NotFound, ThreadPlacedElsewhere
from thread_objects.settings import Settings


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """The Threads `{host}.{name}` live on `{host}`."""
    return settings.model_copy(update={"placement": "tests.placing:by_prefix"})


@pytest.fixture
async def client(settings: Settings) -> AsyncIterator[ThreadClient]:
    """A worker, and a client that places as it does."""
    async with running_worker(settings), connected(settings) as client:
        yield client


@pytest.fixture
async def host(client: ThreadClient, thread_id: str) -> AsyncIterator[str]:
    """The host's id; Threads are `{host}.{name}`. Whatever a test made of it, its histories replay."""
    yield thread_id
    await replay_object(client.temporal, thread_id)


async def running(client: ThreadClient, host: str) -> list[str]:
    """Threads with an Attempt, in short."""
    report = await client.object_report(host)
    return [attempt.thread_id.rpartition(".")[2] for attempt in report.attempts]


async def most_attempts(client: ThreadClient, host: str) -> int:
    """How many Attempts were open at a time, as the history of the current run has it."""
    open_ones: set[int] = set()
    most = 0
    async for event in client.temporal.get_workflow_handle(host).fetch_history_events():
        scheduled = event.activity_task_scheduled_event_attributes
        if scheduled.activity_type.name == names.ACTIVITY_ATTEMPT:
            open_ones.add(event.event_id)
        open_ones.discard(event.activity_task_completed_event_attributes.scheduled_event_id)
        most = max(most, len(open_ones))
    return most


async def at_rest(client: ThreadClient, host: str) -> Any:
    """Wait until a host has looked at everything and sleeps; its report then."""
    return await until(lambda: certified(client, host), timeout_s=30, pause_s=0.25)


async def certified(client: ThreadClient, host: str) -> Any:
    """The report of a host that has looked at everything and sleeps."""
    report = await client.object_report(host)
    at_rest = report.generation.processed >= report.generation.dirty and report.alarm.maintenance is None
    return report if at_rest and not report.attempts else None


async def test_twelve_threads_share_two_slots_and_settle_in_order(
    client: ThreadClient, host: str, tmp_path: Path
) -> None:
    """DSP-001: two independent Threads at a time, first in first out within each, all settled, then rest."""
    receipts = []
    for round_number in range(3):
        for n in range(12):
            slowly = "" if round_number else " & slow 0.1"
            text = f"call look {n:02}.{round_number}@{tmp_path}/ledger{slowly}; say {n}.{round_number}"
            receipts.append(await client.submit(f"{host}.{n:02}", AGENT, text, key=f"k{round_number}"))
    settled = await asyncio.gather(*(client.wait(receipt, timeout=60) for receipt in receipts))
    assert {settlement.outcome for settlement in settled} == {Outcome.COMPLETED}
    done = effects(tmp_path / "ledger")
    for n in range(12):
        assert [name for name in done if name.startswith(f"{n:02}.")] == [f"{n:02}.{r}" for r in range(3)]
    report = await at_rest(client, host)
    assert report.threads == ()
    assert await most_attempts(client, host) == limits.NATIVE_SLOTS_SHARED


async def test_a_flooded_thread_starves_nobody(client: ThreadClient, host: str, tmp_path: Path) -> None:
    """DSP-001: selection starts behind the Thread served last; each of the others is served once around."""
    look = f"call look {{}}@{tmp_path}/ledger; say ok"
    flood = [await client.submit(f"{host}.a", AGENT, f"hang 1.5; {look.format('a0')}", key="0")]
    flood += [await client.submit(f"{host}.a", AGENT, look.format(f"a{n}"), key=f"{n}") for n in range(1, 20)]
    others = [await client.submit(f"{host}.{name}", AGENT, look.format(name), key="k") for name in "bcdef"]
    for receipt in (*others, *flood):
        await client.wait(receipt, timeout=60)
    done = effects(tmp_path / "ledger")
    assert [name for name in done if name.startswith("a")] == [f"a{n}" for n in range(20)]
    assert max(done.index(name) for name in "bcdef") <= 2 * len("abcdef")


async def test_a_thread_that_hangs_holds_up_no_other(client: ThreadClient, host: str) -> None:
    """It keeps one slot; the other one is refilled as often as needed, and an abort reaches it there."""
    stuck = await client.submit(f"{host}.a", AGENT, "hang 60; say never", key="k")
    await until(lambda: running(client, host), pause_s=0.25)
    receipts = [await client.submit(f"{host}.{n}", AGENT, f"say {n}", key="k") for n in range(6)]
    assert [(await client.wait(receipt, timeout=30)).result for receipt in receipts] == [str(n) for n in range(6)]

    async def only_it() -> bool:
        return await running(client, host) == ["a"]

    await until(only_it, pause_s=0.25)
    await client.abort(f"{host}.a", stuck.submission_id, author="me", reason="enough")
    assert (await client.wait(stuck, timeout=20)).outcome is Outcome.ABORTED


async def test_a_thread_that_cannot_be_read_holds_up_no_other(client: ThreadClient, host: str, tmp_path: Path) -> None:
    """It is faulted alone, visible in its own report and tried again; the others settle beside it."""
    owed = await client.submit(f"{host}.a", AGENT, "call refund x; say done", key="1")

    async def suspended() -> bool:
        status = await client.status(owed.submission_id)
        return status is not None and status.state is SubmissionState.SUSPENDED

    await until(suspended)
    with closing(sqlite3.connect(tmp_path / "threads.db", timeout=10)) as raw, raw:
        raw.execute("UPDATE records SET body = '{\"kind\":\"RunStarted\"}' WHERE kind = 'RunStarted'")
    receipts = [await client.submit(f"{host}.{name}", AGENT, f"say {name}", key="k") for name in "bcd"]
    assert [(await client.wait(receipt, timeout=30)).result for receipt in receipts] == ["b", "c", "d"]

    async def faulted() -> Any:
        return (await client.report(f"{host}.a")).faults

    assert [fault.thread_id for fault in await until(faulted, pause_s=0.25)] == [f"{host}.a"]
    assert (await client.report(f"{host}.b")).faults == ()
    assert (await client.recovery_status(f"{host}.a")) is not None
    later = await client.submit(f"{host}.b", AGENT, "say later", key="k2")
    assert (await client.wait(later, timeout=30)).result == "later"


async def test_everything_that_is_done_to_a_thread_works_on_a_host(client: ThreadClient, host: str) -> None:
    """Approve, resolve, status, log, alarms and report find their Thread, and show no other."""
    one, two = f"{host}.one", f"{host}.two"
    assert await client.object_id(one) == host
    waiting = await client.submit(one, AGENT, "call refund x; say done", key="k")
    also = await client.submit(two, AGENT, "call refund y; say done", key="k")

    async def both() -> bool:
        views = (await client.object_report(host)).threads
        return [len(view.open_calls) for view in views] == [1, 1]

    await until(both, pause_s=0.25)
    (shown,) = (await client.report(one)).threads
    assert (shown.thread_id, shown.head.state) == (one, SubmissionState.SUSPENDED)
    await client.resolve_approval(one, waiting.submission_id, "c0", "approved", resolver="me")
    assert (await client.wait(waiting, timeout=20)).result == "done"
    await client.abort(two, also.submission_id, author="me", reason="no")
    assert (await client.wait(also, timeout=20)).outcome is Outcome.ABORTED
    assert {record.thread_id for record in await client.log(one, limit=100)} == {one}
    at = datetime.now(UTC) + timedelta(days=1)
    for thread in (one, two):
        await client.set_alarm(thread, "remind", "1", run_at=at, payload=thread)
    assert [alarm.payload for alarm in await client.alarms(one)] == [one]
    assert (await client.report(two)).alarm.alarms_total == 1
    assert (await client.object_report(host)).alarm.alarms_total == 2
    assert (await client.cancel_alarm(one, "remind", "1")).cancelled
    report = await at_rest(client, host)
    assert report.threads == ()
    pending = await client.submit_signal(one, AGENT, "say signalled", key="s")
    assert (await client.wait(pending, timeout=20)).result == "signalled"


async def test_pages_certify_a_crowd_that_waits_and_serve_who_stands_behind_it(
    settings: Settings, thread_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round of surveys goes on until a slot can be filled or all was seen: waiting Threads hide nobody."""
    monkeypatch.setattr("storage.surveys.HOST_PAGE_THREADS", 3)
    host = thread_id
    async with running_worker(settings), connected(settings) as client:
        for n in range(11):
            await client.submit(f"{host}.{n:02}", AGENT, "call refund x; say done", key="k")

        async def suspended() -> Any:
            report = await certified(client, host)
            return report if report and len(report.threads) == 11 else None

        report = await until(suspended, timeout_s=30, pause_s=0.25)
        assert {view.head.state for view in report.threads} == {SubmissionState.SUSPENDED}
        for name in ("05x", "zz", "00a"):
            receipt = await client.submit(f"{host}.{name}", AGENT, f"say {name}", key="k")
            assert (await client.wait(receipt, timeout=20)).result == name
        report = await until(suspended, timeout_s=30, pause_s=0.25)
        assert report.generation.nonterminal == 11
        await replay_object(client.temporal, host)


async def test_a_host_moves_to_fresh_histories_under_load(settings: Settings, thread_id: str) -> None:
    """Continue-as-new carries a host: nothing lost, each key one receipt, each Thread in order."""
    small = settings.model_copy(update={"continue_events": 40, "native_slots": 4})
    async with running_worker(small), connected(small) as client:

        async def sender(name: str) -> list[PendingReceipt]:
            texts = [f"say {name}{n}" for n in range(6)]
            return [await client.submit_signal(f"{thread_id}.{name}", AGENT, text, key=text) for text in texts]

        sent = await asyncio.gather(*(sender(name) for name in "abcd"))
        for pending in sent:
            settled = [await client.wait(receipt, timeout=60) for receipt in pending]
            assert {settlement.outcome for settlement in settled} == {Outcome.COMPLETED}
            statuses = [await client.status(receipt.submission_id) for receipt in pending]
            assert [status.queue_sequence for status in statuses if status is not None] == list(range(1, 7))
        report = await at_rest(client, thread_id)
        assert report.run_count > 2
        assert (report.inbox, report.refused_total) == (0, 0)
        await replay_object(client.temporal, thread_id)


async def test_a_client_that_places_differently_is_told_and_goes_there(
    client: ThreadClient, settings: Settings, host: str
) -> None:
    """Storage decides: the Thread stays with the object that admitted it, and every message finds it there."""
    thread = f"{host}.a"
    first = await client.submit(thread, AGENT, "call refund x; say first", key="1")
    for placement in ("none", "hash:4"):
        async with connected(settings.model_copy(update={"placement": placement})) as other:
            assert await other.object_id(thread) == host
            again = await other.submit(thread, AGENT, "call refund x; say first", key="1")
            assert (again.submission_id, again.replayed) == (first.submission_id, True)
            assert other._objects.object_id(thread) == host
        async with connected(settings.model_copy(update={"placement": placement})) as stranger:
            with pytest.raises(NotFound):
                await stranger.abort(thread, "sub-nobody", author="me", reason="no")
    async with connected(settings.model_copy(update={"placement": "hash:4"})) as other:
        await other.resolve_approval(thread, first.submission_id, "c0", "approved", resolver="me")
        assert (await other.wait(first, timeout=20)).result == "first"
        pending = await other.submit_signal(thread, AGENT, "say second", key="2")
        assert (await other.wait(pending, timeout=20)).result == "second"

        async def settled() -> bool:
            return (await other.report(thread)).threads == ()

        await until(settled)
    raw = client.temporal.get_workflow_handle(f"{host}.elsewhere")
    await client._objects.objects.signal(raw.id, "wake", Wake(), shared=True)
    message = Submit(thread_id=thread, agent_id=AGENT, principal="local", key="3", input="say third")
    with pytest.raises(ThreadPlacedElsewhere) as refused:
        await client._objects.objects.update(raw.id, "submit", message, Receipt)
    assert (refused.value.thread_id, refused.value.object_id) == (thread, host)


async def test_threads_that_owe_something_are_bounded_on_a_host(
    client: ThreadClient, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past the bound a new one is refused typed; those that owe already go on, and a settled one makes room."""
    monkeypatch.setattr("storage.admission.HOST_THREADS_MAX", 2)
    held = [await client.submit(f"{host}.{name}", AGENT, "call refund x; say done", key="k") for name in "ab"]
    with pytest.raises(AdmissionLimitExceeded) as refused:
        await client.submit(f"{host}.c", AGENT, "say c", key="k")
    assert (refused.value.limit, refused.value.actual, refused.value.maximum) == ("host-threads", 2, 2)
    await client.submit(f"{host}.a", AGENT, "say more", key="k2")
    await client.abort(f"{host}.b", held[1].submission_id, author="me", reason="no")
    await client.wait(held[1], timeout=20)
    receipt = await client.submit(f"{host}.c", AGENT, "say c", key="k")
    assert (await client.wait(receipt, timeout=20)).result == "c"
