"""The processes of one measurement: a Temporal dev server on a file, and a worker. Everything ends with its owner."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from thread_objects.cli.dev_server import DevServer
from thread_objects.cli.processes import Tethered

WORKER_READY_S = 40.0
READY_POLL_S = 0.01
GRACE_S = 5.0


class Stage:
    """A server and a worker in `folder`. Use as a context manager; the worker is started, killed and started again."""

    def __init__(self, folder: Path, *, dynamic_config: Mapping[str, str]) -> None:
        self.server = DevServer(
            database=folder / "temporal.db", log=folder / "server.log", dynamic_config=dynamic_config
        )
        self._worker_log = folder / "worker.log"
        self._worker: Tethered | None = None

    async def __aenter__(self) -> Self:
        await self.server.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # On this thread and not awaited: whoever is being cancelled still ends its processes before it is gone.
        try:
            if self._worker is not None:
                self._worker.stop()
        finally:
            self.server.stop()

    @property
    def pids(self) -> dict[str, int]:
        """The processes that are measured."""
        found = {"server": self.server.pid, "worker": self._worker.pid if self._worker else None}
        return {name: pid for name, pid in found.items() if pid is not None}

    async def start_worker(self, command: Sequence[str], ready: str, env: Mapping[str, str]) -> None:
        """Start it and return once it has written `ready`. Raises `RuntimeError` with its last words when it does not."""
        mark = self._worker_log.stat().st_size if self._worker_log.exists() else 0
        worker = self._worker = await asyncio.to_thread(
            Tethered, command, log=self._worker_log, env=env, grace_s=GRACE_S
        )
        deadline = asyncio.get_running_loop().time() + WORKER_READY_S
        while ready not in self._written_since(mark):
            if worker.exit_code is not None or asyncio.get_running_loop().time() > deadline:
                raise RuntimeError(f"the worker did not come up: {worker.log_tail()}")
            await asyncio.sleep(READY_POLL_S)

    def kill_worker(self) -> None:
        """SIGKILL; returns once it is gone."""
        assert self._worker is not None
        self._worker.kill()

    def _written_since(self, mark: int) -> str:
        with self._worker_log.open("rb") as log:
            log.seek(mark)
            return log.read().decode(errors="replace")
