"""The maintenance record: generations, cursors, binding waits and the retry that outlive every incarnation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Retry:
    """A native retry. Obsolete, and ignored, once `generation` is no longer the dirty one."""

    generation: int
    not_before: int
    native_only: bool
    stalls: int


@dataclass(frozen=True, slots=True)
class BindingWait:
    """A head without a current binding. It holds no ownership and no timer; a registry change ends it.

    `queue_sequence` tells a wait whose Submission was overtaken by an earlier head from one that is finished.
    """

    thread_id: str
    submission_id: str
    reported_at: int
    agent_id: str = ""
    queue_sequence: int = 0


@dataclass(frozen=True, slots=True)
class MaintenanceRecord:
    """The record as it stands; the defaults are those of an object that has none yet: one discovery pass is owed."""

    dirty: int = 1
    processed: int = 0
    nonterminal: int = 0
    last_served_thread_id: str | None = None
    last_recovered_thread_id: str | None = None
    last_after_native_lane_id: str | None = None
    registry_key: str | None = None
    deployment: int = 0
    binding_waits: tuple[BindingWait, ...] = ()
    event_sequence: int = 0
    event_acknowledged: int = 0
    retry: Retry | None = None

    def with_(self, **changes: Any) -> MaintenanceRecord:
        """The record with these fields changed."""
        return replace(self, **changes)

    def valid_retry(self) -> Retry | None:
        """The retry of the dirty generation."""
        retry = self.retry
        return retry if retry is not None and retry.generation == self.dirty else None

    def wait_of(self, thread_id: str) -> BindingWait | None:
        """The binding wait of a Thread."""
        return next((wait for wait in self.binding_waits if wait.thread_id == thread_id), None)

    def with_wait(self, thread_id: str, wait: BindingWait | None) -> MaintenanceRecord:
        """Store, replace or clear a Thread's binding wait."""
        kept = tuple(held for held in self.binding_waits if held.thread_id != thread_id)
        waits = kept if wait is None else (*kept, wait)
        return self if waits == self.binding_waits else replace(self, binding_waits=waits)
