"""What the parts of one event share: its bounds, the rows it observed and charged, what runs, and what failed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from thread_objects.core import generation
from thread_objects.core.command import AttemptThread, Cancel, Command, Running
from thread_objects.core.config import MaintenanceConfig
from thread_objects.core.due_queue import NATIVE, Row
from thread_objects.core.findings import Findings
from thread_objects.core.incarnation import Incarnation
from thread_objects.core.lanes import Lanes


@dataclass(frozen=True, slots=True)
class Attempt:
    """A running Attempt. `stamp`: the generation it started at, None when a mutation was active then."""

    command: AttemptThread
    stamp: int | None


class EventState:
    """One event's working memory.

    `observed`: rows as failure rearming will look at them. `known`: revisions that do not end an after-native phase.
    `charged`: revisions this event charged. `settled_since`, `ended_since`: Attempts since the last checkpoint.
    `closed`: nothing new is admitted. `broken`: everything is being joined. `native_only`: the flag of a failure's
    retry. `steps`: the durable steps that were made since the shell looked, for tests that crash there.
    """

    __slots__ = (
        "_incarnation",
        "attempts",
        "broken",
        "charged",
        "closed",
        "commands",
        "deadline_at",
        "ended_since",
        "failures",
        "findings",
        "gate",
        "known",
        "native_only",
        "observed",
        "outages",
        "running",
        "settled",
        "settled_since",
        "sighting",
        "started_at",
        "state",
        "steps",
        "yield_at",
    )

    def __init__(self, incarnation: Incarnation, now: int) -> None:
        config = incarnation.config
        self.state = incarnation.state
        self.gate = incarnation.gate
        self.sighting = incarnation.sighting
        self._incarnation = incarnation
        self.started_at = now
        self.yield_at = now + config.yield_after_ms
        self.deadline_at = now + config.deadline_ms
        self.findings = Findings()
        self.observed: dict[str, Row] = {}
        self.known: dict[str, int] = {}
        self.charged: dict[str, int] = {}
        self.attempts: dict[str, Attempt] = {}
        self.settled = 0
        self.settled_since = 0
        self.ended_since = False
        self.native_only = False
        self.running: dict[Running, None] = {}
        self.commands: list[Command] = []
        self.failures: list[str] = []
        self.outages = 0
        self.closed = False
        self.broken = False
        self.steps: list[str] = []

    @property
    def config(self) -> MaintenanceConfig:
        """The bounds and waves as installed now; a pass may learn of new ones on its way."""
        return self._incarnation.config

    @property
    def lanes(self) -> Lanes:
        """The lanes with a handler now."""
        return self._incarnation.lanes

    # --- commands -----------------------------------------------------------------------------------------------

    def start(self, command: Running) -> None:
        """Ask the shell to start this."""
        self.running[command] = None
        self.commands.append(command)

    def end(self, command: Running) -> None:
        """The shell reported the end."""
        self.running.pop(command, None)

    def interrupt(self, commands: Iterable[Running]) -> None:
        """Ask for the interruption of what runs; its end is awaited all the same."""
        self.commands.extend(Cancel(command) for command in commands)

    def take_commands(self) -> list[Command]:
        """What is to be started now."""
        taken, self.commands = self.commands, []
        return taken

    # --- failures -----------------------------------------------------------------------------------------------

    def fail(self, failure: str) -> None:
        """A failure that exhausts its own wave; the pass fails once everything admitted was joined."""
        self.failures.append(failure)

    def break_off(self, failure: str, *, outage: bool = False) -> None:
        """A failure that ends the event at once: interrupt everything, then join it."""
        self.failures.append(failure)
        self.outages += outage
        if not self.broken:
            self.broken = self.closed = True
            self.interrupt(list(self.running))

    @property
    def outage(self) -> bool:
        """Whatever failed, failed because storage was away."""
        return 0 < self.outages == len(self.failures)

    # --- rows ---------------------------------------------------------------------------------------------------

    def floor(self, now: int) -> int:
        """The earliest deadline that the slot may get."""
        return now + self.config.floor_ms

    def begin(self, now: int) -> generation.Begin:
        """Begin a pass (again): observe the generation, charge native where the event has not yet."""
        active = self.gate.active
        with self.state.transaction() as tx:
            begun = generation.begin(
                tx, now, self.floor(now), charged_revision=self.charged.get(NATIVE, -1), active=active
            )
        if begun.actionable:
            self.charged[NATIVE] = begun.revision
        if active == 0:
            native = self.state.queue.get(NATIVE)
            if native is not None:
                self.known[NATIVE] = native.revision
        return begun

    def observe(self) -> None:
        """Note all rows as they are at the start of the event."""
        for row in self.state.queue:
            self.observed[row.id] = row
        self.know()

    def know(self) -> None:
        """The revision of every row without producers becomes known."""
        for row in self.state.queue:
            if not self.gate.producing(row.id):
                self.known[row.id] = row.revision

    def charge(self, row: Row, now: int, *, after_native: bool = False) -> Row | None:
        """Charge a wave before any of its fallible work. None: the row moved on, nothing may start."""
        with self.state.transaction() as tx:
            charged = tx.queue.claim(row, now)
            if charged is None:
                return None
            if after_native:
                tx.record = tx.record.with_(last_after_native_lane_id=row.id)
            tx.at(tx.queue.next(), self.floor(now))
        self.observed[row.id] = charged
        self.charged[row.id] = charged.revision
        return charged

    def complete(self, row: Row, due_at: int | None) -> None:
        """The end of a wave, unless its lane has producers or moved on."""
        if self.gate.producing(row.id):
            return
        with self.state.transaction() as tx:
            completed = tx.queue.complete(row, due_at)
        if completed is not None:
            self.known[row.id] = completed.revision

    def progress(self, lanes: Sequence[str], now: int) -> None:
        """New facts committed by the event's own work."""
        with self.state.transaction() as tx:
            moved = generation.record_progress(
                tx,
                lanes,
                now,
                self.floor(now),
                own=True,
                publication_required=self.config.publication_required,
            )
        if moved:
            self.gate.notify()
