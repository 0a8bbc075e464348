"""A Thread's log folded by Run: what was said, declared, settled, and what is still open.

Rule guarded: whatever a crash left behind, the fold of the same records is the same, and each Run is one
contiguous part of the conversation, in the order of its input, however its records interleave with later ones
(a Run parked for an unknown outcome goes on after later input ran).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import JsonValue

from thread_objects.contract import ids, records
from thread_objects.contract.messages import LogRecord
from thread_objects.contract.records import PAYLOADS, DeclaredCall
from thread_objects.contract.states import CallKind, Decision, Outcome, Resolution, ToolClass
from thread_objects.core import redaction

_PERMITS = (Resolution.NEVER_STARTED, Resolution.SAFE_RETRY)


@dataclass(slots=True)
class Call:
    """One declared call and all the log says of it. `permit`: its newest word is a permission to run."""

    declared: DeclaredCall
    settled: records.ToolCallSettled | None = None
    unknown: bool = False
    permit: bool = False
    requested: str | None = None
    decision: Decision | None = None
    resolver: str = ""
    denial: str = ""

    @property
    def ordinary(self) -> bool:
        """An ordinary call whose loss would leave an effect uncertain."""
        return (
            self.declared.call_kind is CallKind.ORDINARY
            and self.declared.tool_class is not ToolClass.READONLY
            and not self.declared.rejected
        )

    @property
    def held(self) -> bool:
        """An approval is asked, or will be, before any handler of the Turn starts."""
        return self.requested is not None or (self.declared.approval and not self.declared.rejected)


@dataclass(slots=True)
class Turn:
    """One model response and its batch."""

    turn: int
    messages: list[dict[str, Any]]
    calls: dict[str, Call]
    state: dict[str, JsonValue] = field(default_factory=dict)
    input_tokens: int | None = None
    output_tokens: int | None = None

    @property
    def closed(self) -> bool:
        """Every call has its result."""
        return all(call.settled is not None for call in self.calls.values())

    @property
    def unstarted(self) -> bool:
        """Proof that no handler of the Turn can have started: an approval that comes before dispatch is not given."""
        return any(
            call.decision is not Decision.APPROVED
            and (call.requested is not None or (call.declared.approval and not call.declared.rejected))
            for call in self.calls.values()
        )


@dataclass(frozen=True, slots=True)
class JoinedInput:
    """Queued input that a Run took, after so many of its Turns."""

    submission_id: str
    input: JsonValue
    after: int


@dataclass(slots=True)
class RunLog:
    """One Run, from its input to its end."""

    run_id: str
    submission_id: str
    input: JsonValue
    started_at: int = 0
    deadline_at: int | None = None
    turns: list[Turn] = field(default_factory=list)
    joined: list[JoinedInput] = field(default_factory=list)
    completed: records.RunCompleted | None = None
    failed: records.RunFailed | None = None
    abort: bool = False
    interruptions: int = 0
    outcome: Outcome | None = None
    steps: dict[tuple[str, str], records.ToolStepSettled] = field(default_factory=dict)
    version: int = 0
    """Grows with every record of the Run, so that whatever was derived from it can be kept until then."""

    @property
    def last(self) -> Turn | None:
        """The Turn in progress, or the last one."""
        return self.turns[-1] if self.turns else None

    def turn(self, number: int) -> Turn | None:
        """The Turn of this number."""
        return self.turns[number - 1] if 0 < number <= len(self.turns) else None

    def call_ids(self) -> set[str]:
        """Every call id the Run has used."""
        return {call_id for turn in self.turns for call_id in turn.calls}


@dataclass(slots=True)
class Folded:
    """One batch that was folded in: its facts, and the sequence it ends with."""

    batch_id: str
    through: int
    payloads: list[records.AnyPayload]


def facts_of(record: LogRecord) -> list[records.AnyPayload]:
    """What a record tells: nothing, once it is redacted. A Run that retention took is no part of the conversation."""
    if redaction.redacted(record.payload):
        return []
    return [PAYLOADS.validate_python({"kind": record.kind, **record.payload})]


class Transcript:
    """The Runs of one Thread in the order of their inputs. `through` is the last sequence folded in."""

    def __init__(self) -> None:
        self.runs: dict[str, RunLog] = {}
        self._taken: dict[str, records.UserInputRecorded] = {}
        """Inputs that other Runs took, by the Run they get when they come back."""
        self.through = 0
        self.since = 0
        """Where `recent` begins: what came before was read from checkpoints, or is held by them."""
        self.recent: list[Folded] = []
        """The batches folded in since then, for the next checkpoint."""
        self.retained_at = 0
        """When retention had last taken content from the Thread as this was read."""
        self.weight_bytes = 0
        """About how much memory all of it takes."""
        self.derived: dict[str, Any] = {}
        """What readers made of it, by reader; kept as long as the transcript is."""

    def extend(self, log: Iterable[LogRecord]) -> None:
        """Fold in the records that follow `through`. Raises `ValueError` for a payload that does not decode."""
        for record in log:
            self.take(record.batch_id, facts_of(record), record.sequence)

    def take(self, batch_id: str, payloads: Sequence[records.AnyPayload], through: int) -> None:
        """Fold in a batch, or a part of one, that ends with this sequence."""
        for payload in payloads:
            self.apply(payload)
        if self.recent and self.recent[-1].batch_id == batch_id:
            self.recent[-1].payloads.extend(payloads)
            self.recent[-1].through = through
        else:
            self.recent.append(Folded(batch_id, through, list(payloads)))
        self.through = through

    def held(self, through: int) -> None:
        """Checkpoints hold everything up to the end of this batch."""
        self.recent = [batch for batch in self.recent if batch.through > through]
        self.since = through

    def run_of(self, submission_id: str) -> RunLog | None:
        """The Run of a Submission, if its input is recorded."""
        return self.runs.get(ids.run_id(submission_id))

    def before(self, run: RunLog) -> list[RunLog]:
        """The Runs whose input came earlier."""
        earlier: list[RunLog] = []
        for other in self.runs.values():
            if other is run:
                break
            earlier.append(other)
        return earlier

    def apply(self, payload: records.AnyPayload) -> None:
        """Fold in one fact."""
        self.weight_bytes += _weight_bytes(payload)
        match payload:
            case records.UserInputRecorded():
                found = self._input(payload)
                if found is None:
                    return
                run = found
            case records.SubmissionSettled() | records.AbortRequested():
                found = self.run_of(payload.submission_id)
                if found is None:
                    return
                run = found
                if isinstance(payload, records.AbortRequested):
                    run.abort = True
                else:
                    run.outcome = payload.outcome
            case records.ThreadCreated() | records.RepairAnnotated() | records.SubagentLineageRecorded():
                return
            case _:
                if isinstance(payload, records.RunStarted):
                    self._came_back(payload.run_id)
                found = self.runs.get(payload.run_id)
                if found is None:
                    return
                run = found
                _fold(run, payload)
        run.version += 1

    def _input(self, payload: records.UserInputRecorded) -> RunLog | None:
        """The Run that an input begins, or that took it."""
        own = ids.run_id(payload.submission_id)
        if payload.run_id in (None, own):
            return self.runs.setdefault(own, RunLog(own, payload.submission_id, payload.input))
        self._taken[own] = payload
        host = self.runs.get(payload.run_id or "")
        if host is not None:
            host.joined.append(JoinedInput(payload.submission_id, payload.input, len(host.turns)))
        return host

    def _came_back(self, run_id: str) -> None:
        """A Run starts on input that its host never answered: its place in the conversation is here."""
        taken = self._taken.pop(run_id, None)
        if taken is not None:
            self.runs.setdefault(run_id, RunLog(run_id, taken.submission_id, taken.input))


_FACT_BYTES = 512
"""An object with its fields; most facts are no more, and some leave nothing behind."""
_VALUE_BYTES = 96
"""A value inside a container, with its place in it."""


def _weight_bytes(payload: records.AnyPayload) -> int:
    """About what a fact takes in memory. What a model said or read is held twice: as it came, and decoded."""
    match payload:
        case records.UserInputRecorded():
            return _FACT_BYTES + 2 * _value_bytes(payload.input)
        case records.ModelResponseRecorded():
            arguments = sum(_FACT_BYTES + _value_bytes(call.arguments) for call in payload.calls)
            return _FACT_BYTES + 2 * _value_bytes(payload.messages) + arguments
        case records.ToolCallSettled():
            return _FACT_BYTES + 2 * (_value_bytes(payload.result) + _value_bytes([payload.part, *payload.extra]))
        case records.ToolStepSettled() | records.RunCompleted():
            return _FACT_BYTES + _value_bytes(payload.output)
        case _:
            return _FACT_BYTES


def _value_bytes(value: Any) -> int:
    total, open_values = 0, [value]
    while open_values:
        item = open_values.pop()
        total += _VALUE_BYTES
        if isinstance(item, str):
            total += len(item)
        elif isinstance(item, dict):
            open_values.extend(item.values())
        elif isinstance(item, list):
            open_values.extend(item)
    return total


def _fold(run: RunLog, payload: records.AnyPayload) -> None:
    match payload:
        case records.RunStarted():
            run.started_at, run.deadline_at = payload.started_at, payload.deadline_at
        case records.ModelResponseRecorded():
            run.turns.append(
                Turn(
                    turn=payload.turn,
                    messages=payload.messages,
                    calls={call.tool_call_id: Call(call) for call in payload.calls},
                    state=payload.state,
                    input_tokens=payload.input_tokens,
                    output_tokens=payload.output_tokens,
                )
            )
        case records.ModelResponseInterrupted():
            run.interruptions += 1
        case records.ToolStepSettled():
            run.steps[payload.tool_call_id, payload.step_name] = payload
        case records.RunCompleted():
            run.completed = payload
        case records.RunFailed():
            run.failed = payload
        case (
            records.ToolCallSettled()
            | records.ToolCallUnknown()
            | records.ToolCallResolved()
            | records.ToolApprovalRequested()
            | records.ToolApprovalDecided()
        ):
            call = _call(run, payload.turn, payload.tool_call_id)
            if call is not None:
                _fold_call(call, payload)
        case _:
            pass


def _call(run: RunLog, turn: int, tool_call_id: str) -> Call | None:
    numbered = run.turn(turn)
    if numbered is not None:
        return numbered.calls.get(tool_call_id)
    return next((t.calls[tool_call_id] for t in reversed(run.turns) if tool_call_id in t.calls), None)


def _fold_call(
    call: Call,
    payload: records.ToolCallSettled
    | records.ToolCallUnknown
    | records.ToolCallResolved
    | records.ToolApprovalRequested
    | records.ToolApprovalDecided,
) -> None:
    match payload:
        case records.ToolCallSettled():
            call.settled = payload
        case records.ToolCallUnknown():
            call.unknown, call.permit = True, False
        case records.ToolCallResolved():
            call.permit = payload.resolution in _PERMITS
        case records.ToolApprovalRequested():
            if payload.blocks_initial_dispatch:
                call.requested = payload.arguments_digest
        case records.ToolApprovalDecided():
            call.decision, call.resolver, call.denial = payload.decision, payload.resolver, payload.reason
