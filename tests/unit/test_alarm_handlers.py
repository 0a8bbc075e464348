"""Deliveries of alarms without a server: what a handler may cost the worker."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from activities.alarms import AlarmActivities
from activities.control import Control
from thread_objects.alarms import DueAlarm
from thread_objects.contract import limits
from thread_objects.contract.alarms import DeliverRequest

REQUEST = DeliverRequest(
    object_id="o", thread_id="t", tag="tag", alarm_id="a", run_at=0, attempt=1, dedupe_key="k", payload=None
)


@pytest.mark.parametrize("told", [False, True])
def test_a_handler_that_never_returns_costs_no_slot(monkeypatch: pytest.MonkeyPatch, *, told: bool) -> None:
    """Its delivery has failed at its bound, or a grace after it was told to end, and the activity's thread is free."""
    monkeypatch.setattr(limits, "ALARM_TIMEOUT_MS", 60_000 if told else 200)
    monkeypatch.setattr(limits, "ALARM_GRACE_MS", 200)
    released, control = threading.Event(), Control()
    if told:
        control.tell()
    try:
        with pytest.raises(TimeoutError):
            AlarmActivities({"tag": lambda _: released.wait(30) and None}).deliver(REQUEST, control)
        assert not released.is_set()
    finally:
        released.set()


def test_a_handler_that_ignores_its_cancellation_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """An asynchronous one, too, has no more than its graces."""
    monkeypatch.setattr(limits, "ALARM_GRACE_MS", 100)
    swallowed: list[int] = []

    async def stubborn(_alarm: DueAlarm) -> None:
        while len(swallowed) < 1_000:
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                swallowed.append(1)

    control = Control()
    control.tell()
    with pytest.raises(TimeoutError, match="ignores"):
        AlarmActivities({"tag": stubborn}).deliver(REQUEST, control)
    assert swallowed


@pytest.mark.parametrize("error", [ValueError, TimeoutError])
def test_what_a_handler_raises_leaves_as_it_is(error: type[Exception]) -> None:
    """Also where it is the very class that a bound raises."""

    def refuse(_alarm: DueAlarm) -> None:
        raise error("mine")

    deliver: Callable[..., None] = AlarmActivities({"tag": refuse}).deliver
    with pytest.raises(error, match="mine"):
        deliver(REQUEST, Control())
