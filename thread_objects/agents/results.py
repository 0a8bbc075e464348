"""Tool results on their way to the log: bounded, plain JSON, and exactly what the model will read.

Rule guarded: a result that is too large costs a notice of its size and digest, never the Run.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import JsonValue
from pydantic_ai import ToolReturn
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelRequestPart,
    ToolReturnPart,
)
from pydantic_core import from_json, to_json

from thread_objects.agents.binding import Result
from thread_objects.contract import limits
from thread_objects.contract.records import ToolCallSettled
from thread_objects.core.canonical import PERSISTED, Unpersistable, canonical

FAILURES = ("failed", "denied", "interrupted")


def bounded(result: Any, maximum_bytes: int) -> Any:
    """The result, or what stands in its place when it is larger or deeper than what may be kept.

    Files count with their encoded size and are replaced by a notice; text and data keep their head and tail.
    Raises `PydanticSerializationError` for what cannot be printed at all.
    """
    if isinstance(result, str) and len(result) * 4 <= maximum_bytes:
        return result
    if isinstance(result, ToolReturn):
        content = result.content
        if content is not None and len(to_json(content, inf_nan_mode="strings")) > maximum_bytes:
            content = _file_notices(content, maximum_bytes)
        return replace(result, return_value=bounded(result.return_value, maximum_bytes), content=content)
    if isinstance(result, BinaryContent):
        return result if len(result.data) * 4 <= maximum_bytes * 3 else _file_notice(result)
    printed = to_json(result, inf_nan_mode="strings")
    if len(printed) <= maximum_bytes and _fits(printed):
        # JSON knows no NaN; said as text it survives every reader.
        return from_json(printed) if b"NaN" in printed or b"Infinity" in printed else result
    if isinstance(result, (list, tuple)) and any(isinstance(item, BinaryContent) for item in result):
        return _file_notices(result, maximum_bytes)
    text = result.encode() if isinstance(result, str) else printed
    return _excerpt(text, maximum_bytes)


def _fits(printed: bytes) -> bool:
    # The structural bounds only matter to values that could exceed them: most are far too short.
    if len(printed) < 2 * limits.JSON_DEPTH_MAX:
        return True
    try:
        canonical(from_json(printed), PERSISTED)
    except (Unpersistable, ValueError):
        return False
    return True


def _excerpt(text: bytes, maximum_bytes: int) -> dict[str, JsonValue]:
    kept = min(limits.TOOL_RESULT_EXCERPT_BYTES, maximum_bytes // 4)
    return {
        "truncated": True,
        "bytes": len(text),
        "sha256": hashlib.sha256(text).hexdigest(),
        "head": text[:kept].decode(errors="ignore"),
        "tail": text[-kept:].decode(errors="ignore"),
    }


def _file_notice(file: BinaryContent) -> str:
    digest = hashlib.sha256(file.data).hexdigest()
    return f"[a {file.media_type} file of {len(file.data)} bytes was left out, sha256 {digest}]"


def _file_notices(content: Any, maximum_bytes: int) -> Any:
    items = content if isinstance(content, (list, tuple)) else [content]
    kept: list[Any] = []
    for item in items:
        printed = len(to_json(item, inf_nan_mode="strings"))
        if isinstance(item, BinaryContent):
            kept.append(_file_notice(item))
        elif printed > maximum_bytes // max(1, len(items)):
            text = item if isinstance(item, str) else to_json(item, inf_nan_mode="strings").decode()
            kept.append(to_json(_excerpt(text.encode(), maximum_bytes // max(1, len(items)))).decode())
        else:
            kept.append(item)
    return kept


def encode_parts(parts: Sequence[ModelRequestPart]) -> list[dict[str, Any]]:
    """Parts as pydantic-ai's own JSON."""
    # Through text: only there is everything sure to be plain JSON (a model's NaN is null, say).
    dumped = from_json(ModelMessagesTypeAdapter.dump_json([ModelRequest(parts=list(parts))]))
    return [pruned(part) for part in dumped[0]["parts"]]


def decode_parts(parts: Sequence[Mapping[str, Any]]) -> list[ModelRequestPart]:
    """Parts from their JSON. Raises `ValidationError`."""
    message = ModelMessagesTypeAdapter.validate_json(to_json([{"kind": "request", "parts": list(parts)}]))[0]
    return list(message.parts)  # type: ignore[arg-type]  # a request's parts


def pruned(fields: dict[str, Any]) -> dict[str, Any]:
    """Without the fields that say nothing; what pydantic-ai reads back is the same."""
    return {name: value for name, value in fields.items() if value is not None or name == "content"}


def to_results(parts: Sequence[ToolReturnPart], extras: Mapping[str, Sequence[ModelRequestPart]]) -> list[Result]:
    """Results as the journal takes them: the content apart from its part, so that it is stored once."""
    results: list[Result] = []
    for part, encoded in zip(parts, encode_parts(parts), strict=True):
        extra = extras.get(part.tool_call_id, ())
        results.append(
            Result(
                tool_call_id=part.tool_call_id,
                tool_name=part.tool_name,
                result=encoded.pop("content", None),
                part=encoded,
                extra=tuple(encode_parts(extra)) if extra else (),
                is_failure=part.outcome in FAILURES,
            )
        )
    return results


def from_settled(settled: ToolCallSettled) -> list[ModelRequestPart]:
    """The return part of a settled call, then what follows it. Resolved calls have a result and no part."""
    if settled.part:
        return decode_parts([{**settled.part, "content": settled.result}, *settled.extra])
    return [
        ToolReturnPart(
            tool_name=settled.tool_name,
            content=settled.result,
            tool_call_id=settled.tool_call_id,
            outcome="failed" if settled.is_failure else "success",
        )
    ]
