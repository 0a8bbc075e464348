"""The agent of `threads demo` and `threads dev`: a shop's support desk with a scripted model.

No key and no network: the "model" is a function that reads the conversation as any model would and answers with
text or tool calls. Everything below the model is the real thing.

    Where is order 1001?     a readonly tool, which may be repeated at any time
    Refund order 1001        a tool that needs approval
    Ship order 1002          an uncertain tool that takes a while: time to kill the worker under it
"""

import asyncio
import re
from dataclasses import dataclass

from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from thread_objects.agents import Registry, RunPolicy, ToolPolicy, bind
from thread_objects.contract.states import ToolClass

AGENT_ID = "support"
SHIP_S = 20.0
"""Long enough to look at the report and to kill the worker by hand."""


@dataclass(frozen=True, slots=True)
class Order:
    """An order, as the shop knows it."""

    order_id: int
    item: str
    status: str
    amount: float


ORDERS: dict[int, Order] = {
    1001: Order(order_id=1001, item="tea pot", status="arrived broken", amount=18.5),
    1002: Order(order_id=1002, item="bread knife", status="packed", amount=32.0),
}


def _script(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
    prompt, returned = _latest(messages)
    number = re.search(r"\d{3,}", prompt)
    if number is None:
        return _says("Hello! Name an order, 1001 or 1002, and I will look it up, refund it or ship it.")
    if "look_up_order" not in returned:
        return _calls("look_up_order", order_id=int(number[0]))
    order = ORDERS.get(int(number[0]))
    if order is None:
        return _says(f"There is no order {number[0]}, I am afraid.")
    return _serve(order, prompt.lower(), returned)


def _serve(order: Order, prompt: str, returned: dict[str, object]) -> ModelResponse:
    order_id = order.order_id
    if "refund" in prompt:
        if "refund" not in returned:
            return _calls("refund", order_id=order_id, amount=order.amount)
        return _says(f"Done: {returned['refund']}.")
    if "ship" in prompt:
        if "ship_order" not in returned:
            return _calls("ship_order", order_id=order_id)
        return _says(f"Order {order_id} is on its way: {returned['ship_order']}.")
    return _says(f"Order {order_id} ({order.item}): {order.status}.")


def _latest(messages: list[ModelMessage]) -> tuple[str, dict[str, object]]:
    """The last prompt, and what tools have returned since, by tool."""
    prompt, returned = "", dict[str, object]()
    for message in messages:
        for part in message.parts:
            match part:
                case UserPromptPart(content=content):
                    prompt, returned = str(content), {}
                case ToolReturnPart(tool_name=name, content=content):
                    returned[name] = content
                case RetryPromptPart(tool_name=str(name)):
                    returned[name] = "failed"
                case _:
                    pass
    return prompt, returned


def _says(text: str) -> ModelResponse:
    return ModelResponse(parts=[TextPart(text)])


def _calls(tool: str, **arguments: object) -> ModelResponse:
    # As many models do, it gives every call of a kind the same id; ids are only unique within their Run.
    return ModelResponse(parts=[ToolCallPart(tool, arguments, tool_call_id=f"call_{tool}")])


agent = Agent(FunctionModel(_script, model_name="scripted"), instructions="You are the support desk of a small shop.")


@agent.tool_plain
def look_up_order(order_id: int) -> Order | str:
    """Find an order by its number."""
    return ORDERS.get(order_id, f"there is no order {order_id}")


@agent.tool_plain
def refund(order_id: int, amount: float) -> str:
    """Pay an amount back to the customer of an order."""
    return f"refunded {amount:.2f} for order {order_id}"


@agent.tool_plain
async def ship_order(order_id: int) -> str:
    """Hand an order to the carrier, who takes a while to answer."""
    await asyncio.sleep(SHIP_S)
    return f"parcel {order_id}-1"


registry = Registry(
    [
        bind(
            agent,
            id=AGENT_ID,
            tools={
                "look_up_order": ToolClass.READONLY,
                "refund": ToolPolicy(tool_class=ToolClass.UNCERTAIN, approval=True),
                "ship_order": ToolClass.UNCERTAIN,
            },
            policy=RunPolicy(steering_per_seam=0),  # the script answers each question on its own
        )
    ]
)
