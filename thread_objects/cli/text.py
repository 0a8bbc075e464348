"""Text from models, tools and people, made fit for a terminal.

What a model writes may hold escape sequences; printed raw they could move the cursor, rewrite a line above or set
the window's title. Every foreign text goes through here.
"""

import json
import re
from datetime import UTC, datetime

from pydantic import JsonValue

SHORT_CHARS = 160
"""Enough to recognise a value in a one-line listing; `--json` has all of it."""

_MINUTE = 60
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def plain(text: str) -> str:
    """The text with control characters and direction overrides shown as escapes; newlines and tabs stay."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def one_line(text: str) -> str:
    """The text on one line."""
    return " ".join(plain(text).split())


def short(value: JsonValue, chars: int = SHORT_CHARS) -> str:
    """A JSON value on one line: a string as it is, anything else as JSON; cut with its size told."""
    told = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    line = one_line(told)
    return line if len(line) <= chars else f"{line[:chars]}… ({len(told):,} characters)"


def instant(epoch_ms: int) -> str:
    """An instant as ISO 8601 in UTC, to the millisecond."""
    return datetime.fromtimestamp(epoch_ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def lasting(ms: int) -> str:
    """A length of time for a reader: `320 ms`, `4.2 s`, `3 min 5 s`, `2 h 10 min`."""
    seconds = ms / 1_000
    if seconds < 1:
        return f"{ms} ms"
    if seconds < _MINUTE:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < _MINUTE:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
