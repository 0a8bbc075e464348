"""What the world outside tells a running Attempt: look for an abort, or hand the work back.

Rule guarded: a cancelled activity is only told to look. Nothing is thrown into a running event loop; a flag is set
and the loop is woken, so that no await can swallow it.
"""

import threading
import time
from collections.abc import Callable


class Control:
    """The flags of one Attempt. Set from any thread, read by its loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._told = False
        self._wake: Callable[[], None] | None = None
        self._alive_at = time.monotonic()
        self._patience_s = 0.0

    @property
    def told(self) -> bool:
        """Whether the Attempt was told to look."""
        return self._told

    def tell(self) -> None:
        """Tell the Attempt to look: with an abort intent it aborts, without one it hands back. May be repeated."""
        with self._lock:
            first, self._told = not self._told, True
            wake = self._wake
        if first and wake is not None:
            wake()

    def attach(self, wake: Callable[[], None] | None) -> None:
        """Who is to be woken; None when nobody listens any more. Wakes at once if something was told before."""
        with self._lock:
            self._wake = wake
            told = self._told
            if wake is None:
                self._patience_s = 0.0  # no loop, no silence
        if told and wake is not None:
            wake()

    def alive(self, patience_s: float) -> None:
        """The loop turns. `patience_s`: how long it may be silent from now on, because of what it runs."""
        self._alive_at, self._patience_s = time.monotonic(), patience_s

    def silent(self) -> bool:
        """The loop has been blocked for longer than what it runs may take: whoever waits for it should not."""
        return self._patience_s > 0 and time.monotonic() - self._alive_at > self._patience_s
