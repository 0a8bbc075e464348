"""kill -9 while an operator's retry is executed: what it did stands, is looked at, and is done once."""

import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from tests.crash.conftest import Stage
from tests.crash.test_kill_recovery import BACK_S, across_the_crash
from tests.deployment import connected, settings_for, until
from thread_objects.contract.states import Disposition


@pytest.mark.parametrize(("failpoint", "audits"), [("retry:before-audit", 0), ("retry:after-audit", 1)])
async def test_kill_around_the_audit_of_a_retry_repairs_once(stage: Stage, failpoint: str, audits: int) -> None:
    """ADM-010: the repair is there once, the next worker answers, and the object has looked at what was done."""
    told = stage.worker.settings
    settings = settings_for(
        told["THREADS_ADDRESS"],
        told["THREADS_DATABASE_URL"],
        told["THREADS_TASK_QUEUE"],
        heartbeat_timeout_ms=1_000,  # the object's, fixed by whoever starts it
    )
    async with connected(settings) as client:
        stage = replace(stage, client=client)
        stage.worker.start(THREADS_FAILPOINT=failpoint)
        receipt = await stage.client.submit(stage.thread, "nobody-binds-this", "hi", key="k")

        async def parked() -> bool:
            return bool((await stage.client.report(stage.thread)).binding_waits)

        await until(parked)
        before = (await stage.client.report(stage.thread)).generation
        with closing(sqlite3.connect(stage.folder / "threads.db", timeout=10)) as raw, raw:
            raw.execute("UPDATE submissions SET state = 'admitted', ready_at = NULL")
        answers = []

        async def retry() -> None:
            answers.append(await stage.client.retry(receipt, author="ops", reason="r"))

        await across_the_crash(stage, retry())
        (answer,) = answers
        assert (answer.decision, answer.disposition) == ("ApplyInput", Disposition.DEFERRED)
        found = await stage.client.explain(receipt)
        assert (found.state, found.decision) == ("ready", "ApplyInput")
        assert [record.kind for record in await stage.log()].count("RepairAnnotated") == audits
        assert (await stage.client.verify(stage.thread)).ok

        async def looked() -> bool:
            now = (await stage.client.report(stage.thread)).generation
            return now.dirty > before.dirty and now.processed == now.dirty

        await until(looked, timeout_s=BACK_S)
