"""Steering: queued input that a running Run takes at a seam, in order, once, whatever dies in between."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart, UserPromptPart

from tests.unit.attempt.rig import AGENT, Rig, Script, calls, says, scripted
from thread_objects.agents import RunPolicy, bind
from thread_objects.contract import ids
from thread_objects.contract.states import SubmissionState, ToolClass
from thread_objects.errors import StoreUnavailable

READONLY = {"look": ToolClass.READONLY}


class Desk:
    """An agent whose tool lets something happen while it runs."""

    def __init__(self, rig: Rig, script: Script, *, turns: int = 2, **policy: Any) -> None:
        self.rig, self.script = rig, script
        self.during: list[Callable[[], Any]] = []
        self.queued: list[str] = []
        script.steps = {"go": [*(calls(("look", f"c{n}")) for n in range(turns)), says("done")], "own": [says("own")]}
        self.agent = scripted(script)
        self.agent.tool_plain(self.look)
        self.serve(**policy)

    def serve(self, **policy: Any) -> None:
        """Serve the agent under this policy."""
        self.rig.serve(bind(self.agent, id=AGENT, tools=READONLY, policy=RunPolicy(**policy)))

    async def look(self) -> str:
        """Readonly; input arrives while it runs."""
        if self.during:
            self.during.pop(0)()
        return "seen"

    def queue(self, *values: str) -> None:
        """Queue input."""
        self.queued.extend(self.rig.submit(value) for value in values)


def read(messages: list[ModelMessage]) -> list[str]:
    """What a model reads: prompts and results of requests, in order."""
    return [
        str(part.content)
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, (UserPromptPart, ToolReturnPart))
    ]


@pytest.fixture
def desk(rig: Rig, script: Script) -> Desk:
    """The default policy."""
    return Desk(rig, script)


def test_one_queued_input_joins_at_each_seam(rig: Rig, desk: Desk):
    """In queue order, behind the results of the whole batch; what is left runs on its own (JOIN-012)."""
    sid = rig.submit("go")
    desk.during.append(lambda: desk.queue("first", "second", "own"))
    assert rig.settle() == ["settled", "settled"]
    assert read(desk.script.seen[1]) == ["go", "seen", "first"]
    assert read(desk.script.seen[2]) == ["go", "seen", "first", "seen", "second"]
    assert read(desk.script.seen[3])[-1] == "own"
    first, second, own = desk.queued
    for joined in (first, second):
        settled = rig.settlement(joined)
        assert (settled["outcome"], settled["runId"], settled["result"]) == ("completed", ids.run_id(sid), None)
        assert settled["receiptId"] != rig.settlement(sid)["receiptId"]
        assert rig.payloads(joined, "UserInputRecorded")[0]["inputKind"] == "steering"
        assert rig.state(joined) is SubmissionState.SETTLED
    assert rig.settlement(own)["runId"] == ids.run_id(own)


def test_joined_inputs_settle_in_the_transaction_of_their_host(rig: Rig, desk: Desk):
    """Nobody ever sees a settled host with an unsettled joined input."""
    rig.submit("go")
    desk.during.append(lambda: desk.queue("first"))
    assert rig.attempt().view.nonterminal == 0


def test_a_run_without_queued_input_asks_for_none(rig: Rig, desk: Desk):
    """Whether something waits comes with the append of the results: a plain Run runs no statement for steering."""
    used: list[str] = []
    real = rig.store

    class Counting:
        def __getattr__(self, name: str) -> Any:
            used.append(name)
            return getattr(real, name)

    rig.submit("go")
    rig.store = Counting()
    rig.restart()
    assert rig.attempt().ended == "settled"
    assert used.count("append") == 4
    assert not {"claim_joining", "apply_joined", "revert_joining"} & set(used)


@pytest.mark.parametrize("per_seam", [0, 2, 16])
def test_the_binding_says_how_many_join(rig: Rig, script: Script, per_seam: int):
    """None, some, or as many as a seam may take."""
    desk = Desk(rig, script, turns=1, steering_per_seam=per_seam)
    sid = rig.submit("go")
    script.steps |= {f"q{n}": [says("alone")] for n in range(4)} if per_seam == 0 else {}
    desk.during.append(lambda: desk.queue("q0", "q1", "q2"))
    rig.attempt()
    joined = [q for q in desk.queued if rig.state(q) is SubmissionState.SETTLED]
    assert joined == desk.queued[:per_seam]
    assert rig.settlement(sid)["result"] == "done"


def test_policy_bounds_what_joins():
    """A seam takes at most sixteen."""
    for wrong in (-1, 17):
        with pytest.raises(ValueError, match="steering_per_seam"):
            RunPolicy(steering_per_seam=wrong)


def test_input_of_another_agent_runs_on_its_own(rig: Rig, script: Script):
    """Only the host's own kind joins; another agent's input stops the drain, also for what stands behind it."""
    desk = Desk(rig, script)
    other = scripted(script)
    rig.serve(*rig.registry, bind(other, id="other"))
    rig.submit("go")

    def foreign() -> None:
        desk.queued.append(rig.submit("own", agent="other"))
        desk.queue("own")

    desk.during.append(foreign)
    assert rig.settle() == ["settled"] * 3
    assert "own" not in read(script.seen[2])
    assert [rig.settlement(sid)["runId"] for sid in desk.queued] == [ids.run_id(sid) for sid in desk.queued]


def test_a_single_turn_has_no_seam(rig: Rig, script: Script):
    """Its input is answered alone, and so is what was queued behind it."""
    script.steps = {"own": [says("alone")], "go": [says("done")]}
    rig.serve(bind(scripted(script), id=AGENT))
    sids = [rig.submit("go"), rig.submit("own")]
    assert rig.settle() == ["settled", "settled"]
    assert [rig.settlement(sid)["runId"] for sid in sids] == [ids.run_id(sid) for sid in sids]


CRASHES = [
    "join:after-claim",
    "join:before-append",
    "join:after-append",
    "turn:before-response-append",
    "turn:after-response-append",
    "terminalize:before-canonical-append",
    "terminalize:after-canonical-append",
]


@pytest.mark.parametrize("failpoint", CRASHES)
def test_a_crash_around_a_seam_delivers_the_input_once(rig: Rig, script: Script, failpoint: str):
    """EVI-028, JOIN-015: one canonical input, read at one place, one settlement, whichever Run answers it."""
    desk = Desk(rig, script, turns=1)
    script.steps["first"] = [says("first alone")]
    sid = rig.submit("go")
    desk.during.append(lambda: desk.queue("first"))
    with rig.crashing(failpoint):
        rig.attempt()
    rig.settle()
    (joined,) = desk.queued
    inputs = [r for r in rig.store.records("thread", after=0, limit=99) if r.kind == "UserInputRecorded"]
    assert [r.payload["submissionId"] for r in inputs] == [sid, joined]
    host, own = rig.settlement(sid), rig.settlement(joined)
    assert (host["result"], own["result"], own["runId"]) in {
        ("first alone", None, ids.run_id(sid)),
        ("done", "first alone", ids.run_id(joined)),
    }
    assert read(script.seen[-1]).count("first") == 1
    assert rig.store.view("thread").nonterminal == 0


def test_a_resumed_run_reads_its_joined_input_at_its_place(rig: Rig, desk: Desk):
    """What the model reads after a crash is what it would have read without one."""
    rig.submit("go")
    desk.during.append(lambda: desk.queue("first"))
    with rig.crashing("turn:after-results-append", 2):
        rig.attempt()
    rig.settle()
    assert read(desk.script.seen[-1]) == ["go", "seen", "first", "seen"]
    (live,) = [m for m in desk.script.seen[1] if isinstance(m, ModelRequest) and len(m.parts) == 2]
    (read_again,) = [m for m in desk.script.seen[-1] if isinstance(m, ModelRequest) and len(m.parts) == 2]
    assert live.parts == read_again.parts


def test_a_seam_that_a_crash_passed_over_is_used_by_the_next_attempt(rig: Rig, script: Script):
    """The owner died between the results and the seam: the input joins when the Run is taken up."""
    desk = Desk(rig, script, turns=1)
    rig.submit("go")
    desk.during.append(lambda: desk.queue("first"))
    with rig.crashing("turn:after-results-append"):
        rig.attempt()
    assert rig.settle() == ["settled"]
    assert read(script.seen[-1]) == ["go", "seen", "first"]
    assert rig.state(desk.queued[0]) is SubmissionState.SETTLED


def test_later_runs_read_joined_input_where_it_was_answered(rig: Rig, desk: Desk):
    """The conversation is told as the host had it, with every input once."""
    rig.submit("go")
    desk.during.append(lambda: desk.queue("first", "second"))
    rig.settle()
    rig.submit("own")
    rig.settle()
    assert read(desk.script.seen[-1]) == ["go", "seen", "first", "seen", "second", "own"]
    rig.restart()
    rig.submit("own")
    rig.settle()
    assert read(desk.script.seen[-1]) == ["go", "seen", "first", "seen", "second", "own", "own"]


def test_input_that_the_host_never_answered_is_delivered_on_its_own(rig: Rig, script: Script):
    """The Run failed before another response: the input goes back and is read once, where it is answered."""
    desk = Desk(rig, script, turns=1)

    def answers(messages: list[ModelMessage]) -> Any:
        asked.append(read(messages))
        if len(asked) == 1:
            raise RuntimeError("the provider is gone for good")
        return says("first alone")

    asked: list[list[str]] = []

    script.steps["first"] = [answers]
    sid = rig.submit("go")
    desk.during.append(lambda: desk.queue("first"))
    assert rig.settle() == ["settled", "settled"]
    (joined,) = desk.queued
    assert rig.settlement(sid)["outcome"] == "failed"
    settled = rig.settlement(joined)
    assert (settled["outcome"], settled["result"], settled["runId"]) == ("completed", "first alone", ids.run_id(joined))
    assert read(script.seen[-1]) == ["go", "seen", "first"]
    assert rig.kinds(joined)[:2] == ["UserInputRecorded", "RunStarted"]


def test_an_aborted_host_takes_covered_input_with_it(rig: Rig, script: Script):
    """What a response covered ends as its host ends; what came after the last response is answered on its own."""
    desk = Desk(rig, script, turns=2)

    async def answers(_: list[ModelMessage]) -> Any:
        if not aborted:
            aborted.append(rig.abort(sid))
            await asyncio.sleep(60)
        return says("second alone")

    aborted: list[Any] = []
    script.steps["second"] = [answers]
    sid = rig.submit("go")
    desk.during.append(lambda: desk.queue("first", "second"))
    rig.settle()
    first, second = desk.queued
    assert [rig.settlement(s)["outcome"] for s in (sid, first, second)] == ["aborted", "aborted", "completed"]


def test_input_that_cannot_be_read_never_joins(rig: Rig, script: Script):
    """A host is not held up by what its deploy cannot read: that input stays queued for a deploy that can."""
    desk = Desk(rig, script, turns=2)

    def adapter(value: Any) -> str:
        if value == {"poison": True}:
            raise ValueError("no idea")
        return str(value)

    rig.serve(bind(desk.agent, id=AGENT, tools=READONLY, input_adapter=adapter))
    sid = rig.submit("go")
    desk.during.append(lambda: desk.queued.append(rig.submit({"poison": True})))
    assert rig.attempt().ended == "settled"
    assert rig.settlement(sid)["result"] == "done"
    assert rig.snapshot(desk.queued[0]).host_submission_id is None
    assert rig.state(desk.queued[0]) is SubmissionState.READY


def test_a_store_that_is_away_at_a_seam_stops_nobody(rig: Rig, desk: Desk, monkeypatch: pytest.MonkeyPatch):
    """What is queued can be asked for at the next seam."""
    real, asked = rig.store.claim_joining, []

    def away(*args: Any, **named: Any) -> Any:
        asked.append(1)
        if len(asked) == 1:
            raise StoreUnavailable(reason="away")
        return real(*args, **named)

    monkeypatch.setattr(rig.store, "claim_joining", away)
    rig.submit("go")
    desk.during.append(lambda: desk.queue("first"))
    rig.settle()
    assert read(desk.script.seen[-1]) == ["go", "seen", "seen", "first"]


def test_a_claim_whose_answer_was_lost_gives_its_rows_back(rig: Rig, script: Script, monkeypatch: pytest.MonkeyPatch):
    """Taken without knowing it: the settlement looks after the row, which is then delivered on its own."""
    desk = Desk(rig, script, turns=1)
    script.steps["first"] = [says("first alone")]
    real = rig.store.claim_joining

    def lost(*args: Any, **named: Any) -> Any:
        real(*args, **named)
        raise StoreUnavailable(reason="answer lost")

    monkeypatch.setattr(rig.store, "claim_joining", lost)
    rig.submit("go")
    desk.during.append(lambda: desk.queue("first"))
    assert rig.settle() == ["settled", "settled"]
    assert rig.settlement(desk.queued[0])["result"] == "first alone"


def test_a_run_that_yields_takes_nothing_along(rig: Rig, desk: Desk):
    """Input is not taken only to be handed back; the next Attempt takes it."""

    def late() -> None:
        desk.queue("first")
        rig.clock.at += 700_000

    rig.submit("go")
    desk.during.append(late)
    assert rig.attempt().ended == "yielded"
    assert rig.state(desk.queued[0]) is SubmissionState.READY
    assert rig.settle() == ["settled"]
    assert read(desk.script.seen[1]) == ["go", "seen", "first"]


# --- follow-up -----------------------------------------------------------------------------------------------------


def test_follow_up_goes_on_where_the_run_would_end(rig: Rig, script: Script):
    """Asked for by policy: one input at a time, until there is none; then one Settlement each, the host's result."""
    desk = Desk(rig, script, turns=1, follow_up=True, steering_per_seam=0)
    script.steps |= {"more": [says("more done")], "last": [says("all done")]}
    sid = rig.submit("go")
    desk.during.append(lambda: desk.queue("more", "last"))
    assert rig.settle() == ["settled"]
    assert rig.settlement(sid)["result"] == "all done"
    assert [rig.payloads(q, "UserInputRecorded")[0]["inputKind"] for q in desk.queued] == ["follow-up"] * 2
    assert [rig.settlement(q)["runId"] for q in desk.queued] == [ids.run_id(sid)] * 2
    assert [m.parts[0].content for m in script.seen[-1][-3::2] if isinstance(m.parts[0], UserPromptPart)] == [
        "more",
        "last",
    ]


def test_follow_up_is_off_by_default(rig: Rig, script: Script):
    """A Run ends with its answer, whatever waits."""
    desk = Desk(rig, script, turns=1, steering_per_seam=0)
    rig.submit("go")
    desk.during.append(lambda: desk.queue("own"))
    assert rig.settle() == ["settled", "settled"]


class Answer(BaseModel):
    """A structured output."""

    n: int


@pytest.mark.parametrize("failpoint", [None, "join:after-claim", "join:before-append", "join:after-append"])
def test_follow_up_after_an_output_call(rig: Rig, script: Script, failpoint: str | None):
    """The output call gets its result with the input that follows it, in one batch, so no crash comes between."""
    script.steps = {
        "go": [calls(("final_result", "c0", {"n": 1}))],
        "more": [calls(("final_result", "c1", {"n": 2}))],
    }
    rig.serve(bind(scripted(script, output_type=Answer), id=AGENT, policy=RunPolicy(follow_up=True)))
    sid, more = rig.submit("go"), rig.submit("more")
    if failpoint is not None:
        with rig.crashing(failpoint):
            rig.attempt()
    rig.settle()
    assert rig.settlement(sid)["result"] == {"n": 2}
    assert rig.settlement(more)["runId"] == ids.run_id(sid)
    assert [p["toolCallId"] for p in rig.payloads(sid, "ToolCallSettled")] == ["c0", "c1"]


def test_nobody_overtakes_input_whose_claim_was_not_answered(rig: Rig, script: Script, monkeypatch: pytest.MonkeyPatch):
    """Perhaps it is taken: what is behind it stays behind it, and all of it is delivered in queue order."""
    desk = Desk(rig, script, turns=3, follow_up=True)
    script.steps |= {"first": [says("one")], "second": [says("two")]}
    rig.submit("go")
    desk.during.append(lambda: desk.queue("first", "second"))
    real, lost = rig.store.claim_joining, []

    def once(*args: Any, **named: Any) -> Any:
        taken = real(*args, **named)
        if not lost:
            lost.append(taken)
            raise StoreUnavailable(reason="answer lost")
        return taken

    monkeypatch.setattr(rig.store, "claim_joining", once)
    rig.settle()
    prompts = [text for text in read(script.seen[-1]) if text in ("first", "second")]
    assert prompts == ["first", "second"]
    assert [rig.state(queued) for queued in desk.queued] == [SubmissionState.SETTLED] * 2
