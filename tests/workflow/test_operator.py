"""What an operator asks, end to end: with the database and through a worker, and what a retry executes."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowUpdateFailedError

from tests.deployment import connected, running_worker, until
from tests.scripted import AGENT, effects
from tests.workflow.conftest import Deployed
from thread_objects.authorising import OperationRequest
from thread_objects.client import ThreadClient
from thread_objects.contract import names
from thread_objects.contract.messages import Receipt
from thread_objects.contract.operations import BlockedOn, Operation
from thread_objects.contract.reports import Verification
from thread_objects.contract.states import CheckOutcome, Disposition, Outcome, SubmissionState
from thread_objects.errors import (
    ConfigError,
    InvalidInput,
    NotFound,
    OperationDenied,
    RetryRefused,
    StoreUnavailable,
    WaitCancelled,
    WaitTimeout,
    from_failure,
)
from thread_objects.settings import Settings

UNBOUND = "agent-of-another-deployment"


def tamper(settings: Settings, sql: str, *values: Any) -> None:
    """Change stored rows behind everybody's back."""
    assert settings.database_url is not None
    with closing(sqlite3.connect(settings.database_url.removeprefix("sqlite:///"), timeout=10)) as connection:
        connection.execute(sql, values)
        connection.commit()


@pytest.fixture
async def wired(deployed: Deployed) -> AsyncIterator[ThreadClient]:
    """A client of the same deployment that has no database."""
    async with connected(deployed.settings, with_database=False) as client:
        yield client


async def waiting_for_binding(deployed: Deployed) -> Receipt:
    """A Submission whose agent nobody binds, parked."""
    receipt = await deployed.client.submit(deployed.thread, UNBOUND, "say hi", key="k")

    async def parked() -> bool:
        return bool((await deployed.client.report(deployed.thread)).binding_waits)

    await until(parked)
    return receipt


async def test_an_explanation_tells_that_a_binding_is_missing(deployed: Deployed, wired: ThreadClient):
    """ADM-001 through either way in: decision, evidence, ages, and the wait for a binding that only the object knows."""
    receipt = await waiting_for_binding(deployed)
    for client in (deployed.client, wired):
        found = await client.explain(receipt)
        assert (found.decision, found.disposition) == ("ApplyInput", Disposition.DEFERRED)
        assert (found.state, found.agent_id, found.admitted_age_seconds) == (SubmissionState.READY, UNBOUND, 0)
        assert not found.evidence.input_recorded
        assert found.binding_wait is not None
        assert found.binding_wait.agent_id == UNBOUND
        whole = await client.explain_thread(deployed.thread)
        assert [row.binding_wait for row in whole.submissions] == [found.binding_wait]
        assert whole.binding_waits == (found.binding_wait,)
        with pytest.raises(NotFound):
            await client.explain("sub-nobody")
        with pytest.raises(NotFound):
            await client.explain(receipt.submission_id, thread_id="another-thread")
        with pytest.raises(NotFound):
            await client.explain_thread("another-thread")


async def test_a_retry_executes_the_decision_and_leaves_its_audit(deployed: Deployed, wired: ThreadClient):
    """ADM-010: RepairReadiness is executed, answered repaired, audited with author and reason, and the object looks."""
    receipt = await waiting_for_binding(deployed)
    before = await deployed.client.report(deployed.thread)
    tamper(deployed.settings, "UPDATE submissions SET state = 'admitted', ready_at = NULL")
    assert (await deployed.client.explain(receipt)).decision == "RepairReadiness"
    answer = await wired.retry(receipt, author="ops", reason="the marker was lost")
    assert (answer.decision, answer.disposition) == ("RepairReadiness", Disposition.REPAIRED)
    assert (answer.author, answer.reason) == ("ops", "the marker was lost")
    found = await deployed.client.explain(receipt)
    assert (found.state, found.decision) == (SubmissionState.READY, "ApplyInput")

    async def looked() -> bool:
        after = await deployed.client.report(deployed.thread)
        record = after.generation
        return record.dirty > before.generation.dirty and record.processed == record.dirty

    await until(looked)
    (audit,) = [r for r in await deployed.client.log(deployed.thread) if r.kind == "RepairAnnotated"]
    assert audit.record_id == f"repair:{receipt.submission_id}:RepairReadiness"
    assert audit.payload["reason"] == "recovery:RepairReadiness"
    assert audit.payload["details"]["author"] == "ops"
    assert audit.payload["details"]["reason"] == "the marker was lost"
    again = await wired.retry(receipt.submission_id, author="ops", reason="once more")
    assert (again.decision, again.disposition) == ("ApplyInput", Disposition.DEFERRED)
    assert (await deployed.client.verify(deployed.thread)).ok


async def test_a_retry_with_nothing_to_execute_is_refused(deployed: Deployed, wired: ThreadClient):
    """ADM-007, ADM-008, ADM-011: settled, waiting for an approval, unknown to all, without a reason, and by signal."""
    client, thread = deployed.client, deployed.thread
    settled = await client.submit(thread, AGENT, "say hi", key="settled")
    await client.wait(settled, timeout=20)
    with pytest.raises(RetryRefused) as refused:
        await client.retry(settled, author="ops", reason="r")
    assert (refused.value.refused_because, refused.value.decision_tag) == ("settled", "NoAction")
    asking = await client.submit(thread, AGENT, "call refund x; say done", key="asking")

    async def suspended() -> bool:
        found = await client.status(asking.submission_id)
        return found is not None and found.state is SubmissionState.SUSPENDED

    await until(suspended)
    with pytest.raises(RetryRefused) as refused:
        await wired.retry(asking.submission_id, author="ops", reason="r")
    assert refused.value.refused_because == "await-approval-decision"
    assert refused.value.decision_tag == "AwaitApprovalDecision"
    with pytest.raises(NotFound):
        await client.retry("sub-nobody", author="ops", reason="r", thread_id=thread)
    with pytest.raises(InvalidInput):
        await client.retry(asking, author="ops", reason="")
    handle = deployed.temporal.get_workflow_handle(thread)
    message = {"kind": "retry", "threadId": thread, "submissionId": asking.submission_id, "author": "ops"}
    with pytest.raises(WorkflowUpdateFailedError) as failure:
        await handle.execute_update(names.RETRY, message)
    assert isinstance(from_failure(failure.value.cause), InvalidInput)
    await handle.signal(names.RETRY, {**message, "reason": "r"})

    async def noted() -> bool:
        return any(refusal.name == names.RETRY for refusal in (await client.report(thread)).refusals)

    await until(noted)
    await client.resolve_approval(thread, asking.submission_id, "c0", "denied", resolver="ops")
    assert (await client.wait(asking, timeout=20)).outcome == "failed"


async def test_a_retry_leaves_the_claim_of_a_running_attempt_alone(
    deployed: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of one that began beside its task: the call that runs is neither taken over nor called unknown."""
    monkeypatch.setenv("THREADS_TEST_PAY_S", "1.5")
    ledger = tmp_path / "effects"
    client = deployed.client
    await client.wait(await client.submit(deployed.thread, AGENT, "say hi", key="first"), timeout=20)

    async def at_rest() -> bool:
        report = await client.report(deployed.thread)
        return report.alarm.maintenance is None and not report.attempts

    await until(at_rest)
    receipt = await client.submit(deployed.thread, AGENT, f"call pay x@{ledger}; say done", key="k")
    await until(lambda: effects(ledger))
    owner = (await client.explain(receipt)).owner
    assert owner is not None
    assert owner.attempt_id.startswith("head-start:")
    answer = await client.retry(receipt, author="ops", reason="is it stuck?")
    assert answer.disposition is Disposition.DEFERRED
    settlement = await client.wait(receipt, timeout=20)
    assert (settlement.outcome, settlement.result) == (Outcome.COMPLETED, "done")
    assert effects(ledger) == ["x"]
    assert not [r for r in await client.log(deployed.thread) if r.kind == "ToolCallUnknown"]


async def test_a_parked_unknown_is_refused_until_it_is_resolved(deployed: Deployed):
    """ADM-008: AwaitUnknownResolution is somebody's to answer; a retry executes nothing and tells the decision."""
    receipt = await waiting_for_binding(deployed)
    sid = receipt.submission_id
    tamper(deployed.settings, "UPDATE submissions SET state = 'unknown' WHERE submission_id = ?", sid)
    tamper(
        deployed.settings,
        "INSERT INTO records (thread_id, sequence, record_id, batch_id, kind, schema_version, created_at, deployment_id,"
        " submission_id, digest, body) SELECT ?, 2, 'tool-unknown:x', 'b', 'ToolCallUnknown', 1, 1, '', ?, 'x', ?",
        deployed.thread,
        sid,
        '{"kind":"ToolCallUnknown","reason":"lost","runId":"run:'
        + sid
        + '","toolCallId":"c0","toolName":"pay","turn":1}',
    )
    tamper(deployed.settings, "UPDATE threads SET tail_sequence = 2")
    assert (await deployed.client.explain(receipt)).decision == "AwaitUnknownResolution"
    with pytest.raises(RetryRefused) as refused:
        await deployed.client.retry(receipt, author="ops", reason="r")
    assert refused.value.refused_because == "await-unknown-resolution"
    found = await deployed.client.verify(deployed.thread)
    assert {c.name for c in found.checks if c.outcome is CheckOutcome.FAILED} >= {"digest-chain"}


async def test_a_wake_moves_no_ownership(deployed: Deployed):
    """ADM-012: ownership and epoch are the same before and after, with and without an owner."""
    receipt = await deployed.client.submit(deployed.thread, AGENT, "hang 1.5; say done", key="k")

    async def owned() -> Any:
        return (await deployed.client.explain(receipt)).owner

    owner = await until(owned)
    await deployed.client.wake(deployed.thread)
    assert await owned() == owner
    await deployed.client.wait(receipt, timeout=20)
    before = await deployed.client.explain_thread(deployed.thread)
    await deployed.client.wake(deployed.thread)
    after = await deployed.client.explain_thread(deployed.thread)
    assert (after.epoch, after.owner_submission_id) == (before.epoch, None)


async def test_verify_and_obligations_answer_alike_either_way(deployed: Deployed, wired: ThreadClient):
    """ADM-018, ADM-014: what the product wrote is whole; what is owed is listed, with its severity, by either client."""
    done = await deployed.client.submit(deployed.thread, AGENT, "call pay x & look y; say done", key="done")
    await deployed.client.wait(done, timeout=20)
    await waiting_for_binding(deployed)
    found: list[Verification] = []
    for client in (deployed.client, wired):
        found.append(await client.verify(deployed.thread))
        (owed,) = (await client.scan_obligations(3_600, 7_200)).obligations
        assert (owed.blocked_on, owed.severity, owed.agent_id) == (BlockedOn.READY_AGED, "ok", UNBOUND)
        (late,) = (await client.scan_obligations(0, 0, severity="overdue", thread_id=deployed.thread)).obligations
        assert late.submission_id == owed.submission_id
        assert (await client.scan_obligations(0, 0, agent=AGENT)).obligations == ()
        assert not (await client.verify(deployed.thread, require_all_settled=True)).ok
        with pytest.raises(InvalidInput):
            await client.scan_obligations(600, 60)
    assert found[0] == found[1]
    assert found[0].ok


async def test_progress_wakes_every_waiter_of_its_thread(deployed: Deployed, wired: ThreadClient):
    """At once where the log is longer already, else on the next append; a named wait ends alone (ADM-030)."""
    first = await deployed.client.submit(deployed.thread, AGENT, "say hi", key="k1")
    await deployed.client.wait(first, timeout=20)
    tail = await deployed.client.await_progress(deployed.thread, timeout=5)
    assert await wired.await_progress(deployed.thread, after=tail - 1, timeout=10) == tail
    waits = [
        asyncio.create_task(client.await_progress(deployed.thread, after=tail)) for client in (deployed.client, wired)
    ]
    named = asyncio.create_task(deployed.client.await_progress(deployed.thread, after=tail, waiter="w"))
    elsewhere = asyncio.create_task(deployed.client.await_progress("another-thread"))
    with pytest.raises(WaitTimeout):
        await deployed.client.await_progress(deployed.thread, after=tail, timeout=0.2)
    deployed.client.cancel_wait("w")
    with pytest.raises(WaitCancelled):
        await named
    assert not any(task.done() for task in waits)
    await deployed.client.submit(deployed.thread, AGENT, "say hi", key="k2")
    grown = await asyncio.wait_for(asyncio.gather(*waits), 20)
    assert min(grown) > tail
    assert not elsewhere.done()
    elsewhere.cancel()
    deployed.client.cancel_wait("early")
    with pytest.raises(WaitCancelled):
        await deployed.client.wait(first, waiter="early")


async def test_an_ended_wait_changes_nothing(deployed: Deployed, wired: ThreadClient):
    """ADM-028: cancelling a wait detaches it; a later one, of either client, returns the settlement."""
    receipt = await deployed.client.submit(deployed.thread, AGENT, "hang 1; say done", key="k")
    waits = [asyncio.create_task(client.wait(receipt)) for client in (deployed.client, wired)]
    await asyncio.sleep(0.2)
    for wait in waits:
        wait.cancel()
        with pytest.raises(asyncio.CancelledError):
            await wait
    settled = await deployed.client.wait(receipt, timeout=20)
    assert settled == await wired.wait(receipt, timeout=20)
    assert settled.result == "done"
    with pytest.raises(NotFound):
        await deployed.client.wait(receipt.submission_id, thread_id="another-thread", timeout=5)


# --- a client with another database ----------------------------------------------------------------------------------------


async def test_a_client_with_another_database_is_told(deployed: Deployed, tmp_path: Any, monkeypatch: Any):
    """An accepted Submission that the client's database does not know, and the workers' does: a setting is wrong."""
    monkeypatch.setattr("thread_objects.awaiting.SIGHT_S", 0.1)
    other = f"sqlite:///{tmp_path}/other.db"
    elsewhere = deployed.settings.model_copy(update={"database_url": other, "task_queue": f"{deployed.thread}-other"})
    async with running_worker(elsewhere):
        pass  # makes an empty database, as another deployment would have one
    wrong = deployed.settings.model_copy(update={"database_url": other})
    async with connected(wrong) as client:
        receipt = await client.submit(deployed.thread, AGENT, "say hi", key="k")
        for waited in (receipt, receipt.submission_id):
            with pytest.raises(ConfigError) as refused:
                await client.wait(waited, timeout=20)
            assert refused.value.setting == "database_url"
        pending = await client.submit_signal(deployed.thread, AGENT, "say hi", key="k2")
        with pytest.raises(ConfigError, match="not the workers'"):
            await client.wait(pending, timeout=20)


async def test_a_mistyped_database_is_refused_and_not_made(deployed: Deployed, tmp_path: Any):
    """Only a worker creates a database: a client's path that leads nowhere is a typed error, and stays nowhere."""
    path = tmp_path / "mistyped.db"
    async with connected(deployed.settings.model_copy(update={"database_url": f"sqlite:///{path}"})) as client:
        for read in (client.status, client.explain, client.log, client.verify):
            with pytest.raises(StoreUnavailable, match=r"no database at .*mistyped.db"):
                await read("x")  # type: ignore[operator]
        assert not path.exists()
        path.touch()
        with pytest.raises(StoreUnavailable, match="no database of a worker's"):
            await client.status("x")


# --- an authoriser -----------------------------------------------------------------------------------------------------------


def only_ann(request: OperationRequest) -> str | None:
    """Ann may do everything, anybody may look at a status."""
    return None if request.caller == "ann" or request.operation is Operation.STATUS else f"not for {request.caller}"


async def test_a_workers_authoriser_cannot_be_bypassed(settings: Settings, thread_id: str):
    """F25: updates, signals and reads sent past every client's authoriser are denied where the database is."""
    guarded = settings.model_copy(update={"authoriser": "tests.workflow.test_operator:only_ann"})
    eve = settings.model_copy(update={"caller": "eve", "database_url": None})
    async with running_worker(guarded), connected(settings) as own, connected(eve, with_database=False) as bypassing:
        ann = own.acting_as("ann")
        receipt = await ann.submit(thread_id, UNBOUND, "say hi", key="k")
        sid = receipt.submission_id
        for act in (
            bypassing.abort(thread_id, sid, author="eve", reason="r"),
            bypassing.resolve_approval(thread_id, sid, "c", "approved", resolver="eve"),
            bypassing.resolve_unknown(thread_id, sid, "c", "never-happened", author="eve"),
            bypassing.retry(sid, author="eve", reason="r", thread_id=thread_id),
            bypassing.explain(sid),
            bypassing.explain_thread(thread_id),
            bypassing.verify(thread_id),
            bypassing.scan_obligations(60, 600),
            bypassing.log(thread_id),
            bypassing.await_progress(thread_id),
            bypassing.wait(sid, thread_id=thread_id),
        ):
            with pytest.raises(OperationDenied) as denied:
                await asyncio.wait_for(act, 20)
            assert "not for eve" in denied.value.reason
        message = {"kind": "abort", "threadId": thread_id, "submissionId": sid, "author": "eve", "reason": ""}
        await ann.temporal.get_workflow_handle(thread_id).signal(names.ABORT, message)

        async def noted() -> bool:
            return [r.code for r in (await ann.report(thread_id)).refusals] == ["OperationDenied"]

        await until(noted)
        status = await bypassing.status(sid)
        assert status is not None
        assert not status.abort_requested
        assert [record.kind for record in await ann.log(thread_id)] == ["ThreadCreated"]
        assert (await ann.abort(thread_id, sid, author="ann", reason="enough")).settled
