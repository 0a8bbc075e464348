"""MarkUnknown on a real store: what is reconciled, what is stated, and what is never run."""

import threading

import pytest

from thread_objects.contract.states import ResolutionKind, ToolClass
from thread_objects.core.recovery import (
    CompletedWithResult,
    NeverStarted,
    Permit,
    SafeToRetry,
    Uncertain,
    resumption,
)
from thread_objects.errors import BindingUnavailable

from .lab import LEASE_MS, THREAD, declared

RETRY, NEVER, RESULT = (
    ResolutionKind.SAFE_TO_RETRY,
    ResolutionKind.NEVER_HAPPENED,
    ResolutionKind.COMPLETED_WITH_RESULT,
)


def only(recovered):
    (decided,) = recovered.decisions
    return decided.decision, decided.disposition


def test_a_lost_uncertain_call_becomes_an_unknown_outcome(lab):
    """UNK-001: no reconciler, so nobody can say."""
    sid = lab.lost(declared("c1"))
    assert only(lab.recover()) == ("MarkUnknown", "unknown")
    assert lab.state(sid) == "unknown"
    assert [p["toolCallId"] for p in lab.payloads(sid, "ToolCallUnknown")] == ["c1"]
    assert lab.snapshot(sid).ownership is None


def test_only_the_uncertain_remainder_is_marked(lab):
    """REX-001: one call is recovered, the other is not."""
    sid = lab.lost(declared("c1"), declared("c2"))
    answers = {"c1": CompletedWithResult({"id": 7}), "c2": Uncertain()}
    recovered = lab.reconciled(lambda call: answers[call.tool_call_id])
    assert only(recovered) == ("MarkUnknown", "unknown")
    assert [p["toolCallId"] for p in lab.payloads(sid, "ToolCallUnknown")] == ["c2"]
    assert [(p["toolCallId"], p["result"]) for p in lab.payloads(sid, "ToolCallSettled")] == [("c1", {"id": 7})]
    assert [p["resolution"] for p in lab.payloads(sid, "ToolCallResolved")] == ["completed-with-result"]
    assert lab.snapshot(sid).unknown_calls == ("c2",)


def test_a_recovered_failure_needs_nobody(lab):
    """REX-002: a failure is an answer; the handler is not run."""
    sid = lab.lost(declared("c1"))
    recovered = lab.reconciled(CompletedWithResult("no funds", is_failure=True))
    assert only(recovered) == ("MarkUnknown", "repaired")
    assert recovered.repaired
    assert [p["resolution"] for p in lab.payloads(sid, "ToolCallResolved")] == ["failed-with-error"]
    assert lab.state(sid) == "input-applied"
    assert only(lab.recover()) == ("ResumeFromTurnBoundary", "deferred")


def test_an_idempotent_call_is_left_to_the_worker(lab):
    """REX-004: the reconciler is not asked, nothing is stated."""
    sid = lab.lost(declared("c1", ToolClass.IDEMPOTENT))
    asked = []
    assert only(lab.reconciled(asked.append)) == ("MarkUnknown", "deferred")
    assert asked == []
    assert "ToolCallUnknown" not in lab.kinds(sid)
    assert lab.claim("attempt-2").submission_id == sid


def test_a_live_owner_is_left_alone(lab):
    """REX-005: nothing is written while another lease lives."""
    sid = lab.submit()
    lab.respond(lab.claim(), declared("c1"))
    before = lab.log_length()
    assert only(lab.recover()) == ("MarkUnknown", "deferred")
    assert lab.log_length() == before
    assert lab.state(sid) == "input-applied"


def test_the_lease_of_an_ended_attempt_is_superseded_at_once(lab):
    """EVI-024: nobody waits 30 s for a worker that was seen to die."""
    sid = lab.submit()
    lab.respond(lab.claim("dead"), declared("c1"))
    assert only(lab.recover(ended_attempts=("dead",))) == ("MarkUnknown", "unknown")
    assert lab.state(sid) == "unknown"


@pytest.mark.parametrize("verdict", [NeverStarted(), SafeToRetry()])
def test_a_proof_permits_the_very_next_claim_and_writes_nothing(lab, verdict):
    """Proofs other than a result leave no record; the worker runs the call."""
    sid = lab.lost(declared("c1"))
    permits: set[Permit] = set()
    assert only(lab.reconciled(verdict, permits)) == ("MarkUnknown", "deferred")
    assert "ToolCallUnknown" not in lab.kinds(sid)
    assert "ToolCallResolved" not in lab.kinds(sid)
    claim = lab.claim("attempt-2")
    assert [c.call_id for c in resumption(lab.snapshot(sid), lab.evidence(sid), permits, claim.epoch).permitted] == [
        "c1"
    ]
    lab.pass_lease()
    later = lab.claim("attempt-3")
    assert resumption(lab.snapshot(sid), lab.evidence(sid), permits, later.epoch).permitted == ()


def failing(_call):
    raise RuntimeError("supplier is away: secret-token")


def unbound(_agent, _tool):
    raise BindingUnavailable(agent_id="agent", reason="gone")


@pytest.mark.parametrize(
    "answer", [failing, lambda _call: "maybe", lambda _call: None, CompletedWithResult({"big": "x" * 2_000_000})]
)
def test_a_reconciler_that_fails_proves_nothing(lab, answer):
    """The call stays open and unmarked; the next pass asks again."""
    sid = lab.lost(declared("c1"))
    recovered = lab.reconciled(answer)
    assert only(recovered) == ("MarkUnknown", "deferred")
    assert recovered.fault is None
    assert "ToolCallUnknown" not in lab.kinds(sid)
    assert only(lab.reconciled(Uncertain(), attempt="recovery-2")) == ("MarkUnknown", "unknown")


def test_a_missing_binding_proves_nothing(lab):
    """Whoever could be asked is not deployed here."""
    sid = lab.lost(declared("c1"))
    assert only(lab.recover(reconcilers=unbound)) == ("MarkUnknown", "deferred")
    assert lab.state(sid) == "input-applied"


def test_an_awaitable_answer_is_awaited(lab):
    """Reconcilers may be coroutines."""
    sid = lab.lost(declared("c1"))

    async def look(call):
        return CompletedWithResult(call.arguments)

    assert only(lab.reconciled(look)) == ("MarkUnknown", "repaired")
    assert lab.payloads(sid, "ToolCallSettled")[0]["result"] == {"of": "c1"}


def test_a_hanging_reconciler_is_left_behind(lab, monkeypatch):
    """It costs its bound, not the Thread."""
    monkeypatch.setattr("thread_objects.contract.limits.RECONCILE_TIMEOUT_MS", 20)
    sid = lab.lost(declared("c1"), declared("c2"))
    release = threading.Event()

    def hang(call):
        if call.tool_call_id == "c1":
            release.wait(30)
        return Uncertain()

    assert only(lab.reconciled(hang)) == ("MarkUnknown", "unknown")
    release.set()
    assert lab.snapshot(sid).unknown_calls == ("c2",)


def test_a_sibling_that_could_not_be_asked_is_asked_after_the_resolution(lab):
    """A later statement of the same Turn has an id of its own."""
    sid = lab.lost(declared("c1"), declared("c2"))

    def half(call):
        if call.tool_call_id == "c2":
            raise RuntimeError
        return Uncertain()

    assert only(lab.reconciled(half)) == ("MarkUnknown", "unknown")
    lab.resolve(sid, "c1", RESULT, result="done")
    assert lab.state(sid) == "input-applied"
    assert only(lab.reconciled(Uncertain(), attempt="recovery-2")) == ("MarkUnknown", "unknown")
    assert lab.snapshot(sid).unknown_calls == ("c2",)
    assert [p["toolCallId"] for p in lab.payloads(sid, "ToolCallUnknown")] == ["c1", "c2"]
    assert [p["toolCallId"] for p in lab.payloads(sid, "ToolCallSettled")] == ["c1"]


def test_marking_twice_states_once(lab):
    """UNK-014, EVI-035: a repeated pass changes nothing."""
    sid = lab.lost(declared("c1"))
    lab.recover()
    before = lab.log_length()
    assert only(lab.recover(attempt="recovery-2")) == ("AwaitUnknownResolution", "unknown")
    assert lab.log_length() == before
    assert lab.state(sid) == "unknown"


def test_a_parked_unknown_frees_later_input(lab):
    """UNK-002, F3: uncertain work does not hold up its Thread."""
    first = lab.lost(declared("c1"))
    second = lab.submit("k2")
    lab.recover()
    assert lab.claim("attempt-2").submission_id == second
    assert lab.state(first) == "unknown"


def test_a_stored_result_is_recorded_before_anybody_is_asked(lab):
    """Recorded intent first; the reconciler has nothing to say."""
    sid = lab.lost(declared("c1"))
    lab.recover()
    lab.resolve(sid, "c1", RESULT, result={"id": 7})
    assert lab.state(sid) == "input-applied"
    assert only(lab.reconciled(failing, attempt="recovery-2")) == ("MarkUnknown", "repaired")
    assert lab.payloads(sid, "ToolCallSettled")[0]["result"] == {"id": 7}
    assert lab.payloads(sid, "ToolCallResolved")[0]["author"] == "ann"
    assert lab.evidence(sid).open_tool_calls == ()


@pytest.mark.parametrize("kind", [NEVER, RETRY])
def test_a_permission_runs_its_call_once(lab, kind):
    """F3: a permitted run that is lost too is uncertain again, and asks again."""
    sid = lab.lost(declared("c1"))
    lab.recover()
    for round_ in (1, 2, 3):
        lab.clock.at += 1
        lab.resolve(sid, "c1", kind)
        assert only(lab.recover(attempt=f"recovery-{round_}")) == ("MarkUnknown", "deferred")
        claim = lab.claim(f"attempt-{round_}")
        found = resumption(lab.snapshot(sid), lab.evidence(sid), (), claim.epoch)
        assert [c.call_id for c in found.permitted] == ["c1"]
        _use_permission(lab, sid, claim)
        lab.pass_lease()  # the run is lost
        assert only(lab.recover(attempt=f"again-{round_}")) == ("MarkUnknown", "unknown")
        assert lab.state(sid) == "unknown"
        assert only(lab.recover(attempt=f"still-{round_}")) == ("AwaitUnknownResolution", "unknown")
    assert len(lab.payloads(sid, "ToolCallUnknown")) == 4
    assert len(lab.payloads(sid, "ToolCallResolved")) == 3


def _use_permission(lab, sid, claim):
    from thread_objects.core.recovery import resolution_batches

    for batch in resolution_batches(lab.snapshot(sid), lab.evidence(sid), lab.clock.now()):
        claim = claim.at(lab.store.append(claim, batch, now=lab.clock.now()))


def test_a_permission_under_a_changed_contract_leaves_the_row_unknown(lab):
    """The permission was for the original operation."""
    sid = lab.lost(declared("c1"))
    lab.recover()
    lab.resolve(sid, "c1", RETRY)
    recovered = lab.recover(attempt="recovery-2", retry_supported=lambda _agent, _call: False)
    assert only(recovered) == ("MarkUnknown", "unknown")
    assert lab.state(sid) == "unknown"
    assert [p["resolution"] for p in lab.payloads(sid, "ToolCallResolved")] == ["safe-retry"]
    assert only(lab.recover(attempt="recovery-3")) == ("AwaitUnknownResolution", "unknown")


def test_a_row_that_changed_under_the_claim_is_left_as_it_is(lab):
    """The owner committed its result between the look and the claim."""
    sid = lab.lost(declared("c1"))
    store = lab.store

    class Late:
        def __getattr__(self, name):
            return getattr(store, name)

        def claim_submission(self, request, submission_id, *, now):
            claim = lab.claim("attempt-2")
            lab.store.release(lab.result(claim, "c1"), now=now)
            return store.claim_submission(request, submission_id, now=now)

    assert only(lab.recover(store=Late())) == ("MarkUnknown", "deferred")
    assert "ToolCallUnknown" not in lab.kinds(sid)
    assert lab.snapshot(sid).ownership is None


def test_a_claim_lost_in_the_middle_defers(lab):
    """The epoch fences recovery as it fences everybody."""
    sid = lab.lost(declared("c1"))

    def overtaken(_call):
        lab.pass_lease()
        lab.claim("attempt-2")
        return CompletedWithResult("late")

    assert only(lab.reconciled(overtaken, timeout_ms=10**9)) == ("MarkUnknown", "deferred")
    assert "ToolCallSettled" not in lab.kinds(sid)
    assert lab.snapshot(sid).ownership.attempt_id == "attempt-2"


def test_a_repair_under_a_claim_is_audited_once(lab):
    """The audit names the decision; repeating the repair leaves the first one."""
    sid = lab.lost(declared("c1", ToolClass.IDEMPOTENT))
    lab.recover()
    lab.recover(attempt="recovery-2")
    assert [p["reason"] for p in lab.payloads(sid, "RepairAnnotated")] == ["recovery:MarkUnknown"]
    assert [rec.record_id for rec in lab.store.run_records(sid) if rec.kind == "RepairAnnotated"] == [
        f"repair:{sid}:MarkUnknown"
    ]
    assert lab.store.view(THREAD).head.submission_id == sid


def test_a_failing_audit_changes_nothing(lab):
    """REX-018: the repair stands."""
    sid = lab.lost(declared("c1"))
    store = lab.store

    class NoAudit:
        def __getattr__(self, name):
            return getattr(store, name)

        def append(self, claim, batch, *, now):
            if batch.batch_id.startswith("repair:"):
                raise RuntimeError("audit refused")
            return store.append(claim, batch, now=now)

    assert only(lab.recover(store=NoAudit())) == ("MarkUnknown", "unknown")
    assert lab.state(sid) == "unknown"
    assert "RepairAnnotated" not in lab.kinds(sid)


def test_a_slow_reconciler_does_not_cost_the_claim(lab):
    """The lease is extended while somebody else's code takes its time."""
    sid = lab.lost(declared("c1"), declared("c2"))

    def slow(call):
        lab.clock.at += 12_000
        if call.tool_call_id == "c2":
            assert lab.snapshot(sid).ownership.lease_until == lab.clock.now() - 12_000 + LEASE_MS
        return Uncertain()

    assert only(lab.reconciled(slow)) == ("MarkUnknown", "unknown")
