"""Steering on a real server: input sent while a Run is at work joins it, or waits its turn."""

import asyncio
from pathlib import Path

from tests.deployment import until
from tests.scripted import AGENT, effects
from tests.workflow.conftest import Deployed
from thread_objects.contract.states import Outcome
from thread_objects.errors import JoinedToHost


async def test_three_inputs_in_the_middle_of_a_tool_batch(deployed: Deployed, tmp_path: Path, thread_id: str) -> None:
    """F7, JOIN-012: the batch completes, one input joins at each seam, each has a Receipt and a Settlement of its own."""
    client, ledger = deployed.client, tmp_path / "effects"
    host = await client.submit(thread_id, AGENT, f"call look a@{ledger} & slow 1.5; say done", key="host")
    await until(lambda: effects(ledger) == ["a"])
    scripts = (f"call look b@{ledger}; say one", f"call look c@{ledger}; say two", "say three")
    receipts = [await client.submit(thread_id, AGENT, said, key=f"k{n}") for n, said in enumerate(scripts)]
    first = await client.wait(host, timeout=30)
    assert (first.outcome, first.result) == (Outcome.COMPLETED, "three")
    joined = await asyncio.gather(*(client.wait(receipt, timeout=30) for receipt in receipts))
    assert [(s.outcome, s.result, s.run_id) for s in joined] == [(Outcome.COMPLETED, None, first.run_id)] * 3
    assert [s.receipt_id for s in joined] == [receipt.receipt_id for receipt in receipts]
    assert effects(ledger) == ["a", "b", "c"]
    kinds = [record.kind for record in await client.log(thread_id, limit=100)]
    turns = ["ModelResponseRecorded", "ToolCallSettled", "UserInputRecorded"]
    assert kinds == [
        "ThreadCreated",
        "UserInputRecorded",
        "RunStarted",
        "ModelResponseRecorded",
        "ToolCallSettled",
        *turns[1:],
        *turns,
        *turns,
        "ModelResponseRecorded",
        "RunCompleted",
        *["SubmissionSettled"] * 4,
    ]


async def test_input_of_another_principal_is_answered_on_its_own(
    deployed: Deployed, tmp_path: Path, thread_id: str
) -> None:
    """Nobody's input is read under another's authority, and what stands behind it keeps its place (JOIN-014)."""
    client, ledger = deployed.client, tmp_path / "effects"
    host = await client.submit(thread_id, AGENT, f"call look a@{ledger} & slow 1; say done", key="host")
    await until(lambda: effects(ledger) == ["a"])
    other = await client.submit(thread_id, AGENT, "say other", key="k", principal="somebody-else")
    behind = await client.submit(thread_id, AGENT, "say behind", key="k")
    ended = [await client.wait(receipt, timeout=30) for receipt in (host, other, behind)]
    assert [settlement.result for settlement in ended] == ["done", "other", "behind"]
    assert [s.run_id for s in ended] == [receipt.run_id for receipt in (host, other, behind)]


async def test_joined_input_belongs_to_its_host(deployed: Deployed, tmp_path: Path, thread_id: str) -> None:
    """An abort of the host ends what it took with it; an abort of the joined input is refused by name."""
    client, ledger = deployed.client, tmp_path / "effects"
    host = await client.submit(thread_id, AGENT, f"call look a@{ledger} & slow 1; say done", key="host")
    await until(lambda: effects(ledger) == ["a"])
    joined = await client.submit(thread_id, AGENT, f"call look b@{ledger} & slow 30; say never", key="k")
    await until(lambda: effects(ledger) == ["a", "b"])
    status = await client.status(joined.submission_id)
    assert status is not None
    assert status.state == "joined"
    try:
        await client.abort(thread_id, joined.submission_id, author="ann", reason="enough")
    except JoinedToHost as refused:
        assert refused.host_submission_id == host.submission_id
    else:
        raise AssertionError("a joined input was aborted")
    await client.abort(thread_id, host.submission_id, author="ann", reason="enough")
    ended = [await client.wait(receipt, timeout=30) for receipt in (host, joined)]
    assert [settlement.outcome for settlement in ended] == [Outcome.ABORTED] * 2
