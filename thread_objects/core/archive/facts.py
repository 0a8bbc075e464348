"""The ledger's part of an archive, held against itself and against the log that follows it.

Rules guarded: identities are the derived ones, so no Receipt can be forged into a Thread; every reference has its
target; a row's state has the facts it needs; what a projection says, the log says too.
"""

from dataclasses import dataclass
from typing import Any, NoReturn

from thread_objects.contract import ids
from thread_objects.contract.archive import (
    ApprovalLine,
    HeaderLine,
    RecordLine,
    ReservationLine,
    ResolutionLine,
    SubmissionLine,
    UnknownCallLine,
)
from thread_objects.contract.states import ReservationStatus, ResolutionKind, SubmissionState
from thread_objects.core import digests, redaction
from thread_objects.core.archive.defect import ArchiveDefect
from thread_objects.core.canonical import Unpersistable, canonical, parse

CONSUMED = frozenset(
    {SubmissionState.INPUT_APPLIED, SubmissionState.SUSPENDED, SubmissionState.UNKNOWN, SubmissionState.JOINED}
)
"""States that only a canonical input leads to."""
WAITING = frozenset({SubmissionState.ADMITTED, SubmissionState.READY, SubmissionState.JOINING})
FACTS = frozenset({ResolutionKind.COMPLETED_WITH_RESULT, ResolutionKind.NEVER_HAPPENED})
_RUN = ids.run_id("")


@dataclass(slots=True)
class _Known:
    """What later lines may ask of a Submission."""

    state: SubmissionState
    host: str | None
    input_digest: str
    has_input: bool
    applied: int | None
    redacted: bool
    line: int
    recorded: bool = False


@dataclass(slots=True)
class _Row:
    """A projected row, and whether the log was seen to say the same."""

    turn: int
    line: int
    recorded: bool = False


class LedgerFacts:
    """Fed with the lines in their order; raises `ArchiveDefect` at the first that does not fit."""

    def __init__(self, header: HeaderLine) -> None:
        self._header = header
        self._known: dict[str, _Known] = {}
        self._last = 0
        self._commands: set[tuple[str, ...]] = set()
        self._rows: dict[tuple[str, str, str], _Row] = {}

    # --- the ledger ------------------------------------------------------------------------------------------

    def submission(self, line: SubmissionLine, number: int) -> None:
        """The next Submission."""
        triple = (self._header.thread_id, line.principal, line.idempotency_key)
        if (line.submission_id, line.receipt_id) != (ids.submission_id(*triple), ids.receipt_id(*triple)):
            _refuse("identity", f"{line.submission_id} is not the Submission of its principal and key", number)
        if line.submission_id in self._known:
            _refuse("identity", f"{line.submission_id} stands there twice", number)
        if not self._last < line.queue_sequence <= self._header.queue_last:
            _refuse("contradiction", f"{line.submission_id} has no place of its own in the queue", number)
        self._last = line.queue_sequence
        broken = [rule for rule, holds in _rules(line).items() if not holds]
        if broken:
            _refuse("contradiction", f"{line.submission_id}: {broken[0]}", number)
        if line.input is not None and not _has_digest(line.input, line.input_digest):
            _refuse("contradiction", f"the input of {line.submission_id} does not have its digest", number)
        self._known[line.submission_id] = _Known(
            line.state,
            line.host_submission_id,
            line.input_digest,
            line.input is not None,
            line.input_applied,
            line.redacted_at is not None,
            number,
        )

    def command(self, line: ApprovalLine | UnknownCallLine | ResolutionLine, number: int) -> None:
        """An approval, an unknown call, or a resolution."""
        key: tuple[str, ...] = (line.type, line.submission_id, line.tool_call_id)
        self._existing(line.submission_id, number)
        match line:
            case ApprovalLine() | UnknownCallLine():
                self._rows[line.type, line.submission_id, line.tool_call_id] = _Row(line.turn, number)
                if isinstance(line, ApprovalLine) and (line.decision is None) != (line.decided_at is None):
                    _refuse("contradiction", f"{line.tool_call_id} is half decided", number)
            case ResolutionLine():
                key = (*key, line.category)
                if (line.kind in FACTS) != (line.category == "fact") or not _canonical(line.result):
                    _refuse("contradiction", f"the resolution of {line.tool_call_id} is no {line.category}", number)
        self._once(key, number)

    def reservation(self, line: ReservationLine, number: int) -> None:
        """A reservation. Its child lives in a Thread of its own, which only the destination knows."""
        self._existing(line.parent_submission_id, number)
        whole = _canonical(line.allocation) and (line.accounting is None or _canonical(line.accounting))
        reserved = line.status is ReservationStatus.RESERVED
        if not whole or reserved != (line.accounting is None):
            _refuse("contradiction", f"{line.reservation_id} is {line.status} without its facts", number)
        self._once((line.type, line.parent_submission_id, line.parent_call_id), number)
        self._once((line.type, line.reservation_id), number)

    def ledger_read(self) -> None:
        """All of the ledger is known."""
        for sid, known in self._known.items():
            if known.host is not None and known.host not in self._known:
                _refuse("reference", f"{sid} is joined to a Submission that is not there", known.line)

    # --- the log ------------------------------------------------------------------------------------------------

    def record(self, line: RecordLine, number: int) -> None:
        """The next record: who it speaks of is there, and what the ledger says of it is so."""
        payload = line.record.payload
        taken = redaction.redacted(payload)
        if line.submission_id is not None:
            self._existing(line.submission_id, number)
        run = payload.get("runId")
        # A joined input stands among the records of the Run that took it: what it says is its own Submission's.
        about = [payload.get("submissionId"), run.removeprefix(_RUN) if isinstance(run, str) else None]
        named = [self._existing(sid, number) for sid in about if isinstance(sid, str)]
        if taken and not (named and named[0].redacted):
            _refuse("contradiction", f"record {line.sequence} is redacted, its Submission is not", number)
        if not redaction.well_formed(payload):
            _refuse("malformed", f"record {line.sequence} is redacted in a way of its own", number)
        match payload.get("kind"):
            case "UserInputRecorded":
                self._input(payload, line.sequence, number)
            case "ToolApprovalRequested" | "ToolCallUnknown" if isinstance(run, str):
                self._projected(payload, run.removeprefix(_RUN), number)
            case _:
                pass

    def _input(self, payload: dict[str, Any], sequence: int, number: int) -> None:
        known = self._existing(str(payload.get("submissionId")), number)
        known.recorded = True
        if known.applied not in (None, sequence):
            _refuse("contradiction", f"record {sequence} is not the input that its Submission names", number)
        if redaction.redacted(payload):
            return
        try:
            digest = digests.of_value(payload.get("input"))
        except Unpersistable as error:
            raise ArchiveDefect("bounds", f"the input in record {sequence}: {error}", number) from error
        if digest != known.input_digest:
            _refuse("contradiction", f"the input in record {sequence} is not the one that was admitted", number)

    def _projected(self, payload: dict[str, Any], submission_id: str, number: int) -> None:
        """What a projection follows from: its row must be there, and of no earlier Turn."""
        kind = "approval" if payload.get("kind") == "ToolApprovalRequested" else "unknown-call"
        call = (kind, submission_id, str(payload.get("toolCallId")))
        row = self._rows.get(call)
        if row is None:
            if not self._existing(submission_id, number).redacted:
                _refuse("contradiction", f"the ledger has no {kind} of {call[2][:80]}", number)
            return
        turn = payload.get("turn")
        if row.turn == turn or kind == "unknown-call":
            row.recorded = True
        elif isinstance(turn, int) and row.turn < turn:
            _refuse("contradiction", f"the ledger has an older {kind} of {call[2][:80]}", number)

    def log_read(self) -> None:
        """All of the log is known."""
        for sid, known in self._known.items():
            if not known.recorded and known.state in WAITING and not known.has_input:
                _refuse("reference", f"the input of {sid} is neither in the ledger nor in the log", known.line)
            if not known.recorded and known.state in CONSUMED:
                _refuse("reference", f"{sid} has no input record", known.line)
        for (kind, sid, call), row in self._rows.items():
            if not row.recorded and not self._known[sid].redacted:
                _refuse("reference", f"the log has nothing about the {kind} of {call[:80]}", row.line)

    def _once(self, key: tuple[str, ...], number: int) -> None:
        if key in self._commands:
            _refuse("identity", f"a second {key[0]} of {key[-1][:80]}", number)
        self._commands.add(key)

    def _existing(self, submission_id: str, number: int) -> _Known:
        known = self._known.get(submission_id)
        if known is None:
            _refuse("reference", f"{submission_id[:80]} is not in the archive", number)
        return known


def _rules(line: SubmissionLine) -> dict[str, bool]:
    settled = line.state is SubmissionState.SETTLED
    suspended = line.state is SubmissionState.SUSPENDED
    return {
        "settled work has an outcome, other work has none": settled == (line.outcome is not None),
        "settled work has its time": settled == (line.settled_at is not None),
        "a suspension has its reason": suspended == (line.suspension_reason is not None),
        "a suspension lists its calls": line.suspension_calls is None or _names(line.suspension_calls),
        "a suspension lists its children": line.suspension_children is None or _names(line.suspension_children),
        "joined work has its host": line.state not in (SubmissionState.JOINING, SubmissionState.JOINED)
        or line.host_submission_id is not None,
        "a consumed input has its place in the log": line.state not in CONSUMED or line.input_applied is not None,
        "an abort has its author": (line.abort_at is None) == (line.abort_author is None),
        "only settled work is redacted": settled or line.redacted_at is None,
        "admission facts are whole": line.admission_facts is None or _canonical(line.admission_facts),
        "a parent is named whole": (line.parent_submission_id is None) == (line.parent_call_id is None),
    }


def _canonical(text: str) -> bool:
    try:
        return canonical(parse(text)) == text
    except ValueError:
        return False


def _names(text: str) -> bool:
    return _canonical(text) and isinstance(value := parse(text), list) and all(isinstance(name, str) for name in value)


def _has_digest(text: str, digest: str) -> bool:
    return _canonical(text) and digests.of_text(text) == digest


def _refuse(reason: str, told: str, number: int) -> NoReturn:
    raise ArchiveDefect(reason, told, number)
