"""The other decisions on a real store: markers, suspensions, resolutions, readiness, and what is left to a worker."""

import pytest

from thread_objects.contract import ids
from thread_objects.contract import records as r
from thread_objects.contract.states import Outcome, ResolutionKind

from .lab import LEASE_MS, declared
from .proxy import Proxied


def only(recovered):
    (decided,) = recovered.decisions
    return decided.decision, decided.disposition


def settlement(lab, claim):
    return r.SubmissionSettled(
        submission_id=claim.submission_id,
        settlement_id=ids.settlement_id(claim.submission_id),
        receipt_id=claim.receipt_id,
        outcome=Outcome.COMPLETED,
        run_id=ids.run_id(claim.submission_id),
        result="done",
    )


def test_finalizing_twice_keeps_the_first_time(lab):
    """REX-017."""
    sid = lab.submit()
    claim = lab.claim()
    lab.append(claim, ids.settlement_batch(sid), (ids.settlement_id(sid), settlement(lab, claim)))
    assert only(lab.recover()) == ("FinalizeLedgerFromHistory", "repaired")
    first = lab.store.finalize(sid, now=lab.clock.now()).settled_at
    lab.clock.at += 1_000
    assert lab.recover(attempt="recovery-2").decisions == ()
    assert lab.store.finalize(sid, now=lab.clock.now()).settled_at == first
    assert lab.state(sid) == "settled"


def test_a_claimed_input_is_left_to_the_next_claim(lab):
    """REX-007: recovery appends nothing; the worker applies it."""
    sid = lab.submit()
    lab.store.claim(lab.request("attempt-1"), now=lab.clock.now())
    lab.clock.at += LEASE_MS + 1
    before = lab.log_length()
    assert only(lab.recover()) == ("ApplyInput", "deferred")
    assert lab.log_length() == before
    assert lab.claim("attempt-2").input_applied
    assert lab.state(sid) == "input-applied"


def lost_marker(lab):
    sid = lab.submit()
    claim = lab.store.claim(lab.request("attempt-1"), now=lab.clock.now())
    run = ids.run_id(sid)
    lab.append(
        claim,
        ids.input_batch(sid),
        (ids.input_record(sid), r.UserInputRecorded(submission_id=sid, run_id=run, input="hi")),
        (ids.run_started_record(run), r.RunStarted(run_id=run, started_at=1, deadline_at=2)),
    )
    return sid


def test_a_lost_input_marker_is_written_from_the_record(lab):
    """REC-055: the input is canonical, so the row says so; a marker repair leaves no audit."""
    sid = lost_marker(lab)
    assert only(lab.recover()) == ("RepairInputMarker", "deferred")
    lab.pass_lease()
    assert only(lab.recover(attempt="recovery-2")) == ("RepairInputMarker", "repaired")
    (recorded,) = [rec for rec in lab.store.run_records(sid) if rec.kind == "UserInputRecorded"]
    assert lab.snapshot(sid).input_applied == recorded.sequence
    assert lab.snapshot(sid).ownership is None
    assert "RepairAnnotated" not in lab.kinds(sid)
    assert only(lab.recover(attempt="recovery-3")) == ("ResumeFromTurnBoundary", "deferred")


def asked(lab, *call_ids):
    sid = lab.submit()
    claim = lab.respond(lab.claim(), *(declared(c, approval=True) for c in call_ids))
    for call_id in call_ids:
        claim = lab.ask(claim, call_id)
    return sid, claim


def test_a_lost_suspension_is_restored(lab):
    """REX-008, REC-025: no handler ran; the row waits for the decision."""
    sid, _ = asked(lab, "c1")
    lab.pass_lease()
    assert only(lab.recover()) == ("AwaitApprovalDecision", "repaired")
    suspension = lab.snapshot(sid).suspension
    assert (suspension.reason, suspension.tool_call_ids) == ("ApprovalPending", ("c1",))
    assert [p["reason"] for p in lab.payloads(sid, "RepairAnnotated")] == ["recovery:AwaitApprovalDecision"]
    assert only(lab.recover(attempt="recovery-2")) == ("AwaitApprovalDecision", "deferred")
    lab.approve(sid, "c1")
    assert only(lab.recover(attempt="recovery-3")) == ("ResumePendingToolBatch", "deferred")


def test_an_asking_owner_is_left_alone(lab):
    """A live lease may still suspend by itself."""
    sid, _ = asked(lab, "c1")
    assert only(lab.recover()) == ("AwaitApprovalDecision", "deferred")
    assert lab.state(sid) == "input-applied"


def test_a_decision_that_overtakes_the_suspension_gives_the_claim_back(lab):
    """APP-007: suspending is refused because nothing is left to wait for."""
    sid, _ = asked(lab, "c1")
    lab.pass_lease()
    store = lab.store

    def late(claim, batch, calls, *, now):
        lab.approve(sid, "c1")
        return store.suspend(claim, batch, calls, now=now)

    assert only(lab.recover(store=Proxied(store, suspend=late))) == ("AwaitApprovalDecision", "deferred")
    assert lab.state(sid) == "input-applied"
    assert lab.snapshot(sid).ownership is None


@pytest.mark.parametrize("decision", ["approved", "denied"])
def test_a_decided_suspension_that_was_not_woken_wakes(lab, decision):
    """The decision was stored, the wake was lost."""
    sid, claim = asked(lab, "c1")
    lab.suspend(claim, "c1")
    lab.tear(
        "UPDATE approvals SET decision = ?, resolver = 'bob', reason = '', decided_at = 1, decided_by = 'x'", decision
    )
    assert only(lab.recover()) == ("ResumeSuspended", "deferred")
    assert lab.state(sid) == "input-applied"
    assert only(lab.recover(attempt="recovery-2")) == ("ResumePendingToolBatch", "deferred")


def test_one_of_two_approvals_still_waits(lab):
    """APP-002."""
    sid, claim = asked(lab, "c1", "c2")
    lab.suspend(claim, "c1", "c2")
    lab.approve(sid, "c1")
    assert only(lab.recover()) == ("AwaitApprovalDecision", "deferred")
    assert lab.state(sid) == "suspended"


def covered_unknown(lab, kind=ResolutionKind.COMPLETED_WITH_RESULT):
    sid = lab.lost(declared("c1"))
    lab.recover(attempt="marking")
    lab.resolve(sid, "c1", kind)
    lab.tear("UPDATE submissions SET state = 'unknown'")
    return sid


def test_resolutions_that_did_not_wake_their_row_are_replayed(lab):
    """EVI-034: the intent was stored, the wake was lost; nothing is appended by that."""
    sid = covered_unknown(lab)
    before = lab.log_length()
    assert only(lab.recover()) == ("ApplyUnknownResolutions", "repaired")
    assert lab.state(sid) == "input-applied"
    assert lab.log_length() == before


def test_a_retry_under_a_changed_contract_keeps_the_row_unknown(lab):
    """Explain and execution say the same: the permission does not hold."""
    sid = covered_unknown(lab, ResolutionKind.SAFE_TO_RETRY)
    assert only(lab.recover(retry_supported=lambda _agent, _call: False)) == ("ApplyUnknownResolutions", "unknown")
    assert lab.state(sid) == "unknown"
    assert only(lab.recover(attempt="recovery-2")) == ("ApplyUnknownResolutions", "repaired")


@pytest.mark.parametrize(("materialized", "decision"), [(1, "RepairReadiness"), (0, "CompleteMaterialization")])
def test_an_admitted_row_is_made_ready(lab, materialized, decision):
    """REC-051, REC-052: admitted and not ready, with or without a log."""
    sid = lab.submit()
    lab.tear("UPDATE submissions SET state = 'admitted', ready_at = NULL")
    lab.tear("UPDATE threads SET materialized = ?", materialized)
    assert only(lab.recover()) == (decision, "repaired")
    assert lab.state(sid) == "ready"
    assert lab.recover(attempt="recovery-2").decisions == ()
    assert lab.claim().submission_id == sid


@pytest.mark.parametrize(
    ("state", "decision", "disposition"),
    [("joining", "RevertJoining", "deferred"), ("joined", "AwaitHostSettlement", "deferred")],
)
def test_joined_rows_are_left_to_their_host(lab, state, decision, disposition):
    """REC-005: the joined side has its own decisions, which no store of this version can execute."""
    lab.submit("k1")
    second = lab.submit("k2")
    lab.claim()
    host = lab.store.view("thread-1").head.submission_id
    lab.tear("UPDATE submissions SET state = ?, host_submission_id = ? WHERE submission_id = ?", state, host, second)
    told = {d.submission_id: (d.decision, d.disposition) for d in lab.recover().decisions}
    assert told[second] == (decision, disposition)
    assert lab.state(second) == state


def test_a_run_between_two_turns_is_left_to_the_worker(lab):
    """Nothing was open, so nothing is repaired."""
    sid = lab.submit()
    lab.result(lab.respond(lab.claim(), declared("c1")), "c1")
    assert only(lab.recover()) == ("ResumeFromTurnBoundary", "deferred")
    assert lab.state(sid) == "input-applied"
