"""Handlers of application alarms, as a worker serves them.

def remind(alarm: DueAlarm) -> None: ...

extensions = Extensions(alarms={"remind": remind})
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from pydantic import JsonValue

from thread_objects.contract import limits
from thread_objects.errors import ConfigError


@dataclass(frozen=True, slots=True)
class DueAlarm:
    """One delivery of an application alarm.

    `run_at` is the instant it was set for (aware UTC), `attempt` counts from 1. `dedupe_key` is the same for every
    delivery of the same content: an effect that must not happen twice is made under it.
    """

    object_id: str
    thread_id: str
    tag: str
    alarm_id: str
    payload: JsonValue
    run_at: datetime
    attempt: int
    dedupe_key: str


class AlarmHandler(Protocol):
    """Takes the alarms of one tag, at least once each; returning is the acknowledgement.

    A plain function runs on a thread of its own; an `async` one on an event loop of that thread. What it raises, or
    taking longer than 60 s, brings the alarm back after 0.5 to 300 s. Several alarms may be delivered at a time, in
    any order; two deliveries of one alarm overlap only where a worker was lost or the object moved under load.
    """

    def __call__(self, alarm: DueAlarm, /) -> Awaitable[None] | None:
        """Handle one delivery."""
        ...


def checked(handlers: Mapping[str, AlarmHandler]) -> dict[str, AlarmHandler]:
    """The handlers by tag. Raises `ConfigError` for a tag that no alarm can have."""
    for tag, handler in handlers.items():
        if not 1 <= len(tag) <= limits.NAME_CHARS_MAX:
            reason = f"a tag of alarms has 1 to {limits.NAME_CHARS_MAX} characters, {tag[:32]!r} has {len(tag)}"
            raise ConfigError(setting="extensions", reason=reason)
        if not callable(handler):
            raise ConfigError(setting="extensions", reason=f"the handler of alarms tagged {tag!r} is no function")
    return dict(handlers)
