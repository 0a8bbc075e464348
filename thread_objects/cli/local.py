"""A whole installation on one machine: dev server, SQLite file and worker, in a folder. For `dev` and `demo`."""

import asyncio
import contextlib
import fcntl
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client

import thread_objects
from thread_objects.cli.dev_server import DevServer
from thread_objects.cli.processes import Tethered
from thread_objects.connection import DEFAULT_NAMESPACE
from thread_objects.contract.names import DEFAULT_TASK_QUEUE
from thread_objects.errors import ConfigError
from thread_objects.settings import Settings, load_settings

WORKER_READY_S = 60.0
"""A worker imports the agents and migrates the database before it polls."""
POLL_S = 0.1
DRAIN_S = 10.0
STOP_GRACE_S = DRAIN_S + 10.0
"""What a worker gets to drain and leave before it is killed."""


class WorkerFailedError(Exception):
    """The worker did not come up, or ended by itself. `code`: what it ended with, None where it is only late."""

    def __init__(self, message: str, *, code: int | None) -> None:
        super().__init__(message)
        self.code = code


class Local:
    """The installation in one folder. Everything it starts is ended by `stop`, or with this process."""

    def __init__(
        self,
        folder: Path,
        *,
        agents: str,
        extensions: str | None = None,
        port: int = 0,
        ui_port: int | None = None,
        working_folder: Path | None = None,
    ) -> None:
        self.folder = folder.resolve()
        self.agents = agents
        self.extensions = extensions
        self.database_url = f"sqlite:///{self.folder / 'threads.db'}"
        self.worker_log = self.folder / "worker.log"
        self.server = DevServer(
            database=self.folder / "temporal.db", log=self.folder / "temporal.log", port=port, ui_port=ui_port
        )
        self.worker: Tethered | None = None
        # Where the worker finds `threads.toml` and the agents' modules.
        self._working_folder = working_folder or Path.cwd()

    @property
    def settings(self) -> Settings:
        """How a client in this process reaches the installation, whatever the surroundings say."""
        settings = load_settings(
            address=self.server.address,
            namespace=DEFAULT_NAMESPACE,
            database_url=self.database_url,
            task_queue=DEFAULT_TASK_QUEUE,
            tls=False,
        )
        return settings.model_copy(update={"profile": None, "api_key": None})

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep the folder for this process; `ConfigError` where another one has it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("a") as lock:
            _take(lock, self.folder)
            yield

    def start_worker(self) -> Tethered:
        """Start a worker, without waiting for it."""
        env: dict[str, str | None] = {name: None for name in os.environ if name.startswith("TEMPORAL_")}
        env |= {
            "THREADS_ADDRESS": self.server.address,
            "THREADS_NAMESPACE": DEFAULT_NAMESPACE,
            "THREADS_DATABASE_URL": self.database_url,
            "THREADS_TASK_QUEUE": DEFAULT_TASK_QUEUE,
            "THREADS_DRAIN_S": str(DRAIN_S),
            "THREADS_PROFILE": None,
            "THREADS_API_KEY": None,
            "THREADS_TLS": None,
            "THREADS_EXTENSIONS": self.extensions,
            # The package as this process has it, also where it is not installed.
            "PYTHONPATH": os.pathsep.join([str(_package_home()), *filter(None, [os.environ.get("PYTHONPATH")])]),
        }
        command = [sys.executable, "-m", "thread_objects.cli", "worker", "--agents", self.agents]
        self.worker = Tethered(command, log=self.worker_log, env=env, cwd=self._working_folder, grace_s=STOP_GRACE_S)
        (self.folder / "worker.pid").write_text(f"{self.worker.pid}\n")
        return self.worker

    async def worker_ready(self) -> None:
        """Wait until the worker polls; raises `WorkerFailedError` with its last words where it does not."""
        client = await Client.connect(self.server.address)
        request = DescribeTaskQueueRequest(
            namespace=DEFAULT_NAMESPACE,
            task_queue=TaskQueue(name=DEFAULT_TASK_QUEUE),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
        )
        deadline = asyncio.get_running_loop().time() + WORKER_READY_S
        while True:
            worker = self.worker
            code = None if worker is None else worker.exit_code
            late = asyncio.get_running_loop().time() > deadline
            if worker is None or code is not None or late:
                said = "" if worker is None else worker.log_tail()
                reason = f"the worker does not poll after {WORKER_READY_S:.0f} s"
                raise WorkerFailedError(f"{reason if code is None else ended(code)}: {said}", code=code)
            described = await client.workflow_service.describe_task_queue(request)
            if any(poller.identity.split(":")[1:2] == [str(worker.pid)] for poller in described.pollers):
                return
            await asyncio.sleep(POLL_S)

    def stop(self, say: Callable[[str], None] = lambda _line: None) -> None:
        """Drain the worker, then end the server. Twice is safe."""
        if self.worker is not None:
            say("draining the worker")
            self.worker.stop()
            self.worker = None
            (self.folder / "worker.pid").unlink(missing_ok=True)
        if self.server.running:
            say("stopping the server")
            self.server.stop()


def ended(code: int) -> str:
    """How a worker ended, for a reader."""
    return f"the worker was ended by signal {code - 128}" if code > 128 else f"the worker ended with code {code}"  # noqa: PLR2004


def _package_home() -> Path:
    return Path(thread_objects.__path__[0]).resolve().parent


def _take(lock: IO[str], folder: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise ConfigError(setting="folder", reason=f"{folder} is in use by another `threads dev`") from None
