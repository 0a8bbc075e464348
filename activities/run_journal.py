"""The journal of one claim: commits what a binding hands over, and says what it may do next.

Rules guarded: a response is canonical before anything acts on it; no handler of a batch starts before all its
approvals are given; a call that an earlier Attempt may have started runs only with a permission.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import JsonValue

from thread_objects import failpoints
from thread_objects.agents.binding import AgentBinding, Completed, Response, Result
from thread_objects.agents.policy import ApprovalAnswer, ApprovalQuestion
from thread_objects.agents.transcript import Call, RunLog, Turn
from thread_objects.contract.records import Batch
from thread_objects.contract.states import CallKind, Decision, ToolClass
from thread_objects.core.evidence import evidence_of
from thread_objects.core.recovery import approval_batches
from thread_objects.errors import AgentApprovalDenied, AgentPolicyError, StoreUnavailable
from thread_objects.ports import Store

from .commits import Commits
from .endings import CallsLost, HandBack, Suspended
from .steering import Steering
from .turn_batches import TurnBatches

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
    """What a journal needs to know of its Attempt. `fresh`: the Run began with this claim."""

    store: Store
    binding: AgentBinding
    run: RunLog
    mark_through: int
    yield_at: int
    fresh: bool
    standing: Standing = field(default_factory=Standing)
    sleep: Callable[[float], Any] = asyncio.sleep
    adoption: Callable[[], Awaitable[None]] | None = None
    """Of a head start: awaited before the first response is committed."""


class RunJournal:
    """The Attempt as its binding sees it. Used on one thread only: the one with the Attempt's event loop."""

    def __init__(self, seat: Seat, commits: Commits) -> None:
        self._seat = seat
        self._store = seat.store
        self._log = seat.run
        self._commits = commits
        self._batches = TurnBatches(commits.claim.submission_id, commits.deployment_id)
        self.steering = Steering(seat.store, commits, self._batches, seat.run, seat.binding.policy)
        self._superseded = commits.claim.superseded_epoch
        self._first = True
        self._unseen: Batch | None = None
        """Results that the store may hold, although it did not say so."""
        self.stopping = False
        """The work is wanted back at the next Turn boundary."""
        self.running: dict[str, Call] = {}
        self.started: set[tuple[int, str]] = set()

    # --- Turn boundaries -----------------------------------------------------------------------------------------

    def asking(self, turn: int) -> None:
        """A Turn boundary: yield, or be within policy and go on."""
        now = self._commits.now()
        if self.stopping or now >= self._seat.yield_at:
            raise HandBack
        self._check_policy(turn, now)
        first, self._first = self._first, False
        if first and self._superseded is not None and not self._seat.fresh:
            failpoints.hit("turn:before-interrupted-append")
            attempt_id = self._commits.claim.attempt_id
            self._commits.append(self._batches.interrupted(self._superseded, attempt_id, now))
            failpoints.hit("turn:after-interrupted-append")

    async def pause(self, delay_ms: int) -> None:
        """Wait before the model is asked again."""
        await self._seat.sleep(delay_ms / 1_000)

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

    # --- seams -------------------------------------------------------------------------------------------------------

    async def seam(self, turn: int, prompt: Callable[[JsonValue], object]) -> Sequence[JsonValue]:
        """Queued input that joins before the model is asked again."""
        if self._seat.binding.policy.steering_per_seam == 0 or not self._goes_on(turn):
            return ()
        return await self.steering.seam(prompt)

    async def follow_up(self, completed: Completed, prompt: Callable[[JsonValue], object]) -> bool:
        """Whether queued input joined where the Run would end."""
        if not self._seat.binding.policy.follow_up or not self._goes_on(completed.turn):
            return False
        await self._adopted()
        return await self.steering.follow_up(completed, prompt)

    def _goes_on(self, turn: int) -> bool:
        """Whether another Turn will be asked for: input is not taken only to be given back."""
        now = self._commits.now()
        if self.stopping or now >= self._seat.yield_at:
            return False
        try:
            self._check_policy(turn + 1, now)
        except AgentPolicyError:
            return False
        return True

    # --- the response and its approvals ------------------------------------------------------------------------------

    async def respond(self, response: Response) -> None:
        """Commit a response."""
        await self._adopted()
        failpoints.hit("turn:before-response-append")
        await self._commits.patiently(self._batches.response(response, self._commits.now()))
        failpoints.hit("turn:after-response-append")

    async def _adopted(self) -> None:
        if self._seat.adoption is not None:
            await self._seat.adoption()

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
        self._check_duration(self._commits.now())
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
        now = self._commits.now()
        if answer is not None:
            failpoints.hit("approval:before-answer")
            await self._commits.patiently(self._batches.approval(turn.turn, call.declared, answer, now))
            failpoints.hit("approval:after-answer")
            return
        request = self._batches.approval(turn.turn, call.declared, None, now) if call.requested is None else None
        failpoints.hit("approval:before-suspend")
        waits, view, tail = self._store.suspend(
            self._commits.claim, request, [call.declared.tool_call_id], mark_through=self._seat.mark_through, now=now
        )
        failpoints.hit("approval:after-suspend")
        if waits:
            raise Suspended(view)
        if request is not None:
            self._commits.took(tail, request)
        self.apply_decisions()

    async def _policy_answer(self, turn: Turn, call: Call) -> ApprovalAnswer | None:
        claim, declared = self._commits.claim, call.declared
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
        sid = self._commits.claim.submission_id
        snapshot = self._store.snapshot(sid)
        if snapshot is None:
            return
        evidence = evidence_of(snapshot, self._store.run_records(sid))
        for batch in approval_batches(
            snapshot, evidence, self._commits.now(), deployment_id=self._commits.deployment_id
        ):
            failpoints.hit("approval:before-decision-append")
            self._commits.append(batch)
            failpoints.hit("approval:after-decision-append")

    # --- calls -------------------------------------------------------------------------------------------------------

    def start(self, turn: int, tool_call_id: str) -> None:
        """A handler is about to run."""
        call = self._turn(turn).calls[tool_call_id]
        if not self._may_run(turn, call):
            raise CallsLost([tool_call_id])
        if call.ordinary and call.declared.tool_class is ToolClass.UNCERTAIN:
            # Others may have answered for the call while this process was stopped: then it is theirs.
            self._commits.confirm()
        self.running[tool_call_id] = call
        self.started.add((turn, tool_call_id))
        failpoints.hit("tools:after-dispatch-fence")

    def finish(self, tool_call_id: str) -> None:
        """The handler is done, one way or another."""
        self.running.pop(tool_call_id, None)

    def _may_run(self, turn: int, call: Call) -> bool:
        standing, declared = self._seat.standing, call.declared
        if declared.call_kind is CallKind.DELEGATION:
            # A child carries it out, under its own claim; no handler ever stands in for one.
            return False
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
            if self._unseen is not None:
                self._bring(self._unseen)
            calls = self._turn(turn).calls
            owed = [result for result in results if calls[result.tool_call_id].settled is None]
            for batch in self._batches.results(turn, owed, self._commits.now(), last=False):
                failpoints.hit("turn:before-call-results-append")
                self._bring(batch)
                failpoints.hit("turn:after-call-results-append")
        except StoreUnavailable:
            return False
        return True

    def _bring(self, batch: Batch) -> None:
        # Perhaps it is committed and only the answer was lost: so it is offered again as it was, before anything else.
        self._unseen = batch
        self._commits.append(batch)
        self._unseen = None

    async def catch_up(self) -> None:
        """Bring what `settle` could not."""
        if self._unseen is not None:
            await self._commits.patiently(self._unseen)
            self._unseen = None

    async def settle_last(self, turn: int, results: Sequence[Result]) -> None:
        """Commit the Turn's remaining results."""
        for batch in self._batches.results(turn, results, self._commits.now(), last=True):
            failpoints.hit("turn:before-results-append")
            await self._commits.patiently(batch)
            failpoints.hit("turn:after-results-append")

    async def step(self, tool_call_id: str, name: str, output: JsonValue) -> None:
        """Commit a Step's output."""
        failpoints.hit("step:before-step-append")
        await self._commits.patiently(self._batches.step(tool_call_id, name, output, self._commits.now()))
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

    def _turn(self, number: int) -> Turn:
        turn = self._log.turn(number)
        assert turn is not None  # noqa: S101 - a binding names Turns that it committed
        return turn
