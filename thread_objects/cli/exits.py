"""Exit codes, and the one place where an error becomes a line on stderr and a code.

The table is part of the public interface: README and tests hold it.
"""

import sys
from enum import IntEnum

from rich.console import Console
from rich.text import Text

from thread_objects.cli.text import one_line
from thread_objects.contract.states import Outcome
from thread_objects.errors import (
    BindingError,
    ConfigError,
    ServerUnavailable,
    StoreUnavailable,
    StreamEnded,
    ThreadError,
    WaitCancelled,
    WaitTimeout,
)


class Exit(IntEnum):
    """What a command ends with."""

    OK = 0
    """Done; where a Settlement was waited for, it is `completed`."""
    UNEXPECTED = 1
    """A defect of this program, or a process it supervises ended by itself."""
    USAGE = 2
    """Wrong arguments, a bad setting, or an agent that cannot be bound; nothing was sent."""
    FAILED = 3
    """The Settlement is `failed`; of `verify` a check failed, of `obligations --check` something is listed."""
    ABORTED = 4
    """The Settlement is `aborted`."""
    REFUSED = 5
    """A typed refusal: conflict, limit, not found, invalid input, ..."""
    NOT_YET = 6
    """The wait ended, or the stream broke off, before the Settlement; the work goes on."""
    OUT_OF_REACH = 7
    """The Temporal server or the database cannot be reached, or stays busy. The same command is safe to repeat."""
    INTERRUPTED = 130
    """Ctrl-C."""


REASON_CHARS = 200

BY_OUTCOME = {Outcome.COMPLETED: Exit.OK, Outcome.FAILED: Exit.FAILED, Outcome.ABORTED: Exit.ABORTED}


def exit_of(error: ThreadError) -> Exit:
    """The exit code of a typed error."""
    match error:
        case ConfigError() | BindingError():
            return Exit.USAGE
        case WaitTimeout() | WaitCancelled() | StreamEnded():
            return Exit.NOT_YET
        case ServerUnavailable() | StoreUnavailable():
            return Exit.OUT_OF_REACH
        case _:
            return Exit.OUT_OF_REACH if error.retryable else Exit.REFUSED


def tell(error: ThreadError, *, as_json: bool = False) -> Exit:
    """Say on stderr what went wrong, in one line, and answer the exit code."""
    if as_json:
        sys.stderr.write(error.refusal().model_dump_json(by_alias=True) + "\n")
    else:
        complain(_clear(error))
    return exit_of(error)


def _clear(error: ThreadError) -> str:
    """What somebody at a terminal needs to know; the bridge's own account of a lost connection is not it."""
    if isinstance(error, ServerUnavailable) and error.address:
        return f"cannot reach the Temporal server at {error.address}: {one_line(error.reason)[:REASON_CHARS]}"
    if isinstance(error, StoreUnavailable):
        return f"cannot reach the database: {one_line(error.reason)[:REASON_CHARS]}"
    return error.message


def complain(message: str) -> None:
    """One line on stderr."""
    Console(stderr=True, highlight=False).print(Text(f"threads: {one_line(message)}", style="red"), soft_wrap=True)
