"""An Attempt that begins before its activity: it claims and asks, and commits nothing until it is adopted."""

import threading
from typing import Any

import pytest

from activities.control import Control
from activities.head_start import HeadStarts
from tests.unit.attempt.rig import AGENT, PRINCIPAL, Rig, Script, calls, says, scripted
from thread_objects.agents import RunPolicy, bind
from thread_objects.contract import messages as m
from thread_objects.contract.activities import (
    ApplyAnswer,
    ApplyRequest,
    AttemptRequest,
    HeadStartOffer,
    Item,
)
from thread_objects.contract.states import SubmissionState


class Object:
    """An object whose batches offer a head start."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.batches = 0

    def heads(self, patience_s: float = 5.0, at_most: int = 4) -> HeadStarts:
        """Head starts of the rig's present process."""
        activities = self.rig.activities
        heads = HeadStarts(
            activities._begun_early,
            clock=self.rig.clock,
            registry=self.rig.registry,
            at_most=at_most,
            headway_s=0,
            patience_s=patience_s,
        )
        activities.head_starts = heads
        return heads

    def admit(self, *inputs: str, thread: str = "thread", key: str | None = None) -> tuple[ApplyRequest, ApplyAnswer]:
        """Apply one batch of inputs."""
        self.batches += 1
        items = tuple(
            Item(
                n=n,
                mutation=m.Submit(
                    thread_id=thread, agent_id=AGENT, principal=PRINCIPAL, key=key or f"{self.batches}.{n}", input=text
                ),
            )
            for n, text in enumerate(inputs)
        )
        request = ApplyRequest(
            object_id=thread,
            batch_id=f"run:{self.batches}",
            mark=self.batches,
            applied_through=self.batches - 1,
            items=items,
            head_start=HeadStartOffer(attempt_id=f"head-start:run:{self.batches}", producer_id="producer"),
        )
        return request, self.rig.store.apply(request, worker="w", registry=self.rig.view, now=self.rig.clock.now())

    def activity(self, attempt_id: str, thread: str = "thread") -> AttemptRequest:
        """What the workflow asks for a moment later."""
        now = self.rig.clock.now()
        return AttemptRequest(
            object_id=thread,
            thread_id=thread,
            producer_id="producer",
            attempt_id=attempt_id,
            ended_attempts=(attempt_id,),
            applied_through=self.batches,
            yield_at=now + 600_000,
            deadline_at=now + 840_000,
        )


def serve(rig: Rig, script: Script, effects: list[str]) -> Object:
    """An agent with one uncertain tool."""
    agent = scripted(script)

    @agent.tool_plain
    def pay() -> str:
        effects.append("pay")
        return "paid"

    rig.serve(bind(agent, id=AGENT))
    return Object(rig)


def test_nothing_is_committed_before_adoption(rig: Rig, script: Script) -> None:
    """Claim and input are there; the response, its tool and the settlement wait for the activity."""
    effects: list[str] = []
    asked = threading.Event()

    def answer(_messages: Any) -> Any:
        asked.set()
        return calls(("pay", "c0"))

    script.steps = {"go": [answer, says("done")]}
    there = serve(rig, script, effects)
    heads = there.heads()
    request, applied = there.admit("go")
    attempt_id = heads.offer(request, applied)
    assert attempt_id == "head-start:run:1"
    assert asked.wait(5)
    begun = heads.take(attempt_id)
    assert begun is not None
    sid = applied.answers[0].receipt.submission_id
    assert rig.kinds(sid) == ["UserInputRecorded", "RunStarted"]
    assert rig.snapshot(sid).ownership.attempt_id == attempt_id
    assert effects == []
    assert heads.offer(request, applied) == attempt_id, "the same batch again is the same head start"
    assert begun.adopt(there.activity(attempt_id))
    answered = begun.ended.result(10)
    assert answered.ended == "settled"
    assert (answered.mark_cleared, effects, script.asked) == (1, ["pay"], 2)
    assert heads.take(attempt_id) is None
    heads.close()


def test_an_answer_waits_for_the_activity_too(rig: Rig, script: Script) -> None:
    """A Run without tools is not settled before its activity is here either."""
    script.steps = {"go": [says("done")]}
    there = serve(rig, script, [])
    heads = there.heads(patience_s=0.3)
    request, applied = there.admit("go")
    begun = heads.take(str(heads.offer(request, applied)))
    assert begun is not None
    assert begun.ended.result(10).ended == "yielded"
    sid = applied.answers[0].receipt.submission_id
    assert rig.kinds(sid) == ["UserInputRecorded", "RunStarted"]
    assert rig.snapshot(sid).ownership is None
    assert not begun.adopt(there.activity("head-start:run:1"))
    assert rig.settle() == ["settled"]
    heads.close()


def test_one_that_nobody_adopts_hands_back_and_starts_no_tool(rig: Rig, script: Script) -> None:
    """Its response was never committed: the next Attempt asks again, and the tool runs once."""
    effects: list[str] = []
    script.steps = {"go": [calls(("pay", "c0")), says("done")]}
    there = serve(rig, script, effects)
    heads = there.heads(patience_s=0.2)
    request, applied = there.admit("go")
    begun = heads.take(str(heads.offer(request, applied)))
    assert begun is not None
    assert begun.ended.result(10).ended == "yielded"
    assert effects == []
    assert rig.settle() == ["settled"]
    assert (effects, script.asked) == (["pay"], 3)
    heads.close()


def test_closing_hands_back_what_nobody_adopted(rig: Rig, script: Script) -> None:
    """A worker that drains does not wait for an activity that will not come."""
    script.steps = {"go": [calls(("pay", "c0")), says("done")]}
    there = serve(rig, script, [])
    heads = there.heads(patience_s=60)
    request, applied = there.admit("go")
    begun = heads.take(str(heads.offer(request, applied)))
    assert begun is not None
    heads.close()
    assert begun.ended.result(0).ended == "yielded"
    assert rig.snapshot(applied.answers[0].receipt.submission_id).ownership is None
    assert heads.offer(*there.admit("go", thread="other")) is None


def test_an_activity_elsewhere_supersedes_a_lost_head_start_at_once(rig: Rig, script: Script) -> None:
    """The process died with the claim: the activity of the same id takes the lease over, and nothing is Unknown."""
    script.steps = {"go": [says("done")]}
    there = serve(rig, script, [])
    request, applied = there.admit("go")
    sid = applied.answers[0].receipt.submission_id
    with rig.crashing("claim:after"):
        rig.activities.advance(there.activity("head-start:run:1"), Control())
    assert rig.snapshot(sid).ownership is not None
    answer = rig.activities.advance(there.activity("head-start:run:1"), Control())
    assert answer.ended == "settled"
    assert request.head_start is not None


@pytest.mark.parametrize("why", ["two inputs", "again", "queued", "unknown agent", "full", "no offer"])
def test_a_head_start_is_for_one_new_input_of_an_idle_thread(rig: Rig, script: Script, why: str) -> None:
    """Anything else begins in the ordinary way."""
    script.steps = {"go": [says("done")]}
    there = serve(rig, script, [])
    if why == "queued":
        there.admit("go")
    heads = there.heads(at_most=0 if why == "full" else 4)
    request, applied = there.admit(*(["go", "go"] if why == "two inputs" else ["go"]))
    if why == "again":
        request, applied = there.admit("go", key="1.0")
    if why == "unknown agent":
        rig.serve()
        heads = there.heads()
    if why == "no offer":
        request = request.model_copy(update={"head_start": None})
    assert heads.offer(request, applied) is None
    sid = applied.answers[0].receipt.submission_id
    assert rig.state(sid) is SubmissionState.READY
    heads.close()


def test_no_queued_input_joins_before_adoption(rig: Rig, script: Script) -> None:
    """Where a Run would go on with it: that would commit the response too, and settle the input with the Run."""
    script.steps = {"go": [says("done")], "next": [says("too")]}
    rig.serve(bind(scripted(script), id=AGENT, policy=RunPolicy(follow_up=True)))
    there = Object(rig)
    heads = there.heads(patience_s=0.3)
    request, applied = there.admit("go")
    _, queued = there.admit("next")
    begun = heads.take(str(heads.offer(request, applied)))
    assert begun is not None
    assert begun.ended.result(10).ended == "yielded"
    assert rig.kinds(applied.answers[0].receipt.submission_id) == ["UserInputRecorded", "RunStarted"]
    assert rig.state(queued.answers[0].receipt.submission_id) is SubmissionState.READY
    assert rig.settle() == ["settled"]
    heads.close()


def test_a_process_without_threads_to_spare_begins_nothing(
    rig: Rig, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch is answered, and its activity finds nothing that it would wait for."""
    script.steps = {"go": [says("done")]}
    there = serve(rig, script, [])
    heads = there.heads()

    def refused(*_args: Any) -> Any:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(heads._threads, "submit", refused)
    request, applied = there.admit("go")
    assert heads.offer(request, applied) is None
    assert heads.take("head-start:run:1") is None
    assert rig.settle() == ["settled"]
    heads.close()
