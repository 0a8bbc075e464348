"""What the records of a Run prove, and what they leave open."""

import pytest

from thread_objects.contract.states import Decision, Outcome, Resolution
from thread_objects.core.evidence import UndecodableRecord, evidence_of
from thread_objects.core.recovery import OpenCall, classify, tag
from thread_objects.core.recovery.evidence import BatchApproval, PendingApproval, PendingBatch, Resolved, WorkerCall

from .builders import RunLog, call, row


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
