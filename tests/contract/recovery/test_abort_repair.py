"""SettleAborted on a real store: what is settled, what is audited, and what waits."""

import pytest

from thread_objects.contract import ids
from thread_objects.contract import records as r
from thread_objects.contract.states import Outcome, ResolutionKind
from thread_objects.core.recovery import CompletedWithResult

from .lab import LEASE_MS, declared
from .proxy import Proxied


def outcomes(recovered):
    return [(d.decision, d.disposition.value) for d in recovered.decisions]


SETTLED = ("SettleAborted", "repaired")
WAITS = ("SettleAborted", "deferred")


def test_a_lost_run_under_an_abort_settles_aborted(lab):
    """ABT-002: the abort is canonical before the settlement."""
    sid = lab.lost()
    lab.abort(sid)
    assert outcomes(lab.recover()) == [SETTLED]
    assert lab.state(sid) == "settled"
    kinds = lab.kinds(sid)
    assert kinds.index("AbortRequested") < kinds.index("SubmissionSettled")
    (settled,) = lab.payloads(sid, "SubmissionSettled")
    assert (settled["outcome"], settled["runId"]) == ("aborted", ids.run_id(sid))
    assert lab.payloads(sid, "AbortRequested")[0]["author"] == "operator"


def test_open_calls_are_audited_and_not_resolved(lab):
    """REX-012: the evidence of uncertainty stays, no resolution is invented."""
    sid = lab.lost(declared("c1"), declared("c2"))
    lab.abort(sid)
    assert outcomes(lab.recover()) == [SETTLED]
    assert [p["toolCallId"] for p in lab.payloads(sid, "ToolCallUnknown")] == ["c1", "c2"]
    assert "ToolCallResolved" not in lab.kinds(sid)


def test_no_reconciler_is_asked_under_an_abort(lab):
    """REC-011: an abort beats uncertainty."""
    sid = lab.lost(declared("c1"))
    lab.abort(sid)
    assert outcomes(lab.reconciled(CompletedWithResult("late"))) == [SETTLED]
    assert "ToolCallSettled" not in lab.kinds(sid)


def test_unknown_work_under_an_abort_settles_with_its_evidence(lab):
    """REC-012, UNK-010: one unknown record, no second one; a fact already given becomes canonical."""
    sid = lab.lost(declared("c1"), declared("c2"))
    lab.recover()
    lab.resolve(sid, "c1", ResolutionKind.COMPLETED_WITH_RESULT, result="paid")
    lab.abort(sid)
    assert outcomes(lab.recover(attempt="recovery-2")) == [SETTLED]
    assert [p["toolCallId"] for p in lab.payloads(sid, "ToolCallUnknown")] == ["c1", "c2"]
    assert [(p["toolCallId"], p["resolution"]) for p in lab.payloads(sid, "ToolCallResolved")] == [
        ("c1", "completed-with-result")
    ]
    assert [p["result"] for p in lab.payloads(sid, "ToolCallSettled")] == ["paid"]


def test_a_permission_is_not_used_by_an_abort(lab):
    """Nothing runs any more: the call stays uncertain."""
    sid = lab.lost(declared("c1"))
    lab.recover()
    lab.resolve(sid, "c1", ResolutionKind.SAFE_TO_RETRY)
    lab.abort(sid)
    assert outcomes(lab.recover(attempt="recovery-2")) == [SETTLED]
    assert "ToolCallResolved" not in lab.kinds(sid)


def test_a_suspended_run_is_denied_before_it_settles(lab):
    """REX-010, ABT-007: what was approved stays approved, what was not is denied by recovery; nothing ran."""
    sid = lab.submit()
    claim = lab.respond(lab.claim(), declared("c1", approval=True), declared("c2", approval=True))
    claim = lab.ask(lab.ask(claim, "c1"), "c2")
    lab.suspend(claim, "c1", "c2")
    lab.approve(sid, "c1")
    lab.abort(sid)
    assert outcomes(lab.recover()) == [SETTLED]
    said = [(p["toolCallId"], p["decision"], p["resolver"]) for p in lab.payloads(sid, "ToolApprovalDecided")]
    assert said == [("c1", "approved", "bob"), ("c2", "denied", "recovery")]
    assert lab.state(sid) == "settled"
    assert "ToolCallUnknown" not in lab.kinds(sid)
    assert "ToolCallSettled" not in lab.kinds(sid)


def test_a_run_woken_by_its_last_approval_still_settles_aborted(lab):
    """The abort arrived first; the approvals are not canonical, so nothing has started."""
    sid = lab.submit()
    claim = lab.ask(lab.respond(lab.claim(), declared("c1", approval=True)), "c1")
    lab.suspend(claim, "c1")
    lab.abort(sid)
    lab.approve(sid, "c1")
    assert outcomes(lab.recover()) == [SETTLED]
    assert "ToolCallUnknown" not in lab.kinds(sid)


def queued_abort(lab, sid):
    """An accepted abort whose publication the transaction of the intent did not reach."""
    lab.tear("UPDATE submissions SET abort_at = 1, abort_author = 'op', abort_reason = '' WHERE submission_id = ?", sid)


def test_queued_work_settles_behind_a_busy_head(lab):
    """REX-011, REC-010: at any place in the queue, without a claim; the head is not touched."""
    head, second, third = lab.submit("k1"), lab.submit("k2"), lab.submit("k3")
    claim = lab.claim()
    queued_abort(lab, third)
    assert outcomes(lab.recover()) == [("ResumeFromTurnBoundary", "deferred"), SETTLED]
    assert lab.state(third) == "settled"
    assert (lab.snapshot(head).ownership.epoch, lab.state(second)) == (claim.epoch, "ready")
    lab.settle(claim)
    assert lab.claim("attempt-2").submission_id == second


def test_a_claimed_row_whose_input_is_not_recorded_settles_aborted(lab):
    """The owner died between its claim and the input."""
    sid = lab.submit()
    lab.store.claim(lab.request("attempt-1"), now=lab.clock.now())
    lab.clock.at += LEASE_MS + 1
    lab.abort(sid)
    assert outcomes(lab.recover()) == [SETTLED]
    (settled,) = lab.payloads(sid, "SubmissionSettled")
    assert settled.get("runId") is None


def test_a_live_owner_settles_its_own_abort(lab):
    """Nothing is written beside a live lease."""
    sid = lab.submit()
    lab.claim()
    lab.abort(sid)
    before = lab.log_length()
    assert outcomes(lab.recover()) == [WAITS]
    assert lab.log_length() == before


def test_aborted_work_behind_another_head_waits_for_its_turn(lab):
    """Work that ran, woken behind a running head, is settled when it is the head."""
    first = lab.lost(declared("c1"))
    lab.recover()
    second = lab.submit("k2")
    lab.claim("attempt-2")
    lab.abort(first)
    assert outcomes(lab.recover(attempt="recovery-2"))[0] == WAITS
    lab.pass_lease()
    assert outcomes(lab.recover(attempt="recovery-3"))[0] == SETTLED
    assert lab.state(second) == "input-applied"


def test_an_admitted_row_settles_aborted_when_it_is_the_head(lab):
    """Its Thread gets its log first."""
    sid = lab.submit()
    lab.tear("UPDATE submissions SET state = 'admitted', ready_at = NULL")
    queued_abort(lab, sid)
    assert outcomes(lab.recover()) == [SETTLED]
    assert lab.state(sid) == "settled"


def test_an_admitted_row_behind_the_head_waits(lab):
    """Only ready rows settle out of order."""
    lab.submit("k1")
    second = lab.submit("k2")
    lab.tear("UPDATE submissions SET state = 'admitted', ready_at = NULL WHERE submission_id = ?", second)
    queued_abort(lab, second)
    assert outcomes(lab.recover()) == [WAITS]
    assert lab.state(second) == "admitted"


def test_a_canonical_settlement_beats_an_abort(lab):
    """ABT-008, REC-002: the outcome is the record's."""
    sid = lab.submit()
    claim = lab.claim()
    settled = r.SubmissionSettled(
        submission_id=sid,
        settlement_id=ids.settlement_id(sid),
        receipt_id=claim.receipt_id,
        outcome=Outcome.COMPLETED,
        run_id=ids.run_id(sid),
        result="done",
    )
    lab.append(claim, ids.settlement_batch(sid), (ids.settlement_id(sid), settled))
    lab.tear("UPDATE submissions SET abort_at = 1, abort_author = 'op', abort_reason = ''")
    assert outcomes(lab.recover()) == [("FinalizeLedgerFromHistory", "repaired")]
    assert lab.state(sid) == "settled"
    assert len(lab.payloads(sid, "SubmissionSettled")) == 1


def test_repeating_a_settled_abort_changes_nothing(lab):
    """Recovery is safe to repeat."""
    sid = lab.lost(declared("c1"))
    lab.abort(sid)
    lab.recover()
    before = lab.log_length()
    assert outcomes(lab.recover(attempt="recovery-2")) == []
    assert lab.log_length() == before


@pytest.mark.parametrize("operation", ["append", "finish"])
def test_a_crash_on_the_way_is_taken_up_by_the_next_pass(lab, operation):
    """Whatever the first pass left behind, one settlement and one audit of each kind remain."""
    sid = lab.lost(declared("c1"))
    lab.abort(sid)

    class Killed(BaseException):
        pass

    def die(*_args, **_kwargs):
        raise Killed

    with pytest.raises(Killed):
        lab.recover(store=Proxied(lab.store, **{operation: die}, release=die))
    assert outcomes(lab.recover(attempt="recovery-2")) == [WAITS]
    assert outcomes(lab.recover(attempt="recovery-3", ended_attempts=("recovery-1",))) == [SETTLED]
    for kind in ("AbortRequested", "ToolCallUnknown", "SubmissionSettled"):
        assert len(lab.payloads(sid, kind)) == 1
