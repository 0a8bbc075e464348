"""kill -9 in the middle of recovery itself: the next worker takes over within seconds and states nothing twice."""

import asyncio
import sqlite3
from collections.abc import Coroutine
from contextlib import closing
from typing import Any

import pytest

from tests.crash.conftest import Stage
from tests.deployment import until
from tests.scripted import AGENT
from thread_objects.contract.messages import PendingReceipt
from thread_objects.contract.states import Outcome, SubmissionState

BACK_S = 30.0


async def kinds(stage: Stage) -> list[str]:
    return [record.kind for record in await stage.log()]


async def reaches(stage: Stage, receipt: PendingReceipt, state: SubmissionState) -> None:
    async def there() -> bool:
        status = await stage.client.status(receipt.submission_id)
        return status is not None and status.state is state

    await until(there, timeout_s=BACK_S)


async def across_the_crash(stage: Stage, command: Coroutine[Any, Any, Any]) -> None:
    """Give a command whose consequences kill the worker; the next one answers it."""
    answer = asyncio.create_task(command)
    await asyncio.to_thread(stage.worker.died)
    await asyncio.to_thread(stage.worker.start)
    await answer


async def lost_payment(stage: Stage) -> PendingReceipt:
    """A worker dies while an uncertain tool, whose effect has happened, has not answered."""
    stage.worker.start(THREADS_TEST_PAY_S="30")
    receipt = await stage.client.submit(stage.thread, AGENT, f"call pay fee@{stage.ledger}; say paid", key="k")
    await until(lambda: stage.effects() == ["fee"])
    stage.worker.kill()
    return receipt


@pytest.mark.parametrize("failpoint", ["recovery:claim:after", "mark-unknown:before", "mark-unknown:after"])
async def test_kill_while_a_loss_is_stated_states_it_once(stage: Stage, failpoint: str) -> None:
    """EVI-035, F3: one unknown record, one effect, and no wait for the lease of the dead recovery."""
    receipt = await lost_payment(stage)
    await asyncio.to_thread(stage.worker.start, THREADS_FAILPOINT=failpoint)
    await asyncio.to_thread(stage.worker.died)
    await asyncio.to_thread(stage.worker.start)
    await reaches(stage, receipt, SubmissionState.UNKNOWN)
    assert (await kinds(stage)).count("ToolCallUnknown") == 1
    assert stage.effects() == ["fee"]


async def test_kill_while_a_resolution_is_recorded_records_it_once(stage: Stage) -> None:
    """EVI-034, UNK-012: the handler does not run again, the model sees the result that was given."""
    receipt = await lost_payment(stage)
    await asyncio.to_thread(stage.worker.start, THREADS_FAILPOINT="recovery:resolution:after")
    await reaches(stage, receipt, SubmissionState.UNKNOWN)
    await across_the_crash(
        stage,
        stage.client.resolve_unknown(
            stage.thread, receipt.submission_id, "c0", "completed-with-result", result="paid once", author="operator"
        ),
    )
    settlement = await stage.client.wait(receipt, timeout=BACK_S)
    assert (settlement.outcome, settlement.result) == (Outcome.COMPLETED, "paid")
    found = await kinds(stage)
    assert (found.count("ToolCallSettled"), found.count("ToolCallResolved")) == (1, 1)
    assert stage.effects() == ["fee"]


@pytest.mark.parametrize("failpoint", ["recovery:settle-aborted:before", "recovery:settle-aborted:after"])
async def test_kill_while_unknown_work_settles_aborted_settles_it_once(stage: Stage, failpoint: str) -> None:
    """REC-012, CHA-007: the evidence of uncertainty stays; no resolution is invented."""
    receipt = await lost_payment(stage)
    await asyncio.to_thread(stage.worker.start, THREADS_FAILPOINT=failpoint)
    await reaches(stage, receipt, SubmissionState.UNKNOWN)
    await across_the_crash(stage, stage.client.abort(stage.thread, receipt.submission_id, author="me", reason="enough"))
    assert (await stage.client.wait(receipt, timeout=BACK_S)).outcome is Outcome.ABORTED
    found = await kinds(stage)
    assert [found.count(kind) for kind in ("AbortRequested", "ToolCallUnknown", "SubmissionSettled")] == [1, 1, 1]
    assert "ToolCallResolved" not in found
    assert stage.effects() == ["fee"]


async def test_kill_while_an_aborted_suspension_is_closed_never_runs_the_tool(stage: Stage) -> None:
    """REX-010, ABT-007: denied by recovery, settled aborted, no effect."""
    await asyncio.to_thread(stage.worker.start, THREADS_FAILPOINT="recovery:close-suspension:after")
    receipt = await stage.client.submit(stage.thread, AGENT, f"call refund r@{stage.ledger}; say done", key="k")
    await reaches(stage, receipt, SubmissionState.SUSPENDED)
    await across_the_crash(stage, stage.client.abort(stage.thread, receipt.submission_id, author="me", reason="no"))
    assert (await stage.client.wait(receipt, timeout=BACK_S)).outcome is Outcome.ABORTED
    decided = [r.payload for r in await stage.log() if r.kind == "ToolApprovalDecided"]
    assert [(p["decision"], p["resolver"]) for p in decided] == [("denied", "recovery")]
    assert stage.effects() == []


@pytest.mark.parametrize("failpoint", ["turn:after-response-append", "approval:before-suspend"])
async def test_kill_before_an_approval_was_asked_is_no_unknown_outcome(stage: Stage, failpoint: str) -> None:
    """F36: nothing can have run before its approval, so it is asked, and the tool runs once."""
    await asyncio.to_thread(stage.worker.start, THREADS_FAILPOINT=failpoint)
    script = f"call refund r@{stage.ledger} & pay p@{stage.ledger}; say done"
    receipt = await stage.client.submit_signal(stage.thread, AGENT, script, key="k")
    await asyncio.to_thread(stage.worker.died)
    await asyncio.to_thread(stage.worker.start)
    await reaches(stage, receipt, SubmissionState.SUSPENDED)
    await stage.client.resolve_approval(stage.thread, receipt.submission_id, "c0", "approved", resolver="boss")
    assert (await stage.client.wait(receipt, timeout=BACK_S)).outcome is Outcome.COMPLETED
    assert sorted(stage.effects()) == ["p", "r"]
    assert "ToolCallUnknown" not in await kinds(stage)


async def test_kill_while_a_fault_is_stored_keeps_others_going(stage: Stage) -> None:
    """SWP-005, ABT-011: an unreadable Thread is visible and retried; once it reads again it settles."""
    receipt = await lost_payment(stage)
    database = stage.folder / "threads.db"
    with closing(sqlite3.connect(database)) as raw, raw:
        (whole,) = raw.execute("SELECT body FROM records WHERE kind = 'RunStarted'").fetchone()
        raw.execute("UPDATE records SET body = '{\"kind\":\"RunStarted\"}' WHERE kind = 'RunStarted'")
    await asyncio.to_thread(stage.worker.start, THREADS_FAILPOINT="maintenance:recovery-status:before")
    await asyncio.to_thread(stage.worker.died)
    await asyncio.to_thread(stage.worker.start)

    async def faulted() -> bool:
        return bool((await stage.client.report(stage.thread)).faults)

    await until(faulted, timeout_s=BACK_S)
    (fault,) = (await stage.client.report(stage.thread)).faults
    assert (fault.error_tag, fault.phase) == ("CorruptRecord", "history")
    other = await stage.client.submit(f"{stage.thread}-other", AGENT, "say fine", key="k")
    assert (await stage.client.wait(other, timeout=BACK_S)).result == "fine"
    with closing(sqlite3.connect(database)) as raw, raw:
        raw.execute("UPDATE records SET body = ? WHERE kind = 'RunStarted'", (whole,))
    await reaches(stage, receipt, SubmissionState.UNKNOWN)

    async def cleared() -> bool:
        return not (await stage.client.report(stage.thread)).faults

    await until(cleared, timeout_s=BACK_S)
    assert stage.effects() == ["fee"]


async def test_a_permitted_retry_that_is_lost_asks_again(stage: Stage) -> None:
    """F3: one permission, one further run; a second loss is a second unknown outcome, never a third run."""
    receipt = await lost_payment(stage)
    await asyncio.to_thread(stage.worker.start, THREADS_TEST_PAY_S="30")
    await reaches(stage, receipt, SubmissionState.UNKNOWN)
    await stage.client.resolve_unknown(stage.thread, receipt.submission_id, "c0", "safe-to-retry", author="operator")
    await until(lambda: stage.effects() == ["fee", "fee"], timeout_s=BACK_S)
    stage.worker.kill()
    await asyncio.to_thread(stage.worker.start)
    await reaches(stage, receipt, SubmissionState.UNKNOWN)
    assert stage.effects() == ["fee", "fee"]
    assert (await kinds(stage)).count("ToolCallUnknown") == 2
    await stage.client.resolve_unknown(stage.thread, receipt.submission_id, "c0", "safe-to-retry", author="operator")
    settlement = await stage.client.wait(receipt, timeout=BACK_S)
    assert (settlement.outcome, settlement.result) == (Outcome.COMPLETED, "paid")
    assert stage.effects() == ["fee", "fee", "fee"]
