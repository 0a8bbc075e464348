"""Work of your own beside a conversation: a tool takes notes, and a lane brings them into an index.

    threads dev --agents examples.notes:registry --extensions examples.notes:extensions
    threads submit diary notes "buy milk" --wait        (in the folder that holds `examples`)

The tool writes its note down and makes the lane due; the answer does not wait for the index. The lane works through
what is new, a few notes in each wave, for as long as there is more. Its cursor is the number of notes: scheduling
with the same one again changes nothing, and with a higher one it is due at once, whatever it waits for.

The notes are text files and the model is a script, so that this runs without a key and without a network.
"""

import json
import os
import sys
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from thread_objects import Extensions, Lane, RecoveryEvent, Registry, ToolClass, WaveContext, bind, current_call
from thread_objects.agents import schedule_lane_sync

FOLDER = Path(os.environ.get("EXAMPLE_NOTES", "notes"))
NOTES_PER_WAVE = 2


def script(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
    """Take a note of the prompt, then say so."""
    last = messages[-1].parts[-1]
    if isinstance(last, ToolReturnPart):
        return ModelResponse(parts=[TextPart(f"Noted: {last.content}.")])
    prompt = str(last.content) if isinstance(last, UserPromptPart) else ""
    return ModelResponse(parts=[ToolCallPart("note", {"text": prompt})])


agent = Agent(FunctionModel(script, model_name="scripted"))


@agent.tool_plain
def note(text: str) -> str:
    """Take a note. The same call writes the same note, so it may be repeated."""
    call = current_call()
    notes = _notes(call.thread_id)
    if call.idempotency_key not in [entry["key"] for entry in notes]:
        FOLDER.mkdir(parents=True, exist_ok=True)
        with _file(call.thread_id, "notes").open("a") as file:
            file.write(json.dumps({"key": call.idempotency_key, "text": text}) + "\n")
    schedule_lane_sync("index", 0, cursor=len(_notes(call.thread_id)))
    return text


def index(context: WaveContext) -> int | None:
    """One wave: bring a few more notes into the index. Due again at once while there are more, and else never."""
    notes, known = _notes(context.object_id), _indexed(context.object_id)
    for entry in notes[len(known) : len(known) + NOTES_PER_WAVE]:
        context.check()
        known.append(sorted(entry["text"].casefold().split()))
    fresh = _file(context.object_id, "index").with_suffix(".new")
    fresh.write_text(json.dumps(known))
    fresh.replace(_file(context.object_id, "index"))
    return context.now if len(known) < len(notes) else None


class Pager:
    """Says when a conversation cannot be recovered, and when it can again."""

    def publish(self, context: WaveContext, event: RecoveryEvent) -> None:
        """One line. (A real pager would send it under (object, sequence), which is the same at every delivery.)"""
        line = f"{context.object_id} #{event.sequence}: {event.transition}, {event.failure.error_tag}\n"
        sys.stderr.write(line)


def _file(thread_id: str, kind: str) -> Path:
    return FOLDER / f"{thread_id}.{kind}"


def _notes(thread_id: str) -> list[dict[str, str]]:
    file = _file(thread_id, "notes")
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _indexed(thread_id: str) -> list[list[str]]:
    file = _file(thread_id, "index")
    indexed: list[list[str]] = json.loads(file.read_text()) if file.exists() else []
    return indexed


registry = Registry([bind(agent, id="notes", tools={"note": ToolClass.IDEMPOTENT})])
extensions = Extensions(lanes=[Lane("index", index, allowance_ms=10_000)], recovery_events=Pager())
