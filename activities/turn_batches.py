"""The batches of a Run's Turns: pure, with derived ids, so that a repeated append collides with itself."""

from collections.abc import Iterator, Sequence

from thread_objects.agents.binding import Completed, Response, Result
from thread_objects.agents.policy import ApprovalAnswer
from thread_objects.contract import ids, limits
from thread_objects.contract.records import (
    AnyPayload,
    Batch,
    DeclaredCall,
    ModelResponseInterrupted,
    ModelResponseRecorded,
    Record,
    RunCompleted,
    ToolApprovalDecided,
    ToolApprovalRequested,
    ToolCallSettled,
    ToolStepSettled,
    UserInputRecorded,
)
from thread_objects.contract.wire import Json
from thread_objects.core.batches import joined_input
from thread_objects.core.canonical import RECORD
from thread_objects.core.digests import of_value
from thread_objects.ties import Joining


class TurnBatches:
    """Makes the batches of one Run."""

    def __init__(self, submission_id: str, deployment_id: str) -> None:
        self._sid = submission_id
        self._run = ids.run_id(submission_id)
        self._deployment_id = deployment_id

    def _batch(self, batch_id: str, now: int, payloads: Sequence[tuple[str, AnyPayload]]) -> Batch:
        return Batch(
            batch_id=batch_id,
            records=tuple(
                Record(record_id=record_id, created_at=now, deployment_id=self._deployment_id, payload=payload)
                for record_id, payload in payloads
            ),
        )

    def response(self, response: Response, now: int) -> Batch:
        """A response alone."""
        return self._batch(ids.response_batch(self._run, response.turn), now, [self._responded(response)])

    def results(self, turn: int, results: Sequence[Result], now: int, *, last: bool) -> Iterator[Batch]:
        """Results in declaration order; `last` closes the Turn. More than a batch holds become several."""
        for first in range(0, len(results), limits.BATCH_RECORDS_MAX):
            some = results[first : first + limits.BATCH_RECORDS_MAX]
            closes = last and first + len(some) == len(results)
            batch_id = ids.results_batch(self._run, turn, None if closes else some[0].tool_call_id)
            yield self._batch(batch_id, now, [self._settled(turn, result) for result in some])

    def completion(self, completed: Completed, now: int) -> Iterator[Batch]:
        """The last Turn's open facts and the Run's output."""
        payloads: list[tuple[str, AnyPayload]] = []
        if completed.response is not None:
            payloads.append(self._responded(completed.response))
        results = list(completed.results)
        room = limits.BATCH_RECORDS_MAX - len(payloads) - 1
        if len(results) > room:
            # The response has to stand before its results, so it goes first on its own.
            if completed.response is not None:
                yield self.response(completed.response, now)
                payloads = []
            yield from self.results(completed.turn, results, now, last=True)
            results = []
        payloads.extend(self._settled(completed.turn, result) for result in results)
        payloads.append((ids.run_completed_record(self._run), RunCompleted(run_id=self._run, output=completed.output)))
        yield self._batch(ids.turn_batch(self._run, completed.turn), now, payloads)

    def joined(self, taken: Joining, now: int) -> Batch:
        """Queued input at a seam."""
        return joined_input(
            taken.submission_id, self._sid, taken.input, "steering", deployment_id=self._deployment_id, now=now
        )

    def follow_up(self, completed: Completed, taken: Joining, now: int) -> Batch | None:
        """What would have been a Run's end, and the input it goes on with; None when that is more than a batch."""
        payloads = [self._responded(completed.response)] if completed.response is not None else []
        payloads.extend(self._settled(completed.turn, result) for result in completed.results)
        if len(payloads) >= limits.BATCH_RECORDS_MAX:
            return None
        recorded = UserInputRecorded(
            submission_id=taken.submission_id, input_kind="follow-up", run_id=self._run, input=taken.input
        )
        payloads.append((ids.input_record(taken.submission_id), recorded))
        return self._batch(ids.input_batch(taken.submission_id), now, payloads)

    def interrupted(self, superseded_epoch: int, attempt_id: str, now: int) -> Batch:
        """The audit that an owner died before its response was recorded."""
        record_id = ids.interrupted_record(self._run, superseded_epoch)
        payload = ModelResponseInterrupted(
            run_id=self._run,
            superseded_epoch=superseded_epoch,
            attempt_id=attempt_id,
            reason="the owner was lost before a response was recorded",
        )
        return self._batch(record_id, now, [(record_id, payload)])

    def approval(self, turn: int, call: DeclaredCall, answer: ApprovalAnswer | None, now: int) -> Batch:
        """A request, with its answer where policy gives one at once."""
        payloads: list[tuple[str, AnyPayload]] = [
            (
                ids.approval_request_record(self._run, turn, call.tool_call_id),
                ToolApprovalRequested(
                    run_id=self._run,
                    turn_id=ids.turn_id(self._run, turn),
                    turn=turn,
                    tool_call_id=call.tool_call_id,
                    tool_name=call.tool_name,
                    arguments_digest=call.arguments_digest,
                ),
            )
        ]
        if answer is not None:
            payloads.append(
                (
                    ids.approval_decision_record(self._run, turn, call.tool_call_id),
                    ToolApprovalDecided(
                        run_id=self._run,
                        turn=turn,
                        tool_call_id=call.tool_call_id,
                        decision=answer.decision,
                        resolver=answer.resolver,
                        reason=answer.reason,
                    ),
                )
            )
        return self._batch(ids.approval_request_batch(self._run, turn, call.tool_call_id), now, payloads)

    def step(self, tool_call_id: str, name: str, output: Json, now: int) -> Batch:
        """A Step's output. Record and batch share their id."""
        record_id = ids.step_record(self._run, tool_call_id, name)
        payload = ToolStepSettled(
            run_id=self._run,
            tool_call_id=tool_call_id,
            step_name=name,
            output=output,
            output_digest=of_value(output),
        )
        return self._batch(record_id, now, [(record_id, payload)])

    def _responded(self, response: Response) -> tuple[str, AnyPayload]:
        return ids.response_record(self._run, response.turn), ModelResponseRecorded(
            run_id=self._run,
            turn_id=ids.turn_id(self._run, response.turn),
            turn=response.turn,
            messages=response.messages,
            messages_digest=of_value(response.messages, RECORD),
            calls=response.calls,
            input_tokens=response.input_tokens,
            output_tokens=response.output_tokens,
            state=response.state,
        )

    def _settled(self, turn: int, result: Result) -> tuple[str, AnyPayload]:
        return ids.tool_settled_record(self._run, turn, result.tool_call_id), ToolCallSettled(
            run_id=self._run,
            turn=turn,
            tool_call_id=result.tool_call_id,
            tool_name=result.tool_name,
            result=result.result,
            part=result.part,
            extra=result.extra,
            is_failure=result.is_failure,
        )
