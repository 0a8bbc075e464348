"""kill -9 of a worker with several Threads of one host in hand: each goes on where it was."""

import asyncio

from tests.crash.conftest import Stage
from tests.deployment import connected, until
from tests.scripted import AGENT
from thread_objects.contract.states import Outcome


async def test_kill_with_a_host_in_hand_loses_no_thread(stage: Stage) -> None:
    """Every Thread settles once and in order; a readonly tool may run again, nothing is admitted twice."""
    placement = "tests.placing:by_prefix"
    stage.worker.environment["THREADS_PLACEMENT"] = placement
    stage.worker.start()
    settings = stage.client._reading._settings.model_copy(update={"placement": placement})
    async with connected(settings) as client:
        sent = []
        for name in "abc":
            text = f"call look {name}@{stage.ledger} & slow 0.5; say {name}"
            sent.append(await client.submit_signal(f"{stage.thread}.{name}", AGENT, text, key="1"))
            sent.append(await client.submit_signal(f"{stage.thread}.{name}", AGENT, f"say {name}2", key="2"))
        await until(lambda: len(stage.effects()) >= 2)
        stage.worker.kill()
        await asyncio.to_thread(stage.worker.start)
        settled = [await client.wait(pending, timeout=40) for pending in sent]
        assert {settlement.outcome for settlement in settled} == {Outcome.COMPLETED}
        assert set(stage.effects()) == set("abc")
        report = await client.object_report(stage.thread)
        assert report.object_id == stage.thread
