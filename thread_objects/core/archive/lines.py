"""Reading an archive: every line whole, known, in its place, and covered by the digest at the end.

Rule guarded: fail closed. A line this version does not know, an order that is not the format's, a missing end, a byte
that changed: each is a defect with its place, told before anything is believed that comes after it.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

from thread_objects.contract import limits
from thread_objects.contract.archive import (
    FORMAT,
    ORDER,
    VERSION,
    AnyLine,
    Counts,
    HeaderLine,
    Line,
    RecordLine,
    TrailerLine,
)
from thread_objects.core.archive.defect import ArchiveDefect
from thread_objects.core.canonical import RECORD, Bounds, parse

LINE_BYTES_MAX = 16 * 1_048_576
"""A record of 4 MiB with its envelope, or an input of 2 MB that is text inside text."""
LINE = Bounds(depth=RECORD.depth + 2, collection=RECORD.collection, nodes=RECORD.nodes + 1_024, bytes=LINE_BYTES_MAX)
_RANK = {kind.model_fields["type"].default: rank for rank, kind in enumerate(ORDER)}
_COUNTED = ("submission", "approval", "unknown-call", "resolution", "reservation", "record")


def read(lines: Iterable[str]) -> Iterator[AnyLine]:
    """The lines of an archive, typed. Raises `ArchiveDefect` as soon as one cannot be believed.

    The digest is known with the last line only: whoever acts on what comes before must be able to undo it.
    """
    digest = hashlib.sha256()
    counts = dict.fromkeys(_COUNTED, 0)
    rank, number, ended = -1, 0, False
    header: HeaderLine | None = None
    for number, text in enumerate(lines, 1):
        if ended:
            raise ArchiveDefect("malformed", "something follows the trailer", number)
        line, place = _typed(text, number)
        if place < rank or (place == rank and not isinstance(line, RecordLine) and line.type not in counts):
            raise ArchiveDefect("malformed", f"a line of type {line.type} in this place", number)
        rank = place
        if isinstance(line, TrailerLine):
            _check_end(line, header, counts, digest.hexdigest(), number)
            ended = True
        else:
            digest.update(text.rstrip("\n").encode() + b"\n")
        if line.type in counts:
            counts[line.type] += 1
            if counts[line.type] > limits.EXPORT_RECORDS_MAX:
                raise ArchiveDefect("bounds", f"more than {limits.EXPORT_RECORDS_MAX} lines of a kind", number)
        header = line if isinstance(line, HeaderLine) else header
        yield line
    if not ended:
        raise ArchiveDefect("truncated", "the archive ends without its trailer", number)


def _typed(text: str, number: int) -> tuple[Any, int]:
    if len(text) > LINE_BYTES_MAX:
        raise ArchiveDefect("bounds", f"a line of more than {LINE_BYTES_MAX} bytes", number)
    try:
        text.encode()
        value = parse(text)
    except ValueError as error:
        raise ArchiveDefect("malformed", "not a line of JSON", number) from error
    kind = value.get("type") if isinstance(value, dict) else None
    place = _RANK.get(kind) if isinstance(kind, str) else None
    if number == 1:
        if place != 0 or value.get("format") != FORMAT:
            raise ArchiveDefect("format", f"this is no {FORMAT}", number)
        if value.get("version") != VERSION:
            raise ArchiveDefect(
                "format", f"format version {str(value.get('version'))[:20]}, this program reads {VERSION}", number
            )
    if place is None:
        raise ArchiveDefect("malformed", "a line of no known type", number)
    return _validated(ORDER[place], value, number), place


def _validated(kind: type[Line], value: Any, number: int) -> Line:
    try:
        return kind.model_validate(value)
    except ValueError as error:
        raise ArchiveDefect("malformed", f"no valid line of type {value['type']}: {_first(error)}", number) from error


def _first(error: ValueError) -> str:
    """Which field is wrong, without its value."""
    errors = getattr(error, "errors", None)
    if errors is None:
        return type(error).__name__
    found = errors(include_url=False, include_input=False, include_context=False)[0]
    return f"{'.'.join(str(part) for part in found['loc'])}: {found['type']}"


def _check_end(
    trailer: TrailerLine, header: HeaderLine | None, counts: dict[str, int], digest: str, number: int
) -> None:
    found = Counts(
        submissions=counts["submission"],
        approvals=counts["approval"],
        unknown_calls=counts["unknown-call"],
        resolutions=counts["resolution"],
        reservations=counts["reservation"],
        records=counts["record"],
    )
    if trailer.counts != found:
        raise ArchiveDefect("truncated", "the trailer counts other lines than there are", number)
    if trailer.archive_digest != digest:
        raise ArchiveDefect("archive-digest", "the archive does not have the digest that its trailer says", number)
    if header is not None and (
        trailer.tail_digest != header.tail.digest or counts["record"] != header.tail.sequence - header.base.sequence
    ):
        raise ArchiveDefect("malformed", "header and trailer describe different logs", number)
