"""Short activities of one storage transaction each: apply a batch, survey, clear a mark, read.

They run as local activities. Each may be repeated: the ids inside the mutations are the keys. No cancellation is
ever thrown into their threads: a transaction is whole or absent, and its bound is the store's own.
"""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from temporalio import activity

from thread_objects import failpoints
from thread_objects.authorising import Authorisation
from thread_objects.clock import Clock
from thread_objects.contract import names
from thread_objects.contract.activities import (
    ApplyAnswer,
    ApplyRequest,
    ClearMarkRequest,
    ReadAnswer,
    ReadRequest,
    SurveyAnswer,
    SurveyRequest,
)
from thread_objects.contract.lanes import Installed
from thread_objects.contract.views import Registry, Survey
from thread_objects.errors import ThreadError, to_application_error
from thread_objects.ports import Store

from .head_start import HeadStarts
from .permission import asked_by_read, denials

P = ParamSpec("P")
R = TypeVar("R")


def translated(method: Callable[P, R]) -> Callable[P, R]:
    """Let a `ThreadError` leave the activity as the failure that carries it."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except ThreadError as error:
            raise to_application_error(error) from error

    return call


class LedgerActivities:
    """The object's own transactions."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        worker: str,
        registry: Registry,
        head_starts: HeadStarts | None = None,
        installed: Installed | None = None,
        authorisation: Authorisation | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._worker = worker
        self._registry = registry
        self._head_starts = head_starts
        self._installed = installed or Installed()
        self._authorisation = authorisation or Authorisation()

    @activity.defn(name=names.ACTIVITY_APPLY, no_thread_cancel_exception=True)
    @translated
    def apply_mutations(self, request: ApplyRequest) -> ApplyAnswer:
        """Apply a batch and answer each item, with the object's survey."""
        failpoints.hit("apply:before")
        answer = self._allowed(request) if self._authorisation.installed else self._apply(request)
        failpoints.hit("apply:after")
        # A required publication goes before all native work; the object may not have heard of it yet.
        head_starts = None if self._installed.publication else self._head_starts
        begun = None if head_starts is None else head_starts.offer(request, answer)
        survey = self._with_recipients(request.object_id, answer.survey)
        update: dict[str, object] = {}
        if survey is not answer.survey:
            update["survey"] = survey
        if begun is not None:
            update["head_start"] = begun
        if request.installed != self._installed.digest:
            update["installed"] = self._installed
        return answer.model_copy(update=update) if update else answer

    def _apply(self, request: ApplyRequest) -> ApplyAnswer:
        return self._store.apply(request, worker=self._worker, registry=self._registry, now=self._clock.now())

    def _allowed(self, request: ApplyRequest) -> ApplyAnswer:
        """Apply what the authoriser allows. A denied item is answered, and neither read nor written for."""
        denied = denials(self._authorisation, request.items)
        rest = tuple(item for item in request.items if item.n not in denied)
        if rest:
            answer = self._apply(request.model_copy(update={"items": rest}))
        else:
            answer = ApplyAnswer(answers=(), survey=self._store.survey(request.object_id), registry=self._registry)
        answered = {item.n: item for item in answer.answers} | denied
        return answer.model_copy(update={"answers": tuple(answered[item.n] for item in request.items)})

    @activity.defn(name=names.ACTIVITY_SURVEY, no_thread_cancel_exception=True)
    @translated
    def survey(self, request: SurveyRequest) -> SurveyAnswer:
        """Read the control view of an object."""
        survey = self._with_recipients(
            request.object_id, self._store.survey(request.object_id, request.page, request.discover_after)
        )
        news = self._installed if request.installed != self._installed.digest else None
        return SurveyAnswer(survey=survey, registry=self._registry, installed=news)

    def _with_recipients(self, object_id: str, survey: Survey) -> Survey:
        """The survey once new rows of faulted Threads were told of their fault. Costs nothing without a fault."""
        if not any(view.fault_retry_at is not None for view in survey.threads):
            return survey
        sequence = self._store.note_recipients(object_id, now=self._clock.now())
        return survey.model_copy(update={"event_sequence": sequence})

    @activity.defn(name=names.ACTIVITY_CLEAR_MARK, no_thread_cancel_exception=True)
    @translated
    def clear_mark(self, request: ClearMarkRequest) -> None:
        """Forget a mark whose work is certified."""
        self._store.clear_mark(request.object_id, request.through)

    @activity.defn(name=names.ACTIVITY_READ, no_thread_cancel_exception=True)
    @translated
    def read(self, request: ReadRequest) -> ReadAnswer:
        """One read for a client without a database."""
        # Who owns a Thread is where to ask, no answer.
        if self._authorisation.installed and request.owner_of is None:
            self._authorisation.refuse(asked_by_read(request))
        return self._store.read(request)
