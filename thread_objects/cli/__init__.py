"""The `threads` command."""

import os
import sys


def main() -> None:
    """Run the command line and leave with its exit code.

    The process ends without finalizing the interpreter: a thread of the Temporal SDK may still be on its way out of
    a callback, and finalizing under it aborts the process, which would lose the exit code that callers rely on.
    """
    from thread_objects.cli.app import app  # noqa: PLC0415  # the tether and the tests need no command line

    code: object = 1
    try:
        app(prog_name="threads")
    except SystemExit as leaving:
        code = leaving.code
    except BaseException:  # noqa: BLE001  # the edge of the process: told as Python would, then left
        sys.excepthook(*sys.exc_info())
    finally:
        _flush()
        os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            # The reader has gone (`threads log | head`); there is nobody left to tell.
            continue
