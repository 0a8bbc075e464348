"""The process dies at each durable step: same history, one settlement, no uncertain effect twice."""

from typing import Any

import pytest

from tests.unit.attempt.rig import AGENT, Rig, Script, calls, says, scripted
from thread_objects.agents import bind, current_call
from thread_objects.contract.states import ResolutionKind, SubmissionState, ToolClass

STEPS = {
    "go": [calls(("look", "c0"), ("order", "c1")), calls(("look", "c2")), says("done")],
    "pay": [calls(("look", "c0"), ("pay", "c1")), says("paid")],
    "later": [says("later")],
}
SAFE = {"look": ToolClass.READONLY, "order": ToolClass.IDEMPOTENT, "pay": ToolClass.UNCERTAIN}


class Shop:
    """Tools with an effect ledger outside the product."""

    def __init__(self, script: Script) -> None:
        self.effects: list[str] = []
        self.keys: list[str] = []
        self.agent = scripted(script)
        self.agent.tool_plain(self.look)
        self.agent.tool_plain(self.order)
        self.agent.tool_plain(self.pay)

    async def look(self) -> str:
        """Readonly."""
        self.effects.append("look")
        return "seen"

    async def order(self) -> str:
        """Idempotent."""
        self.keys.append(current_call().idempotency_key)
        return "ordered"

    async def pay(self) -> str:
        """Uncertain."""
        self.effects.append("pay")
        return "paid"


@pytest.fixture
def shop(rig: Rig, script: Script) -> Shop:
    """A shop that is served."""
    script.steps = dict(STEPS)
    shop = Shop(script)
    rig.serve(bind(shop.agent, id=AGENT, tools=SAFE))
    return shop


WHOLE = [
    "input:*",
    "run-started:run:*",
    "model-response:run:*:1",
    "tool-settled:run:*:1:c0",
    "tool-settled:run:*:1:c1",
    "model-response:run:*:2",
    "tool-settled:run:*:2:c2",
    "model-response:run:*:3",
    "run-completed:run:*",
    "settlement:*",
]


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize(
    "failpoint",
    [
        "claim:before",
        "claim:after",
        "turn:before-response-append",
        "turn:after-response-append",
        "tools:before-dispatch-fence",
        "tools:after-dispatch-fence",
        "turn:before-results-append",
        "turn:after-results-append",
        "terminalize:before-canonical-append",
        "terminalize:after-canonical-append",
    ],
)
def test_crash_at_a_durable_step_converges_on_the_same_history(
    rig: Rig, script: Script, shop: Shop, failpoint: str, nth: int
):
    """EVI-014, EVI-020, EVI-021, EVI-030: whatever dies, the log ends the same and one settlement stands."""
    if nth > 1 and failpoint.startswith(("claim", "terminalize")):
        nth = 1
    sid = rig.submit("go")
    with rig.crashing(failpoint, nth):
        rig.attempt()
    rig.settle()
    assert rig.shape(sid) == WHOLE
    assert rig.settlement(sid)["result"] == "done"
    assert len(set(shop.keys)) == 1
    assert script.asked <= 4


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("failpoint", ["turn:after-response-append", "turn:after-results-append"])
def test_a_committed_response_is_never_asked_for_again(rig: Rig, script: Script, shop: Shop, failpoint: str, nth: int):
    """EVI-021: the model is asked exactly once for each Turn whose response was committed."""
    del shop
    rig.submit("go")
    with rig.crashing(failpoint, nth):
        rig.attempt()
    rig.settle()
    assert script.asked == 3


def test_a_model_call_that_was_lost_is_audited_before_it_is_made_again(rig: Rig, script: Script, shop: Shop):
    """A Turn whose owner died without a response: the interruption names the superseded epoch, once."""
    del shop
    sid = rig.submit("go")
    with rig.crashing("turn:before-response-append", 2):
        rig.attempt()
    asked = script.asked
    rig.settle()
    (audit,) = rig.payloads(sid, "ModelResponseInterrupted")
    assert audit["supersededEpoch"] == 1
    kinds = rig.kinds(sid)
    assert kinds.index("ModelResponseInterrupted") < len(kinds) - 1 - kinds[::-1].index("ModelResponseRecorded")
    assert script.asked == asked + 2


@pytest.mark.parametrize(
    ("failpoint", "paid"),
    [
        ("turn:after-response-append", 0),
        ("tools:before-dispatch-fence", 0),
        ("turn:before-results-append", 1),
    ],
)
def test_an_uncertain_call_without_a_result_is_never_run_again(
    rig: Rig, script: Script, shop: Shop, failpoint: str, paid: int
):
    """F3, EVI-022, EVI-024, UNK-001, UNK-002: one Unknown, no second effect, later input runs, debt stays."""
    sid = rig.submit("pay")
    later = rig.submit("later")
    with rig.crashing(failpoint):
        rig.attempt()
    for _ in range(3):
        rig.restart()
        rig.settle()
    assert shop.effects.count("pay") == paid
    assert rig.state(sid) is SubmissionState.UNKNOWN
    assert rig.kinds(sid).count("ToolCallUnknown") == 1
    assert rig.settlement(later)["result"] == "later"
    assert script.asked == 2


def test_the_effect_was_had_and_only_the_record_is_missing(rig: Rig, script: Script, shop: Shop):
    """UNK-012: the operator says what came back; the handler does not run, the model reads it, the Run goes on."""
    sid = rig.submit("pay")
    with rig.crashing("turn:before-results-append"):
        rig.attempt()
    assert rig.settle() == []
    rig.resolve(sid, "c1", ResolutionKind.COMPLETED_WITH_RESULT, {"receipt": 7})
    assert rig.settle() == ["settled"]
    assert shop.effects.count("pay") == 1
    returns: dict[str, Any] = {
        part.tool_call_id: part.content for part in script.seen[-1][-1].parts if part.part_kind == "tool-return"
    }
    assert returns == {"c0": "seen", "c1": {"receipt": 7}}
    (resolved,) = rig.payloads(sid, "ToolCallResolved")
    assert (resolved["resolution"], resolved["author"]) == ("completed-with-result", "operator")
    kinds = rig.kinds(sid)
    assert kinds.index("ToolCallSettled") < kinds.index("ToolCallResolved")
    assert rig.settlement(sid)["result"] == "paid"


@pytest.mark.parametrize("kind", [ResolutionKind.SAFE_TO_RETRY, ResolutionKind.NEVER_HAPPENED])
def test_a_permission_lets_the_call_run_exactly_once_more(rig: Rig, shop: Shop, kind: ResolutionKind):
    """UNK-004: the permission is canonical before the call runs; lost again, it is unknown again."""
    sid = rig.submit("pay")
    with rig.crashing("turn:before-results-append"):
        rig.attempt()
    rig.settle()
    rig.resolve(sid, "c1", kind)
    with rig.crashing("turn:before-results-append"):
        rig.attempt()
    assert shop.effects.count("pay") == 2
    rig.settle()
    assert rig.state(sid) is SubmissionState.UNKNOWN
    assert shop.effects.count("pay") == 2
    kinds = rig.kinds(sid)
    assert kinds.count("ToolCallUnknown") == 2
    assert kinds.index("ToolCallResolved") < len(kinds)


def test_a_sibling_result_survives_the_crash_of_the_batch(rig: Rig, shop: Shop, script: Script):
    """What was committed call by call is served, not run again, when the batch is taken up."""
    script.steps["slow"] = [calls(("look", "c0"), ("wait", "c1")), says("done")]

    @shop.agent.tool_plain
    async def wait() -> str:
        import asyncio

        while "ToolCallSettled" not in rig.kinds(sid):
            await asyncio.sleep(0.002)
        return "waited"

    rig.serve(bind(shop.agent, id=AGENT, tools={**SAFE, "wait": ToolClass.READONLY}))
    sid = rig.submit("slow")
    with rig.crashing("turn:before-results-append"):
        rig.attempt()
    rig.settle()
    assert shop.effects == ["look"]
    assert rig.settlement(sid)["result"] == "done"


def test_the_runs_deadline_survives_the_crash(rig: Rig, shop: Shop):
    """The clock of the Run started with its first claim and goes on while nobody runs it."""
    del shop
    sid = rig.submit("go")
    with rig.crashing("turn:after-results-append"):
        rig.attempt()
    rig.clock.at += 3_600_001
    rig.settle()
    settlement = rig.settlement(sid)
    assert (settlement["outcome"], settlement["policyLimit"]) == ("failed", "duration")
