"""Application alarms: named deadlines of the user, delivered at least once, each on its own.

No maintenance operation moves one. An alarm stays listed until a delivery of just its content ended well, or until it
is cancelled or replaced; every try is counted before it starts, so that one which takes its worker down backs off too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import NamedTuple

from thread_objects.contract import limits
from thread_objects.contract.alarms import SetAlarm
from thread_objects.core import digests
from thread_objects.core.backoff import backoff
from thread_objects.core.canonical import Unpersistable, byte_length, canonical
from thread_objects.core.refusal import AlarmRefusal


class AlarmName(NamedTuple):
    """What an alarm is called. Ordered by code points."""

    thread_id: str
    tag: str
    alarm_id: str


class Setting(Enum):
    """What setting an alarm came to."""

    ARMED = auto()
    REPLACED = auto()
    UNCHANGED = auto()


@dataclass(frozen=True, slots=True)
class ApplicationAlarm:
    """One alarm. `payload` is canonical JSON text; `next_at` is `run_at` until a delivery was tried."""

    name: AlarmName
    run_at: int
    payload: str
    next_at: int
    attempts: int = 0
    failure: str | None = None

    @property
    def bytes(self) -> int:
        """What it weighs on its way to the next run, without its counters."""
        return sum(byte_length(part) for part in self.name) + byte_length(self.payload)

    @property
    def payload_digest(self) -> str:
        """The digest of the payload."""
        return digests.of_text(self.payload)


class ApplicationAlarms:
    """All alarms of one object. What is being delivered belongs to one incarnation: it is never carried."""

    __slots__ = ("_alarms", "_bytes", "_delivering", "_next", "_next_known")

    def __init__(self, alarms: Iterable[ApplicationAlarm] = ()) -> None:
        self._alarms = {alarm.name: alarm for alarm in alarms}
        self._bytes = sum(alarm.bytes for alarm in self._alarms.values())
        self._delivering: dict[AlarmName, ApplicationAlarm] = {}
        # Asked at every look of the workflow, changed a few times in an alarm's life.
        self._next: int | None = None
        self._next_known = False

    def __len__(self) -> int:
        return len(self._alarms)

    # --- by name ------------------------------------------------------------------------------------------------

    def set(self, asked: SetAlarm, now: int) -> Setting:
        """Arm, move or leave alone; equal content is no change, whatever its deliveries came to so far.

        Raises `AlarmRefusal` past a bound, and changes nothing then.
        """
        alarm = self.admissible(asked, now)
        known = self._alarms.get(alarm.name)
        if known is not None and (known.run_at, known.payload) == (alarm.run_at, alarm.payload):
            return Setting.UNCHANGED
        self._put(alarm)
        return Setting.ARMED if known is None else Setting.REPLACED

    def admissible(self, asked: SetAlarm, now: int) -> ApplicationAlarm:
        """The alarm that this message makes. Raises `AlarmRefusal` where it may not be set."""
        name = AlarmName(asked.thread_id, asked.tag, asked.alarm_id)
        if asked.run_at > now + limits.ALARM_AHEAD_MS_MAX:
            raise _refused(f"more than {limits.ALARM_AHEAD_MS_MAX} ms ahead")
        try:
            payload = canonical(asked.payload)
        except Unpersistable as error:
            raise _refused(f"payload: {error}") from error
        if byte_length(payload) > limits.ALARM_PAYLOAD_BYTES_MAX:
            raise _refused(f"a payload of {byte_length(payload)} bytes, more than {limits.ALARM_PAYLOAD_BYTES_MAX}")
        alarm = ApplicationAlarm(name, asked.run_at, payload, asked.run_at)
        known = self._alarms.get(name)
        if known is None and len(self._alarms) >= limits.NAMED_ALARMS_MAX:
            raise _refused(f"more than {limits.NAMED_ALARMS_MAX} alarms")
        if self._bytes - (0 if known is None else known.bytes) + alarm.bytes > limits.ALARMS_BYTES_MAX:
            raise _refused(f"more than {limits.ALARMS_BYTES_MAX} bytes of alarms")
        return alarm

    def cancel(self, name: AlarmName) -> bool:
        """Drop an alarm. False when there was none. A delivery that runs may end; it is not repeated."""
        return self._drop(name)

    def listed(self, thread_id: str | None = None) -> list[ApplicationAlarm]:
        """All alarms, or those of one Thread, the next one first."""
        chosen = [alarm for alarm in self._alarms.values() if thread_id in (None, alarm.name.thread_id)]
        return sorted(chosen, key=_turn)

    def is_delivering(self, name: AlarmName) -> bool:
        """A delivery under this name runs, be it of content that is gone."""
        return name in self._delivering

    # --- deliveries ---------------------------------------------------------------------------------------------

    @property
    def running(self) -> int:
        """Deliveries in hand."""
        return len(self._delivering)

    def next_at(self) -> int | None:
        """When the next delivery may start; None while none can, whatever the time."""
        if not self._next_known:
            self._next = min((alarm.next_at for alarm in self._waiting()), default=None)
            self._next_known = True
        return self._next if self.running < limits.ALARM_DELIVERIES_MAX else None

    def _waiting(self) -> Iterator[ApplicationAlarm]:
        return (alarm for alarm in self._alarms.values() if alarm.name not in self._delivering)

    def begin_due(self, now: int, j: float) -> list[ApplicationAlarm]:
        """Charge and hand out what is due and has room, the longest due first. Two of one name never run at once."""
        due = sorted((alarm for alarm in self._waiting() if alarm.next_at <= now), key=_turn)
        return [self._begin(alarm, now, j) for alarm in due[: limits.ALARM_DELIVERIES_MAX - self.running]]

    def _begin(self, alarm: ApplicationAlarm, now: int, j: float) -> ApplicationAlarm:
        # Whoever loses sight of this delivery (a fresh history under load) finds the next one a delay away.
        charged = replace(alarm, attempts=alarm.attempts + 1, next_at=now + _delay(alarm.attempts, j))
        self._alarms[alarm.name] = self._delivering[alarm.name] = charged
        self._next_known = False
        return charged

    def delivered(self, alarm: ApplicationAlarm) -> None:
        """The delivery ended well. Content that was set meanwhile stays."""
        if self._ended(alarm):
            self._drop(alarm.name)

    def failed(self, alarm: ApplicationAlarm, failure: str, now: int, j: float) -> None:
        """The delivery failed: the same content is due again after a delay."""
        if self._ended(alarm):
            self._alarms[alarm.name] = replace(
                alarm, failure=failure[: limits.NAME_CHARS_MAX], next_at=now + _delay(alarm.attempts - 1, j)
            )

    def _ended(self, alarm: ApplicationAlarm) -> bool:
        """Whether the alarm is still the one that was delivered."""
        self._next_known = False
        if self._delivering.get(alarm.name) is alarm:
            del self._delivering[alarm.name]
        return self._alarms.get(alarm.name) is alarm

    def _put(self, alarm: ApplicationAlarm) -> None:
        self._drop(alarm.name)
        self._alarms[alarm.name] = alarm
        self._bytes += alarm.bytes

    def _drop(self, name: AlarmName) -> bool:
        known = self._alarms.pop(name, None)
        self._next_known = False
        if known is not None:
            self._bytes -= known.bytes
        return known is not None


def _turn(alarm: ApplicationAlarm) -> tuple[int, AlarmName]:
    return alarm.next_at, alarm.name


def _delay(failures: int, j: float) -> int:
    return backoff(failures, j, base=limits.ALARM_RETRY_BASE_MS, cap=limits.ALARM_RETRY_CAP_MS)


def _refused(why: str) -> AlarmRefusal:
    return AlarmRefusal("set alarm", why)
