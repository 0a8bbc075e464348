"""The fold of a log: by Run, in the order of inputs, whatever lies between."""

from typing import Any

import pytest
from pydantic import ValidationError

from thread_objects.agents.transcript import Transcript
from thread_objects.contract import records as r
from thread_objects.contract.messages import LogRecord
from thread_objects.contract.states import CallKind, Decision, Outcome, Resolution, ToolClass


def call(call_id: str, tool_class: ToolClass = ToolClass.UNCERTAIN, **more: Any) -> r.DeclaredCall:
    """A declared call."""
    return r.DeclaredCall(
        tool_call_id=call_id, tool_name="t", arguments={}, arguments_digest="d", tool_class=tool_class, **more
    )


def responded(run: str, turn: int, *calls: r.DeclaredCall) -> r.ModelResponseRecorded:
    """A response."""
    return r.ModelResponseRecorded(
        run_id=run, turn_id=f"turn:{run}:{turn}", turn=turn, messages=[{}], messages_digest="d", calls=calls
    )


def folded(*payloads: Any) -> Transcript:
    """A transcript of these facts."""
    transcript = Transcript()
    for payload in payloads:
        transcript.apply(payload)
    return transcript


def said(sid: str, text: str) -> r.UserInputRecorded:
    """An input."""
    return r.UserInputRecorded(submission_id=sid, run_id=f"run:{sid}", input=text)


def test_runs_keep_the_order_of_their_inputs():
    """A Run that goes on after a later one was finished keeps its own place."""
    transcript = folded(
        said("a", "first"),
        responded("run:a", 1, call("c")),
        said("b", "second"),
        responded("run:b", 1),
        responded("run:a", 2),
    )
    assert list(transcript.runs) == ["run:a", "run:b"]
    assert len(transcript.runs["run:a"].turns) == 2
    assert transcript.before(transcript.runs["run:b"]) == [transcript.runs["run:a"]]
    assert transcript.run_of("b") is transcript.runs["run:b"]


def test_a_call_is_closed_by_its_result_only():
    """A permission closes nothing; an unknown record takes an earlier permission back."""
    known = {"run_id": "run:a", "turn": 1, "tool_call_id": "c"}
    unknown = r.ToolCallUnknown(**known, tool_name="t", reason="lost")
    permit = r.ToolCallResolved(**known, resolution=Resolution.SAFE_RETRY, author="x", reason="")
    transcript = folded(said("a", "x"), responded("run:a", 1, call("c")), unknown, permit)
    run = transcript.runs["run:a"]
    found = run.turns[0].calls["c"]
    assert (found.unknown, found.permit, run.turns[0].closed) == (True, True, False)
    transcript.apply(unknown)
    assert found.permit is False
    transcript.apply(r.ToolCallSettled(**known, tool_name="t", result=1))
    assert run.turns[0].closed is True


def test_an_approval_that_is_not_given_proves_that_nothing_started():
    """Requested and undecided, or denied: the whole Turn is unstarted; approved: it may have started."""
    known = {"run_id": "run:a", "turn": 1, "tool_call_id": "c"}
    transcript = folded(said("a", "x"), responded("run:a", 1, call("c"), call("d")))
    turn = transcript.runs["run:a"].turns[0]
    assert turn.unstarted is False
    transcript.apply(r.ToolApprovalRequested(**known, turn_id="t", tool_name="t", arguments_digest="d"))
    assert turn.unstarted is True
    transcript.apply(r.ToolApprovalDecided(**known, decision=Decision.APPROVED, resolver="x", reason=""))
    assert turn.unstarted is False


@pytest.mark.parametrize(
    ("declared", "ordinary"),
    [
        (call("c"), True),
        (call("c", ToolClass.IDEMPOTENT), True),
        (call("c", ToolClass.READONLY), False),
        (call("c", rejected=True), False),
        (call("c", call_kind=CallKind.OUTPUT), False),
        (call("c", call_kind=CallKind.DURABLE), False),
    ],
)
def test_which_calls_leave_an_effect_uncertain(declared: r.DeclaredCall, ordinary: bool):
    """By recorded kind and class, never by name."""
    transcript = folded(said("a", "x"), responded("run:a", 1, declared))
    assert transcript.runs["run:a"].turns[0].calls["c"].ordinary is ordinary


def test_every_record_of_a_run_makes_what_was_derived_from_it_stale():
    """The version grows with each, and with no other Run's."""
    transcript = folded(said("a", "x"), said("b", "y"))
    before = transcript.runs["run:a"].version, transcript.runs["run:b"].version
    transcript.apply(responded("run:a", 1))
    settled = r.SubmissionSettled(
        submission_id="a", settlement_id="s", receipt_id="r", outcome=Outcome.COMPLETED, run_id="run:a"
    )
    transcript.apply(settled)
    assert transcript.runs["run:a"].version == before[0] + 2
    assert transcript.runs["run:b"].version == before[1]
    assert transcript.runs["run:a"].outcome is Outcome.COMPLETED


def test_a_settlement_without_an_input_belongs_to_no_run():
    """Queued work that was aborted never became part of the conversation."""
    settled = r.SubmissionSettled(submission_id="q", settlement_id="s", receipt_id="r", outcome=Outcome.ABORTED)
    assert folded(settled, r.AbortRequested(submission_id="q", author="x", reason="")).runs == {}


def test_a_payload_that_does_not_decode_is_refused():
    """Fail closed: nothing is guessed."""
    record = LogRecord(
        thread_id="t",
        sequence=1,
        record_id="x",
        batch_id="b",
        kind="ModelResponseRecorded",
        created_at=0,
        payload={"runId": "run:a"},
        offset="1",
    )
    with pytest.raises(ValidationError):
        Transcript().extend([record])
