"""One command against a Thread Object: options that every verb shares, a client, an answer, an exit code."""

import asyncio
import functools
import getpass
import inspect
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields
from typing import Annotated, Any, TypeVar

import typer

from thread_objects.cli.exits import Exit, tell
from thread_objects.client import ThreadClient
from thread_objects.contract import limits
from thread_objects.errors import ThreadError
from thread_objects.settings import Settings, load_settings

CONNECT_TIMEOUT_S = 3.0
"""Somebody sits and waits: less patience than a program has, unless the settings say otherwise."""
_PANEL = "Connection"
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Connection:
    """Where the servers are. What is not given comes from the settings (environment, threads.toml, profile)."""

    address: Annotated[
        str | None, typer.Option(help="Temporal server, host:port.", show_default=False, rich_help_panel=_PANEL)
    ] = None
    namespace: Annotated[
        str | None, typer.Option(help="Temporal namespace.", show_default=False, rich_help_panel=_PANEL)
    ] = None
    profile: Annotated[
        str | None,
        typer.Option(help="Profile of Temporal's own TOML file.", show_default=False, rich_help_panel=_PANEL),
    ] = None
    database_url: Annotated[
        str | None,
        typer.Option(
            help="sqlite:///path or postgresql://...; reads are faster with it.",
            show_default=False,
            rich_help_panel=_PANEL,
        ),
    ] = None
    task_queue: Annotated[
        str | None, typer.Option(help="Task queue of the workers.", show_default=False, rich_help_panel=_PANEL)
    ] = None

    def given(self) -> dict[str, str]:
        """The values that were given."""
        told = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in told.items() if value is not None}


def connected(verb: Callable[..., R]) -> Callable[..., R]:
    """Give a verb with a `connection: Connection` parameter the options of `Connection` in its place."""
    signature = inspect.signature(verb)
    hints = inspect.get_annotations(Connection)
    options = [
        inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hints[field.name])
        for field in fields(Connection)
    ]
    own = [parameter for name, parameter in signature.parameters.items() if name != "connection"]

    @functools.wraps(verb)
    def command(**given: Any) -> R:
        connection = Connection(**{option.name: given.pop(option.name, None) for option in options})
        return verb(**given, connection=connection)

    command.__signature__ = signature.replace(  # type: ignore[attr-defined]  # typer reads it
        parameters=[parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own] + options
    )
    # typer asks for hints by name; those of the shared options are not in the verb's own.
    command.__annotations__ = {
        **{name: hint for name, hint in inspect.get_annotations(verb).items() if name != "connection"},
        **hints,
    }
    return command


def perform(
    connection: Connection, action: Callable[[ThreadClient], Awaitable[Exit | None]], *, as_json: bool = False
) -> None:
    """Connect, act, leave with the action's exit code (`OK` for None). Typed errors become one line and a code."""

    async def run() -> Exit | None:
        async with await ThreadClient.connect(settings_of(connection)) as client:
            return await action(client)

    leave(run, as_json=as_json)


def settings_of(connection: Connection) -> Settings:
    """The settings of one command: as configured, with the login name as the caller and less patience."""
    if "" not in sys.path:
        sys.path.append("")  # a placement of the user's own lives in the working directory
    settings = load_settings(**connection.given())
    if settings.caller is None:
        settings = settings.model_copy(update={"caller": whoami()[: limits.NAME_CHARS_MAX]})
    if "connect_timeout_s" in settings.model_fields_set:
        return settings
    return settings.model_copy(update={"connect_timeout_s": CONNECT_TIMEOUT_S})


def leave(run: Callable[[], Awaitable[Exit | None]], *, as_json: bool = False) -> None:
    """Run to the end on an event loop and leave with its exit code."""

    async def whole() -> Exit | None:
        return await run()

    try:
        code = asyncio.run(whole()) or Exit.OK
    except ThreadError as error:
        code = tell(error, as_json=as_json)
    except KeyboardInterrupt:
        code = Exit.INTERRUPTED
    raise typer.Exit(code)


def whoami() -> str:
    """Who acts, where nobody said: the login name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "operator"
