"""The mutation gate: counters, producers, change signal."""

import pytest

from tests.unit.core.world import Shell, state_of
from thread_objects.core.config import MaintenanceConfig
from thread_objects.core.due_queue import NATIVE, PUBLICATION, Row, RowState
from thread_objects.core.gate import Gate
from thread_objects.core.maintenance import AlarmRefusal, Maintenance, MaintenanceState
from thread_objects.core.record import BindingWait, MaintenanceRecord, Retry

CLEAN = MaintenanceRecord(dirty=5, processed=5)


def maintenance(*rows, record=CLEAN, **config):
    return Maintenance(state_of(*rows, record=record), MaintenanceConfig(**config))


def test_default_mutation_advances_the_generation_before_its_body():
    """Dirty 5, processed 5 → dirty 6; native due; one active mutation (GEN-002)."""
    m = maintenance(Row(NATIVE, 3))
    m.prearm(1_000)
    assert (m.state.record.dirty, m.state.record.processed) == (6, 5)
    assert m.state.queue.get(NATIVE) == Row(NATIVE, 3, 1_000, state=RowState.PENDING)
    assert m.active_mutations == 1


def test_a_failed_body_leaves_a_discovery_wave_and_nothing_worse():
    """withMutation(false, [L]) failing: dirty 5, L pending and due (GEN-004)."""
    m = maintenance()
    mutation = m.prearm(1_000, invalidates_recovery=False, lanes=("L",))
    assert m.active_lanes == ("L",)
    m.release(mutation, 1_010)
    assert m.state.record.dirty == 5
    assert m.state.queue.get("L") == Row("L", 1, 1_000, state=RowState.PENDING)
    assert (m.active_mutations, m.active_lanes) == (0, ())


def test_empty_options_arm_nothing_and_count_all_the_same():
    """withMutation(false, []) writes nothing, but nothing is certified over it."""
    m = maintenance()
    m.prearm(1_000, invalidates_recovery=False)
    assert m.active_mutations == 1
    assert m.alarm.deadline is None and m.state.queue.rows() == []


def test_a_mutation_inside_a_transaction_is_refused_before_anything():
    """Prearm must commit first (GEN-005)."""
    m = maintenance()
    with m.transaction(), pytest.raises(AlarmRefusal):
        m.prearm(1_000)
    assert (m.active_mutations, m.state.record.dirty) == (0, 5)


def test_progress_outside_a_transaction_is_refused():
    """RecordProgress belongs to the authoritative transaction (GEN-014)."""
    m = maintenance()
    with pytest.raises(AlarmRefusal, match="record progress"):
        m.record_progress([NATIVE], 1_000)
    with m.transaction():
        m.record_progress([NATIVE], 1_000)
    assert m.state.record.dirty == 6


def test_progress_renews_the_lanes_of_its_mutation_and_drops_the_retry():
    """Affected = named lanes and those of the mutation; external native progress is a newer generation."""
    m = maintenance(Row(NATIVE, 3, 7_000, 2, None, 7_000), record=CLEAN.with_(retry=Retry(6, 9_999, True, 1)))
    mutation = m.prearm(1_000, lanes=("L",))
    m.release(mutation, 1_020, progressed=(NATIVE,))
    assert m.state.queue.get(NATIVE) == Row(NATIVE, 4, 1_020, state=RowState.PENDING)
    assert m.state.queue.get("L") == Row("L", 2, 1_020, state=RowState.PENDING)
    assert (m.state.record.dirty, m.state.record.retry) == (7, None)
    assert m.alarm.deadline == 1_050


def test_publication_that_is_not_required_takes_no_progress():
    """Default empty publication, idle row: recordProgress([native, publication]) leaves it (LAN-024)."""
    m = maintenance(Row(PUBLICATION, 4))
    with m.transaction():
        m.record_progress([NATIVE, PUBLICATION], 1_000)
    assert m.state.queue.get(PUBLICATION) == Row(PUBLICATION, 4)
    with m.transaction():
        m.record_progress([PUBLICATION], 1_000)
    assert m.state.record.dirty == 6


def test_required_publication_makes_native_progress_too():
    """Publication adds native; prearm makes publication due with it."""
    m = maintenance(Row(NATIVE, 1), Row(PUBLICATION, 1), publication_required=True)
    with m.transaction():
        m.record_progress([PUBLICATION], 1_000)
    assert m.state.queue.get(NATIVE).revision == 2
    assert m.state.queue.get(PUBLICATION).revision == 2
    assert m.state.record.dirty == 6
    m.prearm(1_100)
    assert m.state.queue.get(PUBLICATION).due_at == 1_000


def test_two_mutations_release_only_their_own_counts():
    """Counts per lane; never below zero."""
    m = maintenance()
    first = m.prearm(1_000, lanes=("L",))
    second = m.prearm(1_000, lanes=("L", "M"))
    assert m.active_lanes == ("L", "M", NATIVE, PUBLICATION)
    m.release(first, 1_000)
    assert (m.active_mutations, m.active_lanes) == (1, ("L", "M", NATIVE, PUBLICATION))
    m.release(second, 1_000)
    assert (m.active_mutations, m.active_lanes) == (0, ())
    m.release(second, 1_000)
    assert m.active_mutations == 0


def test_every_release_signals_a_change():
    """awaitChange(3) at revision 4 returns at once; the revision is read before the queue (GEN-025)."""
    gate = Gate()
    for _ in range(3):
        gate.leave(gate.enter((), invalidates_recovery=True))
    assert gate.revision == 3 and not gate.changed_since(3)
    gate.notify()
    assert gate.changed_since(3)


def test_a_new_incarnation_has_no_active_mutation_and_the_newer_generation():
    """Active counts are never carried; the durable generation covers what was lost."""
    m = maintenance()
    m.prearm(1_000)
    again = Maintenance(MaintenanceState.from_json(m.state.to_json()), MaintenanceConfig())
    assert again.active_mutations == 0
    assert again.state.record.dirty == 6 and again.alarm.deadline == 1_050


def test_a_stretch_of_the_pass_sees_the_gate_as_it_stands():
    """A mutation that begins between two stretches is seen by the next one: nothing is certified over it (GEN-024)."""
    shell = Shell()
    shell.submit("A", "s1")
    shell.begin()
    shell.maintenance.prearm(shell.now)
    shell.attempted("A")
    report = shell.finish()
    assert shell.maintenance.state.record.processed == 0
    assert report.alarm == "rearmed" and shell.alarm() == shell.now + 50


@pytest.mark.parametrize(
    ("lane", "cursor", "dirty", "native"),
    [("L", None, 5, 3), ("L", 1, 5, 3), (NATIVE, None, 5, 3), (NATIVE, 1, 6, 4), (PUBLICATION, 1, 6, 4)],
)
def test_scheduling_advances_the_generation_only_by_native_progress(lane, cursor, dirty, native):
    """No cursor → due; a cursor that counts for native or publication drops the retry and dirties."""
    m = maintenance(Row(NATIVE, 3), record=CLEAN.with_(retry=Retry(5, 9_000, True, 1)), publication_required=True)
    revision = m.revision
    assert m.schedule(lane, 5_000, 1_000, cursor)
    assert m.state.record.dirty == dirty
    assert (m.state.record.retry is None) == (dirty == 6)
    assert m.state.queue.get(NATIVE).revision == native
    assert m.alarm.deadline == (1_050 if lane == PUBLICATION else 5_000)
    assert m.revision > revision


def test_a_schedule_with_a_known_cursor_changes_no_row():
    """The same cursor twice is once."""
    m = maintenance(Row("L", 2, 9_000, progress_key="7", state=RowState.PENDING))
    assert not m.schedule("L", 5_000, 1_000, 7)
    assert m.state.queue.get("L") == Row("L", 2, 9_000, progress_key="7", state=RowState.PENDING)


def test_queries_tell_the_record_the_rows_and_the_waits():
    """What an operator sees is what is stored."""
    record = MaintenanceRecord(
        dirty=7,
        processed=6,
        nonterminal=2,
        retry=Retry(7, 90, True, 3),
        binding_waits=(BindingWait("A", "s1", 5, "x"),),
    )
    m = maintenance(Row("L", 2, 30, 1, "4", 20, RowState.PENDING), record=record)
    view = m.generation_view()
    assert (view.dirty, view.processed, view.nonterminal, view.active_mutations) == (7, 6, 2, 0)
    assert (view.retry.generation, view.retry.not_before, view.retry.native_only, view.retry.stalls) == (7, 90, True, 3)
    (lane,) = m.lane_views()
    assert (lane.id, lane.due_at, lane.progress_key, lane.state, lane.reported) == ("L", 30, "4", "pending", False)
    (wait,) = m.binding_waits()
    assert (wait.thread_id, wait.agent_id) == ("A", "x")
    assert m.state.registry_key is None
    assert maintenance(record=MaintenanceRecord()).generation_view().retry is None


@pytest.mark.parametrize(("publication", "ready"), [(None, True), (5_000, False), (900, True)])
def test_a_pass_is_not_ready_while_publication_lies_ahead(publication, ready):
    """Native work would not run: the barrier's deadline is waited for."""
    rows = [Row(NATIVE, 1, 0, state=RowState.PENDING)]
    if publication is not None:
        rows.append(Row(PUBLICATION, 1, publication, state=RowState.PENDING))
    m = maintenance(*rows, record=MaintenanceRecord(dirty=7, processed=6), publication_required=True)
    assert m.ready_now(1_000) is ready


def test_no_pass_is_ready_while_one_runs():
    """One permit per object."""
    shell = Shell()
    shell.submit("A", "s1")
    assert shell.maintenance.ready_now(shell.now)
    shell.begin()
    assert not shell.maintenance.ready_now(shell.now)


def test_an_object_that_owes_nothing_looks_again_when_a_late_head_is_seen():
    """One discovery pass, without progress; an object that owes work, or has a body in hand, changes nothing."""
    shell = Shell()
    shell.submit("A", "s1")
    assert not shell.maintenance.look_again(shell.now)
    shell.run_pass()
    shell.world.submit("A", "s2")
    held = shell.maintenance.prearm(shell.now, invalidates_recovery=False)
    assert not shell.maintenance.look_again(shell.now) and shell.alarm() is None
    shell.maintenance.release(held, shell.now)
    assert shell.maintenance.look_again(shell.now)
    assert shell.alarm() == shell.now + 50
    shell.run_pass()
    assert shell.world.settled == ["s1", "s2"] and shell.alarm() is None
