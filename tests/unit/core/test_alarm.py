"""The alarm slot, with its named alarms and hints."""

import pytest

from tests.unit.core.world import Shell, state_of
from thread_objects.contract.alarms import SetAlarm
from thread_objects.core.alarm import AlarmSlot
from thread_objects.core.application_alarms import AlarmName
from thread_objects.core.config import MaintenanceConfig
from thread_objects.core.due_queue import NATIVE, Row, RowState
from thread_objects.core.maintenance import AlarmRefusal, Maintenance


@pytest.mark.parametrize(("before", "after"), [(None, 500), (400, 400), (600, 500)])
def test_ensuring_keeps_the_earlier_deadline(before, after):
    """ensureScheduledBy(500) fills an empty slot, and never moves an earlier one (ALM-001, ALM-002)."""
    slot = AlarmSlot(before)
    slot.ensure_by(500)
    assert slot.deadline == after


def test_scheduling_replaces_the_deadline():
    """scheduleAt(900) moves even a slot of 400 (ALM-004)."""
    slot = AlarmSlot(400)
    slot.schedule_at(900)
    assert slot.deadline == 900


def test_a_hint_leaves_an_idle_queue_idle():
    """With all rows idle the slot stays empty (ALM-005)."""
    maintenance = Maintenance(state_of(Row(NATIVE)), MaintenanceConfig())
    maintenance.hint(1_000)
    assert maintenance.alarm.deadline is None


@pytest.mark.parametrize(("due_at", "slot", "after"), [(200, None, 1_000), (7_000, None, 7_000), (200, 900, 900)])
def test_a_hint_moves_the_slot_to_the_earliest_due_row(due_at, slot, after):
    """max(now, next), keeping an earlier slot; a retry floor in the future survives (ALM-007)."""
    row = Row("lane", due_at=due_at, state=RowState.PENDING)
    maintenance = Maintenance(state_of(row, slot=slot), MaintenanceConfig())
    maintenance.hint(1_000)
    assert maintenance.alarm.deadline == after


def test_hints_are_dropped_while_anything_defers_them():
    """The inner end of two nested deferrals changes nothing; the outer one does (ALM-008, ALM-010)."""
    maintenance = Maintenance(state_of(Row("lane", due_at=200, state=RowState.PENDING)), MaintenanceConfig())
    with maintenance.hints_deferred():
        with maintenance.hints_deferred():
            maintenance.hint(1_000)
        maintenance.hint(1_000)
        assert maintenance.alarm.deadline is None
    maintenance.hint(1_000)
    assert maintenance.alarm.deadline == 1_000


def test_deferral_ends_with_a_body_that_raises():
    """The counter is lowered on every exit (ALM-010)."""
    maintenance = Maintenance(state_of(Row("lane", due_at=200, state=RowState.PENDING)), MaintenanceConfig())
    with pytest.raises(ZeroDivisionError), maintenance.hints_deferred():
        raise ZeroDivisionError
    maintenance.hint(1_000)
    assert maintenance.alarm.deadline == 1_000


def test_a_hint_during_a_pass_or_a_mutation_leaves_the_slot():
    """A pass defers hints from its begin to its finish; inline work does the same (ALM-008)."""
    shell = Shell(state=state_of(Row("lane", due_at=200, state=RowState.PENDING)))
    mutation = shell.maintenance.prearm(1_000, invalidates_recovery=False)
    shell.maintenance.hint(1_000)
    assert shell.alarm() is None
    shell.maintenance.release(mutation, 1_000)
    shell.maintenance.begin_event(1_000)
    shell.maintenance.hint(1_000)
    assert shell.alarm() is None


def test_prearm_arms_half_a_base_ahead_before_the_body_runs():
    """Base 100, mutation at 1 000, slot empty: slot 1 050 (ALM-011)."""
    maintenance = Maintenance(state_of(), MaintenanceConfig())
    maintenance.prearm(1_000)
    assert maintenance.alarm.deadline == 1_050


def test_a_rolled_back_transaction_leaves_slot_and_rows_alone():
    """Rows, record and slot commit together or not at all (ALM-014)."""
    maintenance = Maintenance(state_of(Row("lane", revision=3), slot=9_000), MaintenanceConfig())
    with pytest.raises(ZeroDivisionError), maintenance.transaction() as tx:
        tx.queue.dirty("lane", 10)
        tx.record = tx.record.with_(dirty=99)
        tx.by(tx.queue.next(), 50)
        raise ZeroDivisionError
    assert maintenance.alarm.deadline == 9_000
    assert maintenance.state.queue.get("lane") == Row("lane", revision=3)
    assert maintenance.state.record.dirty == 1


def test_a_refused_prearm_counts_nothing():
    """When the slot cannot be armed the body never runs: nothing is active, nothing is due (ALM-018)."""
    maintenance = Maintenance(state_of(), MaintenanceConfig())
    with pytest.raises(AlarmRefusal, match="lane id"):
        maintenance.prearm(1_000, lanes=("x" * 257,))
    assert maintenance.active_mutations == 0
    assert maintenance.alarm.deadline is None
    assert maintenance.state.queue.rows() == []


def test_application_alarms_and_the_maintenance_slot_do_not_move_one_another():
    """The physical timer follows the earliest of all; each alarm keeps its own deadline."""
    maintenance = Maintenance(state_of(slot=500), MaintenanceConfig())
    alarms = maintenance.applications
    for alarm_id, run_at in (("report", 300), ("digest", 200)):
        alarms.set(SetAlarm(thread_id="A", tag="t", alarm_id=alarm_id, run_at=run_at), 0)
    assert maintenance.next_deadline() == 200
    assert alarms.cancel(AlarmName("A", "t", "digest"))
    maintenance.prearm(0)
    assert (maintenance.alarm.deadline, alarms.next_at()) == (50, 300)
    maintenance.alarm.cancel()
    assert maintenance.next_deadline() == 300
    alarms.cancel(AlarmName("A", "t", "report"))
    assert maintenance.next_deadline() is None
