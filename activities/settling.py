"""How a Run's end becomes its Settlement: one transaction with everything the log does not hold yet.

Rules guarded: exactly one Settlement; a failed one carries a diagnostic and nothing else; calls that may have taken
effect and have no result are said to be unknown, never silently dropped.
"""

from collections.abc import Sequence
from typing import Any

from thread_objects import failpoints
from thread_objects.agents.binding import Completed
from thread_objects.agents.failures import diagnose
from thread_objects.agents.transcript import RunLog
from thread_objects.contract import ids
from thread_objects.contract.messages import Settlement, UsageSummary
from thread_objects.contract.records import Batch, SubmissionSettled
from thread_objects.contract.states import CallKind, Outcome
from thread_objects.contract.views import ThreadView
from thread_objects.core.batches import settlement
from thread_objects.core.evidence import evidence_of
from thread_objects.core.recovery import closing_batches
from thread_objects.errors import AgentPolicyError, ThreadError
from thread_objects.ports import Store

from .commits import Commits
from .run_journal import RunJournal
from .turn_batches import TurnBatches

CALL_LEFT = "the run ended while the call was running"
CALL_ABORTED = "the run was aborted while the call was running"


class Settling:
    """Settles one claim's Submission."""

    def __init__(self, store: Store, commits: Commits, journal: RunJournal, run: RunLog, *, mark_through: int) -> None:
        self._store = store
        self._commits = commits
        self._journal = journal
        self._run = run
        self._mark_through = mark_through

    def completed(self, completed: Completed) -> tuple[Settlement, ThreadView]:
        """The Run has an output."""
        now = self._commits.now()
        made = TurnBatches(self._commits.claim.submission_id, self._commits.deployment_id)
        batches = [] if self._run.completed is not None else list(made.completion(completed, now))
        for batch in batches:
            self._commits.fold(batch)  # before its commit, so that the sums cover it
        try:
            return self._finish(batches, self._settled(Outcome.COMPLETED, result=completed.output), now)
        except ThreadError:
            self._commits.whole = False
            raise

    def failed(self, error: BaseException) -> tuple[Settlement, ThreadView]:
        """The Run cannot go on."""
        now = self._commits.now()
        limit = error.policy_limit if isinstance(error, AgentPolicyError) else None
        settled = self._settled(Outcome.FAILED, diagnostic=diagnose(error), policy_limit=limit)
        return self._finish(self._left_open(CALL_LEFT, now), settled, now)

    def aborted(self) -> tuple[Settlement, ThreadView]:
        """An abort was asked for and is canonical."""
        now = self._commits.now()
        return self._finish(self._left_open(CALL_ABORTED, now), self._settled(Outcome.ABORTED), now)

    def _finish(self, batches: Sequence[Batch], settled: SubmissionSettled, now: int) -> tuple[Settlement, ThreadView]:
        failpoints.hit("terminalize:before-canonical-append")
        told, view = self._store.finish(
            self._commits.claim,
            batches,
            settled,
            joins=self._journal.steering.joins,
            mark_through=self._mark_through,
            now=now,
        )
        failpoints.hit("terminalize:after-canonical-append")
        self._commits.fold(settlement(settled, deployment_id=self._commits.deployment_id, now=now))
        return told, view

    def _settled(self, outcome: Outcome, **facts: Any) -> SubmissionSettled:
        claim = self._commits.claim
        return SubmissionSettled(
            submission_id=claim.submission_id,
            settlement_id=ids.settlement_id(claim.submission_id),
            receipt_id=claim.receipt_id,
            outcome=outcome,
            run_id=self._run.run_id,
            usage_summary=self.usage(),
            **facts,
        )

    def usage(self) -> UsageSummary:
        """Sums over all Attempts; None where no response told."""
        turns = self._run.turns
        inputs = [turn.input_tokens for turn in turns if turn.input_tokens is not None]
        outputs = [turn.output_tokens for turn in turns if turn.output_tokens is not None]
        return UsageSummary(
            turns=len(turns),
            tool_calls=sum(
                call.settled is not None and call.declared.call_kind is not CallKind.OUTPUT
                for turn in turns
                for call in turn.calls.values()
            ),
            input_tokens=sum(inputs) if inputs else None,
            output_tokens=sum(outputs) if outputs else None,
        )

    def _left_open(self, reason: str, now: int) -> Sequence[Batch]:
        """What is known, or not, of calls without a result that may have taken effect."""
        suspects = {
            (turn.turn, call_id)
            for turn in self._run.turns
            for call_id, call in turn.calls.items()
            if call.settled is None and call.ordinary and not self._journal.never_started(turn.turn, call_id)
        }
        if not suspects:
            return []
        sid = self._commits.claim.submission_id
        snapshot = self._store.snapshot(sid)
        if snapshot is None:
            return []
        evidence = evidence_of(snapshot, self._store.run_records(sid))
        deployment_id = self._commits.deployment_id
        batches = closing_batches(snapshot, evidence, reason, now, deployment_id=deployment_id, suspects=suspects)
        for batch in batches:
            self._commits.fold(batch)
        return batches
