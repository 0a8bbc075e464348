"""Attempts as activities of a real server: heartbeats, shutdown, hanging tools."""

import time
from pathlib import Path

import pytest

from tests.deployment import connected, running_worker, until
from tests.scripted import AGENT, TOOLS, agent, effect, effects
from thread_objects.agents import Registry, ToolPolicy, bind
from thread_objects.contract.states import Outcome, SubmissionState, ToolClass
from thread_objects.settings import Settings

HEARTBEAT_MS = 1_000


@pytest.fixture
def quick(settings: Settings) -> Settings:
    """A deployment that misses a heartbeat after a second."""
    return settings.model_copy(update={"heartbeat_timeout_ms": HEARTBEAT_MS})


def serving(**tools: object) -> Registry:
    """The scripted agent with further tools, under their policies."""
    return Registry([bind(agent, id=AGENT, tools={**TOOLS, **tools})])  # type: ignore[dict-item]


@agent.tool_plain
async def seize(arg: str) -> str:
    """Blocks its own event loop, as a library that is not asynchronous does."""
    effect(arg, "seize")
    time.sleep(2.5 * HEARTBEAT_MS / 1_000)
    return "ok"


async def test_a_tool_that_blocks_its_loop_neither_loses_its_attempt_nor_stops_another(
    quick: Settings, thread_id: str, tmp_path: Path
) -> None:
    """The heartbeat has a thread of its own: one Attempt, one effect, and the neighbour settles meanwhile."""
    ledger = tmp_path / "ledger"
    async with running_worker(quick, serving(seize=ToolPolicy(timeout_ms=30_000))), connected(quick) as client:
        receipt = await client.submit(thread_id, AGENT, f"call seize {ledger}; say done", key="k")
        await until(lambda: effects(ledger) == ["seize"])
        neighbour = await client.submit(f"{thread_id}-2", AGENT, "say quick", key="k")
        assert (await client.wait(neighbour, timeout=10)).result == "quick"
        assert (await client.status(receipt.submission_id)).state is not SubmissionState.SETTLED  # type: ignore[union-attr]
        assert (await client.wait(receipt, timeout=20)).result == "done"
        status = await client.status(receipt.submission_id)
        assert status is not None
        assert status.epoch == 1
    assert effects(ledger) == ["seize"]


async def test_a_tool_that_hangs_for_longer_than_it_may_becomes_unknown(
    quick: Settings, thread_id: str, tmp_path: Path
) -> None:
    """The bound holds on a real server; the Thread goes on."""
    ledger = tmp_path / "ledger"
    registry = Registry([bind(agent, id=AGENT, tools={**TOOLS, "pay": ToolPolicy(timeout_ms=300)})])
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("THREADS_TEST_PAY_S", "60")
        async with running_worker(quick, registry), connected(quick) as client:
            receipt = await client.submit(thread_id, AGENT, f"call pay fee@{ledger}; say paid", key="k")
            later = await client.submit(thread_id, AGENT, "say later", key="k2")
            assert (await client.wait(later, timeout=20)).result == "later"
            status = await client.status(receipt.submission_id)
            assert status is not None
            assert status.state is SubmissionState.UNKNOWN
            assert [call.tool_name for call in status.unknown_calls] == ["pay"]
    assert effects(ledger) == ["fee"]


async def test_a_worker_that_drains_hands_a_model_call_back(settings: Settings, thread_id: str) -> None:
    """Nothing is settled by the shutdown; the next worker asks again and settles."""
    async with connected(settings) as client:
        async with running_worker(settings):
            receipt = await client.submit(thread_id, AGENT, "hang 5; say done", key="k")

            async def owned() -> bool:
                status = await client.status(receipt.submission_id)
                return status is not None and status.owned

            await until(owned)
            began = time.monotonic()
        assert time.monotonic() - began < 4
        status = await client.status(receipt.submission_id)
        assert status is not None
        assert (status.state, status.owned) == (SubmissionState.INPUT_APPLIED, False)
        async with running_worker(settings):
            settlement = await client.wait(receipt, timeout=30)
            assert (settlement.outcome, settlement.result) == (Outcome.COMPLETED, "done")


async def test_a_worker_that_drains_waits_for_a_running_uncertain_tool(
    settings: Settings, thread_id: str, tmp_path: Path
) -> None:
    """Its result is committed before the work is handed back, so that nobody is asked what became of it."""
    ledger = tmp_path / "ledger"
    registry = serving(look=ToolClass.READONLY)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("THREADS_TEST_PAY_S", "1.5")
        async with connected(settings) as client:
            async with running_worker(settings, registry):
                receipt = await client.submit(thread_id, AGENT, f"call pay fee@{ledger}; say paid", key="k")
                await until(lambda: effects(ledger) == ["fee"])
            kinds = [record.kind for record in await client.log(thread_id)]
            assert kinds[-1] == "ToolCallSettled"
            async with running_worker(settings, registry):
                assert (await client.wait(receipt, timeout=30)).result == "paid"
    assert effects(ledger) == ["fee"]
