"""Activities as processes: one durable transaction per step, so that a crash fits between any two of them.

A process learns of its cancellation only at its next step, and it goes on after the server gave it up: then its
writes meet the epoch of whoever came after it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.simulation.ledger import SUSPENDED, UNKNOWN, Fenced, Ledger, Owner
from tests.simulation.shell import Deliver, Start
from thread_objects.contract.activities import AttemptAnswer, RecoverAnswer
from thread_objects.contract.views import Recovered, Registry
from thread_objects.core import command
from thread_objects.core.application_alarms import ApplicationAlarm


@dataclass(frozen=True, slots=True)
class Worker:
    """What the worker of a process is: its registry, and the Threads whose agent it does not serve."""

    registry: Registry
    lacks: frozenset[str] = frozenset()


@dataclass(slots=True)
class Process:
    """One running activity. `choose` stands for everything the world outside decides: it picks one of the names."""

    start: Start
    worker: Worker
    choose: Callable[[str, tuple[str, ...]], str]
    told: bool = False
    stage: str = "begin"
    owner: Owner | None = None
    recovered: Recovered | None = None
    result: Any = None
    failure: str | None = None
    left: int = 0

    @property
    def over(self) -> bool:
        return self.stage == "over"

    def step(self, ledger: Ledger, now: int) -> None:
        """One transaction. Raises `Away` and changes nothing while storage is out of reach."""
        match self.start.command:
            case command.AttemptThread(thread_id=thread):
                self._attempt(ledger, thread, now)
            case command.RecoverThread(thread_id=thread, cursor=cursor):
                self._recover(ledger, thread, cursor, now)
            case command.RunLane(lane=lane):
                self._lane(ledger, lane, now)
            case command.Publish():
                self._publish(ledger, now)
            case Deliver(alarm=alarm):
                self._deliver(ledger, alarm)

    def _end(self, result: Any = None, failure: str | None = None) -> None:
        self.stage, self.result, self.failure = "over", result, failure

    # --- Attempts -------------------------------------------------------------------------------------------------

    def _attempt(self, ledger: Ledger, thread: str, now: int) -> None:
        if self.stage == "begin":
            fails = self.choose("recovery", ("clean", "fault")) == "fault"
            self.recovered = ledger.recover(thread, 0, self.start.ended, now, whole=True, fails=fails)
            if self.recovered.fault is not None:
                self._answer(ledger, thread, "faulted")
            elif self.told:
                self._answer(ledger, thread, "yielded")
            else:
                self.stage = "claim"
        elif self.stage == "claim":
            self._claim(ledger, thread, now)
        else:
            self._work(ledger, thread, now)

    def _claim(self, ledger: Ledger, thread: str, now: int) -> None:
        ledger.reach()
        head = ledger.head(thread)
        fresh = head is not None and head.state == "ready"
        if thread in self.worker.lacks and head is not None and fresh and not head.abort:
            self._answer(ledger, thread, "unbound", head.sid)
            return
        self.owner = ledger.begin(thread, self.start.attempt_id, self.start.ended, now)
        if self.owner is None:
            self._answer(ledger, thread, "idle")
        else:
            self.stage = "work"

    def _work(self, ledger: Ledger, thread: str, now: int) -> None:
        owner, through = self.owner, self.start.applied_through
        assert owner is not None
        try:
            aborted = ledger.turn(thread, owner.epoch, now)
            if aborted:
                self._settled(ledger, thread, owner, through)
            elif thread in self.worker.lacks:
                ledger.leave(thread, owner.epoch, through)
                self._answer(ledger, thread, "unbound", owner.sid)
            elif self.told:
                ledger.leave(thread, owner.epoch, through)
                self._answer(ledger, thread, "yielded", owner.sid)
            else:
                self._outcome(ledger, thread, owner, through, now)
        except Fenced:
            # Whoever took over answers for the Submission.
            self._answer(ledger, thread, "yielded", owner.sid)

    def _outcome(self, ledger: Ledger, thread: str, owner: Owner, through: int, now: int) -> None:
        match self.choose("attempt", ("settled", "turn", "suspended", "unknown", "yielded")):
            case "settled":
                self._settled(ledger, thread, owner, through)
            case "suspended":
                ledger.leave(thread, owner.epoch, through, SUSPENDED)
                self._answer(ledger, thread, "suspended", owner.sid)
            case "unknown":
                ledger.leave(thread, owner.epoch, through, UNKNOWN)
                self.recovered = ledger.recover(thread, 0, self.start.ended, now, whole=True, fails=False)
                self._answer(ledger, thread, "unknown", owner.sid)
            case "yielded":
                ledger.leave(thread, owner.epoch, through)
                self._answer(ledger, thread, "yielded", owner.sid)

    def _settled(self, ledger: Ledger, thread: str, owner: Owner, through: int) -> None:
        ledger.finish(thread, owner.epoch, through)
        self._answer(ledger, thread, "settled", owner.sid)

    def _answer(self, ledger: Ledger, thread: str, ended: str, sid: str | None = None) -> None:
        self._end(
            AttemptAnswer(
                attempt_id=self.start.attempt_id,
                ended=ended,
                submission_id=sid,
                agent_id="agent" if sid else None,
                recovered=self.recovered or Recovered(thread_id=thread),
                view=ledger.view(thread),
                registry=self.worker.registry,
            )
        )

    # --- everything else ------------------------------------------------------------------------------------------

    def _recover(self, ledger: Ledger, thread: str, cursor: str | None, now: int) -> None:
        fails = self.choose("recovery", ("clean", "fault")) == "fault"
        recovered = ledger.recover(thread, int(cursor or 0), self.start.ended, now, whole=False, fails=fails)
        self._end(RecoverAnswer(recovered=recovered, view=ledger.view(thread), registry=self.worker.registry))

    def _lane(self, ledger: Ledger, lane: str, now: int) -> None:
        if self.stage == "begin":
            self.left = ledger.serve(lane, 2)
            self.stage = "served"
        elif self.choose("lane", ("well", "failed")) == "failed":
            self._end(failure="LaneError")
        elif self.left or self.choose("lane-due", ("idle", "later")) == "later":
            self._end(((), now + 700))
        else:
            self._end(((), None))

    def _publish(self, ledger: Ledger, now: int) -> None:
        ledger.reach()
        if self.choose("publish", ("well", "failed")) == "failed":
            self._end(failure="SinkDown")
        else:
            self._end(None if self.choose("publish-due", ("idle", "later")) == "idle" else now + 700)

    def _deliver(self, ledger: Ledger, alarm: ApplicationAlarm) -> None:
        if self.stage == "begin":
            ledger.delivered.add((alarm.name, alarm.run_at))
            self.stage = "handled"
        elif self.choose("alarm", ("well", "failed")) == "failed":
            self._end(failure="HandlerError")
        else:
            self._end()
