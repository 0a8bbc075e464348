"""Log records as a person reads them: who did what, on one line each."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from thread_objects.cli.text import instant, one_line, plain, short
from thread_objects.contract import records as r
from thread_objects.contract.messages import LogRecord
from thread_objects.core import redaction


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that happened: who, what, and how it looks (a rich style)."""

    who: str
    what: str
    style: str = ""


def lines_of(record: LogRecord) -> list[Line]:
    """What a record says, one or more lines; a kind that this version does not know is told by its name."""
    if redaction.redacted(record.payload):
        return [Line("record", f"{record.kind}, redacted", "dim")]
    try:
        payload = r.PAYLOADS.validate_python({"kind": record.kind, **record.payload})
    except ValidationError:
        return [Line("record", f"{record.kind} {short(record.payload)}", "dim")]
    return list(_told(payload))


def transcript_of(record: LogRecord) -> list[Line]:
    """The conversation only: input, the model's words, tool calls and results, the end."""
    kept = {"UserInputRecorded", "ModelResponseRecorded", "ToolCallSettled", "ToolCallUnknown", "SubmissionSettled"}
    if record.kind not in kept | {"ToolApprovalDecided"}:
        return []
    return [Line(line.who, line.what, line.style) for line in lines_of(record)]


def said(message: dict[str, Any]) -> str:
    """The text of a pydantic-ai message."""
    parts = message.get("parts")
    if not isinstance(parts, list):
        return ""
    texts = [p.get("content") for p in parts if isinstance(p, dict) and p.get("part_kind") == "text"]
    return "".join(text for text in texts if isinstance(text, str))


def _told(payload: r.AnyPayload) -> Iterator[Line]:  # noqa: C901, PLR0912  # one case per kind is the shape of it
    match payload:
        case r.ThreadCreated(agent_id=agent):
            yield Line("thread", f"created for agent {one_line(agent)}", "dim")
        case r.UserInputRecorded(input_kind=kind, input=value):
            yield Line(kind, short(value), "cyan")
        case r.RunStarted(deadline_at=deadline):
            yield Line("run", f"started, to end by {instant(deadline)}", "dim")
        case r.ModelResponseRecorded():
            yield from _response(payload)
        case r.ToolCallSettled(tool_name=tool, result=result, is_failure=failed):
            yield Line(
                "tool", f"{one_line(tool)} {'failed: ' if failed else '= '}{short(result)}", "red" if failed else "blue"
            )
        case r.ToolCallUnknown(tool_name=tool, reason=reason):
            yield Line("tool", f"{one_line(tool)}: outcome unknown, never run again by itself ({short(reason)})", "red")
        case r.ToolCallResolved(tool_call_id=call, resolution=resolution, author=author):
            yield Line("operator", f"{short(author)} resolved {short(call)}: {resolution}", "yellow")
        case r.ToolStepSettled(tool_call_id=call, step_name=step):
            yield Line("step", f"{short(step)} of {short(call)} done", "dim")
        case r.ToolApprovalRequested(tool_name=tool, tool_call_id=call):
            yield Line("approval", f"{one_line(tool)} ({short(call)}) waits for approval", "yellow")
        case r.ToolApprovalDecided(tool_call_id=call, decision=decision, resolver=resolver, reason=reason):
            why = f": {short(reason)}" if reason else ""
            yield Line("approval", f"{decision} by {short(resolver)} ({short(call)}){why}", "yellow")
        case r.ModelResponseInterrupted(reason=reason):
            yield Line("model", f"interrupted, asked again ({short(reason)})", "yellow")
        case r.RunCompleted():
            yield Line("run", "completed", "dim")
        case r.RunFailed(failure=failure):
            yield Line("run", f"failed: {failure.error_tag}: {short(failure.message)}", "red")
        case r.AbortRequested(author=author, reason=reason):
            yield Line("abort", f"asked for by {short(author)}: {short(reason)}", "yellow")
        case r.SubmissionSettled():
            yield _settled(payload)
        case r.RepairAnnotated(reason=reason):
            yield Line("recovery", short(reason), "yellow")


def _response(response: r.ModelResponseRecorded) -> Iterator[Line]:
    text = said(response.messages[-1]) if response.messages else ""
    if text.strip():
        yield Line("agent", short(plain(text), 1_000), "green")
    for call in response.calls:
        notes = [str(call.tool_class)] + (["needs approval"] if call.approval else [])
        if call.rejected:
            notes.append("arguments refused")
        yield Line("agent", f"calls {one_line(call.tool_name)}({short(call.arguments)}) [{', '.join(notes)}]", "green")


def _settled(settled: r.SubmissionSettled) -> Line:
    match settled.outcome:
        case "completed":
            return Line("settled", f"completed: {short(settled.result)}", "bold green")
        case "failed" if settled.diagnostic is not None:
            told = settled.diagnostic
            return Line("settled", f"failed: {told.error_tag}: {short(told.message)}", "bold red")
        case _:
            return Line("settled", str(settled.outcome), "bold yellow")
