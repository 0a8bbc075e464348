"""The main path on both Temporal servers, each with both databases."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.deployment import connected, running_worker, settings_for, until
from tests.scripted import AGENT, effects
from tests.workflow.conftest import Deployed
from thread_objects.contract.states import Outcome, SubmissionState
from thread_objects.settings import Settings


@pytest.fixture(params=["dev", "time-skipping"])
def address(request: pytest.FixtureRequest) -> str:
    """Where the Temporal server listens."""
    if request.param == "dev":
        return str(request.getfixturevalue("dev_server").address)
    return str(request.getfixturevalue("time_skipping").client.service_client.config.target_host)


@pytest.fixture(params=["sqlite", "postgresql"])
def settings(request: pytest.FixtureRequest, address: str, tmp_path: Path, task_queue: str) -> Settings:
    """One server, one database."""
    url = f"sqlite:///{tmp_path}/threads.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    return settings_for(address, url, task_queue)


@pytest.fixture
async def deployed(settings: Settings, thread_id: str) -> AsyncIterator[Deployed]:
    """A running deployment on the pair."""
    async with running_worker(settings), connected(settings) as client:
        yield Deployed(settings, client, client.temporal, thread_id)


async def test_submit_tools_approval_and_abort(deployed: Deployed, tmp_path: Path) -> None:
    """Receipts, tools, an approval and an abort, whatever server and database."""
    client, thread, ledger = deployed.client, deployed.thread, tmp_path / "effects"
    plain = await client.submit(thread, AGENT, f"call look a@{ledger} & look b@{ledger}; say plain", key="1")
    signalled = await client.submit_signal(thread, AGENT, "say signalled", key="2", principal="another")
    assert (await client.wait(plain, timeout=30)).result == "plain"
    assert (await client.wait(signalled, timeout=30)).result == "signalled"
    asked = await client.submit(thread, AGENT, f"call refund r@{ledger}; say refunded", key="3")

    async def suspended() -> bool:
        status = await client.status(asked.submission_id)
        return status is not None and status.state is SubmissionState.SUSPENDED

    await until(suspended)
    await client.resolve_approval(thread, asked.submission_id, "c0", "approved", resolver="me")
    assert (await client.wait(asked, timeout=30)).result == "refunded"
    assert sorted(effects(ledger)) == ["a", "b", "r"]
    running = await client.submit(thread, AGENT, "hang 60; say never", key="4")

    async def owned() -> bool:
        status = await client.status(running.submission_id)
        return status is not None and status.owned

    await until(owned)
    await client.abort(thread, running.submission_id, author="me", reason="enough")
    assert (await client.wait(running, timeout=30)).outcome is Outcome.ABORTED


async def test_retry_timers_fire(deployed: Deployed, tmp_path: Path) -> None:
    """A pass that could do nothing is followed by the alarm, on either server's clock."""
    client, thread = deployed.client, deployed.thread
    receipt = await client.submit(thread, AGENT, f"fail-once {tmp_path}/once; say recovered", key="1")
    assert (await client.wait(receipt, timeout=30)).result == "recovered"
