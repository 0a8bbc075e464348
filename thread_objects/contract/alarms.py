"""Application alarms: what clients send, what the list shows, and what a delivery carries.

An alarm is named by (thread, tag, alarm id). The tag says which handler of a worker takes it.
"""

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from thread_objects.contract import limits
from thread_objects.contract.messages import Id, Name
from thread_objects.contract.wire import Wire


class SetAlarm(Wire):
    """Arm an alarm, or move one. With equal content nothing changes; with other content it is replaced.

    `run_at` in epoch milliseconds, at most ten years ahead; an instant that has passed is due at once. The payload
    is any JSON value within the persisted-JSON bounds and `limits.ALARM_PAYLOAD_BYTES_MAX`.
    """

    kind: Literal["set_alarm"] = "set_alarm"
    thread_id: Id
    tag: Name
    alarm_id: Id
    run_at: Annotated[int, Field(ge=0, le=limits.SERIAL_MAX)]
    payload: JsonValue = None


class CancelAlarm(Wire):
    """Drop an alarm. A delivery that runs already may end, and is not repeated."""

    kind: Literal["cancel_alarm"] = "cancel_alarm"
    thread_id: Id
    tag: Name
    alarm_id: Id


class AlarmSet(Wire):
    """The alarm is in force. `replayed`: it was so before; `replaced`: other content of the same name is gone."""

    thread_id: str
    tag: str
    alarm_id: str
    run_at: int
    replayed: bool = False
    replaced: bool = False


class AlarmCancelled(Wire):
    """The alarm is not there. `cancelled`: it was; `delivering`: a delivery of it runs and may end."""

    thread_id: str
    tag: str
    alarm_id: str
    cancelled: bool
    delivering: bool = False


class AlarmStanding(Wire):
    """One alarm as the report shows it, without its payload.

    `next_at`: the next delivery, later than `run_at` after one that failed; `failure`: the code or class name of the
    last one that did.
    """

    thread_id: str
    tag: str
    alarm_id: str
    run_at: int
    next_at: int
    attempts: int = 0
    failure: str | None = None
    delivering: bool = False


class NamedAlarm(AlarmStanding):
    """One alarm as the list shows it."""

    payload: JsonValue = None


class DeliverRequest(Wire):
    """One delivery. `attempt` counts from 1; `dedupe_key` is the same for every delivery of the same content."""

    object_id: str
    thread_id: str
    tag: str
    alarm_id: str
    run_at: int
    attempt: int
    dedupe_key: str
    payload: JsonValue = None
