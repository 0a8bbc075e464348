"""`threads dev`: an installation that stays."""

import os
import re
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.workflow.command import BOUND_S, all_gone, eventually, running, threads
from thread_objects.cli.exits import Exit

FREE_PORTS = ("--port", "0", "--ui-port", "0")


@contextmanager
def dev(folder: Path, *extra: str, **env: str) -> Iterator[tuple["subprocess.Popen[str]", dict[str, str]]]:
    """`threads dev` in a folder, with the settings it tells for the other terminal."""
    with running(["dev", *FREE_PORTS, *extra], cwd=folder, **env) as process:
        shown = eventually(folder / "stdout", "Ctrl-C drains", process)
        settings = dict(re.findall(r"export (THREADS_\w+)=(\S+)", shown))
        assert set(settings) == {"THREADS_ADDRESS", "THREADS_DATABASE_URL"}
        yield process, settings


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, str]]]:
    """A `threads dev` for tests that only talk to one: its folder and its settings."""
    folder = tmp_path_factory.mktemp("dev")
    with dev(folder) as (_process, settings):
        yield folder, settings
    assert all_gone(folder)


def test_dev_serves_persists_and_drains(tmp_path: Path):
    """What one `threads dev` accepted and settled, the next one in the same folder knows; Ctrl-C ends it with 0."""
    with dev(tmp_path) as (process, settings):
        (address,) = re.findall(r"http://127\.0\.0\.1:\d+", (tmp_path / "stdout").read_text())
        with urllib.request.urlopen(address, timeout=10) as page:
            assert page.status == 200
        asked = ("submit", "t", "support", "Where is order 1001?", "--key", "k1", "--wait", "--timeout", "60")
        answer = threads(*asked, cwd=tmp_path, **settings)
        assert answer.returncode == Exit.OK, answer.stdout + answer.stderr
        assert "tea pot" in answer.stdout
        process.send_signal(signal.SIGINT)
        assert process.wait(BOUND_S) == Exit.OK
    assert "draining the worker" in (tmp_path / "stdout").read_text()
    assert all_gone(tmp_path)

    with dev(tmp_path) as (process, settings):
        again = threads(*asked, cwd=tmp_path, **settings)
        assert again.returncode == Exit.OK, again.stdout + again.stderr
        assert "this key was admitted before" in again.stdout
        process.send_signal(signal.SIGTERM)
        assert process.wait(BOUND_S) == Exit.OK
    assert all_gone(tmp_path)


def test_dev_starts_another_worker_for_one_that_died(tmp_path: Path):
    """Kill -9 of the worker costs a moment; the next one serves."""
    with dev(tmp_path) as (process, settings):
        killed = int((tmp_path / ".threads" / "worker.pid").read_text())
        os.kill(killed, signal.SIGKILL)
        eventually(tmp_path / "stdout", "ended by signal 9; starting another", process)
        asked = ("submit", "t", "support", "Where is order 1002?", "--wait", "--timeout", "60")
        answer = threads(*asked, cwd=tmp_path, **settings)
        assert answer.returncode == Exit.OK, answer.stdout + answer.stderr
        assert int((tmp_path / ".threads" / "worker.pid").read_text()) != killed
    assert all_gone(tmp_path)


def test_folder_belongs_to_one_dev(shared: tuple[Path, dict[str, str]]):
    """Two servers on one file would destroy it: the second one is refused at once."""
    second = threads("dev", *FREE_PORTS, cwd=shared[0])
    assert second.returncode == Exit.USAGE
    assert "in use by another" in second.stderr


def test_agents_that_cannot_be_served_are_told_in_one_line(tmp_path: Path):
    """A registry that is not there ends `dev` and `worker` with 2, a line and no traceback."""
    for arguments in (["dev", *FREE_PORTS], ["worker", "--database-url", "sqlite:///x.db"]):
        ended = threads(*arguments, "--agents", "no_such_module:registry", cwd=tmp_path)
        assert ended.returncode == Exit.USAGE, ended.stdout + ended.stderr
        assert "no_such_module" in ended.stderr
        assert "Traceback" not in ended.stderr
        assert ended.stderr.count("\n") == 1
    assert all_gone(tmp_path)


def test_servers_out_of_reach_are_told_in_one_line(shared: tuple[Path, dict[str, str]]):
    """No Temporal server, or no database: one line, code 7, no traceback, from the client's verbs and the worker's."""
    nowhere = ("--address", "127.0.0.1:1")
    folder, settings = shared
    absent = "postgresql://nobody@127.0.0.1:1/none"
    commands = (
        ["report", "t", *nowhere],
        ["submit", "t", "support", "x", *nowhere],
        ["log", "t", "--database-url", absent],
        ["worker", "--agents", "thread_objects.cli.demo_agents:registry", "--database-url", absent],
    )
    for command in commands:
        env = {"THREADS_ADDRESS": settings["THREADS_ADDRESS"], "THREADS_CONNECT_TIMEOUT_S": "1"}
        ended = threads(*command, cwd=folder, **env)
        assert ended.returncode == Exit.OUT_OF_REACH, (command, ended.stdout + ended.stderr)
        assert "Traceback" not in ended.stderr
        assert ended.stderr.strip().count("\n") == 0, ended.stderr


def test_submission_that_nobody_sent_is_not_waited_for(shared: tuple[Path, dict[str, str]]):
    """Waiting for an id that no Thread Object has heard of ends at once, on a known Thread and on an unknown one."""
    folder, settings = shared
    asked = threads("submit", "t", "support", "hello", "--wait", cwd=folder, **settings)
    assert asked.returncode == Exit.OK, asked.stderr
    for thread in ("t", "unheard-of"):
        for reads in (settings, {"THREADS_ADDRESS": settings["THREADS_ADDRESS"]}):
            waited = threads("wait", thread, "key:absent", cwd=folder, **reads)
            assert waited.returncode == Exit.REFUSED, waited.stdout + waited.stderr
            assert "not found" in waited.stderr


def test_exit_codes_survive_the_end_of_the_process(shared: tuple[Path, dict[str, str]]):
    """A command's code is its answer's, however its process comes to an end (decision 0051)."""
    folder, settings = shared
    codes = [threads("status", "t", "key:absent", cwd=folder, **settings).returncode for _ in range(12)]
    assert codes == [Exit.REFUSED] * 12
