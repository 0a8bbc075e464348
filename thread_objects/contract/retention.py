"""Retention: how long what was said is kept, and what taking it away did."""

from typing import Annotated, Literal

from pydantic import Field

from thread_objects.contract.messages import Id
from thread_objects.contract.wire import Wire


class RetentionPolicy(Wire):
    """Which settled work loses its content.

    `redact` takes what people, models and tools said; identities, outcomes and digests stay where they are. `delete`
    redacts too, and then removes the records from the beginning of each log for as long as they are all redacted.
    `before`: only work that settled before this instant (epoch milliseconds). `settled_threads_only`: only Threads
    in which everything settled before it; otherwise also the old history of Threads that go on.
    """

    mode: Literal["redact", "delete"]
    before: Annotated[int, Field(ge=0)]
    thread_id: Id | None = None
    settled_threads_only: bool = False


class RetentionCursor(Wire):
    """Where retention goes on: within this Thread past a place in its queue, or, without one, past the Thread."""

    thread_id: str = ""
    queue_sequence: int | None = None


class RetentionPage(Wire):
    """What one transaction did. `cursor` is None when no Thread is left. `kept` counts by reason what it left alone."""

    cursor: RetentionCursor | None
    threads: int = 0
    submissions: int = 0
    redacted: int = 0
    deleted: int = 0
    kept: dict[str, int] = {}


class RetentionReport(Wire):
    """What a whole run did, or (`dry_run`) would do. `redacted` and `deleted` count records."""

    dry_run: bool
    threads: int
    submissions: int
    redacted: int
    deleted: int
    kept: dict[str, int] = {}
