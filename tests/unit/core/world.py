"""A fake ledger and a fake shell for the maintenance core: a clock one can set, and answers one can stage."""

from collections.abc import Callable
from dataclasses import dataclass, field

from thread_objects.contract.activities import AttemptAnswer, RecoverAnswer
from thread_objects.contract.states import Disposition, SubmissionState
from thread_objects.contract.views import Decided, Fault, Recovered, Registry, RowView, Survey, ThreadView
from thread_objects.core import command
from thread_objects.core.due_queue import NATIVE, DueQueue, Row
from thread_objects.core.event import Event, PassReport
from thread_objects.core.maintenance import Maintenance, MaintenanceConfig, MaintenanceState
from thread_objects.core.record import MaintenanceRecord

READY, APPLIED, SUSPENDED, UNKNOWN = "ready", "input-applied", "suspended", "unknown"
PARKABLE = ("ready", "joined", "suspended")


@dataclass
class Submission:
    """One nonterminal row of the fake ledger."""

    sid: str
    sequence: int
    state: str = READY
    abort: bool = False

    def view(self) -> RowView:
        return RowView(
            submission_id=self.sid,
            queue_sequence=self.sequence,
            state=SubmissionState(self.state),
            abort_requested=self.abort,
        )


def fault(thread_id: str, retry_at: int) -> Fault:
    """A retained fault of a Thread."""
    return Fault(
        thread_id=thread_id,
        phase="recovery",
        reason="failure",
        error_tag="E",
        operation="read",
        first_failed_at=0,
        last_failed_at=0,
        retry_at=retry_at,
        attempts=1,
    )


@dataclass
class World:
    """Rows by thread, retained faults, duties; answers of the activities are computed from them."""

    rows: dict[str, list[Submission]] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)
    duties: list[str] = field(default_factory=list)
    settled: list[str] = field(default_factory=list)
    truncated: bool = False
    sequence: int = 0

    def submit(self, thread: str, sid: str | None = None, state: str = READY, *, abort: bool = False) -> str:
        """Admit one Submission."""
        self.sequence += 1
        sid = sid or f"s{self.sequence}"
        self.rows.setdefault(thread, []).append(Submission(sid, self.sequence, state, abort))
        return sid

    def head(self, thread: str) -> Submission | None:
        """The lowest row after the skipped unknown ones."""
        return next((row for row in self.rows.get(thread, []) if row.state != UNKNOWN or row.abort), None)

    def view(self, thread: str) -> ThreadView:
        """The folded view of one Thread."""
        rows = self.rows.get(thread, [])
        head = self.head(thread)
        skipped = [row for row in rows if row.state == UNKNOWN and not row.abort]
        others = [row for row in rows if row is not head and row not in skipped]
        quiet = [row for row in others if row.state in PARKABLE and not row.abort]
        return ThreadView(
            thread_id=thread,
            nonterminal=len(rows),
            head=head.view() if head else None,
            unknown=len(skipped),
            quiet=len(quiet),
            busy=len(others) - len(quiet),
            fault_retry_at=self.faults.get(thread),
        )

    def survey(self) -> Survey:
        """All Threads with rows, by id."""
        threads = tuple(self.view(thread) for thread in sorted(self.rows) if self.rows[thread])
        return Survey(threads=threads, truncated=self.truncated, duties=tuple(self.duties))

    def settle(self, thread: str) -> str:
        """Settle the head."""
        head = self.head(thread)
        assert head is not None
        self.rows[thread].remove(head)
        self.settled.append(head.sid)
        return head.sid

    def attempted(self, thread: str, ended: str = "settled", *, registry: Registry | None = None, **changes):
        """The answer of an Attempt that ended so; a settling one settles the head."""
        head = self.head(thread)
        sid = self.settle(thread) if ended == "settled" else (head.sid if head else None)
        if ended in (SUSPENDED, UNKNOWN) and head is not None:
            head.state = ended
        recovered = changes.pop("recovered", None) or Recovered(thread_id=thread)
        return AttemptAnswer(
            attempt_id="a",
            ended=ended,
            submission_id=sid,
            agent_id="agent",
            recovered=recovered,
            view=self.view(thread),
            registry=registry or Registry(),
            **changes,
        )

    def recovered(self, thread: str, decision: str = "", disposition: str = "deferred", **changes) -> RecoverAnswer:
        """The answer of recovering a Thread, with one decision for its head (or its first row)."""
        rows = self.rows.get(thread, [])
        head = self.head(thread) or (rows[0] if rows else None)
        decided = ()
        if decision and head is not None:
            decided = (Decided(submission_id=head.sid, decision=decision, disposition=Disposition(disposition)),)
        changes.setdefault("recovered", len(decided))
        changes.setdefault("repaired", disposition == "repaired")
        return RecoverAnswer(
            recovered=Recovered(thread_id=thread, decisions=decided, **changes), view=self.view(thread)
        )


@dataclass
class Shell:
    """Drives one Maintenance. `now` is set by the test; `commands` are those started and not yet answered."""

    world: World = field(default_factory=World)
    config: MaintenanceConfig = field(default_factory=MaintenanceConfig)
    state: MaintenanceState = field(default_factory=MaintenanceState)
    now: int = 1_000
    j: float = 0.0
    commands: list[command.Command] = field(default_factory=list)
    log: list[command.Command] = field(default_factory=list)
    event: Event | None = None

    def __post_init__(self) -> None:
        self.maintenance = Maintenance(self.state, self.config)

    # --- staging ----------------------------------------------------------------------------------------------

    def restart(self) -> None:
        """A new incarnation from the carried state."""
        self.state = MaintenanceState.from_json(self.state.to_json())
        self.maintenance = Maintenance(self.state, self.config)
        self.event = None
        self.commands.clear()
        self.maintenance.ensure_alarm(self.now)

    def mutate(self, *, progressed: bool = True, lanes: tuple[str, ...] = ()) -> None:
        """One whole mutation, as the pump makes it, with the survey of its transaction."""
        mutation = self.maintenance.prearm(self.now, lanes=lanes)
        self.maintenance.release(mutation, self.now, progressed=(NATIVE,) if progressed else ())
        self.maintenance.note_survey(self.world.survey(), self.now)
        self.maintenance.hint(self.now)

    def submit(self, thread: str, sid: str | None = None, **row) -> str:
        """Admit a Submission by a mutation."""
        sid = self.world.submit(thread, sid, **row)
        self.mutate()
        return sid

    # --- one event by hand ------------------------------------------------------------------------------------

    def begin(self) -> list[command.Command]:
        """Begin an event and advance it once."""
        self.event = self.maintenance.begin_event(self.now)
        return self.advance()

    def advance(self) -> list[command.Command]:
        """Advance, and keep what was started. Commands that were cancelled stay open until they are answered."""
        started = self.event.advance(self.now, self.j)
        self.log.extend(started)
        self.commands.extend(c for c in started if not isinstance(c, command.Cancel))
        return started

    def survey(self) -> list[command.Command]:
        """Answer the open survey."""
        self._close(command.Survey)
        self.event.surveyed(self.world.survey(), self.now)
        return self.advance()

    def attempted(self, thread: str, ended: str = "settled", **changes) -> list[command.Command]:
        """Answer an Attempt."""
        self._close(command.AttemptThread, thread)
        self.event.attempt_ended(thread, self.world.attempted(thread, ended, **changes), self.now)
        return self.advance()

    def attempt_failed(self, thread: str, failure: str = "Defect") -> list[command.Command]:
        """An Attempt's activity failed."""
        self._close(command.AttemptThread, thread)
        self.event.attempt_failed(thread, failure, self.now)
        return self.advance()

    def recovered(self, thread: str, *decision: str, **changes) -> list[command.Command]:
        """Answer a recovery page."""
        self._close(command.RecoverThread, thread)
        self.event.recovered(thread, self.world.recovered(thread, *decision, **changes), self.now)
        return self.advance()

    def lane(self, lane: str, due_at: int | None = None, **facts) -> list[command.Command]:
        """A lane's wave ended well."""
        self._close(command.RunLane, lane)
        self.event.lane_ended(lane, due_at, self.now, **facts)
        return self.advance()

    def lane_failed(self, lane: str, failure: str = "LaneError") -> list[command.Command]:
        """A lane's wave failed."""
        self._close(command.RunLane, lane)
        self.event.lane_failed(lane, failure, self.now)
        return self.advance()

    def published(self, due_at: int | None = None) -> list[command.Command]:
        """The publication wave ended."""
        self._close(command.Publish)
        self.event.published(due_at, self.now)
        return self.advance()

    def finish(self) -> PassReport:
        """The alarm decision."""
        assert self.event.done, self.commands
        assert not self.commands, self.commands
        report = self.event.finish(self.now, self.j)
        self.event = None
        return report

    def _close(self, kind: type, key: str | None = None) -> None:
        found = [c for c in self.commands if isinstance(c, kind) and key in (None, key_of(c))]
        assert found, f"no open {kind.__name__} {key}: {self.commands}"
        self.commands.remove(found[0])

    # --- whole events ------------------------------------------------------------------------------------------

    def run_pass(
        self,
        attempt: Callable[[str], AttemptAnswer] | None = None,
        recover: Callable[[str], RecoverAnswer] | None = None,
        lane: Callable[[str], int | None] | None = None,
        publish: Callable[[], int | None] | None = None,
    ) -> PassReport:
        """One pass in which every command is answered at once, oldest first."""
        attempt = attempt or self.world.attempted
        recover = recover or self.world.recovered
        self.begin()
        while not self.event.done:
            assert self.commands, "the event waits for nothing"
            asked = self.commands.pop(0)
            match asked:
                case command.Survey():
                    self.event.surveyed(self.world.survey(), self.now)
                case command.AttemptThread(thread_id=thread):
                    self.event.attempt_ended(thread, attempt(thread), self.now)
                case command.RecoverThread(thread_id=thread):
                    self.event.recovered(thread, recover(thread), self.now)
                case command.RunLane(lane=name):
                    self.event.lane_ended(name, lane(name) if lane else None, self.now)
                case command.Publish():
                    self.event.published(publish() if publish else None, self.now)
            self.advance()
        return self.finish()

    def alarm(self) -> int | None:
        """The maintenance deadline."""
        return self.maintenance.alarm.deadline


def key_of(asked: command.Command) -> str | None:
    """What a command is about."""
    return getattr(asked, "thread_id", None) or getattr(asked, "lane", None)


def names(commands: list[command.Command]) -> list[str]:
    """Commands in short: "Survey", "AttemptThread A", "Cancel AttemptThread A"."""
    told = []
    for asked in commands:
        inner = asked.command if isinstance(asked, command.Cancel) else asked
        prefix = "Cancel " if isinstance(asked, command.Cancel) else ""
        told.append(f"{prefix}{type(inner).__name__} {key_of(inner) or ''}".strip())
    return told


def state_of(*rows: Row, record: MaintenanceRecord | None = None, slot: int | None = None) -> MaintenanceState:
    """A state with exactly these rows and this record."""
    state = MaintenanceState()
    state.queue = DueQueue(rows)
    if record is not None:
        state.record = record
        state.initialised = True
    state.alarm.deadline = slot
    return state
