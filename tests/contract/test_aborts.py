"""Aborts: the first intent stays, queued work settles with it, everything else learns of it and is settled later."""

import pytest

from tests.contract.world import THREAD, World, call, kinds, settled, state, submit
from thread_objects.contract.messages import Abort
from thread_objects.contract.states import Outcome
from thread_objects.core import batches


def test_queued_work_settles_aborted_at_once(world: World):
    """Work behind a running one that never ran settles in the transaction of its abort, out of order (ABT-001)."""
    world.submit("k1")
    running = world.begin()
    queued = world.submit("k2")
    answer = world.abort(queued.submission_id)
    assert (answer.abort.settled, answer.progress, answer.cancel_submission) == (True, True, None)
    assert state(world, queued.submission_id) == "settled"
    assert kinds(world)[-2:] == ["AbortRequested", "SubmissionSettled"]
    records = world.store.records(THREAD, after=0, limit=100)
    assert records[-1].batch_id != records[-2].batch_id
    assert "runId" not in {k for k, v in records[-1].payload.items() if v is not None}
    assert world.finish(running).outcome is Outcome.COMPLETED


def test_queued_abort_leaves_the_others_in_order(world: World):
    """An aborted row in the middle is simply gone from the lane."""
    first, middle, last = (world.submit(key) for key in ("k1", "k2", "k3"))
    world.abort(middle.submission_id)
    served = []
    for attempt in ("a1", "a2"):
        claim = world.begin(attempt=attempt)
        served.append(claim.submission_id)
        world.finish(claim)
    assert served == [first.submission_id, last.submission_id]
    assert world.claim() is None


def test_owned_work_only_learns_of_the_intent(world: World):
    """A running Submission keeps its claim; its Attempt is to be told to look (ABT-002)."""
    receipt = world.submit("k1")
    claim = world.begin()
    assert world.store.abort_intent(receipt.submission_id) is None
    answer = world.abort(receipt.submission_id)
    assert (answer.abort.settled, answer.progress, answer.cancel_submission) == (False, True, receipt.submission_id)
    intent = world.store.abort_intent(receipt.submission_id)
    assert intent is not None
    assert (intent.author, intent.reason, intent.requested_at) == ("ann", "enough", world.now)
    assert "AbortRequested" not in kinds(world)
    assert world.store.renew(claim, now=world.now).token == claim.token


def test_first_intent_wins(world: World):
    """A repeated abort returns the first author and time and makes no progress."""
    receipt = world.submit("k1")
    world.begin()
    first = world.abort(receipt.submission_id).abort
    world.now += 100
    again = world.abort(receipt.submission_id, author="bob", reason="other")
    assert again.abort == first.model_copy(update={"replayed": True})
    assert (again.progress, again.cancel_submission) == (False, None)


def test_settled_work_refuses_an_abort(world: World):
    """The outcome that stands is named (ABT-004)."""
    receipt = world.run_through("k1")
    refusal = world.abort(receipt.submission_id).refusal
    assert (refusal.code, refusal.fields["existing_outcome"]) == ("SettlementConflict", "completed")


def test_canonical_settlement_beats_an_abort(world: World):
    """A settlement that is committed wins even before its row is finalized (ABT-008)."""
    receipt = world.submit("k1")
    claim = world.begin()
    settlement = batches.settlement(settled(claim), deployment_id="", now=world.now)
    world.store.append(claim, settlement, now=world.now)
    refusal = world.abort(receipt.submission_id).refusal
    assert (refusal.code, refusal.fields["existing_outcome"]) == ("SettlementConflict", "completed")
    assert world.store.finalize(receipt.submission_id, now=world.now).outcome is Outcome.COMPLETED


def test_joined_input_belongs_to_its_host(world: World):
    """Joined work is not aborted by itself (ABT-005)."""
    host, joined = world.submit("k1"), world.submit("k2")
    world.store._database.write(
        lambda tx: tx.run(
            "UPDATE submissions SET state = 'joined', host_submission_id = :host WHERE submission_id = :sid",
            {"host": host.submission_id, "sid": joined.submission_id},
        )
    )
    refusal = world.abort(joined.submission_id).refusal
    assert (refusal.code, refusal.fields["host_submission_id"]) == ("JoinedToHost", host.submission_id)
    assert world.store.abort_intent(joined.submission_id) is None


def test_suspended_and_unknown_work_keeps_its_state(world: World):
    """The intent is stored and makes progress; recovery closes what is open first (ABT-007)."""
    waiting = world.submit("k1")
    assert world.suspend(world.respond(world.begin(), calls=[call("c1")]), "c1")
    answer = world.abort(waiting.submission_id)
    assert (answer.abort.settled, answer.progress, answer.cancel_submission) == (False, True, None)
    assert state(world, waiting.submission_id) == "suspended"
    world.store.deny_pending_approvals(waiting.submission_id, resolver="recovery", reason="aborted", now=world.now)
    assert state(world, waiting.submission_id) == "input-applied"
    claim = world.begin(attempt="attempt-2")
    assert claim.abort is not None
    world.lose(world.respond(claim, turn=2, calls=[call("c2")]), "c2", turn=2)
    assert state(world, waiting.submission_id) == "unknown"


def test_claimed_and_released_ready_work_is_left_to_recovery(world: World):
    """Only never claimed work settles in the abort's own transaction; recovery publishes the rest."""
    receipt = world.submit("k1")
    claim = world.claim()
    assert claim is not None
    world.store.release(claim, now=world.now)
    assert not world.abort(receipt.submission_id).abort.settled
    settlement = world.store.publish_queued_abort(receipt.submission_id, now=world.now)
    assert settlement is not None
    assert settlement.outcome is Outcome.ABORTED
    assert kinds(world)[-2:] == ["AbortRequested", "SubmissionSettled"]


def test_queued_abort_needs_an_intent_and_no_owner(world: World):
    """Without intent, owned, or beyond ready, nothing is published (LED-054)."""
    receipt = world.submit("k1")
    assert world.store.publish_queued_abort(receipt.submission_id, now=world.now) is None
    claim = world.claim()
    assert claim is not None
    world.abort(receipt.submission_id)
    assert world.store.publish_queued_abort(receipt.submission_id, now=world.now) is None
    world.store.release(claim, now=world.now)
    world.begin(attempt="attempt-2")
    assert world.store.publish_queued_abort(receipt.submission_id, now=world.now) is None
    assert "SubmissionSettled" not in kinds(world)


def test_same_batch_answers_as_the_first_time(world: World):
    """Met again, the batch repeats its answers though the row has moved on."""
    queued = world.submit("k1", thread="thread-2")
    running = world.one(submit("k2"), object_id="thread-2").receipt
    claim = world.begin()
    request = world.request(
        Abort(thread_id="thread-2", submission_id=queued.submission_id, author="a", reason=""),
        Abort(thread_id=THREAD, submission_id=running.submission_id, author="a", reason=""),
        object_id="thread-2",
    )
    first = world.send(request)
    assert [a.progress for a in first.answers] == [True, True]
    assert [a.abort.settled for a in first.answers] == [True, False]
    world.now += 5
    assert world.send(request).answers == first.answers
    world.finish(claim, Outcome.ABORTED)
    settled_since = world.send(request).answers
    assert [a.abort for a in settled_since] == [a.abort for a in first.answers]
    assert [a.progress for a in settled_since] == [True, True]


def test_unknown_submission_is_not_found(world: World):
    """An abort names a Submission of its own Thread."""
    receipt = world.submit("k1")
    world.submit("k1", thread="thread-2")
    assert world.abort("sub-nobody").refusal.code == "NotFound"
    assert world.abort(receipt.submission_id, thread="thread-2").refusal.code == "NotFound"


def test_intent_is_read_from_its_row_alone(world: World):
    """Reading one intent touches one row, whatever else the lane holds (ABT-014)."""
    receipts = [world.submit(f"k{n}") for n in range(20)]
    world.begin()
    world.abort(receipts[0].submission_id)
    assert world.store.abort_intent(receipts[0].submission_id) is not None
    assert world.store.abort_intent(receipts[1].submission_id) is None
    assert world.store.abort_intent("sub-nobody") is None


def test_empty_author_is_refused_by_the_message(world: World):
    """An abort has an author of 1..256 characters (LIM-014)."""
    for author in ("", "x" * 257):
        with pytest.raises(ValueError, match="author"):
            Abort(thread_id=THREAD, submission_id="sub-1", author=author, reason="")
