"""Asking somebody else's code within a bound."""

import threading

import pytest

from activities.reconcile import ReconcilerFailed, ask
from thread_objects.core.recovery import CompletedWithResult, LostCall, NeverStarted, Uncertain
from thread_objects.core.recovery.reconciled import idempotency_key

CALL = LostCall("agent", "t", "s", "run:s", 2, "c1", "charge", {"amount": 3})


def test_an_answer_is_returned_plain_or_awaited():
    """Both forms of a reconciler."""

    async def look(call):
        return CompletedWithResult(call.arguments)

    assert ask(lambda _call: NeverStarted(), CALL, timeout_ms=5_000) == NeverStarted()
    assert ask(look, CALL, timeout_ms=5_000) == CompletedWithResult({"amount": 3})


async def test_an_awaitable_answer_needs_no_loop_of_the_caller():
    """The question has a thread and a loop of its own."""

    async def look(_call):
        return Uncertain()

    assert ask(look, CALL, timeout_ms=5_000) == Uncertain()


def refuse(_call):
    raise LookupError("no such order")


@pytest.mark.parametrize("reconciler", [refuse, lambda _call: None, lambda _call: "completed", Uncertain])
def test_anything_but_a_verdict_proves_nothing(reconciler):
    """An error, silence or nonsense is no proof."""
    with pytest.raises(ReconcilerFailed):
        ask(reconciler, CALL, timeout_ms=5_000)


def test_a_hanging_reconciler_is_left_behind():
    """Its answer is thrown away."""
    release = threading.Event()

    def hang(_call):
        release.wait(30)
        return NeverStarted()

    with pytest.raises(ReconcilerFailed) as failed:
        ask(hang, CALL, timeout_ms=10)
    assert isinstance(failed.value.__cause__, TimeoutError)
    release.set()


def test_what_is_no_exception_passes_through():
    """A failpoint or an exit is not the reconciler's answer."""

    def leave(_call):
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        ask(leave, CALL, timeout_ms=5_000)


def test_a_lost_call_carries_the_key_its_handler_had():
    """The reconciler can look the effect up by it."""
    assert CALL.idempotency_key == idempotency_key("run:s", 2, "c1")
    assert len(CALL.idempotency_key) == 64
