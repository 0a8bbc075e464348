"""A small scope searched whole: every order of inputs, tasks, activities, time and one crash, up to a depth.

States are compared without their history and with instants relative to now, so that two ways to the same state are
gone on with once. From a sample of the states a calm must lead to rest.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Any

from pydantic import BaseModel

from tests.simulation import laws
from tests.simulation.ledger import Item
from tests.simulation.life import EPOCH, WELL
from tests.simulation.server import Server
from tests.simulation.shell import Books, Broken, Continue
from thread_objects.core import command
from thread_objects.core.config import LaneSpec, MaintenanceConfig
from thread_objects.core.lanes import Lanes

CALM_STEPS_MAX = 400
SAMPLE = 16
CONFIG = MaintenanceConfig(shared_host=True, lanes=(LaneSpec("L", 5_000),))
INPUTS = (Item(0, "submit", "A", "s1"), Item(0, "submit", "B", "s2"), Item(0, "lane", "L", "l1"))
UPDATES = ("s1",)


@dataclass(slots=True)
class Choices:
    """What the world outside decides: well, unless told otherwise."""

    forced: dict[str, str] = field(default_factory=dict)

    def __call__(self, what: str, _options: tuple[str, ...]) -> str:
        return self.forced.get(what, WELL[what])


@dataclass(slots=True)
class Node:
    """One state: the server, and what may still be done to it. `committed`: the workflow as a crash leaves it."""

    server: Server
    inputs: tuple[Item, ...] = INPUTS
    crashes: int = 1
    losses: int = 1
    committed: Any = None
    path: tuple[str, ...] = ()

    def actions(self) -> Iterator[tuple[str, ...]]:
        """Everything that may happen next."""
        server = self.server
        if self.inputs:
            yield ("input", self.inputs[0].what)
        if server.can_deliver():
            yield ("deliver",)
        if server.open and not server.locals:
            yield ("complete",)
        for which, local in server.locals.items() if server.open else ():
            if local.ran:
                yield ("answer", which)
                if self.losses:
                    yield ("lose answer", which)
            else:
                yield ("local", which)
        for serial, process in server.processes.items():
            if serial in server.dead:
                yield ("found dead", str(serial))
            elif isinstance(process.start.command, command.AttemptThread) and process.stage == "work":
                yield ("step", str(serial), "settled")
                yield ("step", str(serial), "suspended")
            else:
                yield ("step", str(serial), "settled")
        if server.timer is not None:
            yield ("timer",)
        if self.crashes and (server.open or server.processes):
            yield ("crash",)

    def apply(self, action: tuple[str, ...]) -> None:
        """Do it, then ask every law."""
        server = self.server
        match action:
            case ("input", _):
                item, self.inputs = self.inputs[0], self.inputs[1:]
                if item.what in UPDATES:
                    server.update(item)
                else:
                    server.signal(item)
            case ("deliver",):
                server.deliver()
            case ("complete",):
                server.complete()
                self.committed = canonical(server.shell, server.now)
            case ("local", which):
                server.run_local(which)
            case ("answer", which):
                server.answer_local(which)
            case ("lose answer", which):
                self.losses -= 1
                server.answer_local(which, "away")
            case ("found dead", serial):
                server.give_up(int(serial))
            case ("step", serial, outcome):
                server.choose.forced["attempt"] = outcome
                server.step(int(serial))
            case ("timer",):
                assert server.timer is not None
                server.pass_time(max(1, server.timer[1] - server.now))
            case ("crash",):
                self.crashes -= 1
                server.crash()
        self.path = (*self.path, " ".join(action))
        laws.check(server)

    def key(self) -> int:
        """The state without its history."""
        server, now = self.server, self.server.now
        seen = (
            server.shell,
            server.ledger,
            server.pending,
            server.taken,
            server.open,
            server.locals,
            server.processes,
            server.dead,
            server.zombies,
            server.timer,
            [asked for asked in server.shell.commands if not isinstance(asked, Continue)],
        )
        return hash((canonical(seen, now), self.committed, len(self.inputs), self.crashes, self.losses))

    def calm(self) -> None:
        """Nothing more is injected but the inputs that are left: everything settles and the alarm is cleared."""
        server = self.server
        server.choose.forced["attempt"] = "settled"
        for item in (*self.inputs, *server.busy):
            server.signal(item)
        for _ in range(CALM_STEPS_MAX):
            if server.can_deliver():
                server.deliver()
            elif server.open and server.locals:
                which, local = next(iter(server.locals.items()))
                server.answer_local(which) if local.ran else server.run_local(which)
            elif server.open:
                server.complete()
            elif server.processes:
                serial = next(iter(server.processes))
                server.give_up(serial) if serial in server.dead else server.step(serial)
            elif server.zombies:
                server.step_zombie()
            elif server.timer is not None:
                server.pass_time(max(1, server.timer[1] - server.now))
            elif server.ledger.mark is not None and server.ledger.mark > server.shell.applied_through:
                server.sweep()
            elif suspended := [row for rows in server.ledger.rows.values() for row in rows if row.state == "suspended"]:
                server.signal(Item(0, "resolve", "", suspended[0].sid))
            else:
                laws.check_end(server)
                return
            laws.check(server)
        raise Broken("a calm does not lead to rest")


@dataclass(slots=True)
class Searched:
    """What a search has seen. `whole`: nothing was left at the depth."""

    states: int = 0
    transitions: int = 0
    calms: int = 0
    whole: bool = False


def search(depth: int) -> Searched:
    """Breadth first to this depth. Raises `AssertionError` with the path to the state that breaks a law."""
    root = Node(Server(("A", "B"), CONFIG, now=EPOCH, seed=0, choose=Choices()))
    root.committed = canonical(root.server.shell, root.server.now)
    seen, found = {root.key()}, Searched(states=1)
    frontier = [_frozen(root)]
    for _ in range(depth):
        reached: list[bytes] = []
        for frozen in frontier:
            for action in list(_thawed(frozen).actions()):
                node = _thawed(frozen)
                _guarded(node, action)
                found.transitions += 1
                key = node.key()
                if key in seen:
                    continue
                seen.add(key)
                found.states += 1
                reached.append(_frozen(node))
                if found.states % SAMPLE == 0:
                    found.calms += 1
                    _guarded(node, None)
        frontier = reached
        if not frontier:
            found.whole = True
            break
    return found


def _guarded(node: Node, action: tuple[str, ...] | None) -> None:
    try:
        if action is None:
            node.calm()
        else:
            node.apply(action)
    except AssertionError as broken:
        path = " > ".join((*node.path, "calm" if action is None else " ".join(action)))
        raise AssertionError(f"{broken}\nafter {path}") from broken


# --- states -----------------------------------------------------------------------------------------------------------


def _frozen(node: Node) -> bytes:
    return pickle.dumps(node, protocol=5)


def _thawed(frozen: bytes) -> Node:
    node: Node = pickle.loads(frozen)
    return node


_UNTOLD = {"books", "journal", "task", "_begun_in", "touched_at", "random", "config"}
_SLOTS: dict[type, tuple[str, ...]] = {}


def canonical(value: Any, now: int) -> Any:  # noqa: PLR0911 - one per kind of value
    """The value as nested tuples, instants relative to now and those in the past alike."""
    kind = type(value)
    if kind is int:
        return max(value - now, 0) if value >= EPOCH else value
    if value is None or kind is str or kind is bool or kind is float or isinstance(value, Enum):
        return value
    if kind in (tuple, list):
        return tuple([canonical(entry, now) for entry in value])
    if kind is dict:
        return tuple([(canonical(key, now), canonical(entry, now)) for key, entry in value.items()])
    if kind in (set, frozenset):
        return tuple(sorted(str(canonical(entry, now)) for entry in value))
    if isinstance(value, (Lanes, MaintenanceConfig, Books, Choices)) or callable(value):
        return None
    if isinstance(value, BaseModel):
        return (kind.__name__, canonical(value.__dict__, now))
    names = _SLOTS.get(kind)
    if names is None:
        names = _SLOTS[kind] = _names(value)
    return (kind.__name__, *[_part(value, name, now) for name in names])


def _names(value: Any) -> tuple[str, ...]:
    if is_dataclass(value):
        names = [entry.name for entry in fields(value)]
    else:
        slots = [name for base in type(value).__mro__ for name in getattr(base, "__slots__", ())]
        names = [*slots, *sorted(getattr(value, "__dict__", {}))]
    return tuple(name for name in names if name not in _UNTOLD)


def _part(value: Any, name: str, now: int) -> Any:
    part = getattr(value, name, None)
    # Parts of the core know one another; each is told where it is owned, once.
    return None if name in _BACK.get(type(value).__name__, ()) else canonical(part, now)


_BACK = {
    "Maintenance": ("gate", "state", "sighting", "_event"),
    "Shell": ("state",),
    "Event": ("_maintenance", "_steps", "_wave", "_waves"),
    "EventState": ("gate", "sighting", "state", "lanes"),
    "Sighting": ("_gate", "_state"),
    "RecoveryWave": ("_event",),
    "NativeSteps": ("_event", "_wave"),
    "LaneWaves": ("_event",),
    "AfterNative": ("_event", "_waves"),
    "EventLoop": ("_event",),
    "MaintenanceState": ("open",),
}
