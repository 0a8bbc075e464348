"""Processes that `threads dev`, `threads demo` and the tests start, and always end again.

Every one runs tethered (see `tether.py`), in a session of its own so that Ctrl-C reaches only the one that decides
in which order things end, and with its output in a file.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from thread_objects.cli import tether

STOP_GRACE_S = 20.0
"""How long a process may take to drain before it is killed: an Attempt hands its work back well within it."""
LOG_TAIL_BYTES = 4_096
"""How much of a log is shown where a process has failed."""


def free_port() -> int:
    """A port of the loopback address that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def port_is_free(port: int) -> bool:
    """Whether nobody listens on this port of the loopback address."""
    with socket.socket() as probe:
        # Connections of a server that was just stopped may linger; only a listener is in the way.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


class Tethered:
    """One running command. Constructing starts it or raises `OSError`; ending it twice is safe.

    `env` is laid over this process's environment; a name with None is taken out of it.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str | None] | None = None,
        cwd: Path | None = None,
        grace_s: float = STOP_GRACE_S,
    ) -> None:
        self.log = log
        self._grace_s = grace_s
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as sink:
            self._tether = subprocess.Popen(  # noqa: S603  # commands are composed here, never read from input
                [sys.executable, "-I", tether.__file__, str(grace_s), *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=sink,
                env={name: value for name, value in {**os.environ, **(env or {})}.items() if value is not None},
                cwd=cwd,
                start_new_session=True,
            )
        assert self._tether.stdout is not None  # noqa: S101  # it was asked for
        with self._tether.stdout as told:
            pid = told.readline().strip()
        if not pid:
            self.stop()
            raise OSError(f"{command[0]} did not start: {self.log_tail()}")
        self.pid = int(pid)

    @property
    def exit_code(self) -> int | None:
        """The command's exit code (128 + signal where one ended it), or None while it runs."""
        return self._tether.poll()

    def log_tail(self) -> str:
        """The end of what the command has written."""
        with self.log.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
            return log.read().decode(errors="replace").strip()

    def stop(self) -> int:
        """SIGTERM, then SIGKILL once the grace is over; returns the exit code."""
        if self._tether.stdin is not None:
            self._tether.stdin.close()
        # The tether itself needs a moment on top of the grace it gives.
        return self._tether.wait(self._grace_s + 5.0)

    def kill(self) -> int:
        """SIGKILL at once; returns the exit code."""
        if self.exit_code is None:
            os.kill(self.pid, signal.SIGKILL)
        return self.stop()
