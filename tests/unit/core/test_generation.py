"""Start-up, registry changes and begins."""

import pytest

from tests.unit.core.world import Shell, state_of
from thread_objects.core import generation
from thread_objects.core.config import LaneSpec, MaintenanceConfig
from thread_objects.core.due_queue import (
    LIFECYCLE,
    MESSAGES,
    NATIVE,
    PROJECTION,
    PUBLICATION,
    RECOVERY_EVENTS,
    Row,
    RowState,
)
from thread_objects.core.maintenance import Maintenance
from thread_objects.core.record import BindingWait, MaintenanceRecord, Retry

PENDING, PARKED = RowState.PENDING, RowState.PARKED
IDLE_ROWS = tuple(Row(i, 1) for i in (PUBLICATION, PROJECTION, MESSAGES))


def begun(*rows, record, now=1_000, charged=-1, active=0):
    """A begin over these rows; answers it with the state after it."""
    state = state_of(*rows, record=record)
    with state.transaction() as tx:
        answer = generation.begin(tx, now, now + 50, charged_revision=charged, active=active)
    return answer, state


def test_a_fresh_object_owes_one_discovery_pass():
    """Absent record and key: the first key makes dirty 2; one actionable pass; processed 2 (GEN-001)."""
    shell = Shell()
    shell.maintenance.ensure_alarm(1_000)
    assert [row.id for row in shell.state.queue.rows()] == sorted((NATIVE, PUBLICATION, PROJECTION, MESSAGES))
    assert all(row == Row(row.id, 0, 0, state=PENDING) for row in shell.state.queue.rows())
    assert shell.alarm() == 1_050
    assert shell.maintenance.observe_registry("K1", 1, 1_000)
    assert (shell.state.record.dirty, shell.state.record.processed) == (2, 0)
    report = shell.run_pass()
    assert report.phase == "actionable" and report.alarm == "cleared"
    assert shell.state.record.processed == 2 and shell.alarm() is None
    assert all(row.due_at is None for row in shell.state.queue.rows())


def test_framework_lanes_are_registered_and_events_are_not():
    """Recovery events make their own row with their first event; host lanes start absent."""
    lanes = (
        LaneSpec(LIFECYCLE, framework=True),
        LaneSpec(RECOVERY_EVENTS, framework=True),
        LaneSpec("host"),
    )
    shell = Shell(config=MaintenanceConfig(lanes=lanes))
    shell.maintenance.ensure_alarm(1_000)
    ids = {row.id for row in shell.state.queue.rows()}
    assert LIFECYCLE in ids and not ids & {RECOVERY_EVENTS, "host"}


def test_a_stored_retry_sets_the_alarm_at_start_up():
    """Retry {generation 5, notBefore 9 000}, dirty 5: native due 9 000, slot 9 000 (GEN-017)."""
    record = MaintenanceRecord(dirty=5, processed=4, registry_key="K1", retry=Retry(5, 9_000, True, 1))
    m = Maintenance(state_of(Row(NATIVE, 2), *IDLE_ROWS, record=record), MaintenanceConfig())
    m.ensure_alarm(1_000)
    assert not m.observe_registry("K1", 1, 1_000)
    assert m.state.queue.get(NATIVE).due_at == 9_000
    assert m.alarm.deadline == 9_000


def test_owed_work_without_a_deadline_is_armed_at_start_up():
    """Dirty 5, processed 4, native without deadline: slot 1 050 (GEN-018)."""
    record = MaintenanceRecord(dirty=5, processed=4, registry_key="K1")
    m = Maintenance(state_of(Row(NATIVE, 2), *IDLE_ROWS, record=record), MaintenanceConfig())
    m.ensure_alarm(1_000)
    assert m.alarm.deadline == 1_050


def test_a_quiet_object_stays_quiet_at_start_up():
    """Dirty = processed: no deadline, no alarm (ALM-005)."""
    record = MaintenanceRecord(dirty=5, processed=5, registry_key="K1")
    m = Maintenance(state_of(Row(NATIVE, 2, 77, state=PENDING), *IDLE_ROWS, record=record), MaintenanceConfig())
    m.ensure_alarm(1_000)
    assert m.state.queue.get(NATIVE).due_at is None
    assert m.alarm.deadline is None


def test_a_registry_change_gives_one_fresh_opportunity():
    """K1 → K2: key stored, waits empty, retry gone, dirty + 1, native due; once (GEN-027)."""
    record = MaintenanceRecord(
        dirty=5,
        processed=5,
        registry_key="K1",
        deployment=1,
        binding_waits=(BindingWait("A", "s1", 3),),
        retry=Retry(5, 99_000, True, 3),
    )
    m = Maintenance(state_of(Row(NATIVE, 2, 60_000, 4, None, 60_000, PENDING), record=record), MaintenanceConfig())
    revision = m.revision
    assert m.observe_registry("K2", 2, 1_000)
    assert m.state.record == MaintenanceRecord(dirty=6, processed=5, registry_key="K2", deployment=2)
    assert m.state.queue.get(NATIVE) == Row(NATIVE, 3, 0, state=PENDING)
    assert m.alarm.deadline == 1_050 and m.revision > revision
    assert not m.observe_registry("K2", 2, 1_000)
    assert m.state.record.dirty == 6


def test_an_equal_registry_key_changes_nothing():
    """Reordered metadata gives the same key: no change, no alarm (GEN-028)."""
    record = MaintenanceRecord(dirty=5, processed=5, registry_key="K1", deployment=1)
    m = Maintenance(state_of(Row(NATIVE, 2), *IDLE_ROWS, record=record), MaintenanceConfig())
    m.ensure_alarm(1_000)
    assert not m.observe_registry("K1", 1, 1_000)
    assert m.state.record == record and m.alarm.deadline is None


def test_an_older_deployment_never_replaces_a_newer_key():
    """Two worker versions side by side do not alternate `dirty`."""
    record = MaintenanceRecord(dirty=5, processed=5, registry_key="K2", deployment=2)
    m = Maintenance(state_of(Row(NATIVE, 2), record=record), MaintenanceConfig())
    for _ in range(3):
        assert not m.observe_registry("K1", 1, 1_000)
        assert not m.observe_registry("K2", 2, 1_000)
    assert m.state.record == record
    assert not m.observe_registry("K2", 5, 1_000)
    assert m.state.record.deployment == 5 and m.state.record.dirty == 5


@pytest.mark.parametrize(
    ("rows", "changes"),
    [
        ([Row(NATIVE, 1, 0, state=PENDING)], {"processed": 5}),
        ([Row(NATIVE, 1, 0, state=PENDING)], {"retry": Retry(5, 1_001, True, 1)}),
        ([], {}),
        ([Row(NATIVE, 1)], {}),
        ([Row(NATIVE, 1, 1_001, 1, None, 1_001, PENDING)], {}),
        ([Row(NATIVE, 1, 0, state=PENDING), Row(PUBLICATION, 1, 9, 8, None, 9, PARKED)], {}),
    ],
    ids=["processed", "retry", "no row", "no deadline", "floor", "publication parked"],
)
def test_each_reason_alone_makes_a_begin_caught_up(rows, changes):
    """A caught-up begin observes the generation and changes neither row nor slot."""
    record = MaintenanceRecord(dirty=5, processed=4).with_(**changes)
    answer, state = begun(*rows, record=record)
    assert (answer.actionable, answer.generation) == (False, 5)
    assert state.queue.rows() == sorted(rows, key=lambda row: row.id)
    assert state.record == record and state.alarm.deadline is None


def test_an_obsolete_retry_is_ignored():
    """Retry {generation 4}, dirty 5, now before notBefore: actionable (GEN-015)."""
    record = MaintenanceRecord(dirty=5, processed=4, retry=Retry(4, 9_000, True, 1))
    answer, _ = begun(Row(NATIVE, 1, 0, state=PENDING), record=record)
    assert answer.actionable


def test_an_actionable_begin_charges_native_and_sets_the_slot():
    """Native may be charged before its deadline; the slot becomes max(now + M, next)."""
    record = MaintenanceRecord(dirty=5, processed=4)
    answer, state = begun(Row(NATIVE, 7, 5_000, 1, None, 900, PENDING), record=record)
    assert answer == generation.Begin(5, actionable=True, revision=7, stalls=2, active_at_start=0)
    assert state.queue.get(NATIVE) == Row(NATIVE, 7, 3_000, 2, None, 3_000, PENDING)
    assert state.alarm.deadline == 3_000


def test_a_revision_is_charged_once_per_event():
    """The floor is tested first; past it, the event's own revision is not charged again."""
    record = MaintenanceRecord(dirty=5, processed=4)
    charged = Row(NATIVE, 7, 3_000, 2, None, 3_000, PENDING)
    answer, _ = begun(charged, record=record, charged=7)
    assert not answer.actionable
    answer, state = begun(charged, record=record, charged=7, now=3_000)
    assert answer.actionable and answer.stalls == 2
    assert state.queue.get(NATIVE) == charged
    renewed = charged.with_progress(1_000, None)
    answer, state = begun(renewed, record=record, charged=7)
    assert answer.actionable and state.queue.get(NATIVE).stalls == 1


def test_events_make_their_lane_due_and_acknowledgement_empties_it():
    """Due at 0 with progress; more left → acknowledgement time; none left → idle. The slot is left alone."""
    m = Maintenance(state_of(record=MaintenanceRecord(dirty=5, processed=5)), MaintenanceConfig())
    m.events_recorded(2, 1_000)
    assert m.state.queue.get(RECOVERY_EVENTS) == Row(RECOVERY_EVENTS, 1, 0, state=PENDING)
    m.events_recorded(2, 1_000)
    m.event_acknowledged(1, 2_000)
    row = m.state.queue.get(RECOVERY_EVENTS)
    assert (row.due_at, row.progress_key) == (2_000, "1")
    m.event_acknowledged(1, 3_000)
    m.event_acknowledged(7, 3_000)
    assert m.state.queue.get(RECOVERY_EVENTS) == row
    m.event_acknowledged(2, 3_000)
    assert m.state.queue.get(RECOVERY_EVENTS).due_at is None
    assert m.alarm.deadline is None
    m.ensure_alarm(4_000)
    assert m.state.queue.get(RECOVERY_EVENTS).due_at is None


def test_pending_events_without_a_row_are_enrolled_at_start_up():
    """Row created due 1 000, alarm armed (SWP-025)."""
    record = MaintenanceRecord(dirty=5, processed=5, event_sequence=3, event_acknowledged=2)
    m = Maintenance(state_of(Row(NATIVE, 1), *IDLE_ROWS, record=record), MaintenanceConfig())
    m.ensure_alarm(1_000)
    assert m.state.queue.get(RECOVERY_EVENTS) == Row(RECOVERY_EVENTS, 1, 1_000, state=PENDING)
    assert m.alarm.deadline == 1_050


def test_parked_rows_are_told_at_start_up():
    """Read after ensureAlarm too; each gives one report (DUE-030)."""
    m = Maintenance(state_of(Row("L", 1, 9, 8, None, 9, PARKED)), MaintenanceConfig())
    assert m.ensure_alarm(1_000) == ("host",)
    assert m.ensure_alarm(1_000) == ()
