"""`threads demo`: what a newcomer sees first."""

import re
import signal
from pathlib import Path

import pytest

from tests.workflow.command import BOUND_S, all_gone, eventually, running, threads
from thread_objects.cli.exits import Exit

HOSTILE = {
    "TEMPORAL_ADDRESS": "127.0.0.1:1",
    "TEMPORAL_NAMESPACE": "nowhere",
    "THREADS_ADDRESS": "127.0.0.1:1",
    "THREADS_DATABASE_URL": "sqlite:///nowhere/at/all.db",
    "THREADS_TASK_QUEUE": "elsewhere",
    "THREADS_AGENTS": "no.such:registry",
}


def test_demo_shows_three_inputs_settled_and_leaves_nothing(tmp_path: Path):
    """One by signal, one by update, one approved: receipts, settlements, transcript, report; then all is gone."""
    ended = threads("demo", cwd=tmp_path, TMPDIR=str(tmp_path))
    assert ended.returncode == Exit.OK, ended.stdout + ended.stderr
    shown = ended.stdout
    for part in ("by signal:", "by update:", "waits for approval", "approved", "Receipts", "Settlements", "Transcript"):
        assert part in shown, shown
    assert len(set(re.findall(r"rcp-[0-9a-f]{40}", shown))) == 3
    assert len(re.findall(r"^completed$", shown, re.MULTILINE)) == 3
    report = shown.split("\nReport\n")[1]
    assert re.search(r"^owes +nothing$", report, re.MULTILINE)
    assert "(certified)" in report
    assert "3 of 3 completed" in shown
    assert list(tmp_path.iterdir()) == []
    assert all_gone(tmp_path)


def test_demo_works_whatever_the_surroundings_say(tmp_path: Path):
    """Settings of the machine, for servers that matter, never reach the demo."""
    (tmp_path / "threads.toml").write_text('task_queue = "elsewhere"\nqueue_depth = 7\n')
    ended = threads("demo", cwd=tmp_path, TMPDIR=str(tmp_path), **HOSTILE)
    assert ended.returncode == Exit.OK, ended.stdout + ended.stderr
    assert all_gone(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_interrupted_demo_leaves_nothing(tmp_path: Path, number: signal.Signals):
    """Whoever loses patience leaves no server and no worker behind."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    with running(["demo"], cwd=tmp_path, TMPDIR=str(folder)) as demo:
        eventually(tmp_path / "stdout", "server", demo)
        demo.send_signal(number)
        assert demo.wait(BOUND_S) == Exit.INTERRUPTED
    assert (tmp_path / "stderr").read_text() == ""
    assert all_gone(folder)
    assert list(folder.iterdir()) == []


def test_killed_demo_takes_its_processes_along(tmp_path: Path):
    """Even kill -9 of the demo leaves nothing running."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    with running(["demo"], cwd=tmp_path, TMPDIR=str(folder)) as demo:
        eventually(tmp_path / "stdout", "worker  pid", demo)
        demo.kill()
        demo.wait(10)
    assert all_gone(folder)
