"""Verbs that serve: a worker, and a whole installation on this machine."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Annotated

import typer

from thread_objects import _runtime
from thread_objects.cli.exits import Exit, complain, tell
from thread_objects.cli.local import Local, WorkerFailedError, ended
from thread_objects.cli.render import Screen
from thread_objects.cli.session import Connection, connected, leave
from thread_objects.connection import DEFAULT_ADDRESS
from thread_objects.errors import ThreadError
from thread_objects.settings import load_settings

DEMO_AGENTS = "thread_objects.cli.demo_agents:registry"
WATCH_S = 0.2
RESTARTS_MAX = 5
"""A worker that ends this often without having lived for `LIVED_S` has something that a restart does not mend."""
LIVED_S = 10.0

Agents = Annotated[str | None, typer.Option(help="The registry to serve, package.module:name.", show_default=False)]


Extras = Annotated[
    str | None, typer.Option(help="What to serve beside agents, package.module:name.", show_default=False)
]


@connected
def worker(*, agents: Agents = None, extensions: Extras = None, connection: Connection) -> None:
    """Serve Thread Objects until SIGTERM or Ctrl-C, then drain: nothing is lost and nothing settled by it."""
    os.environ.update({f"THREADS_{name.upper()}": value for name, value in connection.given().items()})
    given = {"--agents": agents, "--extensions": extensions}
    options = [word for name, value in given.items() if value is not None for word in (name, value)]
    code = _runtime.load("worker").main(options)
    raise typer.Exit(code)


def dev(
    *,
    agents: Agents = None,
    extensions: Extras = None,
    folder: Annotated[Path, typer.Option(help="Where everything is kept.")] = Path(".threads"),
    port: Annotated[int, typer.Option(help="Port of the Temporal server; 0 takes a free one.", min=0)] = 7233,
    ui_port: Annotated[int, typer.Option(help="Port of the Web UI; 0 takes a free one.", min=0)] = 8233,
) -> None:
    """Run server, database and a worker here, with Temporal's Web UI. Persists in a folder; Ctrl-C drains."""

    async def run() -> Exit:
        served = agents or load_settings().agents or DEMO_AGENTS
        beside = extensions or load_settings().extensions
        local = Local(folder, agents=served, extensions=beside, port=port, ui_port=ui_port)
        with local.locked():
            return await _Dev(local).run()

    leave(run)


class _Dev:
    """One `threads dev`: start, tell, watch, drain."""

    def __init__(self, local: Local) -> None:
        self._local = local
        self._screen = Screen()
        self._stopping = asyncio.Event()

    async def run(self) -> Exit:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, self._stop)
        try:
            await self._local.server.start()
            self._local.start_worker()
            if await self._came_up():
                self._tell()
            return await self._watch()
        except WorkerFailedError as failure:
            complain(str(failure))
            return Exit(failure.code) if failure.code in {Exit.USAGE, Exit.OUT_OF_REACH} else Exit.UNEXPECTED
        except ThreadError as error:
            return tell(error)
        finally:
            await asyncio.to_thread(self._local.stop, self._screen.line)

    def _stop(self) -> None:
        if self._stopping.is_set() and self._local.worker is not None:
            # A second Ctrl-C: whoever is impatient gets what kill -9 would give, and loses nothing by it.
            os.kill(self._local.worker.pid, signal.SIGKILL)
        self._stopping.set()

    async def _came_up(self) -> bool:
        """Wait for the worker, or for Ctrl-C before it is up."""
        ready = asyncio.create_task(self._local.worker_ready())
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({ready, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if ready.done():
                ready.result()
            return ready.done()
        finally:
            ready.cancel()
            stopping.cancel()

    async def _watch(self) -> Exit:
        loop = asyncio.get_running_loop()
        started, quick = loop.time(), 0
        while not self._stopping.is_set():
            local = self._local
            if not local.server.running:
                complain(f"the Temporal server ended by itself, see {local.folder / 'temporal.log'}")
                return Exit.UNEXPECTED
            code = local.worker.exit_code if local.worker is not None else None
            if code is not None:
                quick = 0 if loop.time() - started > LIVED_S else quick + 1
                if quick >= RESTARTS_MAX:
                    raise WorkerFailedError(f"{ended(code)}, again and again; see {local.worker_log}", code=code)
                started = loop.time()
                self._screen.line(f"{ended(code)}; starting another: pid {local.start_worker().pid}", "yellow")
            try:
                await asyncio.wait_for(self._stopping.wait(), WATCH_S)
            except TimeoutError:
                continue
        return Exit.OK

    def _tell(self) -> None:
        local, screen = self._local, self._screen
        screen.facts(
            [
                ("Temporal", local.server.address),
                ("Web UI", local.server.ui_address),
                ("database", local.database_url),
                ("worker", f"pid {local.worker.pid}, serves {local.agents}" if local.worker is not None else None),
                ("folder", f"{local.folder} (worker.log, temporal.log)"),
            ]
        )
        screen.title("In another terminal")
        if local.server.address != DEFAULT_ADDRESS:
            screen.line(f"  export THREADS_ADDRESS={local.server.address}")
        screen.line(f"  export THREADS_DATABASE_URL={local.database_url}")
        if local.agents == DEMO_AGENTS:
            screen.line('  threads submit my-thread support "Where is order 1001?" --wait')
        screen.line("")
        screen.line("Ctrl-C drains the worker and stops the server; a second one does not wait.", "dim")
