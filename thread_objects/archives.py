"""Archive files: read line by line, bounded, as often as somebody needs to."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from thread_objects.contract.archive import ArchiveReport
from thread_objects.contract.reports import Verification
from thread_objects.contract.states import CheckOutcome
from thread_objects.core.archive import LINE_BYTES_MAX, ArchiveDefect, Checked, check, read, verify_lines
from thread_objects.errors import ArchiveRefused, InvalidInput


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """The lines of a file. Iterating opens it anew; a line past 16 MiB, or that is no UTF-8, is `ArchiveRefused`."""

    path: Path

    def __iter__(self) -> Iterator[str]:
        try:
            with self.path.open("rb") as file:
                number = 0
                while line := file.readline(LINE_BYTES_MAX + 1):
                    number += 1
                    if len(line) > LINE_BYTES_MAX:
                        raise ArchiveRefused(reason="bounds", line=number)
                    try:
                        yield line.decode()
                    except UnicodeDecodeError as error:
                        raise ArchiveRefused(reason="malformed", line=number) from error
        except OSError as error:
            raise InvalidInput(f"{self.path}: {error.strerror or error}", what="archive") from error


def thread_of(archive: Iterable[str]) -> str:
    """Whose archive this is. Reads the first line. Raises `ArchiveRefused`."""
    try:
        header = next(iter(read(archive)))
    except ArchiveDefect as error:
        raise ArchiveRefused(str(error), reason=error.reason, line=error.line) from error
    return str(getattr(header, "thread_id", ""))


def check_archive(archive: Iterable[str]) -> Checked:
    """Whether an archive could be imported into an empty Thread. Writes nothing. Raises `ArchiveRefused`."""
    if iter(archive) is archive:
        raise InvalidInput("an archive is read twice: pass a list or an ArchiveFile, not an iterator", what="archive")
    try:
        return check(archive)
    except ArchiveDefect as error:
        raise ArchiveRefused(str(error), reason=error.reason, line=error.line) from error


def verify_archive(archive: Iterable[str], *, require_all_settled: bool = False) -> Verification:
    """Verify the Thread in an archive: all checks, and none of them a repair. Reads it once.

    Raises `ArchiveRefused` for what is no whole archive (malformed, cut off, or not what its own digest says).
    """
    try:
        return verify_lines(archive, require_all_settled=require_all_settled)
    except ArchiveDefect as error:
        raise ArchiveRefused(str(error), reason=error.reason, line=error.line) from error


def report_of(checked: Checked, *, object_id: str | None = None) -> ArchiveReport:
    """An archive that holds together, in figures."""
    header, trailer = checked.header, checked.trailer
    (chain,) = [check for check in checked.verification.checks if check.name == "digest-chain"]
    return ArchiveReport(
        thread_id=header.thread_id,
        object_id=object_id or header.object_id,
        submissions=trailer.counts.submissions,
        records=trailer.counts.records,
        base_sequence=header.base.sequence,
        tail_sequence=header.tail.sequence,
        tail_digest=header.tail.digest,
        archive_digest=trailer.archive_digest,
        chain=chain.reason if chain.outcome is CheckOutcome.SKIPPED else "",
    )
