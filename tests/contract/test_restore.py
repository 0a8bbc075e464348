"""A database restored from a backup: the lost future has no say in it, and what is open stays a question."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from activities.thread_recovery import recover_thread
from storage import StoreLimits, open_store
from tests.contract.archived import lived_in
from tests.contract.recovery.lab import StepClock
from tests.contract.world import THREAD, World, call, kinds, state
from tests.postgres_server import PostgresServer
from thread_objects.archives import check_archive
from thread_objects.contract.activities import ReadRequest
from thread_objects.contract.limits import RESTORE_GAP
from thread_objects.contract.records import RepairAnnotated
from thread_objects.contract.reports import RestoreReport
from thread_objects.database import ThreadDatabase
from thread_objects.errors import FenceRejected, OwnershipLost

on_sqlite = pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
BackUp = Callable[[], World]


@pytest.fixture
def back_up(world: World, tmp_path: Path, database_kind: str, request: pytest.FixtureRequest) -> Iterator[BackUp]:
    """Copies the database as it is now; the answer is a world on the copy, a little later."""
    opened: list[World] = []
    server: PostgresServer | None = request.getfixturevalue("postgres") if database_kind == "postgresql" else None

    def take() -> World:
        url = _copied(world, server) if server is not None else _copied_file(world, tmp_path / "backup.db")
        opened.append(
            World(open_store(url, limits=StoreLimits(), synchronous="OFF", pool_size=4), url, now=world.now + 1)
        )
        return opened[-1]

    yield take
    for copy in opened:
        copy.store.close()
        if server is not None:
            server.drop(copy.url)
    world.store.close()


def _copied_file(world: World, path: Path) -> str:
    source, target = sqlite3.connect(world.url.removeprefix("sqlite:///")), sqlite3.connect(path)
    with closing(source), closing(target):
        source.backup(target)
    return f"sqlite:///{path}"


def _copied(world: World, server: PostgresServer) -> str:
    world.store.close()  # PostgreSQL copies only what nobody is connected to
    url = server.url()
    copy, source = (each.rpartition("/")[2] for each in (url, world.url))
    with psycopg.connect(f"{world.url.rpartition('/')[0]}/postgres", autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{copy}"')
        connection.execute(f'CREATE DATABASE "{copy}" TEMPLATE "{source}"')
    world.store = open_store(world.url, limits=StoreLimits(), pool_size=4)
    return url


def recover(world: World, attempt: str) -> None:
    """Recover the Thread as a worker does."""
    recover_thread(world.store, THREAD, producer_id="producer", attempt_id=attempt, clock=StepClock(world.now))


def test_restored_store_fences_everybody(world: World, back_up: BackUp):
    """Owners from before and after the backup are refused, and no epoch of the lost future comes again."""
    world.submit("k1")
    world.submit("k1", thread="thread-2")
    before = world.respond(world.begin(), calls=[call("pay")])
    restored = back_up()
    after = world.claim(attempt="a2", ended=["attempt-1"])
    assert after is not None
    world.finish(world.result(after, "pay", value="paid"))

    database = ThreadDatabase(restored.store)
    assert database.fence_restored() == RestoreReport(threads=2, objects=2)
    first = restored.store.fence_restored(after="", limit=1, now=restored.now)
    assert (first.through, first.threads) == (THREAD, 1)
    for claim in (before, after):
        with pytest.raises((OwnershipLost, FenceRejected)):
            restored.append(claim, ("r", RepairAnnotated(reason="late")), batch_id="b")
        with pytest.raises(OwnershipLost):
            restored.store.renew(claim, now=restored.now)
    assert {mark.object_id for mark in restored.store.old_marks(before=1, limit=9)} == {THREAD, "thread-2"}
    claim = restored.begin(attempt="a3")
    assert claim.epoch > after.epoch + RESTORE_GAP
    assert claim.superseded_epoch == claim.epoch - 1


def test_effect_recorded_after_the_backup_stays_a_question(world: World, back_up: BackUp):
    """The restored log declares the call and knows no result: unknown, not run again (EXP-010)."""
    sid = world.submit("k1").submission_id
    claim = world.respond(world.begin(), calls=[call("pay")])
    restored = back_up()
    world.finish(world.result(claim, "pay", value="paid"))
    ThreadDatabase(restored.store).fence_restored()
    recover(restored, "recovery")
    assert state(restored, sid) == "unknown"
    assert kinds(restored)[-1] == "ToolCallUnknown"
    assert restored.try_begin(attempt="a2") is None


@on_sqlite
def test_receipt_of_the_lost_future_is_given_again(world: World, back_up: BackUp):
    """Who asks finds nothing, resubmits with the same key, and holds the same Receipt (EXP-011)."""
    world.run_through("k1")
    restored = back_up()
    lost = world.run_through("k2")
    ThreadDatabase(restored.store).fence_restored()
    read = restored.store.read
    assert read(ReadRequest(submission_id=lost.submission_id)).status is None
    assert read(ReadRequest(thread_id=THREAD, principal="pat", key="k2")).status is None
    again = restored.submit("k2")
    assert (again.submission_id, again.receipt_id, again.replayed) == (lost.submission_id, lost.receipt_id, False)
    assert restored.submit("k1").replayed
    restored.finish(restored.begin(attempt="again"))


@on_sqlite
def test_restored_thread_verifies_as_the_original(world: World, back_up: BackUp):
    """Its history is intact: the checks that pass on the original pass on it (EXP-012)."""
    lived_in(world)
    original = check_archive(list(world.store.export(THREAD))).verification
    restored = back_up()
    ThreadDatabase(restored.store).fence_restored()
    assert original.ok
    assert check_archive(list(restored.store.export(THREAD))).verification == original


@on_sqlite
def test_numbers_that_workflows_remember_rise(world: World, back_up: BackUp):
    """A deployment, or a recovery event, that comes after a restore is newer than any of the lost future."""
    assert world.store.deployment_order("registry-a", now=1) == 1
    restored = back_up()
    lost = world.store.deployment_order("registry-b", now=1)
    ThreadDatabase(restored.store).fence_restored()
    assert restored.store.deployment_order("registry-c", now=1) > restored.store.deployment_order("registry-a", now=1)
    assert restored.store.deployment_order("registry-a", now=1) > lost
