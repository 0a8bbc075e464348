"""Selection: which Threads get an Attempt, and which get recovery, in an order that starves nobody.

Ids are compared as plain code-point strings.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from thread_objects.contract import limits
from thread_objects.contract.views import ThreadView
from thread_objects.core.findings import Findings
from thread_objects.core.record import MaintenanceRecord


@dataclass(frozen=True, slots=True)
class Scan:
    """One reading of the object: the views in thread-id order, and the Threads with duties of their own.

    `generation` is the dirty generation read before the scan. `more`: the reading was cut short. `overlapped`: a
    mutation ran when the scan began, so it proves nothing about that generation.
    """

    generation: int
    views: tuple[ThreadView, ...]
    duties: tuple[str, ...] = ()
    more: bool = False
    overlapped: bool = False


@dataclass(frozen=True, slots=True)
class Backlog:
    """Threads for the recovery wave, in order; `more` when the bound cut it."""

    thread_ids: tuple[str, ...]
    more: bool


def rotate(ids: Iterable[str], last: str | None) -> list[str]:
    """The ids behind `last` first, then the others; each part in the order given."""
    ordered = list(ids)
    if last is None:
        return ordered
    return [i for i in ordered if i > last] + [i for i in ordered if i <= last]


def eligible_heads(scan: Scan, findings: Findings, record: MaintenanceRecord) -> list[str]:
    """Threads whose head may be dispatched, by id."""
    return sorted(view.thread_id for view in scan.views if findings.eligible(view, record))


def take(eligible: Sequence[str], excluded: Container[str], last_served: str | None, room: int) -> list[str]:
    """Up to `room` runnable Threads, starting behind the one served last."""
    if room <= 0:
        return []
    return rotate((i for i in eligible if i not in excluded), last_served)[:room]


def backlog(scan: Scan, eligible: Container[str], findings: Findings, record: MaintenanceRecord, now: int) -> Backlog:
    """Threads that need recovery before anything else: heads in scan order, then duty Threads."""
    heads = [view.thread_id for view in scan.views if view.head is not None or findings.uncertain(view)]
    wanted = [
        thread_id
        for thread_id in dict.fromkeys((*heads, *scan.duties))
        if thread_id not in eligible and findings.faults.get(thread_id, now) <= now
    ]
    chosen = rotate(wanted, record.last_recovered_thread_id)
    most = limits.BACKLOG_THREADS_MAX
    return Backlog(tuple(chosen[:most]), len(chosen) > most)
