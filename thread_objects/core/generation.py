"""Generations: what makes work due, what a pass observes, and when it finds itself caught up.

Plain functions over one `StateTransaction`; each is one durable step. `floor` is the earliest deadline the slot may
get (now + M).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from thread_objects.core.config import MaintenanceConfig
from thread_objects.core.due_queue import (
    MESSAGES,
    NATIVE,
    PROJECTION,
    PUBLICATION,
    RECOVERY_EVENTS,
    RowState,
)
from thread_objects.core.state import StateTransaction


@dataclass(frozen=True, slots=True)
class Begin:
    """What a begin found. `stalls` is the native row's count after the charge; caught up, nothing was changed."""

    generation: int
    actionable: bool
    revision: int = -1
    stalls: int = 0
    active_at_start: int = 0


def register(tx: StateTransaction, config: MaintenanceConfig) -> None:
    """The framework's rows, so that a fresh object has one due discovery pass. Events make their own row."""
    for row_id in (NATIVE, PUBLICATION, PROJECTION, MESSAGES):
        tx.queue.register(row_id)
    for lane in config.lanes:
        if lane.framework and lane.id != RECOVERY_EVENTS:
            tx.queue.register(lane.id)


def check_registry(tx: StateTransaction, key: str, deployment: int) -> bool:
    """One fresh opportunity for every change of the binding registry; an older deployment changes nothing."""
    record = tx.record
    if record.registry_key == key:
        if deployment > record.deployment:
            tx.record = record.with_(deployment=deployment)
        return False
    if record.registry_key is not None and deployment < record.deployment:
        return False
    tx.record = record.with_(
        registry_key=key, deployment=deployment, binding_waits=(), retry=None, dirty=record.dirty + 1
    )
    tx.queue.dirty(NATIVE, 0, progress=True)
    return True


def install(tx: StateTransaction, now: int, floor: int, rows: Iterable[str]) -> None:
    """Waves whose handler came, went or changed: their rows get one fresh discovery, whatever was charged before."""
    for row_id in rows:
        tx.queue.dirty(row_id, now, progress=True)
        tx.by(tx.queue.next(), floor)


def ensure_alarm(tx: StateTransaction, now: int, floor: int) -> None:
    """Start-up: what was owed before is owed again, from the record and the queue alone."""
    tx.initialise()
    record = tx.record
    if record.event_sequence > record.event_acknowledged and tx.row(RECOVERY_EVENTS) is None:
        tx.queue.dirty(RECOVERY_EVENTS, now)
    native: int | None = None
    if record.dirty > record.processed:
        retry, row = record.valid_retry(), tx.row(NATIVE)
        due_at = row.due_at if row is not None else None
        native = retry.not_before if retry is not None else (due_at if due_at is not None else floor)
    tx.queue.checkpoint_native(native)
    tx.by(tx.queue.next(), floor)


def prearm(
    tx: StateTransaction,
    now: int,
    floor: int,
    *,
    invalidates_recovery: bool,
    lanes: Sequence[str],
    publication_required: bool,
) -> None:
    """Before a body runs: a newer generation, due lanes and an armed alarm, whatever becomes of the body."""
    if not invalidates_recovery and not lanes:
        return
    tx.initialise()
    if invalidates_recovery:
        tx.queue.dirty(NATIVE, now)
        if publication_required:
            tx.queue.dirty(PUBLICATION, now)
        tx.record = tx.record.with_(dirty=tx.record.dirty + 1)
    for lane in lanes:
        tx.queue.dirty(lane, now)
    tx.by(tx.queue.next(), floor)


def schedule(tx: StateTransaction, lane: str, due_at: int, now: int, floor: int, cursor: int | None) -> bool:
    """Make a lane due, with a strictly increasing cursor as progress. False if the cursor was known."""
    counted = True
    if cursor is None:
        tx.queue.dirty(lane, due_at)
    else:
        counted = tx.queue.progress(lane, due_at, cursor)
        if counted and lane in {NATIVE, PUBLICATION}:
            if lane == PUBLICATION:
                tx.queue.dirty(NATIVE, now, progress=True)
            tx.record = tx.record.with_(retry=None, dirty=tx.record.dirty + 1)
    tx.by(tx.queue.next(), floor)
    return counted


def record_progress(
    tx: StateTransaction, lanes: Iterable[str], now: int, floor: int, *, own: bool, publication_required: bool
) -> bool:
    """New facts for these lanes. `own`: native work of the running pass, which makes no newer generation."""
    affected = set(lanes)
    if PUBLICATION in affected:
        if publication_required:
            affected.add(NATIVE)
        else:
            affected.discard(PUBLICATION)
    if not affected:
        return False
    for lane in sorted(affected):
        tx.queue.dirty(lane, now, progress=True)
    if NATIVE in affected:
        record = tx.record
        if not own:
            tx.record = record.with_(retry=None, dirty=record.dirty + 1)
        elif record.retry is not None:
            tx.record = record.with_(retry=None)
        tx.initialise()
    tx.by(floor, floor)
    return True


def native_ready(tx: StateTransaction, now: int) -> bool:
    """Whether a begin at `now` would find native work it may charge."""
    record = tx.record
    if record.processed >= record.dirty:
        return False
    retry, native, publication = record.valid_retry(), tx.row(NATIVE), tx.row(PUBLICATION)
    if retry is not None and retry.not_before > now:
        return False
    if publication is not None and publication.state is RowState.PARKED:
        return False
    return native is not None and native.due_at is not None and native.not_before <= now


def begin(tx: StateTransaction, now: int, floor: int, *, charged_revision: int, active: int) -> Begin:
    """Observe the generation and charge native once per revision and event, or find the object caught up."""
    generation = tx.record.dirty
    native = tx.row(NATIVE)
    if native is None or not native_ready(tx, now):
        return Begin(generation, actionable=False, active_at_start=active)
    if native.revision != charged_revision:
        charged = tx.queue.claim(native, now, native=True)
        if charged is None:
            return Begin(generation, actionable=False, active_at_start=active)
        native = charged
    tx.at(tx.queue.next(), floor)
    return Begin(generation, actionable=True, revision=native.revision, stalls=native.stalls, active_at_start=active)
