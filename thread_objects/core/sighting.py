"""The last reading of the object's rows, kept while nothing can have outdated it.

A reading is certain while the dirty generation is the one it was taken at, no mutation runs, and no Attempt or
recovery has run since. It is promptness only: without it a step reads again.
"""

from __future__ import annotations

from thread_objects.contract.views import Survey, ThreadView
from thread_objects.core.gate import Gate
from thread_objects.core.selection import Scan
from thread_objects.core.state import MaintenanceState


class Sighting:
    """One incarnation's reading. `single`: the object owns one Thread, so that its view is the whole object."""

    __slots__ = ("_gate", "_own", "_scan", "_single", "_state")

    def __init__(self, state: MaintenanceState, gate: Gate, *, single: bool) -> None:
        self._state = state
        self._gate = gate
        self._single = single
        self._scan: Scan | None = None
        self._own: Scan | None = None

    def certain(self) -> Scan | None:
        """The reading, if it still says how the object stands."""
        scan = self._scan
        if scan is None or self._gate.active > 0 or scan.generation != self._state.record.dirty:
            return None
        return scan

    def behind(self) -> Scan | None:
        """What own work read last, while a mutation runs beside it: possibly outdated, and then known to be.

        Enough for a checkpoint without dispatch: with a producer in hand it acknowledges nothing, whatever it reads.
        """
        return self._own if self._gate.active > 0 else None

    def disturb(self) -> None:
        """The object's own work starts, or ended in a way that says nothing."""
        self._scan = None
        self._own = None

    def take_applied(self, survey: Survey) -> None:
        """A survey read by the batch that was just released, at the end of its transaction."""
        undisturbed, self._gate.undisturbed = self._gate.undisturbed, None
        if undisturbed is not None and not survey.partial and self._gate.active == 0:
            self._scan = to_scan(survey, self._state.record.dirty)

    def take(self, scan: Scan) -> None:
        """What a step has read. One that was cut short is not kept: the next one reads from elsewhere."""
        self._scan = None if scan.overlapped or (scan.more and not self._single) else scan

    def stamp(self) -> int | None:
        """The generation at which own work starts; None when a mutation runs beside it."""
        return None if self._gate.active > 0 else self._state.record.dirty

    def replace(self, view: ThreadView, stamp: int | None) -> None:
        """Own work ended and read its Thread last: on a single-Thread object that is a reading of everything."""
        self._scan = None
        self._own = Scan(self._state.record.dirty, (view,), overlapped=True) if self._single else None
        if self._single and stamp is not None and stamp == self.stamp():
            self._scan = Scan(stamp, (view,))


def to_scan(
    survey: Survey,
    generation: int,
    newer: dict[str, ThreadView] | None = None,
    *,
    earlier: dict[str, ThreadView] | None = None,
    overlapped: bool = False,
) -> Scan:
    """A survey as a scan. `newer` holds views that own work brought while it was under way: at least as new.

    `earlier`: what the pages before it held.
    """
    views = survey.threads
    if newer or earlier or survey.following is not None:
        by_id = {**(earlier or {}), **{view.thread_id: view for view in views}, **(newer or {})}
        views = tuple(by_id[thread_id] for thread_id in sorted(by_id))
    return Scan(generation, views, survey.duties, survey.truncated or survey.following is not None, overlapped)
