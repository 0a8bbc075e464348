"""What a pass asks its shell to start, as plain values. The shell answers each one with exactly one fact.

`Cancel` asks for the interruption of a command that runs; the fact of the interrupted command is still awaited.
Every deadline is an instant in epoch milliseconds: the longest an activity of that command may run.
"""

from __future__ import annotations

from dataclasses import dataclass

from thread_objects.contract.views import Page


@dataclass(frozen=True, slots=True)
class Survey:
    """Read the control views of the object; answered by `surveyed` or `survey_failed`.

    `after`: discovery of Threads with duties starts behind this thread id (and wraps around). `page`: of a shared host
    this part of its Threads.
    """

    after: str | None = None
    page: Page | None = None


@dataclass(frozen=True, slots=True)
class AttemptThread:
    """Recover a Thread, claim its head and advance it; answered by `attempt_ended` or `attempt_failed`."""

    thread_id: str
    yield_at: int
    deadline_at: int


@dataclass(frozen=True, slots=True)
class RecoverThread:
    """Recover one page of a Thread; answered by `recovered` or `recovery_failed`."""

    thread_id: str
    cursor: str | None
    deadline_at: int


@dataclass(frozen=True, slots=True)
class Publish:
    """Required publication: prepare `generation` if given, then drain; answered by `published` or `publish_failed`."""

    generation: int | None
    deadline_at: int


@dataclass(frozen=True, slots=True)
class RunLane:
    """One wave of a host or framework lane; answered by `lane_ended` or `lane_failed`."""

    lane: str
    allowance_ms: int
    deadline_at: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """Interrupt this running command, then report its end as usual."""

    command: Running


Running = Survey | AttemptThread | RecoverThread | Publish | RunLane
Command = Running | Cancel
