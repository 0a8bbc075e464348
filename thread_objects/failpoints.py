"""Named places where a test can end the process, exactly as a power cut or `kill -9` would.

`THREADS_FAILPOINT=name` kills at the first hit, `name:3` at the third. With `THREADS_FAILPOINT_LOG` every name that
is passed is appended to that file, so that the suite can tell which ones no test ever reached. Without the
variables a hit costs one comparison.
"""

import os
import signal
from pathlib import Path


def parsed(setting: str) -> tuple[str, int]:
    """Name and number of the hit that kills. Names hold colons themselves; only a last part of digits is a number."""
    name, _, at = setting.rpartition(":")
    return (name, int(at)) if name and at.isdecimal() else (setting, 1)


_armed, _left = parsed(os.environ.get("THREADS_FAILPOINT", ""))
_log = os.environ.get("THREADS_FAILPOINT_LOG")


def listening() -> bool:
    """Whether a hit would do anything at all."""
    return bool(_armed) or _log is not None


def hit(name: str) -> None:
    """Pass a failpoint. Workflow code calls it only while it is not replaying."""
    global _left  # noqa: PLW0603 - one counter per process is the point
    if _log is not None:
        with Path(_log).open("a") as log:
            log.write(name + "\n")
    if not _armed or name != _armed:
        return
    _left -= 1
    if _left <= 0:
        os.kill(os.getpid(), signal.SIGKILL)
