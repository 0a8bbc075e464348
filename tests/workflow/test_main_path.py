"""A Submission, end to end: accepted, run, settled, reported, on a real server and a real database."""

import asyncio
from typing import Any

import pytest

from tests.deployment import until
from tests.scripted import AGENT
from tests.workflow.conftest import Deployed
from thread_objects.contract.states import Outcome
from thread_objects.errors import AdmissionConflict, InvalidInput, NotFound, WaitTimeout


async def test_an_update_is_answered_with_a_receipt_and_settles(deployed: Deployed) -> None:
    """Every accepted input gets a Receipt and exactly one Settlement."""
    receipt = await deployed.client.submit(deployed.thread, AGENT, "say hello", key="k1")
    settlement = await deployed.client.wait(receipt, timeout=20)
    assert (settlement.outcome, settlement.result) == (Outcome.COMPLETED, "hello")
    assert settlement.receipt_id == receipt.receipt_id
    kinds = [record.kind for record in await deployed.client.log(deployed.thread)]
    assert kinds.count("SubmissionSettled") == 1
    assert kinds[:2] == ["ThreadCreated", "UserInputRecorded"]


async def test_a_signal_settles_too(deployed: Deployed) -> None:
    """The sender of a signal holds a PendingReceipt that is good for waiting."""
    pending = await deployed.client.submit_signal(deployed.thread, AGENT, "call look a; say done", key="k1")
    settlement = await deployed.client.wait(pending, timeout=20)
    assert settlement.result == "done"
    status = await deployed.client.status(pending.submission_id)
    assert status is not None
    assert (status.receipt_id, status.queue_sequence) == (pending.receipt_id, 1)


async def test_the_same_key_answers_the_same_receipt(deployed: Deployed) -> None:
    """LED-001, LED-002 through the wire: a replay is a replay, other input conflicts."""
    first = await deployed.client.submit(deployed.thread, AGENT, "say a", key="k")
    again = await deployed.client.submit(deployed.thread, AGENT, "say a", key="k")
    assert again.replayed
    assert again.model_copy(update={"replayed": False}) == first
    with pytest.raises(AdmissionConflict) as refused:
        await deployed.client.submit(deployed.thread, AGENT, "say b", key="k")
    assert refused.value.existing_input_digest == first.input_digest


async def test_inputs_run_in_order_and_the_object_comes_to_rest(deployed: Deployed) -> None:
    """FIFO per Thread; afterwards no alarm, no timer, nothing dirty."""
    receipts = [await deployed.client.submit(deployed.thread, AGENT, f"say {n}", key=f"k{n}") for n in range(5)]
    settled = [await deployed.client.wait(receipt, timeout=20) for receipt in receipts]
    assert [settlement.result for settlement in settled] == [str(n) for n in range(5)]
    log = await deployed.client.log(deployed.thread, limit=1024)
    order = [record.payload["submissionId"] for record in log if record.kind == "SubmissionSettled"]
    assert order == [receipt.submission_id for receipt in receipts]

    async def at_rest() -> bool:
        report = await deployed.client.report(deployed.thread)
        return report.generation.processed >= report.generation.dirty and report.alarm.timer is None

    await until(at_rest)
    report = await deployed.client.report(deployed.thread)
    assert (report.attempts, report.inbox, report.settled_total) == ((), 0, 5)
    assert report.alarm.maintenance is None


async def test_results_are_the_same_without_a_database_url(deployed: Deployed) -> None:
    """The client's database URL is optional."""
    receipt = await deployed.client.submit(deployed.thread, AGENT, "say hi", key="k")
    seen = await deployed.client.wait(receipt, timeout=20)
    from tests.deployment import connected

    async with connected(deployed.settings, with_database=False) as bare:
        assert await bare.wait(receipt, timeout=20) == seen
        assert await bare.find(deployed.thread, "local", "k") == await deployed.client.find(
            deployed.thread, "local", "k"
        )
        assert await bare.log(deployed.thread) == await deployed.client.log(deployed.thread)


async def test_waiting_costs_no_event_and_detaches_alone(deployed: Deployed) -> None:
    """ABT-010, ADM-028: a waiter that gives up changes nothing."""
    receipt = await deployed.client.submit(deployed.thread, AGENT, "hang 1.5; say late", key="k")
    with pytest.raises(WaitTimeout):
        await deployed.client.wait(receipt, timeout=0.2)
    assert (await deployed.client.wait(receipt, timeout=20)).result == "late"


async def test_unknown_things_are_refused_typed(deployed: Deployed) -> None:
    """Bad input gets a clear typed error."""
    with pytest.raises(InvalidInput):
        await deployed.client.submit(deployed.thread, AGENT, "say a", key="")
    with pytest.raises(NotFound):
        await deployed.client.report("no-such-thread-" + deployed.thread)
    await deployed.client.submit(deployed.thread, AGENT, "say a", key="k")
    with pytest.raises(NotFound):
        await deployed.client.abort(deployed.thread, "sub-none", author="me", reason="x")


async def test_a_failing_model_ends_as_a_failed_settlement(deployed: Deployed) -> None:
    """F34: never silence; bounded retries by one owner, then the diagnostic."""
    receipt = await deployed.client.submit(deployed.thread, AGENT, "fail", key="k")
    settlement = await deployed.client.wait(receipt, timeout=30)
    assert settlement.outcome is Outcome.FAILED
    assert settlement.diagnostic is not None
    assert "ModelHTTPError" in settlement.diagnostic.error_tag
    again = await deployed.client.submit(deployed.thread, AGENT, "say after", key="k2")
    assert (await deployed.client.wait(again, timeout=20)).result == "after"


async def test_a_failing_tool_ends_as_a_failed_settlement(deployed: Deployed) -> None:
    """F34 for tools."""
    receipt = await deployed.client.submit(deployed.thread, AGENT, "call broken x; say no", key="k")
    settlement = await deployed.client.wait(receipt, timeout=30)
    assert settlement.outcome is Outcome.FAILED
    assert settlement.diagnostic is not None
    assert "broken x" in settlement.diagnostic.message


async def test_a_burst_of_one_client_stays_within_what_the_server_takes(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten updates of one object may be in flight; past that the server refuses, and its pauses last seconds."""
    send = deployed.temporal.execute_update_with_start_workflow
    flying = [0]

    async def counted(*args: Any, **options: Any) -> Any:
        flying.append(flying[-1] + 1)
        try:
            return await send(*args, **options)
        finally:
            flying.append(flying[-1] - 1)

    monkeypatch.setattr(deployed.temporal, "execute_update_with_start_workflow", counted)
    burst = [deployed.client.submit(deployed.thread, AGENT, f"say {n}", key=f"k{n}") for n in range(48)]
    receipts = await asyncio.gather(*burst)
    assert sorted(receipt.queue_sequence for receipt in receipts) == list(range(1, 49))
    assert 1 < max(flying) <= 10
