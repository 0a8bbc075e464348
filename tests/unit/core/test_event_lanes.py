"""Publication, projection, messages, host lanes, and the after-native phase."""

import pytest

from tests.unit.core.world import Shell, names, state_of
from thread_objects.core.config import LanePhase, LaneSpec, MaintenanceConfig
from thread_objects.core.due_queue import MESSAGES, NATIVE, PROJECTION, PUBLICATION, RECOVERY_EVENTS, Row, RowState
from thread_objects.core.record import MaintenanceRecord, Retry

PENDING, PARKED = RowState.PENDING, RowState.PARKED
CLEAN = MaintenanceRecord(dirty=5, processed=5)
AFTER = LanePhase.AFTER_NATIVE


def lanes(*specs, **config):
    return MaintenanceConfig(lanes=specs, **config)


def shell_with(config, *rows, record=CLEAN, now=1_000):
    return Shell(config=config, state=state_of(Row(NATIVE, 1), *rows, record=record), now=now)


def due(lane, at=0, revision=1):
    return Row(lane, revision, at, state=PENDING)


# --- host lanes -----------------------------------------------------------------------------------------------------


def test_a_lane_runs_when_it_is_due_and_completes_with_its_answer():
    """L returns now + 60 000 at 1 000: row due 61 000 (LAN-007)."""
    shell = shell_with(lanes(LaneSpec("L", 5_000)), due("L"))
    (wave,) = shell.begin()
    assert (wave.lane, wave.allowance_ms, wave.deadline_at) == ("L", 5_000, 6_000)
    assert shell.state.queue.get("L") == Row("L", 1, 2_000, 1, None, 2_000, PENDING), "charged before it runs"
    shell.lane("L", shell.now + 60_000)
    report = shell.finish()
    assert shell.state.queue.get("L").due_at == shell.alarm() == 61_000
    assert (report.phase, report.alarm) == ("caught-up", "rearmed")


def test_a_lane_that_is_not_due_does_not_run():
    """Due at 500, now 400 (LAN-004)."""
    shell = shell_with(lanes(LaneSpec("L", 5_000)), due("L", 500), now=400)
    assert shell.begin() == []
    shell.finish()
    assert shell.alarm() == 500 and shell.state.queue.get("L") == due("L", 500)


def test_a_lane_waits_for_its_producer():
    """Neither started nor acknowledged until the producer ends (LAN-005)."""
    shell = shell_with(lanes(LaneSpec("L", 5_000), LaneSpec("M", 5_000)), due("L"), due("M"))
    producer = shell.maintenance.prearm(shell.now, invalidates_recovery=False, lanes=("L",))
    assert names(shell.begin()) == ["RunLane M"]
    shell.maintenance.release(producer, shell.now, progressed=("L",))
    assert names(shell.advance()) == ["RunLane L"]
    shell.lane("M")
    shell.lane("L")
    assert shell.finish().alarm == "cleared"


def test_a_wave_never_completes_over_a_producer():
    """A producer raised the revision while the wave ran: the row keeps the producer's due time (LAN-020)."""
    shell = shell_with(lanes(LaneSpec("L", 5_000)), due("L"))
    shell.begin()
    producer = shell.maintenance.prearm(1_200, invalidates_recovery=False, lanes=("L",))
    shell.maintenance.release(producer, 1_200, progressed=("L",))
    shell.now = 1_300
    assert names(shell.lane("L")) == ["RunLane L"], "due again in the same event"
    assert shell.state.queue.get("L").revision == 2
    producer = shell.maintenance.prearm(1_400, invalidates_recovery=False, lanes=("L",))
    shell.lane("L")
    assert shell.state.queue.get("L") == Row("L", 2, 2_300, 1, None, 2_300, PENDING), "its producer is still at work"
    shell.finish()


def test_a_failed_lane_backs_off_and_fails_the_pass_at_its_end():
    """Fails at 1 000, stalls 0, j = 0: row due 2 000 (LAN-008); others go on."""
    config = lanes(LaneSpec("L", 5_000), LaneSpec("M", 5_000))
    shell = shell_with(config, due("L"), due("M"))
    shell.begin()
    assert shell.lane_failed("L") == [] and not shell.event.done
    shell.lane("M")
    report = shell.finish()
    assert report.failure == "LaneError"
    assert shell.state.queue.get("L") == Row("L", 2, 2_000, 1, None, 2_000, PENDING)
    assert shell.state.queue.get("M").due_at is None
    assert shell.state.record.retry == Retry(5, 1_050, False, 1), "native joined: the flag is off"


def test_a_failed_lane_is_exhausted_for_its_event():
    """Even when new progress makes it due again (LAN-025 for lanes)."""
    shell = shell_with(lanes(LaneSpec("L", 5_000), LaneSpec("M", 5_000)), due("L"), due("M"))
    shell.begin()
    shell.lane_failed("L")
    shell.maintenance.schedule("L", shell.now, shell.now, cursor=1)
    assert shell.advance() == []
    shell.lane("M")
    shell.finish()
    assert names(shell.begin()) == ["RunLane L"]


def test_after_a_failed_lane_there_is_no_final_native_step():
    """Attempts are joined, their progress stays, nothing is certified in this event."""
    shell = shell_with(lanes(LaneSpec("L", 5_000)), due("L"))
    shell.submit("A", "s1")
    shell.begin()
    shell.attempted("A")
    shell.lane_failed("L")
    report = shell.finish()
    assert (report.settled, report.failure) == (1, "LaneError")


@pytest.mark.parametrize("allowance", [0, 2.5, -1, 300_001])
def test_an_invalid_allowance_fails_its_wave_when_it_is_due(allowance):
    """DurableAlarmError(host dispatch allowance); a lane that is not due does not mind (LIM-017)."""
    shell = shell_with(lanes(LaneSpec("L", allowance)), due("L", 9_000))
    assert shell.run_pass().failure is None
    shell.now = 9_000
    report = shell.run_pass()
    assert report.failure.startswith("DurableAlarmError(host dispatch allowance")
    assert shell.state.queue.get("L") == Row("L", 2, 10_000, 1, None, 10_000, PENDING)
    assert names(shell.log) == []


def test_a_lane_that_runs_over_its_allowance_is_a_typed_failure():
    """The shell stops it at its deadline and reports; what it committed still counts (LAN-010)."""
    shell = shell_with(lanes(LaneSpec("L", 1_000)), due("L"))
    (wave,) = shell.begin()
    shell.now = wave.deadline_at
    shell.commands.clear()
    shell.event.lane_failed("L", "TimeoutError", shell.now)
    shell.advance()
    report = shell.finish()
    assert report.failure == "TimeoutError" and shell.now == 2_000
    assert shell.state.queue.get("L") == Row("L", 2, 2_100, 1, None, 2_000, PENDING)


def test_progress_of_a_failed_wave_is_kept():
    """Its row moved on by its own facts: the failure takes nothing back, and the lane is due at once."""
    shell = shell_with(lanes(LaneSpec("L", 1_000)), due("L"))
    shell.begin()
    shell.commands.clear()
    shell.event.lane_failed("L", "TimeoutError", shell.now, progressed=("L",))
    shell.advance()
    shell.finish()
    assert shell.state.queue.get("L") == due("L", 1_000, revision=2)


def test_a_lane_due_at_the_yield_is_not_started():
    """Minute 10 of the event: not started, not charged (LAN-012)."""
    shell = shell_with(lanes(LaneSpec("L", 5_000), LaneSpec("M", 300_000)), due("L", 601_000), due("M"))
    assert names(shell.begin()) == ["RunLane M"]
    assert shell.event.wake_at() is None
    shell.now = 601_000
    assert shell.advance() == []
    shell.lane("M")
    shell.finish()
    assert shell.state.queue.get("L") == due("L", 601_000)


def test_a_lane_whose_allowance_no_longer_fits_is_exhausted_not_charged():
    """Selected + allowance ≤ dispatchUntil."""
    config = lanes(LaneSpec("L", 300_000), LaneSpec("M", 300_000), deadline_ms=500_000, yield_after_ms=400_000)
    shell = shell_with(config, due("L", 250_000), due("M"))
    assert names(shell.begin()) == ["RunLane M"]
    assert shell.event.wake_at() is None
    shell.now = 250_000
    assert shell.advance() == []
    shell.lane("M")
    shell.finish()
    assert shell.state.queue.get("L") == due("L", 250_000)


def test_a_future_row_wakes_the_loop_while_something_runs():
    """The earliest deadline that could start something, before the yield."""
    shell = shell_with(lanes(LaneSpec("L", 5_000), LaneSpec("M", 90_000)), due("L", 5_000), due("M"))
    shell.begin()
    assert shell.event.wake_at() == 5_000
    shell.now = 5_000
    assert names(shell.advance()) == ["RunLane L"]
    assert shell.event.wake_at() is None
    shell.lane("L", 7_000)
    assert shell.event.wake_at() == 7_000
    shell.lane("M")
    shell.finish()
    assert shell.alarm() == 7_000


@pytest.mark.parametrize("ids", [("x", "x"), (MESSAGES,)])
def test_doubled_or_forbidden_lane_ids_fail_the_pass(ids):
    """Rows are kept; those due are charged once by failure rearming (LAN-001)."""
    specs = tuple(LaneSpec(i, 5_000, framework=i.startswith("thread-object:")) for i in ids)
    shell = shell_with(lanes(*specs), due("x"))
    report = shell.run_pass()
    assert report.failure == f"DurableAlarmError(host lanes: duplicate lane {ids[0]})"
    assert shell.state.queue.get("x") == Row("x", 2, 2_000, 1, None, 2_000, PENDING)
    assert shell.log == []


@pytest.mark.parametrize(
    ("at", "row"), [(0, Row("ghost", 2, 2_000, 1, None, 2_000, PENDING)), (9_000, due("ghost", 9_000))]
)
def test_a_row_without_handler_fails_the_pass_and_is_kept(at, row):
    """Due: revision + 1, stalls 1, due now + 1 000; future-dated: fails too, unchanged (LAN-002)."""
    shell = shell_with(lanes(), due("ghost", at))
    report = shell.run_pass()
    assert report.failure == "DurableAlarmError(host lanes: no handler for lane ghost)"
    assert shell.state.queue.get("ghost") == row


def test_an_idle_row_without_handler_is_nobodys_matter():
    """Rows are never deleted; without a deadline nothing is owed."""
    shell = shell_with(lanes(), Row("ghost", 4))
    assert shell.run_pass().failure is None


def test_recovery_events_without_a_handler_are_charged_and_dropped():
    """The built-in empty handler: no command, row idle."""
    shell = shell_with(lanes())
    shell.maintenance.events_recorded(1, shell.now)
    assert shell.run_pass().alarm == "cleared"
    assert shell.log == []
    assert shell.state.queue.get(RECOVERY_EVENTS).due_at is None


# --- messages and projection ----------------------------------------------------------------------------------------


def test_messages_run_within_their_own_timeout():
    """Charged before prepare; runs again in the event when due again."""
    shell = shell_with(MaintenanceConfig(message_timeout_ms=20_000), due(MESSAGES))
    (wave,) = shell.begin()
    assert (wave.lane, wave.deadline_at) == (MESSAGES, 21_000)
    shell.now = 3_000
    assert names(shell.lane(MESSAGES, shell.now)) == ["RunLane thread-object:messages"]
    shell.lane(MESSAGES)
    assert shell.finish().alarm == "cleared"


def test_a_failed_message_wave_is_exhausted_and_others_run():
    """Prepare fails: charged once, others run, the pass fails at the end (LAN-025)."""
    shell = shell_with(MaintenanceConfig(message_timeout_ms=20_000), due(MESSAGES))
    shell.submit("A", "s1")
    assert sorted(names(shell.begin())) == ["AttemptThread A", "RunLane thread-object:messages"]
    shell.lane_failed(MESSAGES, "PrepareFailed")
    shell.now = 50_000
    shell.attempted("A")
    report = shell.finish()
    assert (report.settled, report.failure) == (1, "PrepareFailed")
    assert shell.state.queue.get(MESSAGES).stalls == 1


def test_messages_that_do_not_fit_are_exhausted_with_their_charge():
    """Completed with the old deadline; the charge stays."""
    config = MaintenanceConfig(message_timeout_ms=300_000, deadline_ms=250_000, yield_after_ms=200_000)
    shell = shell_with(config, due(MESSAGES))
    report = shell.run_pass()
    assert shell.log == [] and report.failure is None
    assert shell.state.queue.get(MESSAGES) == Row(MESSAGES, 2, 2_000, 1, None, 2_000, PENDING)


def test_a_hanging_projection_is_stopped_and_fails_nothing():
    """30 000 ms: stopped; native work unaffected; the charge stays (LAN-027)."""
    shell = shell_with(MaintenanceConfig(projection=True), due(PROJECTION))
    shell.submit("A", "s1")
    assert sorted(names(shell.begin())) == ["AttemptThread A", "RunLane thread-object:projection"]
    shell.attempted("A")
    shell.now = 31_000
    shell.lane_failed(PROJECTION, "TimeoutError")
    report = shell.finish()
    assert (report.settled, report.failure) == (1, None)
    assert shell.state.queue.get(PROJECTION) == Row(PROJECTION, 1, 2_000, 1, None, 2_000, PENDING)


def test_projection_runs_once_per_event_and_its_own_failure_counts():
    """One wave; a failure before the timeout fails the pass."""
    shell = shell_with(MaintenanceConfig(projection=True, lanes=(LaneSpec("L", 90_000),)), due(PROJECTION), due("L"))
    shell.begin()
    shell.now = 5_000
    assert shell.lane(PROJECTION, shell.now) == []
    assert shell.event.wake_at() is None
    shell.lane("L")
    assert shell.finish().failure is None
    shell.begin()
    shell.lane_failed(PROJECTION, "Corrupt")
    assert shell.finish().failure == "Corrupt"


# --- publication ----------------------------------------------------------------------------------------------------


def published_shell():
    shell = Shell(config=MaintenanceConfig(publication_required=True))
    shell.restart()
    shell.submit("A", "s1")
    return shell


def test_native_work_waits_for_required_publication():
    """One wave prepares the observed generation and drains; then the Attempt starts."""
    shell = published_shell()
    (wave,) = shell.begin()
    assert (wave.generation, wave.deadline_at) == (shell.state.record.dirty, 841_000)
    assert names(shell.published()) == ["AttemptThread A"]
    shell.attempted("A")
    assert shell.finish().settled == 1


def test_a_generation_beside_a_body_is_drained_but_not_prepared():
    """No preparation while a mutation runs; the wave is not completed over its producer either."""
    shell = published_shell()
    shell.maintenance.prearm(shell.now)
    (wave,) = shell.begin()
    assert wave.generation is None
    shell.published()
    report = shell.finish()
    assert (report.phase, report.alarm) == ("caught-up", "rearmed")
    assert shell.state.queue.get(PUBLICATION).due_at == 2_000


def test_failed_publication_fails_the_native_step():
    """Before the barrier was passed: nativeOnly is off."""
    shell = published_shell()
    shell.begin()
    shell.commands.clear()
    shell.event.publish_failed("SinkDown", shell.now)
    shell.advance()
    report = shell.finish()
    assert report.failure == "SinkDown" and shell.world.settled == []
    assert not shell.state.record.retry.native_only


def test_a_drain_that_always_has_more_parks_publication_and_native():
    """Drain answers now + 1 for 12 passes: native never runs; both park in lockstep, two reports (LAN-021)."""
    shell = published_shell()
    parked = []
    for _ in range(12):
        parked += shell.run_pass(publish=lambda: shell.now + 1).parked
        shell.now = shell.alarm()
    assert sorted(parked) == ["native", "publication"]
    assert shell.world.settled == [] and shell.world.head("A").sid == "s1"
    assert shell.state.queue.get(PUBLICATION).state is PARKED
    assert shell.state.queue.get(NATIVE).due_at is None


def test_a_drain_that_is_empty_in_time_lets_native_run():
    """The 8th drain answers none: not parked; native executes and settles (LAN-022)."""
    shell = published_shell()
    parked, drains = [], []

    def drain():
        drains.append(shell.now)
        return None if len(drains) == 8 else shell.now + 1

    for _ in range(12):
        parked += shell.run_pass(publish=drain).parked
        if shell.alarm() is None:
            break
        shell.now = shell.alarm()
    assert shell.world.settled == ["s1"] and "publication" not in parked


def test_publication_due_again_runs_another_barrier_in_the_event():
    """Its deadline wakes the loop while a lane keeps it open."""
    config = MaintenanceConfig(publication_required=True, lanes=(LaneSpec("L", 90_000),))
    shell = Shell(config=config)
    shell.restart()
    shell.submit("A", "s1")
    shell.maintenance.schedule("L", shell.now, shell.now)
    shell.begin()
    assert shell.published(shell.now + 1) == []
    assert shell.event.wake_at() == 2_000, "the floor of its charge"
    shell.now = 2_000
    assert names(shell.advance()) == ["Publish"]
    assert names(shell.published()) == ["AttemptThread A"]
    shell.attempted("A")
    shell.lane("L")
    assert shell.finish().settled == 1


def test_a_checkpoint_held_back_by_publication_does_not_hold_the_event():
    """Nothing runs and only a certification is owed: the next event's matter."""
    shell = published_shell()
    shell.begin()
    shell.published()
    shell.maintenance.schedule(PUBLICATION, shell.now + 5_000, shell.now, cursor=1)
    assert shell.attempted("A") == []
    report = shell.finish()
    assert (report.settled, report.alarm) == (1, "rearmed")
    assert shell.state.record.processed < shell.state.record.dirty


def test_a_view_from_before_the_survey_does_not_replace_it():
    """Recovery ended while publication held the step; what was admitted since is not certified away."""
    config = MaintenanceConfig(publication_required=True, lanes=(LaneSpec("L", 90_000),))
    shell = Shell(config=config)
    shell.restart()
    shell.submit("A", "s1", state="suspended")
    shell.begin()
    shell.published()
    shell.maintenance.schedule("L", shell.now, shell.now)
    shell.maintenance.schedule(PUBLICATION, shell.now, shell.now, cursor=1)
    assert names(shell.advance()) == ["RunLane L", "Publish"]
    shell.world.rows["A"].clear()
    shell.recovered("A", repaired=True, recovered=1)
    shell.submit("A", "s2")
    other = shell.maintenance.prearm(shell.now)
    shell.maintenance.release(other, shell.now, progressed=(NATIVE,))
    assert names(shell.published()) == ["Survey"]
    assert names(shell.survey()) == ["AttemptThread A"]
    shell.attempted("A")
    shell.lane("L")
    report = shell.finish()
    assert (shell.world.settled, report.nonterminal, report.alarm) == (["s2"], 0, "cleared")


def test_a_recovery_checkpoint_held_back_by_publication_does_not_hold_the_event():
    """The wave's checkpoint is owed, publication lies ahead: the event ends and certifies nothing."""
    shell = Shell(config=MaintenanceConfig(publication_required=True))
    shell.restart()
    shell.submit("A", "s1", state="suspended")
    shell.begin()
    assert names(shell.published()) == ["RecoverThread A"]
    shell.maintenance.schedule(PUBLICATION, shell.now + 5_000, shell.now, cursor=1)
    assert shell.recovered("A", "AwaitApprovalDecision") == []
    report = shell.finish()
    assert report.alarm == "rearmed" and shell.state.record.processed == 0


# --- the after-native phase -----------------------------------------------------------------------------------------


def after(*ids, allowance=180_001):
    return tuple(LaneSpec(i, allowance, AFTER) for i in ids)


def test_after_native_lanes_run_two_at_a_time_in_rotation():
    """a, b, c, 3 minutes each from minute 10: a, b, then c, a (LAN-018)."""
    config = lanes(*after("a", "b", "c"), LaneSpec("slow", 300_000))
    shell = shell_with(config, due("a"), due("b"), due("c"), due("slow"))
    assert names(shell.begin()) == ["RunLane slow"]
    shell.now = 601_000
    shell.advance()
    assert names(shell.lane("slow")) == ["RunLane a", "RunLane b"]
    shell.now += 180_000
    assert shell.lane("a", shell.now) == [], "781 + 180 001 > 840 000: c is not started, not charged"
    shell.lane("b", shell.now)
    shell.finish()
    assert shell.state.queue.get("c") == due("c")
    shell.now += 2_000
    shell.restart()
    assert names(shell.begin()) == ["RunLane c", "RunLane a"]
    assert names(shell.lane("c")) == ["RunLane b"]
    shell.lane("a")
    shell.lane("b")
    shell.finish()


def test_an_after_native_lane_that_does_not_fit_stays_due():
    """660 000 + 240 000 > 840 000: not started, not charged (LAN-011)."""
    config = lanes(*after("a", allowance=240_000), LaneSpec("slow", 300_000))
    shell = shell_with(config, due("a"), due("slow"))
    shell.begin()
    shell.now = 661_000
    assert shell.lane("slow") == []
    shell.finish()
    assert shell.state.queue.get("a") == due("a")
    assert shell.alarm() == shell.now + 50


def test_an_after_native_lane_still_runs_when_native_failed():
    """Attempt fails with a defect: the lane gets its wave; failures combine only if it fails too (LAN-014)."""
    for lane_fails, failure in ((False, "Defect"), (True, "Defect; LaneError")):
        shell = shell_with(lanes(*after("a")), due("a"))
        shell.submit("A", "s1")
        assert names(shell.begin()) == ["AttemptThread A"]
        assert names(shell.attempt_failed("A")) == ["RunLane a"]
        shell.lane_failed("a") if lane_fails else shell.lane("a")
        report = shell.finish()
        assert report.failure == failure
        assert shell.state.record.retry.native_only


def test_an_after_native_wave_gives_way_to_new_work():
    """A new due row: interrupted; its row keeps revision, stalls 1, deadline charge + 1 000 (LAN-015)."""
    shell = shell_with(lanes(*after("a"), LaneSpec("L", 5_000)), due("a"), Row("L", 3))
    assert names(shell.begin()) == ["RunLane a"]
    shell.now = 3_000
    producer = shell.maintenance.prearm(shell.now, invalidates_recovery=False, lanes=("L",))
    assert shell.advance() == [], "not while its producer is at work"
    shell.maintenance.release(producer, shell.now, progressed=("L",))
    assert names(shell.advance()) == ["Cancel RunLane a"]
    assert not shell.event.done
    shell.lane_failed("a", "Cancelled")
    report = shell.finish()
    assert (report.failure, report.alarm) == (None, "rearmed")
    assert shell.state.queue.get("a") == Row("a", 1, 2_000, 1, None, 2_000, PENDING)
    shell.now = shell.alarm()
    assert names(shell.begin()) == ["RunLane L"]
    assert names(shell.lane("L")) == ["RunLane a"]
    shell.lane("a")
    assert shell.finish().alarm == "cleared"


def test_a_wave_that_ended_before_its_interruption_stays_finished():
    """Finished ones stay finished."""
    shell = shell_with(lanes(*after("a", "b")), due("a"), due("b"))
    shell.begin()
    shell.submit("A", "s1")
    assert names(shell.advance()) == ["Cancel RunLane a", "Cancel RunLane b"]
    shell.lane("a")
    shell.lane_failed("b", "Cancelled")
    report = shell.finish()
    assert report.failure is None
    assert shell.state.queue.get("a") == Row("a", 2)
    assert shell.state.queue.get("b").stalls == 1
    assert shell.maintenance.ready_now(shell.now), "the new Submission is served promptly"


def test_a_wave_that_renews_its_own_row_does_not_give_way():
    """Own progress of a lane of the phase; an enrolment without progress; a future row (LAN-017)."""
    shell = shell_with(lanes(*after("a", "b"), LaneSpec("L", 5_000)), due("a"), due("b"), Row("L", 3))
    shell.begin()
    shell.lane("a", None, progressed=("a",))
    shell.maintenance.schedule("L", shell.now, shell.now)
    assert shell.advance() == []
    assert names(shell.commands) == ["RunLane b"]
    shell.maintenance.schedule("new", shell.now + 500, shell.now)
    assert shell.advance() == [] and shell.event.wake_at() == shell.now + 500
    shell.now += 500
    assert names(shell.advance()) == ["Cancel RunLane b"], "a new row is not known"
    shell.lane_failed("b", "Cancelled")
    shell.finish()


def test_a_lane_that_moved_on_since_the_phase_began_is_not_started():
    """One reading of the queue at its start: a refused charge starts nothing, its row stays due."""
    shell = shell_with(lanes(*after("a", "b", "c")), due("a"), due("b"), due("c"))
    assert names(shell.begin()) == ["RunLane a", "RunLane b"]
    shell.maintenance.schedule("c", shell.now, shell.now, cursor=1)
    assert shell.lane("a") == []
    shell.lane("b")
    shell.finish()
    assert shell.state.queue.get("c").revision == 2 and shell.state.queue.get("c").stalls == 0


def test_every_receipt_of_three_lanes_is_delivered_through_kills():
    """Kill after each wave of a 3-lane host: each lane is served at least once, then idle (CHA-004)."""
    config = lanes(LaneSpec("p", 5_000), LaneSpec("q", 5_000), *after("r", allowance=5_000))
    shell = shell_with(config, due("p"), due("q"), due("r"))
    delivered = []
    for _ in range(40):
        shell.begin()
        if shell.commands:
            delivered.append(shell.commands[0].lane)
            shell.lane(delivered[-1])
            if not shell.event.done:
                shell.restart()
                shell.now = shell.alarm()
                continue
        while shell.commands:
            delivered.append(shell.commands[0].lane)
            shell.lane(delivered[-1])
        shell.finish()
        if shell.alarm() is None:
            break
        shell.now = shell.alarm()
    assert set(delivered) == {"p", "q", "r"}
    assert shell.alarm() is None


def test_host_lanes_are_those_that_users_installed():
    """A batch that was lost may have named any of them, and none of the framework's."""
    lanes = (LaneSpec("L", 5_000), LaneSpec("slow", 5_000, LanePhase.AFTER_NATIVE))
    assert Shell(config=MaintenanceConfig(lanes=lanes)).maintenance.host_lanes() == ("L", "slow")
    assert Shell().maintenance.host_lanes() == ()
