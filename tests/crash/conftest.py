"""Real processes and real kill -9: a dev server, a SQLite file, worker processes, and a client in the test."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.deployment import WorkerCommand, connected, settings_for
from tests.scripted import effects
from tests.temporal_servers import DevServer
from thread_objects.client import ThreadClient
from thread_objects.contract.messages import LogRecord


@dataclass
class Stage:
    """What a crash test works with."""

    client: ThreadClient
    worker: WorkerCommand
    thread: str
    folder: Path

    @property
    def ledger(self) -> Path:
        """The effect ledger outside the product."""
        return self.folder / "effects"

    def effects(self) -> list[str]:
        """What the tools did."""
        return effects(self.ledger)

    async def log(self) -> list[LogRecord]:
        """The whole log of the thread."""
        return await self.client.log(self.thread, limit=1024)


@pytest.fixture
async def stage(dev_server: DevServer, tmp_path: Path, task_queue: str, thread_id: str) -> AsyncIterator[Stage]:
    """Nothing runs yet but the servers; start workers with `stage.worker.start()`."""
    url = f"sqlite:///{tmp_path}/threads.db"
    settings = settings_for(dev_server.address, url, task_queue)
    command = WorkerCommand(
        settings={
            "THREADS_ADDRESS": dev_server.address,
            "THREADS_DATABASE_URL": url,
            "THREADS_TASK_QUEUE": task_queue,
        },
        log=tmp_path / "worker.log",
    )
    try:
        async with connected(settings) as client:
            yield Stage(client, command, thread_id, tmp_path)
    finally:
        if command.process is not None and command.process.poll() is None:
            command.kill()
