"""What recovery reads, and the single steps it takes: repeatable, decided by evidence, blind to clocks."""

import pytest

from tests.contract.world import THREAD, World, call, kinds, state
from thread_objects.contract.states import Outcome
from thread_objects.core.faults import RecoveryFailure
from thread_objects.errors import CorruptRecord, NotFound


def test_fresh_rows_do_not_appear(world: World):
    """Ready, never claimed and not aborted: recovery has nothing to say."""
    world.submit("k1")
    world.submit("k2")
    assert world.store.recovery_page(THREAD, after=0, limit=10) == []
    claim = world.begin()
    (only,) = world.store.recovery_page(THREAD, after=0, limit=10)
    assert only == world.store.snapshot(claim.submission_id)


def test_page_is_ordered_bounded_and_without_settled_rows(world: World):
    """Nonterminal rows past the cursor in queue order; settled rows never (LED-034)."""
    world.run_through("k0")
    lost = []
    for key in ("k1", "k2", "k3"):
        lost.append(world.submit(key))
        claim = world.respond(world.begin(attempt=key), calls=[call("c1")])
        world.lose(claim, "c1")
    page = world.store.recovery_page(THREAD, after=0, limit=2)
    assert [row.submission_id for row in page] == [receipt.submission_id for receipt in lost[:2]]
    rest = world.store.recovery_page(THREAD, after=page[-1].queue_sequence, limit=2)
    assert [row.submission_id for row in rest] == [lost[2].submission_id]
    assert world.store.recovery_page("nobody", after=0, limit=2) == []


def test_queued_row_with_an_abort_appears(world: World):
    """An intent on released ready work is recovery's business."""
    receipt = world.submit("k1")
    claim = world.claim()
    assert claim is not None
    world.abort(receipt.submission_id)
    world.store.release(claim, now=world.now)
    (row,) = world.store.recovery_page(THREAD, after=0, limit=10)
    assert row.abort_intent is not None
    assert (row.abort_intent.author, row.abort_intent.reason) == ("ann", "enough")


def test_snapshot_of_nobody_is_none(world: World):
    """An unknown id has no snapshot."""
    assert world.store.snapshot("sub-nobody") is None


def test_run_records_are_those_of_the_submission(world: World):
    """The evidence of one Run, in order, and nothing of its neighbours."""
    world.submit("k1")
    claim = world.respond(world.begin(), calls=[call("c1")])
    claim = world.result(claim, "c1")
    world.abort(world.submit("k2").submission_id)
    world.finish(claim)
    world.run_through("k3")
    records = world.store.run_records(claim.submission_id)
    assert [record.kind for record in records] == [
        "UserInputRecorded",
        "RunStarted",
        "ModelResponseRecorded",
        "ToolCallSettled",
        "RunCompleted",
        "SubmissionSettled",
    ]
    assert [record.sequence for record in records] == sorted(record.sequence for record in records)
    assert world.store.run_records("sub-nobody") == []


def test_admitted_row_becomes_ready_once(world: World):
    """Readiness keeps its first time; a later state is left alone (LED-010, LED-011)."""
    receipt = world.submit("k1")
    sid = receipt.submission_id
    world.store._database.write(
        lambda tx: tx.run(
            "UPDATE submissions SET state = 'admitted', ready_at = NULL WHERE submission_id = :sid", {"sid": sid}
        )
    )
    ready_at = "SELECT ready_at FROM submissions WHERE submission_id = :sid"
    for now in (77, 99):
        world.store.materialize_and_ready(sid, deployment_id="", now=now)
        assert world.store._database.read(lambda tx: tx.one(ready_at, {"sid": sid})) == (77,)
    claim = world.begin()
    world.store.materialize_and_ready(sid, deployment_id="", now=111)
    assert state(world, sid) == "input-applied"
    assert claim.tail == world.store.tail(THREAD)
    assert kinds(world).count("ThreadCreated") == 1
    with pytest.raises(NotFound):
        world.store.materialize_and_ready("sub-nobody", deployment_id="", now=1)


def test_admitted_head_is_materialized_before_it_runs(world: World):
    """A plain claim may have an admitted head, a beginning Attempt not: its Thread is not there yet."""
    receipt = world.submit("k1")
    world.store._database.write(lambda tx: tx.run("UPDATE submissions SET state = 'admitted'", {}))
    assert world.try_begin() is None
    claim = world.claim()
    assert claim is not None
    assert (claim.submission_id, claim.state) == (receipt.submission_id, "admitted")
    assert world.finish(claim, Outcome.ABORTED).outcome is Outcome.ABORTED


def test_unreadable_suspension_is_corrupt(world: World):
    """A damaged control column fails its own Thread clearly."""
    world.submit("k1")
    claim = world.respond(world.begin(), calls=[call("c1")])
    world.suspend(claim, "c1")
    world.store._database.write(lambda tx: tx.run("UPDATE submissions SET suspension_calls = '{'", {}))
    with pytest.raises(CorruptRecord) as corrupt:
        world.store.recovery_page(THREAD, after=0, limit=10)
    assert corrupt.value.thread_id == THREAD
    assert world.store.survey(THREAD).threads[0].nonterminal == 1


# --- faults ------------------------------------------------------------------------------------------------------

FAILURE = RecoveryFailure(
    phase="history", reason="failure", error_tag="CorruptRecord", operation="read history", causes=("CorruptRecord",)
)


def test_fault_backs_off_and_keeps_its_first_time(world: World):
    """5, 10, 20, 40, 60, 60 seconds after each failure; one record per Thread."""
    world.submit("k1")
    delays = []
    for number in range(1, 7):
        world.now += 1_000
        fault = world.store.record_fault(THREAD, FAILURE, now=world.now).fault
        assert (fault.attempts, fault.first_failed_at, fault.last_failed_at) == (number, 1_001_000, world.now)
        delays.append(fault.retry_at - world.now)
        assert world.store.fault(THREAD) == fault
    assert delays == [5_000, 10_000, 20_000, 40_000, 60_000, 60_000]
    assert world.store.fault(THREAD).causes == ("CorruptRecord",)


def test_fault_is_seen_in_views_until_it_is_cleared(world: World):
    """New admissions neither erase nor shorten it."""
    world.submit("k1")
    fault = world.store.record_fault(THREAD, FAILURE, now=world.now).fault
    world.submit("k2")
    world.submit("k1", thread="thread-2")
    assert world.store.view(THREAD).fault_retry_at == fault.retry_at
    assert world.store.survey(THREAD).threads[0].fault_retry_at == fault.retry_at
    assert world.store.view("thread-2").fault_retry_at is None
    assert world.store.clear_fault(THREAD, now=world.now).fault == fault
    assert world.store.clear_fault(THREAD, now=world.now).fault is None
    assert world.store.fault(THREAD) is None
    assert world.store.view(THREAD).fault_retry_at is None


def test_fault_needs_its_thread(world: World):
    """A Thread that does not exist has no fault to keep."""
    with pytest.raises(NotFound):
        world.store.record_fault("nobody", FAILURE, now=1)
    assert world.store.fault("nobody") is None
