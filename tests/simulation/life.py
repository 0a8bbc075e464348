"""One seeded life of an object: weather, inputs, faults and time, then a calm end in which everything must settle."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Any

from tests.simulation import laws
from tests.simulation.ledger import WAITING, Item
from tests.simulation.server import Server
from tests.simulation.shell import Broken, Wake
from thread_objects.contract.alarms import CancelAlarm, SetAlarm
from thread_objects.core.config import LanePhase, LaneSpec, MaintenanceConfig

EPOCH = 1_800_000_000_000
ACTIONS_KEPT = 30
DRAIN_STEPS_MAX = 8_000
ROWS_MAX = 5

# Weather: (inputs, faults, time) as chances of a step; what is left is progress.
WEATHER = {
    "fair": (0.10, 0.01, 0.06),
    "rush": (0.35, 0.01, 0.03),
    "storm": (0.10, 0.12, 0.08),
    "slow": (0.06, 0.03, 0.35),
    "still": (0.00, 0.00, 0.02),
}
JUMPS = (1, 40, 400, 3_000, 20_000, 70_000)
LONG_JUMPS = (400, 3_000, 70_000, 250_000)

WELL = {
    "recovery": "clean",
    "attempt": "settled",
    "lane": "well",
    "lane-due": "idle",
    "publish": "well",
    "publish-due": "idle",
    "alarm": "well",
    "head start": "none",
    "worker": "new",
}


class Failure(AssertionError):
    """A law broke: with the seed, the step, and what was done last."""


class Life:
    """`step` does one thing; `drain` ends the life. `steps` counts both."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.steps = 0
        self.weather = "fair"
        self.calm = False
        self.told_late = False
        self.told = 0
        self.log: deque[tuple[Any, ...]] = deque(maxlen=ACTIONS_KEPT)
        random = self.random
        shared = random.random() < 0.6
        # What this life has much of: duties, work for lanes, tasks that are kept open by local activities.
        self.duties = random.choice((0.02, 0.02, 0.25))
        self.lane_share = random.choice((0.15, 0.45))
        self.heartbeats = random.choice((0.05, 0.4))
        self.threads = ("A", "B", "C", "D")[: random.randint(2, 4)] if shared else ("A",)
        slow = tuple(
            LaneSpec(f"slow{n}", random.choice((20_000, 180_001)), LanePhase.AFTER_NATIVE)
            for n in range(random.choice((0, 1, 3)))
        )
        lanes = (*(LaneSpec(name, 5_000) for name in ("quick", "other")[: random.randint(1, 2)]), *slow)
        self.lanes = tuple(lane.id for lane in lanes)
        config = MaintenanceConfig(
            shared_host=shared,
            native_slots=random.choice((0, 1)),
            lanes=lanes,
            publication_required=random.random() < 0.4,
            projection=random.random() < 0.3,
            message_timeout_ms=9_000 if random.random() < 0.3 else None,
        )
        self.server = Server(
            self.threads, config, now=EPOCH, seed=seed, choose=self.choose, tasks_max=random.choice((12, 40))
        )

    # --- what the world outside decides -----------------------------------------------------------------------------

    def choose(self, what: str, options: tuple[str, ...]) -> str:
        """The good outcome when calm; else mostly that one."""
        if self.calm:
            return WELL[what]
        chance = self.random.random()
        if what == "attempt":
            return "settled" if chance < 0.6 else options[int((chance - 0.6) / 0.4 * len(options))]
        if what == "recovery":
            return "fault" if chance < (0.15 if self.weather == "storm" else 0.03) else "clean"
        if what == "head start":
            return "claimed" if chance < 0.4 else "none"
        if what == "worker":
            return "older" if chance < 0.2 else "new"
        return options[1] if chance < (0.3 if self.weather == "storm" else 0.12) else options[0]

    # --- one step ---------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """One thing happens, then every law is asked."""
        if self.steps % 150 == 0:
            self.weather = self.random.choice(tuple(WEATHER))
            if self.weather != "storm":
                self.server.ledger.away = False
            self.log.append(("weather", self.weather))
        self.steps += 1
        inputs, faults, time = WEATHER[self.weather]
        chance = self.random.random()
        if chance < inputs:
            self._input()
        elif chance < inputs + faults:
            self._fault()
        elif chance < inputs + faults + time:
            self._time(self.random.choice(LONG_JUMPS if self.weather == "slow" else JUMPS))
        else:
            self._progress()
        laws.note_hungry(self.server)
        laws.check(self.server)

    def run(self, steps: int) -> None:
        """So many steps, then the drain. Raises `Failure`."""
        try:
            for _ in range(steps):
                self.step()
            self.drain()
        except AssertionError as broken:
            told = "\n".join("  " + " ".join(str(part) for part in action) for action in self.log)
            raise Failure(
                f"{type(broken).__name__}: {broken}\nlife {self.seed}, step {self.steps}, the last actions:\n{told}"
            ) from broken

    # --- inputs -----------------------------------------------------------------------------------------------------

    def _item(self) -> Item:
        random, ledger = self.random, self.server.ledger
        thread = random.choice(self.threads)
        rows = ledger.rows[thread]
        chance = random.random()
        self.told += 1
        if rows and chance < 0.12:
            return Item(0, "abort", thread, random.choice(rows).sid)
        waiting = [row for row in rows if row.state in WAITING]
        if waiting and chance < 0.5:
            row = random.choice(waiting)
            return Item(0, "resolve", thread, row.sid)
        kind = random.random()
        if kind < self.duties:
            return Item(0, "duty", thread, f"d{self.told}")
        if kind > 1 - self.lane_share:
            return Item(0, "lane", random.choice(self.lanes), f"l{self.told}")
        if len(rows) >= ROWS_MAX:
            return Item(0, "resolve", thread, random.choice(rows).sid)
        return Item(0, "submit", thread, f"s{self.told}")

    def _input(self) -> None:
        server, chance = self.server, self.random.random()
        if chance < 0.06:
            self.log.append(("hint",))
            server.wake(Wake())
            return
        if chance < 0.12:
            self._alarm()
            return
        if chance < 0.16:
            lane = self.random.choice(self.lanes)
            self.log.append(("schedule", lane))
            server.schedule(lane, server.now + self.random.choice((0, 500, 90_000)))
            return
        if server.busy and chance < 0.3:
            item = server.busy.pop(0)
            self.log.append(("again", item))
        else:
            item = self._item()
            # A lane's fact comes by a signal: a mark tells the sweep of native work only.
            chance = 0.5 if item.kind == "lane" else chance
            self.log.append(("signal" if chance < 0.7 else "update", item))
        if chance < 0.7:
            server.signal(item)
        else:
            server.update(item)

    def _alarm(self) -> None:
        server, random = self.server, self.random
        name = {"thread_id": random.choice(self.threads), "tag": "t", "alarm_id": random.choice(("x", "y"))}
        if random.random() < 0.2:
            self.log.append(("cancel alarm", name))
            server.set_alarm(CancelAlarm(**name))
        else:
            run_at = server.now + random.choice((0, 300, 5_000, 400_000))
            self.log.append(("alarm", name, run_at))
            server.set_alarm(SetAlarm(**name, run_at=run_at, payload=None))

    # --- faults -----------------------------------------------------------------------------------------------------

    def _fault(self) -> None:
        server, random = self.server, self.random
        chance = random.random()
        if chance < 0.2:
            self.log.append(("crash",))
            server.crash()
        elif chance < 0.35 and server.open:
            self.log.append(("task lost",))
            server.lose_task(forget_updates=random.random() < 0.3)
        elif chance < 0.5 and server.processes:
            serial = random.choice(tuple(server.processes))
            self.log.append(("given up", serial))
            server.give_up(serial)
        elif chance < 0.6 and server.locals and server.open:
            which = random.choice(tuple(server.locals))
            self.log.append(("local timed out", which))
            if random.random() < 0.5 and not server.locals[which].ran:
                server.run_local(which)
            server.answer_local(which, "away")
        elif chance < 0.7:
            server.ledger.away = not server.ledger.away
            self.log.append(("storage", "away" if server.ledger.away else "back"))
        elif chance < 0.8:
            self.log.append(("deploy",))
            server.deploy(frozenset(thread for thread in self.threads if random.random() < 0.3))
            server.announce()
        elif chance < 0.82 and server.busy:
            self.log.append(("stray",))
            server.stray()
        elif chance < 0.85:
            self.log.append(("head starts hand back",))
            server.hand_back()
        elif chance < 0.92:
            self.log.append(("sweep",))
            server.sweep()
            server.late()
        elif server.zombies:
            self.log.append(("zombie",))
            server.step_zombie()

    def _time(self, milliseconds: int) -> None:
        self.log.append(("time", milliseconds))
        self.server.pass_time(milliseconds)

    # --- progress ---------------------------------------------------------------------------------------------------

    def _progress(self) -> None:
        """Whatever can go on by itself; when nothing can, time does."""
        server, random = self.server, self.random
        choices: list[str] = []
        if server.can_deliver():
            choices.append("deliver")
        elif server.open:
            choices.append("local" if server.locals and random.random() >= self.heartbeats else "complete")
        if server.processes and (random.random() < 0.5 or not choices):
            choices = ["process"]
        if not choices:
            self._idle()
            return
        match random.choice(choices):
            case "local":
                self._local()
            case "complete":
                self.log.append(("complete",))
                server.complete()
            case "deliver":
                self.log.append(("deliver", len(server.pending)))
                server.deliver()
            case "process":
                self._process()

    def _local(self) -> None:
        server, random = self.server, self.random
        which = random.choice(tuple(server.locals)) if len(server.locals) > 1 else next(iter(server.locals))
        if not server.locals[which].ran:
            self.log.append(("local", which))
            server.run_local(which)
            if not self.calm and random.random() < 0.4:
                return
        self.log.append(("answer", which))
        server.answer_local(which)

    def _process(self) -> None:
        server = self.server
        serial = self.random.choice(tuple(server.processes))
        if serial in server.dead:
            self.log.append(("found dead", serial))
            server.give_up(serial)
        else:
            self.log.append(("step", serial, server.processes[serial].start.command))
            server.step(serial)

    def _idle(self) -> None:
        server = self.server
        if server.timer is not None:
            self._time(max(1, server.timer[1] - server.now))
        elif server.zombies:
            self.log.append(("zombie",))
            server.step_zombie()
        elif not self.calm:
            self._input()

    # --- the end ------------------------------------------------------------------------------------------------------

    def _resting(self) -> bool:
        server = self.server
        return not (server.open or server.can_deliver() or server.processes or server.zombies or server.timer)

    def drain(self) -> None:
        """Nothing is injected any more. All waits end, and then everything is settled and no alarm is armed."""
        server, ledger = self.server, self.server.ledger
        self.log.append(("drain",))
        self.calm, ledger.away = True, False
        if server.worker.lacks or self.random.random() < 0.5:
            server.deploy(frozenset())
            server.announce()
        for item in server.busy:
            server.signal(item)
        server.busy.clear()
        for _ in range(DRAIN_STEPS_MAX):
            self.steps += 1
            if not self._resting():
                self._progress()
            elif ledger.mark is not None and ledger.mark > server.shell.applied_through:
                server.sweep()
            elif server.late() or self._end_waits():
                continue
            elif self.told_late:
                break
            else:
                # All is at rest, and now something lands that nobody tells of.
                self.told_late = True
                server.busy.append(Item(0, "submit", self.threads[-1], "late"))
                server.stray()
            if self.steps % 200 == 0 and server.timer is not None and server.timer[1] - server.now > 600_000:
                # What waits behind a waiting head is looked at for ever, ever more rarely.
                self._end_waits()
            laws.note_hungry(server)
            laws.check(server)
        else:
            raise Broken("the object never comes to rest")
        laws.check_end(server)

    def _end_waits(self) -> bool:
        waiting = [
            (thread, row) for thread, rows in self.server.ledger.rows.items() for row in rows if row.state in WAITING
        ]
        for thread, row in waiting:
            self.server.signal(Item(0, "resolve", thread, row.sid))
        return bool(waiting)
