"""The carried state: JSON and back, forwards and backwards, and refused when it cannot be read."""

import json

import pytest

from tests.unit.core.world import state_of
from thread_objects.core.application_alarms import AlarmName, ApplicationAlarm, ApplicationAlarms
from thread_objects.core.config import LanePhase, LaneSpec, MaintenanceConfig
from thread_objects.core.due_queue import NATIVE, Row, RowState
from thread_objects.core.maintenance import AlarmRefusal, MaintenanceState
from thread_objects.core.record import BindingWait, MaintenanceRecord, Retry

FULL = MaintenanceRecord(
    dirty=2**80,
    processed=7,
    nonterminal=3,
    last_served_thread_id="A",
    last_recovered_thread_id="B",
    last_after_native_lane_id="c",
    registry_key="K1",
    deployment=4,
    binding_waits=(BindingWait("A", "s1", 5, "agent", 9),),
    event_sequence=6,
    event_acknowledged=5,
    retry=Retry(7, 9_000, True, 2),
)

ALARMS = [
    ApplicationAlarm(AlarmName("A", "t", "1"), 99, '{"a":[1,null,true]}', 99),
    ApplicationAlarm(AlarmName("A", "t", "2"), 50, "false", 900, 3, "ValueError"),
]


def full_state():
    state = state_of(
        Row(NATIVE, 3, 7_000, 2, "41", 7_000, RowState.PENDING),
        Row("parked", 1, 9, 8, None, 9, RowState.PARKED, reported=True),
        record=FULL,
        slot=1_050,
    )
    state.alarm.applications = ApplicationAlarms(ALARMS)
    state.work_cursors["A"] = "page-3"
    return state


def test_carried_state_survives_json():
    """What continue-as-new carries comes back equal, unbounded generations included."""
    data = json.loads(json.dumps(full_state().to_json()))
    again = MaintenanceState.from_json(data)
    assert again.record == FULL and again.initialised
    assert again.queue.rows() == full_state().queue.rows()
    assert (again.alarm.deadline, again.alarm.applications.listed()) == (1_050, ALARMS)
    assert again.work_cursors == {"A": "page-3"}
    assert again.to_json() == data


@pytest.mark.parametrize("data", [None, {}, {"schemaVersion": 1, "rows": [], "later": {"x": 1}}])
def test_absent_record_owes_one_discovery_pass(data):
    """Dirty 1, processed 0, nonterminal 0, not initialised; unknown fields are ignored (GEN-001)."""
    state = MaintenanceState.from_json(data)
    assert state.record == MaintenanceRecord(dirty=1, processed=0, nonterminal=0)
    assert not state.initialised
    assert "record" not in state.to_json()


def test_fields_of_a_newer_writer_are_ignored_and_absent_ones_default():
    """A reader survives both directions of time."""
    state = MaintenanceState.from_json(
        {"record": {"dirty": 5, "newer": 1, "retry": {"generation": 5}}, "rows": [{"id": "L", "colour": "red"}]}
    )
    assert state.record == MaintenanceRecord(dirty=5, retry=Retry(5, 0, False, 0))
    assert state.queue.get("L") == Row("L")


@pytest.mark.parametrize(
    "data",
    [
        {"schemaVersion": 2},
        {"record": {"schemaVersion": 9}},
        {"record": {"dirty": -1}},
        {"record": {"dirty": "5"}},
        {"record": {"dirty": True}},
        {"record": []},
        {"record": {"retry": {"stalls": 31}}},
        {"record": {"bindingWaits": [{"threadId": "A"}]}},
        {"rows": {}},
        {"rows": [7]},
        {"rows": [{"id": "x" * 257}]},
        {"rows": [{"id": "L", "state": "running"}]},
        {"rows": [{"id": "L", "progressKey": "seven"}]},
        {"rows": [{"id": "L", "stalls": 31}]},
        {"rows": [{"id": "L", "dueAt": 1.5}]},
        {"alarm": {"maintenance": "soon"}},
        {"alarm": {"applications": {}}},
        {"alarm": {"applications": [{"threadId": "A", "tag": "t", "runAt": 9}]}},
        {"alarm": {"applications": [{"threadId": "A", "tag": "t", "alarmId": "1", "runAt": "soon"}]}},
        {"workCursors": {"A": 3}},
    ],
)
def test_undecodable_state_is_refused_not_guessed(data):
    """A typed failure names the field; nothing is made up."""
    with pytest.raises(AlarmRefusal, match=r"decode maintenance state|lane id"):
        MaintenanceState.from_json(data)


@pytest.mark.parametrize(
    "changes",
    [
        {"alarm_backoff_base_ms": 0},
        {"alarm_backoff_base_ms": 1.5},
        {"alarm_backoff_base_ms": 100, "alarm_backoff_cap_ms": 99},
        {"native_slots": -1},
        {"yield_after_ms": 0},
        {"deadline_ms": 5, "yield_after_ms": 6},
    ],
)
def test_configuration_outside_its_bounds_is_refused(changes):
    """AlarmBackoffBase 0 is a configuration error; nothing is opened (LIM-015)."""
    with pytest.raises(ValueError, match=r"must"):
        MaintenanceConfig(**changes)


def test_slots_follow_the_kind_of_host():
    """Two independent Threads on a shared host, one for a single-Thread object."""
    assert MaintenanceConfig().native_slots == 1
    assert MaintenanceConfig(shared_host=True).native_slots == 2


def test_host_lanes_may_not_take_the_reserved_prefix():
    """Refused at start; the framework's own lanes may."""
    with pytest.raises(ValueError, match="must not start"):
        LaneSpec("thread-object:mine")
    assert LaneSpec("thread-object:digest", framework=True, phase=LanePhase.AFTER_NATIVE).framework


def test_a_state_transaction_writes_the_record_only_when_it_changed():
    """An uninitialised record stays absent until somebody writes it."""
    state = state_of()
    with state.transaction() as tx:
        tx.queue.dirty("L", 5)
    assert not state.initialised
    with state.transaction() as tx:
        tx.initialise()
    assert state.initialised and state.record == MaintenanceRecord()
