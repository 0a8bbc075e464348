"""kill -9 at every step of the main path: same normalised history, one settlement, no uncertain effect twice."""

import asyncio
import contextlib
import os
import time

import pytest

from tests.crash.conftest import Stage
from tests.deployment import until
from tests.scripted import AGENT
from thread_objects.contract.messages import LogRecord, Receipt
from thread_objects.contract.states import Outcome, SubmissionState
from workflows.crash_points import LOCATIONS, PREFIX

MAINTENANCE = ["maintenance:checkpoint:after"]
"""All of them with `make crash`: every one of these is a workflow task that is lost and done again."""
if os.environ.get("CRASH_POINTS") == "all":
    MAINTENANCE = [PREFIX + name for name in LOCATIONS if not name.startswith(("retry", "binding-retry"))]

BACK_S = 15.0
"""Worker start, heartbeat timeout and recovery together stay below this; the bench measures them exactly."""


def shape(log: list[LogRecord]) -> list[str]:
    """The normalised history: kinds and ids that are derived, without audits of repairs and interruptions."""
    audits = ("RepairAnnotated", "ModelResponseInterrupted")
    return [record.record_id for record in log if record.kind not in audits]


async def settled_after_crash(stage: Stage, script: str, failpoint: str) -> tuple[list[LogRecord], list[str]]:
    """Run a script with a worker that dies at the failpoint, then with a healthy one."""
    stage.worker.start(THREADS_FAILPOINT=failpoint)
    pending = await stage.client.submit_signal(stage.thread, AGENT, script, key="k")
    await asyncio.to_thread(stage.worker.died)
    began = time.monotonic()
    await asyncio.to_thread(stage.worker.start)
    settlement = await stage.client.wait(pending, timeout=BACK_S * 2)
    assert settlement.outcome is Outcome.COMPLETED
    assert time.monotonic() - began < BACK_S
    return await stage.log(), stage.effects()


@pytest.mark.parametrize(
    "failpoint",
    [
        "apply:before",
        "apply:after",
        "mutation:answered",
        "claim:after",
        "turn:after-response-append",
        "turn:after-results-append",
        "terminalize:after-canonical-append",
        "attempt:answered",
        *MAINTENANCE,
    ],
)
async def test_kill_at_a_durable_step_converges_on_the_same_history(stage: Stage, failpoint: str) -> None:
    """F36, EVI-002, EVI-014, EVI-020, EVI-021, EVI-030: back in the same seconds, the same history, one settlement."""
    script = f"call look a@{stage.ledger}; say done"
    log, _ = await settled_after_crash(stage, script, failpoint)
    sid = next(record.payload["submissionId"] for record in log if record.kind == "UserInputRecorded")
    run = f"run:{sid}"
    assert shape(log) == [
        f"thread-created:{stage.thread}",
        f"input:{sid}",
        f"run-started:{run}",
        f"model-response:{run}:1",
        f"tool-settled:{run}:1:c0",
        f"model-response:{run}:2",
        f"run-completed:{run}",
        f"settlement:{sid}",
    ]


async def test_kill_in_the_middle_of_a_model_call_asks_again(stage: Stage) -> None:
    """A model call has no effect of ours: it is made again, and the interruption is on record."""
    stage.worker.start()
    receipt = await stage.client.submit(stage.thread, AGENT, f"stop-once {stage.folder}/once; say done", key="k")
    await asyncio.to_thread(stage.worker.died)
    await asyncio.to_thread(stage.worker.start)
    settlement = await stage.client.wait(receipt, timeout=30)
    assert settlement.result == "done"
    kinds = [record.kind for record in await stage.log()]
    assert kinds.count("ModelResponseInterrupted") == 1
    assert kinds.count("ModelResponseRecorded") == 1


async def test_kill_in_the_middle_of_an_uncertain_tool_becomes_an_unknown_outcome(stage: Stage) -> None:
    """F3, UNK-001, UNK-002, UNK-012: effect once, Unknown visible, later input runs, an operator closes it."""
    stage.worker.start(THREADS_TEST_PAY_S="30")
    receipt = await stage.client.submit(stage.thread, AGENT, f"call pay fee@{stage.ledger}; say paid", key="k")
    await until(lambda: stage.effects() == ["fee"])
    for _ in range(2):
        stage.worker.kill()
        await asyncio.to_thread(stage.worker.start)

    async def unknown() -> bool:
        report = await stage.client.report(stage.thread)
        return any(call.waits_for == "unknown" for view in report.threads for call in view.open_calls)

    await until(unknown, timeout_s=BACK_S)
    status = await stage.client.status(receipt.submission_id)
    assert status is not None
    assert [(call.tool_call_id, call.tool_name) for call in status.unknown_calls] == [("c0", "pay")]
    later = await stage.client.submit(stage.thread, AGENT, "say later", key="k2")
    assert (await stage.client.wait(later, timeout=20)).result == "later"
    assert stage.effects() == ["fee"]
    await stage.client.resolve_unknown(
        stage.thread, receipt.submission_id, "c0", "completed-with-result", result="paid once", author="operator"
    )
    settlement = await stage.client.wait(receipt, timeout=20)
    assert settlement.result == "paid"
    assert stage.effects() == ["fee"]
    kinds = [record.kind for record in await stage.log()]
    assert kinds.count("ToolCallUnknown") == 1
    assert kinds.count("ToolCallResolved") == 1


async def test_kill_in_the_middle_of_a_readonly_tool_runs_it_again(stage: Stage) -> None:
    """Readonly calls may be repeated; nothing becomes Unknown."""
    stage.worker.start()
    receipt = await stage.client.submit(stage.thread, AGENT, f"call look a@{stage.ledger} & slow 2; say done", key="k")
    await until(lambda: stage.effects() == ["a"])
    stage.worker.kill()
    await asyncio.to_thread(stage.worker.start)
    assert (await stage.client.wait(receipt, timeout=30)).result == "done"
    assert all(record.kind != "ToolCallUnknown" for record in await stage.log())


async def test_kill_while_suspended_changes_nothing(stage: Stage) -> None:
    """EVI-027: stays suspended; resumes after the decision without a model call."""
    stage.worker.start(THREADS_TEST_MODEL_CALLS=str(stage.folder / "model"))
    receipt = await stage.client.submit(stage.thread, AGENT, f"call refund r@{stage.ledger}; say done", key="k")

    async def waiting() -> bool:
        status = await stage.client.status(receipt.submission_id)
        return status is not None and bool(status.approvals)

    await until(waiting)
    stage.worker.kill()
    await asyncio.to_thread(stage.worker.start, THREADS_TEST_MODEL_CALLS=str(stage.folder / "model"))
    await stage.client.resolve_approval(stage.thread, receipt.submission_id, "c0", "approved", resolver="operator")
    assert (await stage.client.wait(receipt, timeout=20)).result == "done"
    assert stage.effects() == ["r"]
    assert len((stage.folder / "model").read_text().splitlines()) == 2


async def test_a_batch_whose_update_died_with_its_worker_and_client_is_found_by_its_mark(stage: Stage) -> None:
    """Maintenance §16: committed in SQL, unknown to the workflow, nobody left to ask: the mark alone settles it."""
    receipt = await _rested(stage)
    stage.worker.start(THREADS_FAILPOINT="apply:after")
    sending = asyncio.create_task(stage.client.submit(stage.thread, AGENT, "say found", key="lost"))
    await asyncio.to_thread(stage.worker.died)
    sending.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await sending
    lost = await stage.client.find(stage.thread, "local", "lost")
    assert lost is not None
    assert lost.settlement is None
    await asyncio.to_thread(stage.worker.start)
    settlement = await stage.client.wait(lost.submission_id, timeout=30)
    assert settlement.result == "found"
    assert receipt.queue_sequence + 1 == lost.queue_sequence


@pytest.mark.parametrize("failpoint", ["claim:before", "claim:after"])
async def test_kill_in_a_head_start_costs_the_same_seconds(stage: Stage, failpoint: str) -> None:
    """F36: an Attempt that began beside its workflow task leaves a claim that nothing waits for."""
    await _rested(stage)
    log, effects = await settled_after_crash(stage, f"call look a@{stage.ledger}; say done", failpoint)
    assert effects == ["a"]
    assert [record.kind for record in log].count("SubmissionSettled") == 2
    assert all(record.kind != "ToolCallUnknown" for record in log)


async def test_a_head_start_whose_client_is_gone_is_found_by_its_mark(stage: Stage) -> None:
    """The workflow never heard of the batch nor of the Attempt: its mark tells of both, and no lease is waited for."""
    await _rested(stage)
    stage.worker.start(THREADS_FAILPOINT="claim:after")
    sending = asyncio.create_task(stage.client.submit(stage.thread, AGENT, "say found", key="lost"))
    await asyncio.to_thread(stage.worker.died)
    sending.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await sending
    lost = await stage.client.find(stage.thread, "local", "lost")
    assert lost is not None
    assert lost.owned
    began = time.monotonic()
    await asyncio.to_thread(stage.worker.start)
    assert (await stage.client.wait(lost.submission_id, timeout=30)).result == "found"
    assert time.monotonic() - began < BACK_S


async def _rested(stage: Stage) -> Receipt:
    """An object that is there and at rest, with no worker."""
    stage.worker.start()
    receipt = await stage.client.submit(stage.thread, AGENT, "say first", key="first")
    await stage.client.wait(receipt, timeout=20)

    async def at_rest() -> bool:
        report = await stage.client.report(stage.thread)
        return report.generation.processed >= report.generation.dirty and report.alarm.maintenance is None

    await until(at_rest)
    assert await asyncio.to_thread(stage.worker.stop) == 0
    return receipt


async def test_sigterm_drains_and_settles_nothing(stage: Stage) -> None:
    """Exit 0; the running Attempt comes to its Turn boundary or is handed back; the Run goes on elsewhere."""
    stage.worker.start()
    receipt = await stage.client.submit(
        stage.thread, AGENT, f"call slow 0.5; call slow 0.5; call look a@{stage.ledger}; say done", key="k"
    )
    await until(lambda: _state_is(stage, receipt.submission_id, SubmissionState.INPUT_APPLIED))
    assert await asyncio.to_thread(stage.worker.stop) == 0
    status = await stage.client.status(receipt.submission_id)
    assert status is not None
    if status.settlement is None:
        assert not status.owned
    await asyncio.to_thread(stage.worker.start)
    assert (await stage.client.wait(receipt, timeout=30)).result == "done"
    assert stage.effects() == ["a"]
    assert all(record.kind != "ToolCallUnknown" for record in await stage.log())


async def _state_is(stage: Stage, submission_id: str, state: SubmissionState) -> bool:
    status = await stage.client.status(submission_id)
    return status is not None and status.state is state
