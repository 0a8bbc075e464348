"""F20: what an earlier version stored is read by this one, with the same digests, in any process."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_core import to_json

from storage import StoreLimits, open_store
from tests.contract.archived import lived_in
from tests.contract.world import THREAD, World
from thread_objects.archives import ArchiveFile, check_archive
from thread_objects.contract import records as r
from thread_objects.core import digests, redaction
from thread_objects.core.canonical import RECORD, Unpersistable, canonical, parse

FROZEN = Path(__file__).parent / "frozen"
RECORDS = [json.loads(line) for line in (FROZEN / "records.jsonl").read_text().splitlines()]
KINDS = {kind.model_fields["kind"].default for kind in get_args(get_args(r.AnyPayload)[0])}
WHEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def holds(whole: Any, part: Any) -> bool:
    """Whether nothing of `part` was lost in `whole`."""
    if isinstance(part, dict):
        return all(name in whole and holds(whole[name], value) for name, value in part.items())
    if isinstance(part, list):
        return len(part) == len(whole) and all(holds(a, b) for a, b in zip(whole, part, strict=True))
    return bool(whole == part)


@pytest.mark.parametrize("frozen", RECORDS, ids=lambda frozen: parse(frozen["body"])["kind"])
def test_stored_record_is_read_and_has_its_digest(frozen: dict[str, str]):
    """A record as it was first written decodes, keeps every member, and its text is canonical still (F20)."""
    stored = parse(frozen["body"])
    assert canonical(stored, RECORD) == frozen["body"]
    assert digests.of_text(frozen["body"]) == frozen["digest"]
    payload = r.PAYLOADS.validate_python(stored)
    assert holds(parse(canonical(payload.model_dump(by_alias=True), RECORD)), stored)


def test_frozen_records_are_of_kinds_that_are_still_there():
    """A kind that was ever written is never taken away."""
    assert {parse(frozen["body"])["kind"] for frozen in RECORDS} <= KINDS


def test_frozen_archive_is_read_in_a_new_process():
    """Every digest of an archive of the first version holds, whatever the hash seed and the locale (F20)."""
    script = (
        "import sys; from pathlib import Path; from thread_objects.archives import ArchiveFile, check_archive;"
        "print(check_archive(ArchiveFile(Path(sys.argv[1]))).verification.model_dump_json())"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, str(FROZEN / "thread.jsonl")],
        env={**os.environ, "PYTHONHASHSEED": "7", "LC_ALL": "C"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert json.loads(ran.stdout)["ok"]


def test_frozen_archive_can_be_imported_and_comes_out_the_same(tmp_path: Path):
    """Through a database and out again it is the same file, byte for byte (F20)."""
    url = f"sqlite:///{tmp_path / 'threads.db'}"
    store = open_store(url, limits=StoreLimits(), synchronous="OFF")
    report = store.import_thread(ArchiveFile(FROZEN / "thread.jsonl"), now=1)
    assert report.archive_digest == "75c71d8f323b37d0a66be16f4f9e424bb24074cc908310587616bcb1e7b00d06"
    assert "".join(store.export(THREAD)) == (FROZEN / "thread.jsonl").read_text()
    store.close()


def test_the_same_life_has_the_same_archive(tmp_path: Path):
    """What this version writes has every member of the frozen archive, in the same order of lines (F20)."""
    url = f"sqlite:///{tmp_path / 'threads.db'}"
    world = World(open_store(url, limits=StoreLimits(), synchronous="OFF"), url)
    lived_in(world)
    lines = [parse(line) for line in world.store.export(THREAD)]
    frozen = [parse(line) for line in ArchiveFile(FROZEN / "thread.jsonl")]
    world.store.close()
    assert [line["type"] for line in lines] == [line["type"] for line in frozen]
    assert check_archive(ArchiveFile(FROZEN / "thread.jsonl")).header.thread_id == THREAD
    for line, old in zip(lines, frozen, strict=True):
        if line["type"] in {"submission", "approval", "unknown-call", "resolution"}:
            assert holds(line, old)


texts = st.text(max_size=12) | st.sampled_from(["\U0001f3bb", "\x00", "\u2028", "\x1a", "caf\u00e9"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
contents = (
    texts
    | st.builds(BinaryContent, st.binary(max_size=9), media_type=st.just("application/octet-stream"))
    | st.just(ImageUrl("https://example.org/a.png"))
)
requests = st.builds(
    ModelRequest,
    parts=st.lists(
        st.builds(UserPromptPart, texts | st.lists(contents, max_size=3), timestamp=st.just(WHEN))
        | st.builds(ToolReturnPart, st.just("tool"), json_values, tool_call_id=st.just("c1"), timestamp=st.just(WHEN)),
        min_size=1,
        max_size=3,
    ),
)
responses = st.builds(
    ModelResponse,
    parts=st.lists(
        st.builds(TextPart, texts)
        | st.builds(ThinkingPart, texts)
        | st.builds(
            ToolCallPart, st.just("tool"), st.dictionaries(texts, json_values, max_size=3), tool_call_id=st.just("c1")
        ),
        min_size=1,
        max_size=3,
    ),
    timestamp=st.just(WHEN),
)


@given(st.lists(requests | responses, min_size=1, max_size=3))
@settings(max_examples=30, deadline=None)
def test_messages_come_back_as_they_were(messages: list[Any]):
    """Raw bytes, unions of content, big integers and emoji survive the log's text, with one digest (F20)."""
    plain = ModelMessagesTypeAdapter.dump_python(messages, mode="json")
    payload = r.ModelResponseRecorded(run_id="run:s", turn_id="t", turn=1, messages=plain, messages_digest="0" * 64)
    text = canonical(payload.model_dump(by_alias=True), RECORD)
    again = r.ModelResponseRecorded.model_validate(parse(text))
    assert ModelMessagesTypeAdapter.validate_json(to_json(again.messages)) == messages
    assert canonical(again.model_dump(by_alias=True), RECORD) == text


@given(st.sampled_from([float("nan"), float("inf"), -float("inf")]), st.sampled_from(["messages", "state"]))
def test_numbers_without_a_json_form_are_refused(number: float, member: str):
    """NaN reaches no log, wherever it hides in a message (F20, LIM-010)."""
    hidden: Any = (
        [{"kind": "response", "parts": [{"args": {"x": [number]}}]}] if member == "messages" else {"x": number}
    )
    payload = r.ModelResponseRecorded.model_construct(
        run_id="run:s", turn_id="t", turn=1, messages_digest="", **{"messages": [], "state": {}, member: hidden}
    )
    with pytest.raises(Unpersistable):
        canonical(payload.model_dump(by_alias=True), RECORD)


def test_every_kind_says_what_of_it_is_content():
    """Retention leaves alone what it does not know, so a new kind has to say."""
    assert set(redaction.CONTENT) == KINDS


@pytest.mark.parametrize("frozen", RECORDS, ids=lambda frozen: parse(frozen["body"])["kind"])
def test_redacted_record_still_reads_and_says_nothing(frozen: dict[str, str]):
    """Its kind decodes, its content is gone, and the digest of what it was stands in its place."""
    body = frozen["body"]
    stored = redaction.redact(parse(body), body)
    text = canonical(stored, RECORD)
    assert r.PAYLOADS.validate_python(stored).kind == parse(body)["kind"]
    assert redaction.redacted_text(text)
    assert not redaction.redacted_text(body)
    assert redaction.well_formed(stored)
    assert stored["redacted"]["digest"] == frozen["digest"]
    assert redaction.redact(stored, text) == stored
    for secret in ("caf\u00e9", "lost", "asked", "enough", "broke", "see"):
        assert secret not in text.replace("lost-", "")
    forged = {**stored, "redacted": {**stored["redacted"], "more": 1}}
    assert not redaction.well_formed(forged)


def test_content_that_looks_like_the_mark_is_no_redaction():
    """Only the record's own member counts, and only without content beside it."""
    talk = {"kind": "RunCompleted", "runId": "run:s", "output": {"redacted": {"digest": "0" * 64, "bytes": 1}}}
    assert not redaction.redacted_text(canonical(talk, RECORD))
    smuggled = {**talk, "redacted": {"digest": "0" * 64, "bytes": 1}}
    assert not redaction.well_formed(smuggled)
