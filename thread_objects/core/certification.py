"""Certification: what a pass may acknowledge, and which deadline it leaves, at its checkpoint, finish or failure.

A racing producer always keeps its newer generation dirty; nothing is acknowledged over a body still running.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from thread_objects.contract import limits
from thread_objects.contract.views import ThreadView
from thread_objects.core.backoff import backoff
from thread_objects.core.config import MaintenanceConfig
from thread_objects.core.due_queue import NATIVE, Row
from thread_objects.core.findings import Findings
from thread_objects.core.generation import Begin
from thread_objects.core.record import BindingWait, MaintenanceRecord, Retry
from thread_objects.core.selection import Scan
from thread_objects.core.state import StateTransaction


@dataclass(frozen=True, slots=True)
class Observation:
    """What the event saw when its first step came to the scan."""

    generation: int
    overlapped: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a checkpoint. `next_attempt_at` is the native deadline before the queue's floor."""

    next_attempt_at: int | None
    nonterminal: int
    empty: bool


def checkpoint(
    tx: StateTransaction,
    now: int,
    j: float,
    config: MaintenanceConfig,
    *,
    step: Begin,
    observation: Observation,
    scan: Scan,
    findings: Findings,
    eligible: Iterable[str],
    progressed: bool,
    discovery_pending: bool,
    active: int,
) -> Verdict:
    """Acknowledge the observed generation, or leave the retry and deadline that the remaining work needs."""
    record = tx.record
    remaining = [view for view in scan.views if view.nonterminal > 0]
    autonomous = (
        bool(findings.pending or findings.faults or findings.work_retries or findings.unfinished)
        or discovery_pending
        # A duty that no recovery of this event has looked at: the wave was over, or admission, before it was found.
        or any(thread_id not in findings.recovered for thread_id in scan.duties)
        or any(findings.autonomous(view, record) for view in remaining)
    )
    overlap = observation.overlapped or step.active_at_start > 0 or active > 0
    certified = observation.generation
    if not (remaining or scan.duties or overlap or scan.overlapped) and record.dirty == scan.generation:
        certified = scan.generation
    processed = record.processed if autonomous or overlap else max(record.processed, certified)
    can_back_off = not overlap and record.dirty == step.generation
    delay = _delay(now, j, config, step, findings, eligible, autonomous=autonomous, progressed=progressed)
    retry: Retry | None = None
    if autonomous and not progressed and can_back_off:
        stalls = min(limits.RETRY_STALLS_MAX, step.stalls + 1)
        retry = Retry(step.generation, now + delay, native_only=True, stalls=stalls)
    nonterminal = sum(view.nonterminal for view in remaining)
    tx.record = record.with_(
        processed=processed,
        retry=retry,
        nonterminal=nonterminal,
        binding_waits=_live_waits(record, remaining) if not scan.more else record.binding_waits,
    )
    deadline: int | None = None
    if autonomous:
        deadline = now + (delay if can_back_off else config.floor_ms)
    elif overlap or record.dirty > processed:
        deadline = now + config.floor_ms
    tx.queue.checkpoint_native(deadline)
    return Verdict(deadline, nonterminal, empty=not remaining)


def _delay(
    now: int,
    j: float,
    config: MaintenanceConfig,
    step: Begin,
    findings: Findings,
    eligible: Iterable[str],
    *,
    autonomous: bool,
    progressed: bool,
) -> int:
    base, cap = config.alarm_backoff_base_ms, config.alarm_backoff_cap_ms
    rearm = base if progressed else backoff(step.stalls, j, base=base, cap=cap)
    instants = [*findings.faults.values(), *findings.work_retries.values()]
    if any(True for _ in eligible):
        instants.append(now)
    return max(rearm if autonomous else 0, min(instants, default=now) - now)


def _live_waits(record: MaintenanceRecord, remaining: list[ThreadView]) -> tuple[BindingWait, ...]:
    """Binding waits without those of finished Submissions: their Thread's head is gone, or lies behind them."""
    if not record.binding_waits:
        return record.binding_waits
    heads = {view.thread_id: view.head for view in remaining if view.head is not None}
    return tuple(
        wait
        for wait in record.binding_waits
        if (head := heads.get(wait.thread_id)) is not None
        and (head.submission_id == wait.submission_id or head.queue_sequence < wait.queue_sequence)
    )


def finish(
    tx: StateTransaction,
    now: int,
    config: MaintenanceConfig,
    *,
    observed: int,
    next_attempt_at: int | None,
    active: int,
) -> bool:
    """The alarm decision of a pass that did not fail. True: rearmed; False: cleared."""
    record, floor = tx.record, now + config.floor_ms
    native: int | None = None
    if active > 0 or record.dirty > record.processed:
        retry = record.valid_retry()
        if retry is not None and active == 0:
            native = max(floor, retry.not_before)
        elif record.dirty == observed and active == 0 and next_attempt_at is not None:
            native = next_attempt_at
        else:
            native = floor
    tx.queue.checkpoint_native(native)
    due_at = tx.queue.next()
    tx.at(due_at, floor)
    return due_at is not None


def rearm_after_failure(
    tx: StateTransaction,
    now: int,
    j: float,
    config: MaintenanceConfig,
    *,
    observed: int,
    native_only: bool,
    rows: Iterable[Row],
    charged: dict[str, int],
    active: int,
    outage: bool = False,
) -> bool:
    """The alarm decision of a pass that failed. True: rearmed; False: cleared. One `j` for the whole transaction."""
    record, floor = tx.record, now + config.floor_ms
    base, cap = config.alarm_backoff_base_ms, config.alarm_backoff_cap_ms
    stored = record.retry if record.retry is not None and record.retry.generation == observed else None
    if stored is not None and stored.native_only:
        retry = stored
    else:
        same = stored if stored is not None and stored.native_only == native_only else None
        stalls = same.stalls if same is not None else 0
        not_before = max(same.not_before if same is not None else 0, now + backoff(stalls, j, base=base, cap=cap))
        retry = Retry(observed, not_before, native_only, min(limits.RETRY_STALLS_MAX, stalls + 1))
    tx.record = record.with_(retry=retry)
    if outage:
        tx.queue.spare_native(now)
    native: int | None = None
    if record.dirty > record.processed or active > 0:
        native = floor if active > 0 or record.dirty != observed else retry.not_before
    tx.queue.checkpoint_native(native)
    for row in rows:
        if row.id == NATIVE or not row.due(now):
            continue
        held: Row | None = row
        if charged.get(row.id) != row.revision:
            held = tx.queue.claim(row, now)
        if held is not None:
            tx.queue.complete(held, now + backoff(held.stalls, j, base=base, cap=cap))
    due_at = tx.queue.next()
    tx.at(due_at, floor)
    return due_at is not None
