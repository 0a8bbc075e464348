"""What the store needs of a database: whole transactions over plain SQL, the same text for both kinds.

Statements are written once, with `:name` parameters, in the common part of both dialects. `FOR UPDATE` is for
PostgreSQL, where the row of a Thread is the lock of its lane and log; SQLite has one writer anyway.

Rule guarded: a unit of work runs as one transaction or not at all, and may run more than once. A violated unique
constraint (somebody was first, or it is our own earlier commit) runs it again with `careful` set, and then the unit
looks before it writes and says what it found. So the hot path pays for no look-ups that almost never find anything.

Text that a database cannot hold (NUL, lone surrogates) is escaped on the way in and restored on the way out, here and
nowhere else, so that any id a caller or a model invents is stored, found and told apart on both databases alike.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any, Protocol, TypeVar

from thread_objects.core.canonical import escape_text, unescape_text

T = TypeVar("T")
Params = Mapping[str, Any]
Row = tuple[Any, ...]

LOCK_WAIT_MS = 10_000
"""How long a transaction waits for another writer, or for a pooled connection, before StoreUnavailable."""

NOTIFY_CHANNEL = "thread_objects"


class Duplicate(Exception):
    """A unique constraint refused a row, also on a careful run."""


class Transaction(Protocol):
    """One open transaction."""

    careful: bool
    """A run after a violated unique constraint: look before writing."""

    notify: bool
    """Set by a unit whose commit somebody may be waiting for."""

    def all(self, sql: str, params: Params) -> Sequence[Row]:
        """All rows."""

    def one(self, sql: str, params: Params) -> Row | None:
        """The first row."""

    def run(self, sql: str, params: Params) -> int:
        """Execute and count the affected rows."""

    def many(self, sql: str, rows: Sequence[Params]) -> None:
        """Execute once per row."""

    def size_bytes(self) -> int:
        """Size of the database."""


class Database(Protocol):
    """A database that runs units of work, from any thread."""

    def write(self, work: Callable[[Transaction], T]) -> T:
        """Run a unit in a writing transaction."""

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Run a unit on one consistent snapshot; it writes nothing."""

    def snapshot(self) -> AbstractContextManager[Transaction]:
        """One consistent snapshot for as long as the block lasts; nothing may be written."""

    def close(self) -> None:
        """Close all connections. Idempotent."""


_LOCKING = re.compile(r"\s+FOR (?:UPDATE|SHARE)\b")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z]\w*)")


@lru_cache(maxsize=1024)
def for_sqlite(sql: str) -> str:
    """The statement without row locks."""
    return _LOCKING.sub("", sql)


@lru_cache(maxsize=1024)
def for_postgres(sql: str) -> str:
    """The statement with the driver's parameter style."""
    return _PARAMETER.sub(r"%(\1)s", sql)


def storable(params: Params) -> Params:
    """The parameters as every database can hold them."""
    changed: dict[str, str] | None = None
    for name, value in params.items():
        if type(value) is str and (not value.isascii() or "\x00" in value or "\x1a" in value):
            escaped = escape_text(value)
            if escaped is not value:
                changed = changed or {}
                changed[name] = escaped
    return params if changed is None else {**params, **changed}


def restored(row: Row) -> Row:
    """A row with its texts as they were."""
    for value in row:
        if isinstance(value, str) and "\x1a" in value:
            return tuple(unescape_text(item) if isinstance(item, str) else item for item in row)
    return row


def listed(name: str, values: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    """A parenthesised list of parameters for `IN`, with their values. An empty list matches nothing."""
    params = {f"{name}_{index}": value for index, value in enumerate(values)}
    return "(" + (", ".join(f":{key}" for key in params) or "NULL") + ")", params
