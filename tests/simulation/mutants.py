"""Deliberate mutants of the core. Each one breaks a rule of the contract; the simulation must notice every one.

A mutant is a patch for the time of a `with` block. Its docstring says what was changed; the un-mutated core passes the
same seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from unittest.mock import patch

from thread_objects.core import certification, generation, recovery_wave, selection
from thread_objects.core.application_alarms import ApplicationAlarms
from thread_objects.core.certification import Observation
from thread_objects.core.due_queue import NATIVE, QueueTransaction
from thread_objects.core.due_row import Row, RowState, lane_label
from thread_objects.core.event import Event
from thread_objects.core.event_state import EventState
from thread_objects.core.findings import Findings
from thread_objects.core.gate import Gate
from thread_objects.core.maintenance import Maintenance
from thread_objects.core.sighting import Sighting, to_scan
from thread_objects.core.state import StateTransaction


@dataclass(frozen=True, slots=True)
class Mutant:
    """`patched` mutates the core while it is entered. `seed`: the life that the hunt begins with."""

    patched: Callable[[], AbstractContextManager[None]]
    seed: int


MUTANTS: dict[str, Mutant] = {}


def mutant(seed: int = 0) -> Callable[[Callable[[], Iterator[None]]], None]:
    """Register one."""

    def register(function: Callable[[], Iterator[None]]) -> None:
        MUTANTS[function.__name__] = Mutant(contextmanager(function), seed)

    return register


@mutant()
def acknowledge_dirty() -> Iterator[None]:
    """A checkpoint acknowledges the newest generation instead of the observed one."""
    real = certification.checkpoint

    def checkpoint(tx, *args, observation, **facts):
        return real(tx, *args, observation=Observation(tx.record.dirty, observation.overlapped), **facts)

    with patch.object(certification, "checkpoint", checkpoint):
        yield


@mutant()
def forget_overlap() -> Iterator[None]:
    """A checkpoint overlooks the producers that ran beside its pass."""
    real = certification.checkpoint

    def checkpoint(*args, observation, step, active, **facts):
        return real(
            *args,
            observation=Observation(observation.generation, overlapped=False),
            step=replace(step, active_at_start=0),
            active=0,
            **facts,
        )

    with patch.object(certification, "checkpoint", checkpoint):
        yield


@mutant()
def charge_after_the_work() -> Iterator[None]:
    """A wave starts without its charge, which is made when it ended."""
    complete = EventState.complete

    def charge(self, row, now, *, after_native=False):
        del now, after_native
        self.observed[row.id] = row
        self.charged[row.id] = row.revision
        return row

    def late(self, row, due_at):
        with self.state.transaction() as tx:
            charged = tx.queue.claim(row, row.due_at or 0)
        complete(self, charged or row, due_at)

    with patch.object(EventState, "charge", charge), patch.object(EventState, "complete", late):
        yield


@mutant()
def lose_the_lanes_mark() -> Iterator[None]:
    """A prearm forgets the lanes of its mutation."""
    real = generation.prearm

    def prearm(*args, lanes, **facts):
        return real(*args, lanes=(), **facts)

    with patch.object(generation, "prearm", prearm):
        yield


@mutant()
def prearm_without_a_generation() -> Iterator[None]:
    """A mutation makes native due, but no newer generation."""
    real = generation.prearm

    def prearm(tx, *args, **facts):
        dirty = tx.record.dirty
        real(tx, *args, **facts)
        tx.record = tx.record.with_(dirty=dirty)

    with patch.object(generation, "prearm", prearm):
        yield


@mutant(seed=1)
def keep_the_later_deadline() -> Iterator[None]:
    """A change between passes moves the slot to the later of two deadlines."""

    def by(self, instant, floor):
        if instant is not None:
            self._slot = max(instant, floor, self._slot or 0)
            self._slot_changed = True

    with patch.object(StateTransaction, "by", by):
        yield


@mutant(seed=8)
def report_parked_twice() -> Iterator[None]:
    """A parked row is reported at the end of every pass."""

    def take(self):
        return tuple(lane_label(row.id) for row in self._seen() if row.state is RowState.PARKED)

    with patch.object(QueueTransaction, "take_parked_reports", take):
        yield


@mutant()
def ignore_the_floor() -> Iterator[None]:
    """The answer of a wave may come before the floor of its charge."""
    real = Row.with_deadline

    def with_deadline(self, due_at, revision):
        return replace(real(self, due_at, revision), due_at=due_at)

    with patch.object(Row, "with_deadline", with_deadline):
        yield


@mutant(seed=2)
def certify_autonomous_work() -> Iterator[None]:
    """Whatever is left counts as a stable wait."""
    with patch.object(Findings, "autonomous", lambda _self, _view, _record: False):
        yield


@mutant(seed=59)
def overlook_duties() -> Iterator[None]:
    """A checkpoint does not see Threads with duties that no recovery has looked at."""
    real = certification.checkpoint

    def checkpoint(*args, scan, **facts):
        return real(*args, scan=replace(scan, duties=()), **facts)

    with patch.object(certification, "checkpoint", checkpoint):
        yield


@mutant()
def lose_the_work_cursor() -> Iterator[None]:
    """A recovery of many rows begins anew with every page."""
    with patch.object(recovery_wave, "keep_cursor", lambda _event, _recovered: None):
        yield


@mutant(seed=43)
def serve_the_first_always() -> Iterator[None]:
    """Selection forgets who was served last."""
    real = selection.take

    def take(eligible, excluded, last_served, room):
        del last_served
        return real(eligible, excluded, None, room)

    with patch.object(selection, "take", take):
        yield


@mutant(seed=17)
def release_before_the_answer() -> Iterator[None]:
    """A mutation stops counting as soon as it was armed."""
    real = Gate.enter

    def enter(self, lanes, *, invalidates_recovery):
        mutation = real(self, lanes, invalidates_recovery=invalidates_recovery)
        self.active -= 1
        self._lanes.clear()
        return mutation

    with patch.object(Gate, "enter", enter):
        yield


@mutant()
def finish_without_the_newer_generation() -> Iterator[None]:
    """The alarm decision looks at rows alone, not at what is still dirty."""

    def finish(tx, now, config, **_facts):
        tx.queue.checkpoint_native(None)
        due_at = tx.queue.next()
        tx.at(due_at, now + config.floor_ms)
        return due_at is not None

    with patch.object(certification, "finish", finish):
        yield


@mutant(seed=5)
def fail_without_rearming() -> Iterator[None]:
    """A failed pass clears the native row."""
    real = certification.rearm_after_failure

    def rearm(tx, now, j, config, **facts):
        real(tx, now, j, config, **facts)
        tx.queue.checkpoint_native(None)
        due_at = tx.queue.next()
        tx.at(due_at, now + config.floor_ms)
        return due_at is not None

    with patch.object(certification, "rearm_after_failure", rearm):
        yield


@mutant(seed=9)
def keep_waits_over_a_registry() -> Iterator[None]:
    """A new registry does not end the binding waits."""
    real = generation.check_registry

    def check_registry(tx, key, deployment):
        waits = tx.record.binding_waits
        changed = real(tx, key, deployment)
        tx.record = tx.record.with_(binding_waits=waits)
        return changed

    with patch.object(generation, "check_registry", check_registry):
        yield


@mutant()
def trust_an_old_reading() -> Iterator[None]:
    """Own work does not outdate what was read before it."""
    with (
        patch.object(Sighting, "disturb", lambda _self: None),
        patch.object(Sighting, "replace", lambda _self, _view, _stamp: None),
    ):
        yield


@mutant(seed=1)
def trust_any_batch() -> Iterator[None]:
    """A batch's survey counts as a scan, whatever moved while it ran."""

    def take_applied(self, survey):
        self._scan = to_scan(survey, self._state.record.dirty)

    with patch.object(Sighting, "take_applied", take_applied):
        yield


@mutant()
def complete_a_newer_revision() -> Iterator[None]:
    """The end of a wave overwrites facts that came while it ran."""

    def complete(self, row, due_at):
        current = self.get(row.id)
        if current is None:
            return None
        completed = current.with_deadline(due_at, current.revision + 1)
        self._put(completed)
        return completed

    with (
        patch.object(QueueTransaction, "complete", complete),
        patch.object(Gate, "producing", lambda _self, _lane: False),
    ):
        yield


@mutant(seed=90)
def drop_the_progress() -> Iterator[None]:
    """What a batch's answer says of progress is not recorded."""
    real = Maintenance.release

    def release(self, held, now, *, progressed=()):
        del progressed
        real(self, held, now)

    with patch.object(Maintenance, "release", release):
        yield


@mutant()
def end_with_work_running() -> Iterator[None]:
    """An event does not wait for its Attempts."""
    real = Event.advance

    def advance(self, now, j):
        commands = real(self, now, j)
        self._event.running.clear()
        return commands

    with patch.object(Event, "advance", advance):
        yield


@mutant()
def charge_native_never() -> Iterator[None]:
    """A pass begins without a charge of the native row."""
    real = QueueTransaction.claim

    def claim(self, row, now, *, native=False):
        return row if row.id == NATIVE else real(self, row, now, native=native)

    with patch.object(QueueTransaction, "claim", claim):
        yield


@mutant(seed=54)
def forget_a_replaced_alarm() -> Iterator[None]:
    """The end of a delivery drops whatever carries the name by then."""

    def delivered(self, alarm):
        self._ended(alarm)
        self._drop(alarm.name)

    with patch.object(ApplicationAlarms, "delivered", delivered):
        yield


@mutant()
def deliver_beside_a_delivery() -> Iterator[None]:
    """An alarm that was set anew is handed out while its earlier content is still being delivered."""
    with patch.object(ApplicationAlarms, "_waiting", lambda self: iter(self._alarms.values())):
        yield


@mutant()
def ignore_a_late_head() -> Iterator[None]:
    """What the sweep has seen of a head that nobody takes up is no reason to look."""
    with patch.object(Maintenance, "look_again", lambda _self, _now: False):
        yield
