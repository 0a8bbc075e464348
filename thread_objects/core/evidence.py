"""Reads a Submission's canonical records into recovery evidence.

Pure: the records of the Submission and its Run, in the log's order, are all it looks at. Calls are known by
(turn, call id); a record that names no turn speaks of the newest declaration of its call id before it.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from thread_objects.contract import ids
from thread_objects.contract import records as r
from thread_objects.contract.messages import LogRecord, UsageSummary
from thread_objects.contract.states import CallKind, Outcome, Resolution, ToolClass
from thread_objects.contract.states import Decision as ApprovalDecision
from thread_objects.core.recovery.delegation import RELEASED
from thread_objects.core.recovery.evidence import (
    BatchApproval,
    DelegationCall,
    Evidence,
    OpenCall,
    PendingApproval,
    PendingBatch,
    Resolved,
    WorkerCall,
)
from thread_objects.core.recovery.snapshot import Snapshot

CLOSING = frozenset([Resolution.COMPLETED_WITH_RESULT, Resolution.FAILED_WITH_ERROR])
"""Resolutions that close a call. The others permit a run and close nothing."""


class UndecodableRecord(ValueError):
    """A committed record that this version cannot read. It is refused, never guessed at."""

    def __init__(self, record: LogRecord) -> None:
        super().__init__(f"record {record.record_id} of kind {record.kind} cannot be decoded")
        self.thread_id = record.thread_id
        self.sequence = record.sequence
        self.kind = record.kind


@dataclass(slots=True)
class _Call:
    """What the log says of one call, gathered while reading."""

    turn: int
    declared: r.DeclaredCall
    settled: bool = False
    closed: bool = False
    marked: bool = False
    unknown_records: int = 0
    resolutions: list[Resolved] = field(default_factory=list)
    requested: bool = False
    blocks_dispatch: bool = False
    decision: ApprovalDecision | None = None
    earlier_decisions: int = 0
    child_requested: r.SubagentRequested | None = None
    child_started: r.SubagentStarted | None = None
    child_joined: r.SubagentJoined | None = None

    @property
    def unapproved(self) -> bool:
        """An approval that every handler of the Turn waits for is not canonically given."""
        needed = self.blocks_dispatch or (self.declared.approval and not self.declared.rejected and not self.requested)
        return needed and self.decision is not ApprovalDecision.APPROVED


def _undeclared(turn: int, call_id: str, name: str, kind: CallKind) -> _Call:
    # A record about a call whose response is missing: nothing is known of the call, so the worst is assumed.
    declared = r.DeclaredCall(tool_call_id=call_id, tool_name=name, arguments=None, arguments_digest="", call_kind=kind)
    return _Call(turn, declared)


class _Reading:
    """One pass over the records."""

    def __init__(self, sid: str) -> None:
        self.sid = sid
        self.run_id = ids.run_id(sid)
        self.input_sequence: int | None = None
        self.outcome: Outcome | None = None
        self.abort_recorded = False
        self.response_sequence = 0
        self.last_response: r.ModelResponseRecorded | None = None
        self.calls: dict[tuple[int, str], _Call] = {}
        self.newest: dict[str, int] = {}
        self.requests: list[tuple[int, str]] = []
        self.unknown_batches: dict[int, set[str]] = {}
        self.spent: list[tuple[int | None, int | None]] = []
        self.deadline_at: int | None = None
        self.lineages: list[r.SubagentLineageRecorded] = []

    def read(self, record: LogRecord) -> None:  # noqa: C901 - one arm per kind
        try:
            payload = r.PAYLOADS.validate_python(record.payload)
        except ValueError as error:
            raise UndecodableRecord(record) from error
        if getattr(payload, "submission_id", self.sid) != self.sid:
            return
        if isinstance(payload, r.UserInputRecorded):
            # Also where another Run took it: whose input it is decides, not who recorded it.
            self.input_sequence = record.sequence
            return
        if isinstance(payload, r.SubmissionSettled):
            # A joined Submission's names its host's Run: it is the settlement all the same.
            self.outcome = payload.outcome
            return
        if (getattr(payload, "run_id", None) or self.run_id) != self.run_id:
            return
        match payload:
            case r.AbortRequested():
                self.abort_recorded = True
            case r.RunStarted():
                self.deadline_at = payload.deadline_at
            case r.SubagentRequested() | r.SubagentStarted() | r.SubagentJoined():
                self._about_child(payload)
            case r.SubagentLineageRecorded():
                self.lineages.append(payload)
            case r.ModelResponseRecorded():
                self.response_sequence = record.sequence
                self._response(payload)
            case (
                r.ToolCallSettled()
                | r.ToolCallUnknown()
                | r.ToolCallResolved()
                | r.ToolApprovalRequested()
                | r.ToolApprovalDecided()
            ):
                self._about_call(payload, record)
            case _:
                pass

    def _response(self, response: r.ModelResponseRecorded) -> None:
        self.last_response = response
        self.spent.append((response.input_tokens, response.output_tokens))
        for declared in response.calls:
            self.calls[response.turn, declared.tool_call_id] = _Call(response.turn, declared)
            self.newest[declared.tool_call_id] = response.turn

    def _call(self, turn: int, call_id: str, name: str, kind: CallKind = CallKind.ORDINARY) -> _Call:
        turn = turn or self.newest.get(call_id, 0)
        self.newest.setdefault(call_id, turn)
        return self.calls.setdefault((turn, call_id), _undeclared(turn, call_id, name, kind))

    def _about_child(self, payload: r.SubagentRequested | r.SubagentStarted | r.SubagentJoined) -> None:
        call = self._call(getattr(payload, "turn", 0), payload.tool_call_id, "", CallKind.DELEGATION)
        match payload:
            case r.SubagentRequested():
                call.child_requested = payload
            case r.SubagentStarted():
                call.child_started = payload
            case r.SubagentJoined():
                call.child_joined = payload

    def _about_call(
        self,
        payload: r.ToolCallSettled
        | r.ToolCallUnknown
        | r.ToolCallResolved
        | r.ToolApprovalRequested
        | r.ToolApprovalDecided,
        record: LogRecord,
    ) -> None:
        call = self._call(payload.turn, payload.tool_call_id, getattr(payload, "tool_name", ""))
        match payload:
            case r.ToolCallSettled():
                call.settled = call.closed = True
            case r.ToolCallUnknown():
                call.marked = True
                call.unknown_records += 1
                self.unknown_batches.setdefault(call.turn, set()).add(record.batch_id)
            case r.ToolCallResolved():
                call.closed = call.closed or payload.resolution in CLOSING
                call.marked = False
                call.resolutions.append(Resolved(payload.resolution, payload.resolved_at))
            case r.ToolApprovalRequested():
                call.requested = True
                call.blocks_dispatch = payload.blocks_initial_dispatch
                call.earlier_decisions = sum(
                    other.decision is not None
                    for (turn, call_id), other in self.calls.items()
                    if call_id == payload.tool_call_id and turn != call.turn
                )
                self.requests.append((call.turn, payload.tool_call_id))
            case r.ToolApprovalDecided():
                call.decision = payload.decision

    # --- answers --------------------------------------------------------------------------------------------

    def open_calls(self) -> Iterable[_Call]:
        """Calls nothing closes and nothing proves unstarted."""
        held = {turn for (turn, _), call in self.calls.items() if call.unapproved}
        for (turn, _), call in self.calls.items():
            if not call.closed and turn not in held and not call.declared.rejected:
                yield call

    def open_tool_calls(self) -> tuple[OpenCall, ...]:
        """Uncertain calls, and every unclosed call with an unknown record."""
        uncertain = {
            (call.turn, call.declared.tool_call_id)
            for call in self.open_calls()
            if call.declared.call_kind is CallKind.ORDINARY and call.declared.tool_class is not ToolClass.READONLY
        }
        return tuple(
            self._open_call(call)
            for key, call in self.calls.items()
            if key in uncertain or (call.unknown_records and not call.closed)
        )

    def _open_call(self, call: _Call) -> OpenCall:
        declared = call.declared
        return OpenCall(
            call_id=declared.tool_call_id,
            name=declared.tool_name,
            turn=call.turn,
            tool_class=declared.tool_class,
            kind=declared.call_kind,
            arguments=declared.arguments,
            marked=call.marked,
            unknown_records=call.unknown_records,
            unknown_batches=len(self.unknown_batches.get(call.turn, ())),
            resolved_records=len(call.resolutions),
            resolved=tuple(
                past
                for (_, call_id), other in self.calls.items()
                if call_id == declared.tool_call_id
                for past in other.resolutions
            ),
        )

    def _of_kind(self, kind: CallKind) -> Iterable[_Call]:
        return (c for c in self.open_calls() if c.declared.call_kind is kind and not c.unknown_records)

    def delegation_calls(self, held: Collection[str]) -> tuple[DelegationCall, ...]:
        """Delegations with an open duty, by recorded kind: open ones, and those that still hold a child's budget."""
        unclosed = {(c.turn, c.declared.tool_call_id) for c in self._of_kind(CallKind.DELEGATION)}
        return tuple(
            _delegation(call)
            for (turn, call_id), call in self.calls.items()
            if (turn, call_id) in unclosed
            or (
                call_id in held
                and call.declared.call_kind is CallKind.DELEGATION
                and not call.unknown_records
                and (call.child_requested is not None or call.child_joined is not None)
            )
        )

    def worker_calls(self) -> tuple[WorkerCall, ...]:
        """Open orchestration calls, by recorded kind."""
        return tuple(WorkerCall(c.declared.tool_call_id, c.turn) for c in self._of_kind(CallKind.WORKER))

    def pending_batch(self) -> PendingBatch | None:
        """The last response, while a call of it has no settled record."""
        if self.last_response is None:
            return None
        turn = self.last_response.turn
        batch = [self.calls[turn, declared.tool_call_id] for declared in self.last_response.calls]
        if all(call.settled for call in batch):
            return None
        approvals = (call for call in batch if call.requested and not call.closed)
        return PendingBatch(
            turn,
            len(batch),
            tuple(BatchApproval(call.declared.tool_call_id, call.decision) for call in approvals),
        )

    def usage(self) -> UsageSummary:
        """Sums over all Attempts; None where no response told."""
        told_in = [tokens for tokens, _ in self.spent if tokens is not None]
        told_out = [tokens for _, tokens in self.spent if tokens is not None]
        return UsageSummary(
            turns=len(self.spent),
            tool_calls=sum(
                call.settled and call.declared.call_kind is not CallKind.OUTPUT for call in self.calls.values()
            ),
            input_tokens=sum(told_in) if told_in else None,
            output_tokens=sum(told_out) if told_out else None,
        )

    def approvals_pending(self) -> tuple[PendingApproval, ...]:
        """Requests without a canonical decision, in the order they were asked."""
        asked = ((key, self.calls[key]) for key in dict.fromkeys(self.requests))
        return tuple(
            PendingApproval(call_id, turn, call.earlier_decisions)
            for (turn, call_id), call in asked
            if call.decision is None
        )


def _delegation(call: _Call) -> DelegationCall:
    requested, started, joined = call.child_requested, call.child_started, call.child_joined
    known = started.child_submission_id if started else joined.child_submission_id if joined else None
    thread_id = started.child_thread_id if started else requested.child_thread_id if requested else None
    return DelegationCall(
        call_id=call.declared.tool_call_id,
        name=call.declared.tool_name,
        turn=call.turn,
        requested=requested is not None,
        started=started is not None,
        joined=joined is not None,
        child_thread_id=thread_id,
        child_submission_id=known,
        request=requested,
        accounting=joined.final_accounting if joined is not None else None,
    )


def _lineage_recorded(snapshot: Snapshot, lineages: Sequence[r.SubagentLineageRecorded]) -> bool:
    """The Thread says whose child it is, and says the same as its row."""
    return any(
        snapshot.parent_linkage == (said.parent_link.submission_id, said.parent_link.tool_call_id) for said in lineages
    )


def _host_facts(snapshot: Snapshot, own: _Reading, records: Sequence[LogRecord]) -> tuple[bool, Outcome | None]:
    """Whether the host's Run went past a joined input, and how the host settled."""
    if snapshot.host_submission_id is None:
        return True, None
    host = _Reading(snapshot.host_submission_id)
    for record in records:
        host.read(record)
    covered = own.input_sequence is not None and host.response_sequence > own.input_sequence
    return covered, host.outcome


def evidence_of(snapshot: Snapshot, records: Sequence[LogRecord], host_records: Sequence[LogRecord] = ()) -> Evidence:
    """The evidence in the canonical records of a Submission and its Run.

    `host_records` are those of the host, for a row that has one. Raises `UndecodableRecord` for a record that
    this version cannot read.
    """
    reading = _Reading(snapshot.submission_id)
    for record in records:
        reading.read(record)
    input_covered, host_outcome = _host_facts(snapshot, reading, host_records)
    return Evidence(
        thread_materialized=snapshot.thread_materialized or bool(records),
        input_recorded=reading.input_sequence is not None,
        settlement_outcome=reading.outcome,
        abort_recorded=reading.abort_recorded,
        open_tool_calls=reading.open_tool_calls(),
        open_delegation_calls=reading.delegation_calls(
            {row.parent_call_id for row in snapshot.child_reservations if row.status != RELEASED}
        ),
        open_worker_calls=reading.worker_calls(),
        pending_batch=reading.pending_batch(),
        approvals_pending=reading.approvals_pending(),
        joined_input_covered=input_covered,
        host_settlement_outcome=host_outcome,
        lineage_recorded=_lineage_recorded(snapshot, reading.lineages),
        deadline_at=reading.deadline_at,
        usage=reading.usage(),
    )
