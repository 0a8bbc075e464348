"""The log: all or nothing, without gaps, chained, fenced, and repeatable by its ids."""

import json

import pytest

from tests.contract.world import THREAD, World, kinds, response, submit
from thread_objects.contract import ids
from thread_objects.contract.records import Batch, Record, RepairAnnotated
from thread_objects.core import batches, digests
from thread_objects.core.offsets import sequence_of
from thread_objects.errors import (
    AppendConflict,
    CorruptRecord,
    FenceRejected,
    InvalidInput,
    OwnershipLost,
    ThreadNotMaterialized,
)
from thread_objects.ports import Claim, Tail


def note(text: str = "note") -> RepairAnnotated:
    """A payload that means nothing to the ledger."""
    return RepairAnnotated(reason=text)


@pytest.fixture
def claim(world: World) -> Claim:
    """A claim on a Thread with three records."""
    world.submit("k1")
    return world.begin()


def test_batch_is_numbered_in_order_and_moves_the_tail(world: World, claim: Claim):
    """Sequences follow each other in declaration order, and the tail's digest changes (LOG-001)."""
    before = claim.tail
    claim = world.append(claim, ("r1", note()), ("r2", note()), ("r3", note()), batch_id="b1")
    assert claim.tail.sequence == before.sequence + 3
    assert claim.tail.digest != before.digest
    assert claim.tail == world.store.tail(THREAD)
    page = world.store.records(THREAD, after=before.sequence, limit=10)
    assert [(r.sequence, r.record_id, r.batch_id) for r in page] == [(4, "r1", "b1"), (5, "r2", "b1"), (6, "r3", "b1")]


def test_digest_chains_every_batch_to_the_one_before(world: World, claim: Claim):
    """Anybody can recompute the chain from the first link to the tail."""
    claim = world.append(claim, ("r1", note("ä")), ("r2", note()), batch_id="b1")
    digest, batch_id, members = digests.EMPTY_TAIL, "", []
    records = world.store.records(THREAD, after=0, limit=100)
    for index, record in enumerate(records):
        batch_id = record.batch_id
        members.append(
            Record(
                record_id=record.record_id,
                created_at=record.created_at,
                deployment_id="registry-1" if record.kind == "ThreadCreated" else "deployment-1",
                payload=record.payload,
            )
        )
        if index + 1 == len(records) or records[index + 1].batch_id != batch_id:
            digest = digests.chain(digest, batches.encode(Batch(batch_id=batch_id, records=tuple(members))).text)
            assert world.store.digest_at(THREAD, record.sequence) == digest
            members = []
    assert digest == claim.tail.digest
    assert world.store.digest_at(THREAD, claim.tail.sequence - 1) is None
    assert world.store.digest_at(THREAD, 0) == digests.EMPTY_TAIL


def test_repeated_batch_answers_as_the_first_time(world: World, claim: Claim):
    """The same batch is stored once, also when others came between (LOG-002)."""
    batch = world.batch("b1", ("r1", note()))
    first = world.store.append(claim, batch, now=world.now)
    assert world.store.append(claim, batch, now=world.now) == first
    world.append(claim, ("r2", note()), batch_id="b2")
    assert world.store.append(claim, batch, now=world.now) == first
    assert world.store.tail(THREAD).sequence == first.sequence + 1


def test_batch_id_with_other_content_conflicts(world: World, claim: Claim):
    """A batch id stands for its content."""
    claim = world.append(claim, ("r1", note("one")), batch_id="b1")
    for records in ([("r1", note("two"))], [("r9", note("one"))], [("r1", note("one")), ("r9", note())]):
        with pytest.raises(AppendConflict) as conflict:
            world.append(claim, *records, batch_id="b1")
        assert conflict.value.conflict == "batch-digest"
    assert world.store.tail(THREAD) == claim.tail


def test_record_id_is_used_once(world: World, claim: Claim):
    """A committed record id refuses the whole batch that names it again (LOG-004)."""
    claim = world.append(claim, ("r1", note()), batch_id="b1")
    with pytest.raises(AppendConflict) as conflict:
        world.append(claim, ("r2", note()), ("r1", note()), batch_id="b2")
    assert conflict.value.conflict == "record-identity"
    assert world.store.tail(THREAD) == claim.tail
    assert "r2" not in [r.record_id for r in world.store.records(THREAD, after=0, limit=100)]


def test_record_id_twice_in_a_batch_conflicts(world: World, claim: Claim):
    """A batch cannot repeat itself (LOG-005)."""
    with pytest.raises(AppendConflict) as conflict:
        world.append(claim, ("r5", note()), ("r5", note()), batch_id="b1")
    assert conflict.value.conflict == "record-identity"
    assert world.store.tail(THREAD) == claim.tail


def test_same_record_ids_in_two_threads_do_not_meet(world: World, claim: Claim):
    """Ids are the Thread's own."""
    world.submit("k1", thread="thread-2")
    other = world.begin(thread="thread-2")
    world.append(claim, ("r1", note()), batch_id="b1")
    assert world.append(other, ("r1", note()), batch_id="b1").tail.sequence == 4


def test_append_takes_the_actual_tail(world: World, claim: Claim):
    """An abort of queued work may append in between; the owner's append goes behind it."""
    queued = world.submit("k2")
    assert world.abort(queued.submission_id).abort.settled
    after = world.append(claim, ("r1", note()), batch_id="b1")
    assert kinds(world)[3:] == ["AbortRequested", "SubmissionSettled", "RepairAnnotated"]
    assert after.tail == world.store.tail(THREAD)


def test_stale_epoch_is_refused(world: World, claim: Claim):
    """The epoch decides who may append (LOG-008)."""
    world.now += 40_000
    world.begin(attempt="attempt-2")
    with pytest.raises(FenceRejected) as fence:
        world.append(claim, ("r1", note()), batch_id="b1")
    assert (fence.value.actual, fence.value.attempted) == (2, 1)
    assert world.store.tail(THREAD) == claim.tail


def test_released_claim_may_not_append(world: World, claim: Claim):
    """At the same epoch the token decides."""
    world.store.release(claim, now=world.now)
    with pytest.raises(OwnershipLost):
        world.append(claim, ("r1", note()), batch_id="b1")


def test_plain_append_needs_the_exact_tail(world: World, claim: Claim):
    """A wrong sequence or digest is told with the actual tail, and nothing is stored (LOG-007)."""
    batch = world.batch("b1", ("r1", note()))
    for wrong in (Tail(claim.tail.sequence, "0" * 64), Tail(claim.tail.sequence - 1, claim.tail.digest)):
        with pytest.raises(AppendConflict) as conflict:
            world.store.append_at(THREAD, batch, wrong, claim.epoch)
        assert conflict.value.conflict == "tail"
        assert (conflict.value.tail_sequence, conflict.value.tail_digest) == (claim.tail.sequence, claim.tail.digest)
    first = world.store.append_at(THREAD, batch, claim.tail, claim.epoch)
    assert first == (world.store.tail(THREAD), False)
    assert world.store.append_at(THREAD, batch, claim.tail, claim.epoch) == (first[0], True)


def test_raised_epoch_appends_behind_the_tail(world: World, claim: Claim):
    """Raising the epoch keeps the log; lowering it is refused (LOG-010)."""
    world.store.materialize(THREAD, 4)
    tail, replayed = world.store.append_at(THREAD, world.batch("b1", ("r1", note())), claim.tail, 4)
    assert (tail.sequence, replayed) == (claim.tail.sequence + 1, False)
    with pytest.raises(FenceRejected):
        world.store.materialize(THREAD, 3)
    with pytest.raises(FenceRejected):
        world.store.append_at(THREAD, world.batch("b2", ("r2", note())), tail, 3)


def test_reading_resumes_after_an_offset(world: World, claim: Claim):
    """From the offset of a record on, exactly what follows (LOG-011)."""
    world.append(claim, ("r4", note()), ("r5", note()), batch_id="b1")
    second = world.store.records(THREAD, after=0, limit=2)[1]
    rest = world.store.records(THREAD, after=sequence_of(second.offset), limit=10)
    assert [r.sequence for r in rest] == [3, 4, 5]


def test_thread_without_a_log_is_told(world: World):
    """Every read and write of an unmaterialised Thread says so (LOG-012)."""
    batch = world.batch("b1", ("r1", note()))
    for operation in (
        lambda: world.store.records("nobody", after=0, limit=1),
        lambda: world.store.tail("nobody"),
        lambda: world.store.append_at("nobody", batch, Tail(0, digests.EMPTY_TAIL), 0),
    ):
        with pytest.raises(ThreadNotMaterialized) as missing:
            operation()
        assert missing.value.thread_id == "nobody"


def test_batch_of_257_records_is_refused(world: World, claim: Claim):
    """A batch holds at most 256 records, also one that skipped validation (LOG-017)."""
    records = tuple(Record(record_id=f"r{n}", created_at=1, payload=note()) for n in range(257))
    with pytest.raises(ValueError, match="256"):
        Batch(batch_id="b1", records=records)
    with pytest.raises(InvalidInput) as refused:
        world.store.append(claim, Batch.model_construct(batch_id="b1", records=records), now=world.now)
    assert (refused.value.actual, refused.value.maximum) == (257, 256)
    assert world.append(claim, *((r.record_id, r.payload) for r in records[:256]), batch_id="b2").tail.sequence == 259


@pytest.mark.parametrize("limit", [0, 1_025])
def test_page_bounds(world: World, claim: Claim, limit: int):
    """A page has 1..1024 records (LOG-018)."""
    with pytest.raises(InvalidInput):
        world.store.records(claim.thread_id, after=0, limit=limit)


def test_record_over_four_mebibytes_is_refused(world: World, claim: Claim):
    """One record's payload is bounded; nothing of the batch is stored."""
    run = ids.run_id(claim.submission_id)
    big = response(run, 1).model_copy(update={"messages": [{"text": "x" * (4 * 1_048_576)}]})
    with pytest.raises(InvalidInput) as refused:
        world.append(claim, ("r1", note()), ("r2", big), batch_id="b1")
    assert refused.value.limit == "bytes"
    assert world.store.tail(THREAD) == claim.tail


def test_nan_in_a_payload_is_refused(world: World, claim: Claim):
    """What has no canonical form is not persisted, wherever it hides (LIM-010)."""
    run = ids.run_id(claim.submission_id)
    bad = response(run, 1).model_copy(update={"messages": [{"cost": float("nan")}]})
    with pytest.raises(InvalidInput):
        world.append(claim, ("r1", bad), batch_id="b1")


def test_input_at_the_bounds_becomes_a_record(world: World):
    """The deepest and largest input that is admitted also fits its record (LIM-008)."""
    deep: object = "x"
    for _ in range(64):
        deep = [deep]
    big = "x" * (1_048_576 - 2)
    for key, value in (("k1", deep), ("k2", big)):
        world.submit(key, value)
        claim = world.begin(attempt=key)
        assert claim.input == value
        world.finish(claim)


@pytest.mark.parametrize(
    ("damage", "decoder"),
    [
        ("body = '{\"kind\":'", "json"),
        ("body = '[]'", "record"),
        ("kind = 'RunStarted'", "record"),
        ("schema_version = 2", "record"),
    ],
)
def test_damaged_row_is_told_and_left_alone(world: World, claim: Claim, damage: str, decoder: str):
    """A row that cannot be decoded fails clearly, names its place, and hides no other Thread."""
    world.append(claim, ("r1", note()), batch_id="b1")
    world.submit("k1", thread="thread-2")
    world.store._database.write(lambda tx: tx.run(f"UPDATE records SET {damage} WHERE record_id = 'r1'", {}))
    for _ in range(2):
        with pytest.raises(CorruptRecord) as corrupt:
            world.store.records(THREAD, after=0, limit=100)
        assert (corrupt.value.thread_id, corrupt.value.sequence, corrupt.value.decoder) == (THREAD, 4, decoder)
    with pytest.raises(CorruptRecord):
        world.store.run_records(claim.submission_id)
    assert len(world.store.records(THREAD, after=0, limit=3)) == 3
    assert kinds(world, "thread-2") == ["ThreadCreated"]


def test_damaged_input_does_not_hide_its_row(world: World):
    """Control data never decodes a payload (LED-035)."""
    receipt = world.submit("k1")
    world.store._database.write(lambda tx: tx.run("UPDATE submissions SET input = '{'", {}))
    assert world.store.view(THREAD).head.submission_id == receipt.submission_id
    with pytest.raises(CorruptRecord):
        world.try_begin()
    assert world.store.snapshot(receipt.submission_id).ownership is None


def test_bodies_are_plain_canonical_text(world: World, claim: Claim):
    """What stands in the column is the text its digest was taken of."""
    world.append(claim, ("r1", note("ü")), batch_id="b1")
    (body,) = world.store._database.read(lambda tx: tx.one("SELECT body FROM records WHERE record_id = 'r1'", {}))
    assert body == '{"details":{},"kind":"RepairAnnotated","reason":"ü"}'
    assert json.loads(body) == world.store.records(THREAD, after=3, limit=1)[0].payload


def test_input_is_stored_once(world: World):
    """The ledger gives up its copy when the log has one."""
    receipt = world.submit("k1")
    sql = "SELECT input FROM submissions WHERE submission_id = :sid"
    read = lambda: world.store._database.read(lambda tx: tx.one(sql, {"sid": receipt.submission_id}))[0]  # noqa: E731
    assert read() == '"hello"'
    world.begin()
    assert read() is None
    assert world.one(submit("k1")).receipt.replayed
