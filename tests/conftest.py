"""Fixtures of all tiers: the two Temporal servers, clients, names of one's own, and a clean environment."""

import atexit
import os
import socket
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from tests.postgres_server import PostgresServer
from tests.temporal_servers import DevServer, start_dev_server, start_time_skipping, stop_time_skipping
from thread_objects.converter import data_converter

# The SDK's threads may still be on their way out of a callback when the last test has ended; finalizing the
# interpreter under them aborts the process and with it the exit code of the whole run.
atexit.register(time.sleep, 0.1)

SLOW_TIERS = ("crash", "workflow", "simulation", "contract")
"""Tiers whose files take long. Side by side they come first, so that no process is left with a long one alone."""

TESTS = Path(__file__).resolve().parent
LOOPBACK = {"127.0.0.1", "::1", "localhost"}
AMBIENT = ("THREADS_", "TEMPORAL_")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The slow tiers first, where tests run side by side; alone, the fast ones fail first."""
    if hasattr(config, "workerinput"):
        items.sort(key=_slowness)


def _slowness(item: pytest.Item) -> int:
    tier = item.path.relative_to(TESTS).parts[0]
    return SLOW_TIERS.index(tier) if tier in SLOW_TIERS else len(SLOW_TIERS)


@pytest.fixture(scope="session", autouse=True)
def clean_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No setting of the machine reaches a test: neither a profile nor an address, nor a proxy."""
    kept = dict(os.environ)
    for name in kept:
        if name.startswith(AMBIENT) or name.lower().endswith("_proxy"):
            del os.environ[name]
    os.environ["TEMPORAL_CONFIG_FILE"] = str(tmp_path_factory.mktemp("profile") / "temporal.toml")
    yield
    os.environ.clear()
    os.environ.update(kept)


@pytest.fixture(scope="session", autouse=True)
def loopback_only() -> Iterator[None]:
    """Nothing that a test does in this process connects to another machine."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        if self.family in {socket.AF_INET, socket.AF_INET6} and address[0] not in LOOPBACK:
            raise AssertionError(f"a test wants to reach {address[0]}")
        connect(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", guarded)
        yield


@pytest.fixture(scope="session")
def dev_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    """The dev server that tests share; use ids and a task queue of your own."""
    server = start_dev_server(tmp_path_factory.mktemp("dev-server"))
    yield server
    server.stop()


@pytest.fixture
def own_dev_server(tmp_path: Path) -> Iterator[Callable[..., DevServer]]:
    """Starts dev servers for one test that stops, kills or restarts them; options are those of `DevServer`."""
    started: list[DevServer] = []

    def start(**options: Any) -> DevServer:
        server = start_dev_server(tmp_path / f"dev-server-{len(started)}", **options)
        started.append(server)
        return server

    yield start
    for server in started:
        server.stop()


@pytest.fixture(scope="session")
def time_skipping() -> Iterator[WorkflowEnvironment]:
    """The shared time-skipping environment. Its clock only ever moves forward, over all tests."""
    environment = start_time_skipping()
    yield environment
    stop_time_skipping(environment)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """The PostgreSQL server of the session; it ends with it, also after a failure."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> str:
    """A fresh, empty PostgreSQL database."""
    return postgres.url()


@pytest.fixture
async def temporal_client(dev_server: DevServer) -> AsyncIterator[Client]:
    """A raw SDK client of the shared dev server, with the pydantic converter."""
    yield await Client.connect(dev_server.address, data_converter=data_converter)


@pytest.fixture
def task_queue() -> str:
    """A task queue of one's own, so that no other test's worker takes the work."""
    return f"tests-{uuid.uuid4()}"


@pytest.fixture
def thread_id() -> str:
    """A thread id that no other test uses."""
    return f"thread-{uuid.uuid4()}"
