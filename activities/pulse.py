"""The heartbeat of all Attempts of this process, on a thread that no tool can block.

Rule guarded: an Attempt is alive for Temporal as long as its process is, whatever its tools do to its event loop;
and not longer than any tool may take, so that one that blocks for ever is found out.
"""

import contextlib
import contextvars
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from temporalio import activity

from .control import Control

BEAT_S = 0.5
LOOK_S = 0.1
"""How often cancellations and shutdown are looked at; a beat goes out every `BEAT_S`."""


@dataclass(slots=True, eq=False)
class _Beat:
    context: contextvars.Context
    control: Control
    due: float


class Pulse:
    """One daemon thread that beats for every running Attempt; it rests when there is none."""

    def __init__(self) -> None:
        self._beats: list[_Beat] = []
        self._changed = threading.Condition()
        self._started = False

    @contextmanager
    def beating(self, control: Control) -> Iterator[None]:
        """Beat for the activity of the calling thread until the block ends."""
        beat = _Beat(contextvars.copy_context(), control, time.monotonic() + BEAT_S)
        with self._changed:
            self._beats.append(beat)
            if not self._started:
                self._started = True
                threading.Thread(target=self._run, name="attempt-pulse", daemon=True).start()
            self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._beats.remove(beat)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._beats:
                    self._changed.wait()
                beats = list(self._beats)
            for beat in beats:
                # An activity may end between two lines here; whatever that raises concerns nobody else's beat.
                with contextlib.suppress(Exception):
                    self._one(beat, time.monotonic())
            time.sleep(LOOK_S)

    def _one(self, beat: _Beat, now: float) -> None:
        self.look(beat.context, beat.control)
        if now >= beat.due:
            beat.due = now + BEAT_S
            if not beat.control.silent():
                beat.context.run(activity.heartbeat)

    @staticmethod
    def look(context: contextvars.Context, control: Control) -> None:
        """Tell an Attempt whose activity is cancelled, or whose worker shuts down."""
        if not control.told and (context.run(activity.is_cancelled) or context.run(activity.is_worker_shutdown)):
            control.tell()


pulse = Pulse()
"""The process's own."""
