"""Verbs that look into a Thread and, at most, execute what recovery would do: explain, verify, obligations, retry."""

from pathlib import Path
from typing import Annotated

import typer

from thread_objects.archives import ArchiveFile, verify_archive
from thread_objects.cli.arguments import AsJson, Submission, Thread, submission_of
from thread_objects.cli.exits import Exit
from thread_objects.cli.insight import Insight
from thread_objects.cli.render import Screen
from thread_objects.cli.session import Connection, connected, leave, perform, whoami
from thread_objects.client import ThreadClient
from thread_objects.contract.operations import BlockedOn, Severity
from thread_objects.contract.reports import Verification


@connected
def explain(
    thread: Thread,
    submission: Annotated[
        str | None,
        typer.Argument(
            help="The Submission's id, or key:KEY of principal local; the whole Thread without it.", show_default=False
        ),
    ] = None,
    *,
    after: Annotated[int, typer.Option(help="Of a Thread: only Submissions past this place in its queue.", min=0)] = 0,
    as_json: AsJson = False,
    connection: Connection,
) -> None:
    """What is owed, what blocks it, what recovery would decide now, and on which evidence. Changes nothing."""

    async def action(client: ThreadClient) -> None:
        screen = Screen()
        if submission is not None:
            found = await client.explain(submission_of(thread, submission), thread_id=thread)
            screen.json(found) if as_json else Insight(screen).explanation(found)
            return
        whole = await client.explain_thread(thread, after=after)
        screen.json(whole) if as_json else Insight(screen).thread(whole)

    perform(connection, action, as_json=as_json)


@connected
def verify(
    thread: Annotated[str | None, typer.Argument(help="The Thread's id.", show_default=False)] = None,
    *,
    all_settled: Annotated[bool, typer.Option("--all-settled", help="Also that nothing is owed.")] = False,
    archive: Annotated[
        Path | None, typer.Option(help="Verify the Thread in an archive instead.", show_default=False)
    ] = None,
    as_json: AsJson = False,
    connection: Connection,
) -> None:
    """Check that a Thread's log and ledger are whole and agree; ends with 3 when a check fails. Repairs nothing."""
    if (thread is None) == (archive is None):
        raise typer.BadParameter("name a thread or an archive, one of them", param_hint="THREAD")

    async def of_archive(path: Path) -> Exit:
        return _told(verify_archive(ArchiveFile(path), require_all_settled=all_settled), as_json=as_json)

    async def of_thread(client: ThreadClient) -> Exit:
        found = await client.verify(str(thread), require_all_settled=all_settled)
        return _told(found, as_json=as_json)

    if archive is not None:
        path = archive
        leave(lambda: of_archive(path), as_json=as_json)
    perform(connection, of_thread, as_json=as_json)


def _told(found: Verification, *, as_json: bool) -> Exit:
    screen = Screen()
    screen.json(found) if as_json else Insight(screen).verification(found)
    return Exit.OK if found.ok else Exit.FAILED


@connected
def obligations(
    thread: Annotated[
        str | None, typer.Argument(help="Only of this Thread; of all without it.", show_default=False)
    ] = None,
    *,
    aging: Annotated[int, typer.Option(help="Seconds from which on it is aging.", min=0)] = 60,
    overdue: Annotated[int, typer.Option(help="Seconds from which on it is overdue.", min=0)] = 600,
    agent: Annotated[str | None, typer.Option(help="Only of this agent.", show_default=False)] = None,
    principal: Annotated[str | None, typer.Option(help="Only of this principal.", show_default=False)] = None,
    blocked_on: Annotated[
        list[BlockedOn] | None, typer.Option(help="Only what waits for this; may be repeated.", show_default=False)
    ] = None,
    severity: Annotated[Severity, typer.Option(help="Only what is at least this late.")] = Severity.OK,
    limit: Annotated[
        int | None, typer.Option(help="At most so many; all of them without it.", min=1, show_default=False)
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="End with 3 when anything is listed.")] = False,
    as_json: AsJson = False,
    connection: Connection,
) -> None:
    """List unsettled Submissions: what each waits for, since when, and how late that is."""
    if overdue < aging:
        raise typer.BadParameter("what is overdue is aging too: --overdue must not be below --aging")

    async def action(client: ThreadClient) -> Exit:
        screen = Screen()
        shown, after, more = 0, None, True
        while more:
            page = await client.scan_obligations(
                aging,
                overdue,
                thread_id=thread,
                agent=agent,
                principal=principal,
                blocked_on=tuple(blocked_on or ()),
                severity=severity,
                after=after,
                limit=min(100, limit - shown) if limit is not None else 100,
            )
            for owed in page.obligations:
                screen.json(owed) if as_json else Insight(screen).obligation(owed)
            shown += len(page.obligations)
            after = page.next_after
            more = after is not None and (limit is None or shown < limit)
        if not shown and not as_json:
            screen.line("nothing is owed that matches", "dim")
        return Exit.FAILED if check and shown else Exit.OK

    perform(connection, action, as_json=as_json)


@connected
def retry(
    thread: Thread,
    submission: Submission,
    *,
    reason: Annotated[str, typer.Option(help="Why; recorded in the log with the repair.", show_default=False)],
    author: Annotated[str | None, typer.Option(help="Who asks; the login name by default.", show_default=False)] = None,
    as_json: AsJson = False,
    connection: Connection,
) -> None:
    """Execute now exactly what recovery would decide for a Submission. Refused where it waits for somebody."""
    if not reason:
        raise typer.BadParameter("say why: it is recorded with the repair", param_hint="--reason")

    async def action(client: ThreadClient) -> None:
        answer = await client.retry(
            submission_of(thread, submission), author=author or whoami(), reason=reason, thread_id=thread
        )
        Screen().answer(answer, as_json=as_json)

    perform(connection, action, as_json=as_json)
