"""Readers: what a client with the database sees for itself, and how soon it is told."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from storage import open_reader
from storage.reader import SqlReader
from tests.contract.world import THREAD, World, call
from thread_objects.contract.activities import ReadRequest
from thread_objects.contract.states import Decision, Outcome, ResolutionKind
from thread_objects.errors import ConfigError, InvalidInput, StoreUnavailable


@pytest.fixture
def reader(world: World) -> Iterator[SqlReader]:
    """A reader beside the store."""
    opened = open_reader(world.url)
    yield opened
    opened.close()


def test_status_follows_a_submission_to_its_settlement(world: World, reader: SqlReader):
    """State, ownership, epoch, and at last the settlement from its record."""
    receipt = world.submit("k1")
    ready = reader.status(receipt.submission_id)
    assert (ready.state, ready.owned, ready.epoch, ready.settlement) == ("ready", False, 0, None)
    claim = world.begin()
    running = reader.status(receipt.submission_id)
    assert (running.state, running.owned, running.epoch) == ("input-applied", True, 1)
    world.abort(receipt.submission_id)
    assert reader.status(receipt.submission_id).abort_requested
    settlement = world.finish(claim, result={"n": 1})
    done = reader.status(receipt.submission_id)
    assert (done.state, done.owned, done.settlement) == ("settled", False, settlement)


def test_settlements_are_those_among_the_ids(world: World, reader: SqlReader):
    """Unsettled and unknown ids are simply absent, however many are asked for."""
    settled = [world.run_through(f"k{n}").submission_id for n in range(3)]
    world.submit("open")
    asked = [*settled, "sub-nobody", *(f"sub-{n}" for n in range(600))]
    found = reader.settlements(asked)
    assert sorted(found) == sorted(settled)
    assert {settlement.outcome for settlement in found.values()} == {Outcome.COMPLETED}
    assert reader.settlements([]) == {}


def test_log_of_nobody_is_empty(world: World, reader: SqlReader):
    """A reader cannot know whether a Thread will exist."""
    assert reader.log("nobody", after=0, limit=10) == []
    world.submit("k1")
    assert [record.kind for record in reader.log(THREAD, after=0, limit=10)] == ["ThreadCreated"]
    assert reader.log(THREAD, after=2**80, limit=10) == []
    with pytest.raises(InvalidInput):
        reader.log(THREAD, after=0, limit=0)


def test_reader_is_told_of_every_kind_of_change(world: World, reader: SqlReader):
    """Admission, append, approval, resolution and settlement all end a wait; silence does not."""
    reader.wait_for_change(0)
    assert not reader.wait_for_change(20)

    def step(change: Callable[[], object]) -> None:
        change()
        assert reader.wait_for_change(5_000)
        assert not reader.wait_for_change(0)

    receipt = world.submit("k1")
    assert reader.wait_for_change(5_000)
    claim = world.begin()
    reader.wait_for_change(5_000)
    claim = world.respond(claim, calls=[call("c1")])
    assert reader.wait_for_change(5_000)
    while reader.wait_for_change(50):
        pass
    step(lambda: world.store.suspend(claim, world.approval_request(claim, "c1"), ["c1"], now=world.now))
    step(lambda: world.answer_approval(receipt.submission_id, "c1", Decision.APPROVED))
    again = world.begin(attempt="attempt-2")
    while reader.wait_for_change(50):
        pass
    step(lambda: world.lose(again, "c1"))
    step(lambda: world.resolve(receipt.submission_id, "c1", ResolutionKind.NEVER_HAPPENED))
    last = world.begin(attempt="attempt-3")
    while reader.wait_for_change(50):
        pass
    step(lambda: world.finish(last))


def test_wait_ends_while_it_waits(world: World, reader: SqlReader):
    """A commit of another process or thread ends a wait that has begun."""
    reader.wait_for_change(0)
    told: list[bool] = []
    waiter = threading.Thread(target=lambda: told.append(reader.wait_for_change(30_000)))
    waiter.start()
    world.submit("k1")
    waiter.join(25)
    assert told == [True]


def test_closed_reader_is_unavailable(world: World):
    """Whoever still waits or asks is told, typed."""
    opened = open_reader(world.url)
    opened.close()
    for operation in (lambda: opened.wait_for_change(10), lambda: opened.status("sub-1")):
        with pytest.raises(StoreUnavailable):
            operation()


def test_reader_of_a_database_that_is_not_there_is_told(tmp_path: Path):
    """A reader never creates a database, and says what is wrong with the URL."""
    with pytest.raises(StoreUnavailable):
        open_reader(f"sqlite:///{tmp_path / 'missing.db'}")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(StoreUnavailable):
        open_reader("postgresql://nobody@127.0.0.1:9/nothing")
    for url in ("mysql://x", "sqlite:///", "sqlite:///:memory:"):
        with pytest.raises(ConfigError):
            open_reader(url)


def test_reader_of_an_empty_database_is_told(database_url: str, tmp_path: Path):
    """A database without our schema is unavailable, not a crash."""
    if database_url.startswith("sqlite"):
        (tmp_path / "threads.db").touch()
    opened = open_reader(database_url)
    with pytest.raises(StoreUnavailable):
        opened.status("sub-1")
    opened.close()
    opened.close()


# --- reads through the store, for clients without a database -----------------------------------------------------


def test_read_answers_status_by_id_or_by_key(world: World, reader: SqlReader):
    """One request, at most one status."""
    receipt = world.submit("k1")
    by_id = world.store.read(ReadRequest(submission_id=receipt.submission_id))
    by_key = world.store.read(ReadRequest(thread_id=THREAD, principal="pat", key="k1"))
    assert by_id == by_key
    assert by_id.status == reader.status(receipt.submission_id)
    assert world.store.read(ReadRequest(submission_id="sub-nobody")).status is None
    assert by_id.records == ()


def test_read_page_fits_the_wire(world: World):
    """A page stops before it outgrows the wire, never before its first record, and goes on from where it stopped."""
    world.submit("k1", "x" * 700_000)
    world.finish(world.begin(attempt="a1"))
    world.submit("k2", "y" * 700_000)
    claim = world.begin(attempt="a2")
    sequences: list[int] = []
    pages = 0
    while True:
        after = sequences[-1] if sequences else 0
        page = world.store.read(ReadRequest(thread_id=THREAD, after=after, limit=5_000))
        if not page.records:
            break
        pages += 1
        assert len(page.model_dump_json(by_alias=True)) < 1_500_000
        sequences += [record.sequence for record in page.records]
    assert sequences == list(range(1, claim.tail.sequence + 1))
    assert pages == 2
    assert world.store.read(ReadRequest(thread_id="nobody", limit=5)).records == ()
