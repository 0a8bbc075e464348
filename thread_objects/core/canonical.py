"""Canonical JSON (RFC 8785), its bounds, and a reversible escape for what neither it nor a database can hold.

Rule guarded: the same content has the same bytes, and so the same digest, in every process and on every database;
and what was stored comes back as it was. Bounds are checked before anything recurses, so no value can exhaust
the stack, the memory, or loop for ever (a cycle is a value of unbounded depth).

The escape. U+001A followed by four hex digits stands for one UTF-16 code unit (a lone surrogate, NUL, or U+001A
itself); a string that is U+001A, `i` and decimal digits stands for an integer past 2^53. No other text changes.
"""

import json
import math
import re
from dataclasses import dataclass
from typing import Any

import rfc8785

from thread_objects.contract import limits

_INT_MAX = 2**53 - 1
_INT_BITS_MAX = 13_000  # below CPython's bound on converting integers to text
_SAME_MIN = 1e-4
_SAME_MAX = 1e15
"""Between these, and with a fraction, the shortest form that Python prints is ECMAScript's too."""
_MARK = "\x1a"
_MARK_IN_JSON = "\\u001a"
_LONG_DIGITS = re.compile(r"\d{16}")
_UNSAFE_JSON = re.compile("[\x1a\ud800-\udfff]")
_UNSAFE_TEXT = re.compile("[\x00\x1a\ud800-\udfff]")
_ESCAPED = re.compile(f"{_MARK}([0-9a-f]{{4}})")

_dump = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, allow_nan=False, sort_keys=True, separators=(",", ":")
).encode


@dataclass(frozen=True, slots=True)
class Bounds:
    """How deep, wide, large and long a JSON value may be. Depth counts containers, nodes count values."""

    depth: int
    collection: int
    nodes: int
    bytes: int


PERSISTED = Bounds(
    depth=limits.JSON_DEPTH_MAX,
    collection=limits.JSON_COLLECTION_MAX,
    nodes=limits.JSON_NODES_MAX,
    bytes=limits.JSON_BYTES_MAX,
)
"""One persisted value: an input, arguments, a result."""

RECORD = Bounds(
    depth=limits.JSON_DEPTH_MAX + 16,
    collection=limits.JSON_NODES_MAX,
    nodes=4 * limits.JSON_NODES_MAX,
    bytes=limits.RECORD_BYTES_MAX,
)
"""A record's payload: wraps persisted values, so each of them fits with its envelope."""


class Unpersistable(ValueError):
    """The value cannot be persisted. `limit`, `actual` and `maximum` are set where a bound was exceeded."""

    def __init__(
        self, reason: str, *, limit: str | None = None, actual: int | None = None, maximum: int | None = None
    ) -> None:
        super().__init__(reason if limit is None else f"{reason}: {limit} {actual} > {maximum}")
        self.reason = reason
        self.limit = limit
        self.actual = actual
        self.maximum = maximum


def canonical(value: Any, bounds: Bounds = PERSISTED) -> str:
    """The canonical text of a JSON value. Raises `Unpersistable`; the value is not changed."""
    plain = _check(value, bounds)
    text = _dump(value) if plain else None
    if text is None or _MARK_IN_JSON in text or not _encodable(text):
        text = rfc8785.dumps(_escape(value)).decode()
    size = byte_length(text)
    if size > bounds.bytes:
        raise Unpersistable("too large", limit="bytes", actual=size, maximum=bounds.bytes)
    return text


def parse(text: str) -> Any:
    """The value of a canonical text. Raises `ValueError` for anything that is no JSON."""
    try:
        # An integer past 2^53 was a float: integers of that size are escaped, and RFC 8785 prints 1e16 in digits.
        value = json.loads(text, parse_int=_number) if _LONG_DIGITS.search(text) else json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    return _unescape(value) if _MARK_IN_JSON in text else value


def byte_length(text: str) -> int:
    """UTF-8 length."""
    return len(text) if text.isascii() else len(text.encode())


def escape_text(text: str) -> str:
    """Text that any database column holds. Different texts stay different."""
    if "\x00" not in text and _MARK not in text and _encodable(text):
        return text
    return _UNSAFE_TEXT.sub(_escape_unit, text)


def unescape_text(text: str) -> str:
    """The inverse of `escape_text`."""
    return _ESCAPED.sub(_unescape_unit, text) if _MARK in text else text


def _check(root: Any, bounds: Bounds) -> bool:
    """Check the bounds, level by level. True when `json` prints this value exactly as RFC 8785 does."""
    plain = True
    level: list[Any] = [root]
    nodes = 1
    depth = 0
    while level:
        below: list[Any] = []
        depth += 1
        for value in level:
            kind = type(value)
            if kind is str or value is None or kind is bool:
                continue
            if isinstance(value, dict | list | tuple):
                size = len(value)
                nodes += size
                _check_size(depth, size, nodes, bounds)
                if isinstance(value, dict):
                    plain = _check_keys(value) and plain
                    below += value.values()
                else:
                    below += value
            else:
                plain = _check_scalar(value) and plain
        level = below
    return plain


def _check_size(depth: int, size: int, nodes: int, bounds: Bounds) -> None:
    if depth > bounds.depth:
        raise Unpersistable("nested too deep", limit="depth", actual=depth, maximum=bounds.depth)
    if size > bounds.collection:
        raise Unpersistable("collection too large", limit="collection", actual=size, maximum=bounds.collection)
    if nodes > bounds.nodes:
        raise Unpersistable("too many values", limit="nodes", actual=nodes, maximum=bounds.nodes)


def _check_scalar(value: Any) -> bool:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise Unpersistable("NaN and Infinity are no JSON values")
        return _SAME_MIN <= abs(value) < _SAME_MAX and not value.is_integer()
    if isinstance(value, int):
        if value.bit_length() > _INT_BITS_MAX:
            raise Unpersistable("integer too large", limit="bits", actual=value.bit_length(), maximum=_INT_BITS_MAX)
        return -_INT_MAX <= value <= _INT_MAX
    if isinstance(value, str):
        return True  # a subclass (an enum), which both print as its plain value
    raise Unpersistable(f"{type(value).__name__} is no JSON value")


def _check_keys(value: dict[Any, Any]) -> bool:
    plain = True
    for key in value:
        if not isinstance(key, str):
            raise Unpersistable(f"{type(key).__name__} is no JSON key")
        if not key.isascii() and max(key) > "\uffff":
            plain = False  # code points and UTF-16 code units sort differently
    return plain


def _encodable(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _escape(value: Any) -> Any:
    # Recursion is bounded: `_check` came first.
    if isinstance(value, str):
        return _UNSAFE_JSON.sub(_escape_unit, value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return int(value) if -_INT_MAX <= value <= _INT_MAX else f"{_MARK}i{int(value)}"
    if isinstance(value, float):
        return value
    if isinstance(value, dict):
        return {_UNSAFE_JSON.sub(_escape_unit, key): _escape(item) for key, item in value.items()}
    return [_escape(item) for item in value]


def _unescape(value: Any) -> Any:
    if isinstance(value, str):
        return int(value[2:]) if value.startswith(f"{_MARK}i") else unescape_text(value)
    if isinstance(value, dict):
        return {unescape_text(key): _unescape(item) for key, item in value.items()}
    return [_unescape(item) for item in value] if isinstance(value, list) else value


def _escape_unit(match: re.Match[str]) -> str:
    return f"{_MARK}{ord(match[0]):04x}"


def _unescape_unit(match: re.Match[str]) -> str:
    return chr(int(match[1], 16))


def _number(digits: str) -> int | float:
    number = int(digits)
    return number if -_INT_MAX <= number <= _INT_MAX else float(digits)
