"""The recover activity: one page of one Thread, without claiming its head for work.

At most 32 rows and 30 s a call; a cursor says that there is more. An Attempt that recovers before it claims calls
`recover_thread` instead, which goes on to the end.
"""

from collections.abc import Callable, Sequence

from temporalio import activity

from thread_objects.agents import Registry
from thread_objects.clock import Clock
from thread_objects.contract import limits, names
from thread_objects.contract.activities import RecoverAnswer, RecoverRequest
from thread_objects.contract.states import CallKind
from thread_objects.contract.sweeps import SweepReport, WorkReport
from thread_objects.contract.views import Recovered
from thread_objects.contract.views import Registry as RegistryView
from thread_objects.core.recovery import OpenCall, Permit
from thread_objects.errors import BindingUnavailable
from thread_objects.ports import Store

from .control import Control
from .ledger import translated
from .pulse import pulse
from .recovery_sweep import run_recovery
from .thread_recovery import recover_thread


class RecoveryActivities:
    """Recovery with the bindings of this worker: their reconcilers are asked, their contracts are compared."""

    def __init__(self, store: Store, *, clock: Clock, registry: Registry, view: RegistryView) -> None:
        self._store = store
        self._clock = clock
        self._registry = registry
        self._view = view

    @activity.defn(name=names.ACTIVITY_RECOVER, no_thread_cancel_exception=True)
    @translated
    def recover(self, request: RecoverRequest) -> RecoverAnswer:
        """Recover one page of a Thread and answer its view after it."""
        with pulse.beating(Control()):
            recovered = self.recover_thread(
                request.thread_id,
                producer_id=request.producer_id,
                attempt_id=request.attempt_id,
                ended_attempts=request.ended_attempts,
                cursor=request.cursor,
                stopping=lambda: True,
            )
            view = self._store.view(request.thread_id)
        return RecoverAnswer(recovered=recovered, view=view, registry=self._view)

    def recover_thread(
        self,
        thread_id: str,
        *,
        producer_id: str,
        attempt_id: str,
        ended_attempts: Sequence[str] = (),
        permits: set[Permit] | None = None,
        cursor: str | None = None,
        stopping: Callable[[], bool] | None = None,
        owners_max: int = limits.RECOVERY_OWNERS_MAX,
        told: list[WorkReport] | None = None,
    ) -> Recovered:
        """Recover a Thread with this worker's bindings. Arguments as `thread_recovery.recover_thread`."""
        return recover_thread(
            self._store,
            thread_id,
            producer_id=producer_id,
            attempt_id=attempt_id,
            clock=self._clock,
            ended_attempts=ended_attempts,
            reconcilers=self._registry.reconciler,
            retry_supported=self._retry_supported,
            permits=permits,
            deployment_id=self._view.key,
            cursor=cursor,
            stopping=stopping,
            owners_max=owners_max,
            told=told,
        )

    def run_recovery(
        self,
        object_id: str,
        *,
        producer_id: str,
        attempt_id: str,
        thread_id: str | None = None,
        cursor: str | None = None,
    ) -> SweepReport:
        """One call of a sweep with this worker's bindings: one Thread, or all of an object that owe something."""

        def recover(thread_id: str, *, cursor: str | None, owners_max: int, told: list[WorkReport]) -> Recovered:
            return self.recover_thread(
                thread_id,
                producer_id=producer_id,
                attempt_id=attempt_id,
                cursor=cursor,
                stopping=lambda: True,
                owners_max=owners_max,
                told=told,
            )

        return run_recovery(self._store, recover, object_id, thread_id=thread_id, cursor=cursor)

    def _retry_supported(self, agent_id: str, call: OpenCall) -> bool:
        """A permission to retry was given for an uncertain operation; it says nothing of what it became since."""
        try:
            policy = self._registry.get(agent_id).tool(call.name)
        except BindingUnavailable:
            # Nobody here can tell. The row stays where it is until a worker that can is asked.
            return True
        return policy.tool_class is call.tool_class and policy.durable is (call.kind is CallKind.DURABLE)
