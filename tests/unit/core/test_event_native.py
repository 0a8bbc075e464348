"""Passes end to end: selection, Attempts, checkpoints, and the readings that spare a survey."""

import pytest

from tests.unit.core.world import Shell, World, names, state_of
from thread_objects.contract.views import Recovered, Registry
from thread_objects.core.config import LaneSpec, MaintenanceConfig
from thread_objects.core.due_queue import NATIVE, Row, RowState
from thread_objects.core.maintenance import AlarmRefusal
from thread_objects.core.record import MaintenanceRecord, Retry

SHARED = MaintenanceConfig(shared_host=True)


def test_one_submission_costs_one_attempt_and_no_survey():
    """The batch's survey is the scan, the Attempt's view the checkpoint's rescan."""
    shell = Shell()
    shell.submit("A", "s1")
    assert shell.alarm() == shell.now
    assert names(shell.begin()) == ["AttemptThread A"]
    assert shell.event.wake_at() is None
    assert shell.attempted("A") == []
    report = shell.finish()
    assert (report.phase, report.settled, report.nonterminal, report.alarm) == ("actionable", 1, 0, "cleared")
    record = shell.state.record
    assert record.processed == record.dirty and shell.alarm() is None


def test_an_attempt_carries_the_events_bounds():
    """Yield at 600 000, everything over at 840 000, fixed at the start."""
    shell = Shell()
    shell.submit("A")
    (attempt,) = shell.begin()
    assert (attempt.yield_at, attempt.deadline_at) == (601_000, 841_000)
    assert (shell.event.yield_at, shell.event.deadline_at, shell.event.started_at) == (601_000, 841_000, 1_000)


def test_a_caught_up_pass_starts_nothing():
    """Nothing left, alarm forced twice: no command, slot empty (ALM-015, ALM-017)."""
    shell = Shell()
    shell.submit("A", "s1")
    shell.run_pass()
    started = len(shell.log)
    for _ in range(2):
        report = shell.run_pass()
        assert (report.phase, report.settled, report.alarm) == ("caught-up", 0, "cleared")
    assert len(shell.log) == started and shell.world.settled == ["s1"]


def test_an_unknown_parked_thread_leaves_the_alarm_empty():
    """Recovered once, then certified; forced alarms find it caught up (ALM-017)."""
    shell = Shell()
    shell.submit("A", "s1", state="unknown")
    report = shell.run_pass(recover=lambda t: shell.world.recovered(t, "AwaitUnknownResolution", "unknown"))
    assert (report.phase, report.nonterminal, report.alarm) == ("actionable", 1, "cleared")
    assert names(shell.log) == ["RecoverThread A"]
    for _ in range(2):
        assert shell.run_pass().phase == "caught-up"
    assert names(shell.log) == ["RecoverThread A"]


def test_an_unknown_head_is_recovered_before_its_follower_runs():
    """Recovery first, then the follower, in the same event; the unknown row stays (DSP-010, UNK-002)."""
    shell = Shell()
    shell.world.submit("A", "s1", "unknown")
    shell.submit("A", "s2")
    report = shell.run_pass(recover=lambda t: shell.world.recovered(t, "AwaitUnknownResolution", "unknown"))
    assert names(shell.log) == ["RecoverThread A", "AttemptThread A"]
    assert shell.world.settled == ["s2"]
    assert (report.nonterminal, report.alarm) == (1, "cleared")


def test_a_suspended_thread_costs_nothing_while_it_waits():
    """The Attempt suspended its head: acknowledged, no alarm, next pass caught up (APP-008)."""
    shell = Shell()
    shell.submit("A", "s1")
    report = shell.run_pass(attempt=lambda t: shell.world.attempted(t, "suspended"))
    assert (report.settled, report.nonterminal, report.alarm) == (0, 1, "cleared")
    assert shell.run_pass().phase == "caught-up"


def test_a_resumed_head_is_recovered_then_dispatched_in_one_event():
    """An input-applied head needs its report first; its view spares the rescan."""
    shell = Shell()
    shell.submit("A", "s1", state="input-applied")
    report = shell.run_pass(recover=lambda t: shell.world.recovered(t, "ResumeFromTurnBoundary"))
    assert names(shell.log) == ["RecoverThread A", "AttemptThread A"]
    assert (report.recovered, report.settled, report.alarm) == (1, 1, "cleared")


def test_queued_inputs_settle_one_per_event_without_a_timer_between():
    """The end of the only Attempt ends the event; the next pass may begin at once."""
    shell = Shell()
    for sid in ("s1", "s2", "s3"):
        shell.world.submit("A", sid)
    shell.mutate()
    for left in (2, 1, 0):
        report = shell.run_pass()
        assert (report.settled, report.nonterminal) == (1, left)
        assert shell.maintenance.ready_now(shell.now) is (left > 0)
        assert shell.alarm() == (shell.now + 100 if left else None)
        assert report.alarm == ("rearmed" if left else "cleared")
    assert names(shell.log) == ["AttemptThread A"] * 3
    assert shell.world.settled == ["s1", "s2", "s3"]


def test_work_without_progress_is_not_ready_at_once():
    """An idle Attempt leaves the charge's floor: the next pass waits for the timer."""
    shell = Shell()
    shell.submit("A", "s1")
    report = shell.run_pass(attempt=lambda t: shell.world.attempted(t, "idle"))
    assert report.alarm == "rearmed" and shell.alarm() == 2_000
    assert shell.state.record.retry == Retry(shell.state.record.dirty, 1_100, True, 2)
    assert not shell.maintenance.ready_now(1_999)
    assert shell.maintenance.ready_now(2_000)


def test_input_that_arrives_during_an_attempt_makes_the_next_pass_read():
    """Dirty moved: the observed generation is all that could be certified, and the rescan is read."""
    shell = Shell()
    shell.submit("A", "s1")
    shell.begin()
    shell.submit("A", "s2")
    assert shell.advance() == [], "one slot, and it is taken"
    assert names(shell.attempted("A")) == ["Survey"]
    assert shell.survey() == []
    report = shell.finish()
    assert report.nonterminal == 1 and shell.state.record.processed == 0
    assert shell.maintenance.ready_now(shell.now)
    assert names(shell.begin()) == ["AttemptThread A"], "the checkpoint's survey is still certain"
    shell.attempted("A")
    assert shell.finish().alarm == "cleared"


def test_a_joined_input_is_certified_with_its_hosts_settlement():
    """Nothing left at the rescan: the scanned generation is acknowledged, no extra pass."""
    shell = Shell()
    shell.submit("A", "s1")
    shell.begin()
    shell.submit("A", "s2")
    shell.world.settle("A")
    assert names(shell.attempted("A")) == ["Survey"]
    shell.survey()
    assert shell.finish().alarm == "cleared"
    assert shell.state.record.processed == shell.state.record.dirty


def test_a_survey_of_a_batch_is_not_used_beside_another_body():
    """A second mutation in hand: the step reads for itself, and certifies nothing."""
    shell = Shell()
    shell.submit("A", "s1")
    other = shell.maintenance.prearm(shell.now)
    assert names(shell.begin()) == ["Survey"]
    shell.survey()
    shell.maintenance.release(other, shell.now)
    shell.advance()
    assert names(shell.attempted("A")) == ["Survey"], "the Attempt began beside a body"
    shell.survey()
    shell.finish()
    assert shell.state.record.processed == 0
    assert shell.alarm() == shell.now + 50


def test_a_survey_that_two_bodies_overlapped_is_never_kept():
    """Neither body's survey describes the object once both are over."""
    shell = Shell()
    first = shell.maintenance.prearm(shell.now)
    second = shell.maintenance.prearm(shell.now)
    for mutation in (first, second):
        shell.maintenance.release(mutation, shell.now, progressed=(NATIVE,))
        shell.maintenance.note_survey(shell.world.survey(), shell.now)
    assert names(shell.begin()) == ["Survey"]


def test_a_batch_survey_read_before_an_attempt_ended_is_not_kept():
    """Its view of the Attempt's Thread may be older than the Attempt's own."""
    shell = Shell()
    shell.submit("A", "s1")
    shell.begin()
    mutation = shell.maintenance.prearm(shell.now)
    stale = shell.world.survey()
    shell.attempted("A")
    shell.maintenance.release(mutation, shell.now, progressed=(NATIVE,))
    shell.maintenance.note_survey(stale, shell.now)
    shell.advance()
    assert shell.finish().nonterminal == 0
    assert shell.state.record.processed == 0
    assert names(shell.begin()) == ["Survey"]
    shell.survey()
    assert shell.finish().nonterminal == 0
    assert shell.state.record.processed == shell.state.record.dirty


def test_an_attempt_that_ended_before_the_batch_was_sent_leaves_its_survey_valid():
    """End and batch of one workflow task: the batch's transaction read what the Attempt had committed."""
    shell = Shell()
    shell.submit("A", "s1")
    shell.begin()
    shell.maintenance.in_task(7)
    mutation = shell.maintenance.prearm(shell.now)
    shell.attempted("A")
    shell.world.submit("A", "s2")
    shell.finish()
    shell.maintenance.in_task(7)
    shell.maintenance.release(mutation, shell.now, progressed=(NATIVE,))
    shell.maintenance.note_survey(shell.world.survey(), shell.now)
    assert names(shell.begin()) == ["AttemptThread A"]


def test_an_attempt_that_ended_in_a_later_task_outdates_the_batchs_survey():
    """The batch may have read before the Attempt's last transaction."""
    shell = Shell()
    shell.submit("A", "s1")
    shell.begin()
    shell.maintenance.in_task(7)
    mutation = shell.maintenance.prearm(shell.now)
    shell.maintenance.in_task(8)
    shell.attempted("A")
    shell.world.submit("A", "s2")
    shell.finish()
    shell.maintenance.release(mutation, shell.now, progressed=(NATIVE,))
    shell.maintenance.note_survey(shell.world.survey(), shell.now)
    assert names(shell.begin()) == ["Survey"]


def test_a_checkpoint_beside_a_producer_reads_nothing_and_acknowledges_nothing():
    """The Attempt's own view is enough where a mutation in hand forbids every acknowledgement anyway."""
    shell = Shell()
    shell.submit("A", "s1")
    shell.begin()
    mutation = shell.maintenance.prearm(shell.now)
    assert shell.attempted("A") == []
    report = shell.finish()
    assert names(shell.log) == ["AttemptThread A"]
    assert (report.alarm, shell.state.record.processed) == ("rearmed", 0)
    shell.maintenance.release(mutation, shell.now)
    assert shell.maintenance.active_mutations == 0


def test_a_view_newer_than_the_survey_under_way_wins():
    """Recovery ended while the survey was read: a head it woke is not mistaken for a waiting one."""
    shell = Shell(config=SHARED)
    shell.world.submit("A", "s1", "suspended")
    shell.world.submit("B", "s2")
    shell.submit("C", "s3", state="suspended")
    assert names(shell.begin()) == ["AttemptThread B", "RecoverThread A"]
    assert names(shell.attempted("B")) == ["Survey"]
    stale = shell.world.survey()
    shell.world.head("A").state = "input-applied"
    shell.recovered("A", "ResumeSuspended", "repaired")
    shell.recovered("C", "AwaitApprovalDecision")
    shell.commands.clear()
    shell.event.surveyed(stale, shell.now)
    assert shell.advance() == []
    report = shell.finish()
    assert report.alarm == "rearmed" and shell.state.record.processed == 0
    assert shell.maintenance.ready_now(shell.now)


def test_shared_host_runs_two_threads_and_gives_a_free_slot_to_the_third():
    """A and B together, C only after one slot is free (DSP-001)."""
    shell = Shell(config=SHARED)
    for thread in ("A", "B", "C"):
        shell.world.submit(thread)
    shell.mutate()
    assert names(shell.begin()) == ["AttemptThread A", "AttemptThread B"]
    assert names(shell.attempted("B")) == ["Survey"]
    assert names(shell.survey()) == ["AttemptThread C"]
    shell.attempted("A")
    shell.survey()
    shell.attempted("C")
    shell.survey()
    report = shell.finish()
    assert (report.settled, report.alarm) == (3, "cleared")


def test_single_thread_runtime_makes_one_attempt_at_a_time():
    """Never two Attempts of one Thread (DSP-002)."""
    shell = Shell()
    shell.world.submit("A")
    shell.submit("A")
    assert names(shell.begin()) == ["AttemptThread A"]
    shell.maintenance.hint(shell.now)
    assert shell.advance() == []


def test_a_late_thread_starts_in_the_free_slot():
    """A's Attempt runs, B is admitted late: B does not wait for A (DSP-007)."""
    shell = Shell(config=SHARED)
    shell.submit("A", "s1")
    assert names(shell.begin()) == ["AttemptThread A"]
    shell.now += 5_000
    shell.submit("B", "s2")
    assert names(shell.advance()) == ["AttemptThread B"]


def test_the_scan_is_remembered_while_nothing_new_happened():
    """Attempts active, same generation and revision: a wake scans once, then no more."""
    shell = Shell(config=SHARED)
    shell.submit("A", "s1")
    shell.begin()
    shell.now += 1_000
    assert names(shell.advance()) == ["Survey"], "the dispatch left room, and the floor has passed"
    assert shell.survey() == []
    for _ in range(3):
        shell.now += 1_000
        shell.maintenance.hint(shell.now)
        assert shell.advance() == []
    assert shell.event.wake_at() is None


def test_fairness_continues_after_the_stored_cursor():
    """No Thread starves: the cursor is stored with the selection and carried (EVI-038)."""
    shell = Shell(config=MaintenanceConfig(shared_host=True, native_slots=1))
    for thread in ("A", "B", "C"):
        shell.world.submit(thread)
        shell.world.submit(thread)
    shell.mutate()
    served = []
    for _ in range(3):
        shell.begin()
        while not shell.event.done:
            if names(shell.commands)[0] == "Survey":
                shell.survey()
            else:
                served.append(shell.commands[0].thread_id)
                shell.attempted(served[-1])
        shell.finish()
        shell.restart()
    assert served == ["A", "B", "C"]


def test_native_progress_of_the_pass_makes_no_newer_generation():
    """RecordProgress of own work: dirty unchanged, native revision + 1 (GEN-012)."""
    shell = Shell()
    shell.submit("A", "s1")
    dirty, revision = shell.state.record.dirty, shell.state.queue.get(NATIVE).revision
    shell.begin()
    shell.attempted("A", "suspended")
    assert shell.state.record.dirty == dirty
    assert shell.state.queue.get(NATIVE).revision == revision + 1


@pytest.mark.parametrize(("ended", "moved"), [("yielded", 1), ("unknown", 1), ("idle", 0), ("unbound", 0)])
def test_only_committed_facts_renew_the_native_row(ended, moved):
    """Claims, renewals and retries are not progress."""
    shell = Shell()
    shell.submit("A", "s1")
    revision = shell.state.queue.get(NATIVE).revision
    shell.begin()
    shell.attempted("A", ended)
    assert shell.state.queue.get(NATIVE).revision == revision + moved


def test_a_yielded_run_goes_on_in_the_next_event():
    """At the yield deadline nothing new is admitted; the same head is owed and rearmed (DSP-025)."""
    shell = Shell()
    shell.submit("A", "s1", state="input-applied")
    shell.begin()
    shell.recovered("A", "ResumeFromTurnBoundary")
    shell.now = shell.event.yield_at
    assert shell.advance() == []
    assert names(shell.attempted("A", "yielded")) == []
    report = shell.finish()
    assert (report.settled, report.alarm, report.failure) == (0, "rearmed", None)
    assert shell.state.queue.get(NATIVE).stalls == 0, "its Turns were progress"
    assert shell.alarm() == shell.now + 100
    shell.now += 100
    assert shell.maintenance.ready_now(shell.now)


def test_stopping_admission_behaves_as_the_yield_deadline():
    """Continue-as-new: nothing new starts, what runs is joined, the object stays armed."""
    shell = Shell(config=SHARED)
    for thread in ("A", "B", "C"):
        shell.world.submit(thread)
    shell.mutate()
    shell.begin()
    shell.event.stop_admission()
    assert shell.attempted("A") == [] and shell.event.wake_at() is None
    assert names(shell.attempted("B", "yielded")) == ["Survey"]
    shell.survey()
    report = shell.finish()
    assert (report.settled, report.nonterminal, report.alarm) == (1, 2, "rearmed")


def test_a_survey_under_way_when_admission_stops_dispatches_nothing():
    """It is joined, and certifies what it may."""
    shell = Shell()
    shell.world.submit("A", "s1")
    shell.mutate()
    shell.maintenance.sighting.disturb()
    assert names(shell.begin()) == ["Survey"]
    shell.event.stop_admission()
    assert shell.advance() == []
    assert shell.survey() == []
    report = shell.finish()
    assert report.nonterminal == 1 and report.alarm == "rearmed"


def test_an_event_stopped_before_it_started_leaves_everything_owed():
    """No step ran: nothing is certified, the charge stays, the slot is set."""
    shell = Shell()
    shell.submit("A", "s1")
    shell.event = shell.maintenance.begin_event(shell.now)
    shell.event.stop_admission()
    assert shell.advance() == []
    report = shell.finish()
    assert (report.phase, report.alarm) == ("caught-up", "rearmed")
    assert shell.state.record.processed == 0


def test_one_pass_at_a_time_and_one_decision_each():
    """A second begin, an early finish and a second finish are refused."""
    shell = Shell()
    shell.submit("A")
    shell.begin()
    with pytest.raises(AlarmRefusal, match="a pass is running"):
        shell.maintenance.begin_event(shell.now)
    event = shell.event
    with pytest.raises(AlarmRefusal, match="not done"):
        event.finish(shell.now, 0)
    shell.attempted("A")
    shell.finish()
    with pytest.raises(AlarmRefusal, match="finished before"):
        event.finish(shell.now, 0)


def test_facts_nobody_asked_for_change_nothing():
    """A late or doubled answer is not an event of this pass."""
    shell = Shell()
    shell.submit("A", "s1")
    shell.begin()
    before = shell.state.to_json()
    event, world = shell.event, shell.world
    event.surveyed(world.survey(), 1_000)
    event.survey_failed("late", 1_000)
    event.published(None, 1_000)
    event.publish_failed("late", 1_000)
    event.attempt_ended("B", world.attempted("B", "idle"), 1_000)
    event.attempt_failed("B", "late", 1_000)
    event.recovered("A", world.recovered("A"), 1_000)
    event.recovery_failed("A", "late", 1_000)
    event.lane_ended("L", None, 1_000, progressed=("L",))
    event.lane_failed("L", "late", 1_000)
    assert shell.advance() == [] and shell.state.to_json() == before


def test_a_registry_seen_by_the_attempt_wakes_the_next_pass():
    """A new key mid-pass: dirty + 1, native due; this pass certifies only what it observed."""
    shell = Shell()
    shell.maintenance.observe_registry("K1", 1, shell.now)
    shell.submit("A", "s1")
    shell.begin()
    dirty = shell.state.record.dirty
    shell.attempted("A", registry=Registry(key="K2", deployment=2))
    shell.survey()
    report = shell.finish()
    assert shell.state.record.dirty == dirty + 1 == shell.state.record.processed
    assert report.alarm == "cleared", "the rescan was read after the change and found nothing"


def test_a_truncated_survey_certifies_nothing():
    """More pages than were read: discovery is pending."""
    shell = Shell(config=SHARED)
    shell.world.truncated = True
    shell.mutate()
    report = shell.run_pass()
    assert report.alarm == "rearmed" and shell.state.record.processed == 0


def test_a_pass_before_the_floor_is_caught_up_and_charges_nothing():
    """A forced alarm in the backoff leaves row and retry as they are."""
    record = MaintenanceRecord(dirty=5, processed=4, retry=Retry(5, 9_000, True, 2))
    shell = Shell(state=state_of(Row(NATIVE, 2, 9_000, 2, None, 4_000, RowState.PENDING), record=record))
    shell.now = 8_000
    assert shell.run_pass().phase == "caught-up"
    assert shell.state.record.retry == record.retry
    assert shell.state.queue.get(NATIVE).stalls == 2
    assert shell.alarm() == 9_000


def test_a_lane_keeps_the_event_open_and_native_work_comes_back_in_it():
    """While a long wave runs, the next head is dispatched when the backoff has passed."""
    config = MaintenanceConfig(lanes=(LaneSpec("L", 200_000),))
    shell = Shell(config=config)
    shell.world.submit("A", "s1")
    shell.submit("A", "s2")
    shell.maintenance.schedule("L", shell.now, shell.now)
    assert sorted(names(shell.begin())) == ["AttemptThread A", "RunLane L"]
    assert shell.attempted("A") == [], "the checkpoint step after an Attempt does not dispatch"
    assert shell.event.wake_at() == shell.now + 100
    shell.now += 100
    assert names(shell.advance()) == ["AttemptThread A"]
    shell.attempted("A")
    shell.lane("L")
    report = shell.finish()
    assert (report.settled, report.alarm) == (2, "cleared")


def test_a_recovery_that_repairs_counts_as_progress():
    """Repaired → exactly the base, no retry record, native renewed."""
    shell = Shell()
    shell.submit("A", "s1", state="joining")
    report = shell.run_pass(
        recover=lambda t: shell.world.recovered(t, "RepairJoinMarker", "repaired"),
        attempt=lambda t: shell.world.attempted(t, "idle"),
    )
    assert report.recovered == 1
    assert shell.state.record.retry is None
    assert shell.alarm() == shell.now + 100


def test_recovered_of_an_attempt_feeds_report_and_decisions():
    """The Attempt's own recovery counts like the wave's."""
    shell = Shell()
    shell.submit("A", "s1")
    report = shell.run_pass(
        attempt=lambda t: shell.world.attempted(t, recovered=Recovered(thread_id=t, recovered=3, retry_at=50_000))
    )
    assert report.recovered == 3 and report.alarm == "rearmed"
    assert shell.alarm() == 50_000


def test_the_world_of_the_tests_folds_rows_as_the_store_does():
    """Head past unknown rows; quiet followers wait for it, busy ones do not."""
    world = World()
    for state in ("unknown", "suspended", "ready", "joined", "input-applied"):
        world.submit("A", state=state)
    view = world.view("A")
    assert (view.head.submission_id, view.unknown, view.quiet, view.busy) == ("s2", 1, 2, 1)
