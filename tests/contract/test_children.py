"""Children: admission behind a lineage, budget that is held once, and parents that wait."""

import pytest

from tests.contract.world import THREAD, World, kinds, settled, state, submit
from thread_objects.contract import ids
from thread_objects.contract.messages import ParentLink, Receipt
from thread_objects.contract.records import Batch, SubagentLineageRecorded
from thread_objects.contract.states import ChildReport, Outcome, ReservationStatus
from thread_objects.core import batches
from thread_objects.errors import ChildReservationConflict, LedgerError, NotFound, OwnershipLost
from thread_objects.ports import Claim

CALL = "c1"
BUDGET = {"tokens": 500}


def parent(world: World) -> Claim:
    """A parent that may have children."""
    world.submit("parent")
    return world.respond(world.begin())


def link(claim: Claim, call: str = CALL) -> ParentLink:
    """The linkage of a child."""
    return ParentLink(submission_id=claim.submission_id, tool_call_id=call)


def admit(world: World, claim: Claim, call: str = CALL) -> Receipt:
    """Admit a child by its deterministic key."""
    thread = ids.child_thread_id(claim.submission_id, call)
    key = ids.child_key(ids.run_id(claim.submission_id), call)
    wanted = submit(key, "do this", thread=thread, parent=link(claim, call))
    return world.store.admit(wanted, thread, deployment_id="deployment-1", now=world.now)


def lineage(world: World, claim: Claim, child: Receipt, call: str = CALL) -> Batch:
    """The batch that says whose child it is."""
    record_id = ids.subagent_lineage_record(child.thread_id)
    said = SubagentLineageRecorded(
        parent_link=link(claim, call),
        parent_submission_id=claim.submission_id,
        child_input_digest=child.input_digest,
        grant_digest="0" * 64,
    )
    return world.batch(record_id, (record_id, said))


def child(world: World, claim: Claim, call: str = CALL) -> Receipt:
    """A child that is ready."""
    receipt = admit(world, claim, call)
    world.store.record_lineage(receipt.submission_id, lineage(world, claim, receipt, call), now=world.now)
    return receipt


def settle(world: World, receipt: Receipt) -> None:
    """Run a child to its end."""
    world.finish(world.begin(thread=receipt.thread_id, attempt=receipt.submission_id))


# --- admission and lineage -----------------------------------------------------------------------------------------


def test_child_waits_for_its_lineage(world: World):
    """Admitted, its Thread materialised, and neither granted nor made ready before the lineage is canonical."""
    claim = parent(world)
    receipt = admit(world, claim)
    sid, thread = receipt.submission_id, receipt.thread_id
    assert (state(world, sid), kinds(world, thread)) == ("admitted", ["ThreadCreated"])
    assert world.try_begin(thread=thread) is None
    world.store.materialize_and_ready(sid, deployment_id="", now=world.now)
    assert state(world, sid) == "admitted"
    found = world.store.snapshot(sid)
    assert found is not None
    assert found.parent_linkage == (claim.submission_id, CALL)
    for _ in range(2):
        world.store.record_lineage(sid, lineage(world, claim, receipt), now=world.now)
        assert (state(world, sid), kinds(world, thread)) == ("ready", ["ThreadCreated", "SubagentLineageRecorded"])
    assert world.begin(thread=thread).parent == link(claim)


def test_lineage_that_stands_makes_ready(world: World):
    """The crash came between the record and the state: readiness follows from the record."""
    claim = parent(world)
    receipt = admit(world, claim)
    batch = lineage(world, claim, receipt)
    world.store.append_at(receipt.thread_id, batch, world.store.tail(receipt.thread_id), 0)
    assert state(world, receipt.submission_id) == "admitted"
    world.store.materialize_and_ready(receipt.submission_id, deployment_id="", now=world.now)
    assert state(world, receipt.submission_id) == "ready"


def test_only_a_child_has_a_lineage(world: World):
    """A root Submission, or a batch of another record, is refused."""
    claim = parent(world)
    receipt = child(world, claim)
    with pytest.raises(LedgerError):
        world.store.record_lineage(claim.submission_id, lineage(world, claim, receipt), now=world.now)
    assert "SubagentLineageRecorded" not in kinds(world)


def test_child_is_admitted_once(world: World):
    """A lost reply retries the same key: one child, the same Receipt, another linkage conflicts (LED-044)."""
    claim = parent(world)
    first = admit(world, claim)
    assert admit(world, claim) == first.model_copy(update={"replayed": True})
    for other in ({"parent": link(claim, "c2")}, {}):
        refusal = world.one(submit(first.key, "do this", thread=first.thread_id, **other)).refusal
        assert refusal is not None
        assert refusal.code == "AdmissionConflict"
    assert world.store.view(first.thread_id).nonterminal == 1


# --- reservations ----------------------------------------------------------------------------------------------------


def test_reservation_is_made_once_under_the_parents_claim(world: World):
    """Create needs the live token; the same again is answered without; anything else conflicts."""
    claim = parent(world)
    made = world.store.reserve_child(claim, "r1", CALL, BUDGET, now=world.now)
    assert (made.status, made.allocation, made.replayed) == (ReservationStatus.RESERVED, BUDGET, False)
    world.store.release(claim, now=world.now)
    assert world.store.reserve_child(claim, "r1", CALL, BUDGET, now=world.now).replayed
    for rid, call, budget in (("r1", CALL, {"tokens": 1}), ("r2", CALL, BUDGET), ("r1", "c2", BUDGET)):
        with pytest.raises(ChildReservationConflict) as refused:
            world.store.reserve_child(claim, rid, call, budget, now=world.now)
        assert (refused.value.reservation_id, refused.value.status) == ("r1", "reserved")
    with pytest.raises(OwnershipLost):
        world.store.reserve_child(claim, "r2", "c2", BUDGET, now=world.now)


def test_child_is_attached_once(world: World):
    """The first needs token and `reserved`; the same child again is a no-op, another one conflicts."""
    claim = parent(world)
    world.store.reserve_child(claim, "r1", CALL, BUDGET, now=world.now)
    first, second = child(world, claim), child(world, claim, "c2")
    assert not world.store.attach_child(claim, "r1", first.submission_id, now=world.now).replayed
    world.store.release(claim, now=world.now)
    again = world.store.attach_child(claim, "r1", first.submission_id, now=world.now)
    assert (again.replayed, again.child_submission_id) == (True, first.submission_id)
    with pytest.raises(ChildReservationConflict):
        world.store.attach_child(claim, "r1", second.submission_id, now=world.now)
    with pytest.raises(NotFound):
        world.store.attach_child(claim, "r9", second.submission_id, now=world.now)


def test_attaching_needs_the_live_token(world: World):
    """A stale parent binds nobody."""
    claim = parent(world)
    world.store.reserve_child(claim, "r1", CALL, BUDGET, now=world.now)
    receipt = child(world, claim)
    world.store.release(claim, now=world.now)
    with pytest.raises(OwnershipLost):
        world.store.attach_child(claim, "r1", receipt.submission_id, now=world.now)


def test_budget_is_given_back_exactly_once(world: World):
    """Reserved, frozen, released: no step is skipped, repeated steps change nothing, history needs no token."""
    claim = parent(world)
    world.store.reserve_child(claim, "r1", CALL, BUDGET, now=world.now)
    world.store.release(claim, now=world.now)
    with pytest.raises(ChildReservationConflict) as early:
        world.store.release_reservation("r1", now=world.now)
    assert early.value.status == "reserved"
    spent = {"tokens": 120}
    assert world.store.begin_release("r1", spent, now=world.now).status == ReservationStatus.RELEASE_PENDING
    assert world.store.begin_release("r1", spent, now=world.now).replayed
    with pytest.raises(ChildReservationConflict):
        world.store.begin_release("r1", {"tokens": 121}, now=world.now)
    released = world.store.release_reservation("r1", now=world.now)
    assert (released.status, released.accounting, released.replayed) == ("released", spent, False)
    assert world.store.release_reservation("r1", now=world.now).replayed
    assert world.store.begin_release("r1", spent, now=world.now).replayed
    with pytest.raises(ChildReservationConflict):
        world.store.attach_child(claim, "r1", claim.submission_id, now=world.now)


def test_snapshot_shows_reservations_and_children(world: World):
    """In the order of the parent's calls, each child as its own row stands."""
    claim = parent(world)
    for call in ("c2", "c1", "c3"):
        world.store.reserve_child(claim, f"r-{call}", call, BUDGET, now=world.now)
    receipt = child(world, claim)
    world.store.attach_child(claim, "r-c1", receipt.submission_id, now=world.now)

    def seen() -> tuple[list[str], list[tuple[str, str, str | None]]]:
        found = world.store.snapshot(claim.submission_id)
        assert found is not None
        reservations = [row.reservation_id for row in found.child_reservations]
        return reservations, [(row.call_id, row.state, row.outcome) for row in found.child_attachments]

    assert seen() == (["r-c1", "r-c2", "r-c3"], [("c1", "ready", None)])
    settle(world, receipt)
    assert seen() == (["r-c1", "r-c2", "r-c3"], [("c1", "settled", "completed")])


# --- waiting ----------------------------------------------------------------------------------------------------------


def test_parent_wakes_when_the_last_child_settles(world: World):
    """Still waiting, then woken, then not waiting: told by the child's own settlement."""
    claim = parent(world)
    children = [child(world, claim, call) for call in ("c1", "c2")]
    waits, view, _ = world.store.suspend_for_children(
        claim, None, [receipt.submission_id for receipt in children], now=world.now
    )
    assert (waits, view.head.state if view.head else None) == (True, "suspended")
    found = world.store.snapshot(claim.submission_id)
    assert found is not None
    assert found.suspension is not None
    assert found.suspension.reason == "WaitingForChild"
    assert found.suspension.children == tuple(receipt.submission_id for receipt in children)
    with pytest.raises(OwnershipLost):
        world.store.renew(claim, now=world.now)
    settle(world, children[0])
    assert state(world, claim.submission_id) == "suspended"
    report = world.store.record_child_settled(claim.submission_id, children[0].submission_id, now=world.now)
    assert report is ChildReport.STILL_WAITING
    settle(world, children[1])
    assert state(world, claim.submission_id) == "input-applied"
    for receipt in children:
        report = world.store.record_child_settled(claim.submission_id, receipt.submission_id, now=world.now)
        assert report is ChildReport.NOT_WAITING
    assert world.begin(attempt="a2").submission_id == claim.submission_id


def test_report_needs_the_childs_canonical_settlement(world: World):
    """Nobody wakes a parent on hearsay."""
    claim = parent(world)
    receipt = child(world, claim)
    world.store.suspend_for_children(claim, None, [receipt.submission_id], now=world.now)
    with pytest.raises(LedgerError):
        world.store.record_child_settled(claim.submission_id, receipt.submission_id, now=world.now)
    with pytest.raises(NotFound):
        world.store.record_child_settled(claim.submission_id, "nobody", now=world.now)
    assert state(world, claim.submission_id) == "suspended"


def test_settled_children_let_the_parent_go_on(world: World):
    """Reported before the suspend: resume immediately, nothing suspended, the claim stands."""
    claim = parent(world)
    receipt = child(world, claim)
    settle(world, receipt)
    waits, _, _ = world.store.suspend_for_children(claim, None, [receipt.submission_id], now=world.now)
    assert not waits
    assert state(world, claim.submission_id) == "input-applied"
    assert world.store.renew(claim, now=world.now).epoch == claim.epoch


def test_waiting_for_nobody_is_refused(world: World):
    """A suspension that nothing ends is never made."""
    claim = parent(world)
    with pytest.raises(LedgerError):
        world.store.suspend_for_children(claim, None, [], now=world.now)
    assert state(world, claim.submission_id) == "input-applied"


def test_another_child_wakes_nobody(world: World):
    """Only the listed children count."""
    claim = parent(world)
    listed, other = child(world, claim, "c1"), child(world, claim, "c2")
    world.store.suspend_for_children(claim, None, [listed.submission_id], now=world.now)
    settle(world, other)
    report = world.store.record_child_settled(claim.submission_id, other.submission_id, now=world.now)
    assert report is ChildReport.NOT_WAITING
    assert state(world, claim.submission_id) == "suspended"


def test_aborted_child_wakes_its_parent(world: World):
    """A child that never ran settles with the abort, and the parent learns of it; a replay changes nothing."""
    claim = parent(world)
    receipt = child(world, claim)
    world.store.suspend_for_children(claim, None, [receipt.submission_id], now=world.now)
    sid = receipt.submission_id
    told = world.store.request_abort(sid, author="parent", reason="enough", deployment_id="", now=world.now)
    assert (told.settled, told.author, told.replayed) == (True, "parent", False)
    assert state(world, claim.submission_id) == "input-applied"


def test_finalized_child_wakes_its_parent(world: World):
    """The crash came after the publication: the finalization of recovery tells the parent too."""
    claim = parent(world)
    receipt = child(world, claim)
    running = world.begin(thread=receipt.thread_id, attempt="child")
    world.store.suspend_for_children(claim, None, [receipt.submission_id], now=world.now)
    batch = batches.settlement(settled(running), deployment_id="", now=world.now)
    world.store.append(running, batch, now=world.now)
    assert state(world, claim.submission_id) == "suspended"
    assert world.store.finalize(receipt.submission_id, now=world.now).outcome is Outcome.COMPLETED
    assert state(world, claim.submission_id) == "input-applied"


def test_child_of_an_absent_parent_settles(world: World):
    """A child restored without its parent's Thread owes nobody a report."""
    wanted = submit("k", thread="t-child", parent=ParentLink(submission_id="gone", tool_call_id="c"))
    receipt = world.store.admit(wanted, "t-child", deployment_id="", now=world.now)
    record_id = ids.subagent_lineage_record("t-child")
    said = SubagentLineageRecorded(
        parent_link=ParentLink(submission_id="gone", tool_call_id="c"),
        parent_submission_id="gone",
        child_input_digest=receipt.input_digest,
        grant_digest="0" * 64,
    )
    world.store.record_lineage(receipt.submission_id, world.batch(record_id, (record_id, said)), now=world.now)
    settle(world, receipt)
    assert state(world, receipt.submission_id) == "settled"


def test_abort_outside_a_batch_keeps_the_first_intent(world: World):
    """The first author and time stay; the intent names its canonical record; settled work refuses."""
    receipt = world.submit("k1")
    claim = world.begin()
    sid = receipt.submission_id
    first = world.store.request_abort(sid, author="one", reason="x", deployment_id="", now=world.now)
    again = world.store.request_abort(sid, author="two", reason="y", deployment_id="", now=world.now + 5)
    assert (again.author, again.requested_at, again.replayed) == (first.author, first.requested_at, True)
    intent = world.store.abort_intent(sid)
    assert intent is not None
    assert intent.record_id == ids.abort_record(sid)
    world.finish(claim, Outcome.ABORTED)
    refusal = world.abort(sid, thread=THREAD).refusal
    assert refusal is not None
    assert refusal.code == "SettlementConflict"
