"""The inbox: accepted mutations in arrival order, and the bounded list of what was refused.

An entry leaves only when the answer of its transaction is recorded, so that a batch in hand at continue-as-new, or
one whose local activity failed, is never lost.
"""

import asyncio
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError
from temporalio.common import RawValue

from thread_objects.contract import ids, limits, names
from thread_objects.contract.activities import Item
from thread_objects.contract.alarms import CancelAlarm, SetAlarm
from thread_objects.contract.ids import submission_id
from thread_objects.contract.messages import (
    Abort,
    Mutation,
    ResolveApproval,
    ResolveUnknown,
    Retry,
    Schedule,
    Submit,
    Wake,
)
from thread_objects.contract.object import CarriedEntry
from thread_objects.contract.reports import RefusedInput
from thread_objects.core.due_queue import NATIVE, PUBLICATION
from thread_objects.errors import InvalidInput, LaneRefused, ThreadError

FRAME_BYTES = 48
"""What frames an entry on its way to the next run: of small messages that is a third of the whole."""

_KINDS: dict[str, TypeAdapter[Any]] = {
    names.SUBMIT: TypeAdapter(Submit),
    names.ABORT: TypeAdapter(Abort),
    names.RESOLVE_APPROVAL: TypeAdapter(ResolveApproval),
    names.RESOLVE_UNKNOWN: TypeAdapter(ResolveUnknown),
    names.WAKE: TypeAdapter(Wake),
    names.SCHEDULE: TypeAdapter(Schedule),
    names.SET_ALARM: TypeAdapter(SetAlarm),
    names.CANCEL_ALARM: TypeAdapter(CancelAlarm),
    names.RETRY: TypeAdapter(Retry),
}

Message = Mutation | Schedule
"""What an inbox entry may hold: what storage takes, and schedules of lanes that the object has yet to hear of."""
AlarmMessage = SetAlarm | CancelAlarm
"""What is taken at once and never enters the inbox."""


def payload_bytes(args: Sequence[RawValue]) -> int:
    """Bytes of all arguments as they came over the wire."""
    return sum(len(arg.payload.data) for arg in args)


def carried_bytes(mutation: Message, args: Sequence[RawValue]) -> int:
    """What an entry may weigh on its way to the next run: JSON of ours can be longer than what was sent."""
    return max(payload_bytes(args), len(mutation.model_dump_json(by_alias=True).encode()))


def decode(name: str, args: Sequence[RawValue], *, bytes_max: int) -> Message | Wake | Retry | AlarmMessage:
    """One message from its raw argument. Raises `InvalidInput` and nothing else, whatever was sent."""
    adapter = _KINDS.get(name)
    if adapter is None:
        raise InvalidInput(what="unknown message name")
    size = payload_bytes(args)
    if size > bytes_max:
        raise InvalidInput(what=name, limit="wire-bytes", actual=size, maximum=bytes_max)
    if not args and name == names.WAKE:
        return Wake()
    if len(args) != 1:
        raise InvalidInput(what=f"{name}: exactly one argument is expected, {len(args)} came")
    try:
        decoded: Message | Wake | Retry | AlarmMessage = adapter.validate_json(args[0].payload.data)
    except (ValidationError, ValueError, RecursionError) as error:
        raise InvalidInput(what=f"{name}: {_first_complaint(error)}") from None
    return decoded


def _first_complaint(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        return f"{where}: {first['msg']}" if where else first["msg"]
    return type(error).__name__


def refused(
    name: str, args: Sequence[RawValue], error: ThreadError, at: int, mutation: Message | None = None
) -> RefusedInput:
    """The trace of a refused signal: name, size, digest and code, never the payload."""
    return RefusedInput(
        name=name[: limits.NAME_CHARS_MAX],
        bytes=payload_bytes(args),
        digest=hashlib.sha256(b"".join(arg.payload.data for arg in args)).hexdigest(),
        code=error.code,
        at=at,
        submission_id=None if mutation is None else submission_of(mutation),
    )


def submission_of(mutation: Message) -> str | None:
    """The Submission that a mutation is about; a schedule is about none."""
    if isinstance(mutation, Schedule):
        return None
    if isinstance(mutation, Submit):
        return submission_id(mutation.thread_id, mutation.principal, mutation.key)
    return mutation.submission_id


@dataclass(slots=True)
class Entry:
    """One accepted mutation. `waiter` is the update that wants its answer; a signal has none."""

    n: int
    mutation: Message
    bytes: int
    waiter: asyncio.Future[Any] | None = None


def refused_entry(entry: Entry, code: str, at: int) -> RefusedInput:
    """The trace of an entry that storage refused. Its digest is of the decoded message: the payload is gone by then."""
    return RefusedInput(
        name=entry.mutation.kind,
        bytes=entry.bytes,
        digest=hashlib.sha256(entry.mutation.model_dump_json(by_alias=True).encode()).hexdigest(),
        code=code,
        at=at,
        submission_id=submission_of(entry.mutation),
    )


class Inbox:
    """Entries in arrival order, at most `limits.INBOX_BYTES_MAX` of them carried, with their frames."""

    def __init__(self, carried: Iterable[CarriedEntry], next_n: int) -> None:
        self.entries = [Entry(entry.n, entry.mutation, entry.bytes) for entry in carried]
        self.next_n = next_n
        self.bytes = sum(entry.bytes for entry in self.entries)

    @property
    def saturated(self) -> bool:
        """No room for another entry of the largest size: updates are answered busy."""
        return self.bytes + FRAME_BYTES * len(self.entries) >= limits.INBOX_BYTES_MAX

    def add(self, mutation: Message, size: int, waiter: asyncio.Future[Any] | None = None) -> Entry:
        """Append an entry; its number is unique in the object's life."""
        entry = Entry(self.next_n, mutation, size, waiter)
        self.next_n += 1
        self.entries.append(entry)
        self.bytes += size
        return entry

    def batch(self) -> list[Entry]:
        """The next batch, in order and within its bounds. Nothing is removed."""
        taken: list[Entry] = []
        size = 0
        for entry in self.entries[: limits.BATCH_MUTATIONS_MAX]:
            size += entry.bytes
            if taken and size > limits.BATCH_BYTES_MAX:
                break
            taken.append(entry)
        return taken

    def drop(self, entries: Iterable[Entry]) -> None:
        """Remove entries whose answer is recorded."""
        gone = {entry.n for entry in entries}
        self.entries = [entry for entry in self.entries if entry.n not in gone]
        self.bytes = sum(entry.bytes for entry in self.entries)

    def holds(self, submission_id: str) -> bool:
        """Whether this Submission is still on its way to storage."""
        return any(
            ids.submission_id(entry.mutation.thread_id, entry.mutation.principal, entry.mutation.key) == submission_id
            for entry in self.entries
            if isinstance(entry.mutation, Submit)
        )

    def waiting(self) -> list[Entry]:
        """Entries of updates that still wait."""
        return [entry for entry in self.entries if entry.waiter is not None]

    def carried(self) -> tuple[CarriedEntry, ...]:
        """What travels to the next run (waiting updates are answered before)."""
        return tuple(CarriedEntry(n=entry.n, mutation=entry.mutation, bytes=entry.bytes) for entry in self.entries)


def items(entries: Iterable[Entry]) -> tuple[Item, ...]:
    """The entries as storage takes them."""
    return tuple(
        Item(n=entry.n, mutation=entry.mutation) for entry in entries if not isinstance(entry.mutation, Schedule)
    )


def check_schedule(schedule: Schedule) -> None:
    """A running Attempt's own lanes are due by what it commits; it may not name them. Raises `LaneRefused`."""
    if schedule.attempt_id is not None and schedule.lane in (NATIVE, PUBLICATION):
        raise LaneRefused(lane=schedule.lane, reason="a running Attempt may not name it")


def lanes_of(message: Message) -> tuple[str, ...]:
    """The rows that a message names."""
    if isinstance(message, Schedule):
        return (message.lane,)
    return message.lanes if isinstance(message, Submit) else ()
