"""A call's only declaration: its arguments, class, kind, and whether it can run at all."""

from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, ValidationInfo
from pydantic_ai import Agent
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.test import TestModel

from thread_objects.agents import ToolPolicy, bind
from thread_objects.agents.declare import declare, repairs_arguments, with_own_ids
from thread_objects.contract.records import DeclaredCall
from thread_objects.contract.states import ToolClass
from thread_objects.core.digests import of_value


def pay(amount: int, to: str = "shop") -> str:
    """Pay."""
    return f"{amount} {to}"


async def declared(
    args: Any, *, name: str = "pay", agent: Agent[Any, Any] | None = None, **policy: Any
) -> DeclaredCall:
    """The declaration of one call, in the middle of a run."""
    response = ModelResponse(parts=[ToolCallPart(name, args, tool_call_id="c")])
    async with (agent or Agent(TestModel(), tools=[pay])).iter("x") as run:
        node = run.next_node
        while not Agent.is_call_tools_node(node):
            node = await run.next(node)
        manager = run.ctx.deps.tool_manager
        judge = None if repairs_arguments(run) else manager.ctx
        (call,) = declare(response, manager.tools or {}, lambda _name: ToolPolicy(**policy), (), judge)
    return call


@pytest.mark.parametrize(
    ("args", "arguments", "rejected"),
    [
        ({"amount": 5}, {"amount": 5}, False),
        ('{"amount": 5, "to": "b"}', {"amount": 5, "to": "b"}, False),
        ({"amount": "5"}, {"amount": "5"}, False),
        ({"amount": "five"}, {"amount": "five"}, True),
        ('{"amount": ', '{"amount": ', True),
        ('{"amount": NaN}', '{"amount": NaN}', True),
        ("", {}, True),
        (None, {}, True),
        ("[" * 100_000, "[" * 100_000, True),
    ],
)
async def test_arguments_are_declared_as_the_model_sent_them(args: Any, arguments: Any, rejected: bool):
    """Text that is no JSON stays text; what does not fit the schema is rejected: proof that it never runs."""
    call = await declared(args)
    assert (call.arguments, call.rejected) == (arguments, rejected)
    assert call.arguments_digest == of_value(arguments)


async def test_the_order_of_argument_keys_does_not_change_the_digest():
    """An approval is bound to the arguments, not to their spelling."""
    one, other = await declared('{"amount": 1, "to": "a"}'), await declared('{"to": "a", "amount": 1}')
    assert one.arguments_digest == other.arguments_digest


async def test_a_name_that_no_tool_has_is_rejected():
    """It cannot have run, whatever its class would be."""
    call = await declared({}, name="paay")
    assert (call.rejected, call.tool_class) == (True, ToolClass.UNCERTAIN)


async def test_class_approval_and_kind_come_from_the_policy():
    """They are recorded, so that a later deploy reads them from the log."""
    call = await declared({"amount": 1}, tool_class=ToolClass.IDEMPOTENT, approval=True, durable=True)
    assert (call.tool_class, call.approval, call.call_kind) == ("idempotent", True, "durable")


class Repairs(AbstractCapability[Any]):
    """Lets any arguments through as five."""

    id = "repairs"

    async def on_tool_validate_error(self, ctx, *, call, tool_def, args, error):
        return {"amount": 5}


async def test_arguments_that_a_hook_may_repair_are_not_rejected():
    """A call that may run after all has to be asked about, and may be lost."""
    agent = Agent(TestModel(), tools=[pay], capabilities=[Repairs()])
    assert (await declared({"amount": "five"}, agent=agent)).rejected is False
    traced = Agent(TestModel(), tools=[pay])
    traced.instrument = True
    assert (await declared({"amount": "five"}, agent=traced)).rejected is True
    assert (await declared({}, name="paay", agent=agent)).rejected is True


def even(value: int, info: ValidationInfo) -> int:
    """Valid in a context that says so only."""
    if (info.context or {}).get("strict") is not False:
        raise ValueError("not here")
    return value


async def test_arguments_are_judged_in_the_agents_own_context():
    """What counts is whether pydantic-ai would let the call run."""

    def pay_even(amount: Annotated[int, AfterValidator(even)]) -> str:
        return str(amount)

    lenient = Agent(TestModel(call_tools=[]), tools=[pay_even], validation_context={"strict": False})
    strict = Agent(TestModel(call_tools=[]), tools=[pay_even])
    assert (await declared({"amount": 2}, name="pay_even", agent=lenient)).rejected is False
    assert (await declared({"amount": 2}, name="pay_even", agent=strict)).rejected is True


ids = st.lists(st.sampled_from(["call_0", "call_1", "", "x" * 300, "call_0~2.0"]), max_size=6)


@given(ids, st.sets(st.sampled_from(["call_0", "call_0~2.1"])))
def test_call_ids_become_the_runs_own(given_ids: list[str], used: set[str]):
    """F33: unique within the Run, short enough for an id, and untouched where they already are."""
    parts = [ToolCallPart("t", {}, tool_call_id=call_id) for call_id in given_ids]
    response = ModelResponse(parts=[TextPart("hm"), *parts])
    own = [part.tool_call_id for part in with_own_ids(response, used, 2).tool_calls]
    assert len({*own}) == len(own) == len(given_ids)
    assert not used & {*own}
    assert all(1 <= len(call_id) <= 256 for call_id in own)
    fine = [i for i in given_ids if given_ids.count(i) == 1 and i not in used and 0 < len(i) < 200]
    assert {*fine} <= {*own}


def test_a_response_that_needs_nothing_is_left_alone():
    """The same object, so that nobody who holds it is surprised."""
    response = ModelResponse(parts=[ToolCallPart("t", {}, tool_call_id="c")])
    assert with_own_ids(response, {"other"}, 1) is response


def test_a_bound_agent_knows_its_tools_by_name():
    """The policy a declaration uses is the binding's."""
    bound = bind(Agent(TestModel(), tools=[pay]), id="a", tools={"pay": ToolClass.READONLY})
    assert bound.tool("pay").tool_class is ToolClass.READONLY
