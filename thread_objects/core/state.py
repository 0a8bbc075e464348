"""Everything of maintenance that a fresh incarnation needs: record, rows, slot and recovery cursors.

`transaction()` is the one way to change it: record, rows and maintenance deadline commit together or not at all.
Active mutations are not here; what they owe is covered by the generation they left.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from thread_objects.contract.lanes import Installed
from thread_objects.core import state_json
from thread_objects.core.alarm import AlarmSlot
from thread_objects.core.due_queue import DueQueue, QueueTransaction, Row
from thread_objects.core.record import MaintenanceRecord
from thread_objects.core.refusal import AlarmRefusal


class MaintenanceState:
    """The committed state. `initialised` is False until a record was written."""

    __slots__ = ("alarm", "initialised", "installed", "open", "queue", "record", "work_cursors")

    def __init__(self) -> None:
        self.record = MaintenanceRecord()
        self.initialised = False
        self.queue = DueQueue()
        self.alarm = AlarmSlot()
        self.work_cursors: dict[str, str] = {}
        self.installed = Installed()
        self.open: StateTransaction | None = None

    @property
    def registry_key(self) -> str | None:
        """The binding registry key that was seen last."""
        return self.record.registry_key

    @contextmanager
    def transaction(self) -> Iterator[StateTransaction]:
        """Changes of one stretch: committed at the end of the block, forgotten when it raises."""
        if self.open is not None:
            raise AlarmRefusal("open transaction", "another transaction is open")
        transaction = StateTransaction(self)
        self.open = transaction
        try:
            yield transaction
            transaction.commit()
        finally:
            self.open = None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, as carried by continue-as-new."""
        data: dict[str, Any] = {
            "schemaVersion": state_json.SCHEMA_VERSION,
            "rows": [state_json.row_to(row) for row in self.queue.rows()],
            "alarm": state_json.alarm_to(self.alarm),
            "workCursors": dict(sorted(self.work_cursors.items())),
        }
        if self.installed.deployment:
            data["installed"] = state_json.installed_to(self.installed)
        if self.initialised:
            data["record"] = state_json.record_to(self.record)
        return data

    @classmethod
    def from_json(cls, data: dict[str, Any] | None) -> MaintenanceState:
        """The state again. Unknown fields are ignored, absent ones default; anything else undecodable is refused."""
        state = cls()
        if not data:
            return state
        fields = state_json.Fields(data, "state")
        fields.check_version()
        record = fields.get("record", dict)
        if record is not None:
            state.record = state_json.record_from(record)
            state.initialised = True
        state.queue = DueQueue(state_json.row_from(row) for row in fields.items("rows"))
        state.alarm = state_json.alarm_from(fields.get("alarm", dict) or {})
        state.work_cursors = fields.mapping("workCursors", str)
        installed = fields.get("installed", dict)
        if installed is not None:
            state.installed = state_json.installed_from(installed)
        return state


class StateTransaction:
    """Buffered record, rows and slot."""

    __slots__ = ("_slot", "_slot_changed", "_state", "queue", "record")

    def __init__(self, state: MaintenanceState) -> None:
        self._state = state
        self.record = state.record
        self.queue: QueueTransaction = state.queue.begin()
        self._slot = state.alarm.deadline
        self._slot_changed = False

    def at(self, instant: int | None, floor: int) -> None:
        """Replace the deadline by `instant`, floored; None empties the slot."""
        self._slot = None if instant is None else max(instant, floor)
        self._slot_changed = True

    def by(self, instant: int | None, floor: int) -> None:
        """Keep the earlier of the deadline and `instant`, floored; None changes nothing."""
        if instant is None:
            return
        wanted = max(instant, floor)
        if self._slot is None or wanted < self._slot:
            self._slot = wanted
            self._slot_changed = True

    @contextmanager
    def child(self) -> Iterator[StateTransaction]:
        """A nested block: when it raises, this transaction is as it was before."""
        queue, record, slot, changed = self.queue, self.record, self._slot, self._slot_changed
        self.queue = queue.child()
        try:
            yield self
            self.queue.commit()
        except BaseException:
            self.record, self._slot, self._slot_changed = record, slot, changed
            raise
        finally:
            self.queue = queue

    def commit(self) -> None:
        """Rows first, since only they can be refused; then record and slot."""
        self.queue.commit()
        state = self._state
        if self.record is not state.record:
            state.record = self.record
            state.initialised = True
        if self._slot_changed:
            if self._slot is None:
                state.alarm.cancel()
            else:
                state.alarm.schedule_at(self._slot)

    def initialise(self) -> None:
        """The record is written at this commit even if nothing in it changed."""
        if not self._state.initialised and self.record is self._state.record:
            self.record = self.record.with_()

    def row(self, row_id: str) -> Row | None:
        """The row as this transaction sees it."""
        return self.queue.get(row_id)
