"""The due queue: every operation's arithmetic, and its transactions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.world import Shell, state_of
from thread_objects.core.config import LaneSpec, MaintenanceConfig
from thread_objects.core.due_queue import (
    LIFECYCLE,
    MESSAGES,
    NATIVE,
    PROJECTION,
    PUBLICATION,
    RECOVERY_EVENTS,
    DueQueue,
    Row,
    RowState,
    earliest,
    lane_label,
)
from thread_objects.core.maintenance import AlarmRefusal, Maintenance
from thread_objects.core.record import MaintenanceRecord

PENDING, PARKED, IDLE = RowState.PENDING, RowState.PARKED, RowState.IDLE


def done(queue, *operations):
    """Run operations in one transaction and commit; answers the result of the last."""
    tx = queue.begin()
    result = None
    for name, *arguments in operations:
        keywords = arguments.pop() if arguments and isinstance(arguments[-1], dict) else {}
        result = getattr(tx, name)(*arguments, **keywords)
    tx.commit()
    return result


def test_registering_gives_one_discovery_wave():
    """Absent → revision 0, due at 0; present → nothing (DUE-001, DUE-002)."""
    queue = DueQueue([Row("known", revision=4)])
    done(queue, ("register", NATIVE), ("register", "known"))
    assert queue.get(NATIVE) == Row(NATIVE, 0, 0, state=PENDING)
    assert queue.get("known") == Row("known", revision=4)
    done(queue, ("register", NATIVE))
    assert queue.get(NATIVE) == Row(NATIVE, 0, 0, state=PENDING)


def test_dirty_makes_an_idle_row_pending_without_a_new_revision():
    """L idle {rev 4}: dirty(L, 900) → due 900, rev 4, pending (DUE-004)."""
    queue = DueQueue([Row("L", revision=4)])
    done(queue, ("dirty", "L", 900))
    assert queue.get("L") == Row("L", 4, 900, state=PENDING)


def test_dirty_makes_a_row_that_was_never_there():
    """Absent: revision 1, no stalls, no floor, whether it is progress or not."""
    queue = DueQueue()
    done(queue, ("dirty", "L", 900), ("dirty", "M", 800, {"progress": True}))
    assert queue.get("L") == Row("L", 1, 900, state=PENDING)
    assert queue.get("M") == Row("M", 1, 800, state=PENDING)


@pytest.mark.parametrize("due_at", [500, 7_000, 9_000])
def test_dirty_without_progress_never_passes_the_floor(due_at):
    """L {rev 3, stalls 2, notBefore 7 000, due 7 000}: dirty(L, 500) → due 7 000, rev 3 (DUE-005)."""
    row = Row("L", 3, 7_000, 2, None, 7_000, PENDING)
    queue = DueQueue([row])
    done(queue, ("dirty", "L", due_at))
    assert queue.get("L") == row


def test_progress_renews_the_row():
    """dirty(L, 500, progress) → due 500, rev 4, stalls 0, no floor, reported 0 (DUE-007)."""
    queue = DueQueue([Row("L", 3, 7_000, 8, "5", 7_000, PARKED, reported=True)])
    done(queue, ("dirty", "L", 500, {"progress": True}))
    assert queue.get("L") == Row("L", 4, 500, 0, "5", 0, PENDING)


def test_dirty_without_progress_leaves_a_parked_row_parked():
    """Parked until 3 723 000 and reported: dirty(L, 0) changes nothing (DUE-008)."""
    row = Row("L", 1, 3_723_000, 8, None, 3_723_000, PARKED, reported=True)
    queue = DueQueue([row])
    done(queue, ("dirty", "L", 0))
    assert queue.get("L") == row


def test_dirty_of_a_parked_row_without_deadline_stays_parked():
    """A native row held back by parked publication: due again at its floor, state unchanged."""
    queue = DueQueue([Row("L", 1, None, 8, None, 5_000, PARKED)])
    done(queue, ("dirty", "L", 0))
    assert queue.get("L") == Row("L", 1, 5_000, 8, None, 5_000, PARKED)


@pytest.mark.parametrize(
    ("key", "cursor", "counts"), [("5", 5, False), ("5", 4, False), ("5", 6, True), ("9", 10, True)]
)
def test_a_cursor_counts_once_and_numerically(key, cursor, counts):
    """Known cursors change nothing, not even the deadline; 10 is past 9 (DUE-010, DUE-011, DUE-012)."""
    row = Row("L", 1, 9_000, progress_key=key, state=PENDING)
    queue = DueQueue([row])
    assert done(queue, ("progress", "L", 10, cursor)) is counts
    assert queue.get("L") == (Row("L", 2, 10, progress_key=str(cursor), state=PENDING) if counts else row)


@pytest.mark.parametrize("cursor", [-1, 10**600])
def test_a_cursor_outside_its_bounds_is_refused(cursor):
    """Cursor ≥ 0, and its key has at most 512 characters."""
    queue = DueQueue()
    with pytest.raises(AlarmRefusal, match="progress cursor"):
        queue.begin().progress("L", 10, cursor)


def test_charges_at_the_rows_own_deadline_give_the_worked_table():
    """Nine charges from t = 0, each wave answering now + 1 (DUE-014, DUE-015, DUE-017, DUE-018)."""
    queue = DueQueue([Row("L", 2, 0, state=PENDING)])
    floors = []
    for charge in range(9):
        row = queue.get("L")
        now = row.due_at
        charged = done(queue, ("claim", row, now))
        assert charged.revision == row.revision == 2 + charge
        assert charged.due_at == charged.not_before
        floors.append((now, charged.not_before, charged.stalls, charged.state))
        done(queue, ("complete", charged, now + 1))
        assert queue.get("L").due_at == charged.not_before
    assert floors == [
        (0, 1_000, 1, PENDING),
        (1_000, 3_000, 2, PENDING),
        (3_000, 7_000, 3, PENDING),
        (7_000, 15_000, 4, PENDING),
        (15_000, 31_000, 5, PENDING),
        (31_000, 63_000, 6, PENDING),
        (63_000, 123_000, 7, PENDING),
        (123_000, 3_723_000, 8, PARKED),
        (3_723_000, 7_323_000, 8, PARKED),
    ]


@pytest.mark.parametrize(
    ("row", "native", "granted"),
    [
        (Row("L", 1), False, False),
        (Row("L", 1), True, False),
        (Row("L", 1, 5_000, not_before=1_000, state=PENDING), False, False),
        (Row("L", 1, 5_000, not_before=1_000, state=PENDING), True, True),
        (Row("L", 1, 5_000, not_before=3_000, state=PENDING), True, False),
        (Row("L", 1, 2_000, state=PENDING), False, True),
    ],
)
def test_only_due_rows_are_charged_and_native_past_its_floor(row, native, granted):
    """At 2 000: no deadline → none; a future deadline → native only, past its floor (DUE-020, DUE-021, DUE-022)."""
    queue = DueQueue([row])
    charged = done(queue, ("claim", row, 2_000, {"native": native}))
    assert (charged is not None) is granted
    assert granted or queue.get("L") == row


def test_a_row_that_moved_on_is_neither_charged_nor_completed():
    """Another revision fences the wave that read the older one."""
    queue = DueQueue([Row("L", 2, 0, state=PENDING)])
    stale = Row("L", 1, 0, state=PENDING)
    assert done(queue, ("claim", stale, 0)) is None
    assert done(queue, ("complete", stale, None)) is None
    assert done(queue, ("claim", Row("gone", 1, 0), 0)) is None
    assert queue.get("L") == Row("L", 2, 0, state=PENDING)


@pytest.mark.parametrize(("answer", "due_at"), [(5, 1_000), (2_500, 2_500)])
def test_a_completed_wave_keeps_the_floor_of_its_charge(answer, due_at):
    """Charged {stalls 1, notBefore 1 000, rev 2}: complete(2 500) → due 2 500, rev 3; 5 → 1 000 (DUE-024)."""
    charged = Row("L", 2, 1_000, 1, None, 1_000, PENDING)
    queue = DueQueue([charged])
    done(queue, ("complete", charged, answer))
    assert queue.get("L") == Row("L", 3, due_at, 1, None, 1_000, PENDING)


@pytest.mark.parametrize("stalls", [1, 8])
def test_a_wave_without_a_next_deadline_is_idle_and_never_reported(stalls):
    """complete(null) at the 8th charge: idle, no stalls, no floor, no report (DUE-025)."""
    charged = Row("L", 2, 9_000, stalls, "7", 9_000, PARKED if stalls == 8 else PENDING)
    queue = DueQueue([charged])
    done(queue, ("complete", charged, None))
    assert queue.get("L") == Row("L", 3, progress_key="7")
    assert done(queue, ("take_parked_reports",)) == ()


@pytest.mark.parametrize(
    ("publication", "answer", "row"),
    [
        (None, 1_200, Row(NATIVE, 5, 3_000, 2, None, 3_000, PENDING)),
        (None, 4_000, Row(NATIVE, 5, 4_000, 2, None, 3_000, PENDING)),
        (None, None, Row(NATIVE, 5)),
        (Row(PUBLICATION, 1, 9, 8, None, 9, PARKED), 1_200, Row(NATIVE, 5, None, 2, None, 3_000, PENDING)),
        (Row(PUBLICATION, 1, 9, 2, None, 9, PENDING), 1_200, Row(NATIVE, 5, 3_000, 2, None, 3_000, PENDING)),
        (Row(PUBLICATION, 1, 9, 8, None, 9, PARKED), None, Row(NATIVE, 5)),
    ],
)
def test_native_checkpoint_keeps_floor_and_revision(publication, answer, row):
    """max(value, notBefore), same revision; no deadline while publication is parked (DUE-027, DUE-028)."""
    native = Row(NATIVE, 5, 3_000, 2, None, 3_000, PENDING)
    queue = DueQueue([native, publication] if publication else [native])
    done(queue, ("checkpoint_native", answer))
    assert queue.get(NATIVE) == row


def test_native_checkpoint_without_a_native_row_does_nothing():
    """No row is made."""
    queue = DueQueue()
    done(queue, ("checkpoint_native", 5))
    assert queue.rows() == []


def test_parked_rows_are_reported_once():
    """A parked and not reported, B reported: first [A], then [] (DUE-030)."""
    queue = DueQueue([Row("A", 1, 9, 8, None, 9, PARKED), Row("B", 1, 9, 8, None, 9, PARKED, reported=True)])
    assert done(queue, ("take_parked_reports",)) == ("host",)
    assert done(queue, ("take_parked_reports",)) == ()
    assert queue.get("A") == Row("A", 1, 9, 8, None, 9, PARKED, reported=True)


def test_a_report_names_framework_rows_and_hides_host_ids():
    """A host lane, and any other framework lane, is `host`; nothing else is told (DUE-031)."""
    labels = [lane_label(i) for i in (NATIVE, PUBLICATION, PROJECTION, MESSAGES, RECOVERY_EVENTS, LIFECYCLE)]
    assert labels == ["native", "publication", "projection", "messages", "recovery-events", "lifecycle"]
    assert lane_label("tenant-42-invoices") == "host"
    assert lane_label("thread-object:something-else") == "host"


def test_next_is_the_earliest_deadline_also_inside_a_transaction():
    """Rows due 500, none, 300 → 300; own writes are seen (DUE-032)."""
    queue = DueQueue([Row("a", due_at=500), Row("b"), Row("c", due_at=300)])
    assert queue.next() == 300
    assert DueQueue([Row("b")]).next() is None and earliest([]) is None
    tx = queue.begin()
    assert tx.next() == 300
    tx.dirty("c", 600, progress=True)
    assert tx.next() == 500
    tx.dirty("b", 5)
    assert tx.next() == 5
    assert queue.next() == 300


def test_one_transaction_keeps_the_earliest_deadline_it_was_given():
    """(+3 000, c1), (+1 000, c3), (+2 000, c2 refused), (+4 000, c4) → +1 000, key 4; then +500 alone (DUE-034)."""
    maintenance = Maintenance(state_of(), MaintenanceConfig())
    queue = maintenance.state.queue
    tx = queue.begin()
    answers = [
        tx.progress("L", 10_000 + due, cursor) for due, cursor in ((3_000, 1), (1_000, 3), (2_000, 2), (4_000, 4))
    ]
    assert answers == [True, True, False, True]
    assert list(tx.changes) == ["L"]
    assert (tx.get("L").due_at, tx.get("L").progress_key) == (11_000, "4")
    tx.dirty("L", 10_500)
    tx.commit()
    assert (queue.get("L").due_at, queue.get("L").progress_key) == (10_500, "4")


def test_a_failed_child_restores_its_parents_view():
    """Parent schedules +700, child +100 and fails: the row is due +700 (DUE-035)."""
    queue = DueQueue()
    parent = queue.begin()
    parent.dirty("L", 700)
    child = parent.child()
    child.dirty("L", 100)
    assert child.get("L").due_at == 100
    assert parent.get("L").due_at == 700
    child.discard()
    again = parent.child()
    again.dirty("M", 5)
    again.commit()
    parent.commit()
    assert (queue.get("L").due_at, queue.get("M").due_at) == (700, 5)


def test_a_state_child_that_raises_leaves_no_trace():
    """Record, slot and rows of the child are forgotten; the parent still commits (DUE-035)."""
    maintenance = Maintenance(state_of(), MaintenanceConfig())
    with maintenance.transaction() as tx:
        tx.queue.dirty("L", 700)
        with pytest.raises(ZeroDivisionError), tx.child():
            tx.queue.dirty("L", 100)
            tx.record = tx.record.with_(dirty=9)
            tx.by(100, 0)
            raise ZeroDivisionError
        with tx.child():
            tx.queue.dirty("M", 5)
        tx.by(tx.queue.next(), 0)
    assert maintenance.state.queue.get("L").due_at == 700
    assert maintenance.state.record.dirty == 1
    assert maintenance.alarm.deadline == 5


def test_one_stale_revision_rejects_every_change():
    """Two transactions over the same row: the second to commit is refused, whole."""
    queue = DueQueue([Row("L", 1, 0, state=PENDING), Row("M", 1)])
    first, second = queue.begin(), queue.begin()
    second.dirty("M", 3)
    second.dirty("L", 10, progress=True)
    first.dirty("L", 20, progress=True)
    first.commit()
    with pytest.raises(AlarmRefusal, match="moved on"):
        second.commit()
    assert queue.get("M") == Row("M", 1)
    assert queue.get("L").due_at == 20


def test_a_discarded_transaction_changes_nothing():
    """Buffered changes are forgotten."""
    queue = DueQueue()
    tx = queue.begin()
    tx.dirty("L", 1)
    tx.discard()
    tx.commit()
    assert queue.rows() == []


def test_a_transaction_inside_an_open_one_is_refused():
    """An ambient transaction not opened here is none of ours (DUE-037)."""
    maintenance = Maintenance(state_of(), MaintenanceConfig())
    with maintenance.transaction() as tx:
        with pytest.raises(AlarmRefusal, match="open transaction"), maintenance.transaction():
            pass
        tx.queue.dirty("L", 5)
    assert maintenance.state.queue.get("L").due_at == 5


@pytest.mark.parametrize("row_id", ["", "x" * 257])
def test_an_invalid_lane_id_is_refused_and_leaves_the_queue(row_id):
    """Ids have 1..256 characters (LIM-018)."""
    maintenance = Maintenance(state_of(), MaintenanceConfig())
    with pytest.raises(AlarmRefusal, match="lane id"):
        maintenance.schedule(row_id, 5, 1_000)
    assert maintenance.state.queue.rows() == [] and maintenance.alarm.deadline is None


def test_a_lane_that_always_answers_now_is_parked_and_reported_once():
    """40 passes, 60 s apart: fewer than 20 waves, one report, the slot lies ahead (DUE-038)."""
    record = MaintenanceRecord(dirty=1, processed=1)
    config = MaintenanceConfig(lanes=(LaneSpec("L", 1_000),))
    shell = Shell(config=config, state=state_of(Row("L", 1, 0, state=PENDING), record=record), now=0)
    parked, waves = [], 0
    for round_ in range(40):
        shell.now = round_ * 60_000
        report = shell.run_pass(lane=lambda _: shell.now + 1)
        parked += report.parked
        waves = len(shell.log)
    assert 8 <= waves < 20
    assert parked == ["host"]
    assert shell.alarm() > shell.now


@given(
    st.lists(
        st.tuples(st.sampled_from(["dirty", "progress", "claim", "complete"]), st.integers(0, 5_000_000)), max_size=40
    )
)
def test_revisions_never_fall_and_floors_hold(operations):
    """Whatever happens to a row: its revision only grows, and a deadline never lies before its floor."""
    queue = DueQueue()
    revision, charged = -1, None
    for name, value in operations:
        row = queue.get("L")
        if name == "dirty":
            done(queue, ("dirty", "L", value))
        elif name == "progress":
            done(queue, ("dirty", "L", value, {"progress": True}))
        elif name == "claim" and row is not None:
            charged = done(queue, ("claim", row, value)) or charged
        elif name == "complete" and charged is not None:
            done(queue, ("complete", charged, value if value % 3 else None))
        row = queue.get("L")
        if row is not None:
            assert row.revision >= revision
            assert row.due_at is None or row.due_at >= row.not_before
            assert (row.due_at is None) == (row.state is IDLE)
            assert row.state is not PARKED or row.stalls == 8
            revision = row.revision
