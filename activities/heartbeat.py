"""Beats for an activity while its own thread is busy: a dead worker is noticed, a busy one is not taken for dead."""

import contextvars
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from temporalio import activity

BEAT_S = 0.5


@contextmanager
def beating() -> Iterator[None]:
    """Heartbeat from a thread of its own until the block ends. Outside of an activity: nothing."""
    if not activity.in_activity():
        yield
        return
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(BEAT_S):
            activity.heartbeat()

    # The activity is known by its context, which a new thread does not have.
    thread = threading.Thread(target=contextvars.copy_context().run, args=(beat,), name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
