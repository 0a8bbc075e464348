"""A restore, as an operator does it: backup, life goes on, the disk is lost, the backup comes back under the same servers."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.crash.conftest import Stage
from tests.deployment import connected, settings_for, until
from tests.scripted import AGENT
from thread_objects.client import ThreadClient
from thread_objects.contract.messages import PendingReceipt
from thread_objects.contract.states import Outcome, SubmissionState
from thread_objects.database import ThreadDatabase

BACK_S = 30.0


def back_up(source: Path, target: Path) -> None:
    """A copy of one moment, while a worker writes."""
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)


def put_back(source: Path, backup: Path) -> None:
    """The backup in the place of what was lost."""
    for part in source.parent.glob(f"{source.name}*"):
        part.unlink()
    backup.rename(source)


async def in_state(client: ThreadClient, receipt: PendingReceipt, state: SubmissionState) -> bool:
    status = await client.status(receipt.submission_id)
    return status is not None and status.state is state


async def test_restored_backup_asks_what_it_cannot_know(stage: Stage) -> None:
    """EXP-010, EXP-011, EXP-012: the payment after the backup is Unknown and not made again, and every key is good again."""
    database, backup = stage.folder / "threads.db", stage.folder / "backup.db"
    stage.worker.start(THREADS_TEST_PAY_S="1")
    paid = await stage.client.submit(stage.thread, AGENT, f"call pay fee@{stage.ledger}; say paid", key="k1")
    await until(lambda: stage.effects() == ["fee"])
    await asyncio.to_thread(back_up, database, backup)
    assert (await stage.client.wait(paid, timeout=BACK_S)).outcome is Outcome.COMPLETED
    lost = await stage.client.submit(stage.thread, AGENT, "say later", key="k2")
    await stage.client.wait(lost, timeout=BACK_S)
    await asyncio.to_thread(stage.worker.stop)

    await asyncio.to_thread(put_back, database, backup)
    settings = stage.worker.settings
    url = settings["THREADS_DATABASE_URL"]
    with ThreadDatabase.open(database_url=url) as restored:
        assert restored.fence_restored().objects == 1
    await asyncio.to_thread(stage.worker.start)
    async with connected(settings_for(settings["THREADS_ADDRESS"], url, settings["THREADS_TASK_QUEUE"])) as client:
        await until(lambda: in_state(client, paid, SubmissionState.UNKNOWN), timeout_s=BACK_S)
        assert stage.effects() == ["fee"]
        assert await client.find(stage.thread, "local", "k2") is None
        again = await client.submit(stage.thread, AGENT, "say later", key="k2")
        assert (again.receipt_id, again.replayed) == (lost.receipt_id, False)
        assert (await client.wait(again, timeout=BACK_S)).result == "later"
        await client.resolve_unknown(
            stage.thread, paid.submission_id, "c0", "completed-with-result", result="paid once", author="operator"
        )
        assert (await client.wait(paid, timeout=BACK_S)).outcome is Outcome.COMPLETED
        assert stage.effects() == ["fee"]
        assert (await client.verify(stage.thread, require_all_settled=True)).ok
