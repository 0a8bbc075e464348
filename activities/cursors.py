"""Where a recovery stands: opaque to everybody else, bounded, forward only, and bound to what was selected.

A Thread's rows come first, by queue sequence; its duties that outlived their Submission follow, by (queue sequence,
call id). Work that appears behind a cursor shows up in the next recovery.
"""

import json
from typing import Any, NamedTuple

from thread_objects.contract import limits
from thread_objects.core.digests import of_value
from thread_objects.errors import InvalidInput

_ROWS, _DUTIES, _SWEEP = 1, 2, 3
"""The versions of cursors. One of a kind that this version does not know is refused."""

BEFORE_DUTIES = (0, "")


class Position(NamedTuple):
    """A place in one Thread. `duty` is None while rows are left."""

    row: int = 0
    duty: tuple[int, str] | None = None


class SweepPosition(NamedTuple):
    """A place in a sweep over Threads: behind `thread_id`, or inside it at `inside`."""

    thread_id: str
    inside: Position | None = None


def cursor_after(thread_id: str, position: Position) -> str:
    """Where to go on with a Thread's recovery."""
    return json.dumps(_place(thread_id, position))


def position_of(thread_id: str, cursor: str | None) -> Position:
    """The place that a cursor of this Thread stands behind. Refuses every other cursor."""
    if cursor is None:
        return Position()
    owner, position = _read(_loaded(cursor))
    if owner != thread_id:
        raise _refused()
    return position


def sweep_cursor(selection: str, at: SweepPosition) -> str:
    """Where to go on with a sweep over this selection."""
    inside = None if at.inside is None else _place("", at.inside)
    return json.dumps([_SWEEP, _digest(selection), at.thread_id, inside])


def sweep_position(selection: str, cursor: str) -> SweepPosition:
    """The place that a cursor of this selection stands at. Refuses every other cursor."""
    match _loaded(cursor):
        case [version, digest, str(thread_id), inside] if version == _SWEEP and digest == _digest(selection):
            return SweepPosition(thread_id, None if inside is None else _read(inside)[1])
        case _:
            raise _refused()


def _place(thread_id: str, position: Position) -> list[Any]:
    if position.duty is None:
        return [_ROWS, thread_id, position.row]
    return [_DUTIES, thread_id, *position.duty]


def _read(value: Any) -> tuple[str, Position]:
    match value:
        case [version, str(thread_id), after] if version == _ROWS and _is_count(after):
            return thread_id, Position(row=after)
        case [version, str(thread_id), after, str(call_id)] if version == _DUTIES and _is_count(after):
            return thread_id, Position(duty=(after, call_id))
        case _:
            raise _refused()


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _loaded(cursor: str) -> Any:
    if len(cursor) > limits.RECOVERY_CURSOR_CHARS_MAX:
        raise InvalidInput(what="recovery cursor", actual=len(cursor), maximum=limits.RECOVERY_CURSOR_CHARS_MAX)
    try:
        return json.loads(cursor)
    except (ValueError, TypeError, RecursionError) as error:
        raise _refused() from error


def _digest(selection: str) -> str:
    # The selection may be as long as two ids; its digest keeps the cursor within its bound.
    return of_value(["recovery-sweep", 1, selection])


def _refused() -> InvalidInput:
    return InvalidInput(what="recovery cursor")
