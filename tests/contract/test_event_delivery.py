"""Delivery of recovery events: in order, acknowledged one by one, nothing past a failing one."""

from types import SimpleNamespace

import pytest

from activities.control import Control
from activities.event_delivery import EventDelivery
from activities.handling import Handling, WaveResult
from tests.contract.test_recovery_events import FAILURE
from tests.contract.world import THREAD, World
from thread_objects.contract import limits
from thread_objects.contract.waves import WaveRequest
from thread_objects.core.due_queue import RECOVERY_EVENTS
from thread_objects.extensions import Extensions


class Consumer:
    """Takes events, but not the one it is told to refuse."""

    def __init__(self, refused: int = 0) -> None:
        self.refused = refused
        self.taken: list[object] = []

    async def publish(self, context, event) -> None:
        """Take one."""
        assert context.object_id == THREAD
        if event.sequence == self.refused:
            raise ConnectionError("away")
        self.taken.append(event)

    @property
    def numbers(self) -> list[int]:
        """What was taken."""
        return [event.sequence for event in self.taken]


def deliver(world: World, handler: Consumer | None, *, after: int = 0, through: int = 3) -> WaveResult:
    """One wave."""
    clock = SimpleNamespace(now=lambda: world.now)
    wave = Handling(Extensions(), THREAD, RECOVERY_EVENTS, "key", world.now, 10_000, Control())
    request = WaveRequest(object_id=THREAD, lane=RECOVERY_EVENTS, allowance_ms=10_000, after=after, through=through)
    return wave.run(EventDelivery(handler, world.store, clock, wave, request))


@pytest.fixture
def told(world: World) -> World:
    """Three events."""
    for key in ("k1", "k2", "k3"):
        world.submit(key)
    world.store.record_fault(THREAD, FAILURE, now=world.now)
    return world


def test_events_are_published_in_order_and_forgotten(told: World):
    """Through the last one of the wave's start; later ones are the next wave's."""
    consumer = Consumer()
    assert deliver(told, consumer, through=2).answer.acknowledged == 2
    assert consumer.numbers == [1, 2]
    assert deliver(told, consumer, after=2).answer.acknowledged == 3
    assert told.store.recovery_events(THREAD, after=0, limit=9) == []


def test_a_failing_publish_keeps_its_event_and_everything_behind(told: World):
    """SWP-022: 1 acknowledged; 2 and 3 retained; the next delivery starts with 2, unchanged."""
    kept = told.store.recovery_events(THREAD, after=1, limit=9)
    first = deliver(told, Consumer(refused=2))
    assert (first.error.reason, first.error.error_tag, first.answer.acknowledged) == ("failure", "ConnectionError", 1)
    assert told.store.event_standing(THREAD).acknowledged == 1
    consumer = Consumer()
    assert deliver(told, consumer, after=1).answer.acknowledged == 3
    assert consumer.taken == kept


def test_an_acknowledgement_whose_answer_was_lost_is_not_published_again(told: World):
    """The object still believes that nothing was acknowledged."""
    deliver(told, Consumer())
    consumer = Consumer()
    assert deliver(told, consumer).answer.acknowledged == 3
    assert consumer.numbers == []


def test_without_a_handler_events_are_dropped_and_numbers_go_on(told: World):
    """SWP-028."""
    assert deliver(told, None).answer.acknowledged == 3
    assert told.store.recovery_events(THREAD, after=0, limit=9) == []
    told.store.clear_fault(THREAD, now=told.now)
    assert [event.sequence for event in told.store.recovery_events(THREAD, after=0, limit=9)] == [4, 5, 6]


def test_many_events_are_read_page_by_page(told: World, monkeypatch: pytest.MonkeyPatch):
    """A wave's memory does not grow with its backlog."""
    monkeypatch.setattr(limits, "EVENTS_PAGE", 2)
    consumer = Consumer()
    assert deliver(told, consumer).answer.acknowledged == 3
    assert consumer.numbers == [1, 2, 3]
