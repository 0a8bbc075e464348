"""The journal of one claim: commits what a binding hands over, and says what it may do next.

Rules guarded: a response is canonical before anything acts on it; no handler of a batch starts before all its
approvals are given; a call that an earlier Attempt may have started runs only with a permission.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

from thread_objects import failpoints
from thread_objects.agents.binding import AgentBinding, Response, Result
from thread_objects.agents.policy import ApprovalAnswer, ApprovalQuestion
from thread_objects.agents.transcript import Call, RunLog, Transcript, Turn
from thread_objects.clock import Clock
from thread_objects.contract.records import Batch
from thread_objects.contract.states import CallKind, Decision, ToolClass
from thread_objects.core.batches import abort_requested
from thread_objects.core.evidence import evidence_of
from thread_objects.core.recovery import approval_batches
from thread_objects.errors import AgentApprovalDenied, AgentPolicyError, StoreUnavailable
from thread_objects.ports import AbortIntent, Claim, Store, Tail

from .endings import CallsLost, HandBack, Suspended
from .turn_batches import TurnBatches

COMMIT_PATIENCE_S = 15.0
"""How long a fact that must not be lost waits for a store that is away."""
COMMIT_PAUSE_S = 0.1
COMMIT_PAUSE_MAX_S = 2.0
IDLE_PATIENCE_S = 60.0
"""How long a loop may be blocked while no tool runs."""
TOOL_PATIENCE_S = 10.0
"""How much longer than its own bound a tool may block the loop."""


@dataclass(slots=True)
class Standing:
    """What an Attempt found when it took up a Run that others began."""

    turns: int = 0
    permitted: frozenset[tuple[int, str]] = frozenset()
    unstarted: frozenset[int] = frozenset()


@dataclass(slots=True)
class Seat:
    """Everything of an Attempt that its journal needs."""

    store: Store
    clock: Clock
    binding: AgentBinding
    claim: Claim
    transcript: Transcript
    run: RunLog
    deployment_id: str
    mark_through: int
    yield_at: int
    fresh: bool
    standing: Standing = field(default_factory=Standing)
    sleep: Callable[[float], "asyncio.Future[None] | object"] = asyncio.sleep


class RunJournal:
    """The Attempt as its binding sees it. Used on one thread only: the one with the Attempt's event loop."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._store = seat.store
        self._clock = seat.clock
        self._log = seat.run
        self.claim = seat.claim
        self.batches = TurnBatches(seat.claim.submission_id, seat.deployment_id)
        self.whole = True
        """False once somebody else's records came between ours: the transcript then misses them."""
        self.last_record_id = ""
        self.stopping = False
        """The work is wanted back at the next Turn boundary."""
        self.asking_model = False
        self._first = True
        self.running: dict[str, Call] = {}
        self.started: set[tuple[int, str]] = set()

    @property
    def transcript(self) -> Transcript:
        """The Thread's records, with what this claim appended."""
        return self._seat.transcript

    # --- Turn boundaries -----------------------------------------------------------------------------------------

    def asking(self, turn: int) -> None:
        """A Turn boundary: yield, or be within policy and go on."""
        now = self._clock.now()
        if self.stopping or now >= self._seat.yield_at:
            raise HandBack
        self._check_policy(turn, now)
        superseded, first = self._seat.claim.superseded_epoch, self._first
        self._first = False
        if superseded is not None and first and not self._seat.fresh:
            failpoints.hit("turn:before-interrupted-append")
            self.commit(self.batches.interrupted(superseded, self.claim.attempt_id, now))
            failpoints.hit("turn:after-interrupted-append")
        self.asking_model = True

    def answered(self) -> None:
        """The model is done."""
        self.asking_model = False

    async def pause(self, delay_ms: int) -> None:
        """Wait before the model is asked again."""
        await self._seat.sleep(delay_ms / 1_000)  # type: ignore[misc]  # asyncio.sleep, or what a test gives

    def _check_policy(self, turn: int, now: int) -> None:
        policy = self._seat.binding.policy
        if turn > policy.turns_max:
            raise AgentPolicyError(policy_limit="turns", maximum=policy.turns_max)
        self._check_duration(now)
        if policy.tokens_max is not None:
            spent = sum((t.input_tokens or 0) + (t.output_tokens or 0) for t in self._log.turns)
            if spent >= policy.tokens_max:
                raise AgentPolicyError(policy_limit="tokens", maximum=policy.tokens_max)

    def _check_duration(self, now: int) -> None:
        if self._log.deadline_at is not None and now >= self._log.deadline_at:
            raise AgentPolicyError(policy_limit="duration", maximum=self._seat.binding.policy.duration_ms)

    # --- the response and its approvals ------------------------------------------------------------------------------

    async def respond(self, response: Response) -> None:
        """Commit a response."""
        failpoints.hit("turn:before-response-append")
        await self._commit_patiently(self.batches.response(response, self._clock.now()))
        failpoints.hit("turn:after-response-append")

    async def approve(self, turn: int) -> None:
        """Ask for approvals one by one, in declaration order. A denial ends the Run: later calls are not asked."""
        self._first = False
        numbered = self._turn(turn)
        self._check_calls()
        for call in numbered.calls.values():
            if not call.declared.approval or call.declared.rejected or call.settled is not None:
                continue
            while call.decision is None:
                await self._ask(numbered, call)
            if call.decision is Decision.DENIED:
                raise AgentApprovalDenied(
                    tool_call_id=call.declared.tool_call_id,
                    tool_name=call.declared.tool_name,
                    resolver=call.resolver,
                    reason=call.denial[:1_024],
                )
        self._check_duration(self._clock.now())
        failpoints.hit("tools:before-dispatch-fence")

    def _check_calls(self) -> None:
        maximum = self._seat.binding.policy.tool_calls_max
        declared = sum(
            call.declared.call_kind is not CallKind.OUTPUT for turn in self._log.turns for call in turn.calls.values()
        )
        if declared > maximum:
            raise AgentPolicyError(policy_limit="tool-calls", maximum=maximum)

    async def _ask(self, turn: Turn, call: Call) -> None:
        answer = await self._policy_answer(turn, call) if call.requested is None else None
        now = self._clock.now()
        if answer is not None:
            failpoints.hit("approval:before-answer")
            await self._commit_patiently(self.batches.approval(turn.turn, call.declared, answer, now))
            failpoints.hit("approval:after-answer")
            return
        request = self.batches.approval(turn.turn, call.declared, None, now) if call.requested is None else None
        failpoints.hit("approval:before-suspend")
        waits, view, tail = self._store.suspend(
            self.claim, request, [call.declared.tool_call_id], mark_through=self._seat.mark_through, now=now
        )
        failpoints.hit("approval:after-suspend")
        if waits:
            raise Suspended(view)
        if request is not None:
            self._took(tail, request)
        self.apply_decisions()

    async def _policy_answer(self, turn: Turn, call: Call) -> ApprovalAnswer | None:
        claim, declared = self.claim, call.declared
        return await self._seat.binding.answer(
            ApprovalQuestion(
                thread_id=claim.thread_id,
                submission_id=claim.submission_id,
                run_id=self._log.run_id,
                principal=claim.principal,
                turn=turn.turn,
                tool_call_id=declared.tool_call_id,
                tool_name=declared.tool_name,
                arguments=declared.arguments,
                arguments_digest=declared.arguments_digest,
            )
        )

    def apply_decisions(self) -> None:
        """Make stored decisions canonical."""
        snapshot = self._store.snapshot(self.claim.submission_id)
        if snapshot is None:
            return
        evidence = evidence_of(snapshot, self._store.run_records(self.claim.submission_id))
        for batch in approval_batches(snapshot, evidence, self._clock.now(), deployment_id=self._seat.deployment_id):
            failpoints.hit("approval:before-decision-append")
            self.commit(batch)
            failpoints.hit("approval:after-decision-append")

    # --- calls -------------------------------------------------------------------------------------------------------

    def start(self, turn: int, tool_call_id: str) -> None:
        """A handler is about to run."""
        call = self._turn(turn).calls[tool_call_id]
        if not self._may_run(turn, call):
            raise CallsLost([tool_call_id])
        self.running[tool_call_id] = call
        self.started.add((turn, tool_call_id))
        failpoints.hit("tools:after-dispatch-fence")

    def finish(self, tool_call_id: str) -> None:
        """The handler is done, one way or another."""
        self.running.pop(tool_call_id, None)

    def _may_run(self, turn: int, call: Call) -> bool:
        standing, declared = self._seat.standing, call.declared
        return (
            turn > standing.turns
            or turn in standing.unstarted
            or declared.call_kind is not CallKind.ORDINARY
            or declared.tool_class is not ToolClass.UNCERTAIN
            or (turn, declared.tool_call_id) in standing.permitted
        )

    def never_started(self, turn: int, tool_call_id: str) -> bool:
        """This call is known not to have started, in any Attempt."""
        standing = self._seat.standing
        declared_here = turn > standing.turns or turn in standing.unstarted
        return declared_here and (turn, tool_call_id) not in self.started

    def settle(self, turn: int, results: Sequence[Result]) -> bool:
        """Commit results while siblings still run."""
        try:
            for batch in self.batches.results(turn, results, self._clock.now(), last=False):
                failpoints.hit("turn:before-call-results-append")
                self.commit(batch)
                failpoints.hit("turn:after-call-results-append")
        except StoreUnavailable:
            return False
        return True

    async def settle_last(self, turn: int, results: Sequence[Result]) -> None:
        """Commit the Turn's remaining results."""
        for batch in self.batches.results(turn, results, self._clock.now(), last=True):
            failpoints.hit("turn:before-results-append")
            await self._commit_patiently(batch)
            failpoints.hit("turn:after-results-append")

    async def step(self, tool_call_id: str, name: str, output: JsonValue) -> None:
        """Commit a Step's output."""
        failpoints.hit("step:before-step-append")
        await self._commit_patiently(self.batches.step(tool_call_id, name, output, self._clock.now()))
        failpoints.hit("step:after-step-append")

    def lost(self, turn: int, tool_call_ids: Sequence[str]) -> None:
        """Calls overran their time and may have had their effect."""
        del turn
        raise CallsLost(tool_call_ids)

    def owing(self) -> bool:
        """An `uncertain` handler runs, or ran and its result is not committed: handing back now would lose it."""
        return any(
            call.settled is None
            and call.declared.tool_class is ToolClass.UNCERTAIN
            and call.declared.call_kind is CallKind.ORDINARY
            for turn, call_id in self.started
            if (call := self._turn(turn).calls[call_id]) is not None
        )

    def patience_s(self) -> float:
        """How long the loop may be blocked by what runs on it now."""
        bounds = [self._seat.binding.tool(c.declared.tool_name).timeout_ms / 1_000 for c in self.running.values()]
        return max(bounds) + TOOL_PATIENCE_S if bounds else IDLE_PATIENCE_S

    # --- commits -----------------------------------------------------------------------------------------------------

    def commit(self, batch: Batch) -> None:
        """Append under the claim, and fold what was appended."""
        self._took(self._store.append(self.claim, batch, now=self._clock.now()), batch)

    async def _commit_patiently(self, batch: Batch) -> None:
        """Append, waiting for a store that is away: what is committed here cannot be had again."""
        pause = COMMIT_PAUSE_S
        waited = 0.0
        while True:
            try:
                self.commit(batch)
            except StoreUnavailable:
                if waited >= COMMIT_PATIENCE_S:
                    raise
                await asyncio.sleep(pause)
                waited += pause
                pause = min(COMMIT_PAUSE_MAX_S, pause * 2)
            else:
                return

    def request_abort(self, intent: AbortIntent) -> None:
        """Make the abort canonical, before anything is interrupted for it."""
        if self._log.abort:
            return
        failpoints.hit("abort:before-canonical-append")
        self.commit(
            abort_requested(
                self.claim.submission_id,
                intent.author,
                intent.reason,
                deployment_id=self._seat.deployment_id,
                now=self._clock.now(),
            )
        )
        failpoints.hit("abort:after-canonical-append")

    def renew(self) -> None:
        """Extend the lease."""
        renewed = self._store.renew(self.claim, now=self._clock.now())
        self.claim = renewed.at(self.claim.tail)

    def _took(self, tail: Tail, batch: Batch) -> None:
        self.claim = self.claim.at(tail)
        self.fold(batch, tail.sequence)

    def fold(self, batch: Batch, through: int | None = None) -> None:
        """Fold in a batch that is committed. `through`: where the log ends now, if that is known."""
        transcript = self._seat.transcript
        for record in batch.records:
            transcript.apply(record.payload)
        transcript.through += len(batch.records)
        self.last_record_id = batch.records[-1].record_id
        self.whole = self.whole and (through is None or through == transcript.through)

    def _turn(self, number: int) -> Turn:
        turn = self._log.turn(number)
        assert turn is not None  # noqa: S101 - a binding names Turns that it committed
        return turn
