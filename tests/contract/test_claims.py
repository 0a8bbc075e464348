"""Claims: one owner, a higher epoch each time, first in first out, and stale tokens that change nothing."""

import pytest

from tests.contract.world import RUN_MS, THREAD, World, call, kinds, state
from thread_objects.contract import ids
from thread_objects.contract.records import UserInputRecorded
from thread_objects.contract.states import Outcome
from thread_objects.errors import BindingUnavailable, LedgerError, OwnershipLost
from thread_objects.ports import ClaimRequest

LEASE_MS = 30_000


def test_thread_without_rows_has_nothing_to_claim(world: World):
    """Neither a Thread that never was nor one whose work is settled grants a claim (LED-012)."""
    assert world.claim() is None
    world.run_through("k1")
    assert world.claim() is None


def test_begin_claims_and_makes_the_input_canonical(world: World):
    """One transaction: epoch, lease, input record, start and deadline of the Run, marker."""
    receipt = world.submit("k1", {"ask": "what"})
    claim = world.begin()
    assert (claim.submission_id, claim.receipt_id) == (receipt.submission_id, receipt.receipt_id)
    assert (claim.epoch, claim.superseded_epoch, claim.lease_until) == (1, None, world.now + LEASE_MS)
    assert (claim.state, claim.input_applied, claim.input) == ("input-applied", True, {"ask": "what"})
    assert kinds(world) == ["ThreadCreated", "UserInputRecorded", "RunStarted"]
    started = world.store.records(THREAD, after=2, limit=1)[0].payload
    assert (started["startedAt"], started["deadlineAt"]) == (world.now, world.now + RUN_MS)
    assert claim.tail == world.store.tail(THREAD)
    found = world.store.snapshot(receipt.submission_id)
    assert found is not None
    assert found.input_applied == 2


def test_begin_without_binding_claims_nothing(world: World):
    """When nobody knows the agent nothing is taken and nothing is written."""
    world.submit("k1")

    def unbound(agent_id: str) -> int:
        raise BindingUnavailable(agent_id=agent_id, reason="missing")

    with pytest.raises(BindingUnavailable):
        world.store.begin(
            ClaimRequest(THREAD, "producer-1", "attempt-1"), run_duration_ms=unbound, deployment_id="", now=world.now
        )
    assert kinds(world) == ["ThreadCreated"]
    assert world.begin().epoch == 1


def test_begin_of_a_begun_run_keeps_its_deadline(world: World):
    """A later Attempt claims the same Run; its input and start stand once."""
    world.submit("k1")
    first = world.begin()
    world.now = first.lease_until + 1
    second = world.begin(attempt="attempt-2")
    assert (second.epoch, second.superseded_epoch) == (2, 1)
    assert second.input == first.input
    assert kinds(world) == ["ThreadCreated", "UserInputRecorded", "RunStarted"]


@pytest.mark.parametrize("producer", ["producer-1", "producer-2"], ids=["same", "other"])
def test_live_lease_blocks_every_claim(world: World, producer: str):
    """A live lease counts whoever asks, also its own producer (LED-014, LED-015)."""
    world.submit("k1")
    world.begin()
    assert world.claim(producer=producer, attempt="attempt-2") is None
    assert world.try_begin(producer=producer, attempt="attempt-2") is None


@pytest.mark.parametrize(("later", "granted"), [(29_999, False), (30_000, True), (30_001, True)])
def test_lease_ends_after_thirty_seconds(world: World, later: int, granted: bool):
    """An expired lease makes the head claimable: new attempt, new token, next epoch (LED-017, LED-018)."""
    world.submit("k1")
    first = world.begin()
    world.now += later
    second = world.claim(attempt="attempt-2")
    assert (second is not None) == granted
    if second is not None:
        assert (second.attempt_id, second.epoch) == ("attempt-2", first.epoch + 1)
        assert second.token != first.token


def test_ended_attempt_is_superseded_at_once(world: World):
    """A claim that names the attempt whose activity ended takes its live lease; the old token is lost (LED-060)."""
    world.submit("k1")
    first = world.begin(attempt="a1")
    assert world.claim(attempt="a2", ended=["another"]) is None
    second = world.claim(attempt="a2", ended=["another", "a1"])
    assert second is not None
    assert (second.epoch, second.superseded_epoch) == (first.epoch + 1, first.epoch)
    with pytest.raises(OwnershipLost) as lost:
        world.store.renew(first, now=world.now)
    assert lost.value.actual_epoch == second.epoch


def test_stale_token_changes_nothing(world: World):
    """Renew, release, marker and settlement of a superseded claim are lost, and the new owner does not notice.

    LED-020, LED-021, LED-022, LED-050.
    """
    receipt = world.submit("k1")
    stale = world.claim()
    assert stale is not None
    world.now += LEASE_MS + 1
    owner = world.claim(attempt="attempt-2")
    assert owner is not None
    for refused in (
        lambda: world.store.renew(stale, now=world.now),
        lambda: world.store.release(stale, now=world.now),
        lambda: world.store.mark_input_applied(stale, now=world.now),
        lambda: world.store.suspend(stale, None, ["c1"], now=world.now),
        lambda: world.finish(stale),
    ):
        with pytest.raises(OwnershipLost) as lost:
            refused()
        assert (lost.value.submission_id, lost.value.actual_epoch) == (receipt.submission_id, owner.epoch)
    assert kinds(world) == ["ThreadCreated"]
    assert world.store.renew(owner, now=world.now + 1).lease_until == world.now + 1 + LEASE_MS


def test_released_head_is_claimable_at_once_with_a_higher_epoch(world: World):
    """Releasing ends the claim for good (LED-024, LED-025)."""
    world.submit("k1")
    first = world.begin()
    view = world.store.release(first, now=world.now)
    assert view.head is not None
    second = world.claim(attempt="attempt-2")
    assert second is not None
    assert (second.epoch, second.superseded_epoch) == (first.epoch + 1, None)
    with pytest.raises(OwnershipLost):
        world.store.renew(first, now=world.now)


def test_renewal_extends_and_never_shortens(world: World):
    """The later end stands, also after expiry while nobody has claimed."""
    world.submit("k1")
    claim = world.begin()
    renewed = world.store.renew(claim, now=world.now + 10_000)
    assert renewed.lease_until == world.now + 10_000 + LEASE_MS
    assert world.store.renew(renewed, now=world.now).lease_until == renewed.lease_until
    late = renewed.lease_until + 5
    assert world.store.renew(renewed, now=late).lease_until == late + LEASE_MS


def test_next_sequence_is_claimable_after_a_settlement(world: World):
    """Inputs are served in order (LED-027)."""
    world.submit("k1")
    second = world.submit("k2")
    world.finish(world.begin())
    assert world.begin(attempt="attempt-2").submission_id == second.submission_id


def test_unknown_head_is_stepped_over(world: World):
    """Uncertain work is parked; later input runs and the debt stays (LED-028)."""
    first = world.submit("k1")
    second = world.submit("k2")
    world.lose(world.respond(world.begin(), calls=[call("c1")]), "c1")
    claim = world.begin(attempt="attempt-2")
    assert claim.submission_id == second.submission_id
    assert state(world, first.submission_id) == "unknown"


def test_unknown_head_with_an_abort_is_granted(world: World):
    """Only an accepted abort makes uncertain work claimable, and it stays unknown meanwhile."""
    first = world.submit("k1")
    world.submit("k2")
    world.lose(world.respond(world.begin(), calls=[call("c1")]), "c1")
    world.abort(first.submission_id)
    claim = world.begin(attempt="attempt-2")
    assert (claim.submission_id, claim.state) == (first.submission_id, "unknown")
    assert claim.abort is not None


def test_suspended_head_blocks_its_lane(world: World):
    """A head that waits is neither granted nor jumped (LED-030)."""
    world.submit("k1")
    world.submit("k2")
    assert world.suspend(world.respond(world.begin()), "c1")
    assert world.try_begin(attempt="attempt-2") is None


@pytest.mark.parametrize("held", ["joining", "joined"])
def test_joining_and_joined_heads_block_their_lane(world: World, held: str):
    """Input that belongs to another Run is neither granted nor jumped (LED-031, LED-032)."""
    first = world.submit("k1")
    world.submit("k2")
    world.store._database.write(
        lambda tx: tx.run(
            "UPDATE submissions SET state = :state, host_submission_id = 'sub-host' WHERE submission_id = :sid",
            {"state": held, "sid": first.submission_id},
        )
    )
    assert world.try_begin() is None
    assert world.claim() is None


def test_claim_of_a_named_row_needs_it_to_be_the_head(world: World):
    """Recovery claims the row it speaks of, or none."""
    first = world.submit("k1")
    second = world.submit("k2")
    request = ClaimRequest(THREAD, "producer-1", "attempt-1")
    assert world.store.claim_submission(request, second.submission_id, now=world.now) is None
    claim = world.store.claim_submission(request, first.submission_id, now=world.now)
    assert claim is not None
    assert (claim.submission_id, claim.state, claim.input) == (first.submission_id, "ready", "hello")


def test_input_under_a_plain_claim_is_applied_once(world: World):
    """Appending the input and setting the marker may be repeated; the marker stays where it was."""
    receipt = world.submit("k1")
    claim = world.claim()
    assert claim is not None
    sid = receipt.submission_id
    batch = world.batch(
        ids.input_batch(sid), (ids.input_record(sid), UserInputRecorded(submission_id=sid, input=claim.input))
    )
    with pytest.raises(LedgerError):
        world.store.mark_input_applied(claim, now=world.now)
    applied = world.store.apply_input(claim, batch, now=world.now)
    again = world.store.apply_input(claim, batch, now=world.now)
    assert (applied.state, applied.input_applied) == ("input-applied", True)
    assert again.tail == applied.tail
    assert world.store.mark_input_applied(again, now=world.now).tail == applied.tail
    world.store.release(again, now=world.now)
    assert world.begin(attempt="attempt-2").input == "hello"


def test_begin_repairs_a_missing_marker(world: World):
    """An input that is canonical without its marker is not written a second time."""
    receipt = world.submit("k1")
    sid = receipt.submission_id
    claim = world.claim()
    assert claim is not None
    recorded = (ids.input_record(sid), UserInputRecorded(submission_id=sid, input="hello"))
    claim = world.append(claim, recorded, batch_id=ids.input_batch(sid))
    world.store.release(claim, now=world.now)
    again = world.begin(attempt="attempt-2")
    assert (again.state, again.input, again.tail) == ("input-applied", "hello", claim.tail)
    assert kinds(world) == ["ThreadCreated", "UserInputRecorded"]


def test_settled_work_is_never_granted(world: World):
    """No claim brings back what is settled, in whatever way it settled."""
    for key, outcome in (("k1", Outcome.COMPLETED), ("k2", Outcome.FAILED), ("k3", Outcome.ABORTED)):
        world.submit(key)
        world.finish(world.begin(attempt=f"attempt-{key}"), outcome)
    world.now += 1_000_000
    assert world.claim() is None


def test_snapshot_shows_the_owner_and_never_the_token(world: World):
    """Recovery sees attempt, producer, epoch and lease, and no token anywhere (LED-042)."""
    receipt = world.submit("k1")
    claim = world.begin()
    found = world.store.snapshot(receipt.submission_id)
    assert found is not None
    assert found.ownership is not None
    assert (found.ownership.attempt_id, found.ownership.producer_id) == ("attempt-1", "producer-1")
    assert (found.ownership.epoch, found.ownership.lease_until) == (claim.epoch, claim.lease_until)
    assert claim.token not in repr(found)
    world.store.release(claim, now=world.now)
    released = world.store.snapshot(receipt.submission_id)
    assert released is not None
    assert released.ownership is None


def test_renewal_may_rotate_the_token(world: World):
    """Only the claim that the renewal returned is good afterwards; without rotation both are the same."""
    world.submit("k1")
    claim = world.begin()
    assert world.store.renew(claim, now=world.now).token == claim.token
    rotated = world.store.renew(claim, rotate=True, now=world.now + 5)
    assert rotated.token != claim.token
    assert (rotated.epoch, rotated.lease_until) == (claim.epoch, world.now + 5 + LEASE_MS)
    for refused in (
        lambda: world.store.renew(claim, now=world.now),
        lambda: world.store.release(claim, now=world.now),
        lambda: world.finish(claim),
    ):
        with pytest.raises(OwnershipLost):
            refused()
    assert world.finish(rotated).outcome is Outcome.COMPLETED
