"""Verbs that work on the database itself: export, import, and what a restore needs."""

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer

from thread_objects.archives import ArchiveFile, check_archive, report_of
from thread_objects.cli.arguments import AsJson, Thread
from thread_objects.cli.exits import Exit, tell
from thread_objects.cli.render import Screen
from thread_objects.cli.session import Connection, connected, settings_of
from thread_objects.contract.archive import ArchiveReport
from thread_objects.contract.retention import RetentionPolicy
from thread_objects.database import ThreadDatabase, before
from thread_objects.errors import ThreadError


@connected
def export(
    thread: Thread,
    *,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A file; standard output without it.", show_default=False)
    ] = None,
    as_json: AsJson = False,
    connection: Connection,
) -> None:
    """Write a Thread's archive: its ledger and log of one moment, as JSON lines with digests."""

    def action(database: ThreadDatabase) -> None:
        if output is not None:
            _show(database.export_file(thread, output), as_json=as_json)
            return
        for line in database.export(thread):
            sys.stdout.write(line)

    operate(connection, action, as_json=as_json)


@connected
def import_thread(
    archive: Annotated[Path, typer.Argument(help="The archive; - reads standard input.", show_default=False)],
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Only say whether the archive is sound; no database is needed.")
    ] = False,
    object_id: Annotated[
        str | None,
        typer.Option("--object", help="The Thread Object that owns it here; that of the placement by default."),
    ] = None,
    as_json: AsJson = False,
    connection: Connection,
) -> None:
    """Bring a Thread in from its archive, into a database where it is empty: all of it or nothing."""

    def action(database: ThreadDatabase | None) -> None:
        with _file(archive) as path:
            if database is None:
                _show(report_of(check_archive(ArchiveFile(path))), as_json=as_json)
            else:
                _show(database.import_thread(path, object_id=object_id), as_json=as_json)

    if check:
        _leave(lambda: action(None), as_json=as_json)
    operate(connection, action, as_json=as_json, create=True)


import_thread.__name__ = "import"


@connected
def restore_fence(*, as_json: AsJson = False, connection: Connection) -> None:
    """Once after a restore from a backup, before workers start: refuse everybody who worked on the lost future."""

    def action(database: ThreadDatabase) -> None:
        report = database.fence_restored()
        screen = Screen()
        if as_json:
            screen.json(report)
        else:
            screen.facts([("threads fenced", report.threads), ("objects marked", report.objects)])

    operate(connection, action, as_json=as_json)


restore_fence.__name__ = "restore-fence"


@connected
def rebuild_work(thread: Thread, *, as_json: AsJson = False, connection: Connection) -> None:
    """Make a Thread's work inventory whole again, from its log, where recovery says that it cannot use it."""

    def action(database: ThreadDatabase) -> None:
        rebuilt = database.rebuild_work(thread)
        screen = Screen()
        if as_json:
            screen.json(rebuilt)
        else:
            screen.facts([("thread", rebuilt.thread_id), ("passes", rebuilt.passes)])

    operate(connection, action, as_json=as_json)


rebuild_work.__name__ = "rebuild-work"


@connected
def retain(
    mode: Annotated[
        Literal["redact", "delete"], typer.Argument(help="Take the content, or its records too.", show_default=False)
    ],
    *,
    days: Annotated[float, typer.Option(help="Only work that settled so many days ago.", min=0.0)],
    thread: Annotated[str | None, typer.Option(help="Only this Thread.", show_default=False)] = None,
    settled_threads: Annotated[
        bool, typer.Option("--settled-threads", help="Leave Threads alone that go on, their old history too.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would be redacted.")] = False,
    as_json: AsJson = False,
    connection: Connection,
) -> None:
    """Take what was said from old settled work. Receipts, keys, outcomes and digests stay; open work is left alone."""

    def action(database: ThreadDatabase) -> None:
        policy = RetentionPolicy(mode=mode, before=before(days), thread_id=thread, settled_threads_only=settled_threads)
        report = database.retain(policy, dry_run=dry_run)
        screen = Screen()
        if as_json:
            screen.json(report)
            return
        kept = ", ".join(f"{count} for {reason}" for reason, count in sorted(report.kept.items()))
        screen.facts(
            [
                ("threads", report.threads),
                ("submissions", report.submissions),
                ("records redacted" if not dry_run else "records to redact", report.redacted),
                ("records deleted", report.deleted if not dry_run else None),
                ("left alone", kept),
            ]
        )

    operate(connection, action, as_json=as_json)


def operate(
    connection: Connection, action: Callable[[ThreadDatabase], None], *, as_json: bool, create: bool = False
) -> None:
    """Open the database, act, leave with an exit code."""

    def run() -> None:
        with ThreadDatabase.open(settings_of(connection), create=create) as database:
            action(database)

    _leave(run, as_json=as_json)


def _leave(run: Callable[[], None], *, as_json: bool) -> None:
    try:
        run()
        code = Exit.OK
    except ThreadError as error:
        code = tell(error, as_json=as_json)
    except KeyboardInterrupt:
        code = Exit.INTERRUPTED
    raise typer.Exit(code)


@contextmanager
def _file(archive: Path) -> Iterator[Path]:
    """The archive as a file that can be read twice."""
    if str(archive) != "-":
        yield archive
        return
    with tempfile.NamedTemporaryFile("wb", suffix=".jsonl") as spooled:
        shutil.copyfileobj(sys.stdin.buffer, spooled)
        spooled.flush()
        yield Path(spooled.name)


def _show(report: ArchiveReport, *, as_json: bool) -> None:
    screen = Screen()
    if as_json:
        screen.json(report)
        return
    screen.facts(
        [
            ("thread", report.thread_id),
            ("object", report.object_id if report.object_id != report.thread_id else None),
            ("submissions", report.submissions),
            ("records", report.records),
            ("deleted before", report.base_sequence or None),
            ("tail", f"{report.tail_sequence} {report.tail_digest}"),
            ("archive", report.archive_digest),
            ("chain", report.chain),
        ]
    )
