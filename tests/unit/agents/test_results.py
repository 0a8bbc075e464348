"""F2, F20: results on their way to the log are bounded, plain, and come back as they were."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic_ai import ToolReturn
from pydantic_ai.messages import BinaryContent, ImageUrl, ToolReturnPart, UserPromptPart
from pydantic_core import PydanticSerializationError

from thread_objects.agents.results import bounded, decode_parts, encode_parts, from_settled, to_results
from thread_objects.contract.limits import TOOL_RESULT_BYTES_MAX, TOOL_RESULT_EXCERPT_BYTES
from thread_objects.contract.records import ToolCallSettled
from thread_objects.core.canonical import RECORD, canonical, parse
from thread_objects.core.digests import of_value

MAX = TOOL_RESULT_BYTES_MAX

leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(min_value=-(2**80), max_value=2**80),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(),
    st.sampled_from(["\x00", "🎻", "\u2028", "é", ""]),
)
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=12
)


def settled(part: ToolReturnPart, *extra: UserPromptPart) -> ToolCallSettled:
    """A result through the log's canonical text and back."""
    (result,) = to_results([part], {part.tool_call_id: list(extra)})
    payload = ToolCallSettled(
        run_id="run",
        turn=1,
        tool_call_id=result.tool_call_id,
        tool_name=result.tool_name,
        result=result.result,
        part=result.part,
        extra=result.extra,
        is_failure=result.is_failure,
    )
    return ToolCallSettled.model_validate(parse(canonical(payload.model_dump(by_alias=True), RECORD)))


@given(values)
@settings(max_examples=150, deadline=None)
def test_what_the_log_holds_is_what_the_model_reads(value: Any):
    """F20: any JSON value, big integers, emoji and NUL included, comes back equal and with the same digest."""
    before = ToolReturnPart(tool_name="t", content=value, tool_call_id="c")
    kept = settled(before)
    (after,) = from_settled(kept)
    assert isinstance(after, ToolReturnPart)
    assert json.loads(json.dumps(after.content)) == json.loads(json.dumps(value))
    assert of_value(settled(after).model_dump(by_alias=True), RECORD) == of_value(
        kept.model_dump(by_alias=True), RECORD
    )


def test_files_beside_and_inside_a_result_come_back_byte_by_byte():
    """F20: bytes, unions of content, urls."""
    picture = BinaryContent(data=bytes(range(256)), media_type="image/png")
    part = ToolReturnPart(tool_name="t", content=["see", picture, ImageUrl(url="https://example.com/a.png")])
    (after, extra) = from_settled(settled(part, UserPromptPart(content=["look:", picture])))
    assert after.content[1].data == picture.data
    assert isinstance(after.content[2], ImageUrl)
    assert extra.content[1].data == picture.data


@pytest.mark.parametrize(
    ("outcome", "failure"), [("success", False), ("failed", True), ("retried", False), ("denied", True)]
)
def test_how_a_call_ended_is_kept(outcome: Any, failure: bool):
    """A retry is the model's business, a failure is one."""
    kept = settled(ToolReturnPart(tool_name="t", content="x", tool_call_id="c", outcome=outcome))
    assert kept.is_failure is failure
    (after,) = from_settled(kept)
    assert after.outcome == outcome


@pytest.mark.parametrize("failure", [False, True])
def test_a_call_closed_from_outside_has_a_result_and_no_part(failure: bool):
    """A resolution's result reads as if the tool had returned it."""
    (part,) = from_settled(
        ToolCallSettled(run_id="r", tool_call_id="c", tool_name="t", result={"a": 1}, is_failure=failure)
    )
    assert (part.content, part.outcome) == ({"a": 1}, "failed" if failure else "success")


class Thing(BaseModel):
    """A model."""

    n: float


@pytest.mark.parametrize("value", ["x", {"a": [1, 2]}, Thing(n=1), None, 7, ["a", b"bytes"]])
def test_what_fits_is_left_alone(value: Any):
    """No copy, no change."""
    assert bounded(value, MAX) is value


@pytest.mark.parametrize("size", [MAX + 1, 4 * 1_048_576])
def test_text_past_the_bound_keeps_head_tail_size_and_digest(size: int):
    """F2: both ends are there, the middle is not, and the digest is the whole's."""
    text = "a" * (size // 2) + "é" + "z" * (size // 2)
    kept = bounded(text, MAX)
    assert kept["bytes"] == len(text.encode())
    assert kept["sha256"] == hashlib.sha256(text.encode()).hexdigest()
    assert (set(kept["head"]), set(kept["tail"])) == ({"a"}, {"z"})
    assert len(kept["head"]) <= TOOL_RESULT_EXCERPT_BYTES


def test_an_excerpt_is_never_cut_within_a_character():
    """Multi-byte text stays text."""
    kept = bounded("é🎻" * 100_000, MAX)
    assert set(kept["head"]) == set(kept["tail"]) == {"é", "🎻"}


@pytest.mark.parametrize("value", [list(range(5_000)), [[1]] * 4_097, {str(n): n for n in range(4_097)}])
def test_a_value_wider_than_may_be_kept_becomes_an_excerpt(value: Any):
    """Its size is no matter: what the log would refuse is told with head and tail."""
    kept = bounded(value, MAX)
    assert kept["truncated"] is True


def test_a_value_deeper_than_may_be_kept_becomes_an_excerpt():
    """Sixty-five levels are one too many."""
    value: Any = 1
    for _ in range(65):
        value = [value]
    assert bounded(value, MAX)["truncated"] is True
    assert bounded(value[0], MAX) is value[0]


@pytest.mark.parametrize(
    ("number", "text"), [(float("nan"), "NaN"), (float("inf"), "Infinity"), (float("-inf"), "-Infinity")]
)
def test_numbers_that_json_does_not_have_are_said_as_text(number: float, text: str):
    """NaN is told, not passed on to whoever cannot read it; a model's own is what its serializer makes of it."""
    kept = bounded({"n": number, "m": Thing(n=number)}, MAX)
    assert kept == {"n": text, "m": {"n": None}}
    assert settled(ToolReturnPart(tool_name="t", content=Thing(n=number))).result == {"n": None}


def test_content_for_the_model_is_bounded_too():
    """A ToolReturn's further content: files too large are named, texts too long are cut; the given one is unchanged."""
    big = BinaryContent(data=b"\x00" * 300_000, media_type="image/png")
    given_ = ToolReturn(return_value="ok", content=["see", big, "x" * 300_000], metadata={"k": 1})
    kept = bounded(given_, MAX)
    assert kept.return_value == "ok"
    assert kept.content[0] == "see"
    assert "300000 bytes" in kept.content[1]
    assert len(kept.content[2]) < MAX
    assert given_.content[1] is big


def test_what_cannot_be_printed_is_refused():
    """An object that no serializer knows is the tool's error."""
    with pytest.raises(PydanticSerializationError):
        bounded({"o": object()}, MAX)


def test_parts_encode_to_the_same_text_in_another_process():
    """F20: no hash seed, no memory address, no clock has a part in it."""
    code = (
        "from datetime import datetime, UTC\n"
        "from pydantic_ai.messages import ToolReturnPart, BinaryContent\n"
        "from thread_objects.agents.results import encode_parts\n"
        "from thread_objects.core.canonical import RECORD\n"
        "from thread_objects.core.digests import of_value\n"
        "at = datetime(2026, 1, 1, tzinfo=UTC)\n"
        "content = [{'b': 1, 'a': 'é'}, BinaryContent(data=bytes(range(9)), media_type='image/png')]\n"
        "part = ToolReturnPart(tool_name='t', content=content, tool_call_id='c', timestamp=at)\n"
        "print(of_value(encode_parts([part]), RECORD))\n"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=Path(__file__).parents[3],
            env={"PYTHONHASHSEED": seed, "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert printed == {FROZEN}


FROZEN = "40c7c0d5e69d0091874be176d0348c95843acddb664446a88cdb994023047e0a"


def test_stored_parts_of_earlier_versions_still_read():
    """F20: frozen JSON of parts, as this version wrote it first."""
    stored = [
        {
            "tool_name": "t",
            "content": {"a": 1},
            "tool_call_id": "c",
            "part_kind": "tool-return",
            "outcome": "success",
            "timestamp": "2026-01-01T00:00:00Z",
            "content_file_digests": [],
        },
        {"content": "hello", "part_kind": "user-prompt", "timestamp": "2026-01-01T00:00:00Z"},
    ]
    result, prompt = decode_parts(stored)
    assert (result.content, result.tool_call_id, prompt.content) == ({"a": 1}, "c", "hello")
    assert encode_parts([result, prompt]) == stored
