"""One Attempt without Temporal: recover the Thread, claim its head, drive its Run, end the claim.

Rules guarded: a Thread's recovery precedes its claim; a claim that is given ends in exactly one of settled,
suspended, unknown, handed back, or lost; a lost one writes nothing more.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, Protocol

from typing_extensions import TypeIs

from thread_objects import failpoints
from thread_objects.agents.binding import AgentBinding, RunRequest, Stop
from thread_objects.agents.registry import Registry
from thread_objects.agents.transcript import RunLog, Transcript
from thread_objects.clock import Clock
from thread_objects.contract import ids, limits
from thread_objects.contract.activities import AttemptAnswer, AttemptRequest
from thread_objects.contract.messages import Settlement
from thread_objects.contract.states import Disposition
from thread_objects.contract.views import Recovered, SettledView, ThreadView
from thread_objects.contract.views import Registry as RegistryView
from thread_objects.core.recovery import Permit
from thread_objects.errors import (
    AgentPolicyError,
    BindingUnavailable,
    CorruptRecord,
    FenceRejected,
    OwnershipLost,
    SettlementConflict,
    StoreUnavailable,
    ThreadError,
)
from thread_objects.ports import Claim, ClaimRequest, RecoveryFailure, Store

from .commits import Commits
from .control import Control
from .endings import CallsLost, HandBack, Suspended
from .event_loop import run_on_own_loop
from .failure import READ_TRANSCRIPT
from .head_start import HeadStart
from .run_journal import RunJournal, Seat, Standing
from .settling import Settling
from .supervise import Ending, Pace, Reason, Supervisor
from .taking_up import is_new_thread, new_transcript, read_run, take_up
from .transcripts import Transcripts

Ended = Literal["settled", "suspended", "unknown", "yielded", "idle", "unbound", "faulted"]


class Recover(Protocol):
    """Recovers one Thread, page by page until `stopping`. `permits` receives what reconcilers proved."""

    def __call__(
        self,
        thread_id: str,
        *,
        producer_id: str,
        attempt_id: str,
        ended_attempts: Sequence[str] = (),
        permits: set[Permit] | None = None,
        stopping: Callable[[], bool] | None = None,
    ) -> Recovered:
        """What recovery found and did."""


@dataclass(frozen=True, slots=True)
class Means:
    """What every Attempt of a worker works with."""

    store: Store
    clock: Clock
    registry: Registry
    view: RegistryView
    recover: Recover
    pace: Pace = field(default_factory=Pace)
    transcripts: Transcripts = field(default_factory=Transcripts)
    sleep: Callable[[float], object] = asyncio.sleep

    @property
    def deployment_id(self) -> str:
        """What records say of the deploy that wrote them."""
        return self.view.key


@dataclass(frozen=True, slots=True)
class Work:
    """A claim and everything that works under it. `claim` is as it was given; `commits.claim` moves on."""

    claim: Claim
    binding: AgentBinding
    run: RunLog
    commits: Commits
    journal: RunJournal


class Advance:
    """One Attempt."""

    def __init__(self, means: Means, request: AttemptRequest, control: Control, begun: HeadStart | None = None) -> None:
        self._means = means
        self._store = means.store
        self._request = request
        self._control = control
        self._begun = begun
        """Set for a head start: before its adoption nothing is committed but the claim and the input."""
        self._permits: set[Permit] = set()
        self._recovered = Recovered(thread_id=request.thread_id)
        self._started_now = False
        self._began_at = 0
        self._cleared = False
        """The object's mark went with the last transaction."""

    def run(self) -> AttemptAnswer:
        """Advance the Thread's head. Raises `StoreUnavailable` when the store is away for longer than is waited."""
        self._recovered = self._recover()
        if self._recovered.fault is not None:
            return self._answer("faulted", self._view())
        if self._recovered.cursor is not None or self._control.told:
            return self._answer("yielded", self._view())
        try:
            claim = self._begin()
        except BindingUnavailable as error:
            view = self._view()
            head = view.head
            return self._answer(
                "unbound",
                view,
                submission_id=head.submission_id if head else None,
                agent_id=head.agent_id if head else error.agent_id,
            )
        if claim is None:
            return self._answer("idle", self._view())
        try:
            return self._advance(claim)
        except (OwnershipLost, FenceRejected, SettlementConflict):
            # Whoever took over answers for the Submission; this Attempt has nothing more to say.
            return self._answer("yielded", self._view(), claim)

    def _recover(self) -> Recovered:
        request = self._request
        return self._means.recover(
            request.thread_id,
            producer_id=request.producer_id,
            attempt_id=request.attempt_id,
            ended_attempts=request.ended_attempts,
            permits=self._permits,
            stopping=lambda: self._control.told,
        )

    # --- before the drive --------------------------------------------------------------------------------------------

    def _begin(self) -> Claim | None:
        request = self._request

        def duration_ms(agent_id: str) -> int:
            # Asked only for a row whose input becomes canonical with this claim.
            self._started_now = True
            return self._means.registry.run_duration_ms(agent_id)

        failpoints.hit("claim:before")
        self._began_at = self._means.clock.now()
        claim = self._store.begin(
            ClaimRequest(
                thread_id=request.thread_id,
                producer_id=request.producer_id,
                attempt_id=request.attempt_id,
                ended_attempts=request.ended_attempts,
            ),
            run_duration_ms=duration_ms,
            deployment_id=self._means.deployment_id,
            now=self._began_at,
        )
        failpoints.hit("claim:after")
        return claim

    def _advance(self, claim: Claim) -> AttemptAnswer:
        means = self._means
        if not self._started_now and not self._adopted():
            return self._answer("yielded", self._release(claim), claim)
        try:
            binding = means.registry.get(claim.agent_id)
        except BindingUnavailable:
            return self._answer("unbound", self._release(claim), claim)
        try:
            transcript, run = self._read(claim, binding)
        except CorruptRecord as error:
            return self._faulted(claim, error)
        commits = Commits(self._store, means.clock, claim, transcript, deployment_id=means.deployment_id)
        standing: Standing | None = Standing()
        if not self._started_now and claim.abort is None:
            standing = take_up(self._store, commits, run, self._permits)
            if standing is None:
                return self._answer("yielded", self._release(commits.claim), claim)
        seat = Seat(
            store=self._store,
            binding=binding,
            run=run,
            mark_through=self._request.applied_through,
            yield_at=self._request.yield_at,
            fresh=self._started_now,
            standing=standing or Standing(turns=len(run.turns)),
            sleep=means.sleep,
        )
        if self._begun is not None:
            seat.adoption = partial(self._adoption, self._begun, seat)
        work = Work(claim, binding, run, commits, RunJournal(seat, commits))
        if claim.abort is not None:
            return self._settled(work, Ending(Reason.ABORT, abort=claim.abort))
        return self._end(work, run_on_own_loop(self._drive(work)))

    def _read(self, claim: Claim, binding: AgentBinding) -> tuple[Transcript, RunLog]:
        if not is_new_thread(claim, started_now=self._started_now):
            return read_run(self._means.transcripts, self._store, claim, now=self._began_at)
        # The hot path reads nothing.
        deadline_at = self._began_at + binding.policy.duration_ms
        transcript = new_transcript(claim, started_at=self._began_at, deadline_at=deadline_at)
        return transcript, transcript.runs[ids.run_id(claim.submission_id)]

    async def _drive(self, work: Work) -> Ending:
        supervisor = Supervisor(
            work.journal,
            work.commits,
            work.run,
            self._control,
            self._store,
            self._means.pace,
            attempt_deadline_at=self._request.deadline_at,
        )
        claim = work.claim
        request = RunRequest(
            thread_id=claim.thread_id,
            submission_id=claim.submission_id,
            principal=claim.principal,
            attempt=f"{work.run.run_id}@{claim.epoch}",
            transcript=work.commits.transcript,
            run=work.run,
        )
        return await supervisor.watch(work.binding.run(request, work.journal))

    async def _adoption(self, begun: HeadStart, seat: Seat) -> None:
        """Wait for the activity before anything of the Run is committed. Raises `HandBack` when none comes."""
        request = await begun.waited()
        if request is None:
            raise HandBack
        self._request = request
        seat.mark_through, seat.yield_at, seat.adoption = request.applied_through, request.yield_at, None

    def _adopted(self) -> bool:
        """An Attempt whose activity is here, as every one is that had no head start."""
        request = self._request if self._begun is None else self._begun.wait()
        if request is None:
            return False
        self._request = request
        return True

    # --- after the drive ---------------------------------------------------------------------------------------------

    def _end(self, work: Work, ending: Ending) -> AttemptAnswer:  # noqa: PLR0911 - one per ending
        claim, error = work.claim, ending.error
        if isinstance(error, (OwnershipLost, FenceRejected, StoreUnavailable)) or not _is_an_ending(error):
            raise error
        if ending.reason is Reason.LOST:
            return self._answer("yielded", self._view(), claim)
        if not self._adopted():
            return self._answer("yielded", self._release(work.commits.claim), claim)
        if isinstance(error, Suspended):
            self._cleared = True
            return self._answer("suspended", error.view, claim)
        if ending.reason is Reason.ABORT or ending.completed is not None:
            return self._settled(work, ending)
        if isinstance(error, CallsLost):
            return self._calls_lost(work)
        if isinstance(error, BindingUnavailable):
            return self._answer("unbound", self._release(work.commits.claim), claim)
        stopped = isinstance(error, (HandBack, asyncio.CancelledError)) or error is None
        if stopped and ending.reason is Reason.DEADLINE:
            error = AgentPolicyError(policy_limit="duration", maximum=work.binding.policy.duration_ms)
        elif isinstance(error, HandBack) or (stopped and ending.reason is not None):
            return self._answer("yielded", self._release(work.commits.claim), claim)
        return self._settled(work, replace(ending, error=error))

    def _settled(self, work: Work, ending: Ending) -> AttemptAnswer:
        settlement, view = self._settle(work, ending)
        commits = work.commits
        if commits.whole:
            self._means.transcripts.keep(
                self._store, work.claim.thread_id, commits.transcript, commits.last_record_id, now=commits.now()
            )
        self._cleared = True
        told = SettledView(submission_id=work.claim.submission_id, outcome=settlement.outcome)
        return self._answer("settled", view, work.claim, settled=told)

    def _settle(self, work: Work, ending: Ending) -> tuple[Settlement, ThreadView]:
        settling = Settling(
            self._store, work.commits, work.journal, work.run, mark_through=self._request.applied_through
        )
        if ending.reason is Reason.ABORT and ending.abort is not None:
            work.commits.request_abort(work.run, ending.abort)
            return settling.aborted()
        if ending.completed is None:
            return settling.failed(ending.error or RuntimeError("the run ended without an outcome"))
        try:
            return settling.completed(ending.completed)
        except (OwnershipLost, FenceRejected, SettlementConflict, StoreUnavailable):
            raise
        except ThreadError as error:
            # What the store cannot hold (an output past its bounds) is the Run's failure, and said as such.
            return settling.failed(error)

    def _calls_lost(self, work: Work) -> AttemptAnswer:
        """Hand back, then let recovery find out what became of the calls: it asks the reconcilers first."""
        claim = work.claim
        self._release(work.commits.claim)
        before, after = self._recovered, self._recover()
        decisions = (*before.decisions, *after.decisions)[: limits.RECOVERY_OWNERS_MAX]
        self._recovered = after.model_copy(
            update={
                "recovered": before.recovered + after.recovered,
                "repaired": before.repaired or after.repaired,
                "decisions": decisions,
                "event_sequence": max(before.event_sequence, after.event_sequence),
            }
        )
        if after.fault is not None:
            return self._answer("faulted", self._view(), claim)
        unknown = any(
            told.submission_id == claim.submission_id and told.disposition is Disposition.UNKNOWN
            for told in after.decisions
        )
        return self._answer("unknown" if unknown else "yielded", self._view(), claim)

    def _faulted(self, claim: Claim, error: CorruptRecord) -> AttemptAnswer:
        self._release(claim)
        failure = RecoveryFailure(
            phase="history",
            reason="failure",
            error_tag=error.code,
            operation=READ_TRANSCRIPT,
            decoder=error.decoder,
            sequence=error.sequence,
        )
        change = self._store.record_fault(claim.thread_id, failure, now=self._means.clock.now())
        update = {"fault": change.fault, "retry_at": change.fault and change.fault.retry_at}
        if change.event_sequence:
            update["event_sequence"] = change.event_sequence
        self._recovered = self._recovered.model_copy(update=update)
        return self._answer("faulted", self._view(), claim)

    def _release(self, claim: Claim) -> ThreadView:
        failpoints.hit("release:before")
        view = self._store.release(claim, mark_through=self._request.applied_through, now=self._means.clock.now())
        failpoints.hit("release:after")
        self._cleared = True
        return view

    def _view(self) -> ThreadView:
        return self._store.view(self._request.thread_id)

    def _answer(
        self,
        ended: Ended,
        view: ThreadView,
        claim: Claim | None = None,
        *,
        settled: SettledView | None = None,
        submission_id: str | None = None,
        agent_id: str | None = None,
    ) -> AttemptAnswer:
        return AttemptAnswer(
            attempt_id=self._request.attempt_id,
            ended=ended,
            settled=settled,
            submission_id=claim.submission_id if claim else submission_id,
            agent_id=claim.agent_id if claim else agent_id,
            recovered=self._recovered,
            view=view,
            mark_cleared=self._request.applied_through if self._cleared else 0,
            registry=self._means.view,
        )


def _is_an_ending(error: BaseException | None) -> TypeIs[Exception | Stop | asyncio.CancelledError | None]:
    """Whatever else comes out of a drive (the process is told to exit) is not for the Attempt to judge."""
    return error is None or isinstance(error, (Exception, Stop, asyncio.CancelledError))
