"""What an operator reads of the ledger and the log: explanations, obligations, verification. Nothing is written."""

from collections.abc import Callable
from typing import Any

import pytest

from storage import open_reader
from tests.contract.world import THREAD, World, call, state
from thread_objects.contract import ids
from thread_objects.contract.operations import (
    BlockedOn,
    Explanation,
    InspectRequest,
    Obligation,
    ObligationsPage,
    ObligationsQuery,
    Operation,
    Severity,
    ThreadExplanation,
)
from thread_objects.contract.records import RepairAnnotated
from thread_objects.contract.reports import Verification
from thread_objects.contract.states import (
    CheckOutcome,
    Decision,
    Disposition,
    Outcome,
    ResolutionKind,
    SubmissionState,
    ToolClass,
)
from thread_objects.core.faults import RecoveryFailure
from thread_objects.errors import AppendConflict, CorruptRecord, InvalidInput
from thread_objects.ports import Checkpoint

FAILURE = RecoveryFailure(phase="history", reason="failure", error_tag="X", operation="read")


def tamper(world: World, sql: str, **params: Any) -> None:
    """Change stored rows behind the store's back."""
    world.store._database.write(lambda tx: tx.run(sql, params))


def explain(world: World, sid: str, **asked: Any) -> Explanation | None:
    """Explain, and hold that nothing was written meanwhile."""
    request = InspectRequest(operation=Operation.EXPLAIN, submission_id=sid, **asked)
    return _only_reading(world, lambda: world.store.inspect(request, now=world.now)).explanation


def explained(world: World, sid: str) -> Explanation:
    """Explain a Submission that exists."""
    found = explain(world, sid)
    assert found is not None
    return found


def explain_thread(world: World, thread: str = THREAD, **asked: Any) -> ThreadExplanation | None:
    """Explain a Thread."""
    request = InspectRequest(operation=Operation.EXPLAIN_THREAD, thread_id=thread, **asked)
    return _only_reading(world, lambda: world.store.inspect(request, now=world.now)).thread


def obligations(world: World, *, aging: int = 60, overdue: int = 600, **asked: Any) -> ObligationsPage:
    """One page of obligations."""
    query = ObligationsQuery(aging_seconds=aging, overdue_seconds=overdue, **asked)
    request = InspectRequest(operation=Operation.SCAN_OBLIGATIONS, obligations=query)
    page = _only_reading(world, lambda: world.store.inspect(request, now=world.now)).obligations
    assert page is not None
    return page


def only(world: World, **asked: Any) -> Obligation:
    """The one obligation there is."""
    (found,) = obligations(world, **asked).obligations
    return found


def verified(world: World, thread: str = THREAD, *, require_all_settled: bool = False) -> Verification:
    """Verify a Thread."""
    request = InspectRequest(operation=Operation.VERIFY, thread_id=thread, require_all_settled=require_all_settled)
    found = _only_reading(world, lambda: world.store.inspect(request, now=world.now)).verification
    assert found is not None
    return found


def failed(found: Verification) -> set[str]:
    """The names of the checks that failed."""
    return {check.name for check in found.checks if check.outcome is CheckOutcome.FAILED}


def _only_reading(world: World, read: Callable[[], Any]) -> Any:
    database = world.store._database
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "write", lambda _work: pytest.fail("an operator's read wrote something"))
        return read()


# --- explain -------------------------------------------------------------------------------------------------------


def test_a_parked_unknown_is_explained_with_its_call(world: World):
    """ADM-001: AwaitUnknownResolution, disposition unknown, the open call listed with its age, and zero writes."""
    world.submit("k1")
    claim = world.respond(world.begin(), calls=[call("c1"), call("c2", tool_class=ToolClass.READONLY)])
    world.lose(claim, "c1")
    world.now += 61_999
    found = explained(world, claim.submission_id)
    assert (found.decision, found.disposition) == ("AwaitUnknownResolution", Disposition.UNKNOWN)
    assert found.meaning
    (open_call,) = found.unknown_calls
    assert (open_call.tool_call_id, open_call.turn, open_call.marked, open_call.resolved) == ("c1", 1, True, False)
    assert open_call.age_seconds == 61
    assert found.state_age_seconds == 61
    assert found.evidence.open_calls == ("c1",)
    assert found.owner is None


def test_a_lost_marker_is_explained_as_its_repair(world: World):
    """ADM-002: a ready row whose input is canonical is predicted as RepairInputMarker, repaired."""
    receipt = world.submit("k1")
    world.store.release(world.begin(), now=world.now)
    tamper(
        world,
        "UPDATE submissions SET state = 'ready', input_applied = NULL WHERE submission_id = :sid",
        sid=receipt.submission_id,
    )
    found = explained(world, receipt.submission_id)
    assert (found.decision, found.disposition) == ("RepairInputMarker", Disposition.REPAIRED)
    assert found.evidence.input_recorded


def test_a_lost_suspension_is_explained_as_its_restoration(world: World):
    """ADM-004: a claimable row with an undecided request awaits the decision, and its suspension is to be restored."""
    world.submit("k1")
    claim = world.respond(world.begin(), calls=[call("c1")])
    world.store.append(claim, world.approval_request(claim, "c1"), now=world.now)
    world.store.release(claim, now=world.now)
    world.now += 5_000
    found = explained(world, claim.submission_id)
    assert (found.decision, found.disposition) == ("AwaitApprovalDecision", Disposition.REPAIRED)
    assert found.details == {"call_id": "c1", "suspended": False}
    assert [(a.tool_call_id, a.decision, a.age_seconds) for a in found.approvals] == [("c1", None, 5)]


def test_a_suspended_approval_waits(world: World):
    """An intact suspension is nothing to repair; a stored decision is told, and that it is not canonical yet."""
    world.submit("k1")
    claim = world.respond(world.begin(), calls=[call("c1"), call("c2")])
    assert world.suspend(claim, "c1", "c2")
    world.answer_approval(claim.submission_id, "c1", Decision.APPROVED, resolver="ann")
    world.now += 7_500
    found = explained(world, claim.submission_id)
    assert (found.decision, found.disposition) == ("AwaitApprovalDecision", Disposition.DEFERRED)
    assert found.details == {"call_id": "c2", "suspended": True}
    assert found.state_age_seconds == 7
    assert {(a.tool_call_id, a.decision, a.canonical, a.resolver) for a in found.approvals} == {
        ("c1", Decision.APPROVED, False, "ann"),
        ("c2", None, False, None),
    }


def test_an_intent_is_listed_apart_from_its_call(world: World):
    """ADM-005: a stored resolution resolves nothing yet: the call is unresolved, the intent stands beside it."""
    world.submit("k1")
    claim = world.respond(world.begin(), calls=[call("c1"), call("c2")])
    world.lose(claim, "c1", "c2")
    world.resolve(claim.submission_id, "c1", ResolutionKind.NEVER_HAPPENED)
    found = explained(world, claim.submission_id)
    assert {(c.tool_call_id, c.resolved) for c in found.unknown_calls} == {("c1", False), ("c2", False)}
    (intent,) = found.unknown_intents
    assert (intent.tool_call_id, intent.resolution, intent.author) == ("c1", ResolutionKind.NEVER_HAPPENED, "ann")
    assert found.decision == "AwaitUnknownResolution"


def test_a_permission_without_its_operation_stays_unknown(world: World):
    """A stored permission to retry is predicted by what the asked worker's code still offers; unasked, it is unchecked."""
    world.submit("k1")
    claim = world.respond(world.begin(), calls=[call("c1")])
    world.lose(claim, "c1")
    sid = claim.submission_id
    world.resolve(sid, "c1", ResolutionKind.SAFE_TO_RETRY)
    tamper(world, "UPDATE submissions SET state = 'unknown', input_applied = 2 WHERE submission_id = :sid", sid=sid)
    request = InspectRequest(operation=Operation.EXPLAIN, submission_id=sid)
    told = {}
    for offered in (True, False, None):
        found = world.store.inspect(request, now=world.now, retry_contract=lambda *_, said=offered: said).explanation
        assert found is not None
        assert found.decision == "ApplyUnknownResolutions"
        told[found.retry_contract] = found.disposition
    assert told == {
        "supported": Disposition.REPAIRED,
        "unsupported": Disposition.UNKNOWN,
        "unchecked": Disposition.REPAIRED,
    }
    assert explained(world, sid).retry_contract == "unchecked"


def test_a_queued_row_is_told_what_stands_before_it(world: World):
    """Ages in whole seconds, the head and how many stand before; parked rows stand in nobody's way."""
    first = world.submit("k1")
    world.lose(world.respond(world.begin(), calls=[call("c1")]), "c1")
    world.submit("k2")
    world.now += 1_999
    third = world.submit("k3")
    world.now += 60_000
    head = world.begin(attempt="a2")
    found = explained(world, third.submission_id)
    assert (found.decision, found.disposition) == ("ApplyInput", Disposition.DEFERRED)
    assert (found.admitted_age_seconds, found.ready_age_seconds) == (60, 60)
    assert found.behind is not None
    assert (found.behind.count, found.behind.head_submission_id) == (1, head.submission_id)
    assert found.behind.head_state is SubmissionState.INPUT_APPLIED
    owner = explained(world, head.submission_id).owner
    assert owner is not None
    assert (owner.attempt_id, owner.lease_live) == ("a2", True)
    assert explained(world, first.submission_id).behind is None
    world.now += 30_001
    expired = explained(world, head.submission_id).owner
    assert expired is not None
    assert not expired.lease_live


def test_a_settled_row_is_explained_as_done(world: World):
    """NoAction, disposition none, with its outcome."""
    receipt = world.run_through("k1")
    found = explained(world, receipt.submission_id)
    assert (found.decision, found.disposition, found.outcome) == ("NoAction", Disposition.NONE, Outcome.COMPLETED)


def test_nobody_is_explained_as_nothing(world: World):
    """An id that does not exist, and one of another Thread than the named one, look the same."""
    receipt = world.submit("k1")
    assert explain(world, "sub-nobody") is None
    assert explain(world, receipt.submission_id, thread_id="other") is None
    assert explain(world, receipt.submission_id, thread_id=THREAD) is not None


def test_an_unreadable_record_is_told_typed(world: World):
    """A Submission whose record cannot be decoded is a typed error; its Thread's other rows are explained all the same."""
    bad = world.submit("k1")
    world.lose(world.respond(world.begin(), calls=[call("c1")]), "c1")
    good = world.submit("k2")
    tamper(
        world,
        'UPDATE records SET body = \'{"kind":"UserInputRecorded"}\' WHERE record_id = :rid',
        rid=ids.input_record(bad.submission_id),
    )
    with pytest.raises(CorruptRecord):
        explain(world, bad.submission_id)
    found = explain_thread(world)
    assert found is not None
    assert [row.submission_id for row in found.submissions] == [good.submission_id]
    assert [row.submission_id for row in found.unreadable] == [bad.submission_id]
    assert failed(verified(world)) >= {"schema-round-trip", "digest-chain"}


def test_a_thread_is_explained_in_pages(world: World):
    """Its own facts, and its unsettled rows in queue order, a page at a time; a Thread that does not exist is None."""
    world.run_through("k0")
    receipts = [world.submit(f"k{n}") for n in range(1, 6)]
    world.store.record_fault(THREAD, FAILURE, now=world.now)
    world.now += 3_000
    first = explain_thread(world, limit=2)
    assert first is not None
    assert (first.epoch, first.materialized, first.created_age_seconds) == (1, True, 3)
    assert first.fault is not None
    assert first.view.nonterminal == 5
    assert [row.submission_id for row in first.submissions] == [r.submission_id for r in receipts[:2]]
    rest = explain_thread(world, limit=32, after=first.next_after or 0)
    assert rest is not None
    assert [row.submission_id for row in rest.submissions] == [r.submission_id for r in receipts[2:]]
    assert rest.next_after is None
    assert [row.behind.count if row.behind else 0 for row in rest.submissions] == [2, 3, 4]
    assert explain_thread(world, "nobody") is None


def test_a_page_of_explanations_fits_the_wire(world: World, monkeypatch: pytest.MonkeyPatch):
    """Past its bytes a page ends with at least one row and a place to go on; a long reason is cut."""
    for n in range(3):
        claim = world.submit_and_begin(f"k{n}")
        world.lose(world.respond(claim, calls=[call("c1")]), "c1")
        world.resolve(claim.submission_id, "c1", ResolutionKind.ABORT_SUBMISSION, reason="x" * 60_000)
    monkeypatch.setattr("thread_objects.contract.limits.EXPLAINED_BYTES_MAX", 100)
    seen, after = [], 0
    while True:
        page = explain_thread(world, after=after)
        assert page is not None
        seen += [row.queue_sequence for row in page.submissions]
        assert len(page.submissions) == 1
        assert all(len(row.abort.reason) < 600 for row in page.submissions if row.abort is not None)
        if page.next_after is None:
            break
        after = page.next_after
    assert seen == [1, 2, 3]


# --- obligations -----------------------------------------------------------------------------------------------------


def test_ready_work_ages_from_its_readiness(world: World):
    """ADM-014: with thresholds 60 and 600, ready for 60 s is ready-aged and aging; a second less is ok, 600 s overdue."""
    world.submit("k1")
    for seconds, late in ((59, Severity.OK), (60, Severity.AGING), (599, Severity.AGING), (600, Severity.OVERDUE)):
        world.now = 1_000_000 + seconds * 1_000 + 999
        found = only(world)
        assert (found.blocked_on, found.age_seconds, found.severity) == (BlockedOn.READY_AGED, seconds, late)


def test_a_parent_that_waits_for_a_child_ages_from_its_suspension(world: World):
    """ADM-015: with thresholds 60 and 600, suspended WaitingForChild for 59 s is waitingForChild and ok."""
    world.submit("k1")
    claim = world.respond(world.begin(), calls=[call("c1")])
    world.now += 100_000
    assert world.suspend(claim, "c1")
    assert only(world).blocked_on is BlockedOn.APPROVAL
    tamper(world, "UPDATE submissions SET suspension_reason = 'WaitingForChild' WHERE state = 'suspended'")
    world.now += 59_000
    found = only(world)
    assert (found.blocked_on, found.age_seconds, found.severity) == (BlockedOn.WAITING_FOR_CHILD, 59, Severity.OK)


@pytest.mark.parametrize("joined", ["joining", "joined"])
def test_joined_work_runs(world: World, joined: str):
    """ADM-017: a joining or joined row is running-aged, from its readiness."""
    receipt = world.submit("k1")
    world.now += 30_000
    tamper(
        world,
        "UPDATE submissions SET state = :state, host_submission_id = 'h' WHERE submission_id = :sid",
        state=joined,
        sid=receipt.submission_id,
    )
    found = only(world)
    assert (found.blocked_on, found.age_seconds) == (BlockedOn.RUNNING_AGED, 30)


def test_an_unknown_outcome_ages_from_its_oldest_open_call(world: World):
    """Resolved by a settled record it counts no more; without any open call readiness stands in."""
    world.submit("k1")
    claim = world.respond(world.begin(), calls=[call("c1"), call("c2")])
    world.lose(claim, "c1")
    tamper(
        world,
        "INSERT INTO unknown_calls (submission_id, tool_call_id, turn, tool_name, marked_at, closed_at)"
        " VALUES (:sid, 'c0', 1, 'tool', 5, 7)",
        sid=claim.submission_id,
    )
    world.now += 90_000
    found = only(world)
    assert (found.blocked_on, found.age_seconds, found.severity) == (BlockedOn.UNKNOWN, 90, Severity.AGING)
    tamper(world, "UPDATE unknown_calls SET closed_at = 9")
    assert only(world).since == 1_000_000


def test_settled_work_is_no_obligation(world: World):
    """Nothing settled is listed."""
    world.run_through("k1")
    assert obligations(world) == ObligationsPage()


def test_obligations_are_listed_across_threads_in_pages(world: World):
    """Every unsettled row once, whatever the page's size; filters narrow, and a cursor is opaque and checked."""
    for thread in ("t1", "t2", "t3"):
        for key in ("a", "b"):
            world.submit(key, thread=thread, principal=f"p-{key}", agent=f"agent-{thread}")
    world.begin(thread="t2")
    everything = [(o.thread_id, o.queue_sequence) for o in obligations(world).obligations]
    assert everything == [(thread, n) for thread in ("t1", "t2", "t3") for n in (1, 2)]
    for limit in (1, 2, 4):
        found, after = [], None
        while True:
            page = obligations(world, limit=limit, after=after)
            assert len(page.obligations) <= limit
            found += [(o.thread_id, o.queue_sequence) for o in page.obligations]
            after = page.next_after
            if after is None:
                break
        assert found == everything
    assert {o.thread_id for o in obligations(world, thread_id="t2").obligations} == {"t2"}
    assert {o.thread_id for o in obligations(world, agent_id="agent-t3").obligations} == {"t3"}
    assert {o.principal for o in obligations(world, principal="p-b").obligations} == {"p-b"}
    running = obligations(world, blocked_on=(BlockedOn.RUNNING_AGED,)).obligations
    assert [(o.thread_id, o.queue_sequence) for o in running] == [("t2", 1)]
    assert obligations(world, severity_min=Severity.AGING).obligations == ()
    assert obligations(world, thread_id="nobody") == ObligationsPage()
    cursor = obligations(world, limit=1).next_after
    for bad in ("nonsense", "[1]", '[2,"a","b",3]', '[1,"a","b","c"]'):
        with pytest.raises(InvalidInput):
            obligations(world, after=bad)
    with pytest.raises(InvalidInput):
        obligations(world, after=cursor, thread_id="t2")


def test_a_page_of_obligations_looks_at_a_bounded_number_of_rows(world: World, monkeypatch: pytest.MonkeyPatch):
    """A filter that matches nothing answers an empty page with a cursor, again and again, until the end."""
    monkeypatch.setattr("thread_objects.contract.limits.OBLIGATIONS_SCAN_MAX", 2)
    for n in range(5):
        world.submit(f"k{n}")
    pages, after = [], None
    while True:
        page = obligations(world, agent_id="nobody", after=after)
        pages.append(len(page.obligations))
        after = page.next_after
        if after is None:
            break
    assert pages == [0, 0, 0]


def test_thresholds_that_contradict_are_refused():
    """What is overdue is aging too."""
    with pytest.raises(ValueError, match="overdueSeconds"):
        ObligationsQuery(aging_seconds=600, overdue_seconds=60)


def test_an_obligation_tells_abort_and_fault(world: World):
    """An abort asked for, and a retained fault of the Thread, are seen in the listing."""
    world.submit("k1")
    claim = world.begin()
    world.abort(claim.submission_id)
    world.store.record_fault(THREAD, FAILURE, now=world.now)
    found = only(world)
    assert (found.abort_requested, found.faulted) == (True, True)


# --- verify -----------------------------------------------------------------------------------------------------------


def busy(world: World) -> None:
    """A Thread with settled, aborted, parked, running and queued work."""
    world.run_through("k1")
    world.lose(world.respond(world.submit_and_begin("k2"), calls=[call("c1")]), "c1")
    world.abort(world.submit("k3").submission_id)
    claim = world.respond(world.submit_and_begin("k4"), calls=[call("c1")])
    world.finish(world.result(claim, "c1"), Outcome.FAILED)
    world.respond(world.submit_and_begin("k5"), calls=[call("c1")])
    world.submit("k6")


def test_a_thread_that_the_store_wrote_is_whole(world: World):
    """ADM-018: everything the store writes passes every check, on both databases, while work is in hand."""
    busy(world)
    found = verified(world)
    assert found.ok, [check for check in found.checks if check.outcome is CheckOutcome.FAILED]
    assert {check.outcome for check in found.checks} == {CheckOutcome.PASSED}
    assert (found.submissions, found.records) == (6, world.store.tail(THREAD).sequence)


def test_a_gap_in_the_stored_log_fails_and_stays(world: World):
    """ADM-020: a record that is gone fails sequence-contiguity, and verifying repairs nothing."""
    busy(world)
    tamper(world, "DELETE FROM records WHERE sequence = 3")
    assert failed(verified(world)) >= {"sequence-contiguity"}
    assert failed(verified(world)) >= {"sequence-contiguity"}


def test_a_settled_row_without_its_record_fails(world: World):
    """ADM-022: ledger-canonical-agreement fails for a row that was settled without a record."""
    receipt = world.submit("k1")
    tamper(
        world,
        "UPDATE submissions SET state = 'settled', outcome = 'completed', settled_at = 1 WHERE submission_id = :sid",
        sid=receipt.submission_id,
    )
    assert failed(verified(world)) == {"ledger-canonical-agreement"}


def test_all_settled_fails_while_something_is_owed(world: World):
    """ADM-024: asked for, it fails on an empty lane and while work is open; it passes when all is settled."""
    assert failed(verified(world, "nobody", require_all_settled=True)) == {"all-settled"}
    world.run_through("k1")
    assert verified(world, require_all_settled=True).ok
    world.submit("k2")
    assert failed(verified(world, require_all_settled=True)) == {"all-settled"}


def test_a_body_that_was_changed_breaks_the_chain(world: World):
    """A canonical, decodable body that is not the one appended is found by the digest chain alone."""
    receipt = world.submit("k1", "hello")
    claim = world.begin()
    world.finish(claim)
    record = world.store.records(THREAD, after=0, limit=10)[1]
    assert record.record_id == ids.input_record(receipt.submission_id)
    tamper(
        world, "UPDATE records SET body = REPLACE(body, 'hello', 'jello') WHERE record_id = :rid", rid=record.record_id
    )
    assert failed(verified(world)) == {"digest-chain"}


def test_a_stored_checkpoint_is_bound_to_the_log(world: World):
    """What the store kept passes; one whose digest is not the log's, or that is ahead of its end, fails."""
    claim = world.submit_and_begin("k1")
    tail = world.store.tail(THREAD)
    world.store.save_checkpoint(
        Checkpoint(thread_id=THREAD, sequence=tail.sequence, digest=tail.digest, body={}),
        now=world.now,
    )
    world.finish(claim)
    assert verified(world).ok
    tamper(world, "UPDATE checkpoints SET digest = 'x'")
    assert failed(verified(world)) == {"checkpoint-binding"}


def test_a_log_that_begins_behind_deleted_records_is_whole(world: World):
    """What retention deleted is no gap: the chain goes on from where the log begins; one record more is missing."""
    first = world.run_through("k1")
    cut = world.store.tail(THREAD)
    world.run_through("k2")
    tamper(world, "DELETE FROM records WHERE sequence <= :cut", cut=cut.sequence)
    tamper(world, "UPDATE threads SET base_sequence = :cut, base_digest = :d", cut=cut.sequence, d=cut.digest)
    assert failed(verified(world)) == {"ledger-canonical-agreement"}
    tamper(world, "UPDATE submissions SET redacted_at = 1 WHERE submission_id = :sid", sid=first.submission_id)
    assert verified(world).ok
    tamper(world, "DELETE FROM records WHERE sequence = :next", next=cut.sequence + 1)
    assert "sequence-contiguity" in failed(verified(world))


# --- the audit of a repair without a claim ------------------------------------------------------------------------------


def audit(world: World, sid: str, author: str = "ann") -> Any:
    """An audit batch."""
    rid = ids.repair_record(sid, "RepairReadiness")
    return world.batch(rid, (rid, RepairAnnotated(reason="recovery:RepairReadiness", details={"author": author})))


def test_an_audit_is_appended_once_without_a_claim(world: World):
    """At the log's own epoch, beside a living owner; the same audit again changes nothing, another one conflicts."""
    receipt = world.submit("k1")
    claim = world.begin()
    assert world.store.annotate(receipt.submission_id, audit(world, receipt.submission_id))
    assert world.store.annotate(receipt.submission_id, audit(world, receipt.submission_id))
    with pytest.raises(AppendConflict):
        world.store.annotate(receipt.submission_id, audit(world, receipt.submission_id, author="bob"))
    world.finish(claim)
    assert state(world, receipt.submission_id) == "settled"
    assert verified(world).ok


def test_an_empty_log_gets_no_audit(world: World):
    """A Thread that was never materialised has no log to annotate."""
    receipt = world.submit("k1")
    tamper(world, "DELETE FROM records")
    tamper(world, "UPDATE threads SET materialized = 0, tail_sequence = 0")
    assert not world.store.annotate(receipt.submission_id, audit(world, receipt.submission_id))


def test_a_reader_answers_as_the_store_does(world: World):
    """A client with the database reads the same explanation, page, verification and log end."""
    busy(world)
    reader = open_reader(world.url)
    query = ObligationsQuery(aging_seconds=60, overdue_seconds=600)
    for request in (
        InspectRequest(operation=Operation.EXPLAIN_THREAD, thread_id=THREAD),
        InspectRequest(operation=Operation.SCAN_OBLIGATIONS, obligations=query),
        InspectRequest(operation=Operation.VERIFY, thread_id=THREAD),
        InspectRequest(operation=Operation.OBSERVE, thread_id=THREAD),
    ):
        assert reader.inspect(request, now=world.now) == world.store.inspect(request, now=world.now)
    assert reader.tails([THREAD, "nobody"]) == {THREAD: world.store.tail(THREAD).sequence}
    reader.close()


def test_a_question_without_its_ids_is_refused(world: World):
    """What is asked about must be named."""
    for operation in (Operation.EXPLAIN, Operation.VERIFY, Operation.RETRY, Operation.SCAN_OBLIGATIONS):
        with pytest.raises(InvalidInput):
            world.store.inspect(InspectRequest(operation=operation), now=world.now)
