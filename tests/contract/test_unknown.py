"""Unknown Outcomes: explicit, counted, answered by people, and never reopened."""

from typing import Any

import pytest

from storage import open_reader
from tests.contract.world import THREAD, World, call, kinds, state
from thread_objects.contract import ids
from thread_objects.contract.messages import ResolveUnknown, SubmissionStatus
from thread_objects.contract.records import ToolCallUnknown
from thread_objects.contract.states import Outcome, ResolutionKind
from thread_objects.errors import OwnershipLost, SettlementConflict
from thread_objects.ports import Claim

RESULT = ResolutionKind.COMPLETED_WITH_RESULT
NEVER = ResolutionKind.NEVER_HAPPENED
RETRY = ResolutionKind.SAFE_TO_RETRY
ABORT = ResolutionKind.ABORT_SUBMISSION


@pytest.fixture
def claim(world: World) -> Claim:
    """A claim whose first response declares two uncertain calls."""
    world.submit("k1")
    return world.respond(world.begin(), calls=[call("c1"), call("c2")])


@pytest.fixture
def sid(world: World, claim: Claim) -> str:
    """A Submission with two lost calls."""
    world.lose(claim, "c1", "c2")
    return claim.submission_id


def status_of(world: World, sid: str) -> SubmissionStatus:
    """What a client sees."""
    reader = open_reader(world.url)
    try:
        found = reader.status(sid)
        assert found is not None
        return found
    finally:
        reader.close()


def test_marking_parks_the_row_and_ends_the_claim(world: World, claim: Claim, sid: str):
    """Record first, state second, one transaction (UNK-001)."""
    assert kinds(world)[-2:] == ["ToolCallUnknown", "ToolCallUnknown"]
    assert state(world, sid) == "unknown"
    view = world.store.view(THREAD)
    assert (view.nonterminal, view.head, view.unknown) == (1, None, 1)
    with pytest.raises(OwnershipLost):
        world.store.renew(claim, now=world.now)


def test_later_input_runs_past_unknown_work(world: World, sid: str):
    """The debt stays visible and blocks nobody (UNK-002)."""
    world.run_through("k2")
    assert state(world, sid) == "unknown"
    shown = status_of(world, sid).unknown_calls
    assert [(p.tool_call_id, p.tool_name, p.turn, p.arguments) for p in shown] == [
        ("c1", "tool", 1, {"of": "c1"}),
        ("c2", "tool", 1, {"of": "c2"}),
    ]


def test_all_open_calls_covered_wakes_the_row(world: World, sid: str):
    """One resolution is not enough, the last one wakes (UNK-004)."""
    first = world.resolve(sid, "c1", RESULT, result={"paid": True})
    assert (first.unknown.state, first.progress) == ("unknown", True)
    assert not world.store.apply_unknown_resolutions(sid, now=world.now)
    second = world.resolve(sid, "c2", RETRY)
    assert (second.unknown.state, second.progress) == ("input-applied", True)
    assert world.store.apply_unknown_resolutions(sid, now=world.now)
    assert world.begin(attempt="attempt-2").submission_id == sid
    found = world.store.snapshot(sid)
    assert {(i.tool_call_id, i.kind, i.author) for i in found.unknown_resolutions} == {
        ("c1", RESULT, "ann"),
        ("c2", RETRY, "ann"),
    }
    assert next(i.result for i in found.unknown_resolutions if i.tool_call_id == "c1") == {"paid": True}


def test_resolved_calls_are_no_longer_shown(world: World, sid: str):
    """The client sees what is still unresolved."""
    world.resolve(sid, "c1", NEVER)
    assert [pending.tool_call_id for pending in status_of(world, sid).unknown_calls] == ["c2"]


def test_repeated_resolution_returns_the_recorded_one(world: World, sid: str):
    """Author and time of the first stay; nothing progresses (UNK-005)."""
    first = world.resolve(sid, "c1", RETRY).unknown
    world.now += 9
    again = world.resolve(sid, "c1", RETRY, author="bob", reason="")
    assert again.unknown == first.model_copy(update={"replayed": True})
    assert not again.progress


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"kind": RESULT, "result": 1}, {"kind": RESULT, "result": 2}),
        ({"kind": RESULT, "result": 1}, {"kind": RESULT, "result": 1, "is_failure": True}),
        ({"kind": RESULT, "result": 1}, {"kind": NEVER}),
        ({"kind": NEVER}, {"kind": RESULT, "result": 1}),
        ({"kind": RETRY}, {"kind": ABORT}),
        ({"kind": NEVER}, {"kind": RETRY}),
        ({"kind": RESULT, "result": 1}, {"kind": ABORT}),
    ],
)
def test_divergent_resolution_conflicts(world: World, sid: str, first: dict[str, Any], second: dict[str, Any]):
    """Facts agree with facts, permissions with permissions, and no permission follows a fact (UNK-008)."""
    assert world.resolve(sid, "c1", **first).refusal is None
    refusal = world.resolve(sid, "c1", **second).refusal
    assert (refusal.code, refusal.fields["tool_call_id"]) == ("UnknownResolutionConflict", "c1")
    assert world.store.abort_intent(sid) is None
    assert len(world.store.snapshot(sid).unknown_resolutions) == 1


def test_fact_may_stand_beside_an_earlier_permission(world: World, sid: str):
    """Later truth is accepted and erases nothing (UNK-007)."""
    world.resolve(sid, "c1", RETRY)
    answer = world.resolve(sid, "c1", RESULT, result="paid")
    assert (answer.refusal, answer.progress) == (None, True)
    assert {i.kind for i in world.store.snapshot(sid).unknown_resolutions} == {RETRY, RESULT}


def test_fact_must_agree_with_a_committed_result(world: World, sid: str):
    """A claim that contradicts the log conflicts; one that repeats it is accepted."""
    for lost in ("c1", "c2"):
        world.resolve(sid, lost, RETRY)
    claim = world.begin(attempt="attempt-2")
    world.result(claim, "c1", value="paid")
    assert world.resolve(sid, "c1", NEVER).refusal.code == "UnknownResolutionConflict"
    assert world.resolve(sid, "c1", RESULT, result="lost").refusal.code == "UnknownResolutionConflict"
    assert world.resolve(sid, "c1", RESULT, result="paid").refusal is None


def test_call_that_is_not_unknown_is_not_found(world: World, sid: str):
    """Only marked calls can be resolved."""
    assert world.resolve(sid, "c9", NEVER).refusal.code == "NotFound"
    assert world.resolve("sub-nobody", "c1", NEVER).refusal.code == "NotFound"


def test_result_belongs_to_a_completion_only(world: World, sid: str):
    """A permission or a denial with a result is refused and stores nothing."""
    assert world.resolve(sid, "c1", RETRY, result=1).refusal is not None
    assert world.resolve(sid, "c1", NEVER, is_failure=True).refusal is not None
    assert world.resolve(sid, "c1", RESULT, result="x" * 1_048_577).refusal.code == "InvalidInput"
    assert world.store.snapshot(sid).unknown_resolutions == ()


def test_abort_resolution_stores_the_intent_and_closes_nothing(world: World, sid: str):
    """It is an abort with this author and reason; the row becomes claimable and stays unknown."""
    answer = world.resolve(sid, "c1", ABORT, author="bob", reason="give up")
    assert (answer.unknown.state, answer.progress, answer.cancel_submission) == ("unknown", True, None)
    intent = world.store.abort_intent(sid)
    assert intent is not None
    assert (intent.author, intent.reason) == ("bob", "give up")
    assert [pending.tool_call_id for pending in status_of(world, sid).unknown_calls] == ["c1", "c2"]
    assert not world.store.apply_unknown_resolutions(sid, now=world.now)
    assert world.begin(attempt="attempt-2").state == "unknown"


def test_abort_resolution_of_running_work_asks_its_attempt_to_look(world: World, sid: str):
    """A row that runs again is owned; its Attempt is told."""
    world.resolve(sid, "c1", NEVER)
    world.resolve(sid, "c2", RETRY)
    world.begin(attempt="attempt-2")
    assert world.resolve(sid, "c2", ABORT).refusal.code == "UnknownResolutionConflict"
    assert world.abort(sid).cancel_submission == sid


def test_marking_the_same_again_changes_nothing(world: World, claim: Claim, sid: str):
    """A repeated mark is a no-op, with or without a claim (UNK-014)."""
    tail = world.store.tail(THREAD)
    world.lose(claim, "c1", "c2")
    world.abort(sid)
    again = world.begin(attempt="attempt-2")
    view = world.store.mark_unknown(again, [], {"c1": "tool"}, now=world.now)
    assert view.head.state == "unknown"
    assert world.store.tail(THREAD) == tail
    assert world.store.snapshot(sid).ownership is None


def test_marking_further_calls_adds_them(world: World, claim: Claim):
    """The open calls are those marked so far."""
    world.lose(claim, "c1")
    world.abort(claim.submission_id)
    again = world.begin(attempt="attempt-2")
    run = ids.run_id(claim.submission_id)
    lost = ToolCallUnknown(run_id=run, turn=1, tool_call_id="c2", tool_name="tool", reason="lost")
    batch = world.batch("more", (ids.tool_unknown_record(run, 1, "c2"), lost))
    world.store.mark_unknown(again, [batch], {"c2": "tool"}, now=world.now)
    assert world.store.snapshot(claim.submission_id).unknown_calls == ("c1", "c2")


def test_marking_settled_work_conflicts(world: World, claim: Claim):
    """What is settled is not uncertain (UNK-015)."""
    world.finish(claim)
    with pytest.raises(SettlementConflict) as conflict:
        world.lose(claim, "c1")
    assert conflict.value.existing_outcome == "completed"


def test_marking_needs_the_live_claim(world: World, claim: Claim):
    """A superseded worker marks nothing."""
    world.now += 40_000
    world.begin(attempt="attempt-2")
    with pytest.raises(OwnershipLost):
        world.lose(claim, "c1")
    assert "ToolCallUnknown" not in kinds(world)


def test_committed_result_closes_the_call(world: World, sid: str):
    """A call that ran again and has a result is open no more."""
    for lost in ("c1", "c2"):
        world.resolve(sid, lost, RETRY)
    claim = world.begin(attempt="attempt-2")
    world.result(claim, "c1")
    assert world.store.snapshot(sid).unknown_calls == ("c2",)


@pytest.fixture
def settled_sid(world: World, claim: Claim, sid: str) -> str:
    """Aborted, settled work with two calls that may have happened."""
    world.abort(sid)
    world.finish(world.begin(attempt="attempt-2"), Outcome.ABORTED)
    assert [pending.tool_call_id for pending in status_of(world, sid).unknown_calls] == ["c1", "c2"]
    return sid


def test_settled_work_takes_a_fact_and_does_not_reopen(world: World, settled_sid: str):
    """The fact becomes canonical at once; outcome and state stay (UNK-010)."""
    answer = world.resolve(settled_sid, "c1", RESULT, result="paid")
    assert (answer.refusal, answer.unknown.state, answer.progress) == (None, "settled", True)
    assert kinds(world)[-3:] == ["SubmissionSettled", "ToolCallSettled", "ToolCallResolved"]
    result, resolved = world.store.records(THREAD, after=0, limit=100)[-2:]
    assert (result.payload["result"], result.payload["toolCallId"]) == ("paid", "c1")
    assert (resolved.payload["resolution"], resolved.payload["author"]) == ("completed-with-result", "ann")
    status = status_of(world, settled_sid)
    assert (status.state, status.settlement.outcome) == ("settled", "aborted")
    assert [pending.tool_call_id for pending in status.unknown_calls] == ["c2"]
    assert world.resolve(settled_sid, "c1", RESULT, result="paid").unknown.replayed
    assert world.resolve(settled_sid, "c1", NEVER).refusal.code == "UnknownResolutionConflict"


def test_settled_work_takes_that_it_never_happened(world: World, settled_sid: str):
    """The other fact is recorded as a resolution alone."""
    assert world.resolve(settled_sid, "c2", NEVER).unknown.state == "settled"
    assert world.store.records(THREAD, after=0, limit=100)[-1].payload["resolution"] == "never-started"
    assert [pending.tool_call_id for pending in status_of(world, settled_sid).unknown_calls] == ["c1"]


@pytest.mark.parametrize("kind", [RETRY, ABORT])
def test_settled_work_takes_no_permission(world: World, settled_sid: str, kind: ResolutionKind):
    """There is nothing left to permit (UNK-011)."""
    refusal = world.resolve(settled_sid, "c1", kind).refusal
    assert (refusal.code, refusal.fields["existing_outcome"]) == ("SettlementConflict", "aborted")


def test_settled_work_takes_facts_about_open_calls_only(world: World):
    """A call that is not declared, or that has its result, is refused (UNK-010)."""
    world.submit("k1")
    claim = world.respond(world.begin(), calls=[call("c1"), call("c2")])
    claim = world.result(claim, "c1")
    world.finish(claim, Outcome.FAILED)
    sid = claim.submission_id
    for wrong in ("c1", "c9"):
        assert world.resolve(sid, wrong, RESULT, result="done").refusal.code == "LedgerError"
    assert world.resolve(sid, "c2", RESULT, result="done").refusal is None


def test_same_batch_answers_as_the_first_time(world: World, sid: str):
    """Met again, a batch of resolutions repeats its answers and its progress."""
    said = [
        ResolveUnknown(
            thread_id=THREAD, submission_id=sid, tool_call_id=lost, resolution=NEVER, author="ann", reason=""
        )
        for lost in ("c1", "c2", "c1")
    ]
    request = world.request(*said)
    first = world.send(request).answers
    assert [answer.progress for answer in first] == [True, True, False]
    assert [answer.unknown.state for answer in first] == ["unknown", "input-applied", "input-applied"]
    world.now += 4
    again = world.send(request).answers
    assert [answer.progress for answer in again] == [True, True, False]
    assert [answer.unknown.resolved_at for answer in again] == [answer.unknown.resolved_at for answer in first]
