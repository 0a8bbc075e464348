"""Verbs that read a Thread: log, report and alarms."""

import time
from collections.abc import Callable
from typing import Annotated

import typer

from thread_objects.cli.arguments import AsJson, Thread, submission_of
from thread_objects.cli.exits import Exit
from thread_objects.cli.render import Screen
from thread_objects.cli.session import Connection, connected, perform
from thread_objects.client import ThreadClient
from thread_objects.contract import limits
from thread_objects.contract.messages import LogRecord


@connected
def log(
    thread: Thread,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as the log grows, until Ctrl-C.")] = False,
    until: Annotated[
        str | None, typer.Option(help="Follow until this Submission is settled.", show_default=False)
    ] = None,
    after: Annotated[int, typer.Option(help="Only records past this sequence.", min=0)] = 0,
    limit: Annotated[
        int | None, typer.Option(help="At most so many records; all of them without it.", min=1, show_default=False)
    ] = None,
    as_json: AsJson = False,
    connection: Connection,
) -> None:
    """Print the Thread's log: every committed fact, in order."""

    async def action(client: ThreadClient) -> Exit | None:
        screen = Screen()

        def show(record: LogRecord) -> None:
            screen.json(record) if as_json else screen.record(record)

        if follow or until is not None:
            shown = 0
            last = None if until is None else submission_of(thread, until)
            async for record in client.follow(thread, after=after, until=last):
                show(record)
                shown += 1
                if shown == limit:
                    break
            return None
        await _pages(client, thread, after, limit, show)
        return None

    perform(connection, action, as_json=as_json)


async def _pages(
    client: ThreadClient, thread: str, after: int, limit: int | None, show: Callable[[LogRecord], None]
) -> None:
    left = limit
    while left is None or left > 0:
        size = limits.READ_PAGE_RECORDS_MAX if left is None else min(left, limits.READ_PAGE_RECORDS_MAX)
        page = await client.log(thread, after=after, limit=size)
        if not page:
            return
        for record in page:
            show(record)
        after = page[-1].sequence
        left = None if left is None else left - len(page)


@connected
def report(
    thread: Thread,
    *,
    host: Annotated[bool, typer.Option("--host", help="Of a shared host: all its Threads.")] = False,
    as_json: AsJson = False,
    connection: Connection,
) -> None:
    """What the Thread Object owes, what blocks it, and what happens next."""

    async def action(client: ThreadClient) -> None:
        found = await (client.object_report(await client.object_id(thread)) if host else client.report(thread))
        screen = Screen()
        screen.json(found) if as_json else screen.report(found, now=time.time_ns() // 1_000_000)

    perform(connection, action, as_json=as_json)


@connected
def alarms(thread: Thread, *, as_json: AsJson = False, connection: Connection) -> None:
    """The Thread's application alarms, the next one first: when they run, and what their deliveries came to."""

    async def action(client: ThreadClient) -> None:
        screen, now = Screen(), time.time_ns() // 1_000_000
        found = await client.alarms(thread)
        for alarm in found:
            screen.json(alarm) if as_json else screen.alarm(alarm, now=now)
        if not found and not as_json:
            screen.line("no alarms", "dim")

    perform(connection, action, as_json=as_json)
