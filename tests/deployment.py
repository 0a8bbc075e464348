"""A deployment for a test: a database, workers (in this process or in processes of their own) and a client."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import worker as composition
from tests.scripted import registry as scripted_registry
from thread_objects.client import ThreadClient
from thread_objects.extensions import Extensions
from thread_objects.settings import Settings, load_settings

ROOT = Path(__file__).resolve().parent.parent
START_S = 30.0


@contextlib.asynccontextmanager
async def running_worker(
    settings: Settings, registry: Any = scripted_registry, extensions: Extensions | None = None
) -> AsyncIterator[None]:
    """A worker in this process, drained at the end."""
    stopping = asyncio.Event()
    process = composition.WorkerProcess(settings, registry, extensions)
    task = asyncio.create_task(process.run(stopping))
    ready = asyncio.create_task(process.ready.wait())
    try:
        await asyncio.wait({task, ready}, timeout=START_S, return_when=asyncio.FIRST_COMPLETED)
        yield
        assert not task.done(), f"the worker ended by itself: {task.exception()!r}"
    finally:
        stopping.set()
        await asyncio.wait_for(task, 30)


async def until(look: Callable[[], Any], *, timeout_s: float = 20.0, pause_s: float = 0.02) -> Any:
    """Look until the answer is truthy, within a bound; `look` may be asynchronous."""
    end = time.monotonic() + timeout_s
    while True:
        answer = look()
        if asyncio.iscoroutine(answer):
            answer = await answer
        if answer:
            return answer
        assert time.monotonic() < end, "did not come true in time"
        await asyncio.sleep(pause_s)


@dataclass
class WorkerCommand:
    """A worker process that a test may kill."""

    settings: dict[str, str]
    log: Path
    environment: dict[str, str] = field(default_factory=dict)
    agents: str = "tests.scripted:registry"
    process: subprocess.Popen[bytes] | None = None

    def start(self, **environment: str) -> "WorkerCommand":
        """Start it and wait until it serves (or has died at a failpoint on the way)."""
        mark = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, str(ROOT / "worker.py"), "--agents", self.agents],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={
                    **os.environ,
                    "THREADS_HEAD_STARTS": "4",
                    **self.settings,
                    **self.environment,
                    **environment,
                    "PYTHONPATH": str(ROOT),
                },
            )
        end = time.monotonic() + START_S
        while composition.READY_LINE.encode() not in self.log.read_bytes()[mark:]:
            if self.process.poll() is not None:
                break
            assert time.monotonic() < end, self.log.read_text()[-2000:]
            time.sleep(0.02)
        return self

    def kill(self) -> None:
        """Kill -9."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(10)

    def stop(self, timeout_s: float = 20.0) -> int:
        """SIGTERM; the exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(10)
                raise
        return self.process.returncode

    def died(self, timeout_s: float = 20.0) -> None:
        """Wait until it is gone by itself (a failpoint)."""
        assert self.process is not None
        assert self.process.wait(timeout_s) == -signal.SIGKILL, self.log.read_text()[-2000:]


def settings_for(address: str, database_url: str, task_queue: str, **more: Any) -> Settings:
    """Settings of a test's deployment. With head starts, which have more ways to go wrong than their absence."""
    chosen = {"head_starts": 4, **more}
    return load_settings(address=address, database_url=database_url, task_queue=task_queue, **chosen)


@contextlib.asynccontextmanager
async def connected(settings: Settings, *, with_database: bool = True) -> AsyncIterator[ThreadClient]:
    """A client, closed at the end."""
    chosen = settings if with_database else settings.model_copy(update={"database_url": None})
    client = await ThreadClient.connect(chosen)
    try:
        yield client
    finally:
        await client.close()
