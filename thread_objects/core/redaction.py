"""Redaction: what of a record is content, and what stays when it is taken.

Rule guarded: identities, outcomes, classes and digests stay, so that audits and idempotency hold; what people, models
and tools said goes. A redacted payload still decodes as its kind, and carries the digest and size of what it was. A
kind that is not listed here is never redacted: nobody has said yet what of it is content.
"""

import re
from typing import Any

from thread_objects.core import digests
from thread_objects.core.canonical import RECORD, byte_length, canonical, parse

MEMBER = "redacted"
_MARK = f'"{MEMBER}":{{'
_DIGEST = re.compile(r"[0-9a-f]{64}")

Content = dict[tuple[str, ...], Any]
CONTENT: dict[str, Content] = {
    "ThreadCreated": {},
    "UserInputRecorded": {("input",): None},
    "RunStarted": {},
    "ModelResponseRecorded": {("messages",): [], ("calls", "*", "arguments"): None, ("state",): {}},
    "ToolCallSettled": {("result",): None, ("part",): {}, ("extra",): []},
    "ToolCallUnknown": {("reason",): ""},
    "ToolCallResolved": {("reason",): ""},
    "ToolStepSettled": {("output",): None},
    "ToolApprovalRequested": {},
    "ToolApprovalDecided": {("reason",): ""},
    "ModelResponseInterrupted": {("reason",): ""},
    "RunCompleted": {("output",): None},
    "RunFailed": {("failure", "message"): ""},
    "AbortRequested": {("reason",): ""},
    # A disposition stands beside a result only, and goes with it.
    "SubmissionSettled": {("result",): None, ("diagnostic", "message"): "", ("runDisposition",): None},
    "RepairAnnotated": {("details",): {}},
    "SubagentRequested": {("childInput",): None},
    "SubagentStarted": {},
    "SubagentJoined": {},
    "SubagentLineageRecorded": {},
}
"""By kind: where content stands, and what stands there afterwards. `*` means each element of a list."""


def redacted(payload: dict[str, Any]) -> bool:
    """Whether this payload was redacted."""
    return MEMBER in payload


def redacted_text(body: str) -> bool:
    """As `redacted`, of a stored text. Content that merely looks like the mark is told apart."""
    if _MARK not in body:
        return False
    try:
        payload = parse(body)
    except ValueError:
        return False
    return isinstance(payload, dict) and redacted(payload)


def redactable(kind: str) -> bool:
    """Whether it is known what of this kind is content."""
    return kind in CONTENT


def redact(payload: dict[str, Any], body: str) -> dict[str, Any]:
    """The payload without its content. `body` is its stored text. Redacting again changes nothing."""
    if redacted(payload):
        return payload
    told = {"digest": digests.of_text(body), "bytes": byte_length(body)}
    return {**_blank(payload), MEMBER: told}


def well_formed(payload: dict[str, Any]) -> bool:
    """Whether a payload is whole, or redacted as `redact` does it: no content beside the mark."""
    if not redacted(payload):
        return True
    told = payload[MEMBER]
    if payload.get("kind") not in CONTENT or not isinstance(told, dict) or set(told) != {"digest", "bytes"}:
        return False
    digest, size = told["digest"], told["bytes"]
    if not isinstance(digest, str) or _DIGEST.fullmatch(digest) is None or type(size) is not int or size < 0:
        return False
    rest = without_mark(payload)
    return canonical(_blank(rest), RECORD) == canonical(rest, RECORD)


def without_mark(payload: dict[str, Any]) -> dict[str, Any]:
    """A redacted payload as its kind has it."""
    return {name: value for name, value in payload.items() if name != MEMBER}


def stand_in(text: str) -> str:
    """What stands in the place of a stored canonical text: its digest, so that the same text is known again."""
    return canonical({MEMBER: digests.of_text(text)})


def _blank(payload: dict[str, Any]) -> dict[str, Any]:
    result = payload
    for path, value in CONTENT[str(payload["kind"])].items():
        result = _replaced(result, path, value)
    return result


def _replaced(value: Any, path: tuple[str, ...], content: Any) -> Any:
    """The value with what stands at a path replaced; a path that is not there changes nothing."""
    name, *rest = path
    if name == "*":
        return [_replaced(item, tuple(rest), content) for item in value] if isinstance(value, list) else value
    if not isinstance(value, dict) or name not in value:
        return value
    return {**value, name: _replaced(value[name], tuple(rest), content) if rest else content}
