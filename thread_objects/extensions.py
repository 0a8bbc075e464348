"""What a worker may have beside agents: publication, projection, lanes, messages, recovery events, alarm handlers.

Each is a small Protocol, to be implemented by a class of yours; `Extensions` lists them for a worker. Their methods may
be plain or `async`. Every call is a *wave*: one bounded piece of work, charged before it starts, told when to stop, and
repeated with growing pauses while it fails. At least once, always: `WaveContext.key` tells repetitions apart.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from thread_objects.admission import AdmissionRules
from thread_objects.alarms import AlarmHandler, checked
from thread_objects.contract import limits
from thread_objects.contract.lanes import Installed, LaneInfo
from thread_objects.contract.states import LanePhase
from thread_objects.core.digests import of_value
from thread_objects.core.due_queue import MESSAGES, NATIVE, PROJECTION, PUBLICATION, RESERVED_PREFIX
from thread_objects.errors import ConfigError

if TYPE_CHECKING:
    from thread_objects.contract.recovery_events import RecoveryEvent

Due = int | datetime | None
"""When the next wave is due: epoch milliseconds or an aware datetime. None: nothing is left to do."""

FRAMEWORK_LANES = frozenset((NATIVE, PUBLICATION, PROJECTION, MESSAGES))
"""The framework's own lanes that `progress` and `schedule` may name."""


class WaveInterrupted(Exception):
    """The wave was told to stop. What it committed counts; the next wave goes on from there."""


@dataclass(frozen=True, slots=True)
class WaveContext:
    """One wave. Heartbeats are made for it; times are epoch milliseconds of the worker's clock.

    `key` is the same when the same wave is delivered twice. `deadline` includes the time to clean up: from then on
    nobody waits for the wave any more.
    """

    object_id: str
    lane: str
    key: str
    now: int
    deadline: int
    progressed: set[str] = field(default_factory=set, repr=False)
    told: Callable[[], bool] = field(default=lambda: False, repr=False)

    @property
    def cancelled(self) -> bool:
        """The wave should come to an end: cancelled, the worker stops, or its time is over."""
        return self.told()

    def check(self) -> None:
        """Raise `WaveInterrupted` if the wave should come to an end."""
        if self.told():
            raise WaveInterrupted

    def progress(self, *lanes: str) -> None:
        """There are new facts for these lanes (by default the wave's own): they are due at once, without a pause."""
        self.progressed.update(lanes or (self.lane,))


class Publication(Protocol):
    """Makes what an object holds visible elsewhere, before native work goes on.

    Native work of an object does not run while its publication is due: a publication that fails for long holds its
    object back. Prefer a projection or a lane where that is not wanted.
    """

    def invalidate(self, context: WaveContext) -> Awaitable[None] | None:
        """After a mutation was committed: mark what is published as outdated."""

    def prepare_generation(self, context: WaveContext, generation: int) -> Awaitable[None] | None:
        """Before a scan of a new generation. May be called again for the same one."""

    def drain(self, context: WaveContext) -> Awaitable[Due] | Due:
        """Publish what is left. Answers when to go on; None when all is published."""


class Projection(Protocol):
    """A derived view that is filled bit by bit and never holds anything up."""

    def backfill(self, context: WaveContext) -> Awaitable[Due] | Due:
        """One bounded piece, at most 30 s; being stopped then is no failure."""


class HostLane(Protocol):
    """Work of your own beside an object's conversation. `Lane` is one of plain values."""

    @property
    def id(self) -> str:
        """1 to 256 characters, not starting with `thread-object:`, unique among the lanes of a worker."""

    @property
    def allowance_ms(self) -> int:
        """How long one wave may take, 1..300 000."""

    @property
    def phase(self) -> LanePhase:
        """`concurrent`: beside native work. `after-native`: once it is done, two at a time."""

    def run(self, context: WaveContext) -> Awaitable[Due] | Due:
        """One wave. Answers when the next one is due; None when nothing is left."""


class MessageDriver(Protocol):
    """Brings messages in or out of an object."""

    @property
    def timeout_ms(self) -> int:
        """How long one wave may take, 1..300 000. The driver bounds its own claims and commits within it."""

    def prepare(self, context: WaveContext) -> Any:
        """Claim what is to be delivered; `deliver` gets it."""

    def deliver(self, context: WaveContext, prepared: Any) -> Awaitable[Due] | Due:
        """Deliver what was claimed. Answers when the next wave is due; None when nothing is left."""


class RecoveryEventHandler(Protocol):
    """Learns what happened to the recovery of Threads."""

    def publish(self, context: WaveContext, event: RecoveryEvent) -> Awaitable[None] | None:
        """Take one event: in the order of an object, at least once. (`object_id`, `sequence`) tells repetitions."""


@dataclass(frozen=True, slots=True)
class Lane:
    """A host lane of plain values: `Lane("digest", write_digest, allowance_ms=20_000)`."""

    id: str
    handler: Callable[[WaveContext], Awaitable[Due] | Due]
    allowance_ms: int = 60_000
    phase: LanePhase = LanePhase.CONCURRENT

    def run(self, context: WaveContext) -> Awaitable[Due] | Due:
        """One wave."""
        return self.handler(context)


class Extensions:
    """Everything a worker has beside agents. Raises `ConfigError` for a lane or a time that is out of bounds.

    `release` makes a deployment another one although the same waves are installed: what objects hold of an older
    deployment never comes back by itself, so a rollback that takes lanes away says another release. `admission` says
    who may be admitted; it changes nothing for what is admitted already.
    """

    def __init__(
        self,
        *,
        publication: Publication | None = None,
        projection: Projection | None = None,
        lanes: Iterable[HostLane] = (),
        messages: MessageDriver | None = None,
        recovery_events: RecoveryEventHandler | None = None,
        alarms: Mapping[str, AlarmHandler] | None = None,
        admission: AdmissionRules | None = None,
        release: str = "",
    ) -> None:
        self.admission = admission or AdmissionRules()
        self.publication = publication
        self.projection = projection
        self.messages = messages
        self.recovery_events = recovery_events
        self.alarms = checked(alarms or {})
        self.lanes: dict[str, HostLane] = {}
        for lane in lanes:
            _check_lane(lane)
            if lane.id in self.lanes:
                raise ConfigError(setting="extensions", reason=f"two lanes have the id {lane.id!r}")
            self.lanes[lane.id] = lane
        if len(self.lanes) > limits.LANES_MAX:
            raise ConfigError(setting="extensions", reason=f"{len(self.lanes)} lanes, at most {limits.LANES_MAX}")
        if messages is not None:
            _check_ms("messages", "timeout_ms", messages.timeout_ms)
        described = Installed(
            publication=publication is not None,
            projection=projection is not None,
            message_timeout_ms=None if messages is None else messages.timeout_ms,
            recovery_events=recovery_events is not None,
            lanes=tuple(
                LaneInfo(id=key, allowance_ms=lane.allowance_ms, phase=LanePhase(lane.phase))
                for key, lane in sorted(self.lanes.items())
            ),
        )
        facts = {"release": release, **described.model_dump(mode="json", by_alias=True)}
        digest = "" if not release and described == Installed() else "ext-" + of_value(facts)[:32]
        self.installed = described.model_copy(update={"digest": digest})
        """As objects learn it. Its deployment order is the worker's to give."""

    @property
    def empty(self) -> bool:
        """No waves are installed: objects are told nothing and nothing is run. (Alarms have tags, nothing to tell.)"""
        return not (self.publication or self.projection or self.messages or self.recovery_events or self.lanes)

    def knows(self, lane: str) -> bool:
        """Whether a wave may name this row as progressed."""
        return lane in self.lanes or lane in FRAMEWORK_LANES


def _check_lane(lane: HostLane) -> None:
    lane_name = lane.id
    if not isinstance(lane_name, str) or not 1 <= len(lane_name) <= limits.LANE_ID_CHARS_MAX:
        raise ConfigError(setting="extensions", reason=f"lane id of 1..{limits.LANE_ID_CHARS_MAX} characters expected")
    if lane_name.startswith(RESERVED_PREFIX):
        raise ConfigError(setting="extensions", reason=f"lane {lane_name!r}: ids of {RESERVED_PREFIX!r} are reserved")
    if lane.phase not in set(LanePhase):
        raise ConfigError(setting="extensions", reason=f"lane {lane_name!r}: there is no phase {lane.phase!r}")
    _check_ms(f"lane {lane_name!r}", "allowance_ms", lane.allowance_ms)


def _check_ms(of: str, name: str, value: object) -> None:
    valid = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= limits.LANE_ALLOWANCE_MS_MAX
    if not valid:
        bounds = f"an integer of 1..{limits.LANE_ALLOWANCE_MS_MAX}"
        raise ConfigError(setting="extensions", reason=f"{of}: {name} must be {bounds}, not {value!r}")


def load_extensions(path: str | None) -> Extensions:
    """The extensions at `package.module:name` (or a function that makes them); none for None.

    Raises `ConfigError` when they cannot be imported or are none. Errors raised by the module itself pass through.
    """
    if path is None:
        return Extensions()
    module_name, colon, attribute = path.partition(":")
    if not (module_name and colon and attribute):
        raise ConfigError(setting="extensions", reason=f"{path!r} is not of the form package.module:extensions")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise
        raise ConfigError(setting="extensions", reason=f"there is no module {error.name!r}") from None
    found = getattr(module, attribute, None)
    if callable(found) and not isinstance(found, Extensions):
        found = found()
    if not isinstance(found, Extensions):
        raise ConfigError(setting="extensions", reason=f"{path!r} is no Extensions")
    return found
