"""The Attempt as Temporal sees it: a synchronous activity with a heartbeat that nothing in it can block.

Rule guarded: cancellation is never thrown into the running Attempt; it is told to look and ends by itself.
"""

import asyncio
from collections.abc import Callable

from temporalio import activity

from thread_objects.agents.registry import Registry
from thread_objects.clock import Clock
from thread_objects.contract import names
from thread_objects.contract.activities import AttemptAnswer, AttemptRequest
from thread_objects.contract.views import Registry as RegistryView
from thread_objects.errors import ThreadError, to_application_error
from thread_objects.ports import Store

from .advance import Advance, Means, Recover
from .control import Control
from .pulse import pulse
from .supervise import Pace


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
    ) -> None:
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
        control = Control()
        with pulse.beating(control):
            try:
                return self.advance(request, control)
            except ThreadError as error:
                raise to_application_error(error) from error

    def advance(self, request: AttemptRequest, control: Control) -> AttemptAnswer:
        """The same without Temporal."""
        return Advance(self._means, request, control).run()
