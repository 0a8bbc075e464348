"""Abort, approvals, bindings: what people do to a running Thread."""

import asyncio
import time
from contextlib import AsyncExitStack, closing
from typing import Any

import pytest

from storage import StoreLimits, open_store
from tests.deployment import connected, running_worker, until
from tests.scripted import AGENT, effects, registry
from tests.workflow.conftest import Deployed
from thread_objects.agents import Registry
from thread_objects.contract.activities import ApplyRequest, Item
from thread_objects.contract.messages import Submit
from thread_objects.contract.states import Outcome, SubmissionState
from thread_objects.contract.views import Registry as RegistryView
from thread_objects.errors import ApprovalConflict, SettlementConflict
from thread_objects.settings import Settings


async def state_of(deployed: Deployed, submission_id: str) -> Any:
    """The status, None before admission."""
    return await deployed.client.status(submission_id)


async def until_state(deployed: Deployed, submission_id: str, state: SubmissionState) -> Any:
    """Wait for a state of the row."""

    async def look() -> Any:
        status = await deployed.client.status(submission_id)
        return status if status is not None and status.state is state else None

    return await until(look)


async def test_abort_of_a_running_model_call_takes_about_a_second(deployed: Deployed) -> None:
    """ABT-002, F13: the intent is canonical before the interruption; settled aborted."""
    receipt = await deployed.client.submit(deployed.thread, AGENT, "hang 60; say never", key="k")
    await until_state(deployed, receipt.submission_id, SubmissionState.INPUT_APPLIED)
    began = time.monotonic()
    await deployed.client.abort(deployed.thread, receipt.submission_id, author="me", reason="enough")
    settlement = await deployed.client.wait(receipt, timeout=20)
    assert settlement.outcome is Outcome.ABORTED
    assert time.monotonic() - began < 2.5
    kinds = [record.kind for record in await deployed.client.log(deployed.thread)]
    assert kinds[-2:] == ["AbortRequested", "SubmissionSettled"]
    with pytest.raises(SettlementConflict):
        await deployed.client.abort(deployed.thread, receipt.submission_id, author="me", reason="again")


async def test_abort_of_queued_work_settles_at_once_behind_a_busy_head(deployed: Deployed) -> None:
    """ABT-001: settled aborted before the head ends."""
    head = await deployed.client.submit(deployed.thread, AGENT, "hang 3; say head", key="k1")
    queued = await deployed.client.submit(deployed.thread, AGENT, "say queued", key="k2")
    await deployed.client.abort(deployed.thread, queued.submission_id, author="me", reason="no")
    assert (await deployed.client.wait(queued, timeout=2)).outcome is Outcome.ABORTED
    status = await deployed.client.status(head.submission_id)
    assert status is not None
    assert status.settlement is None
    assert (await deployed.client.wait(head, timeout=20)).result == "head"


async def test_an_approval_suspends_and_resumes_without_asking_the_model_again(
    deployed: Deployed, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """APP-001, APP-004, APP-005, APP-008, APP-011, APP-012."""
    ledger, calls = tmp_path / "effects", tmp_path / "model"
    monkeypatch.setenv("THREADS_TEST_MODEL_CALLS", str(calls))
    receipt = await deployed.client.submit(
        deployed.thread, AGENT, f"call look a@{ledger} & refund b@{ledger}; say done", key="k"
    )
    status = await until_state(deployed, receipt.submission_id, SubmissionState.SUSPENDED)
    assert [(call.tool_call_id, call.tool_name) for call in status.approvals] == [("c1", "refund")]
    assert status.approvals[0].arguments == {"arg": f"b@{ledger}"}
    assert effects(ledger) == []

    async def at_rest() -> bool:
        report = await deployed.client.report(deployed.thread)
        return report.alarm.maintenance is None and report.generation.processed >= report.generation.dirty

    await until(at_rest)
    report = await deployed.client.report(deployed.thread)
    assert [call.waits_for for view in report.threads for call in view.open_calls] == ["approval"]
    first = await deployed.client.resolve_approval(
        deployed.thread, receipt.submission_id, "c1", "approved", resolver="boss"
    )
    assert (await deployed.client.wait(receipt, timeout=20)).result == "done"
    assert sorted(effects(ledger)) == ["a", "b"]
    assert len(effects(calls)) == 2
    with pytest.raises(SettlementConflict):
        await deployed.client.resolve_approval(deployed.thread, receipt.submission_id, "c1", "denied", resolver="other")
    kinds = [record.kind for record in await deployed.client.log(deployed.thread)]
    assert kinds.index("ToolApprovalDecided") < kinds.index("ToolCallSettled")
    assert first.resolver == "boss"


async def test_a_denial_settles_failed_and_starts_nothing(deployed: Deployed, tmp_path: Any) -> None:
    """Domain §10: no handler of the batch starts; errorTag AgentApprovalDenied."""
    ledger = tmp_path / "effects"
    receipt = await deployed.client.submit(
        deployed.thread, AGENT, f"call look a@{ledger} & refund b@{ledger}; say done", key="k"
    )
    await until_state(deployed, receipt.submission_id, SubmissionState.SUSPENDED)
    await deployed.client.resolve_approval(
        deployed.thread, receipt.submission_id, "c1", "denied", resolver="boss", reason="too much"
    )
    settlement = await deployed.client.wait(receipt, timeout=20)
    assert settlement.outcome is Outcome.FAILED
    assert settlement.diagnostic is not None
    assert settlement.diagnostic.error_tag == "AgentApprovalDenied"
    assert effects(ledger) == []
    after = await deployed.client.submit(deployed.thread, AGENT, "say after", key="k2")
    assert (await deployed.client.wait(after, timeout=20)).result == "after"


async def test_a_suspended_submission_can_be_aborted(deployed: Deployed, tmp_path: Any) -> None:
    """ABT-007: settled aborted, the tool never ran."""
    ledger = tmp_path / "effects"
    receipt = await deployed.client.submit(deployed.thread, AGENT, f"call refund b@{ledger}; say done", key="k")
    await until_state(deployed, receipt.submission_id, SubmissionState.SUSPENDED)
    await deployed.client.abort(deployed.thread, receipt.submission_id, author="me", reason="no")
    assert (await deployed.client.wait(receipt, timeout=20)).outcome is Outcome.ABORTED
    assert effects(ledger) == []


async def test_conflicting_decisions_are_refused(deployed: Deployed) -> None:
    """APP-005 while the row is still open: two calls to approve, the first decided twice."""
    receipt = await deployed.client.submit(deployed.thread, AGENT, "call refund a & refund b; say done", key="k")
    await until_state(deployed, receipt.submission_id, SubmissionState.SUSPENDED)
    await deployed.client.resolve_approval(deployed.thread, receipt.submission_id, "c0", "approved", resolver="x")

    async def second_asked() -> bool:
        status = await deployed.client.status(receipt.submission_id)
        return status is not None and [call.tool_call_id for call in status.approvals] == ["c1"]

    await until(second_asked)
    again = await deployed.client.resolve_approval(
        deployed.thread, receipt.submission_id, "c0", "approved", resolver="y"
    )
    assert (again.replayed, again.resolver) == (True, "x")
    with pytest.raises(ApprovalConflict):
        await deployed.client.resolve_approval(deployed.thread, receipt.submission_id, "c0", "denied", resolver="z")


async def test_a_missing_binding_parks_once_and_a_new_registry_resumes(settings: Settings, thread_id: str) -> None:
    """DSP-020, GEN-027: parked, reported once, no timer; the next registry gives one opportunity."""
    async with connected(settings) as client:
        async with running_worker(settings, Registry([])):
            receipt = await client.submit(thread_id, AGENT, "say bound", key="k")

            async def parked() -> Any:
                report = await client.report(thread_id)
                return report if report.binding_waits and report.alarm.maintenance is None else None

            report = await until(parked)
            assert [wait.submission_id for wait in report.binding_waits] == [receipt.submission_id]
            await client.wake(thread_id)
            assert (await client.report(thread_id)).binding_waits == report.binding_waits
        async with running_worker(settings, registry):
            # Nobody sends anything: the starting worker announces what it serves.
            assert (await client.wait(receipt, timeout=20)).result == "bound"
            assert (await client.report(thread_id)).binding_waits == ()


async def test_an_object_that_a_worker_starts_anew_has_the_settings_of_the_deployment(
    settings: Settings, thread_id: str
) -> None:
    """Ended by an operator, owed its work all the same: a worker's hint starts it as a client would."""
    settings = settings.model_copy(update={"heartbeat_timeout_ms": 7_000})
    async with connected(settings) as client:
        handle = client.temporal.get_workflow_handle(thread_id)
        async with running_worker(settings, Registry([])):
            receipt = await client.submit(thread_id, AGENT, "say bound", key="k")

            async def parked() -> Any:
                return (await client.report(thread_id)).binding_waits

            await until(parked)
            await handle.terminate("operator")
        async with running_worker(settings, registry):
            assert (await client.wait(receipt, timeout=20)).result == "bound"
        started = (await handle.fetch_history()).events[0].workflow_execution_started_event_attributes
        assert b'"heartbeatTimeoutMs":7000' in started.input.payloads[0].data


async def test_what_an_older_worker_turned_away_is_taken_up_when_it_is_gone(settings: Settings, thread_id: str) -> None:
    """A rolling deployment: both registries side by side, then the new one alone. Nobody sends anything more."""
    quick = settings.model_copy(update={"mark_sweep_ms": 500, "mark_age_ms": 200})
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(connected(quick))
        async with running_worker(quick, Registry([])):
            await stack.enter_async_context(running_worker(quick, registry))
            threads = [f"{thread_id}-{n}" for n in range(8)]
            receipts = [await client.submit(thread, AGENT, "say bound", key="k") for thread in threads]
        settled = await asyncio.gather(*(client.wait(receipt, timeout=20) for receipt in receipts))
        assert {settlement.result for settlement in settled} == {"bound"}


async def test_a_head_that_nobody_told_of_is_found_by_the_sweep(settings: Settings, thread_id: str) -> None:
    """A transaction that its caller had given up lands late, under a mark that has been answered: the head is seen."""
    quick = settings.model_copy(update={"mark_sweep_ms": 500, "mark_age_ms": 200})
    async with connected(quick) as client, running_worker(quick, registry):
        first = await client.submit(thread_id, AGENT, "say first", key="k1")
        assert (await client.wait(first, timeout=20)).result == "first"
        late = Submit(thread_id=thread_id, agent_id=AGENT, principal="local", key="k2", input="say late")
        request = ApplyRequest(
            object_id=thread_id, batch_id="stray", mark=1, applied_through=0, items=(Item(n=9, mutation=late),)
        )
        store = open_store(quick.database_url, limits=StoreLimits(), pool_size=1)
        with closing(store):
            answer = store.apply(request, worker="stray", registry=RegistryView(), now=int(time.time() * 1_000))
        receipt = answer.answers[0].receipt
        assert receipt is not None
        assert (await client.wait(receipt.submission_id, thread_id=thread_id, timeout=20)).result == "late"
