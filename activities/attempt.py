"""The Attempt as Temporal sees it: a synchronous activity with a heartbeat that nothing in it can block.

Rule guarded: cancellation is never thrown into the running Attempt; it is told to look and ends by itself.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import wait
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

from temporalio import activity

from thread_objects.agents.registry import Registry
from thread_objects.agents.scheduling import schedules_to
from thread_objects.clock import Clock
from thread_objects.contract import names
from thread_objects.contract.activities import AttemptAnswer, AttemptRequest
from thread_objects.contract.views import Registry as RegistryView
from thread_objects.errors import ThreadError, to_application_error
from thread_objects.ports import Store

from .advance import Advance, Means, Recover
from .control import Control
from .courier import Courier
from .head_start import HeadStart, HeadStarts
from .pulse import pulse
from .supervise import Pace

T = TypeVar("T")


class AttemptActivities:
    """Attempts of one worker process."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        registry: Registry,
        view: RegistryView,
        recover: Recover,
        pace: Pace | None = None,
        sleep: Callable[[float], object] = asyncio.sleep,
        head_starts: int = 0,
        courier: Courier | None = None,
    ) -> None:
        self._courier = courier
        self.head_starts = HeadStarts(self._begun_early, clock=clock, registry=registry, at_most=head_starts)
        self._means = Means(
            store=store,
            clock=clock,
            registry=registry,
            view=view,
            recover=recover,
            pace=pace or Pace(),
            sleep=sleep,
        )

    @activity.defn(name=names.ACTIVITY_ATTEMPT, no_thread_cancel_exception=True)
    def attempt(self, request: AttemptRequest) -> AttemptAnswer:
        """Recover the Thread, claim its head and advance it to its end or to the time to yield."""
        begun = self.head_starts.take(request.attempt_id)
        if begun is not None and begun.adopt(request):
            return self._beaten(begun.control, begun.ended.result)
        control = Control()
        if begun is not None:
            # Nobody came in time: it hands back, and then the Attempt begins anew.
            self._beaten(begun.control, lambda: wait((begun.ended,)))
        return self._beaten(control, lambda: self.advance(request, control))

    @staticmethod
    def _beaten(control: Control, work: Callable[[], T]) -> T:
        with pulse.beating(control):
            try:
                return work()
            except ThreadError as error:
                raise to_application_error(error) from error

    def _scheduling(self, request: AttemptRequest) -> AbstractContextManager[None]:
        if self._courier is None:
            return nullcontext()
        return schedules_to(self._courier.schedules(request.object_id, request.attempt_id))

    def advance(self, request: AttemptRequest, control: Control) -> AttemptAnswer:
        """The same without Temporal."""
        with self._scheduling(request):
            return Advance(self._means, request, control).run()

    def _begun_early(self, begun: HeadStart) -> AttemptAnswer:
        with self._scheduling(begun.request):
            return Advance(self._means, begun.request, begun.control, begun).run()
