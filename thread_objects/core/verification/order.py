"""First in, first out: inputs enter the log in queue order, and Runs settle in the order they were let in.

Exempt from the order of settlements: aborted work that never had an input, and a Run that was let in past an older
one which was parked at that moment (a call of unknown outcome, neither an abort nor an end of its Run on record).
"""

from dataclasses import dataclass, field

from thread_objects.contract import ids
from thread_objects.contract import records as r
from thread_objects.contract.reports import Check
from thread_objects.contract.states import SubmissionState
from thread_objects.core.verification.complaints import Complaints
from thread_objects.core.verification.inputs import LedgerRow


@dataclass(slots=True)
class _Run:
    """A Run with its input on record and no settlement yet."""

    submission_id: str
    queue_sequence: int
    behind: tuple[str, ...] = ()
    """Older Runs that were at work when this one was let in; they settle first."""
    unknown: set[tuple[int, str]] = field(default_factory=set)
    over: bool = False
    """An abort or an end of the Run is on record."""

    @property
    def parked(self) -> bool:
        return bool(self.unknown) and not self.over


class OrderChecks:
    """fifo-input-order and fifo-settlement-order."""

    def __init__(self, rows: dict[str, LedgerRow]) -> None:
        self._rows = rows
        self._inputs = Complaints("fifo-input-order")
        self._settlements = Complaints("fifo-settlement-order")
        self._open: dict[str, _Run] = {}
        self._working: set[str] = set()
        self._last_input = 0
        self._waiting = sorted(
            (row.queue_sequence, row.submission_id)
            for row in rows.values()
            if row.state in (SubmissionState.ADMITTED, SubmissionState.READY)
        )

    def read(self, payload: r.AnyPayload) -> None:
        """The next record's payload."""
        match payload:
            case r.UserInputRecorded():
                self._input(payload.submission_id)
            case r.SubmissionSettled():
                self._settled(payload.submission_id)
            case r.AbortRequested():
                run = self._open.get(payload.submission_id)
                if run is not None:
                    run.over = True
                    self._place(run)
            case r.RunCompleted() | r.RunFailed():
                run = self._of(payload.run_id)
                if run is not None:
                    run.over = True
                    self._place(run)
            case r.ToolCallUnknown() | r.ToolCallSettled() | r.ToolCallResolved():
                self._call(payload)
            case _:
                pass

    def _of(self, run_id: str) -> _Run | None:
        return self._open.get(run_id.removeprefix(ids.run_id("")))

    def _call(self, payload: r.ToolCallUnknown | r.ToolCallSettled | r.ToolCallResolved) -> None:
        run = self._of(payload.run_id)
        if run is None:
            return
        if isinstance(payload, r.ToolCallUnknown):
            run.unknown.add((payload.turn, payload.tool_call_id))
        else:
            # A record without a turn speaks of whatever is open under its call id.
            run.unknown = {
                (turn, call_id)
                for turn, call_id in run.unknown
                if call_id != payload.tool_call_id or (payload.turn and turn != payload.turn)
            }
        self._place(run)

    def _place(self, run: _Run) -> None:
        if run.parked:
            self._working.discard(run.submission_id)
        else:
            self._working.add(run.submission_id)

    def _input(self, submission_id: str) -> None:
        row = self._rows.get(submission_id)
        if row is None or submission_id in self._open:
            return  # told by the checks on agreement and identity
        if row.queue_sequence <= self._last_input:
            place = f"number {row.queue_sequence} in the queue"
            self._inputs.add(f"{submission_id} is {place}, its input follows that of number {self._last_input}")
        self._last_input = max(self._last_input, row.queue_sequence)
        older = sorted(other for other in self._working if self._open[other].queue_sequence < row.queue_sequence)
        run = _Run(submission_id, row.queue_sequence, tuple(older))
        self._open[submission_id] = run
        self._place(run)

    def _settled(self, submission_id: str) -> None:
        run = self._open.pop(submission_id, None)
        if run is None:
            return  # never had an input, or was settled before
        self._working.discard(submission_id)
        for other in run.behind:
            if other in self._open:
                self._settlements.add(f"{submission_id} settled before {other}, which was let in first")

    def checks(self) -> tuple[Check, Check]:
        """The two checks, when all records were read."""
        for queue_sequence, submission_id in self._waiting:
            if queue_sequence < self._last_input and submission_id not in self._open:
                self._inputs.add(f"{submission_id} is number {queue_sequence} in the queue and was passed over")
        return self._inputs.check(), self._settlements.check()
