"""kill -9 at the named places of recovery around joins, children and faults: a real process, a real signal."""

import multiprocessing
import signal

import pytest

from storage import StoreLimits, open_store
from thread_objects import failpoints

from .conftest import opened
from .lab import THREAD, Lab, StepClock
from .test_crash_families import (
    FAILURE,
    aborted_parent,
    admitted,
    appended,
    joined,
    joining,
    left_behind,
    orphaned,
    passes,
    reached,
    requested,
    started,
)


def recover_and_die(url: str, at: int, failpoint: str) -> None:
    """Another process recovers until it passes the failpoint."""
    failpoints._armed, failpoints._left = failpoint, 1
    lab = Lab(open_store(url, limits=StoreLimits(), synchronous="OFF"), url, StepClock(at))
    for n in range(3):
        lab.recover(attempt="killed" if n == 0 else f"killed-{n}")


def killed(lab: Lab, failpoint: str) -> None:
    """Recover in a process that is killed there."""
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload([__name__])
    process = processes.Process(target=recover_and_die, args=(lab.url, lab.clock.now(), failpoint))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL, failpoint


POINTS = [
    (requested, "subagent:after-admit"),
    (admitted, "subagent:after-child-ready"),
    (admitted, "subagent:after-start"),
    (started, "subagent:after-attach"),
    (started, "subagent:after-suspend"),
    (aborted_parent, "subagent:after-child-abort"),
    (orphaned, "subagent:after-release-pending"),
    (joined, "subagent:after-release"),
    (joining, "join:before-marker"),
    (appended, "join:after-marker"),
    (left_behind, "join:after-settle"),
]


@pytest.mark.parametrize(("scenario", "failpoint"), POINTS, ids=[point for _, point in POINTS])
def test_a_killed_recovery_is_finished_by_the_next(scenario, failpoint, tmp_path):
    """The same end as without the kill."""
    with opened(f"sqlite:///{tmp_path / 'whole.db'}") as lab:
        sid = scenario(lab)
        passes(lab)
        expected = reached(lab, sid)
    with opened(f"sqlite:///{tmp_path / 'killed.db'}") as lab:
        assert scenario(lab) == sid
        killed(lab, failpoint)
        lab.pass_lease()
        passes(lab)
        assert reached(lab, sid) == expected


def test_a_kill_around_a_fault_tells_each_transition_once(tmp_path):
    """Before the clear nothing is told, after it everything; the next recovery repeats neither."""
    for failpoint, told in (("maintenance:recovery-status:before", 1), ("maintenance:recovery-status:after", 2)):
        with opened(f"sqlite:///{tmp_path}/{told}.db") as lab:
            lab.submit("k1")
            fault = lab.store.record_fault(THREAD, FAILURE, now=lab.clock.now()).fault
            lab.clock.at = fault.retry_at
            killed(lab, failpoint)
            assert len(lab.store.recovery_events(THREAD, after=0, limit=9)) == told
            lab.recover()
            transitions = [event.transition for event in lab.store.recovery_events(THREAD, after=0, limit=9)]
            assert transitions == ["created", "cleared"]
