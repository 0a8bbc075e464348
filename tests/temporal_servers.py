"""The two Temporal servers of the tests: the dev server and the time-skipping one.

Both come with wheels, listen on a loopback port of their own and end with the tests, whatever becomes of those:
they run tethered to the test process.
"""

import asyncio
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from temporalio.testing import WorkflowEnvironment

from thread_objects.cli.dev_server import DevServer, find_binary

__all__ = ["DevServer", "run_apart", "start_time_skipping", "stop_time_skipping"]


def run_apart(coroutine: Coroutine[Any, Any, Any], timeout_s: float = 60.0) -> Any:
    """Run a coroutine to its end on a loop and a thread of its own, so that synchronous fixtures may use it."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append((asyncio.run(asyncio.wait_for(coroutine, timeout_s)), None))
        except BaseException as failure:
            outcome.append((None, failure))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(timeout_s + 5.0)
    assert outcome, "the coroutine did not end within its bound"
    value, failure = outcome[0]
    if failure is not None:
        raise failure
    return value


def start_dev_server(folder: Path, **options: Any) -> DevServer:
    """A dev server with its file and log in `folder`; options are those of `DevServer`."""
    folder.mkdir(parents=True, exist_ok=True)
    server = DevServer(database=folder / "temporal.db", log=folder / "temporal.log", **options)
    run_apart(server.start())
    return server


def start_time_skipping() -> WorkflowEnvironment:
    """The time-skipping server: timers and the main loop in no time; no visibility, no search attributes."""
    return run_apart(
        WorkflowEnvironment.start_time_skipping(test_server_existing_path=find_binary("temporal-test-server"))
    )


def stop_time_skipping(environment: WorkflowEnvironment) -> None:
    """End it within a bound."""
    run_apart(environment.shutdown(), timeout_s=20.0)
