"""The servers that the other tests stand on."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
from temporalio import workflow
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from tests.temporal_servers import DevServer
from thread_objects.errors import ServerUnavailable


@workflow.defn(sandboxed=False)
class Sleeper:
    @workflow.run
    async def run(self, hours: int) -> int:
        await asyncio.sleep(timedelta(hours=hours).total_seconds())
        return hours


async def test_dev_server_survives_a_restart_with_its_workflows(
    own_dev_server: Callable[..., DevServer], task_queue: str
):
    """A dev server on a file keeps what it was told, over an orderly stop and over SIGKILL."""
    server = await asyncio.to_thread(own_dev_server)
    client = await Client.connect(server.address)
    await client.start_workflow(Sleeper.run, 1, id="kept", task_queue=task_queue)
    await server.restart()
    client = await Client.connect(server.address)
    assert (await client.get_workflow_handle("kept").describe()).id == "kept"
    server.kill()
    await server.start()
    client = await Client.connect(server.address)
    assert (await client.get_workflow_handle("kept").describe()).id == "kept"


async def test_time_skipping_server_sleeps_hours_in_no_time(time_skipping: WorkflowEnvironment, task_queue: str):
    """A timer of a day costs nothing on the time-skipping server."""
    before = await time_skipping.get_current_time()
    async with Worker(time_skipping.client, task_queue=task_queue, workflows=[Sleeper]):
        hours = await time_skipping.client.execute_workflow(Sleeper.run, 24, id=task_queue, task_queue=task_queue)
    assert hours == 24
    assert await time_skipping.get_current_time() - before >= timedelta(hours=24)


async def test_taken_port_is_refused_at_once(dev_server: DevServer, tmp_path: Path):
    """A server that already listens on the port never answers in the name of ours."""
    second = DevServer(database=tmp_path / "temporal.db", log=tmp_path / "log", port=dev_server.port)
    with pytest.raises(ServerUnavailable, match=f"port {dev_server.port} is in use"):
        await second.start()
    assert not second.running


async def test_server_that_cannot_start_says_why(tmp_path: Path):
    """A dev server that gives up is reported with its own words and leaves no process."""
    server = DevServer(database=tmp_path / "missing" / "temporal.db", log=tmp_path / "log")
    with pytest.raises(ServerUnavailable, match="no such file or directory"):
        await server.start()
    assert not server.running


def test_kill_of_the_parent_ends_what_it_started(tmp_path: Path):
    """Even a parent that dies by SIGKILL leaves no process behind."""
    script = (
        "import sys, time, pathlib\n"
        "from thread_objects.cli.processes import Tethered\n"
        "sleep = [sys.executable, '-c', 'import time; time.sleep(600)']\n"
        f"child = Tethered(sleep, log=pathlib.Path({str(tmp_path / 'log')!r}))\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        child = psutil.Process(int(parent.stdout.readline()))
        assert child.is_running()
        parent.kill()
        parent.wait(10)
    _gone, alive = psutil.wait_procs([child], timeout=10)
    assert not alive
