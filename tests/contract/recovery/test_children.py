"""Recovery of parents and children: one child, one link, one wait, and budget that is given back once."""

import pytest

from activities.child_repair import ABORT_AUTHOR, ChildRepair
from activities.repairs import Repairs
from activities.shared_children import SharedChildren
from activities.short_claims import ShortClaims
from activities.unknown_repair import always_supported, no_reconcilers
from activities.watch import Watch
from thread_objects.admission import Indeterminate
from thread_objects.contract import ids
from thread_objects.contract.messages import Submit
from thread_objects.contract.states import CallKind, Outcome
from thread_objects.core.recovery import ZERO_CONSUMED, classify
from thread_objects.core.recovery import decisions as d
from thread_objects.errors import AdmissionLimitExceeded, StoreUnavailable
from thread_objects.ports import ClaimRequest

from .family import CALL, COST, STEPS, Family, abort
from .lab import THREAD, declared
from .proxy import Proxied, raising


def claims_of(lab, children=None):
    return ShortClaims(
        lab.store,
        Watch(lab.clock),
        producer_id="producer",
        attempt_id="executor",
        ended_attempts=(),
        deployment_id="",
        children=children,
    )


def execute(lab, sid, decision, children=None):
    """Execute a decision that was come to earlier, whatever changed since."""
    claims = claims_of(lab, children)
    repairs = Repairs(claims, reconcilers=no_reconcilers, retry_supported=always_supported, permits=set())
    snapshot = lab.snapshot(sid)
    return repairs.execute(snapshot, claims.evidence(snapshot), decision).value


def reservation(lab, family):
    """The stored reservation."""
    sql = "SELECT status, accounting FROM child_reservations WHERE reservation_id = :id"
    return lab.store._database.read(lambda tx: tx.one(sql, {"id": family.reservation}))


# --- the decision at each crash point ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("last", "decision", "disposition"),
    [
        ("declare", "ResumePendingToolBatch", "deferred"),
        ("reserve", "ResumePendingToolBatch", "deferred"),
        ("request", "CompleteChildAdmission", "repaired"),
        ("admit", "RepairSubagentStartLink", "repaired"),
        ("ready", "RepairSubagentStartLink", "repaired"),
        ("start", "EnsureWaitingForChild", "repaired"),
        ("attach", "EnsureWaitingForChild", "repaired"),
        ("suspend", "AwaitChildSettlement", "deferred"),
        ("child", "ResumeWaitingParent", "deferred"),
        ("join", "ApplyJoinAccounting", "repaired"),
        ("freeze", "ApplyJoinAccounting", "repaired"),
    ],
)
def test_every_step_of_a_delegation_has_its_repair(lab, last, decision, disposition):
    """Whatever was done last, one decision says what is next; nothing is taken for an uncertain effect."""
    family = Family(lab).upto(last)
    assert family.decisions(family.recover()) == [(decision, disposition)]
    assert "ToolCallUnknown" not in lab.kinds(family.sid)


@pytest.mark.parametrize("last", STEPS[2:8])
def test_every_crash_before_the_wait_converges_on_one_waiting_parent(lab, last):
    """One child, its lineage, one start record, one attachment; the parent waits for exactly this child."""
    family = Family(lab).upto(last)
    family.recover(4)
    (child,) = family.children()
    assert lab.kinds(child) == ["SubagentLineageRecorded"]
    assert (lab.state(child), lab.snapshot(child).parent_linkage) == ("ready", (family.sid, CALL))
    kinds = lab.kinds(family.sid)
    assert [kinds.count(kind) for kind in ("SubagentRequested", "SubagentStarted", "SubagentJoined")] == [1, 1, 0]
    parent = family.snapshot()
    assert (parent.state, parent.suspension.children) == ("suspended", (child,))
    assert [(row.call_id, row.child_submission_id) for row in parent.child_attachments] == [(CALL, child)]
    assert family.decisions(family.recover()) == [("AwaitChildSettlement", "deferred")]


def test_a_waiting_parent_wakes_when_its_child_settles(lab):
    """The child's settlement wakes it; recovery replays what was lost of that."""
    family = Family(lab).upto("suspend")
    family.settle_child()
    assert family.snapshot().state == "input-applied"
    assert [mark.object_id for mark in lab.store.old_marks(before=1, limit=9)] == [THREAD]
    lab.tear(
        "UPDATE submissions SET state = 'suspended', suspension_reason = 'WaitingForChild', suspension_calls = '[]',"
        f" suspension_children = '[\"{family.child}\"]' WHERE submission_id = ?",
        family.sid,
    )
    assert family.decisions(family.recover()) == [("ResumeWaitingParent", "repaired")]
    assert family.snapshot().state == "input-applied"


def test_a_repair_under_a_claim_leaves_one_audit(lab):
    """Whatever its disposition becomes; repeating it leaves no second one."""
    family = Family(lab).upto("ready")
    family.recover(3)
    audits = [record.record_id for record in lab.store.run_records(family.sid) if record.kind == "RepairAnnotated"]
    assert audits == [
        ids.repair_record(family.sid, "RepairSubagentStartLink"),
        ids.repair_record(family.sid, "EnsureWaitingForChild"),
    ]


# --- who may not be passed -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("last", ["ready", "start"])
def test_a_living_owner_keeps_its_parent(lab, last):
    """Without the claim nothing is linked and nobody is suspended."""
    family = Family(lab).upto(last, lose=False)
    before = lab.kinds(family.sid)
    (found,) = family.decisions(family.recover())
    assert found[1] == "deferred"
    assert lab.kinds(family.sid) == before
    assert family.snapshot().state == "input-applied"


class Silent(SharedChildren):
    """An owner that cannot say what became of a key."""

    def lookup(self, thread_id, principal, key):
        return Indeterminate("away")


def test_a_child_of_whom_nobody_can_say_is_waited_for(lab):
    """Never a second child: indeterminate is not absent."""
    family = Family(lab).upto("request")
    claims = claims_of(lab, Silent(lab.store))
    snapshot = family.snapshot()
    decision = classify(snapshot, claims.evidence(snapshot))
    assert decision == d.AwaitChildAdmissionResolution(CALL)
    assert execute(lab, family.sid, decision, Silent(lab.store)) == "deferred"
    assert execute(lab, family.sid, d.RepairSubagentStartLink(CALL), Silent(lab.store)) == "deferred"
    assert family.children() == []


@pytest.mark.parametrize(
    "error",
    [StoreUnavailable(reason="away"), AdmissionLimitExceeded(limit="queue-depth", actual=1, maximum=1)],
    ids=["away", "full"],
)
def test_an_owner_without_room_defers_the_admission(lab, error):
    """The request stands; the next pass asks again."""
    family = Family(lab).upto("request")
    owner = SharedChildren(Proxied(lab.store, admit=raising(error)))
    assert execute(lab, family.sid, d.CompleteChildAdmission(CALL), owner) == "deferred"
    assert family.decisions(family.recover()) == [("CompleteChildAdmission", "repaired")]


def test_a_key_that_somebody_else_used_is_no_child(lab):
    """A Submission under the child's key that names no such parent is not taken for the child."""
    family = Family(lab).upto("request")
    lab.store.admit(
        Submit(
            thread_id=family.child_thread,
            agent_id="child-agent",
            principal="p",
            key=ids.child_key(family.run, CALL),
            input={"do": "it"},
        ),
        family.child_thread,
        deployment_id="",
        now=lab.clock.now(),
    )
    assert family.decisions(family.recover()) == [("AwaitChildAdmissionResolution", "deferred")]


def test_a_child_without_its_lineage_runs_nothing(lab):
    """Recovery of the child's own Thread waits for the parent; the parent's finishes it."""
    family = Family(lab).upto("admit")
    child = lab.recover_other(family.child_thread)
    assert [(told.decision, told.disposition) for told in child.decisions] == [("AwaitParentEstablishment", "deferred")]
    assert lab.state(family.child) == "admitted"
    family.recover()
    assert lab.state(family.child) == "ready"
    marks = lab.store.old_marks(before=1, limit=9)
    assert [mark.object_id for mark in marks] == [family.child_thread]


# --- budget --------------------------------------------------------------------------------------------------------


def orphan(lab):
    """Budget is held for a call that was settled without ever asking for a child."""
    family = Family(lab).upto("reserve", lose=False)
    lab.result(family.claim, CALL)
    lab.pass_lease()
    return family


def test_an_orphan_reservation_is_released_once_with_nothing_consumed(lab):
    """REX-014: the second execution changes nothing."""
    family = orphan(lab)
    decision = d.ReleaseOrphanChildReservation((family.reservation,))
    assert family.decisions(family.recover()) == [("ReleaseOrphanChildReservation", "repaired")]
    stored = reservation(lab, family)
    assert stored[0] == "released"
    assert stored[1] == '{"consumed":{"inputTokens":0,"outputTokens":0,"toolCalls":0,"turns":0}}'
    repairs = ChildRepair(claims_of(lab))
    assert repairs._release_all(decision.reservation_ids) == "repaired"
    assert execute(lab, family.sid, decision) == "deferred"
    assert reservation(lab, family) == stored
    assert lab.store.duties(THREAD, after=(0, ""), limit=9) == []


def test_budget_of_a_living_owner_is_no_orphan(lab):
    """It may be about to ask for the child."""
    family = Family(lab).upto("reserve", lose=False)
    lab.result(family.claim, CALL)
    assert family.decisions(family.recover()) == [("ReleaseOrphanChildReservation", "deferred")]
    assert family.status() == "reserved"


@pytest.mark.parametrize("last", ["join", "freeze"])
def test_a_joined_childs_budget_is_given_back_as_it_was_accounted(lab, last):
    """From the join record, or as it was frozen; once."""
    family = Family(lab).upto(last)
    family.recover(2)
    assert reservation(lab, family) == ("released", '{"consumed":{"turns":2}}')
    assert COST == {"consumed": {"turns": 2}}
    assert family.decisions(family.recover()) == [("ResumeFromTurnBoundary", "deferred")]


def test_another_frozen_accounting_is_not_overwritten(lab):
    """What was frozen stays; whoever finds otherwise defers."""
    family = orphan(lab)
    lab.store.begin_release(family.reservation, COST, now=lab.clock.now())
    assert ChildRepair(claims_of(lab))._release_all([family.reservation]) == "deferred"
    assert reservation(lab, family)[1] == '{"consumed":{"turns":2}}'
    assert ZERO_CONSUMED != COST


def test_budget_outlives_a_settled_parent(lab):
    """The inventory lists it; recovery gives it back, aborting first whoever still works."""
    family = Family(lab).upto("attach")
    lab.settle(lab.claim("settling"))
    assert lab.state(family.sid) == "settled"
    assert lab.store.survey(THREAD).duties == (THREAD,)
    first = lab.recover()
    assert (first.recovered, first.repaired, first.retry_at) == (1, False, lab.clock.now() + 60_000)
    assert lab.state(family.child) == "settled"
    second = lab.recover(attempt="recovery-2")
    assert (second.repaired, second.retry_at) == (True, None)
    assert reservation(lab, family) == ("released", '{"charged":"reservation"}')
    assert lab.store.survey(THREAD).duties == ()
    assert lab.recover(attempt="recovery-3").recovered == 0


@pytest.mark.parametrize(
    ("last", "accounting"),
    [
        ("reserve", '{"consumed":{"inputTokens":0'),
        ("request", '{"consumed":{"inputTokens":0'),
        ("freeze", '{"consumed":{"turns":2}}'),
    ],
)
def test_a_settled_parents_budget_is_accounted_by_history(lab, last, accounting):
    """Nothing for a child that never was, what was frozen for one that was joined."""
    family = Family(lab).upto(last)
    lab.settle(lab.claim("settling"))
    assert lab.recover().repaired
    status, text = reservation(lab, family)
    assert (status, text.startswith(accounting)) == ("released", True)
    assert family.children() == ([family.child] if family.child else [])


# --- aborts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("last", ["start", "attach", "suspend"])
def test_an_aborted_parent_aborts_its_child_once_and_waits(lab, last):
    """The child has one abort of a fixed author; the parent settles after it, not before."""
    family = Family(lab).upto(last)
    lab.store.begin(
        ClaimRequest(family.child_thread, "p", "c"),
        run_duration_ms=lambda _: 3_600_000,
        deployment_id="",
        now=lab.clock.now(),
    )
    abort(lab, family)
    assert family.decisions(family.recover()) == [("PropagateChildAbort", "repaired")]
    intent = lab.snapshot(family.child).abort_intent
    lab.clock.at += 1
    family.recover()
    assert (intent.author, lab.snapshot(family.child).abort_intent) == (ABORT_AUTHOR, intent)
    assert family.snapshot().suspension.children == (family.child,)
    lab.pass_lease()
    lab.recover_other(family.child_thread)
    assert lab.state(family.child) == "settled"
    assert lab.state(family.sid) != "settled"
    assert family.decisions(family.recover())[0][0] == "ResumeWaitingParent"
    assert lab.state(family.sid) != "settled"


def test_an_abort_of_a_child_that_settled_meanwhile_is_no_error(lab):
    """REX-015: the conflict is ignored, and the parent is not settled before the child is joined."""
    family = Family(lab).upto("attach")
    abort(lab, family)
    decision = d.PropagateChildAbort((family.child,))
    family.settle_child()
    assert execute(lab, family.sid, decision) == "deferred"
    assert lab.snapshot(family.child).abort_intent is None
    assert family.decisions(family.recover())[0][0] == "ResumeWaitingParent"
    assert lab.state(family.sid) != "settled"


@pytest.mark.parametrize("last", ["reserve", "request"])
def test_an_aborted_parent_admits_no_child(lab, last):
    """What was held for it is released with nothing consumed, then the parent settles."""
    family = Family(lab).upto(last)
    abort(lab, family)
    assert family.decisions(family.recover()) == [("ReleaseOrphanChildReservation", "repaired")]
    assert family.decisions(family.recover()) == [("SettleAborted", "repaired")]
    assert (family.children(), family.status()) == ([], "released")


def test_a_joined_childs_budget_is_freed_before_an_aborted_parent_settles(lab):
    """Then nothing holds it up."""
    family = Family(lab).upto("join")
    abort(lab, family)
    assert [family.decisions(family.recover())[0] for _ in range(2)] == [
        ("ApplyJoinAccounting", "repaired"),
        ("SettleAborted", "repaired"),
    ]
    assert lab.evidence(family.sid).settlement_outcome is Outcome.ABORTED


# --- after the deadline --------------------------------------------------------------------------------------------


def late(lab):
    """The parent's Run is over its time."""
    lab.clock.at += 3_600_001


@pytest.mark.parametrize("last", ["request"])
def test_after_the_deadline_no_child_is_admitted(lab, last):
    """What is provably childless is released instead."""
    family = Family(lab).upto(last)
    late(lab)
    assert family.decisions(family.recover()) == [("CompleteChildAdmission", "repaired")]
    assert (family.children(), family.status()) == ([], "released")
    assert family.decisions(family.recover()) == [("ResumePendingToolBatch", "deferred")]


@pytest.mark.parametrize("last", ["admit", "ready"])
def test_after_the_deadline_a_child_that_exists_is_linked(lab, last):
    """It holds its budget until it is joined: deferred."""
    family = Family(lab).upto(last)
    late(lab)
    assert family.decisions(family.recover()) == [("RepairSubagentStartLink", "deferred")]
    kinds = lab.kinds(family.sid)
    assert (kinds.count("SubagentStarted"), family.status(), lab.state(family.child)) == (1, "reserved", "ready")
    assert family.decisions(family.recover()) == [("EnsureWaitingForChild", "repaired")]


def test_after_the_deadline_a_child_of_whom_nobody_can_say_holds_its_budget(lab):
    """Not proven childless: nothing is released."""
    family = Family(lab).upto("request")
    late(lab)
    owner = Silent(lab.store)
    assert execute(lab, family.sid, d.AwaitChildAdmissionResolution(CALL), owner) == "deferred"
    assert family.status() == "reserved"


def test_after_the_deadline_lost_calls_wait_until_no_budget_is_held(lab):
    """MarkUnknown is replaced while a reservation is open, and follows when none is."""
    sid = lab.submit()
    claim = lab.respond(lab.claim(), declared("c1"), declared(CALL, kind=CallKind.DELEGATION))
    run = ids.run_id(sid)
    lab.store.reserve_child(claim, ids.child_reservation_id(run, CALL), CALL, {}, now=lab.clock.now())
    lab.pass_lease()
    late(lab)
    found = [lab.recover(attempt=f"recovery-{n}").decisions[0] for n in range(2)]
    assert [(told.decision, told.disposition) for told in found] == [
        ("MarkUnknown", "repaired"),
        ("MarkUnknown", "unknown"),
    ]
    assert lab.snapshot(sid).child_reservations[0].status == "released"


def test_after_the_deadline_a_living_owner_is_left_alone(lab):
    """Also then the claim decides."""
    family = Family(lab).upto("request", lose=False)
    lab.tear("UPDATE threads SET lease_until = ?", lab.clock.now() + 10_000_000)
    late(lab)
    assert family.decisions(family.recover()) == [("CompleteChildAdmission", "deferred")]
    assert family.status() == "reserved"
