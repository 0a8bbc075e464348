"""ThreadDatabase: what an operator does to the database itself, beside the Thread Objects that work on it.

Every operation is safe while workers run, and safe to repeat. None of them needs a Temporal server; what an import
brings in is found by the workers' mark sweep within half a minute.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self

from thread_objects import _runtime
from thread_objects.archives import ArchiveFile, check_archive, report_of, thread_of
from thread_objects.authorising import LOCAL, Authorisation, Authoriser, OperationRequest, authorisation
from thread_objects.contract.archive import ArchiveReport
from thread_objects.contract.limits import RESTORE_PAGE_THREADS
from thread_objects.contract.operations import Operation
from thread_objects.contract.reports import RestoreReport
from thread_objects.contract.retention import RetentionCursor, RetentionPage, RetentionPolicy, RetentionReport
from thread_objects.contract.sweeps import WorkRebuilt
from thread_objects.errors import ConfigError, InvalidInput
from thread_objects.placement import Placement
from thread_objects.ports import FencedPage
from thread_objects.settings import Settings, load_settings

DAY_MS = 86_400_000


class ThreadDatabase:
    """One opened database. Use as a context manager; calls block, and may come from any thread."""

    def __init__(
        self,
        store: Any,
        *,
        authorised: Authorisation | None = None,
        caller: str = LOCAL,
        placement: Placement | None = None,
    ) -> None:
        self._store = store
        self._placement = placement or Placement()
        self._authorised = authorised or Authorisation()
        self._caller = caller

    @classmethod
    def open(
        cls,
        settings: Settings | None = None,
        *,
        database_url: str | None = None,
        create: bool = False,
        authoriser: Authoriser | None = None,
    ) -> Self:
        """Open (and migrate) by settings. Without `create` a SQLite file that is not there is `StoreUnavailable`.

        `authoriser` is asked before every operation; without one, here or in the settings, everything is allowed.
        Raises `ConfigError` when no database is named anywhere.
        """
        settings = settings or load_settings()
        url = database_url or settings.database_url
        if url is None:
            raise ConfigError(setting="database_url", reason="this operation works on the database: name it")
        authorised = authorisation(authoriser, settings.authoriser)
        storage = _runtime.load("storage")
        if not create:
            storage.open_reader(url).close()
        limits = storage.StoreLimits(
            queue_depth=settings.queue_depth, input_bytes=settings.input_bytes, database_bytes=settings.database_bytes
        )
        store = storage.open_store(
            url, limits=limits, synchronous=settings.sqlite_synchronous, pool_size=settings.database_pool
        )
        return cls(
            store,
            authorised=authorised,
            caller=settings.caller or LOCAL,
            placement=Placement(settings.placement),
        )

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- archives ---------------------------------------------------------------------------------------------

    def export(self, thread_id: str) -> Iterator[str]:
        """The lines of a Thread's archive, each with its line feed, of one moment whatever is appended meanwhile.

        At most 131 072 records (`InvalidInput` past that). `ThreadNotMaterialized` for a Thread without a log,
        `CorruptRecord` where the stored log does not hold together. A snapshot is held until the iterator ends.
        """
        self._ask(Operation.EXPORT, thread_id)
        lines: Iterator[str] = self._store.export(thread_id)
        return lines

    def export_file(self, thread_id: str, path: Path | str) -> ArchiveReport:
        """As `export`, into a file that has its name only once it is whole, on the disk, and checked."""
        path = Path(path)
        try:
            with tempfile.NamedTemporaryFile("wb", dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
                part = Path(file.name)
                try:
                    for line in self.export(thread_id):
                        file.write(line.encode())
                    file.flush()
                    os.fsync(file.fileno())
                    report = report_of(check_archive(ArchiveFile(part)))
                    part.replace(path)
                except BaseException:
                    part.unlink(missing_ok=True)
                    raise
        except OSError as error:
            raise InvalidInput(f"{path}: {error.strerror or error}", what="archive") from error
        return report

    def import_thread(self, archive: Iterable[str] | Path, *, object_id: str | None = None) -> ArchiveReport:
        """Bring a Thread in from its archive: a file, or anything that gives its lines anew each time it is iterated.

        The Thread must be empty here. All of it comes in, or nothing: `ArchiveRefused` says why. Receipts, keys,
        sequences and times are kept; nobody's ownership is. `object_id`: the Thread Object that owns it here, by
        default the one of this installation's placement.
        """
        lines = ArchiveFile(archive) if isinstance(archive, Path) else archive
        thread_id = thread_of(lines)
        self._ask(Operation.IMPORT, thread_id)
        owner = object_id or self._placement.object_id(thread_id)
        report: ArchiveReport = self._store.import_thread(lines, object_id=owner, now=_now())
        return report

    # --- retention ------------------------------------------------------------------------------------------------

    def retain(self, policy: RetentionPolicy, *, dry_run: bool = False) -> RetentionReport:
        """Take content from settled work by a policy, in bounded transactions, until nothing is left to do.

        Never touches what is not settled or still owes something; what was left alone for that is counted in `kept`.
        Receipts, keys, outcomes and digests stay: the same key has the same answer afterwards. Interrupting it leaves
        what was done so far; running it again goes on. `dry_run` only counts what would be redacted.
        """
        if not dry_run:
            self._ask(Operation.RETAIN, policy.thread_id)
        cursor: RetentionCursor | None = RetentionCursor()
        totals = Counter(submissions=0, redacted=0, deleted=0)
        kept: Counter[str] = Counter()
        touched: set[str] = set()
        while cursor is not None:
            page: RetentionPage = self._store.retain(policy, cursor, dry_run=dry_run, now=_now())
            cursor = page.cursor
            totals.update(submissions=page.submissions, redacted=page.redacted, deleted=page.deleted)
            kept.update(page.kept)
            if page.threads and cursor is not None:
                touched.add(cursor.thread_id)
        return RetentionReport(dry_run=dry_run, threads=len(touched), kept=dict(kept), **totals)

    # --- after a restore ------------------------------------------------------------------------------------------

    def rebuild_work(self, thread_id: str) -> WorkRebuilt:
        """Make a Thread's work inventory whole from its log, in bounded passes. `NotFound` without the Thread."""
        self._ask(Operation.REBUILD_WORK, thread_id)
        passes = 1
        while not self._store.rebuild_work(thread_id).complete:
            passes += 1
        return WorkRebuilt(thread_id=thread_id, passes=passes)

    def fence_restored(self) -> RestoreReport:
        """Run once on a database restored from a backup, before workers start on it. Repeating is safe.

        Whoever holds an ownership from before or after the backup is refused from then on, and the objects that owe
        something are marked, so that their workflows, which remember a lost future, look again.
        """
        self._ask(Operation.RESTORE_FENCE, None)
        after: str | None = ""
        threads = objects = 0
        while after is not None:
            page: FencedPage = self._store.fence_restored(after=after, limit=RESTORE_PAGE_THREADS, now=_now())
            after, threads, objects = page.through, threads + page.threads, objects + page.objects
        return RestoreReport(threads=threads, objects=objects)

    def _ask(self, operation: Operation, thread_id: str | None) -> None:
        """Ask the authoriser, before anything is read or written. Raises `OperationDenied`."""
        self._authorised.refuse(OperationRequest(operation, self._caller, thread_id))


def before(days: float) -> int:
    """The instant so many days ago, in epoch milliseconds."""
    return max(0, _now() - round(days * DAY_MS))


def _now() -> int:
    return time.time_ns() // 1_000_000
