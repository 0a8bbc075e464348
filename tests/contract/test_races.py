"""Two at once: real threads, and real processes, on one database. Whoever wins, the rules hold."""

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from storage import StoreLimits, lanes, open_store
from tests.contract.world import THREAD, World, kinds, state, submit
from tests.postgres_server import PostgresServer
from thread_objects.contract import ids
from thread_objects.contract.messages import ParentLink, ResolveApproval
from thread_objects.contract.records import RepairAnnotated, SubagentLineageRecorded
from thread_objects.contract.states import Decision, Outcome
from thread_objects.errors import AppendConflict, OwnershipLost, SettlementConflict, StoreUnavailable, ThreadError

ROOT = Path(__file__).parents[2]


def together(*jobs: Callable[[], Any]) -> list[Any]:
    """Run jobs at once on threads of their own; their results or typed errors, in order."""
    barrier = threading.Barrier(len(jobs))
    outcomes: list[Any] = [None] * len(jobs)

    def run(index: int, job: Callable[[], Any]) -> None:
        barrier.wait(10)
        try:
            outcomes[index] = job()
        except ThreadError as error:
            outcomes[index] = error

    threads = [threading.Thread(target=run, args=(index, job)) for index, job in enumerate(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    return outcomes


@pytest.fixture
def other(open_world: Callable[..., World], world: World) -> World:
    """A second store on the same database, as another process would have it."""
    return open_world()


@pytest.mark.parametrize("known_thread", [False, True])
def test_identical_admissions_at_once_are_one_submission(world: World, other: World, known_thread: bool):
    """One row, one receipt, and exactly one answer that says it is new (LED-008)."""
    for round_number in range(8):
        thread = THREAD if known_thread else f"thread-{round_number}"
        key = f"k{round_number}"
        if known_thread:
            world.submit("first", thread=thread)
        wanted = submit(key, thread=thread)
        answers = together(*(lambda w=w, s=wanted: w.one(s) for w in (world, other, world, other)))
        receipts = [answer.receipt for answer in answers]
        assert len({(receipt.submission_id, receipt.queue_sequence) for receipt in receipts}) == 1
        assert sorted(receipt.replayed for receipt in receipts) == [False, True, True, True]
        assert sorted(answer.progress for answer in answers) == [False, False, False, True]


def test_admissions_at_once_get_sequences_without_gaps(world: World, other: World):
    """Queue sequences are allocated once each, increasing."""
    answers = together(*(lambda n=n, w=w: w.one(submit(f"k{n}-{id(w)}")) for n in range(4) for w in (world, other)))
    assert sorted(answer.receipt.queue_sequence for answer in answers) == list(range(1, 9))
    assert kinds(world) == ["ThreadCreated"]


def test_claims_at_once_grant_one(world: World, other: World):
    """A Thread has one owner."""
    for number in range(8):
        world.submit("k1", thread=f"t{number}")
        claims = together(
            *(
                lambda w=w, a=a, t=f"t{number}": w.try_begin(thread=t, attempt=a)
                for w, a in ((world, "a1"), (other, "a2"), (world, "a3"), (other, "a4"))
            )
        )
        granted = [claim for claim in claims if claim is not None]
        assert len(granted) == 1
        assert kinds(world, f"t{number}") == ["ThreadCreated", "UserInputRecorded", "RunStarted"]


def test_append_and_queued_abort_at_once_both_land(world: World, other: World):
    """Two writers of one epoch: the owner's append goes behind the abort, or before it, and neither is lost."""
    world.submit("k0")
    claim = world.begin()
    for number in range(10):
        queued = world.submit(f"k{number + 1}")
        batch = world.batch(f"b{number}", (f"r{number}", RepairAnnotated(reason="note")))
        tail, answer = together(
            lambda claim=claim, batch=batch: world.store.append(claim, batch, now=world.now),
            lambda sid=queued.submission_id: other.abort(sid),
        )
        assert answer.abort.settled
        claim = claim.at(tail)
    records = world.store.records(THREAD, after=0, limit=1_024)
    assert [record.sequence for record in records] == list(range(1, len(records) + 1))
    assert [record.kind for record in records].count("RepairAnnotated") == 10
    assert [record.kind for record in records].count("SubmissionSettled") == 10
    world.finish(claim)


def test_same_batch_at_once_is_stored_once(world: World, other: World):
    """A repeated append that meets itself answers the same tail."""
    world.submit("k1")
    claim = world.begin()
    for number in range(8):
        batch = world.batch(f"b{number}", (f"r{number}", RepairAnnotated(reason="note")))
        tails = together(*(lambda w=w, c=claim, b=batch: w.store.append(c, b, now=w.now) for w in (world, other)))
        assert tails[0] == tails[1]
        claim = claim.at(tails[0])
    assert kinds(world).count("RepairAnnotated") == 8


def test_settlements_at_once_have_one_winner(world: World, other: World):
    """The first outcome stands; the loser is told which."""
    for number in range(8):
        world.submit("k1", thread=f"t{number}")
        claim = world.begin(thread=f"t{number}")
        outcomes = together(
            lambda claim=claim: world.finish(claim, Outcome.COMPLETED),
            lambda claim=claim: other.finish(claim, Outcome.FAILED),
        )
        won = [outcome for outcome in outcomes if not isinstance(outcome, ThreadError)]
        (lost,) = [outcome for outcome in outcomes if isinstance(outcome, ThreadError)]
        assert isinstance(lost, SettlementConflict)
        assert lost.existing_outcome == won[0].outcome
        assert kinds(world, f"t{number}").count("SubmissionSettled") == 1


def test_superseding_claim_and_append_at_once(world: World, other: World):
    """Either the append came first, or it is refused: never both owners at one epoch."""
    for number in range(8):
        thread = f"t{number}"
        world.submit("k1", thread=thread)
        claim = world.begin(thread=thread, attempt="a1")
        batch = world.batch("b1", ("r1", RepairAnnotated(reason="note")))
        appended, taken = together(
            lambda claim=claim, batch=batch: world.store.append(claim, batch, now=world.now),
            lambda thread=thread: other.claim(thread=thread, attempt="a2", ended=["a1"]),
        )
        assert taken.epoch == claim.epoch + 1
        if isinstance(appended, ThreadError):
            assert type(appended).__name__ in {"FenceRejected", "OwnershipLost"}
            assert "RepairAnnotated" not in kinds(world, thread)
        assert taken.tail == world.store.tail(thread)


def test_decision_and_suspension_at_once_never_sleep(world: World, other: World):
    """A decision is seen by the suspend, or it wakes the row: no order leaves it waiting (APP-007)."""
    for number in range(8):
        thread = f"t{number}"
        receipt = world.submit("k1", thread=thread)
        claim = world.begin(thread=thread)
        claim = claim.at(world.store.append(claim, world.approval_request(claim, "c1"), now=world.now))
        decide = _decide(thread, receipt.submission_id)
        (suspended, _, _), answer = together(
            lambda claim=claim: world.store.suspend(claim, None, ["c1"], now=world.now),
            lambda decide=decide: other.one(decide),
        )
        assert answer.approval.decision is Decision.APPROVED
        assert world.store.snapshot(receipt.submission_id).state == "input-applied"
        if suspended:
            with pytest.raises(OwnershipLost):
                world.store.renew(claim, now=world.now)


def _decide(thread: str, sid: str) -> ResolveApproval:
    return ResolveApproval(
        thread_id=thread, submission_id=sid, tool_call_id="c1", decision=Decision.APPROVED, resolver="ann"
    )


def test_different_batches_with_one_record_id_at_once(world: World, other: World):
    """One of two batches that name the same record wins; the other conflicts and leaves nothing."""
    world.submit("k1")
    claim = world.begin()
    note = ("r1", RepairAnnotated(reason="note"))
    outcomes = together(
        lambda: world.store.append(claim, world.batch("b1", note), now=world.now),
        lambda: other.store.append(claim, world.batch("b2", note), now=world.now),
    )
    (lost,) = [outcome for outcome in outcomes if isinstance(outcome, ThreadError)]
    assert isinstance(lost, AppendConflict)
    assert lost.conflict == "record-identity"


def test_join_and_abort_at_once_leave_one_owner(world: World, other: World):
    """Queued input joins, or is settled aborted, never both; a joined one is not settled by an abort."""
    for number in range(8):
        thread = f"t{number}"
        world.submit("host", thread=thread)
        host = world.respond(world.begin(thread=thread))
        queued = world.submit("k1", thread=thread)
        taken, answer = together(
            lambda host=host: world.store.claim_joining(host, 1, now=world.now),
            lambda sid=queued.submission_id, thread=thread: other.abort(sid, thread=thread),
        )
        found = state(world, queued.submission_id)
        assert (found, bool(taken), answer.abort.settled) in {("joining", True, False), ("settled", False, True)}
        if taken:
            assert world.store.revert_joining(queued.submission_id, host.submission_id, token=host.token, now=world.now)
            assert world.store.publish_queued_abort(queued.submission_id, now=world.now).outcome is Outcome.ABORTED
        assert kinds(world, thread).count("SubmissionSettled") == 1


def test_joins_at_once_take_a_row_once(world: World, other: World):
    """Two seams of one host never take the same input."""
    world.submit("host")
    host = world.respond(world.begin())
    for number in range(8):
        world.submit(f"k{number}")
        taken = together(*(lambda w=w: w.store.claim_joining(host, 1, now=w.now) for w in (world, other)))
        assert sorted(map(len, taken)) == [0, 1]


def test_join_and_superseding_claim_at_once(world: World, other: World):
    """A host that was superseded takes nothing; one that took it first leaves a row that recovery can judge."""
    for number in range(8):
        thread = f"t{number}"
        world.submit("host", thread=thread)
        host = world.respond(world.begin(thread=thread, attempt="a1"))
        queued = world.submit("k1", thread=thread)
        taken, owner = together(
            lambda host=host: world.store.claim_joining(host, 1, now=world.now),
            lambda thread=thread: other.claim(thread=thread, attempt="a2", ended=["a1"]),
        )
        assert owner.submission_id == host.submission_id
        lost = isinstance(taken, OwnershipLost)
        assert state(world, queued.submission_id) == ("ready" if lost else "joining")


def test_settlement_and_abort_at_once_agree(world: World, other: World):
    """The settlement wins, or the intent is stored before it; never an abort answer beside a missing intent."""
    for number in range(8):
        thread = f"t{number}"
        receipt = world.submit("k1", thread=thread)
        claim = world.begin(thread=thread)
        settled, answer = together(
            lambda claim=claim: world.finish(claim),
            lambda sid=receipt.submission_id, thread=thread: other.abort(sid, thread=thread),
        )
        assert settled.outcome is Outcome.COMPLETED
        if answer.refusal is not None:
            assert answer.refusal.code == "SettlementConflict"
            assert world.store.abort_intent(receipt.submission_id) is None
        else:
            assert world.store.abort_intent(receipt.submission_id).author == "ann"
        assert kinds(world, thread).count("SubmissionSettled") == 1


def test_settling_children_at_once_wake_their_parent(world: World, other: World):
    """Two last children settle together while the parent goes to sleep: no order leaves it asleep."""
    for number in range(6):
        thread = f"t{number}"
        world.submit("parent", thread=thread)
        claim = world.begin(thread=thread)
        links = [ParentLink(submission_id=claim.submission_id, tool_call_id=call) for call in ("c1", "c2")]
        running = []
        for link in links:
            home = f"{thread}-{link.tool_call_id}"
            receipt = world.store.admit(submit("k", thread=home, parent=link), home, deployment_id="", now=world.now)
            record_id = ids.subagent_lineage_record(home)
            lineage = SubagentLineageRecorded(
                parent_link=link, parent_submission_id=claim.submission_id, child_input_digest="", grant_digest=""
            )
            world.store.record_lineage(
                receipt.submission_id, world.batch(record_id, (record_id, lineage)), now=world.now
            )
            running.append(world.begin(thread=home, attempt=home))
        children = [child.submission_id for child in running]
        suspended, *_ = together(
            lambda claim=claim, children=children: world.store.suspend_for_children(
                claim, None, children, now=world.now
            ),
            lambda child=running[0]: world.finish(child),
            lambda child=running[1]: other.finish(child),
        )
        assert isinstance(suspended, tuple)
        assert state(world, claim.submission_id) == "input-applied"


def test_reservations_at_once_hold_budget_once(world: World, other: World):
    """One call, two reservations: one stands, the other is told which."""
    for number in range(6):
        world.submit("parent", thread=f"t{number}")
        claim = world.begin(thread=f"t{number}")
        made = together(
            lambda claim=claim, n=number: world.store.reserve_child(claim, f"r{n}a", "c1", 1, now=world.now),
            lambda claim=claim, n=number: other.store.reserve_child(claim, f"r{n}b", "c1", 1, now=world.now),
        )
        lost = [answer for answer in made if isinstance(answer, ThreadError)]
        assert [type(error).__name__ for error in lost] == ["ChildReservationConflict"]
        assert len(world.store.snapshot(claim.submission_id).child_reservations) == 1


def test_group_at_once_admits_one(world: World, other: World):
    """Two Submissions of a group on a Thread that nobody knows yet: one is admitted, one told that it is occupied."""
    for number in range(6):
        answers = together(
            *(
                lambda w=w, key=key, n=number: w.one(submit(key, thread=f"t{n}", group="g"))
                for w, key in ((world, "k1"), (other, "k2"))
            )
        )
        refused = [answer.refusal for answer in answers if answer.refusal is not None]
        assert [refusal.fields["reason"] for refusal in refused] == ["occupied"]
        assert world.store.view(f"t{number}").nonterminal == 1


def test_new_deployments_at_once_are_numbered_apart(world: World, other: World):
    """Two first workers of two keys never share a number."""
    numbers = together(
        *(lambda n=n, w=w: w.store.deployment_order(f"key-{n}", now=1) for n in range(4) for w in (world, other))
    )
    assert numbers[0::2] == numbers[1::2]
    assert sorted(numbers[0::2]) == [1, 2, 3, 4]


def test_many_threads_on_a_small_pool_all_finish(open_world: Callable[..., World], database_url: str):
    """F22: a pool of two serves fifty callers: they queue, nobody starves, nobody waits for one who waits."""
    store = open_store(database_url, limits=StoreLimits(), synchronous="OFF", pool_size=2)
    world = World(store, database_url)

    def job(number: int) -> Outcome:
        world_of_mine = World(store, database_url, arrivals=number * 1_000)
        world_of_mine.submit("k1", thread=f"t{number}")
        return world_of_mine.finish(world_of_mine.begin(thread=f"t{number}")).outcome

    outcomes = together(*(lambda n=n: job(n) for n in range(50)))
    assert outcomes == [Outcome.COMPLETED] * 50
    assert world.store.survey("t1").threads == ()
    store.close()


def test_eight_processes_open_a_fresh_database_and_write(database_url: str):
    """F22: eight processes meet on a database that is not there yet and make two hundred writes each: no error.

    The symptom elsewhere is "database is locked" on the first open.
    """
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.contract.process", database_url, f"p{number}", "200"],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(8)
    ]
    failures = []
    for process in processes:
        try:
            _, errors = process.communicate(timeout=120)
        finally:
            process.kill()
        if process.returncode:
            failures.append(errors[-2_000:])
    assert failures == []
    store = open_store(database_url, limits=StoreLimits())
    view = store.view("shared")
    records = store.records("thread-p0", after=0, limit=1_024)
    store.close()
    assert view.nonterminal == 8 * 50
    assert [record.kind for record in records].count("SubmissionSettled") == 50


def test_locked_database_is_unavailable_after_a_bounded_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A writer that never ends makes others fail typed and retryable, not hang; afterwards all is well."""
    monkeypatch.setattr("storage.sqlite.LOCK_WAIT_MS", 50)
    store = open_store(f"sqlite:///{tmp_path / 'threads.db'}", limits=StoreLimits())
    world = World(store, "")
    holder = sqlite3.connect(tmp_path / "threads.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable) as refused:
        world.submit("k1")
    assert refused.value.retryable
    assert world.store.view(THREAD).nonterminal == 0
    holder.execute("ROLLBACK")
    holder.close()
    assert world.submit("k1").queue_sequence == 1
    store.close()


def test_deadlock_is_broken_and_the_loser_runs_again(postgres: PostgresServer):
    """Two units that lock two Threads in opposite order: the server ends one, which is run again and succeeds."""
    url = postgres.url()
    store = open_store(url, limits=StoreLimits(), pool_size=4)
    world = World(store, url)
    for thread in ("t1", "t2"):
        world.submit("k", thread=thread)
    meeting = threading.Barrier(2)
    runs: list[str] = []

    def unit(first: str, second: str) -> None:
        met: list[bool] = []

        def work(tx: Any) -> None:
            runs.append(first)
            lanes.locked(tx, first)
            if not met:
                met.append(True)
                meeting.wait(10)
            lanes.locked(tx, second)

        store._database.write(work)

    outcomes = together(lambda: unit("t1", "t2"), lambda: unit("t2", "t1"))
    store.close()
    postgres.drop(url)
    assert outcomes == [None, None]
    assert len(runs) == 3
