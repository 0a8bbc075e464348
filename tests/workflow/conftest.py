"""One deployment per test: own task queue, own SQLite file, a worker in this process, a client."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from tests.deployment import connected, running_worker, settings_for
from tests.replaying import replay_current
from tests.temporal_servers import DevServer
from thread_objects.client import ThreadClient
from thread_objects.settings import Settings


@dataclass
class Deployed:
    """What a workflow test works with."""

    settings: Settings
    client: ThreadClient
    temporal: Client
    thread: str


@pytest.fixture
def settings(dev_server: DevServer, tmp_path: Path, task_queue: str) -> Settings:
    """Dev server and SQLite."""
    return settings_for(dev_server.address, f"sqlite:///{tmp_path}/threads.db", task_queue)


@pytest.fixture
async def deployed(settings: Settings, thread_id: str) -> AsyncIterator[Deployed]:
    """A running deployment."""
    async with running_worker(settings), connected(settings) as client:
        yield Deployed(settings, client, client.temporal, thread_id)
        # F31: whatever a test made of its object, its history replays.
        try:
            await replay_current(client.temporal, thread_id)
        except RPCError as failure:
            # Some tests never start an object under this id; nothing else excuses a missing replay.
            if failure.status is not RPCStatusCode.NOT_FOUND:
                raise
