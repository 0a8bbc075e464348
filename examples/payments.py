"""A tool that moves money, and a reconciler that knows where to look when a worker dies under it.

    threads dev --agents examples.payments:registry      (in the folder that holds `examples`)
    threads submit invoices payments "Pay 120 for invoice 7" --wait

`pay` is `uncertain`: after a crash nobody here may run it again. But the bank keeps books, and each entry carries the
idempotency key of the call that made it. So the reconciler looks: an entry proves that the payment happened and
what it returned, no entry proves that it did not. Only books that cannot be read leave the outcome unknown.

The bank is a text file and the model is a script, so that this runs without a key and without a network.
"""

import json
import os
import re
import time
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from thread_objects import Registry, ToolClass, ToolPolicy, bind, current_call
from thread_objects.agents import CompletedWithResult, LostCall, NeverStarted, Reconciled, Uncertain

BOOKS = Path(os.environ.get("EXAMPLE_BANK_BOOKS", "bank-books.jsonl"))
ANSWER_S = float(os.environ.get("EXAMPLE_BANK_ANSWER_S", "0"))
"""How long the bank takes to answer once it has paid: the moment in which a worker must not die, but may."""


def script(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
    """Pay what the prompt says, then tell what the bank said."""
    last = messages[-1].parts[-1]
    if isinstance(last, ToolReturnPart):
        return ModelResponse(parts=[TextPart(f"Paid: {last.content}.")])
    prompt = str(last.content) if isinstance(last, UserPromptPart) else ""
    numbers = [int(number) for number in re.findall(r"\d+", prompt)]
    if len(numbers) != 2:  # noqa: PLR2004  # an amount and an invoice
        return ModelResponse(parts=[TextPart("Say an amount and an invoice, like: pay 120 for invoice 7.")])
    return ModelResponse(parts=[ToolCallPart("pay", {"amount": numbers[0], "invoice": numbers[1]})])


agent = Agent(FunctionModel(script, model_name="scripted"))


@agent.tool_plain
def pay(amount: int, invoice: int) -> str:
    """Pay an invoice."""
    entry = {"key": current_call().idempotency_key, "amount": amount, "invoice": invoice}
    with BOOKS.open("a") as books:
        books.write(json.dumps(entry) + "\n")
    time.sleep(ANSWER_S)
    return receipt_of(amount, invoice)


def receipt_of(amount: int, invoice: int) -> str:
    """What the bank answers to a payment."""
    return f"{amount} for invoice {invoice}"


def look_into_the_books(call: LostCall) -> Reconciled:
    """What became of a payment whose worker died."""
    try:
        lines = BOOKS.read_text().splitlines() if BOOKS.exists() else []
        entries = {entry["key"]: entry for entry in map(json.loads, lines)}
    except (OSError, ValueError):
        return Uncertain()
    entry = entries.get(call.idempotency_key)
    if entry is None:
        return NeverStarted()
    return CompletedWithResult(receipt_of(entry["amount"], entry["invoice"]), reason="found in the bank's books")


registry = Registry(
    [
        bind(
            agent,
            id="payments",
            tools={"pay": ToolPolicy(tool_class=ToolClass.UNCERTAIN, reconciler=look_into_the_books)},
        )
    ]
)
