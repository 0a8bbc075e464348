"""How a tool makes a lane of its own object due.

Rule guarded: a running Attempt names neither native work nor the publication; those are due by what it commits.
"""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime

from pydantic import ValidationError

from thread_objects.clock import instant_ms
from thread_objects.contract.messages import Schedule
from thread_objects.core.due_queue import NATIVE, PUBLICATION
from thread_objects.errors import InvalidInput, LaneRefused

Send = Callable[[Schedule], Future[None]]
SEND_S_MAX = 45.0
"""Past every retry of the sender."""

_sender: ContextVar[Send | None] = ContextVar("thread_objects_schedules", default=None)


async def schedule_lane(lane: str, due_at: int | datetime, *, cursor: int | None = None) -> None:
    """Make a lane of the object that runs this tool due by `due_at` (epoch milliseconds, or an aware datetime).

    With a `cursor` it is progress, and counts only when higher than all before: due without any pause that the lane's
    failures left behind. Returns when the server has it; may be repeated. A lane that no worker has ends in the
    object's list of refusals. Raises `LaneRefused`, `InvalidInput`, and `LookupError` outside of a tool.
    """
    await asyncio.wrap_future(_send(lane, due_at, cursor))


def schedule_lane_sync(lane: str, due_at: int | datetime, *, cursor: int | None = None) -> None:
    """The same for a plain tool: waits on its thread until the server has it."""
    _send(lane, due_at, cursor).result(SEND_S_MAX)


def _send(lane: str, due_at: int | datetime, cursor: int | None) -> "Future[None]":
    send = _sender.get()
    if send is None:
        raise LookupError("no Attempt runs here")
    if lane in (NATIVE, PUBLICATION):
        raise LaneRefused(lane=lane, reason="a running Attempt may not name it")
    return send(schedule_of(lane, due_at, cursor))


def schedule_of(lane: str, due_at: int | datetime, cursor: int | None) -> Schedule:
    """The message. Raises `InvalidInput`."""
    try:
        return Schedule(lane=lane, due_at=instant_ms(due_at), cursor=cursor)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise InvalidInput(what=f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}") from None
    except ValueError as error:
        raise InvalidInput(what=f"due_at: {error}") from None


@contextmanager
def schedules_to(send: Send) -> Iterator[None]:
    """Tools that run inside this block schedule with `send`."""
    token = _sender.set(send)
    try:
        yield
    finally:
        _sender.reset(token)
