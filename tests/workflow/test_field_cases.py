"""Field cases that need the whole system: many senders, many inputs, colliding ids, large results."""

import asyncio
import os
from typing import Any

from tests.deployment import connected, running_worker, until
from tests.scripted import AGENT, effects
from tests.workflow.conftest import Deployed
from thread_objects.contract import limits
from thread_objects.contract.messages import Settlement
from thread_objects.contract.states import Outcome
from thread_objects.settings import Settings


async def test_two_clients_on_one_thread_keep_one_order(deployed: Deployed) -> None:
    """F6: 50 submits from two clients, 10 keys repeated: 40 receipts, order = queue sequence."""
    async with connected(deployed.settings) as other:
        keys = [f"k{n % 40}" for n in range(50)]
        clients = [deployed.client, other]

        async def send(n: int, key: str) -> Any:
            return await clients[n % 2].submit(deployed.thread, AGENT, f"say {key}", key=key)

        receipts = await asyncio.gather(*(send(n, key) for n, key in enumerate(keys)))
        ids = {receipt.submission_id for receipt in receipts}
        assert len(ids) == 40
        assert len({(receipt.submission_id, receipt.queue_sequence) for receipt in receipts}) == 40
        settled = await asyncio.gather(*(deployed.client.wait(sid, timeout=60) for sid in ids))
        assert {settlement.outcome for settlement in settled} == {Outcome.COMPLETED}
        sequence = {receipt.submission_id: receipt.queue_sequence for receipt in receipts}
        log = await deployed.client.log(deployed.thread, limit=1024)
        order = [record.payload["submissionId"] for record in log if record.kind == "UserInputRecorded"]
        assert [sequence[sid] for sid in order] == list(range(1, 41))


async def test_the_same_tool_call_ids_in_two_threads_and_two_runs_settle(deployed: Deployed, tmp_path: Any) -> None:
    """F33: the model uses `c0` in every response of every Run; ids are scoped to their Run."""
    ledger = tmp_path / "effects"
    script = f"call look a@{ledger} & pay b@{ledger}; call pay c@{ledger}; say done"
    sent = [
        await deployed.client.submit(deployed.thread, AGENT, script, key="1"),
        await deployed.client.submit(deployed.thread, AGENT, script, key="2", principal="another"),
        await deployed.client.submit(deployed.thread + "-other", AGENT, script, key="1"),
    ]
    settled = await asyncio.gather(*(deployed.client.wait(receipt, timeout=30) for receipt in sent))
    assert [settlement.result for settlement in settled] == ["done"] * 3
    assert sorted(effects(ledger)) == sorted(["a", "b", "c"] * 3)


async def test_a_result_of_four_megabytes_is_bounded_and_says_so(deployed: Deployed) -> None:
    """F2: the recorded result is bounded, its original size is on record, the Run goes on at once."""
    receipt = await deployed.client.submit(deployed.thread, AGENT, "call big 4194304; say done", key="k")
    assert (await deployed.client.wait(receipt, timeout=30)).result == "done"
    log = await deployed.client.log(deployed.thread)
    (record,) = [record for record in log if record.kind == "ToolCallSettled"]
    size = len(record.model_dump_json())
    assert size < limits.TOOL_RESULT_BYTES_MAX * 3
    assert "4194304" in record.model_dump_json() or "4194306" in record.model_dump_json()


async def test_a_blocking_tool_starves_neither_heartbeat_nor_others(deployed: Deployed) -> None:
    """Design §5: an Attempt has a thread of its own; six seconds of blocking outlast the heartbeat timeout."""
    blocked = await deployed.client.submit(deployed.thread, AGENT, "call block 6.5; say unblocked", key="k")
    others = [await deployed.client.submit(f"{deployed.thread}-{n}", AGENT, f"say {n}", key="k") for n in range(4)]
    quick = await asyncio.gather(*(deployed.client.wait(receipt, timeout=5) for receipt in others))
    assert [settlement.result for settlement in quick] == ["0", "1", "2", "3"]
    assert (await deployed.client.wait(blocked, timeout=30)).result == "unblocked"
    report = await deployed.client.report(deployed.thread)
    assert [one.failure for one in report.passes if one.failure] == []


async def test_failure_looks_the_same_everywhere(deployed: Deployed) -> None:
    """F34: bounded retries, then one diagnostic, the same in wait, status and log."""
    receipt = await deployed.client.submit(deployed.thread, AGENT, "fail", key="k")
    settlement = await deployed.client.wait(receipt, timeout=30)
    status = await deployed.client.status(receipt.submission_id)
    assert status is not None
    assert status.settlement == settlement
    log = await deployed.client.log(deployed.thread)
    record = next(record for record in log if record.kind == "SubmissionSettled")
    assert settlement.diagnostic is not None
    assert record.payload["diagnostic"] == settlement.diagnostic.model_dump(mode="json", by_alias=True)


async def follow_all(client: Any, thread: str, settled: int) -> list[int]:
    """The sequences a follower sees until so many settlements came by."""
    seen, count = [], 0
    async for record in client.follow(thread):
        seen.append(record.sequence)
        count += record.kind == "SubmissionSettled"
        if count == settled:
            break
    return seen


INPUTS = int(os.environ.get("SOAK_INPUTS", "300"))
"""`make soak` sends the 3 000 of the field case."""


async def test_a_long_thread_with_followers_goes_on(settings: Settings, thread_id: str) -> None:
    """F35: many one-turn inputs on one thread over many runs, two followers attached: all settle, both see all."""
    inputs, patience_s = INPUTS, 60 + INPUTS * 0.2
    deep = settings.model_copy(update={"queue_depth": inputs})
    async with running_worker(deep), connected(deep) as client, connected(deep) as watcher:
        followers = [asyncio.create_task(follow_all(one, thread_id, inputs)) for one in (client, watcher)]

        async def send(lane: int) -> list[Settlement]:
            sent = [await client.submit(thread_id, AGENT, f"say {n}", key=f"k{n}") for n in range(lane, inputs, 8)]
            return [await client.wait(receipt, timeout=patience_s) for receipt in sent]

        settled = [one for lane in await asyncio.gather(*(send(lane) for lane in range(8))) for one in lane]
        assert len(settled) == inputs
        assert {one.outcome for one in settled} == {Outcome.COMPLETED}
        first, second = await asyncio.wait_for(asyncio.gather(*followers), patience_s)
        assert first == second == list(range(1, len(first) + 1))


async def test_a_report_names_what_is_owed(deployed: Deployed) -> None:
    """The operator's view: who waits for what, without a database."""
    await deployed.client.submit(deployed.thread, AGENT, "call refund a; say x", key="1")
    await deployed.client.submit(deployed.thread, AGENT, "say behind", key="2")

    async def waiting() -> Any:
        report = await deployed.client.report(deployed.thread)
        return report if any(view.open_calls for view in report.threads) else None

    report = await until(waiting)
    (view,) = report.threads
    assert (view.nonterminal, view.quiet, view.busy) == (2, 1, 0)
    assert [(call.tool_name, call.waits_for) for call in view.open_calls] == [("refund", "approval")]
