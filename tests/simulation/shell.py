"""The workflow's shell as a machine: inbox, pump, passes and timer around the real core, one activation at a time.

It mirrors `workflows/`: a coroutine there is a named waiter here, and conditions are looked at in the order in which
they were registered, all of them before the first one goes on. It is deterministic, so that a journal replays it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.simulation.ledger import Item, ItemAnswer
from thread_objects.contract.activities import AttemptAnswer, RecoverAnswer
from thread_objects.contract.alarms import CancelAlarm, SetAlarm
from thread_objects.contract.limits import ENDED_ATTEMPTS_MAX
from thread_objects.contract.views import Registry, Survey
from thread_objects.core import command
from thread_objects.core.application_alarms import AlarmName, ApplicationAlarm
from thread_objects.core.backoff import backoff
from thread_objects.core.due_queue import NATIVE, PUBLICATION
from thread_objects.core.due_row import RowState, lane_label
from thread_objects.core.event import Event, PassReport
from thread_objects.core.gate import Mutation
from thread_objects.core.maintenance import Maintenance, MaintenanceConfig, MaintenanceState

BATCH_MAX = 3


@dataclass(frozen=True, slots=True)
class Entry:
    """One accepted mutation. `update`: its caller waits for the answer."""

    item: Item
    update: bool = False


@dataclass(frozen=True, slots=True)
class Wake:
    """A hint, with a mark that the sweep found or a registry that a worker announces."""

    mark: int | None = None
    registry: Registry | None = None
    late: bool = False


@dataclass(frozen=True, slots=True)
class Carried:
    """What continue-as-new hands on."""

    maintenance: dict[str, Any] | None = None
    inbox: tuple[Entry, ...] = ()
    next_n: int = 1
    next_mark: int = 1
    applied_through: int = 0
    unmark_through: int = 0
    ended: tuple[tuple[str, tuple[str, ...]], ...] = ()
    stalls: int = 0
    runs: int = 0
    told: tuple[str, ...] = ()
    """The books' own: parked rows that were reported."""


@dataclass(frozen=True, slots=True)
class Apply:
    """The local activity of a batch."""

    batch_id: str
    mark: int
    entries: tuple[Entry, ...]
    head_start: str | None = None


@dataclass(frozen=True, slots=True)
class Applied:
    """Its answer."""

    answers: tuple[ItemAnswer, ...]
    survey: Survey
    registry: Registry
    head_start: str | None = None


@dataclass(frozen=True, slots=True)
class ClearMark:
    """The local activity that forgets a mark."""

    through: int


@dataclass(frozen=True, slots=True)
class Deliver:
    """The activity of an application alarm."""

    alarm: ApplicationAlarm


@dataclass(frozen=True, slots=True)
class Start:
    """A regular activity that the server is asked to run once the task is complete."""

    serial: int
    command: command.Running | Deliver
    ended: tuple[str, ...] = ()
    applied_through: int = 0
    head_start: str | None = None

    @property
    def attempt_id(self) -> str:
        return self.head_start or f"a{self.serial}"


@dataclass(frozen=True, slots=True)
class Stop:
    """The cancellation of an activity."""

    serial: int


@dataclass(frozen=True, slots=True)
class Timer:
    """The physical timer; `at` None cancels it."""

    serial: int
    at: int | None


@dataclass(frozen=True, slots=True)
class Answered:
    """An update's caller was told; `refused`: busy, so that it may send the same again."""

    entry: Entry
    refused: bool


@dataclass(frozen=True, slots=True)
class Continue:
    """The run ends and a fresh one begins."""

    carried: Carried


@dataclass(slots=True)
class Books:
    """What the laws compare: passes, parked reports, and who was served when. Replayed with everything else."""

    passes: int = 0
    failed: int = 0
    told: set[str] = field(default_factory=set)
    missed: dict[str, int] = field(default_factory=dict)
    due_at_begin: frozenset[str] = frozenset()
    pages: set[tuple[str, str | None]] = field(default_factory=set)
    asked: dict[int, int] = field(default_factory=dict)
    read_through: int = 0
    waves: set[str] = field(default_factory=set)


class Broken(AssertionError):
    """A law does not hold."""


class Still:
    """No jitter: for a search that compares states."""

    def random(self) -> float:
        return 0.0


class Shell:
    """One workflow run. `tasks_max`: after so many workflow tasks it asks for a fresh history."""

    def __init__(self, config: MaintenanceConfig, carried: Carried, now: int, seed: int, tasks_max: int) -> None:
        self.config = config
        self.random = Random(seed) if seed else Still()
        self.run_id = carried.runs + 1
        self.tasks_left = tasks_max
        self.tasks_over = -(tasks_max // 4)
        self.now = now
        self.maintenance = Maintenance(MaintenanceState.from_json(carried.maintenance), config)
        self.state = self.maintenance.state
        self.inbox = list(carried.inbox)
        self.next_n = carried.next_n
        self.next_mark = carried.next_mark
        self.applied_through = carried.applied_through
        self.unmark_through = carried.unmark_through
        self.uncertified = carried.unmark_through > 0
        self.stalls = carried.stalls
        self.retry_at: int | None = None
        self.ended = {thread: list(ids) for thread, ids in carried.ended}
        self.begun: dict[str, str] = {}
        self.offered: tuple[str, ...] = ()
        self.attempt_ids: dict[int, str] = {}
        self.locals: dict[str, Any] = {}
        self.running: dict[int, command.Running] = {}
        self.commands: list[Any] = []
        self.event: Event | None = None
        self.revision = 0
        self.wake_at: int | None = None
        self.task = 0
        self.yielded = False
        self.ends: list[tuple[command.Running, Any, str | None, bool]] = []
        self.follow = False
        self.closing = False
        self.over = False
        self.batch: tuple[tuple[Entry, ...], int, Mutation] | None = None
        self.clearing: int | None = None
        # A committed batch whose publication hook runs: the mutation still counts as active.
        self.hook: tuple[int, Mutation, Applied] | None = None
        self.delivering: dict[int, ApplicationAlarm] = {}
        self.serial = carried.runs * 1_000_000
        self.timer_mode = "wanted"
        self.timer_serial = 0
        self.armed_for: int | None = None
        self.met: int | None = None
        self.books = Books(told=set(carried.told))
        self.touched_at = now
        # `bodies`: generations of mutations in hand. Kept apart from the gate, which is what is being tested.
        self.bodies: list[int] = []
        self.waiting = ["main", "pump", "timer", "deliveries"]
        self._tell_parked(self.maintenance.ensure_alarm(now))

    # --- one activation -------------------------------------------------------------------------------------------

    def activate(self, now: int, task: int, jobs: tuple[tuple[Any, ...], ...]) -> None:
        """Deliver jobs, then let every coroutine go on until all of them wait."""
        self.now = self.touched_at = now
        self.task = task
        for job in jobs:
            kind = job[0]
            if kind == "entry":
                self._take(job[1])
            elif kind == "wake":
                self._wake(job[1])
            elif kind == "alarm":
                self._alarm(job[1])
            elif kind == "schedule":
                self.maintenance.schedule(job[1], job[2], now, job[3])
                self.maintenance.hint(now)
            elif kind == "end":
                self._ended(job[1], job[2], job[3], job[4])
            elif kind == "local":
                self._local_ended(job[1], job[2], job[3])
            elif kind == "timer" and job[1] == self.timer_serial and self.timer_mode == "armed":
                self.armed_for, self.timer_mode = None, "wanted"
                self.waiting.append("timer")
        for _ in range(1_000):
            ready = [waiter for waiter in self.waiting if self._condition(waiter)]
            if not ready:
                return
            self.waiting = [waiter for waiter in self.waiting if waiter not in ready]
            for waiter in ready:
                self._resume(waiter)
        raise Broken("the coroutines wake one another for ever")

    def new_task(self) -> None:
        """Another workflow task was completed."""
        self.tasks_left -= 1

    def take_commands(self) -> list[Any]:
        taken, self.commands = self.commands, []
        return taken

    def _take(self, entry: Entry) -> None:
        if self.closing and entry.update:
            self.commands.append(Answered(entry, refused=True))
            return
        item = entry.item
        self.inbox.append(Entry(Item(self.next_n, item.kind, item.thread, item.what), entry.update))
        self.next_n += 1

    def _wake(self, wake: Wake) -> None:
        if wake.registry is not None:
            self.maintenance.observe_registry(wake.registry.key, wake.registry.deployment, self.now)
            if wake.late and wake.registry.key == self.state.registry_key:
                self.maintenance.look_again(self.now)
        if wake.mark is not None:
            self._note_mark(wake.mark)
        self.maintenance.hint(self.now)

    def _condition(self, waiter: str) -> bool:  # noqa: PLR0911 - one per waiter
        match waiter:
            case "main":
                return self._pass_due() or self._continue_wanted()
            case "drain":
                return not self._busy()
            case "deliveries":
                at = self._delivery_at()
                return at is not None and at <= self.now
            case "pump":
                return self._pump_can_start()
            case "pass":
                return (
                    bool(self.ends)
                    or self.maintenance.revision != self.revision
                    or (self.wake_at is not None and self.wake_at <= self.now)
                    or (not self.yielded and self._continue_wanted())
                )
        wanted = self._wanted()
        if self.timer_mode == "wanted":
            return wanted is not None
        if self.timer_mode == "met":
            return wanted != self.met
        return wanted is not None and self.armed_for is not None and wanted < self.armed_for

    def _resume(self, waiter: str) -> None:
        match waiter:
            case "main":
                self._main()
            case "drain":
                self._drained()
            case "pump":
                self._pump()
            case "pass":
                self._pass()
            case "deliveries":
                self._deliver()
            case "timer":
                self._follow_timer()

    # --- thread_object.py -----------------------------------------------------------------------------------------

    def _moving(self) -> bool:
        return self.tasks_left <= 0

    def _continue_wanted(self) -> bool:
        running = self.maintenance.applications.running
        return self._moving() and (not running or self.tasks_left <= self.tasks_over)

    def _busy(self) -> bool:
        return self.batch is not None or self.clearing is not None

    def _pass_due(self) -> bool:
        if self._busy():
            return False
        deadline = self.maintenance.alarm.deadline
        return self.follow or (deadline is not None and deadline <= self.now)

    def _main(self) -> None:
        if self._pass_due():
            self._begin_pass()
        elif self._continue_wanted():
            self.closing = True
            self.waiting.append("drain")
        else:
            self.waiting.append("main")

    def _drained(self) -> None:
        for entry in [entry for entry in self.inbox if entry.update]:
            self.inbox.remove(entry)
            self.commands.append(Answered(entry, refused=True))
        self.over = True
        self.waiting.clear()
        self.commands.append(Continue(self.carried()))

    def carried(self) -> Carried:
        """What the next run begins with."""
        return Carried(
            maintenance=self.state.to_json(),
            inbox=tuple(self.inbox),
            next_n=self.next_n,
            next_mark=self.next_mark,
            applied_through=self.applied_through,
            unmark_through=self.unmark_through,
            ended=tuple((thread, tuple(ids)) for thread, ids in sorted(self.ended.items())),
            stalls=self.stalls,
            runs=self.run_id,
            told=tuple(sorted(self.books.told)),
        )

    def _wanted(self) -> int | None:
        if self._busy() or (len(self.maintenance.applications) and self._decides_anew()):
            return None
        deadline = self.maintenance.alarm.deadline if self.event is None else self.event.wake_at()
        candidates = (self.retry_at, deadline, self._delivery_at())
        return min((instant for instant in candidates if instant is not None), default=None)

    def _decides_anew(self) -> bool:
        surveying = bool(self.ends) or "survey" in self.locals
        return surveying or (self.event is None and self._pass_due())

    # --- deliveries.py --------------------------------------------------------------------------------------------

    def _alarm(self, message: SetAlarm | CancelAlarm) -> None:
        applications = self.maintenance.applications
        if isinstance(message, SetAlarm):
            applications.set(message, self.now)
        else:
            applications.cancel(AlarmName(message.thread_id, message.tag, message.alarm_id))

    def _delivery_at(self) -> int | None:
        return None if self._moving() else self.maintenance.applications.next_at()

    def _deliver(self) -> None:
        for alarm in self.maintenance.applications.begin_due(self.now, self.random.random()):
            if any(other.name == alarm.name for other in self.delivering.values()):
                raise Broken(f"two deliveries of {alarm.name}")
            self.serial += 1
            self.delivering[self.serial] = alarm
            self.commands.append(Start(self.serial, Deliver(alarm)))
        self.waiting.append("deliveries")

    # --- timer.py -------------------------------------------------------------------------------------------------

    def _follow_timer(self) -> None:
        if self.timer_mode == "armed":
            self.commands.append(Timer(self.timer_serial, None))
            self.armed_for = None
        self.timer_mode = "wanted"
        deadline = self._wanted()
        if deadline is not None and deadline <= self.now:
            self.timer_mode, self.met = "met", deadline
        elif deadline is not None:
            self.timer_mode, self.armed_for = "armed", deadline
            self.timer_serial += 1
            self.commands.append(Timer(self.timer_serial, deadline))
        self.waiting.append("timer")

    # --- pump.py --------------------------------------------------------------------------------------------------

    def _pump_can_start(self) -> bool:
        if self.closing:
            return False
        if self.inbox:
            return self.retry_at is None or self.retry_at <= self.now or any(entry.update for entry in self.inbox)
        if self.unmark_through == 0 or not (self.retry_at is None or self.retry_at <= self.now):
            return False
        record = self.state.record
        return (self.event is None and record.processed >= record.dirty) or not self.uncertified

    def _pump(self) -> None:
        if not self.inbox:
            self.clearing = self.unmark_through
            self.locals["pump"] = ClearMark(self.unmark_through)
            return
        batch, mark = tuple(self.inbox[:BATCH_MAX]), self.next_mark
        offer = self._offer(batch, mark)
        self.next_mark += 1
        self.maintenance.in_task(self.task)
        lanes = tuple(sorted({entry.item.thread for entry in batch if entry.item.kind == "lane"}))
        dirty = self.state.record.dirty
        mutation = self.maintenance.prearm(self.now, lanes=lanes)
        self.bodies.append(self.state.record.dirty)
        self._armed(dirty, lanes)
        self.batch = (batch, mark, mutation)
        self.locals["pump"] = Apply(f"{self.run_id}:{mark}", mark, batch, offer)

    def _offer(self, batch: tuple[Entry, ...], mark: int) -> str | None:
        record = self.state.record
        owes = self.event is not None or record.processed < record.dirty or self.config.publication_required
        single = len(batch) == 1 and batch[0].item.kind == "submit" and not self.config.shared_host
        if not single or owes or self._continue_wanted():
            return None
        return self._note_offered(mark)

    def _note_offered(self, mark: int) -> str:
        offer = f"head-start:{self.run_id}:{mark}"
        self.offered = (*self.offered, offer)[-4:]
        return offer

    def _armed(self, dirty: int, lanes: tuple[str, ...]) -> None:
        """Before a body runs its work is due, whatever becomes of the body: a newer generation, lanes, the alarm."""
        state = self.state
        due = [state.queue.get(lane) for lane in (NATIVE, *lanes)]
        if state.record.dirty != dirty + 1 or state.alarm.deadline is None:
            raise Broken("a body runs without a newer generation and an alarm")
        if any(row is None or row.due_at is None for row in due if row is None or row.state is not RowState.PARKED):
            raise Broken(f"a body for {lanes} runs and its lanes are not due")

    def _applied(self, applied: Applied) -> None:
        if self.batch is None:
            raise Broken("an answer without a batch")
        batch, mark, mutation = self.batch
        self._drop(batch)
        self.retry_at, self.stalls = None, 0
        self.applied_through = mark
        if applied.head_start is not None:
            self.begun[batch[0].item.thread] = applied.head_start
        native = any(answer.progress and answer.lane is None for answer in applied.answers)
        lanes = {answer.lane for answer in applied.answers if answer.progress and answer.lane is not None}
        progressed = (*((NATIVE,) if native else ()), *sorted(lanes))
        self._observe(applied.registry)
        if not self.config.publication_required:
            self._released(mutation, progressed, applied)
            self._tell_all(batch, applied)
            return
        if progressed:
            with self.maintenance.transaction():
                self.maintenance.record_progress((*progressed, *mutation.lanes), self.now)
        self._tell_all(batch, applied)
        self.serial += 1
        self.hook = (self.serial, mutation, applied)
        self.commands.append(Start(self.serial, command.Publish(None, self.now + 5_000)))

    def _released(self, mutation: Mutation, progressed: tuple[str, ...], applied: Applied) -> None:
        self._batch()
        self._release(mutation, progressed)
        self.books.read_through = self.state.record.dirty
        self.maintenance.note_survey(applied.survey, self.now)
        self.maintenance.hint(self.now)

    def _tell_all(self, batch: tuple[Entry, ...], applied: Applied) -> None:
        for entry, answer in zip(batch, applied.answers, strict=True):
            if entry.update:
                self.commands.append(Answered(entry, refused=False))
            if answer.cancel:
                self._tell_to_look(entry.item.thread)

    def _batch(self) -> tuple[tuple[Entry, ...], int, Mutation]:
        batch = self.batch
        if batch is None:
            raise Broken("an answer without a batch")
        self.batch = None
        self.waiting.append("pump")
        return batch

    def _release(self, mutation: Mutation, progressed: tuple[str, ...]) -> None:
        self.bodies.pop()
        self.maintenance.release(mutation, self.now, progressed=progressed)

    def _drop(self, batch: tuple[Entry, ...]) -> None:
        gone = {entry.item.n for entry in batch}
        self.inbox = [entry for entry in self.inbox if entry.item.n not in gone]

    def _storage_away(self) -> None:
        _, _, mutation = self._batch()
        self._release(mutation, ())
        delay = backoff(
            self.stalls,
            self.random.random(),
            base=self.config.alarm_backoff_base_ms,
            cap=self.config.alarm_backoff_cap_ms,
        )
        self.stalls += 1
        self.retry_at = self.now + delay
        waiting = [entry for entry in self.inbox if entry.update]
        self._drop(tuple(waiting))
        if not self.inbox:
            self.retry_at = None
        self.commands.extend(Answered(entry, refused=True) for entry in waiting)

    def _note_mark(self, mark: int) -> None:
        if mark > self.applied_through:
            mutation = self.maintenance.prearm(self.now, lanes=self.maintenance.host_lanes())
            self.bodies.append(self.state.record.dirty)
            self._release(mutation, (NATIVE,))
            self.applied_through = mark
            self._note_offered(mark)
            self.next_mark = max(self.next_mark, mark + 1)
            self.uncertified = True
        self.unmark_through = max(self.unmark_through, mark)

    def _local_ended(self, which: str, answer: Any, failure: str | None) -> None:
        asked = self.locals.pop(which, None)
        if asked is None:
            return
        if isinstance(asked, Apply):
            if failure is None:
                self._applied(answer)
            else:
                self._storage_away()
        elif isinstance(asked, ClearMark):
            if self.unmark_through == self.clearing:
                self.unmark_through, self.uncertified = 0, False
            self.clearing = None
            self.waiting.append("pump")
        else:
            self._read(0, failure)
            self.ends.append((asked, answer, failure, failure == "away"))

    def _read(self, serial: int, failure: str | None) -> None:
        """The generation up to which a reading has come back: the one that was dirty when it was asked for."""
        asked_at = self.books.asked.pop(serial, 0)
        if failure is None:
            self.books.read_through = max(self.books.read_through, asked_at)

    # --- passes.py ------------------------------------------------------------------------------------------------

    def _tell_to_look(self, thread: str) -> None:
        for serial, running in self.running.items():
            if isinstance(running, command.AttemptThread) and running.thread_id == thread:
                self.commands.append(Stop(serial))

    def _begin_pass(self) -> None:
        queue = self.state.queue
        gate = self.maintenance.gate
        self.books.due_at_begin = frozenset(row.id for row in queue if row.due(self.now) and not gate.producing(row.id))
        self.books.waves.clear()
        self.books.pages.clear()
        self.event = self.maintenance.begin_event(self.now)
        self.yielded = False
        before = len(self.commands)
        self._advance()
        started = {type(asked.command) for asked in self.commands[before:] if isinstance(asked, Start)}
        if "survey" in self.locals or started & {command.AttemptThread, command.RecoverThread}:
            # Later steps of an event may meet a row that progress has renewed since; its first step may not.
            self._charged(NATIVE)

    def _pass(self) -> None:
        event = self.event
        if event is None:
            raise Broken("a pass without an event")
        if not self.yielded and self._continue_wanted():
            self.yielded = True
            event.stop_admission()
            self.commands.extend(
                Stop(serial) for serial, running in self.running.items() if isinstance(running, command.AttemptThread)
            )
        self._feed(event)
        self._advance()

    def _advance(self) -> None:
        event = self.event
        if event is None:
            raise Broken("nothing to advance")
        processed = self.state.record.processed
        started = event.advance(self.now, self.random.random())
        if self.state.record.processed != processed:
            self._acknowledged(processed)
        for asked in started:
            self._start(asked)
        if not event.done:
            self.revision, self.wake_at = self.maintenance.revision, event.wake_at()
            self.waiting.append("pass")
            if not self.running and "survey" not in self.locals and not self.ends:
                raise Broken("the event waits for nothing")
            return
        if self.running or "survey" in self.locals:
            raise Broken("the event ended with something running")
        report = event.finish(self.now, self.random.random())
        self.event = None
        self._finished(report)
        self.follow = self.maintenance.ready_now(self.now)
        self.waiting.append("main")

    def _start(self, asked: command.Command) -> None:
        match asked:
            case command.Cancel():
                self._interrupt(asked.command)
                return
            case command.Survey():
                if "survey" in self.locals:
                    raise Broken("two surveys at once")
                self.locals["survey"] = asked
                self.books.asked[0] = self.state.record.dirty
                return
            case command.Publish():
                self._charged(PUBLICATION)
            case command.RecoverThread(thread_id=thread, cursor=cursor):
                if (thread, cursor) in self.books.pages:
                    raise Broken(f"{thread} is recovered from {cursor} twice in one event")
                self.books.pages.add((thread, cursor))
            case command.AttemptThread(thread_id=thread):
                self._served(thread)
                for running in self.running.values():
                    if isinstance(running, command.AttemptThread) and running.thread_id == thread:
                        raise Broken(f"two Attempts of {thread}")
            case command.RunLane(lane=lane):
                self._charged(lane)
                self.books.waves.add(lane)
                self.books.missed.pop(lane, None)
                if any(
                    isinstance(running, command.RunLane) and running.lane == lane for running in self.running.values()
                ):
                    raise Broken(f"two waves of {lane}")
        self.serial += 1
        self.running[self.serial] = asked
        self.books.asked[self.serial] = self.state.record.dirty
        thread = getattr(asked, "thread_id", "")
        ended, head_start = tuple(self.ended.get(thread, ())), None
        if isinstance(asked, command.AttemptThread):
            ended, head_start = (*ended, *self.offered), self.begun.pop(thread, None)
        start = Start(self.serial, asked, ended, self.applied_through, head_start)
        self.attempt_ids[self.serial] = start.attempt_id
        self.commands.append(start)

    def _interrupt(self, asked: command.Running) -> None:
        if isinstance(asked, command.Survey):
            # A cancelled local activity ends at once; what its thread still reads nobody sees.
            if self.locals.pop("survey", None) is not None:
                self.ends.append((asked, None, "cancelled", False))
            return
        for serial, running in list(self.running.items()):
            if running == asked:
                self.commands.append(Stop(serial))
                if isinstance(asked, command.RecoverThread):
                    # Its cancellation is not awaited either; what it commits yet comes as a zombie's.
                    self._ended(serial, None, "cancelled", False)

    def _ended(self, serial: int, answer: Any, failure: str | None, away: bool) -> None:
        if self.hook is not None and self.hook[0] == serial:
            _, mutation, applied = self.hook
            self.hook = None
            self._released(mutation, (), applied)
            return
        alarm = self.delivering.pop(serial, None)
        if alarm is not None:
            if failure is None:
                self.maintenance.applications.delivered(alarm)
            else:
                self.maintenance.applications.failed(alarm, failure, self.now, self.random.random())
            return
        asked = self.running.pop(serial, None)
        if asked is None:
            return
        if failure is not None and isinstance(asked, (command.AttemptThread, command.RecoverThread)):
            ended = [*self.ended.get(asked.thread_id, []), self.attempt_ids[serial]]
            self.ended[asked.thread_id] = ended[-ENDED_ATTEMPTS_MAX:]
        self._read(serial, failure)
        self.ends.append((asked, answer, failure, away))

    def _observe(self, registry: Registry) -> None:
        if registry.key:
            self.maintenance.observe_registry(registry.key, registry.deployment, self.now)

    def _feed(self, event: Event) -> None:
        ends, self.ends = self.ends, []
        self.maintenance.in_task(self.task)
        now = self.now
        for asked, answer, failure, away in ends:
            match asked:
                case command.Survey():
                    if failure is None:
                        survey, registry = answer
                        self._observe(registry)
                        event.surveyed(survey, now)
                    else:
                        event.survey_failed(failure, now, outage=away)
                case command.RecoverThread(thread_id=thread):
                    if failure is None:
                        self._recovered(event, thread, answer)
                    else:
                        event.recovery_failed(thread, failure, now, outage=away)
                case command.AttemptThread(thread_id=thread):
                    if failure is None:
                        self._attempted(event, thread, answer)
                    else:
                        event.attempt_failed(thread, failure, now, outage=away)
                case command.Publish():
                    if failure is None:
                        event.published(answer, now)
                    else:
                        event.publish_failed(failure, now)
                case command.RunLane(lane=lane):
                    progressed, due_at = answer if answer is not None else ((), None)
                    if failure is None:
                        event.lane_ended(lane, due_at, now, progressed=progressed)
                    else:
                        event.lane_failed(lane, failure, now, progressed=progressed)

    def _recovered(self, event: Event, thread: str, answer: RecoverAnswer) -> None:
        event.recovered(thread, answer, self.now)

    def _attempted(self, event: Event, thread: str, answer: AttemptAnswer) -> None:
        if answer.submission_id is not None and answer.ended != "unbound":
            self.ended.pop(thread, None)
            self.offered = ()
        event.attempt_ended(thread, answer, self.now)

    # --- what the laws look at at the end of a pass ----------------------------------------------------------------

    def _charged(self, row_id: str) -> None:
        """Work is charged before it starts: whatever becomes of it, its row stays away, and the charge counts."""
        row = self.state.queue.get(row_id)
        if row is None or row.stalls == 0 or row.not_before <= self.now:
            raise Broken(f"{row_id} starts uncharged: {row}")

    def _acknowledged(self, before: int) -> None:
        """Processed only grows, and never over a body that still runs."""
        after = self.state.record.processed
        if after < before:
            raise Broken(f"processed went back from {before} to {after}")
        if self.bodies:
            raise Broken(f"generation {after} was acknowledged while bodies of {self.bodies} run")
        if after > self.books.read_through:
            raise Broken(f"generation {after} was acknowledged, readings go up to {self.books.read_through}")

    def _served(self, thread: str) -> None:
        missed = self.books.missed
        missed.pop(f"thread {thread}", None)
        for key in missed:
            if key.startswith("thread "):
                missed[key] += 1

    def _tell_parked(self, labels: tuple[str, ...]) -> None:
        """Each parking is told once, at the first chance."""
        parked = {row.id for row in self.state.queue if row.state is RowState.PARKED}
        fresh = sorted(lane_label(row_id) for row_id in parked - self.books.told)
        if sorted(labels) != fresh:
            raise Broken(f"rows parked since the last report are {fresh}, told were {sorted(labels)}")
        self.books.told = parked

    def _finished(self, report: PassReport) -> None:
        books, state = self.books, self.state
        books.passes += 1
        books.failed += report.failure is not None
        self._tell_parked(report.parked)
        next_due = state.queue.next()
        wanted = None if next_due is None else max(next_due, self.now + self.config.floor_ms)
        if state.alarm.deadline != wanted:
            raise Broken(f"a pass left the slot at {state.alarm.deadline}, its rows want {wanted}")
        if (report.alarm == "cleared") != (wanted is None):
            raise Broken("the report does not say what became of the alarm")
        if report.failure is None:
            self._count_missed()

    def _count_missed(self) -> None:
        """A lane that was due from begin to end of a pass in which a sibling of its phase had a wave missed a turn."""
        books = self.books
        phases = (self.maintenance.incarnation.lanes.concurrent, self.maintenance.incarnation.lanes.after_native)
        for specs in phases:
            ids = {spec.id for spec in specs if not spec.empty}
            if not ids & books.waves:
                continue
            for lane in ids & books.due_at_begin - books.waves:
                row = self.state.queue.get(lane)
                if row is not None and row.due(self.now) and not self.maintenance.gate.producing(lane):
                    books.missed[lane] = books.missed.get(lane, 0) + 1
