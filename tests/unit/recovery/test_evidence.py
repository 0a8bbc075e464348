"""What the records of a Run prove, and what they leave open."""

import pytest

from thread_objects.contract import ids
from thread_objects.contract import records as r
from thread_objects.contract.messages import ParentLink
from thread_objects.contract.states import Decision, Outcome, Resolution
from thread_objects.core.evidence import UndecodableRecord, evidence_of
from thread_objects.core.recovery import ChildReservation, DelegationCall, OpenCall, Snapshot, classify, tag
from thread_objects.core.recovery.evidence import BatchApproval, PendingApproval, PendingBatch, Resolved, WorkerCall

from .builders import RUN, SID, RunLog, call, row


def started(*calls, turn=1):
    return RunLog().input().response(turn, *calls)


def open_ids(log: RunLog) -> list[tuple[int, str]]:
    return [(c.turn, c.call_id) for c in evidence_of(row(), log.records).open_tool_calls]


def test_an_empty_log_proves_nothing():
    """Every absent fact has the reading that permits least."""
    found = evidence_of(row("admitted", thread_materialized=False), [])
    assert not found.thread_materialized
    assert not found.input_recorded
    assert found.settlement_outcome is None
    assert found.joined_input_covered
    assert not found.lineage_recorded


def test_a_declared_uncertain_call_is_open():
    """UNK-001, EVI-022: loss right after the response already counts."""
    (found,) = evidence_of(row(), started(call("c1")).records).open_tool_calls
    assert found == OpenCall("c1", "tool_c1", 1, arguments={"n": 1})


@pytest.mark.parametrize(
    "declared",
    [call("c1", "readonly"), call("c1", rejected=True)],
    ids=["readonly", "rejected arguments"],
)
def test_a_call_that_may_repeat_or_never_ran_is_not_open(declared):
    """Readonly calls may repeat; rejected arguments prove that this call never ran."""
    assert open_ids(started(declared)) == []


@pytest.mark.parametrize("kind", ["output", "durable", "delegation", "worker"])
def test_only_ordinary_calls_are_open(kind):
    """Every other kind has a replay contract of its own."""
    assert open_ids(started(call("c1", kind=kind), call("c2"))) == [(1, "c2")]


def test_an_idempotent_call_is_open():
    """Whether it may run again is decided when it is reconciled, not here."""
    assert open_ids(started(call("c1", "idempotent"))) == [(1, "c1")]


def test_a_result_closes_its_call_and_no_sibling():
    """A settled record closes exactly its call."""
    log = started(call("c1"), call("c2")).settled("c1", 1)
    assert open_ids(log) == [(1, "c2")]


@pytest.mark.parametrize(
    ("resolution", "still_open"),
    [("completed-with-result", False), ("failed-with-error", False), ("never-started", True), ("safe-retry", True)],
)
def test_only_a_resolution_with_a_result_closes(resolution, still_open):
    """A permission allows a run; it closes nothing."""
    log = started(call("c1")).unknown("c1", 1).resolved("c1", resolution, 1, at=77)
    found = evidence_of(row(), log.records).open_tool_calls
    assert bool(found) is still_open
    if still_open:
        assert found[0].resolved == (Resolved(Resolution(resolution), 77),)
        assert not found[0].marked


def test_a_permitted_call_lost_again_is_marked_by_the_newer_statement():
    """Each statement stands until a later resolution; the counters number the next records."""
    log = started(call("c1"), call("c2")).unknown("c1", 1).resolved("c1", "safe-retry", 1, at=5).unknown("c1", 1)
    first, second = evidence_of(row(), log.records).open_tool_calls
    assert (first.marked, first.unknown_records, first.resolved_records, first.unknown_batches) == (True, 2, 1, 2)
    assert (second.marked, second.unknown_records, second.unknown_batches) == (False, 0, 2)


def test_an_unapproved_request_before_dispatch_proves_the_whole_turn_unstarted():
    """APP-011: no handler of the batch starts before all needed approvals exist."""
    log = started(call("c1", approval=True), call("c2")).requested("c1")
    assert open_ids(log) == []
    assert open_ids(log.decided("c1", "denied")) == []


def test_an_approved_batch_may_have_started():
    """Approval is permission; after it nothing proves that the handlers did not begin."""
    log = started(call("c1", approval=True), call("c2")).requested("c1").decided("c1", "approved")
    assert open_ids(log) == [(1, "c1"), (1, "c2")]


def test_an_approval_that_was_not_even_asked_proves_the_turn_unstarted():
    """F36: a crash between the response and its approval request is never an unknown outcome."""
    log = started(call("c1", approval=True), call("c2"))
    found = evidence_of(row(), log.records)
    assert found.open_tool_calls == ()
    assert tag(classify(row(), found)) == "ResumePendingToolBatch"


def test_one_of_two_approvals_proves_nothing_started():
    """The second approval is still to be asked, so no handler has begun."""
    log = started(call("c1", approval=True), call("c2", approval=True)).requested("c1").decided("c1", "approved")
    assert open_ids(log) == []


def test_a_request_during_dispatch_proves_nothing():
    """Only a request recorded before the first dispatch says that nothing has started."""
    assert open_ids(started(call("c1"), call("c2")).requested("c1", blocks=False)) == [(1, "c1"), (1, "c2")]


def test_an_approval_proves_its_own_turn_only():
    """Another Turn's open call stays open."""
    log = started(call("c1")).response(2, call("c2", approval=True)).requested("c2", 2)
    assert open_ids(log) == [(1, "c1")]


@pytest.mark.parametrize("kind", ["ordinary", "durable", "delegation", "worker"])
def test_an_unclosed_unknown_call_is_open_whatever_its_kind(kind):
    """A call with an unknown record is never a delegation or worker call."""
    log = started(call("c1", kind=kind)).unknown("c1", 1)
    found = evidence_of(row(), log.records)
    assert [c.call_id for c in found.open_tool_calls] == ["c1"]
    assert found.open_delegation_calls == ()
    assert found.open_worker_calls == ()


def test_a_statement_about_a_call_nobody_declared_keeps_it_open():
    """Without its response the worst is assumed of a call."""
    assert open_ids(RunLog().input().unknown("lost", 3)) == [(3, "lost")]


def test_delegation_is_known_by_its_recorded_kind():
    """REC-015: a tool's name says nothing."""
    log = started(call("delegate_x"), call("c2", kind="delegation"), call("c3", kind="worker"))
    found = evidence_of(row(), log.records)
    assert [c.call_id for c in found.open_tool_calls] == ["delegate_x"]
    assert [c.call_id for c in found.open_delegation_calls] == ["c2"]
    assert found.open_worker_calls == (WorkerCall("c3", 1),)


def test_the_same_call_id_in_a_later_turn_is_another_call():
    """F33: ids are scoped to their Turn; an earlier result closes nothing later."""
    log = started(call("c1")).settled("c1", 1).response(2, call("c1"))
    assert open_ids(log) == [(2, "c1")]
    assert open_ids(log.settled("c1")) == []


def test_another_runs_records_are_not_evidence():
    """F33: two Runs of one Thread may use the same call ids."""
    other = RunLog("sub-2").input().response(1, call("c1")).settled("c1", 1)
    assert open_ids(_joined(started(call("c1")), other)) == [(1, "c1")]


def _joined(first: RunLog, second: RunLog) -> RunLog:
    first.records += second.records
    return first


def test_a_batch_is_pending_until_its_last_result():
    """REC-048: the last response counts, while a call of it has no settled record."""
    log = started(call("c1")).settled("c1", 1).response(2, call("c2"), call("c3", "readonly")).settled("c2", 2)
    assert evidence_of(row(), log.records).pending_batch == PendingBatch(2, 2)
    log.settled("c3", 2)
    assert evidence_of(row(), log.records).pending_batch is None


def test_a_response_without_calls_leaves_no_batch():
    """Nothing is declared, nothing pends."""
    assert evidence_of(row(), started().records).pending_batch is None


def test_a_batchs_approvals_are_its_requested_unclosed_calls_in_declaration_order():
    """Order of the declaration, not of the requests."""
    log = started(call("c1"), call("c2"), call("c3")).requested("c3").requested("c1").decided("c1", "approved")
    found = evidence_of(row(), log.records)
    assert found.pending_batch == PendingBatch(
        1, 3, (BatchApproval("c1", Decision.APPROVED), BatchApproval("c3", None))
    )
    assert found.approvals_pending == (PendingApproval("c3", 1),)


def test_a_repeated_call_id_counts_the_decisions_before_it():
    """A decision given for an earlier Turn's call is not one on a later call."""
    log = started(call("c1")).requested("c1").decided("c1", "approved").settled("c1", 1)
    log.response(2, call("c1")).requested("c1", 2)
    assert evidence_of(row(), log.records).approvals_pending == (PendingApproval("c1", 2, earlier_decisions=1),)


def test_the_settlement_and_the_abort_are_read_from_the_log():
    """The outcome is the record's."""
    found = evidence_of(row(), RunLog().input().settlement("failed").records)
    assert found.settlement_outcome is Outcome.FAILED
    assert not found.abort_recorded


def test_a_joined_input_is_covered_by_a_later_response_of_its_host():
    """Coverage is the host's next response, not its presence."""
    snapshot = row("joined", host_submission_id="sub-0")
    own = RunLog().input()
    host = RunLog("sub-0").input()
    assert not evidence_of(snapshot, own.records, host.records).joined_input_covered
    host.response(1)
    host.settlement()
    found = evidence_of(snapshot, own.records, host.records)
    assert found.joined_input_covered
    assert found.host_settlement_outcome is Outcome.COMPLETED


@pytest.mark.parametrize("payload", [{"kind": "FromTheFuture"}, {"kind": "ToolCallSettled"}, {}])
def test_a_record_that_does_not_decode_is_refused(payload):
    """Unreadable evidence is never read as absence."""
    log = started(call("c1"))
    broken = log.records[1].model_copy(update={"payload": payload})
    with pytest.raises(UndecodableRecord) as refused:
        evidence_of(row(), [log.records[0], broken])
    assert refused.value.sequence == 2


def test_what_the_run_spent_is_summed_over_attempts():
    """F26: a settlement that recovery writes loses no usage."""
    log = started(call("c1"), call("o1", kind="output")).settled("c1", 1).settled("o1", 1).response(2, call("c2"))
    found = evidence_of(row(), log.records).usage
    assert (found.turns, found.tool_calls, found.input_tokens) == (2, 1, None)
    spent = log.records[2].payload | {"inputTokens": 7, "outputTokens": 2}
    log.records[2] = log.records[2].model_copy(update={"payload": spent})
    found = evidence_of(row(), log.records).usage
    assert (found.input_tokens, found.output_tokens) == (7, 2)


# --- delegations ---------------------------------------------------------------------------------------------------


def requested_child(call_id: str = "d1") -> r.SubagentRequested:
    return r.SubagentRequested(
        run_id=RUN,
        turn_id=ids.turn_id(RUN, 1),
        turn=1,
        tool_call_id=call_id,
        delegation_id=call_id,
        target_agent_id="child",
        child_input=None,
        child_input_digest="",
        grant_digest="",
        reservation_id="res-1",
        reservation_digest="",
        child_thread_id="child-thread",
        child_principal="p",
        child_idempotency_key="k",
    )


STARTED = r.SubagentStarted(
    run_id=RUN,
    tool_call_id="d1",
    child_thread_id="child-thread",
    child_submission_id="child-1",
    child_receipt_id="r",
    child_run_id="run:child-1",
)
JOINED = r.SubagentJoined(
    run_id=RUN,
    tool_call_id="d1",
    child_submission_id="child-1",
    child_settlement_id="settlement:child-1",
    child_outcome=Outcome.COMPLETED,
    child_result_digest="",
    projected_result_digest="",
    reservation_id="res-1",
    final_accounting={"consumed": 1},
)


def holding(status: str) -> Snapshot:
    return row(child_reservations=(ChildReservation("res-1", "d1", status),))


def delegations(log: RunLog, snapshot: Snapshot | None = None) -> tuple[DelegationCall, ...]:
    return evidence_of(snapshot or row(), log.records).open_delegation_calls


def test_a_delegation_is_known_by_its_recorded_kind_and_by_its_records():
    """How far it came is read from the records; none of it is an ordinary open call."""
    log = started(call("d1", kind="delegation"))
    (found,) = delegations(log)
    assert (found.requested, found.started, found.joined, found.request) == (False, False, False, None)
    (found,) = delegations(log.add(requested_child()))
    assert (found.requested, found.started, found.child_thread_id, found.child_submission_id) == (
        True,
        False,
        "child-thread",
        None,
    )
    assert found.request == requested_child()
    (found,) = delegations(log.add(STARTED))
    assert (found.started, found.child_submission_id, found.admission) == (True, "child-1", None)
    assert open_ids(log) == []


@pytest.mark.parametrize(
    ("status", "owed"), [("reserved", True), ("releasePending", True), ("released", False)], ids=str
)
def test_a_joined_delegation_is_owed_while_its_budget_is_held(status, owed):
    """Its call is closed; what is left is its accounting."""
    log = started(call("d1", kind="delegation")).add(requested_child()).add(STARTED).add(JOINED).settled("d1", 1)
    found = delegations(log, holding(status))
    assert [(view.joined, view.accounting) for view in found] == ([(True, {"consumed": 1})] if owed else [])
    assert tag(classify(holding(status), evidence_of(holding(status), log.records))) == (
        "ApplyJoinAccounting" if owed else "ResumeFromTurnBoundary"
    )


def test_a_request_without_its_declaration_is_a_delegation_all_the_same():
    """The record says what the call is; it is never taken for an uncertain effect."""
    log = RunLog().input().add(requested_child())
    assert [view.call_id for view in delegations(log)] == ["d1"]
    assert open_ids(log) == []


def test_a_delegation_with_an_unknown_record_is_listed_as_an_open_call():
    """Whatever its kind: somebody said that it may have happened."""
    log = started(call("d1", kind="delegation")).unknown("d1", 1)
    assert (delegations(log), open_ids(log)) == ((), [(1, "d1")])


def test_lineage_counts_only_for_the_parent_that_the_row_names():
    """A fabricated one establishes nobody."""
    lineage = r.SubagentLineageRecorded(
        parent_link=ParentLink(submission_id="parent", tool_call_id="d1"),
        parent_submission_id="parent",
        child_input_digest="",
        grant_digest="",
    )
    log = RunLog().add(lineage)
    for linkage, recorded in ((("parent", "d1"), True), (("parent", "d2"), False), (None, False)):
        assert evidence_of(row("admitted", parent_linkage=linkage), log.records).lineage_recorded is recorded


def test_the_runs_deadline_is_read_from_its_start():
    """It decides nothing in the classifier."""
    assert evidence_of(row(), RunLog().input().records).deadline_at == 2
    assert evidence_of(row(), RunLog().records).deadline_at is None


def test_a_joined_settlement_settles_its_row_although_it_names_its_hosts_run():
    """The settlement is the Submission's, whoever's Run it shares."""
    settled = r.SubmissionSettled(
        submission_id=SID,
        settlement_id=ids.settlement_id(SID),
        receipt_id="rcp-1",
        outcome=Outcome.COMPLETED,
        run_id="run:host",
    )
    snapshot = row("joined", host_submission_id="host")
    found = evidence_of(snapshot, RunLog().add(settled).records)
    assert found.settlement_outcome is Outcome.COMPLETED
    assert tag(classify(snapshot, found)) == "FinalizeLedgerFromHistory"
