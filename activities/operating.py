"""What operators ask a worker: explanations and scans, verification, retries. Each asks the authoriser first."""

from temporalio import activity

from thread_objects.agents import Registry
from thread_objects.authorising import Authorisation
from thread_objects.clock import Clock
from thread_objects.contract import names
from thread_objects.contract.operations import (
    InspectAnswer,
    InspectRequest,
    Operation,
    RetryAnswer,
    RetryDone,
    RetryRequest,
)
from thread_objects.contract.states import CallKind
from thread_objects.contract.views import Registry as RegistryView
from thread_objects.core.recovery import OpenCall
from thread_objects.errors import BindingUnavailable, InvalidInput
from thread_objects.ports import Store

from .control import Control
from .ledger import translated
from .permission import asked_by_inspection, asked_by_retry
from .pulse import pulse
from .retrying import retry_submission


class OperatorActivities:
    """Reads, and one executor, with the bindings of this worker."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        registry: Registry,
        view: RegistryView,
        authorisation: Authorisation | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._registry = registry
        self._view = view
        self._authorisation = authorisation or Authorisation()

    @activity.defn(name=names.ACTIVITY_INSPECT, no_thread_cancel_exception=True)
    @translated
    def inspect(self, request: InspectRequest) -> InspectAnswer:
        """One short question."""
        if request.operation is Operation.VERIFY:
            raise InvalidInput(what="inspect: a verification takes longer than this may")
        return self._answer(request)

    @activity.defn(name=names.ACTIVITY_VERIFY, no_thread_cancel_exception=True)
    @translated
    def verify(self, request: InspectRequest) -> InspectAnswer:
        """Verify one Thread, however long its log is."""
        with pulse.beating(Control()):
            return self._answer(request.model_copy(update={"operation": Operation.VERIFY}))

    def _answer(self, request: InspectRequest) -> InspectAnswer:
        self._authorisation.refuse(asked_by_inspection(request))
        return self._store.inspect(request, now=self._clock.now(), retry_contract=self._offers)

    @activity.defn(name=names.ACTIVITY_RETRY, no_thread_cancel_exception=True)
    @translated
    def retry(self, request: RetryRequest) -> RetryDone:
        """Execute what recovery would decide for one Submission."""
        self._authorisation.refuse(asked_by_retry(request))
        with pulse.beating(Control()):
            decision, disposition = retry_submission(
                self._store,
                request.thread_id,
                request.submission_id,
                author=request.author,
                reason=request.reason,
                producer_id=request.producer_id,
                attempt_id=request.attempt_id,
                clock=self._clock,
                ended_attempts=request.ended_attempts,
                reconcilers=self._registry.reconciler,
                retry_supported=lambda agent_id, call: self._offers(agent_id, call) is not False,
                deployment_id=self._view.key,
            )
            view = self._store.view(request.thread_id)
        answer = RetryAnswer(
            submission_id=request.submission_id,
            decision=decision,
            disposition=disposition,
            author=request.author,
            reason=request.reason,
            executed_at=self._clock.now(),
        )
        return RetryDone(answer=answer, view=view, registry=self._view)

    def _offers(self, agent_id: str, call: OpenCall) -> bool | None:
        """Whether the code still offers a call's operation as it was declared. None: nobody here has the binding."""
        try:
            policy = self._registry.get(agent_id).tool(call.name)
        except BindingUnavailable:
            return None
        return policy.tool_class is call.tool_class and policy.durable is (call.kind is CallKind.DURABLE)
