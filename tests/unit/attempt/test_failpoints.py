"""Every failpoint of an Attempt is crashed at, and every crash converges: one settlement, no uncertain effect twice."""

import asyncio
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.attempt.rig import AGENT, Rig, Script, calls, says, scripted
from thread_objects.agents import ApprovalAnswer, ToolPolicy, bind, current_call
from thread_objects.contract.states import Decision, ResolutionKind, SubmissionState, ToolClass

SOURCES = ("advance.py", "commits.py", "run_journal.py", "settling.py", "steering.py", "taking_up.py")
ACTIVITIES = Path(__file__).parents[3] / "activities"


class Shop:
    """One agent for all scenarios, with its effects outside the product."""

    def __init__(self, rig: Rig, script: Script) -> None:
        self.rig, self.script = rig, script
        self.effects: list[str] = []
        self.asked = threading.Event()
        script.steps = {
            "look": [calls(("look", "c0")), says("done")],
            "two": [calls(("look", "c0"), ("wait", "c1")), says("done")],
            "pay": [calls(("pay", "c0")), says("done")],
            "refund": [calls(("refund", "c0")), says("done")],
            "small": [calls(("small", "c0")), says("done")],
            "steps": [calls(("steps", "c0")), says("done")],
            "slow": [self._slow],
            "yields": [self._yields, says("done")],
        }
        agent = scripted(script)
        for tool in (self.look, self.wait, self.pay, self.refund, self.small, self.steps):
            agent.tool_plain(tool)
        rig.serve(
            bind(
                agent,
                id=AGENT,
                tools={
                    "look": ToolClass.READONLY,
                    "wait": ToolClass.READONLY,
                    "refund": ToolPolicy(approval=True),
                    "small": ToolPolicy(approval=True),
                    "steps": ToolPolicy(durable=True),
                },
                approval=lambda q: ApprovalAnswer(Decision.APPROVED, "policy") if q.tool_name == "small" else None,
            )
        )

    async def _slow(self, _messages):
        self.asked.set()
        await asyncio.sleep(60)

    def _yields(self, _messages):
        self.rig.clock.at += 700_000
        return calls(("look", "c0"))

    async def look(self) -> str:
        """Readonly."""
        return "seen"

    async def wait(self) -> str:
        """Readonly, after its sibling's result is there."""
        while not any("ToolCallSettled" in self.rig.kinds(sid) for sid in self.rig_sids):
            await asyncio.sleep(0.002)
        return "waited"

    async def pay(self) -> str:
        """Uncertain."""
        self.effects.append("pay")
        return "paid"

    async def refund(self) -> str:
        """Uncertain, with approval."""
        self.effects.append("refund")
        return "refunded"

    async def small(self) -> str:
        """Uncertain, approved by policy."""
        self.effects.append("small")
        return "refunded"

    async def steps(self) -> str:
        """Durable."""

        async def body() -> str:
            return "step"

        return await current_call().step("one", body)

    rig_sids: tuple[str, ...] = ()

    # --- scenarios: what leads to the failpoint; the submission id -----------------------------------------------

    def run(self, prompt: str) -> str:
        """Submit and attempt."""
        sid = self.rig.submit(prompt)
        self.rig_sids = (sid,)
        self.rig.attempt()
        return sid

    def interrupted(self) -> str:
        """A second Attempt after a lost model call."""
        sid = self.rig.submit("look")
        lost, self.rig._crash = self.rig._crash, ("turn:before-response-append", 1)
        with pytest.raises(BaseException, match="turn:before-response-append"):
            self.rig.attempt()
        self.rig.ended.append(self.rig.last_attempt)
        self.rig._crash = lost
        self.rig.attempt()
        return sid

    def steered(self) -> str:
        """Input that is queued behind a Run and joins it."""
        sid = self.rig.submit("look")
        self.rig.submit("and this")
        self.rig.attempt()
        return sid

    def decided(self) -> str:
        """A resumption after an approval."""
        sid = self.run("refund")
        self.rig.decide(sid, "c0", Decision.APPROVED)
        self.rig.attempt()
        return sid

    def resolved(self) -> str:
        """A resumption after an operator's permission to run a call that never started."""
        sid = self.rig.submit("pay")
        lost, self.rig._crash = self.rig._crash, ("turn:after-response-append", 1)
        with pytest.raises(BaseException, match="turn:after-response-append"):
            self.rig.attempt()
        self.rig.ended.append(self.rig.last_attempt)
        self.rig._crash = None
        self.rig.settle()
        self.rig.resolve(sid, "c0", ResolutionKind.NEVER_HAPPENED)
        self.rig._crash = lost
        self.rig.attempt()
        return sid

    def aborted(self) -> str:
        """An abort of a running model call."""
        sid = self.rig.submit("slow")
        thread = threading.Thread(target=lambda: (self.asked.wait(10), self.rig.abort(sid)))
        thread.start()
        try:
            self.rig.attempt()
        finally:
            thread.join()
        return sid


SCENARIOS: dict[str, Callable[[Shop], str]] = {
    "claim:before": lambda shop: shop.run("pay"),
    "claim:after": lambda shop: shop.run("pay"),
    "turn:before-interrupted-append": Shop.interrupted,
    "turn:after-interrupted-append": Shop.interrupted,
    "turn:before-response-append": lambda shop: shop.run("pay"),
    "turn:after-response-append": lambda shop: shop.run("pay"),
    "turn:before-call-results-append": lambda shop: shop.run("two"),
    "turn:after-call-results-append": lambda shop: shop.run("two"),
    "turn:before-results-append": lambda shop: shop.run("pay"),
    "turn:after-results-append": lambda shop: shop.run("pay"),
    "tools:before-dispatch-fence": lambda shop: shop.run("pay"),
    "tools:after-dispatch-fence": lambda shop: shop.run("pay"),
    "approval:before-answer": lambda shop: shop.run("small"),
    "approval:after-answer": lambda shop: shop.run("small"),
    "approval:before-suspend": lambda shop: shop.run("refund"),
    "approval:after-suspend": lambda shop: shop.run("refund"),
    "approval:before-decision-append": Shop.decided,
    "approval:after-decision-append": Shop.decided,
    "resolve:before-append": Shop.resolved,
    "resolve:after-append": Shop.resolved,
    "step:before-step-append": lambda shop: shop.run("steps"),
    "step:after-step-append": lambda shop: shop.run("steps"),
    "abort:before-canonical-append": Shop.aborted,
    "abort:after-canonical-append": Shop.aborted,
    "join:after-claim": Shop.steered,
    "join:before-append": Shop.steered,
    "join:after-append": Shop.steered,
    "release:before": lambda shop: shop.run("yields"),
    "release:after": lambda shop: shop.run("yields"),
    "terminalize:before-canonical-append": lambda shop: shop.run("pay"),
    "terminalize:after-canonical-append": lambda shop: shop.run("pay"),
}


def test_no_failpoint_is_forgotten():
    """A failpoint that nobody reaches guards nothing; one that is gone is not to be listed."""
    named = {
        name
        for source in SOURCES
        for name in re.findall(r'failpoints\.hit\("([^"]+)"\)', (ACTIVITIES / source).read_text())
    }
    assert named == set(SCENARIOS)


@pytest.mark.parametrize("failpoint", sorted(SCENARIOS))
def test_a_crash_at_any_failpoint_converges(rig: Rig, script: Script, failpoint: str):
    """CHA: die there, come back, and end: settled once, or waiting for a person; no uncertain effect twice."""
    shop = Shop(rig, script)
    with rig.crashing(failpoint):
        SCENARIOS[failpoint](shop)
    rig.settle()
    log = rig.store.records("thread", after=0, limit=100)
    sid = next(record.payload["submissionId"] for record in log if record.kind == "UserInputRecorded")
    if rig.state(sid) is SubmissionState.SUSPENDED:
        rig.decide(sid, "c0", Decision.APPROVED)
        rig.settle()
    if rig.state(sid) is SubmissionState.UNKNOWN:
        assert rig.kinds(sid).count("ToolCallUnknown") == 1 + failpoint.startswith("resolve")
        rig.resolve(sid, "c0", ResolutionKind.COMPLETED_WITH_RESULT, "paid, says the bank")
        rig.settle()
    assert rig.state(sid) is SubmissionState.SETTLED
    assert rig.settlement(sid)["outcome"] == ("aborted" if failpoint.startswith("abort") else "completed")
    assert len(shop.effects) <= 1
    record_ids = [record.record_id for record in rig.store.records("thread", after=0, limit=100)]
    assert len(record_ids) == len(set(record_ids))
