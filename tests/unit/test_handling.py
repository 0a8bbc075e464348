"""One wave of foreign code: bounded, interruptible, and typed whatever it does."""

import asyncio
import threading
import time
from datetime import UTC, datetime

import pytest

from activities.control import Control
from activities.handling import Handling, WaveCancelled
from thread_objects.extensions import Extensions, Lane, WaveInterrupted

EXTENSIONS = Extensions(lanes=[Lane("digest", lambda _context: None), Lane("other", lambda _context: None)])


def handling(budget_ms: int = 5_000, control: Control | None = None) -> Handling:
    return Handling(EXTENSIONS, "object", "digest", "key", 1_000, budget_ms, control or Control())


def run(method, budget_ms: int = 5_000):
    """One wave whose body is one method of the context."""
    return handling(budget_ms).run(lambda call, context: call(method, context))


async def _soon(_context):
    await asyncio.sleep(0)
    return 7_000


@pytest.mark.parametrize(
    ("method", "due_at"),
    [
        (lambda _context: None, None),
        (lambda context: context.now + 60_000, 61_000),
        (_soon, 7_000),
        (lambda _context: datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC), 1_000_000_000_000),
    ],
)
def test_a_waves_answer_is_when_it_is_due_again(method, due_at):
    """Plain or async, milliseconds or an aware datetime, or nothing (LAN-007)."""
    result = run(method)
    assert (result.error, result.answer.due_at) == (None, due_at)


@pytest.mark.parametrize("answer", ["soon", 1.5, True, -1, datetime(2001, 1, 1)])
def test_an_answer_that_is_no_instant_is_refused(answer):
    """A typed failure, not a guess."""
    error = run(lambda _context: answer).error
    assert (error.reason, error.error_tag) == ("answer", type(answer).__name__)


def test_what_a_handler_raises_leaves_as_names_only():
    """Its class, never its text; what it committed before counts."""

    def broken(context):
        context.progress("other", "nobody has this")
        raise ValueError("secret")

    result = run(broken)
    assert (result.error.reason, result.error.error_tag) == ("failure", "ValueError")
    assert "secret" not in str(result.error)
    assert result.answer.progressed == ("other",)


def test_an_async_handler_is_cut_within_its_allowance_and_cleans_up():
    """LAN-010: a typed failure at the allowance; its own cleanup ran."""
    cleaned = threading.Event()

    async def hangs(_context):
        try:
            await asyncio.sleep(60)
        finally:
            cleaned.set()

    began = time.monotonic()
    result = run(hangs, budget_ms=300)
    assert result.error.reason == "timeout"
    assert cleaned.is_set()
    assert time.monotonic() - began < 1.0


def test_a_plain_handler_that_ignores_its_time_is_given_up():
    """Its thread stays behind; the caller is free at the allowance. One that looks ends by itself."""
    release, seen = threading.Event(), []

    def ignores(context):
        release.wait(10)
        seen.append(context.cancelled)

    began = time.monotonic()
    assert run(ignores, budget_ms=200).error.reason == "timeout"
    assert time.monotonic() - began < 1.0
    release.set()

    def looks(context):
        while not context.cancelled:
            time.sleep(0.005)
        context.check()

    assert run(looks, budget_ms=200).error.reason == "timeout"


def test_a_cancelled_wave_ends_and_keeps_what_it_committed():
    """Async code is cancelled, plain code is told; nothing is thrown into it."""
    control = Control()
    started = threading.Event()

    async def waits(context):
        context.progress()
        started.set()
        await asyncio.sleep(60)

    def cancel():
        started.wait(5)
        control.tell()

    threading.Thread(target=cancel).start()
    result = handling(control=control).run(lambda call, context: call(waits, context))
    assert isinstance(result.error, WaveCancelled)
    assert result.answer.progressed == ("digest",)


def test_a_wave_that_was_cancelled_before_it_began_does_nothing():
    """The first call already refuses."""
    control = Control()
    control.tell()
    called = []

    def body(call, context):
        time.sleep(0.05)
        call(lambda _context: called.append(1), context)

    assert isinstance(handling(control=control).run(body).error, WaveCancelled)
    assert called == []


def test_a_worker_that_leaves_does_not_wait_for_a_handler_that_stays(monkeypatch):
    """Its wave fails as `shutdown`, long before its time."""
    monkeypatch.setattr("activities.handling.LEAVING_S", 0.1)
    release = threading.Event()
    wave = handling(budget_ms=60_000)
    wave.leaving = lambda: True
    began = time.monotonic()
    assert wave.run(lambda call, context: call(lambda _context: release.wait(20), context)).error.reason == "shutdown"
    assert time.monotonic() - began < 5
    release.set()


def test_interrupting_itself_is_a_failure_like_any_other():
    """Nobody asked for it."""

    def gives_up(_context):
        raise WaveInterrupted

    assert run(gives_up).error.reason == "failure"
