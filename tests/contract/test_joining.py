"""Joining: queued input that a Run takes, in order and under its live claim, and what becomes of it afterwards."""

from dataclasses import replace

import pytest

from tests.contract.world import THREAD, World, kinds, response, settled, state
from thread_objects.contract import ids
from thread_objects.contract.messages import ParentLink, Receipt, Settlement
from thread_objects.contract.records import RunCompleted
from thread_objects.contract.states import Outcome
from thread_objects.core.evidence import evidence_of
from thread_objects.core.recovery import classify
from thread_objects.core.recovery.decisions import SettleJoinedWithHost
from thread_objects.errors import AppendConflict, JoinedToHost, LedgerError, OwnershipLost
from thread_objects.ports import Claim

LEASE_MS = 30_000


def queued(world: World, count: int = 2, **said: str) -> tuple[Claim, list[Receipt]]:
    """A host with a response behind it, and input queued for it."""
    world.submit("host")
    host = world.respond(world.begin())
    return host, [world.submit(f"k{number}", f"input {number}", **said) for number in range(1, count + 1)]


def settlement(world: World, sid: str) -> Settlement:
    """A row's settlement, by its record."""
    return world.store.finalize(sid, now=world.now)


def test_contiguous_ready_rows_join_in_order(world: World):
    """The prefix behind the host becomes joining; an admitted row stops it, and what stands behind it stays.

    JOIN-001. The admitted row is a child that waits for its lineage.
    """
    host, (second, third) = queued(world)
    link = ParentLink(submission_id=host.submission_id, tool_call_id="c1")
    fourth = world.submit("k4", parent=link)
    fifth = world.submit("k5")
    taken = world.store.claim_joining(host, 10, now=world.now)
    assert [(t.submission_id, t.queue_sequence, t.input) for t in taken] == [
        (second.submission_id, 2, "input 1"),
        (third.submission_id, 3, "input 2"),
    ]
    found = [state(world, receipt.submission_id) for receipt in (second, third, fourth, fifth)]
    assert found == ["joining", "joining", "admitted", "ready"]
    assert world.store.claim_joining(host, 10, now=world.now) == ()
    snapshot = world.store.snapshot(host.submission_id)
    assert snapshot is not None
    assert snapshot.joins == (second.submission_id, third.submission_id)
    joined = world.store.snapshot(second.submission_id)
    assert joined is not None
    assert (joined.host_submission_id, joined.ownership) == (host.submission_id, None)


def test_aborted_rows_are_stepped_over(world: World):
    """What was settled as aborted is no gap (JOIN-002)."""
    host, (second, third) = queued(world)
    world.abort(second.submission_id)
    (taken,) = world.store.claim_joining(host, 1, now=world.now)
    assert taken.submission_id == third.submission_id
    assert state(world, second.submission_id) == "settled"


def test_a_later_seam_goes_on_behind_what_joined(world: World):
    """At most what was asked for, in queue order; rows of this host are stepped over."""
    host, receipts = queued(world, 3)
    for receipt in receipts:
        (taken,) = world.store.claim_joining(host, 1, now=world.now)
        assert taken.submission_id == receipt.submission_id
        world.store.apply_joined(
            host, taken.submission_id, world.joined_input(host, taken.submission_id), now=world.now
        )
    assert world.store.claim_joining(host, 1, now=world.now) == ()


@pytest.mark.parametrize("said", [{"principal": "other"}, {"agent": "agent-2"}])
def test_input_of_another_authority_stops_the_prefix(world: World, said: dict[str, str]):
    """Nobody's authority is lent to another's input: it runs on its own, and nothing overtakes it (JOIN-014)."""
    host, _ = queued(world, 0)
    foreign = world.submit("k1", **said)
    behind = world.submit("k2")
    assert world.store.claim_joining(host, 10, now=world.now) == ()
    world.finish(host)
    assert world.begin(attempt="a2").submission_id == foreign.submission_id
    assert state(world, behind.submission_id) == "ready"


def test_stale_host_takes_nothing(world: World):
    """A superseded token joins nothing and marks nothing (JOIN-004)."""
    host, (second,) = queued(world, 1)
    world.now += LEASE_MS + 1
    world.begin(attempt="a2")
    for refused in (
        lambda: world.store.claim_joining(host, 1, now=world.now),
        lambda: world.store.mark_joined(host, second.submission_id, now=world.now),
        lambda: world.store.apply_joined(
            host, second.submission_id, world.joined_input(host, second.submission_id), now=world.now
        ),
    ):
        with pytest.raises(OwnershipLost):
            refused()
    assert state(world, second.submission_id) == "ready"
    assert "steering" not in [r.payload.get("inputKind") for r in world.store.records(THREAD, after=0, limit=99)]


def test_max_count_is_at_least_one(world: World):
    """Asking for nothing is a mistake of the caller."""
    host, _ = queued(world, 1)
    with pytest.raises(LedgerError):
        world.store.claim_joining(host, 0, now=world.now)


def test_host_reverts_what_it_did_not_append(world: World):
    """Under the host's token a joining row is ready again; the second time nothing changes (JOIN-005)."""
    host, (second,) = queued(world, 1)
    world.store.claim_joining(host, 1, now=world.now)
    sid = second.submission_id
    with pytest.raises(OwnershipLost):
        world.store.revert_joining(sid, host.submission_id, token="stale", now=world.now)
    with pytest.raises(LedgerError):
        world.store.revert_joining(sid, host.submission_id, now=world.now)
    assert world.store.revert_joining(sid, host.submission_id, token=host.token, now=world.now)
    assert not world.store.revert_joining(sid, host.submission_id, token=host.token, now=world.now)
    found = world.store.snapshot(sid)
    assert found is not None
    assert (found.state, found.host_submission_id) == ("ready", None)


def test_lost_marker_is_repaired_by_the_host(world: World):
    """Canonical input, no marker: joined with its position, and once more changes nothing (JOIN-007)."""
    host, (second,) = queued(world, 1)
    host = world.join(host, mark=False)
    sid, position = second.submission_id, host.tail.sequence
    assert state(world, sid) == "joining"
    with pytest.raises(LedgerError):
        world.store.mark_joined(host, sid, position=position + 1, now=world.now)
    for _ in range(2):
        world.store.mark_joined(host, sid, position=position, now=world.now)
        found = world.store.snapshot(sid)
        assert found is not None
        assert (found.state, found.input_applied) == ("joined", position)
    with pytest.raises(LedgerError):
        world.store.mark_joined(host, sid, position=position + 1, now=world.now)


def test_row_without_canonical_input_is_not_marked(world: World):
    """The append comes before the marker."""
    host, (second,) = queued(world, 1)
    world.store.claim_joining(host, 1, now=world.now)
    with pytest.raises(LedgerError):
        world.store.mark_joined(host, second.submission_id, now=world.now)
    assert state(world, second.submission_id) == "joining"


def test_repeated_append_of_a_joined_input_answers_as_the_first_time(world: World):
    """The batch is its own key: the same tail, the same state, one record."""
    host, (second,) = queued(world, 1)
    world.store.claim_joining(host, 1, now=world.now)
    batch = world.joined_input(host, second.submission_id)
    first = world.store.apply_joined(host, second.submission_id, batch, now=world.now)
    again = world.store.apply_joined(host, second.submission_id, batch, now=world.now)
    assert first.tail == again.tail
    assert kinds(world).count("UserInputRecorded") == 2
    with pytest.raises(AppendConflict):
        world.store.apply_joined(
            first, second.submission_id, world.joined_input(host, second.submission_id, "x"), now=world.now
        )


def test_guard_of_another_host_is_a_no_op(world: World):
    """A revert that names a host the row does not have changes nothing (JOIN-008)."""
    host, (second, third) = queued(world)
    world.store.claim_joining(host, 1, now=world.now)
    assert not world.store.revert_joining(second.submission_id, third.submission_id, token=host.token, now=world.now)
    assert state(world, second.submission_id) == "joining"


def test_settled_host_needs_no_token(world: World):
    """What a settled host left joining goes back without a token, and is delivered from the queue (JOIN-010)."""
    host, (second,) = queued(world, 1)
    world.store.claim_joining(host, 1, now=world.now)
    world.finish(host)
    assert world.try_begin(attempt="a2") is None
    assert world.store.revert_joining(second.submission_id, host.submission_id, now=world.now)
    claim = world.begin(attempt="a3")
    assert (claim.submission_id, claim.input) == (second.submission_id, "input 1")


@pytest.mark.parametrize("outcome", list(Outcome))
def test_covered_input_settles_with_its_host(world: World, outcome: Outcome):
    """Host and joined input settle in one transaction: the same outcome, each with its own receipt (JOIN-011)."""
    host, (second, third) = queued(world)
    host = world.respond(world.join(host, 2), turn=2)
    first = world.finish(host, outcome, joins=True)
    for receipt in (second, third):
        told = settlement(world, receipt.submission_id)
        assert (told.outcome, told.receipt_id, told.result) == (outcome, receipt.receipt_id, None)
        assert (told.run_id, told.diagnostic) == (ids.run_id(host.submission_id), first.diagnostic)
        assert state(world, receipt.submission_id) == "settled"
    assert world.store.view(THREAD).nonterminal == 0
    assert kinds(world)[-3:] == ["SubmissionSettled"] * 3


def test_joined_input_may_settle_after_its_host(world: World):
    """Where the host settled alone, authority Joined publishes: the same diagnostic, the host's run (LED-051)."""
    host, (second,) = queued(world, 1)
    host = world.respond(world.join(host), turn=2)
    first = world.finish(host, Outcome.FAILED)
    sid = second.submission_id
    snapshot = world.store.snapshot(sid)
    assert snapshot is not None
    evidence = evidence_of(snapshot, world.store.run_records(sid), world.store.run_records(host.submission_id))
    assert (evidence.input_recorded, evidence.joined_input_covered) == (True, True)
    assert classify(snapshot, evidence) == SettleJoinedWithHost(Outcome.FAILED)
    for _ in range(2):
        told = world.store.settle_joined(sid, host.submission_id, deployment_id="d", now=world.now)
        assert told is not None
        assert (told.outcome, told.diagnostic) == (Outcome.FAILED, first.diagnostic)
        assert (told.run_id, told.receipt_id) == (ids.run_id(host.submission_id), second.receipt_id)
        world.now += 5
    assert kinds(world).count("SubmissionSettled") == 2


def test_unsettled_host_settles_nobody(world: World):
    """Authority Joined needs the host's canonical settlement, and the right host (LED-052)."""
    host, (second, third) = queued(world)
    host = world.join(host)
    for named in (host.submission_id, third.submission_id):
        with pytest.raises(LedgerError):
            world.store.settle_joined(second.submission_id, named, deployment_id="", now=world.now)
    assert state(world, second.submission_id) == "joined"


@pytest.mark.parametrize("together", [True, False], ids=["with-host", "later"])
def test_uncovered_input_goes_back_and_is_delivered_once(world: World, together: bool):
    """No response of the host came after it: ready again, then run on its own from the log (JOIN-015)."""
    host, (second,) = queued(world, 1)
    host = world.join(host)
    world.finish(host, Outcome.FAILED, joins=together)
    sid = second.submission_id
    if not together:
        assert world.store.settle_joined(sid, host.submission_id, deployment_id="", now=world.now) is None
    assert state(world, sid) == "ready"
    claim = world.begin(attempt="a2")
    assert (claim.submission_id, claim.input, claim.state) == (sid, "input 1", "input-applied")
    inputs = [r for r in world.store.records(THREAD, after=0, limit=99) if r.kind == "UserInputRecorded"]
    assert [r.payload["submissionId"] for r in inputs].count(sid) == 1
    assert kinds(world)[-1] == "RunStarted"
    own = [record.kind for record in world.store.run_records(sid)]
    assert own == ["UserInputRecorded", "RunStarted"]
    world.now = claim.lease_until + 1
    again = world.begin(attempt="a3")
    assert again.input == "input 1"
    assert world.finish(again).outcome is Outcome.COMPLETED


def test_returned_input_never_joins_again(world: World):
    """Its record stands in the log, so only a Run of its own can deliver it; nothing overtakes it either."""
    host, (second, third) = queued(world)
    world.finish(world.join(host), joins=True)
    claim = world.begin(attempt="a2")
    assert claim.submission_id == second.submission_id
    assert [t.submission_id for t in world.store.claim_joining(claim, 9, now=world.now)] == [third.submission_id]


def test_covered_input_is_never_given_back(world: World):
    """A revert meets input that the host consumed: nothing changes."""
    host, (second,) = queued(world, 1)
    host = world.respond(world.join(host), turn=2)
    sid = second.submission_id
    assert not world.store.revert_joining(sid, host.submission_id, token=host.token, now=world.now)
    world.finish(host)
    assert not world.store.revert_joining(sid, host.submission_id, now=world.now)
    assert state(world, sid) == "joined"


def test_canonical_input_of_a_living_host_is_not_reverted(world: World):
    """The marker is to be repaired, not the input to be given back."""
    host, (second,) = queued(world, 1)
    host = world.join(host, mark=False)
    with pytest.raises(LedgerError):
        world.store.revert_joining(second.submission_id, host.submission_id, token=host.token, now=world.now)
    assert state(world, second.submission_id) == "joining"


def test_lost_marker_behind_a_settled_host(world: World):
    """Canonical input, no marker, no later response: the guarded revert needs no token."""
    host, (second,) = queued(world, 1)
    host = world.join(host, mark=False)
    world.finish(host)
    assert world.store.revert_joining(second.submission_id, host.submission_id, now=world.now)
    assert world.begin(attempt="a2").submission_id == second.submission_id


def test_lost_marker_settles_with_its_host(world: World):
    """What counts is the record: a joining row with a covered input settles with its host."""
    host, (second,) = queued(world, 1)
    host = world.respond(world.join(host, mark=False), turn=2)
    world.finish(host, joins=True)
    assert state(world, second.submission_id) == "settled"


def test_abort_of_joined_input_is_refused(world: World):
    """Consumed input belongs to its host."""
    host, (second,) = queued(world, 1)
    world.join(host)
    refusal = world.abort(second.submission_id).refusal
    assert refusal is not None
    assert refusal.code == "JoinedToHost"
    assert refusal.fields["host_submission_id"] == host.submission_id
    with pytest.raises(JoinedToHost):
        world.store.request_abort(second.submission_id, author="a", reason="", deployment_id="", now=world.now)


def test_abort_of_joining_input_is_honoured_if_it_goes_back(world: World):
    """The intent is kept; consumed input ignores it, input that goes back settles aborted."""
    host, (second, third) = queued(world)
    world.store.claim_joining(host, 2, now=world.now)
    for receipt in (second, third):
        answer = world.abort(receipt.submission_id).abort
        assert answer is not None
        assert not answer.settled
        assert state(world, receipt.submission_id) == "joining"
    host = world.store.apply_joined(
        host, second.submission_id, world.joined_input(host, second.submission_id), now=world.now
    )
    world.finish(world.respond(host, turn=2), joins=True)
    assert settlement(world, second.submission_id).outcome is Outcome.COMPLETED
    assert state(world, third.submission_id) == "ready"
    told = world.store.publish_queued_abort(third.submission_id, now=world.now)
    assert told is not None
    assert told.outcome is Outcome.ABORTED


def test_joined_rows_block_their_lane(world: World):
    """While they wait for their host nothing behind them is granted or jumped (LED-031, LED-032)."""
    host, (second, third) = queued(world)
    host = world.join(host)
    world.finish(world.respond(host, turn=2))
    assert world.claim(attempt="a2") is None
    world.store.settle_joined(second.submission_id, host.submission_id, deployment_id="", now=world.now)
    assert world.begin(attempt="a3").submission_id == third.submission_id


def test_finishing_twice_settles_joined_input_once(world: World):
    """A repeated finish answers the first winner, whatever the joins say."""
    host, (second,) = queued(world, 1)
    host = world.respond(world.join(host), turn=2)
    first = world.finish(host, joins=True)
    assert world.finish(host, joins=True) == first
    assert kinds(world).count("SubmissionSettled") == 2
    assert settlement(world, second.submission_id).outcome is Outcome.COMPLETED


def test_last_response_of_the_settling_transaction_covers(world: World):
    """The response that ends the Run may be committed with the settlement; it answers what joined before it."""
    host, (second,) = queued(world, 1)
    host = world.join(host)
    run = ids.run_id(host.submission_id)
    last = world.batch(
        ids.turn_batch(run, 2),
        (ids.response_record(run, 2), response(run, 2)),
        (ids.run_completed_record(run), RunCompleted(run_id=run, output="done")),
    )
    world.store.finish(host, [last], settled(host), joins=True, now=world.now)
    assert state(world, second.submission_id) == "settled"


def test_append_tells_what_queued_behind(world: World):
    """The tail of an append carries the lane's newest sequence, so a Run asks for input only where there is some."""
    world.submit("host")
    host = world.begin()
    assert host.tail.queue_last == host.queue_sequence
    host = world.respond(host)
    assert host.tail.queue_last == host.queue_sequence
    late = world.submit("k1")
    host = world.respond(host, turn=2)
    assert host.tail.queue_last == late.queue_sequence
    stale = replace(host, tail=replace(host.tail, sequence=1))
    assert world.respond(stale, turn=2).tail.queue_last == late.queue_sequence
