"""Approvals: asked canonically, answered once, and a suspension that ends by the wake rule and nothing else."""

import pytest

from storage import open_reader
from tests.contract.world import THREAD, World, call, state, submit
from thread_objects.contract.messages import ResolveApproval
from thread_objects.contract.states import Decision, Outcome
from thread_objects.errors import LedgerError
from thread_objects.ports import Claim

APPROVED, DENIED = Decision.APPROVED, Decision.DENIED


@pytest.fixture
def claim(world: World) -> Claim:
    """A claim whose first response declares three calls."""
    world.submit("k1")
    return world.respond(world.begin(), calls=[call("c1"), call("c2"), call("c3")])


def test_suspension_ends_the_claim_and_settles_nothing(world: World, claim: Claim):
    """A suspended row has no owner, blocks its lane, and the answer says so."""
    tail_before = claim.tail
    suspended, view, tail = world.store.suspend(claim, world.approval_request(claim, "c1"), ["c1"], now=world.now)
    assert suspended
    assert (view.nonterminal, view.head.state) == (1, "suspended")
    assert tail.sequence == tail_before.sequence + 1
    found = world.store.snapshot(claim.submission_id)
    assert found is not None
    assert (found.state, found.ownership, found.suspension.tool_call_ids) == ("suspended", None, ("c1",))
    assert found.suspension.reason == "ApprovalPending"


def test_approval_wakes(world: World, claim: Claim):
    """The listed call decided, the row goes on (APP-001)."""
    assert world.suspend(claim, "c1")
    answer = world.answer_approval(claim.submission_id, "c1", APPROVED)
    assert (answer.approval.state, answer.progress) == ("input-applied", True)
    assert world.begin(attempt="attempt-2").state == "input-applied"


def test_one_of_two_approved_still_waits(world: World, claim: Claim):
    """All listed calls have to be decided (APP-002)."""
    assert world.suspend(claim, "c1", "c2")
    assert world.answer_approval(claim.submission_id, "c1", APPROVED).approval.state == "suspended"
    assert world.try_begin(attempt="attempt-2") is None
    assert world.answer_approval(claim.submission_id, "c2", APPROVED).approval.state == "input-applied"


def test_one_denial_wakes(world: World, claim: Claim):
    """A denial decides the whole batch."""
    assert world.suspend(claim, "c1", "c2")
    assert world.answer_approval(claim.submission_id, "c2", DENIED).approval.state == "input-applied"


def test_repeated_decision_returns_the_first(world: World, claim: Claim):
    """Same answer again: the original resolver and time, no progress (APP-004)."""
    world.suspend(claim, "c1")
    first = world.answer_approval(claim.submission_id, "c1", APPROVED).approval
    world.now += 10
    again = world.answer_approval(claim.submission_id, "c1", APPROVED, resolver="bob")
    assert again.approval == first.model_copy(update={"replayed": True})
    assert not again.progress


def test_other_decision_conflicts(world: World, claim: Claim):
    """The first answer stands (APP-005)."""
    world.suspend(claim, "c1", "c2")
    world.answer_approval(claim.submission_id, "c1", APPROVED)
    refusal = world.answer_approval(claim.submission_id, "c1", DENIED).refusal
    assert (refusal.code, refusal.fields["existing_decision"]) == ("ApprovalConflict", "approved")
    assert state(world, claim.submission_id) == "suspended"


def test_decision_before_the_suspension_resumes_at_once(world: World, claim: Claim):
    """A decision that came first is seen by the suspend, which keeps the claim (APP-007)."""
    claim = claim.at(world.store.append(claim, world.approval_request(claim, "c1"), now=world.now))
    assert world.answer_approval(claim.submission_id, "c1", APPROVED).approval.state == "input-applied"
    suspended, _, tail = world.store.suspend(claim, None, ["c1"], now=world.now)
    assert not suspended
    assert tail == claim.tail
    assert world.store.renew(claim, now=world.now).token == claim.token


def test_suspended_row_waits_for_ever_and_is_visible(world: World, claim: Claim):
    """Decisions do not expire; the obligation is shown with tool and arguments (APP-008)."""
    world.suspend(claim, "c1")
    world.now += 86_400_000
    assert world.try_begin(attempt="attempt-2") is None
    reader = open_reader(world.url)
    status = reader.status(claim.submission_id)
    reader.close()
    assert status is not None
    (pending,) = status.approvals
    assert (pending.tool_call_id, pending.tool_name, pending.turn) == ("c1", "tool", 1)
    assert pending.arguments == {"of": "c1"}
    assert pending.since == world.now - 86_400_000


def test_request_and_decision_in_one_batch_need_no_suspension(world: World, claim: Claim):
    """A policy that answers at once leaves nothing pending (APP-010)."""
    request = world.approval_request(claim, "c1").records[0]
    claim = world.append(
        claim,
        (request.record_id, request.payload),
        world.decision(claim, "c1", APPROVED),
        batch_id="request-and-decision",
    )
    assert not world.suspend(claim, "c1", asking=[])
    (intent,) = world.store.snapshot(claim.submission_id).approval_decisions
    assert (intent.decision, intent.resolver) == (APPROVED, "policy")
    refusal = world.answer_approval(claim.submission_id, "c1", DENIED).refusal
    assert refusal.code == "ApprovalConflict"


def test_canonical_decision_keeps_the_stored_resolver(world: World, claim: Claim):
    """Making a decision canonical repeats it and changes nothing (APP-012)."""
    world.suspend(claim, "c1")
    world.answer_approval(claim.submission_id, "c1", APPROVED)
    again = world.begin(attempt="attempt-2")
    world.append(again, world.decision(again, "c1", APPROVED), batch_id="decision")
    (intent,) = world.store.snapshot(claim.submission_id).approval_decisions
    assert intent.resolver == "ann"


def test_call_that_never_asked_is_not_found(world: World, claim: Claim):
    """Only a call with a canonical request can be decided."""
    assert world.answer_approval(claim.submission_id, "c1", APPROVED).refusal.code == "NotFound"
    assert world.answer_approval("sub-nobody", "c1", APPROVED).refusal.code == "NotFound"


def test_settled_work_takes_no_decision(world: World, claim: Claim):
    """Late answers are refused with the outcome."""
    claim = claim.at(world.store.append(claim, world.approval_request(claim, "c1"), now=world.now))
    world.finish(claim, Outcome.FAILED)
    refusal = world.answer_approval(claim.submission_id, "c1", APPROVED).refusal
    assert (refusal.code, refusal.fields["existing_outcome"]) == ("SettlementConflict", "failed")
    reader = open_reader(world.url)
    assert reader.status(claim.submission_id).approvals == ()
    reader.close()


def test_suspension_needs_applied_input(world: World):
    """A row that never had its input cannot wait for an approval."""
    world.submit("k1")
    claim = world.claim()
    assert claim is not None
    with pytest.raises(LedgerError):
        world.store.suspend(claim, None, ["c1"], now=world.now)
    assert world.store.renew(claim, now=world.now).token == claim.token


def test_denial_under_an_abort_ends_the_suspension(world: World, claim: Claim):
    """Recovery closes an approval wait by denying what is undecided; a given answer stays."""
    world.suspend(claim, "c1", "c2")
    world.answer_approval(claim.submission_id, "c1", APPROVED)
    with pytest.raises(LedgerError):
        world.store.deny_pending_approvals(claim.submission_id, resolver="recovery", reason="", now=world.now)
    world.abort(claim.submission_id)
    for _ in range(2):
        world.store.deny_pending_approvals(claim.submission_id, resolver="recovery", reason="", now=world.now)
    assert state(world, claim.submission_id) == "input-applied"
    found = world.store.snapshot(claim.submission_id)
    assert {i.tool_call_id: (i.decision, i.resolver) for i in found.approval_decisions} == {
        "c1": (APPROVED, "ann"),
        "c2": (DENIED, "recovery"),
    }


def test_wake_is_replayed_from_stored_decisions(world: World, claim: Claim):
    """Recovery wakes what is decided and leaves what is not."""
    world.suspend(claim, "c1", "c2")
    assert not world.store.wake_suspended(claim.submission_id, now=world.now)
    world.store._database.write(
        lambda tx: tx.run("UPDATE approvals SET decision = 'approved', decided_at = 1, resolver = '', reason = ''", {})
    )
    assert world.store.wake_suspended(claim.submission_id, now=world.now)
    assert world.store.wake_suspended(claim.submission_id, now=world.now)
    assert state(world, claim.submission_id) == "input-applied"


def test_same_batch_answers_as_the_first_time(world: World, claim: Claim):
    """A decision's batch met again makes progress again, also after the settlement."""
    world.suspend(claim, "c1")
    decide = ResolveApproval(
        thread_id=THREAD, submission_id=claim.submission_id, tool_call_id="c1", decision=APPROVED, resolver="ann"
    )
    request = world.request(decide, decide, submit("k2"))
    first = world.send(request).answers
    assert [answer.progress for answer in first] == [True, False, True]
    world.now += 3
    assert world.send(request).answers == first
    world.finish(world.begin(attempt="attempt-2"))
    late = world.send(request).answers
    assert [answer.progress for answer in late] == [True, False, True]
    assert late[0].approval.decided_at == first[0].approval.decided_at
