"""The recovery wave beside dispatch, faults, binding waits, and events that fail."""

from dataclasses import replace

from tests.unit.core.world import Shell, fault, names, state_of
from thread_objects.contract.views import Registry
from thread_objects.core.config import LaneSpec, MaintenanceConfig
from thread_objects.core.due_queue import NATIVE, Row, RowState
from thread_objects.core.event_loop import PASS_DEADLINE
from thread_objects.core.record import MaintenanceRecord, Retry

SHARED = MaintenanceConfig(shared_host=True)
K1, K2 = Registry(key="K1", deployment=1), Registry(key="K2", deployment=2)


def test_a_stalled_old_recovery_never_blocks_a_fresh_thread():
    """B settles while A's read is still stalled (DSP-017)."""
    shell = Shell(config=SHARED)
    shell.world.submit("A", "s1", "input-applied")
    shell.submit("B", "s2")
    assert names(shell.begin()) == ["AttemptThread B", "RecoverThread A"]
    assert names(shell.attempted("B")) == ["Survey"]
    assert shell.survey() == []
    assert shell.world.settled == ["s2"]
    assert shell.event.wake_at() is None
    shell.now += 30_000
    shell.recovered("A", "ResumeFromTurnBoundary")
    shell.survey()
    report = shell.finish()
    assert (report.settled, report.recovered, report.nonterminal) == (1, 1, 1)
    assert shell.alarm() == shell.now + 100, "what was recovered runs in the next event"


def test_recovered_threads_are_dispatched_in_the_same_event_when_nothing_settled():
    """The wave's checkpoint step uses the first begin and may dispatch."""
    shell = Shell(config=SHARED)
    shell.world.submit("A", "s1", "input-applied")
    shell.submit("B", "s2", state="input-applied")
    assert names(shell.begin()) == ["RecoverThread A"]
    assert names(shell.recovered("A", "ResumeFromTurnBoundary")) == ["RecoverThread B"]
    assert names(shell.recovered("B", "ResumeFromTurnBoundary")) == ["Survey"]
    assert names(shell.survey()) == ["AttemptThread A", "AttemptThread B"]
    assert shell.state.queue.get(NATIVE).stalls == 1, "one charge"
    shell.attempted("A")
    while shell.commands:
        shell.survey() if names(shell.commands)[0] == "Survey" else shell.attempted("B")
    assert shell.finish().alarm == "cleared"


def test_a_thread_with_an_aborted_ready_head_is_recovered_not_dispatched():
    """Cleanup, not dispatch; settled by recovery (DSP-012, ABT-012)."""
    shell = Shell()
    shell.submit("A", "s1", abort=True)
    assert names(shell.begin()) == ["RecoverThread A"]
    shell.world.settle("A")
    shell.recovered("A", repaired=True, recovered=1)
    report = shell.finish()
    assert (report.nonterminal, report.alarm, report.settled) == (0, "cleared", 0)


def test_forty_old_threads_take_more_than_one_event():
    """32 in this event, discovery pending, generation not acknowledged; the cursor goes on (DSP-015)."""
    shell = Shell(config=SHARED)
    for number in range(40):
        shell.world.submit(f"t{number:02}", state="suspended")
    shell.mutate()
    report = shell.run_pass()
    assert report.alarm == "rearmed" and shell.state.record.processed == 0
    recovered = [name for name in names(shell.log) if name.startswith("RecoverThread")]
    assert recovered == [f"RecoverThread t{number:02}" for number in range(32)]
    assert shell.state.record.last_recovered_thread_id == "t31"
    shell.now = shell.alarm()
    shell.log.clear()
    shell.run_pass()
    recovered = [name for name in names(shell.log) if name.startswith("RecoverThread")]
    assert recovered[:9] == [f"RecoverThread t{number:02}" for number in (*range(32, 40), 0)]


def test_a_stored_work_cursor_continues_in_the_next_incarnation():
    """Cursor after page 2, eviction: recovery continues with page 3 (DSP-018)."""
    shell = Shell(config=SHARED)
    shell.submit("A", "s1", state="suspended")
    shell.begin()
    shell.recovered("A", cursor="page-2")
    assert shell.commands[-1].cursor == "page-2"
    shell.recovered("A", cursor="page-3")
    shell.restart()
    shell.now = 60_000
    shell.begin()
    shell.survey()
    assert shell.commands[-1].cursor == "page-3"
    shell.recovered("A")
    assert shell.state.work_cursors == {}


def test_recovery_stops_admitting_threads_at_the_yield():
    """The page that runs is joined; the others stay pending and keep the generation."""
    shell = Shell(config=SHARED)
    shell.world.submit("A", state="suspended")
    shell.submit("B", state="suspended")
    shell.begin()
    shell.event.stop_admission()
    assert names(shell.recovered("A", "AwaitApprovalDecision")) == ["Survey"]
    shell.survey()
    report = shell.finish()
    assert report.alarm == "rearmed" and shell.state.record.processed == 0


def test_a_cursor_that_does_not_move_ends_the_threads_turn():
    """The same cursor twice is no progress: the Thread is left for the next event, unfinished."""
    shell = Shell()
    shell.submit("A", "s1", state="suspended")
    shell.begin()
    shell.recovered("A", cursor="page-2")
    assert shell.recovered("A", cursor="page-2") == []
    assert shell.finish().alarm == "rearmed"


def test_a_faulted_thread_waits_for_its_retry_while_others_run():
    """A in fault backoff: B runs, A is neither recovered nor claimed before retryAt (DSP-014)."""
    shell = Shell(config=SHARED)
    shell.world.faults["A"] = 50_000
    shell.world.submit("A", "s1")
    shell.submit("B", "s2")
    shell.run_pass()
    assert names(shell.log) == ["AttemptThread B", "Survey"]
    assert shell.alarm() == 50_000
    shell.now = 50_000
    shell.log.clear()
    shell.run_pass(recover=lambda t: (shell.world.faults.pop(t), shell.world.recovered(t))[1])
    assert names(shell.log)[:2] == ["RecoverThread A", "Survey"]
    assert "AttemptThread A" in names(shell.log)


def test_a_fault_found_by_an_attempt_keeps_the_alarm():
    """Recovery failed before the claim: nothing settled, retried at its retryAt (ABT-011)."""
    shell = Shell()
    shell.submit("A", "s1")

    def blocked(thread):
        shell.world.faults[thread] = 6_000
        recovered = shell.world.recovered(thread, recovered=1, fault=fault(thread, 6_000)).recovered
        return shell.world.attempted(thread, "faulted", recovered=recovered)

    report = shell.run_pass(attempt=blocked)
    assert (report.settled, report.recovered, report.alarm) == (0, 1, "rearmed")
    assert shell.alarm() == 6_000


def test_a_fault_in_the_wave_does_not_hint():
    """The Thread is no longer pending, but nothing is dispatched for it; the checkpoint keeps its time."""
    shell = Shell()
    shell.submit("A", "s1", state="input-applied")
    shell.begin()
    shell.world.faults["A"] = 6_000
    shell.recovered("A", fault=fault("A", 6_000))
    report = shell.finish()
    assert names(shell.log) == ["RecoverThread A"]
    assert report.alarm == "rearmed" and shell.alarm() == 6_000


def test_a_duty_thread_without_rows_is_discovered_and_recovered():
    """Next deadline = max(its retryAt, rearm delay, native notBefore) (DSP-027)."""
    shell = Shell(config=SHARED)
    shell.world.duties = ["D"]
    shell.mutate()
    report = shell.run_pass(recover=lambda t: shell.world.recovered(t, retry_at=9_000))
    assert names(shell.log) == ["RecoverThread D", "Survey"]
    assert report.alarm == "rearmed" and shell.alarm() == 9_000
    assert shell.log[1].after == "D", "discovery goes on behind the Thread recovered last"


def test_a_missing_binding_is_reported_once_and_parks_quietly():
    """Wait stored and reported; a pass forced an hour later is caught up, slot empty (DSP-020, DSP-021)."""
    shell = Shell()
    shell.maintenance.observe_registry("K1", 1, shell.now)
    shell.submit("A", "s1")
    report = shell.run_pass(attempt=lambda t: shell.world.attempted(t, "unbound", registry=K1))
    assert [wait.submission_id for wait in report.newly_unbound] == ["s1"]
    assert (report.alarm, shell.alarm()) == ("cleared", None)
    (wait,) = shell.maintenance.binding_waits()
    assert (wait.thread_id, wait.submission_id, wait.reported_at, wait.agent_id) == ("A", "s1", 1_000, "agent")
    shell.now += 3_600_000
    report = shell.run_pass()
    assert (report.phase, report.newly_unbound, report.alarm) == ("caught-up", (), "cleared")
    assert names(shell.log) == ["AttemptThread A"]


def test_a_restart_after_the_wait_was_stored_reports_nothing_again():
    """The wait is carried; a later input behind it starts no Attempt (DSP-022, EVI-042)."""
    shell = Shell()
    shell.maintenance.observe_registry("K1", 1, shell.now)
    shell.submit("A", "s1")
    shell.run_pass(attempt=lambda t: shell.world.attempted(t, "unbound", registry=K1))
    shell.restart()
    shell.log.clear()
    shell.submit("A", "s2")
    report = shell.run_pass()
    assert names(shell.log) == ["RecoverThread A"]
    assert report.newly_unbound == () and report.alarm == "cleared"
    assert shell.maintenance.binding_waits()[0].reported_at == 1_000


def test_a_registry_change_tries_the_waiting_head_again():
    """Waits empty, one fresh opportunity; still unbound → reported anew (GEN-027)."""
    shell = Shell()
    shell.maintenance.observe_registry("K1", 1, shell.now)
    shell.submit("A", "s1")
    shell.run_pass(attempt=lambda t: shell.world.attempted(t, "unbound", registry=K1))
    shell.now = 90_000
    assert shell.maintenance.observe_registry("K2", 2, shell.now)
    assert shell.maintenance.binding_waits() == () and shell.alarm() == 90_050
    report = shell.run_pass(attempt=lambda t: shell.world.attempted(t, registry=K2))
    assert report.settled == 1 and report.alarm == "cleared"


def test_an_older_deployments_missing_binding_parks_nothing():
    """Its registry is not the one that counts: the head is tried again with the backoff."""
    shell = Shell()
    shell.maintenance.observe_registry("K2", 2, shell.now)
    shell.submit("A", "s1")
    report = shell.run_pass(attempt=lambda t: shell.world.attempted(t, "unbound", registry=K1))
    assert report.newly_unbound == () and shell.maintenance.binding_waits() == ()
    assert report.alarm == "rearmed"


def test_a_waiting_submission_is_aborted_without_its_binding():
    """Abort of s1: recovered and settled; its wait is removed (DSP-024, ABT-012)."""
    shell = Shell()
    shell.submit("A", "s1")
    shell.run_pass(attempt=lambda t: shell.world.attempted(t, "unbound"))
    shell.world.head("A").abort = True
    shell.mutate()
    assert names(shell.begin()) == ["RecoverThread A"]
    shell.world.settle("A")
    shell.recovered("A", repaired=True, recovered=1)
    report = shell.finish()
    assert (report.nonterminal, report.alarm) == (0, "cleared")
    assert shell.maintenance.binding_waits() == ()


def test_an_earlier_head_runs_although_a_later_one_waits_for_its_binding():
    """A resolved unknown row comes back before the waiting one; the wait is kept and not reported again."""
    shell = Shell()
    shell.world.submit("A", "s1", "unknown")
    shell.submit("A", "s2")
    recover = lambda t: shell.world.recovered(t, "AwaitUnknownResolution", "unknown")  # noqa: E731
    shell.run_pass(recover=recover, attempt=lambda t: shell.world.attempted(t, "unbound"))
    shell.world.rows["A"][0].state = "input-applied"
    shell.now = 90_000
    shell.mutate()
    report = shell.run_pass()
    assert report.settled == 1 and shell.world.settled == ["s1"]
    (wait,) = shell.maintenance.binding_waits()
    assert (wait.submission_id, wait.reported_at, report.alarm) == ("s2", 1_000, "cleared")


def test_a_failed_attempt_ends_the_event_and_joins_the_others():
    """Interruption, then its end is awaited, then the alarm decision; everything stays owed (DSP-008)."""
    shell = Shell(config=SHARED)
    shell.world.submit("A", "s1")
    shell.submit("B", "s2")
    shell.begin()
    assert names(shell.attempt_failed("A")) == ["Cancel AttemptThread B"]
    assert not shell.event.done
    shell.attempt_failed("B", "Cancelled")
    report = shell.finish()
    assert (report.failure, report.settled, report.alarm) == ("Defect", 0, "rearmed")
    assert shell.state.record.retry == Retry(shell.state.record.dirty, 1_050, True, 1)
    assert shell.alarm() == 2_000, "the charge's floor"
    shell.now = 2_000
    shell.run_pass()
    assert sorted(shell.world.settled) == ["s1", "s2"]


def test_an_attempt_that_settles_while_the_event_is_joined_still_counts():
    """Its progress is recorded in the stretch that takes the answer."""
    shell = Shell(config=SHARED)
    shell.world.submit("A", "s1")
    shell.submit("B", "s2")
    shell.begin()
    shell.attempt_failed("A")
    shell.attempted("B")
    report = shell.finish()
    assert (report.settled, report.failure) == (1, "Defect")
    assert shell.state.queue.get(NATIVE).stalls == 0


def test_an_attempt_cut_at_the_deadline_is_the_pass_deadline():
    """14 minutes: no settlement, dirty > processed, slot set (GEN-022)."""
    shell = Shell()
    shell.submit("A", "s1")
    shell.begin()
    shell.now = shell.event.deadline_at
    shell.attempt_failed("A", "TimeoutError")
    report = shell.finish()
    assert report.failure == PASS_DEADLINE == "DurableAlarmError(maintenance pass deadline)"
    assert report.settled == 0 and shell.alarm() == shell.now + 50
    assert shell.state.record.dirty > shell.state.record.processed


def test_whatever_runs_at_the_deadline_is_interrupted():
    """The machine itself asks for it when it is looked at then."""
    config = MaintenanceConfig(lanes=(LaneSpec("L", 240_000),))
    shell = Shell(config=config)
    shell.submit("A", "s1")
    shell.begin()
    shell.now = shell.event.deadline_at
    assert names(shell.advance()) == ["Cancel AttemptThread A"]
    assert shell.advance() == []
    shell.attempt_failed("A", "Cancelled")
    assert shell.finish().failure == PASS_DEADLINE


def test_an_unreadable_survey_fails_the_step_and_backs_off():
    """The step had passed the barrier: nativeOnly; a second failure keeps the first record."""
    shell = Shell()
    shell.maintenance.prearm(shell.now)
    shell.restart()
    for charge, now in enumerate((1_000, 2_000, 4_000)):
        shell.now = now
        shell.begin()
        shell.commands.clear()
        shell.event.survey_failed("StoreUnavailable", now)
        shell.advance()
        report = shell.finish()
        assert report.failure == "StoreUnavailable"
        assert shell.state.record.retry == Retry(2, 1_050, True, 1)
        assert shell.alarm() == now + 1_000 * 2**charge


def test_a_recovery_activity_that_fails_ends_the_event():
    """Not a fault of the Thread: the pass fails, and its Thread stays owed."""
    shell = Shell(config=SHARED)
    shell.world.submit("A", "s1", "input-applied")
    shell.submit("B", "s2")
    shell.begin()
    shell.commands = [c for c in shell.commands if c.thread_id == "B"]
    shell.event.recovery_failed("A", "WorkerGone", shell.now)
    assert names(shell.advance()) == ["Cancel AttemptThread B"]
    shell.attempted("B", "yielded")
    report = shell.finish()
    assert (report.failure, report.alarm) == ("WorkerGone", "rearmed")
    assert shell.state.record.processed == 0


def test_a_killed_pass_leaves_its_charge_and_an_alarm():
    """Crash after begin: charge kept; a later pass settles (EVI-037)."""
    shell = Shell()
    shell.submit("A", "s1")
    shell.begin()
    shell.restart()
    assert shell.state.queue.get(NATIVE).stalls == 1
    assert shell.alarm() is not None
    shell.now = shell.state.queue.get(NATIVE).not_before
    shell.run_pass()
    assert shell.world.settled == ["s1"] and shell.alarm() is None


def test_backoff_survives_a_restart():
    """Failed pass, crash: the slot is at the retry time (EVI-041)."""
    shell = Shell()
    shell.restart()
    shell.submit("A", "s1")
    shell.begin()
    shell.attempt_failed("A")
    shell.finish()
    before = (shell.alarm(), shell.state.record.retry)
    shell.restart()
    assert (shell.alarm(), shell.state.record.retry) == before


def test_a_quiet_object_whose_slot_survived_clears_it():
    """Crash before finish: slot still set; the next pass clears it (EVI-040)."""
    record = MaintenanceRecord(dirty=5, processed=5)
    shell = Shell(state=state_of(Row(NATIVE, 2), record=record, slot=900))
    assert shell.run_pass().alarm == "cleared"
    assert shell.alarm() is None


def test_eight_idle_passes_park_native_and_report_it_once():
    """Charged without progress: an hour's retry, one report; new input renews it."""
    shell = Shell()
    shell.submit("A", "s1")
    parked = []
    for _ in range(9):
        parked += shell.run_pass(attempt=lambda t: shell.world.attempted(t, "idle")).parked
        shell.now = shell.alarm()
    assert parked == ["native"]
    assert shell.state.queue.get(NATIVE).state is RowState.PARKED
    shell.submit("A", "s2")
    assert shell.alarm() == shell.now
    shell.run_pass()
    assert shell.world.settled == ["s1"]


def test_an_event_that_found_the_wave_over_still_admits_late_threads():
    """Recovery ended while A runs on: its checkpoint is owed, yet late B gets the free slot (DSP-007)."""
    shell = Shell(config=SHARED)
    shell.world.submit("A", "s1")
    shell.submit("C", "s3", state="suspended")
    assert names(shell.begin()) == ["AttemptThread A", "RecoverThread C"]
    assert names(shell.recovered("C", "AwaitApprovalDecision")) == ["Survey"]
    assert shell.survey() == []
    shell.now += 2_000
    shell.submit("B", "s2")
    assert names(shell.advance()) == ["AttemptThread B"]


def test_an_outage_of_storage_never_parks_native_work():
    """Ten passes that could not read: retried every minute at most, no report; back at once when it returns."""
    shell = Shell()
    shell.submit("A", "s1")
    shell.maintenance.sighting.disturb()
    parked, gaps = [], []
    for _ in range(10):
        shell.begin()
        shell.commands.clear()
        shell.event.survey_failed("StoreUnavailable", shell.now, outage=True)
        shell.advance()
        parked += shell.finish().parked
        gaps.append(shell.alarm() - shell.now)
        shell.now = shell.alarm()
    assert gaps == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000, 60_000]
    assert parked == []
    shell.run_pass()
    assert shell.world.settled == ["s1"]


def test_an_outage_ends_no_parking_and_hides_no_report():
    """A row that was parked and reported before the outage stays parked for its hour, and is not told again."""
    shell = Shell()
    shell.submit("A", "s1", state="input-applied")
    parked = Row(NATIVE, 3, 0, 8, None, 0, RowState.PARKED, reported=True)
    shell.state.queue = type(shell.state.queue)([parked])
    shell.begin()
    shell.commands.clear()
    shell.event.recovery_failed("A", "StoreUnavailable", shell.now, outage=True)
    shell.advance()
    assert shell.finish().parked == ()
    row = shell.state.queue.get(NATIVE)
    assert (row.state, row.reported, row.due_at) == (RowState.PARKED, True, shell.now + 3_600_000)


def test_an_outage_beside_another_failure_is_charged_as_ever():
    """Only a pass in which nothing but storage failed is spared."""
    shell = Shell(config=MaintenanceConfig(lanes=(LaneSpec("L", 5_000),)))
    shell.submit("A", "s1")
    native = shell.state.queue.get(NATIVE)
    shell.state.queue = type(shell.state.queue)([replace(native, stalls=7), Row("L", 1, 0, state=RowState.PENDING)])
    shell.begin()
    shell.lane_failed("L")
    shell.commands.clear()
    shell.event.attempt_failed("A", "StoreUnavailable", shell.now, outage=True)
    shell.advance()
    report = shell.finish()
    assert report.failure == "LaneError; StoreUnavailable" and report.parked == ("native",)


def test_a_recovery_that_met_an_outage_ends_the_event_too():
    """The same flag from a recovery activity."""
    shell = Shell()
    shell.submit("A", "s1", state="input-applied")
    native = shell.state.queue.get(NATIVE)
    shell.state.queue = type(shell.state.queue)([replace(native, stalls=7)])
    shell.begin()
    shell.commands.clear()
    shell.event.recovery_failed("A", "StoreUnavailable", shell.now, outage=True)
    shell.advance()
    assert shell.finish().parked == () and shell.alarm() == shell.now + 60_000


def test_an_attempt_that_yields_before_its_claim_is_no_progress():
    """Nothing was committed: the charge stays."""
    shell = Shell()
    shell.submit("A", "s1")
    answer = shell.world.attempted("A", "yielded").model_copy(update={"submission_id": None})
    shell.run_pass(attempt=lambda _: answer)
    assert shell.state.queue.get(NATIVE).stalls == 1 and shell.alarm() == shell.now + 1_000


def test_a_final_checkpoint_that_cannot_read_fails_the_pass_as_native_work():
    """True again from the final step on: the retry is nativeOnly; what settled stays settled."""
    shell = Shell()
    shell.submit("A", "s1")
    shell.begin()
    shell.submit("A", "s2")
    assert names(shell.attempted("A")) == ["Survey"]
    shell.commands.clear()
    shell.event.survey_failed("StoreUnavailable", shell.now)
    assert shell.advance() == [] and shell.event.done
    assert shell.advance() == [], "looking again changes nothing"
    report = shell.finish()
    assert (report.settled, report.failure) == (1, "StoreUnavailable")
    assert shell.state.record.retry.native_only


def test_the_scan_is_read_anew_when_the_wave_ends_not_after_each_thread():
    """Beside a running Attempt, recovered Threads are found by one scan at the wave's end."""
    shell = Shell(config=SHARED)
    for thread in ("A", "B", "C"):
        shell.world.submit(thread, state="suspended")
    shell.submit("D", "s4")
    assert names(shell.begin()) == ["AttemptThread D", "RecoverThread A"]
    shell.now += 1_000
    assert names(shell.advance()) == ["Survey"], "the dispatch left room"
    assert shell.survey() == []
    assert names(shell.recovered("A")) == ["RecoverThread B"]
    assert names(shell.recovered("B")) == ["RecoverThread C"]
    assert names(shell.recovered("C")) == ["Survey"]
    shell.survey()
    shell.attempted("D")
    shell.survey()
    assert shell.finish().alarm == "cleared"
