"""Temporal and its workers as the simulation sees them: workflow tasks, local and regular activities, one timer.

A workflow task is a unit: what its activations did exists once it completes, commands included. Until then a crash
takes everything back to the last completed task; a journal of committed activations brings that state again, as
replay does. Local activities run inside a task, so what they wrote to SQL may outlive it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.simulation import shell as machine
from tests.simulation.ledger import WAITING, Away, Item, Ledger
from tests.simulation.processes import Process, Worker
from tests.simulation.shell import Applied, Apply, Broken, Carried, ClearMark, Deliver, Entry, Shell, Wake
from thread_objects.contract.alarms import CancelAlarm, SetAlarm
from thread_objects.contract.views import Registry
from thread_objects.core import command
from thread_objects.core.maintenance import MaintenanceConfig

Job = tuple[Any, ...]


@dataclass(slots=True)
class Local:
    """A local activity in hand: `answer` once its transaction was made."""

    asked: Any
    ran: bool = False
    answer: Any = None
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Base:
    """What a replay starts from."""

    carried: Carried
    now: int
    seed: int


class Server:
    """One object's history and the worker that holds it. `choose` decides what the world outside decides."""

    def __init__(
        self,
        threads: tuple[str, ...],
        config: MaintenanceConfig,
        *,
        now: int,
        seed: int,
        choose: Callable[[str, tuple[str, ...]], str],
        tasks_max: int = 40,
    ) -> None:
        self.config = config
        self.choose = choose
        self.tasks_max = tasks_max
        self.ledger = Ledger(threads)
        self.now = now
        self.seed = seed
        self.task = 1
        self.pending: list[Job] = []
        self.taken: list[Job] = []
        self.open = False
        self.activations: list[tuple[int, int, tuple[Job, ...]]] = []
        self.journal: list[tuple[int, int, tuple[Job, ...]] | None] = []
        self.locals: dict[str, Local] = {}
        self.processes: dict[int, Process] = {}
        self.dead: list[int] = []
        self.zombies: list[Process] = []
        # Threads that a zombie has moved: its answer reaches nobody, an old head is all that tells of it.
        self.haunted: set[str] = set()
        self.timer: tuple[int, int] | None = None
        self.alarms: dict[tuple[str, str, str], int] = {}
        self.cursor = 0
        self.deployment = 1
        self.worker = Worker(Registry(key="K1", deployment=1))
        self.older: Worker | None = None
        self.busy: list[Item] = []
        self.base = Base(Carried(), now, seed)
        self.shell = Shell(config, self.base.carried, now, seed, tasks_max)
        self.fingerprint: tuple[Any, ...] = ()
        # The first task of a run: the start itself.
        self.open = True
        self._activate(())
        self.fingerprint = self._fingerprint()

    # --- messages -------------------------------------------------------------------------------------------------

    def signal(self, item: Item) -> None:
        """A signal is in history once the server has it: no crash takes it back."""
        self.pending.append(("entry", Entry(item)))

    def update(self, item: Item) -> None:
        """An update is accepted with the task that takes it; until then a crash may lose it."""
        self.pending.append(("entry", Entry(item, update=True)))

    def wake(self, wake: Wake) -> None:
        self.pending.append(("wake", wake))

    def set_alarm(self, message: SetAlarm | CancelAlarm) -> None:
        """Messages arrive in the order in which they were sent, so the last one of a name is what counts."""
        name = (message.thread_id, message.tag, message.alarm_id)
        self.alarms.pop(name, None)
        if isinstance(message, SetAlarm):
            self.alarms[name] = message.run_at
        self.pending.append(("alarm", message))

    def schedule(self, lane: str, due_at: int) -> None:
        """Somebody commits work for a lane, and says so with a cursor."""
        self.ledger.lanes[lane] = self.ledger.lanes.get(lane, 0) + 1
        self.cursor += 1
        self.pending.append(("schedule", lane, due_at, self.cursor))

    def sweep(self) -> None:
        """The mark sweep hints the object whose mark is old."""
        if self.ledger.mark is not None and not self.ledger.away:
            self.wake(Wake(mark=self.ledger.mark))

    def stray(self) -> None:
        """The transaction of a batch whose caller has given up lands after all, under a mark that is answered."""
        item = next((item for item in self.busy if item.kind == "submit"), None)
        if item is not None and not self.ledger.away:
            self.busy.remove(item)
            self.ledger.apply(f"stray:{item.what}", self.shell.applied_through, (item,))
            self.haunted.add(item.thread)

    def late(self) -> bool:
        """The same sweep announces the registry where a head stays untouched."""
        ledger = self.ledger
        if ledger.away or not any(ledger.untouched(thread) for thread in ledger.rows):
            return False
        self.wake(Wake(registry=self.worker.registry, late=True))
        return True

    def deploy(self, lacks: frozenset[str]) -> None:
        """A worker with another registry takes over; the older one may still finish what it has."""
        self.older = self.worker
        self.deployment += 1
        self.worker = Worker(Registry(key=f"K{self.deployment}", deployment=self.deployment), lacks)

    def announce(self) -> None:
        """A started worker tells its registry."""
        self.wake(Wake(registry=self.worker.registry))

    # --- workflow tasks -------------------------------------------------------------------------------------------

    def can_deliver(self) -> bool:
        return not self.open and bool(self.pending or self.shell.locals)

    def deliver(self) -> None:
        """Open a task with everything that waits."""
        self.task += 1
        self.open = True
        self.taken, self.pending = self.pending, []
        self._activate(tuple(self.taken))

    def _activate(self, jobs: tuple[Job, ...]) -> None:
        self.activations.append((self.now, self.task, jobs))
        self.shell.activate(self.now, self.task, jobs)
        self._start_locals()

    def _start_locals(self) -> None:
        for which, asked in self.shell.locals.items():
            held = self.locals.get(which)
            if held is None or held.asked is not asked:
                self.locals[which] = Local(asked)
        for which in [which for which in self.locals if which not in self.shell.locals]:
            # Cancelled: nobody waits for it.
            del self.locals[which]

    def can_complete(self) -> bool:
        return self.open

    def complete(self) -> None:
        """The task completes: state, commands and markers are in history now. With a local activity in hand it is a
        heartbeat: the next task comes at once, with whatever happened meanwhile.
        """
        commands = self.shell.commands
        if self.shell.over and self.pending:
            # Something new came meanwhile: the server refuses the end of the run.
            self.lose_task()
            return
        self.shell.commands = []
        self.journal.extend(self.activations)
        self.journal.append(None)
        self.shell.new_task()
        self.activations, self.taken = [], []
        self.fingerprint = self._fingerprint()
        self.open = False
        for asked in commands:
            self._command(asked)

    def _command(self, asked: Any) -> None:
        match asked:
            case machine.Start():
                worker = self.worker
                if self.older is not None and self.choose("worker", ("new", "older")) == "older":
                    worker = self.older
                self._alone(asked)
                self.processes[asked.serial] = Process(asked, worker, self.choose)
            case machine.Stop(serial=serial):
                self._stop(serial)
            case machine.Timer(serial=serial, at=at):
                self.timer = None if at is None else (serial, at)
            case machine.Answered(entry=entry, refused=refused):
                if refused:
                    self.busy.append(entry.item)
            case machine.Continue(carried=carried):
                self._continue(carried)

    def _alone(self, asked: machine.Start) -> None:
        """Never two Attempts of one Thread, save zombies, which the epoch fences; and none without a head to claim."""
        if isinstance(asked.command, command.AttemptThread):
            thread = asked.command.thread_id
            head = self.ledger.head(thread)
            if thread not in self.haunted and (head is None or (head.state in WAITING and not head.abort)):
                raise Broken(f"an Attempt of {thread} starts, whose head is {head}")
            for process in self.processes.values():
                other = process.start.command
                if isinstance(other, command.AttemptThread) and other.thread_id == thread:
                    raise Broken(f"two Attempts of {thread}")

    def _stop(self, serial: int) -> None:
        process = self.processes.get(serial)
        if process is None:
            return
        process.told = True
        if isinstance(process.start.command, command.RecoverThread):
            # The workflow does not wait for it.
            del self.processes[serial]
            if serial in self.dead:
                self.dead.remove(serial)
            else:
                self.zombies.append(process)
        elif not isinstance(process.start.command, command.AttemptThread):
            process.stage, process.failure = "over", "cancelled"

    def _continue(self, carried: Carried) -> None:
        for serial, process in list(self.processes.items()):
            if not isinstance(process.start.command, Deliver):
                raise Broken(f"the run ended with {process.start}")
            # A delivery does not survive the move under load: its alarm stays listed, its process may go on.
            del self.processes[serial]
            if serial in self.dead:
                self.dead.remove(serial)
            else:
                self.zombies.append(process)
        self.timer = None
        self.seed += bool(self.seed)
        self.base = Base(carried, self.now, self.seed)
        self.journal = []
        self.locals.clear()
        self.shell = Shell(self.config, carried, self.now, self.seed, self.tasks_max)
        self.task += 1
        self.open = True
        self._activate(())
        self.fingerprint = self._fingerprint()

    def _fingerprint(self) -> tuple[Any, ...]:
        state = self.shell.state
        return (
            state.record,
            tuple(state.queue),
            state.alarm.deadline,
            len(self.shell.inbox),
            self.shell.next_mark,
            self.shell.maintenance.applications.next_at(),
        )

    def lose_task(self, *, forget_updates: bool = False) -> None:
        """The open task fails or its worker is gone: back to the last completed one, whose events come again."""
        self.locals.clear()
        committed = self.fingerprint
        base = self.base
        shell = Shell(self.config, base.carried, base.now, base.seed, self.tasks_max)
        if not self.journal:
            # Not even the first task was completed: it comes again as it was.
            shell.activate(base.now, self.task, ())
        for entry in self.journal:
            if entry is None:
                shell.commands = []
                shell.new_task()
            else:
                shell.activate(*entry)
        self.shell = shell
        if committed != self._fingerprint():
            raise Broken("a replay came to another state than the one that was committed")
        jobs = [job for job in self.taken if not (forget_updates and job[0] == "entry" and job[1].update)]
        if forget_updates:
            self.busy.extend(job[1].item for job in self.taken if job[0] == "entry" and job[1].update)
        self.pending = jobs + self.pending
        self.taken = []
        self.open = not self.journal
        self.activations = [(base.now, self.task, ())] if self.open else []
        if self.open:
            self._start_locals()

    def crash(self) -> None:
        """The worker process dies: the open task, local activities, and every activity with it."""
        self.zombies.clear()
        for serial, process in self.processes.items():
            if serial not in self.dead and not process.over:
                self.dead.append(serial)
        self.lose_task(forget_updates=True)

    # --- local activities -----------------------------------------------------------------------------------------

    def run_local(self, which: str) -> None:
        """Its transaction. Storage away is its failure, once its few retries are used up."""
        local = self.locals[which]
        try:
            local.answer = self._transact(local.asked)
        except Away:
            local.failure = "away"
        local.ran = True

    def _transact(self, asked: Any) -> Any:
        ledger = self.ledger
        match asked:
            case Apply(batch_id=batch_id, mark=mark, entries=entries, head_start=offer):
                answers = ledger.apply(batch_id, mark, tuple(entry.item for entry in entries))
                survey = ledger.survey()
                begun = None
                if (
                    offer is not None
                    and answers[0].progress
                    and self.choose("head start", ("none", "claimed")) == "claimed"
                ):
                    # It claims after the batch's transaction, beside the workflow's task.
                    begun = offer
                    ledger.begin(entries[0].item.thread, offer, (), self.now)
                return Applied(answers, survey, self.worker.registry, begun)
            case ClearMark(through=through):
                ledger.clear_mark(through)
                return None
        return ledger.survey(), self.worker.registry

    def answer_local(self, which: str, failure: str | None = None) -> None:
        """The worker hands its result to the workflow, inside the same task."""
        local = self.locals.pop(which)
        failure = failure or local.failure
        self._activate((("local", which, None if failure else local.answer, failure),))

    def hand_back(self) -> None:
        """Head starts that nobody adopted in time give their claim back."""
        adopted = {process.start.attempt_id for process in (*self.processes.values(), *self.zombies)}
        for thread, owner in list(self.ledger.owners.items()):
            waits = owner.attempt_id.startswith("head-start:") and owner.attempt_id not in adopted
            if waits and not self.ledger.away:
                self.ledger.leave(thread, owner.epoch, 0)

    # --- regular activities ---------------------------------------------------------------------------------------

    def step(self, serial: int) -> None:
        """One transaction of an activity; its end goes into history."""
        process = self.processes[serial]
        if not process.over:
            try:
                process.step(self.ledger, self.now)
            except Away:
                self._report(serial, None, "away", away=True)
                return
        if process.over:
            self._report(serial, process.result, process.failure)

    def step_zombie(self) -> None:
        """A process that the server has given up goes on."""
        process = self.zombies[0]
        thread = getattr(process.start.command, "thread_id", None)
        if thread is not None:
            self.haunted.add(thread)
        try:
            process.step(self.ledger, self.now)
        except Away:
            process.stage = "over"
        if process.over:
            self.zombies.pop(0)

    def give_up(self, serial: int) -> None:
        """No heartbeat came in time: the activity is closed, its process may live on."""
        process = self.processes[serial]
        if serial in self.dead:
            self.dead.remove(serial)
        elif not process.over:
            self.zombies.append(process)
        self._report(serial, None, "TimeoutError")

    def _report(self, serial: int, result: Any, failure: str | None, *, away: bool = False) -> None:
        del self.processes[serial]
        self.pending.append(("end", serial, result, failure, away))

    # --- time -----------------------------------------------------------------------------------------------------

    def pass_time(self, milliseconds: int) -> None:
        """Time goes on; a timer that is reached fires."""
        self.now += milliseconds
        if self.timer is not None and self.timer[1] <= self.now:
            self.pending.append(("timer", self.timer[0]))
            self.timer = None
