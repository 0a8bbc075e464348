"""What workers have installed reaches a Thread Object as data: an older deployment changes nothing."""

import pytest

from tests.unit.core.world import Shell, names, state_of
from thread_objects.contract.lanes import Installed, LaneInfo
from thread_objects.contract.limits import LANE_WAVES_MAX
from thread_objects.core.due_queue import MESSAGES, NATIVE, PROJECTION, PUBLICATION, Row, RowState
from thread_objects.core.maintenance import MaintenanceState
from thread_objects.core.record import MaintenanceRecord
from thread_objects.core.refusal import AlarmRefusal

IDLE = MaintenanceRecord(dirty=3, processed=3)
FRAMEWORK = [Row(row_id, 1) for row_id in (NATIVE, PUBLICATION, PROJECTION, MESSAGES)]


def installed(deployment: int, *lanes: str, **more) -> Installed:
    """One deployment."""
    listed = tuple(LaneInfo(id=lane, allowance_ms=1_000) for lane in lanes)
    return Installed(digest=f"d{deployment}", deployment=deployment, lanes=listed, **more)


def idle(*rows: Row) -> Shell:
    """An object with nothing to do."""
    return Shell(state=state_of(*FRAMEWORK, *rows, record=IDLE))


def test_a_lane_runs_once_its_worker_was_heard_of():
    """No other part of the object knows its name."""
    shell = idle()
    assert not shell.maintenance.handles("digest")
    assert shell.maintenance.install(installed(1, "digest"), shell.now)
    assert shell.maintenance.handles("digest")
    shell.maintenance.schedule("digest", shell.now, shell.now)
    assert names(shell.begin()) == ["RunLane digest"]


def test_an_older_deployment_never_replaces_a_newer_one():
    """Two worker versions side by side do not alternate; the same one again is no news."""
    shell = idle()
    shell.maintenance.install(installed(2, "new"), shell.now)
    assert not shell.maintenance.install(installed(1, "old"), shell.now)
    assert not shell.maintenance.install(installed(2, "new"), shell.now)
    assert (shell.maintenance.handles("new"), shell.maintenance.handles("old")) == (True, False)


def test_a_later_deployment_may_take_lanes_away():
    """A row that still has a deadline then fails the pass, visibly (LAN-002)."""
    shell = idle()
    shell.maintenance.install(installed(1, "digest"), shell.now)
    shell.maintenance.schedule("digest", shell.now + 60_000, shell.now)
    shell.maintenance.install(Installed(deployment=2), shell.now)
    report = shell.run_pass()
    assert report.failure == AlarmRefusal("host lanes", "no handler for lane digest").told()
    assert shell.state.queue.get("digest").due_at == shell.now + 60_000


@pytest.mark.parametrize(
    ("row_id", "facts"),
    [(PUBLICATION, {"publication": True}), (PROJECTION, {"projection": True}), (MESSAGES, {"message_timeout_ms": 9})],
)
def test_a_wave_that_came_gets_one_discovery(row_id, facts):
    """Its row is due at once and the alarm is armed; a wave that stayed is left alone."""
    shell = idle()
    shell.maintenance.install(installed(1, **facts), shell.now)
    assert shell.state.queue.get(row_id).due_at == shell.now
    assert shell.alarm() == shell.now + shell.config.floor_ms
    rows = shell.state.queue.rows()
    shell.maintenance.install(installed(2, **facts), shell.now + 1)
    assert shell.state.queue.rows() == rows


def test_a_parked_row_gets_a_fresh_chance_from_a_new_deployment():
    """Once, and only where a handler is; native work waits for its own registry."""
    parked = {"due_at": 9_000_000, "stalls": 8, "not_before": 9_000_000, "state": RowState.PARKED, "reported": True}
    shell = Shell(
        state=state_of(Row(NATIVE, 1, **parked), Row("digest", 1, **parked), Row("gone", 1, **parked), record=IDLE)
    )
    shell.maintenance.install(installed(1, "digest"), shell.now)
    digest, gone, native = (shell.state.queue.get(row_id) for row_id in ("digest", "gone", NATIVE))
    assert (digest.due_at, digest.stalls, digest.reported) == (shell.now, 0, False)
    assert (gone.state, native.state) == (RowState.PARKED, RowState.PARKED)


def test_a_publication_that_is_gone_holds_nothing_back():
    """Its parked row is charged and completed without a wave, and native work goes on."""
    parked = Row(PUBLICATION, 1, 9_000_000, 8, None, 9_000_000, RowState.PARKED, True)
    shell = Shell(state=state_of(Row(NATIVE, 1), parked, record=IDLE))
    shell.state.installed = installed(1, publication=True)
    shell.maintenance.incarnation.configure()
    assert shell.maintenance.config.publication_required
    shell.maintenance.install(Installed(deployment=2), shell.now)
    shell.submit("A")
    shell.run_pass()
    assert shell.world.settled == ["s1"]


def test_work_that_stood_still_goes_on_with_the_handler():
    """Its failed passes were charged to native; the deployment that serves the lane again lifts them."""
    shell = idle(Row("digest", 1, 900, state=RowState.PENDING))
    shell.submit("A")
    assert shell.maintenance.unhandled
    for _ in range(9):
        assert "no handler" in shell.run_pass().failure
        shell.now = shell.state.queue.get(NATIVE).due_at or shell.now
    assert shell.state.queue.get(NATIVE).state is RowState.PARKED
    shell.maintenance.install(installed(1, "digest"), shell.now)
    assert not shell.maintenance.unhandled
    shell.run_pass()
    assert shell.world.settled == ["s1"]


def test_what_is_installed_outlives_its_incarnation():
    """Carried over continue-as-new; undecodable is refused, never guessed."""
    shell = idle()
    shell.maintenance.install(installed(4, "digest", message_timeout_ms=7), shell.now)
    shell.restart()
    assert shell.maintenance.handles("digest")
    assert shell.maintenance.config.message_timeout_ms == 7
    data = shell.state.to_json()
    data["installed"]["lanes"] = "all of them"
    with pytest.raises(AlarmRefusal):
        MaintenanceState.from_json(data)


def test_an_object_that_heard_of_nothing_carries_nothing():
    """Not a byte more than before there were extensions."""
    assert "installed" not in idle().state.to_json()


def test_a_running_event_goes_on_with_what_it_hears_of():
    """The survey's answer brings a lane; its row is handled in the same event."""
    shell = idle()
    shell.submit("A")
    shell.maintenance.sighting.disturb()
    assert names(shell.begin()) == ["Survey"]
    shell.maintenance.install(installed(1, "digest"), shell.now)
    shell.maintenance.schedule("digest", shell.now, shell.now)
    assert sorted(names(shell.survey())) == ["AttemptThread A", "RunLane digest"]


def test_waves_beside_one_another_are_bounded_and_the_longest_due_go_first():
    """Hundreds of due lanes stay a queue; whoever finds no room follows when one ends, in the same event."""
    lanes = [f"lane-{n:02}" for n in range(LANE_WAVES_MAX + 2)]
    shell = idle()
    shell.maintenance.install(installed(1, *lanes), shell.now)
    for n, lane in enumerate(lanes):
        shell.maintenance.schedule(lane, shell.now - n, shell.now)
    first = names(shell.begin())
    assert first == [f"RunLane {lane}" for lane in reversed(lanes[2:])]
    assert names(shell.lane(lanes[-1])) == ["RunLane lane-01"]
    assert names(shell.lane(lanes[-2])) == ["RunLane lane-00"]
