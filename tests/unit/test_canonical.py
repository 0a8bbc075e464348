"""Canonical JSON: one text for one content, back again as it was, and bounds that nothing gets around."""

import math
import os
import subprocess
import sys
from enum import IntEnum, StrEnum
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from thread_objects.core import canonical as module
from thread_objects.core.canonical import (
    PERSISTED,
    RECORD,
    Bounds,
    Unpersistable,
    byte_length,
    canonical,
    escape_text,
    parse,
    unescape_text,
)

INT_MAX = 2**53 - 1
any_text = st.text(st.characters(codec=None))
plain_text = st.text(st.characters(codec="utf-8", exclude_characters="\x1a"))
numbers = st.integers(-INT_MAX, INT_MAX) | st.floats(allow_nan=False, allow_infinity=False)


def values(text: st.SearchStrategy[str], scalars: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """JSON values of any shape."""
    return st.recursive(
        st.none() | st.booleans() | text | scalars,
        lambda inner: st.lists(inner, max_size=5) | st.dictionaries(text, inner, max_size=5),
        max_leaves=20,
    )


@given(values(plain_text, numbers))
def test_text_is_that_of_rfc_8785(value: Any):
    """What needs no escape is printed exactly as the reference does, fast path or not."""
    assert canonical(value).encode() == rfc8785.dumps(value)


@given(values(plain_text, st.integers(-INT_MAX, INT_MAX) | st.floats(1e-4, 1e15, exclude_max=True)))
def test_fast_path_and_reference_agree(value: Any):
    """Numbers and keys that the fast path takes are those that both print alike."""
    if module._check(value, PERSISTED):
        assert module._dump(value).encode() == rfc8785.dumps(value)
    assert canonical(value).encode() == rfc8785.dumps(value)


@given(values(any_text, st.integers(-(2**200), 2**200)))
def test_values_come_back_as_they_were(value: Any):
    """NUL, lone surrogates, large integers and the escape mark itself survive the round trip."""
    text = canonical(value)
    assert parse(text) == value
    text.encode()
    assert "\x00" not in text


@given(values(any_text, numbers | st.integers()))
def test_parsing_and_printing_again_changes_nothing(value: Any):
    """A stored text is its own canonical form, floats that look like large integers included."""
    text = canonical(value)
    assert canonical(parse(text)) == text


@given(any_text, any_text)
def test_escaped_texts_stay_different(one: str, two: str):
    """Every text can be stored in a column, comes back, and collides with no other."""
    assert unescape_text(escape_text(one)) == one
    assert (escape_text(one) == escape_text(two)) == (one == two)
    assert "\x00" not in escape_text(one)
    escape_text(one).encode()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1"),
        (-0.0, "0"),
        (1e21, "1e+21"),
        (1e20, "100000000000000000000"),
        (1e-7, "1e-7"),
        (0.000001, "0.000001"),
        (4.35, "4.35"),
        ('\u20ac$\x0f\nA\'B"\\\\"/', '"\u20ac$\\u000f\\nA\'B\\"\\\\\\\\\\"/"'),
        ({"\u20ac": 1, "\r": 2, "\ufb33": 3, "1": 4, "\U0001f600": 5, "\x80": 6, "\u00f6": 7}, None),
        ({"b": [True, None], "a": {}}, '{"a":{},"b":[true,null]}'),
    ],
)
def test_examples_of_the_rfc(value: Any, text: str | None):
    """Numbers, escapes and the order of keys by UTF-16 code unit."""
    order = '{"\\r":2,"1":4,"\x80":6,"\u00f6":7,"\u20ac":1,"\U0001f600":5,"\ufb33":3}'
    assert canonical(value) == (order if text is None else text)


def test_enums_and_tuples_are_their_plain_values():
    """A subclass of a JSON type is stored as the type; a tuple is a list."""

    class Word(StrEnum):
        ONE = "one"

    class Number(IntEnum):
        TWO = 2

    class Real(float):
        pass

    class Keyed(dict[str, object]):
        pass

    value = (Word.ONE, Number.TWO, Keyed({Word.ONE: Word.ONE}), Real(0.5), Real(1e20))
    assert canonical(value) == '["one",2,{"one":"one"},0.5,100000000000000000000]'


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, [{"a": math.nan}], {"a": (1.5, math.inf)}])
def test_numbers_that_are_not_finite_are_refused(value: Any):
    """NaN and Infinity have no canonical form (LIM-010)."""
    with pytest.raises(Unpersistable):
        canonical(value)


@pytest.mark.parametrize("value", [b"bytes", {1: "a"}, {None: 1}, {1, 2}, object(), [1, {"a": 1j}]])
def test_what_is_no_json_is_refused(value: Any):
    """Nothing is silently converted: neither bytes nor a key that is no text."""
    with pytest.raises(Unpersistable) as refused:
        canonical(value)
    assert refused.value.limit is None


def nested(depth: int, *, wide: bool = False) -> Any:
    """A value of that many containers inside one another."""
    value: Any = "x"
    for level in range(depth):
        value = {"a": value} if wide and level % 2 else [value]
    return value


@pytest.mark.parametrize("wide", [False, True])
def test_depth_of_64_is_accepted_and_65_refused(wide: bool):
    """Depth counts containers (LIM-008)."""
    assert parse(canonical(nested(64, wide=wide))) == nested(64, wide=wide)
    with pytest.raises(Unpersistable) as refused:
        canonical(nested(65, wide=wide))
    assert (refused.value.limit, refused.value.actual, refused.value.maximum) == ("depth", 65, 64)


def test_depth_far_past_the_stack_is_refused():
    """The check does not recurse, and a cycle is a depth without end (LIM-011)."""
    cycle: dict[str, Any] = {}
    cycle["self"] = [cycle]
    for value in (nested(500_000), cycle):
        with pytest.raises(Unpersistable) as refused:
            canonical(value)
        assert refused.value.limit == "depth"


@pytest.mark.parametrize("make", [lambda n: [0] * n, lambda n: {str(i): 0 for i in range(n)}])
def test_collection_of_4096_is_accepted_and_4097_refused(make: Any):
    """Lists and objects have the same bound."""
    assert canonical(make(4_096))
    with pytest.raises(Unpersistable) as refused:
        canonical(make(4_097))
    assert (refused.value.limit, refused.value.actual, refused.value.maximum) == ("collection", 4_097, 4_096)


def test_node_count_is_bounded():
    """65 536 values at most, however they are arranged, shared ones counted each time."""
    row = [0] * 4_095
    assert canonical([row] * 15)
    with pytest.raises(Unpersistable) as refused:
        canonical([row] * 17)
    assert refused.value.limit == "nodes"
    shared: Any = [0]
    for _ in range(40):
        shared = [shared, shared]
    with pytest.raises(Unpersistable) as refused:
        canonical(shared)
    assert refused.value.limit == "nodes"


@pytest.mark.parametrize("character", ["x", "é", "\x1a"])
def test_bytes_are_counted_in_utf_8(character: str):
    """The bound is on what is stored, and inclusive (LIM-012)."""
    each = byte_length(canonical(character)) - 2
    count = (PERSISTED.bytes - 2) // each
    assert byte_length(canonical(character * count)) <= PERSISTED.bytes
    with pytest.raises(Unpersistable) as refused:
        canonical(character * (count + each))
    assert refused.value.limit == "bytes"


def test_integers_are_bounded():
    """An integer that no text conversion would print is refused, also deep inside."""
    assert parse(canonical(2**12_999)) == 2**12_999
    with pytest.raises(Unpersistable) as refused:
        canonical([1.5, {"a": 2**20_000}])
    assert refused.value.limit == "bits"


def test_a_record_holds_any_persisted_value():
    """The envelope's bounds leave room for a value at its own bounds."""
    for value in (nested(64), "x" * (PERSISTED.bytes - 2), [0] * 4_096):
        assert canonical({"kind": "UserInputRecorded", "input": value}, RECORD)


def test_bounds_can_be_narrower():
    """The bounds are an argument."""
    with pytest.raises(Unpersistable):
        canonical([[1]], Bounds(depth=1, collection=1, nodes=10, bytes=10))


@pytest.mark.parametrize("text", ["", "{", "nul", "[1,]", "[" * 100_000])
def test_damaged_text_is_a_value_error(text: str):
    """Whatever is wrong with a stored text, parsing says it the same way."""
    with pytest.raises(ValueError):
        parse(text)


@settings(max_examples=10, deadline=None)
@given(values(any_text, numbers | st.integers(-(2**70), 2**70)))
def test_value_is_left_alone(value: Any):
    """Printing changes nothing of what it prints."""
    before = repr(value)
    canonical(value)
    assert repr(value) == before


def test_text_is_the_same_in_a_new_process():
    """No hash seed and no locale shows in a digest (F20)."""
    script = (
        "from thread_objects.core.digests import of_value;"
        "print(of_value({'b': ['\\u00e9', 2**70, '\\ud800', 0.1], 'a': {'\\U0001f600': None, '\\uffff': 1.0}}))"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed, "LC_ALL": "C"},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2")
    }
    assert digests == {"560a643909b11701351d5380e3798cea522ffff1441f0f8ef4195bb1d8ea8e7c\n"}
