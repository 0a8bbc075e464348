"""Random lives of an object: mutations, passes answered in any order, crashes anywhere. Each prints its seed."""

from random import Random

import pytest

from tests.unit.core.world import APPLIED, READY, SUSPENDED, UNKNOWN, Shell, fault, key_of
from thread_objects.contract.views import Registry
from thread_objects.core import command
from thread_objects.core.config import LanePhase, LaneSpec, MaintenanceConfig
from thread_objects.core.due_queue import NATIVE

ENDS = ("settled", "settled", "settled", SUSPENDED, UNKNOWN, "yielded", "idle", "unbound")
WAITING = (SUSPENDED, UNKNOWN)


class Life:
    """One object with a fake ledger, driven by a seeded choice at every step."""

    def __init__(self, seed: int, *, shared: bool, calm: bool = False) -> None:
        self.random = Random(seed)
        self.calm = calm
        lanes = (LaneSpec("L", 5_000), LaneSpec("slow", 60_000, LanePhase.AFTER_NATIVE))
        config = MaintenanceConfig(
            shared_host=shared,
            lanes=lanes,
            publication_required=seed % 2 == 1,
            projection=seed % 3 == 1,
            message_timeout_ms=9_000 if seed % 5 == 1 else None,
        )
        self.shell = Shell(config=config)
        self.threads = ("A", "B", "C") if shared else ("A",)
        self.deployment = 1
        self.admitted: list[str] = []
        self.held: list = []
        self.crash()

    # --- what may happen ----------------------------------------------------------------------------------------

    def crash(self) -> None:
        """The incarnation is lost; the ledger and the carried state are not."""
        self.held.clear()
        self.shell.restart()

    def mutate(self) -> None:
        """Prearm, change the ledger, and answer now or later, or never."""
        shell, world = self.shell, self.shell.world
        thread = self.random.choice(self.threads)
        rows = world.rows.get(thread, [])
        waiting = [row for row in rows if row.state in WAITING]
        mutation = shell.maintenance.prearm(shell.now, lanes=self.random.choice(((), ("L",))))
        if waiting and self.random.random() < 0.5:
            self.random.choice(waiting).state = APPLIED
        elif rows and self.random.random() < 0.2:
            self.random.choice(rows).abort = True
        else:
            self.admitted.append(world.submit(thread))
        self.held.append((mutation, world.survey()))
        if self.random.random() < 0.8:
            self.release()

    def release(self) -> None:
        """The answer of the oldest batch in hand."""
        if self.held:
            shell = self.shell
            mutation, survey = self.held.pop(0)
            shell.maintenance.release(mutation, shell.now, progressed=(NATIVE,))
            shell.maintenance.note_survey(survey, shell.now)
            shell.maintenance.hint(shell.now)

    def recover(self, thread: str):
        """Recovery settles what was aborted and parks what is unknown; it may fail for a while."""
        world, decision = self.shell.world, ("ResumeFromTurnBoundary", "deferred")
        held = world.faults.get(thread)
        if held is not None and held > self.shell.now:
            return world.recovered(thread, recovered=1, fault=fault(thread, held))
        if not self.calm and self.random.random() < 0.06:
            world.faults[thread] = self.shell.now + 5_000
            return world.recovered(thread, recovered=1, fault=fault(thread, world.faults[thread]))
        world.faults.pop(thread, None)
        aborted = [row for row in world.rows.get(thread, []) if row.abort]
        for row in aborted:
            world.rows[thread].remove(row)
            world.settled.append(row.sid)
        if aborted:
            return world.recovered(thread, "SettleAborted", "repaired")
        if any(row.state == UNKNOWN for row in world.rows.get(thread, [])):
            decision = ("AwaitUnknownResolution", "unknown")
        return world.recovered(thread, *decision)

    def attempt(self, thread: str):
        """An Attempt recovers, claims the head, and ends in some way."""
        world = self.shell.world
        recovered = self.recover(thread).recovered
        if recovered.fault is not None:
            return world.attempted(thread, "faulted", recovered=recovered)
        head = world.head(thread)
        ended = "settled" if self.calm else self.random.choice(ENDS)
        if head is None or head.state in WAITING:
            ended = "idle"
        if ended in ("settled", SUSPENDED, UNKNOWN, "yielded") and head is not None and head.state == READY:
            head.state = APPLIED
        registry = Registry(key=f"K{self.deployment}", deployment=self.deployment)
        return world.attempted(thread, ended, recovered=recovered, registry=registry)

    def answer(self) -> None:
        """One open command ends: well, badly, or with an answer that a crash swallows."""
        shell, event = self.shell, self.shell.event
        asked = shell.commands.pop(self.random.randrange(len(shell.commands)))
        lost = not self.calm and self.random.random() < 0.05
        failed = not self.calm and self.random.random() < 0.07
        match asked:
            case command.Survey():
                if failed:
                    event.survey_failed("StoreUnavailable", shell.now)
                else:
                    event.surveyed(shell.world.survey(), shell.now)
            case command.AttemptThread(thread_id=thread):
                answer = self.attempt(thread)
                if lost:
                    return self.crash()
                if failed:
                    event.attempt_failed(thread, "WorkerGone", shell.now)
                else:
                    event.attempt_ended(thread, answer, shell.now)
            case command.RecoverThread(thread_id=thread):
                answer = self.recover(thread)
                if lost:
                    return self.crash()
                if failed:
                    event.recovery_failed(thread, "WorkerGone", shell.now)
                else:
                    event.recovered(thread, answer, shell.now)
            case command.Publish():
                if failed:
                    event.publish_failed("SinkDown", shell.now)
                else:
                    event.published(self.random.choice((None, None, shell.now + 700)), shell.now)
            case command.RunLane(lane=lane):
                if failed:
                    event.lane_failed(lane, "LaneError", shell.now)
                else:
                    event.lane_ended(lane, self.random.choice((None, shell.now + 700)), shell.now)
        return None

    def look(self) -> None:
        """Advance the pass, and finish it when it is done."""
        shell = self.shell
        if shell.event is None:
            return
        shell.advance()
        if shell.event.done:
            shell.finish()
        else:
            wake = shell.event.wake_at()
            assert shell.commands, f"the event waits for nothing: {wake}"
            assert wake is None or shell.now < wake

    def step(self) -> None:
        """One random thing."""
        shell = self.shell
        chance = self.random.random()
        if chance < 0.02:
            self.crash()
        elif chance < 0.04:
            self.deployment += 1
            shell.maintenance.observe_registry(f"K{self.deployment}", self.deployment, shell.now)
        elif chance < 0.24:
            self.mutate()
        elif chance < 0.30:
            self.release()
        elif chance < 0.42:
            shell.now += self.random.choice((1, 40, 400, 3_000, 70_000))
        elif shell.event is not None and shell.commands:
            self.answer()
        elif shell.event is None and shell.alarm() is not None:
            shell.now = max(shell.now, shell.alarm())
            shell.event = shell.maintenance.begin_event(shell.now)
        self.look()
        self.check()

    # --- what must hold -----------------------------------------------------------------------------------------

    def check(self) -> None:
        """Owed work is armed at every instant, also for an incarnation that starts right now."""
        state = self.shell.state
        if state.record.dirty > state.record.processed:
            assert self.shell.alarm() is not None
        assert state.record.processed <= state.record.dirty
        if not self.held and self.shell.event is None and state.record.processed == state.record.dirty:
            for thread in self.threads:
                head = self.shell.world.head(thread)
                waits = {wait.submission_id for wait in state.record.binding_waits}
                assert head is None or head.state in WAITING or head.sid in waits, (thread, head)

    def drain(self) -> None:
        """Alarms alone, everything answered well: the object comes to rest."""
        shell = self.shell
        self.calm = True
        self.crash()
        self.deployment += 1
        shell.maintenance.observe_registry(f"K{self.deployment}", self.deployment, shell.now)
        for _ in range(400):
            if shell.alarm() is None or self.blocked():
                return
            shell.now = max(shell.now, shell.alarm())
            shell.event = shell.maintenance.begin_event(shell.now)
            self.look()
            while shell.event is not None:
                self.answer_lanes_idle()
                self.look()
            self.check()
        raise AssertionError("the object never comes to rest")

    def blocked(self) -> bool:
        """Started work behind a waiting head: the contract keeps looking at it, ever more rarely."""
        views = [self.shell.world.view(thread) for thread in self.threads]
        heads = [view.head for view in views if view.head is not None]
        return any(view.busy for view in views) and all(head.state in WAITING for head in heads)

    def answer_lanes_idle(self) -> None:
        """As `answer`, but a lane and publication have nothing more to do."""
        asked = self.shell.commands[0]
        if isinstance(asked, command.RunLane):
            self.shell.commands.pop(0)
            self.shell.event.lane_ended(key_of(asked), None, self.shell.now)
        elif isinstance(asked, command.Publish):
            self.shell.commands.pop(0)
            self.shell.event.published(None, self.shell.now)
        else:
            self.answer()


@pytest.mark.parametrize("shared", [False, True], ids=["single", "shared"])
@pytest.mark.parametrize("seed", range(40))
def test_every_submission_is_settled_once_whatever_happens(seed, shared):
    """After any life, alarms alone bring the object to rest; then every wait ended, each input settled once."""
    life = Life(seed, shared=shared)
    for _ in range(250):
        life.step()
    life.drain()
    world = life.shell.world
    for rows in world.rows.values():
        assert all(row.state in WAITING for row in rows) or rows[0].state in WAITING
        for row in rows:
            row.state = APPLIED if row.state in WAITING else row.state
    life.shell.mutate()
    life.drain()
    assert sorted(world.settled) == sorted(life.admitted)
    record = life.shell.state.record
    assert (record.nonterminal, record.processed, life.shell.alarm()) == (0, record.dirty, None)
