"""The mutation gate: what runs beside a pass, so that nothing is acknowledged over a body still at work.

Counters of one incarnation. A new one starts at zero: the durable generation covers what was lost.
"""

from __future__ import annotations

from dataclasses import dataclass

from thread_objects.core.due_queue import NATIVE, PUBLICATION


@dataclass(frozen=True, slots=True)
class Mutation:
    """One prearmed body in hand.

    `alone`: no other mutation was active when it began. `ends_seen`: how many Attempts and recoveries had ended then.
    """

    serial: int
    lanes: tuple[str, ...]
    invalidates_recovery: bool
    alone: bool
    ends_seen: int

    def produces(self) -> tuple[str, ...]:
        """The rows this body is a producer of while it runs."""
        return (*self.lanes, NATIVE, PUBLICATION) if self.invalidates_recovery else self.lanes


class Gate:
    """`revision` changes at every notify; whoever waits reads it before it reads the queue.

    `task` names the workflow task in hand, None where that is not known. What a task delivers happened before whatever
    that task starts, so an end that arrives in the very task in which a mutation began came before its body.
    """

    __slots__ = (
        "_begun_in",
        "_ends_before",
        "_lanes",
        "_serial",
        "active",
        "deferred",
        "ends",
        "revision",
        "task",
        "undisturbed",
    )

    def __init__(self) -> None:
        self.active = 0
        self.revision = 0
        self.deferred = 0
        self.ends = 0
        self.task: int | None = None
        self._begun_in: int | None = None
        self._ends_before = 0
        self.undisturbed: Mutation | None = None
        self._serial = 0
        self._lanes: dict[str, int] = {}

    def enter(self, lanes: tuple[str, ...], *, invalidates_recovery: bool) -> Mutation:
        """Count a mutation and its lanes, after its prearm was stored."""
        self._serial += 1
        self._begun_in = self.task
        self._ends_before = 0
        mutation = Mutation(self._serial, lanes, invalidates_recovery, self.active == 0, self.ends)
        self.active += 1
        for lane in mutation.produces():
            self._lanes[lane] = self._lanes.get(lane, 0) + 1
        return mutation

    def leave(self, mutation: Mutation) -> None:
        """The body is over: release its lanes and notify. Never below zero."""
        self.active = max(0, self.active - 1)
        for lane in mutation.produces():
            left = self._lanes.get(lane, 0) - 1
            if left > 0:
                self._lanes[lane] = left
            else:
                self._lanes.pop(lane, None)
        # Whatever it read at its end describes the object only if nothing else moved while it ran.
        ends_before = mutation.ends_seen + self._ends_before
        alone = mutation.alone and mutation.serial == self._serial and ends_before == self.ends
        self.undisturbed = mutation if alone else None
        self.notify()

    def ended(self) -> None:
        """An Attempt or a recovery of this object ended."""
        self.ends += 1
        if self.task is not None and self.task == self._begun_in:
            self._ends_before += 1

    def notify(self) -> None:
        """Something changed that a waiting pass may want to see."""
        self.revision += 1

    def changed_since(self, revision: int) -> bool:
        """A wait for a change from this revision would return at once."""
        return self.revision != revision

    def producing(self, lane: str) -> bool:
        """A body that may still change this lane runs."""
        return lane in self._lanes

    def active_lanes(self) -> tuple[str, ...]:
        """Lanes with a producer, in id order."""
        return tuple(sorted(self._lanes))
