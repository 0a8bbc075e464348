"""Which stored intent speaks for a call, and until when."""

import pytest

from thread_objects.contract.states import Resolution, ResolutionKind, ToolClass
from thread_objects.core.recovery import Permit, approval_intent, covered, resumption, undecided, unknown_intent
from thread_objects.core.recovery.evidence import Resolved

from .builders import SID, batch, decided, fact, intent, log, open_call, pending, row

NEVER, RETRY = ResolutionKind.NEVER_HAPPENED, ResolutionKind.SAFE_TO_RETRY


@pytest.mark.parametrize(
    ("stored", "wins"),
    [
        ((intent("c1", RETRY), fact("c1")), ResolutionKind.COMPLETED_WITH_RESULT),
        ((intent("c1", RETRY), intent("c1", NEVER)), NEVER),
        ((intent("c1", RETRY),), RETRY),
    ],
)
def test_a_fact_stands_before_a_permission(stored, wins):
    """UNK-007: later truth may stand beside an earlier permission, and then decides."""
    assert unknown_intent(row(unknown_resolutions=stored), open_call("c1")).kind is wins


def test_an_abort_and_another_calls_intent_answer_nothing():
    """An abort closes no call."""
    stored = (intent("c1", ResolutionKind.ABORT_SUBMISSION), fact("c2"))
    assert unknown_intent(row(unknown_resolutions=stored), open_call("c1")) is None


@pytest.mark.parametrize(("kind", "said"), [(NEVER, Resolution.NEVER_STARTED), (RETRY, Resolution.SAFE_RETRY)])
def test_a_permission_that_became_canonical_is_used_up(kind, said):
    """F3: after a permitted run was lost, the same permission does not run the call once more."""
    snapshot = row("unknown", unknown_resolutions=(intent("c1", kind, at=500),))
    lost_again = open_call("c1", resolved=(Resolved(said, 500),), resolved_records=1)
    assert unknown_intent(snapshot, open_call("c1")) is not None
    assert unknown_intent(snapshot, lost_again) is None
    assert not covered(snapshot, log(open_tool_calls=(lost_again,)))


def test_a_permission_given_anew_counts():
    """What is used up is one intent, not its kind."""
    snapshot = row(unknown_resolutions=(intent("c1", RETRY, at=900),))
    lost_again = open_call("c1", resolved=(Resolved(Resolution.SAFE_RETRY, 500),))
    assert unknown_intent(snapshot, lost_again).resolved_at == 900


@pytest.mark.parametrize("other", [NEVER, RETRY])
def test_two_permissions_for_one_loss_permit_one_run(other):
    """UNK-007, F3: whatever else was said of the earlier loss, and whenever, does not run the call once more."""
    used = (Resolved(Resolution.SAFE_RETRY if other is NEVER else Resolution.NEVER_STARTED, 500),)
    rerun = open_call("c1", unknown_records=1, resolved_records=1, resolved=used)
    for at in (400, 900):
        snapshot = row(unknown_resolutions=(intent("c1", other, at=at),))
        assert unknown_intent(snapshot, rerun) is None
        assert resumption(snapshot, log(open_tool_calls=(rerun,)), (), epoch=1).blocked == (rerun,)
    told = row(unknown_resolutions=(intent("c1", other), fact("c1", at=900)))
    assert unknown_intent(told, rerun).kind is ResolutionKind.COMPLETED_WITH_RESULT


def test_a_decision_for_an_earlier_turn_decides_nothing_later():
    """An approval is bound to its arguments: the same call id of another Turn is another question."""
    old = row(approval_decisions=(decided("c1", "approved"),))
    assert approval_intent(old, pending("c1", 1)) is not None
    assert approval_intent(old, pending("c1", 2, earlier=1)) is None
    exact = row(approval_decisions=(decided("c1", "approved", turn=2),))
    assert approval_intent(exact, pending("c1", 2, earlier=1)) is not None
    assert approval_intent(exact, pending("c1", 3, earlier=2)) is None


@pytest.mark.parametrize(
    ("approvals", "stored", "asked"),
    [
        ({"c1": None, "c2": None}, (), "c1"),
        ({"c1": "approved", "c2": None}, (), "c2"),
        ({"c1": None, "c2": None}, (decided("c1", "approved"),), "c2"),
        ({"c1": None, "c2": None}, (decided("c1", "denied"),), None),
        ({"c1": "denied", "c2": None}, (), None),
        ({"c1": None, "c2": None}, (decided("c2", "denied"),), "c1"),
        ({"c1": "approved", "c2": "approved"}, (), None),
        ({}, (), None),
    ],
)
def test_approvals_are_asked_in_declaration_order_until_a_denial(approvals, stored, asked):
    """At most one call is asked, and a denial ends the asking."""
    requests = tuple(pending(c) for c, answer in approvals.items() if answer is None)
    evidence = log(pending_batch=batch(1, 2, **approvals), approvals_pending=requests)
    assert undecided(row(approval_decisions=stored), evidence) == asked


def test_without_a_batch_the_first_request_without_an_intent_is_asked():
    """A denial stops nothing there: no batch says what it ends."""
    evidence = log(approvals_pending=(pending("c1"), pending("c2")))
    assert undecided(row(approval_decisions=(decided("c1", "denied"),)), evidence) == "c2"
    assert undecided(row(), log()) is None


def test_a_resuming_attempt_runs_only_what_something_permits():
    """Every open call is in exactly one group."""
    calls = (
        open_call("answered"),
        open_call("retry"),
        open_call("never"),
        open_call("proven", 2),
        open_call("lost"),
    )
    snapshot = row(unknown_resolutions=(fact("answered"), intent("retry", RETRY), intent("never", NEVER)))
    found = resumption(snapshot, log(open_tool_calls=calls), {Permit(SID, 2, "proven", 7)}, epoch=8)
    assert [c.call_id for c in found.answered] == ["answered"]
    assert [c.call_id for c in found.permitted] == ["retry", "never", "proven"]
    assert [c.call_id for c in found.blocked] == ["lost"]


def test_a_proof_holds_for_the_very_next_claim_only():
    """Any claim in between might have run the call."""
    evidence = log(open_tool_calls=(open_call("c1"),))
    for epoch, blocked in ((7, True), (8, False), (9, True)):
        found = resumption(row(), evidence, {Permit(SID, 1, "c1", 7)}, epoch=epoch)
        assert bool(found.blocked) is blocked


def test_an_idempotent_call_may_repeat_without_anybody_saying_so():
    """It receives the same key again."""
    evidence = log(open_tool_calls=(open_call("c1", tool_class=ToolClass.IDEMPOTENT),))
    assert [c.call_id for c in resumption(row(), evidence, (), epoch=1).permitted] == ["c1"]
