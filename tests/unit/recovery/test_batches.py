"""How intents and findings become canonical."""

from dataclasses import replace

from thread_objects.agents.results import from_settled
from thread_objects.contract.states import Resolution, ResolutionKind
from thread_objects.core.evidence import evidence_of
from thread_objects.core.recovery import (
    approval_batches,
    repair_batch,
    resolution_batches,
    unknown_batches,
    unknown_intent,
)
from thread_objects.core.recovery.evidence import Resolved

from .builders import RUN, SID, RunLog, call, decided, fact, intent, log, open_call, pending, row

NOW = 1_700_000_000_123


def appended(run: RunLog, batches) -> RunLog:
    for found in batches:
        for record in found.records:
            run.add(record.payload, found.batch_id)
    return run


def ids_of(batches):
    return [(b.batch_id, *(r.record_id for r in b.records)) for b in batches]


def test_a_stored_result_settles_and_resolves_its_call():
    """UNK-012: the model sees the result; the record names who gave it."""
    snapshot = row(unknown_resolutions=(fact("c1", {"id": 7}),))
    (found,) = resolution_batches(snapshot, log(open_tool_calls=(open_call("c1"),)), NOW)
    settled, resolved = (record.payload for record in found.records)
    assert ids_of([found]) == [(f"resolve:{SID}:c1", f"tool-settled:{RUN}:1:c1", f"tool-resolved:{RUN}:1:c1")]
    assert (settled.result, settled.is_failure) == ({"id": 7}, False)
    assert (resolved.resolution, resolved.author, resolved.resolved_at) == ("completed-with-result", "ann", 500)


def test_a_stored_failure_resolves_as_failed():
    """REX-002: a failure is a result too."""
    snapshot = row(unknown_resolutions=(fact("c1", "no funds", is_failure=True),))
    (found,) = resolution_batches(snapshot, log(open_tool_calls=(open_call("c1"),)), NOW)
    settled, resolved = (record.payload for record in found.records)
    assert settled.is_failure
    assert resolved.resolution is Resolution.FAILED_WITH_ERROR


def test_a_recorded_result_reads_as_a_tool_return():
    """The model's library reads the part as its own."""
    snapshot = row(unknown_resolutions=(fact("c1", {"id": 7}),))
    (found,) = resolution_batches(snapshot, log(open_tool_calls=(open_call("c1"),)), NOW)
    (part,) = from_settled(found.records[0].payload)
    assert (part.tool_name, part.tool_call_id, part.content, part.outcome) == ("tool_c1", "c1", {"id": 7}, "success")


def test_a_permission_is_recorded_without_a_result():
    """The record is what shows later that the permission was used."""
    calls = (open_call("c1"), open_call("c2"), open_call("c3"))
    snapshot = row(
        unknown_resolutions=(
            intent("c1", ResolutionKind.NEVER_HAPPENED),
            intent("c2", ResolutionKind.SAFE_TO_RETRY),
            intent("c3", ResolutionKind.ABORT_SUBMISSION),
        )
    )
    found = resolution_batches(snapshot, log(open_tool_calls=calls), NOW)
    assert [b.records[0].payload.resolution for b in found] == ["never-started", "safe-retry"]
    assert [len(b.records) for b in found] == [1, 1]
    assert len(resolution_batches(snapshot, log(open_tool_calls=calls), NOW, facts_only=True)) == 1


def test_appended_resolutions_are_not_built_again():
    """Whatever became canonical is no longer an intent: the second pass has nothing to append."""
    run = appended(RunLog().input().response(1, call("c1"), call("c2")), [])
    run.unknown("c1", 1, f"mark-unknown:{SID}:1").unknown("c2", 1, f"mark-unknown:{SID}:1")
    snapshot = row(unknown_resolutions=(fact("c1"), intent("c2", ResolutionKind.SAFE_TO_RETRY)))
    batches = resolution_batches(snapshot, evidence_of(snapshot, run.records), NOW)
    assert len(batches) == 2
    appended(run, batches)
    assert resolution_batches(snapshot, evidence_of(snapshot, run.records), NOW) == ()


def test_later_rounds_never_use_an_id_again():
    """F3: a permitted call that is lost twice keeps every statement and every answer."""
    run = RunLog().input().response(1, call("c1"))
    snapshot, seen = row(), set()
    for at in (100, 200, 300):
        evidence = evidence_of(snapshot, run.records)
        lost = unknown_batches(snapshot, [(c, "lost") for c in evidence.open_tool_calls], NOW)
        appended(run, lost)
        snapshot = replace(snapshot, unknown_resolutions=(intent("c1", ResolutionKind.SAFE_TO_RETRY, at=at),))
        permitted = resolution_batches(snapshot, evidence_of(snapshot, run.records), NOW)
        appended(run, permitted)
        for found in ids_of((*lost, *permitted)):
            assert not seen.intersection(found)
            seen.update(found)
    assert f"tool-unknown:{RUN}:1:c1" in seen
    assert unknown_intent(snapshot, evidence_of(snapshot, run.records).open_tool_calls[0]) is None


def test_unknown_records_go_turn_by_turn_in_bounded_batches():
    """At most 256 records a batch, one Turn each, no id twice; a standing statement is not repeated."""
    calls = [open_call(f"c{n}", 1) for n in range(300)] + [open_call("d", 2), open_call("e", 2, marked=True)]
    batches = unknown_batches(row(), [(c, "lost") for c in calls], NOW)
    assert [len(b.records) for b in batches] == [256, 44, 1]
    assert [b.batch_id for b in batches] == [
        f"mark-unknown:{SID}:1",
        f"mark-unknown:{SID}:1#2",
        f"mark-unknown:{SID}:2",
    ]
    assert {r.payload.turn for r in batches[0].records} == {1}


def test_a_second_batch_of_a_turn_is_numbered():
    """A sibling that could not be reconciled the first time is marked later, in the same Turn."""
    (found,) = unknown_batches(row(), [(open_call("c2", unknown_batches=1), "lost")], NOW)
    assert ids_of([found]) == [(f"mark-unknown:{SID}:1#2", f"tool-unknown:{RUN}:1:c2")]


def test_stored_decisions_become_canonical_in_the_order_asked():
    """APP-012: decisions precede results; requests without an intent stay as they are."""
    snapshot = row(approval_decisions=(decided("c2", "denied"), decided("c1", "approved")))
    evidence = log(approvals_pending=(pending("c1"), pending("c2"), pending("c3")))
    found = approval_batches(snapshot, evidence, NOW)
    assert ids_of(found) == [
        (f"approval-decision:{SID}:c1", f"approval-decision:{RUN}:1:c1"),
        (f"approval-decision:{SID}:c2", f"approval-decision:{RUN}:1:c2"),
    ]
    assert [b.records[0].payload.decision for b in found] == ["approved", "denied"]
    assert found[0].records[0].payload.resolver == "bob"


def test_a_repeated_call_ids_decision_has_a_batch_of_its_own():
    """F33: the second decision on one call id does not collide with the first."""
    snapshot = row(approval_decisions=(decided("c1", "approved", turn=2),))
    (found,) = approval_batches(snapshot, log(approvals_pending=(pending("c1", 2, earlier=1),)), NOW)
    assert ids_of([found]) == [(f"approval-decision:{SID}:c1#2", f"approval-decision:{RUN}:2:c1")]


def test_a_used_intent_is_not_appended_twice():
    """The same permission never becomes canonical twice."""
    snapshot = row(unknown_resolutions=(intent("c1", ResolutionKind.SAFE_TO_RETRY),))
    used = open_call("c1", resolved=(Resolved(Resolution.SAFE_RETRY, 500),))
    assert resolution_batches(snapshot, log(open_tool_calls=(used,)), NOW) == ()


def test_a_repair_audit_names_its_decision():
    """One audit per decision and row: repeating it collides on purpose."""
    found = repair_batch(row(), "MarkUnknown", NOW, deployment_id="dep")
    assert ids_of([found]) == [(f"repair:{SID}:MarkUnknown", f"repair:{SID}:MarkUnknown")]
    assert found.records[0].payload.reason == "recovery:MarkUnknown"
    assert found.records[0].deployment_id == "dep"
