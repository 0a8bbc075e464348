"""The maintenance state as JSON values, and back. Undecodable means a typed refusal, never a guess."""

from __future__ import annotations

from typing import Any, TypeVar

from thread_objects.contract import limits
from thread_objects.contract.lanes import Installed
from thread_objects.core.alarm import AlarmSlot
from thread_objects.core.application_alarms import AlarmName, ApplicationAlarm, ApplicationAlarms
from thread_objects.core.canonical import Unpersistable, canonical, parse
from thread_objects.core.due_queue import Row, RowState, check_lane
from thread_objects.core.record import BindingWait, MaintenanceRecord, Retry
from thread_objects.core.refusal import AlarmRefusal

SCHEMA_VERSION = 1

T = TypeVar("T")


class Fields:
    """Checked access to a decoded JSON object."""

    __slots__ = ("_data", "_of")

    def __init__(self, data: Any, of: str) -> None:
        if not isinstance(data, dict):
            raise _undecodable(of, "object")
        self._data: dict[str, Any] = data
        self._of = of

    def check_version(self) -> None:
        """Only the version this code writes is understood."""
        if self._data.get("schemaVersion", SCHEMA_VERSION) != SCHEMA_VERSION:
            raise _undecodable(self._of, "schemaVersion")

    def get(self, name: str, kind: type[T]) -> T | None:
        """The field, None when absent or null."""
        value = self._data.get(name)
        if value is None:
            return None
        # bool is an int to Python, and to nobody else.
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise _undecodable(self._of, name)
        return value

    def value(self, name: str) -> Any:
        """Any JSON value, None when absent."""
        return self._data.get(name)

    def count(self, name: str, default: int = 0, maximum: int | None = None) -> int:
        """A non-negative integer."""
        value = self.get(name, int)
        if value is None:
            return default
        if value < 0 or (maximum is not None and value > maximum):
            raise _undecodable(self._of, name)
        return value

    def text(self, name: str) -> str:
        """A string that must be there."""
        value = self.get(name, str)
        if value is None:
            raise _undecodable(self._of, name)
        return value

    def items(self, name: str) -> list[Any]:
        """A list, empty when absent."""
        return self.get(name, list) or []

    def mapping(self, name: str, kind: type[T]) -> dict[str, T]:
        """String keys to values of one kind, empty when absent."""
        entries = Fields(self.get(name, dict) or {}, name)
        values = {key: entries.get(key, kind) for key in entries._data}
        if None in values.values():
            raise _undecodable(self._of, name)
        return {key: value for key, value in values.items() if value is not None}


def _undecodable(of: str, field: str) -> AlarmRefusal:
    return AlarmRefusal("decode maintenance state", f"{of}.{field}")


def row_to(row: Row) -> dict[str, Any]:
    """One row of the due queue."""
    return {
        "id": row.id,
        "revision": row.revision,
        "dueAt": row.due_at,
        "stalls": row.stalls,
        "progressKey": row.progress_key,
        "notBefore": row.not_before,
        "state": row.state.value,
        "reported": int(row.reported),
    }


def row_from(data: Any) -> Row:
    """One row of the due queue."""
    fields = Fields(data, "row")
    state = fields.get("state", str) or RowState.IDLE.value
    key = fields.get("progressKey", str)
    if state not in set(RowState) or (key is not None and not (key.isascii() and key.isdigit())):
        raise _undecodable("row", "state" if state not in set(RowState) else "progressKey")
    row = Row(
        fields.text("id"),
        fields.count("revision"),
        fields.get("dueAt", int),
        fields.count("stalls", maximum=limits.RETRY_STALLS_MAX),
        key,
        fields.count("notBefore"),
        RowState(state),
        bool(fields.count("reported", maximum=1)),
    )
    check_lane(row.id)
    return row


def record_to(record: MaintenanceRecord) -> dict[str, Any]:
    """The maintenance record; fields that say nothing are left out."""
    retry = record.retry
    data: dict[str, Any] = {
        "schemaVersion": SCHEMA_VERSION,
        "dirty": record.dirty,
        "processed": record.processed,
        "nonterminal": record.nonterminal,
        "lastServedThreadId": record.last_served_thread_id,
        "lastRecoveredThreadId": record.last_recovered_thread_id,
        "lastAfterNativeLaneId": record.last_after_native_lane_id,
        "bindingRegistryKey": record.registry_key,
        "deployment": record.deployment,
        "bindingWaits": [
            {
                "threadId": wait.thread_id,
                "submissionId": wait.submission_id,
                "reportedAt": wait.reported_at,
                "agentId": wait.agent_id,
                "queueSequence": wait.queue_sequence,
            }
            for wait in record.binding_waits
        ]
        or None,
        "recoveryEventSequence": record.event_sequence or None,
        "recoveryEventAcknowledged": record.event_acknowledged or None,
        "retry": retry
        and {
            "generation": retry.generation,
            "notBefore": retry.not_before,
            "nativeOnly": retry.native_only,
            "stalls": retry.stalls,
        },
    }
    return {name: value for name, value in data.items() if value is not None}


def record_from(data: Any) -> MaintenanceRecord:
    """The maintenance record."""
    fields = Fields(data, "record")
    fields.check_version()
    retry = fields.get("retry", dict)
    return MaintenanceRecord(
        dirty=fields.count("dirty", default=1),
        processed=fields.count("processed"),
        nonterminal=fields.count("nonterminal"),
        last_served_thread_id=fields.get("lastServedThreadId", str),
        last_recovered_thread_id=fields.get("lastRecoveredThreadId", str),
        last_after_native_lane_id=fields.get("lastAfterNativeLaneId", str),
        registry_key=fields.get("bindingRegistryKey", str),
        deployment=fields.count("deployment"),
        binding_waits=tuple(_wait_from(wait) for wait in fields.items("bindingWaits")),
        event_sequence=fields.count("recoveryEventSequence"),
        event_acknowledged=fields.count("recoveryEventAcknowledged"),
        retry=None if retry is None else _retry_from(retry),
    )


def installed_to(installed: Installed) -> dict[str, Any]:
    """What the workers have installed."""
    return installed.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def installed_from(data: Any) -> Installed:
    """What the workers have installed."""
    try:
        return Installed.model_validate(data)
    except ValueError:
        raise _undecodable("state", "installed") from None


def _wait_from(data: Any) -> BindingWait:
    fields = Fields(data, "bindingWait")
    return BindingWait(
        fields.text("threadId"),
        fields.text("submissionId"),
        fields.count("reportedAt"),
        fields.get("agentId", str) or "",
        fields.count("queueSequence"),
    )


def _retry_from(data: Any) -> Retry:
    fields = Fields(data, "retry")
    return Retry(
        fields.count("generation"),
        fields.count("notBefore"),
        fields.get("nativeOnly", bool) or False,
        fields.count("stalls", maximum=limits.RETRY_STALLS_MAX),
    )


def alarm_to(slot: AlarmSlot) -> dict[str, Any]:
    """The alarm slot with its application alarms."""
    data: dict[str, Any] = {"maintenance": slot.deadline}
    if len(slot.applications):
        data["applications"] = [_application_to(alarm) for alarm in slot.applications.listed()]
    return data


def alarm_from(data: Any) -> AlarmSlot:
    """The alarm slot with its application alarms; no delivery is in hand."""
    fields = Fields(data, "alarm")
    alarms = ApplicationAlarms(_application_from(alarm) for alarm in fields.items("applications"))
    return AlarmSlot(fields.get("maintenance", int), alarms)


def _application_to(alarm: ApplicationAlarm) -> dict[str, Any]:
    data: dict[str, Any] = {
        "threadId": alarm.name.thread_id,
        "tag": alarm.name.tag,
        "alarmId": alarm.name.alarm_id,
        "runAt": alarm.run_at,
        "nextAt": alarm.next_at,
        "attempts": alarm.attempts,
        "failure": alarm.failure,
        # As a value: text in text would be longer than what was admitted.
        "payload": parse(alarm.payload),
    }
    return {name: value for name, value in data.items() if value is not None}


def _application_from(data: Any) -> ApplicationAlarm:
    fields = Fields(data, "application")
    run_at = fields.count("runAt")
    try:
        payload = canonical(fields.value("payload"))
    except Unpersistable as error:
        raise _undecodable("application", "payload") from error
    return ApplicationAlarm(
        AlarmName(fields.text("threadId"), fields.text("tag"), fields.text("alarmId")),
        run_at,
        payload,
        fields.count("nextAt", default=run_at),
        fields.count("attempts"),
        fields.get("failure", str),
    )
