"""The pump: one coroutine that carries inbox entries to storage, one batch and one transaction at a time.

Each batch is one mutation of the gate: prearm (generation, lanes, alarm), the local activity, then progress and
release in the stretch that takes its answer. A batch whose activity failed stays in the inbox; only updates that
wait are told to try again.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import FailureError

from thread_objects import failpoints
from thread_objects.contract import limits, names
from thread_objects.contract.activities import (
    ApplyAnswer,
    ApplyRequest,
    ClearMarkRequest,
    HeadStartOffer,
    ItemAnswer,
    SurveyAnswer,
)
from thread_objects.contract.ids import producer_id
from thread_objects.contract.messages import Schedule, Scheduled, Submit
from thread_objects.contract.views import Page, Survey, ThreadView
from thread_objects.core.backoff import backoff
from thread_objects.core.due_queue import NATIVE
from thread_objects.core.gate import Mutation
from thread_objects.errors import Busy, LaneRefused, from_refusal

from .crash_points import hit
from .failure import told
from .inbox import Entry, items, lanes_of, refused_entry
from .passes import survey
from .timer import now_ms

if TYPE_CHECKING:
    from thread_objects.contract.object import Carried

    from .thread_object import ThreadObject

_QUICK_RETRIES = RetryPolicy(
    initial_interval=timedelta(milliseconds=50), maximum_interval=timedelta(milliseconds=500), maximum_attempts=4
)


def _batch_id(mark: int) -> str:
    return f"{workflow.info().run_id}:{mark}"


def _head_start_id(mark: int) -> str:
    return f"head-start:{_batch_id(mark)}"


class Pump:
    """`busy` while a batch is in hand; `retry_at` while storage is away."""

    def __init__(self, owner: ThreadObject, carried: Carried) -> None:
        self._owner = owner
        self.busy = False
        self.retry_at: int | None = None
        self.ask_installed = False
        self.ask_at: int | None = None
        self.stalls = carried.apply_stalls
        self.next_mark = carried.next_mark
        self.applied_through = carried.applied_through
        self.unmark_through = carried.unmark_through
        self._unmark_uncertified = carried.unmark_through > 0
        self.survey = carried.survey
        self.applied_total = carried.applied_total

    async def run(self) -> None:
        """Run for the life of the workflow run."""
        while True:
            await workflow.wait_condition(self._can_start)
            self.busy = True
            try:
                if self._owner.inbox.entries:
                    await self._take(self._owner.inbox.batch())
                elif self._asking():
                    await self._ask()
                else:
                    await self._clear_mark()
            finally:
                self.busy = False

    def _can_start(self) -> bool:
        if self._owner.closing:
            return False
        if self._owner.inbox.entries:
            return self.retry_at is None or self.retry_at <= now_ms() or bool(self._owner.inbox.waiting())
        return self._asking() or self._mark_clearable()

    def _asking(self) -> bool:
        return self.ask_installed and (self.ask_at is None or self.ask_at <= now_ms())

    async def _ask(self) -> None:
        """Nobody took a wave, or a row has no handler: the workers may have other extensions by now.

        Asked once; the next wave or pass that fails so asks again.
        """
        self.ask_installed, self.ask_at = False, None
        try:
            answer = await survey(self._owner)
        except FailureError:
            self.ask_installed, self.ask_at = True, now_ms() + limits.QUEUE_RETRY_MIN_MS
            return
        self._owner.observe(answer.registry, answer.installed, now_ms())
        self._owner.maintenance.hint(now_ms())

    async def _take(self, batch: list[Entry]) -> None:
        if self._strange(batch):
            # A lane that nobody told of yet may have come with the newest worker: ask before refusing it.
            try:
                answer = await survey(self._owner, Page() if self._owner.config.shared_host else None)
            except FailureError as failure:
                self._storage_away("survey", failure)
                return
            self._learned(batch, answer)
        elif not any(self._scheduled(batch)):
            await self._apply(batch)

    async def _apply(self, batch: list[Entry]) -> None:
        owner, maintenance = self._owner, self._owner.maintenance
        mark = self.next_mark
        self.next_mark += 1
        offer = self._offer(batch, mark)
        maintenance.in_task(workflow.info().get_current_history_length())
        lanes = sorted({lane for entry in batch for lane in lanes_of(entry.mutation)})
        mutation = maintenance.prearm(now_ms(), lanes=lanes)
        hit("dirty:after", "mutation:armed")
        request = ApplyRequest(
            object_id=owner.object_id,
            batch_id=_batch_id(mark),
            mark=mark,
            applied_through=self.applied_through,
            items=items(batch),
            head_start=offer,
            installed=maintenance.state.installed.digest,
            shared_host=owner.config.shared_host,
        )
        try:
            answer: ApplyAnswer = await workflow.execute_local_activity(
                names.ACTIVITY_APPLY,
                request,
                result_type=ApplyAnswer,
                schedule_to_close_timeout=timedelta(milliseconds=owner.config.apply_timeout_ms),
                retry_policy=_QUICK_RETRIES,
            )
        except FailureError as failure:
            # Storage may or may not have the batch. Signals stay and are sent again; keys make that harmless.
            maintenance.release(mutation, now_ms())
            self._storage_away("apply", failure)
            return
        if not workflow.unsafe.is_replaying():
            failpoints.hit("mutation:answered")
        owner.inbox.drop(batch)
        self.retry_at, self.stalls = None, 0
        self.applied_through = mark
        self.applied_total += len(batch)
        first = batch[0].mutation
        if answer.head_start is not None and not isinstance(first, Schedule):
            owner.passes.begun[first.thread_id] = answer.head_start
            # Again, for a replay that put this batch beside a pass: it offered nothing, and heard the same answer.
            self._note_offered(mark)
        progressed = (NATIVE,) if any(item.progress for item in answer.answers) else ()
        owner.observe(answer.registry, answer.installed, now_ms())
        if maintenance.config.publication_required:
            await self._publish_committed(batch, mutation, progressed, answer)
        else:
            # One stretch: progress is generation and alarm before the mutation is released and anybody is told.
            self._released(mutation, progressed, answer)
            self._tell_all(batch, answer)

    def _offer(self, batch: list[Entry], mark: int) -> HeadStartOffer | None:
        """One new input to an object that owes nothing may begin to run while its Receipt is on the way.

        Not where a publication must go before it.
        """
        owner = self._owner
        record, config = owner.maintenance.state.record, owner.maintenance.config
        single = len(batch) == 1 and isinstance(batch[0].mutation, Submit) and not owner.config.shared_host
        owes = owner.passes.active or record.processed < record.dirty or config.publication_required
        if not single or owes or owner.continue_wanted():
            return None
        self._note_offered(mark)
        attempt_id = owner.passes.offered[owner.object_id] = _head_start_id(mark)
        return HeadStartOffer(attempt_id=attempt_id, producer_id=producer_id(names.PRODUCER_PREFIX, owner.object_id))

    def _note_offered(self, mark: int) -> None:
        # Whether or not its answer arrives: the next Attempt may supersede it, and so may the one that adopts it.
        self._owner.passes.note_ended(self._owner.object_id, _head_start_id(mark))

    async def _publish_committed(
        self, batch: list[Entry], mutation: Mutation, progressed: tuple[str, ...], answer: ApplyAnswer
    ) -> None:
        """The publication's hooks, while the mutation counts as active. Its facts are committed: nobody waits."""
        maintenance = self._owner.maintenance
        if progressed:
            with maintenance.transaction():
                maintenance.record_progress((*progressed, *mutation.lanes), now_ms())
        self._tell_all(batch, answer)
        await self._owner.waves.after_mutation()
        self._released(mutation, (), answer)

    def _released(self, mutation: Mutation, progressed: tuple[str, ...], answer: ApplyAnswer) -> None:
        maintenance, now = self._owner.maintenance, now_ms()
        maintenance.release(mutation, now, progressed=progressed)
        self.see(answer.survey)
        maintenance.events_recorded(answer.survey.event_sequence, now)
        maintenance.note_survey(answer.survey, now)
        maintenance.hint(now)
        hit("mutation:finished")

    def _tell_all(self, batch: list[Entry], answer: ApplyAnswer) -> None:
        by_n = {item.n: item for item in answer.answers}
        for entry in batch:
            self._tell(entry, by_n[entry.n])
            if by_n[entry.n].cancel_submission is not None and not isinstance(entry.mutation, Schedule):
                self._owner.passes.tell_to_look(entry.mutation.thread_id)

    def _tell(self, entry: Entry, item: ItemAnswer) -> None:
        answer = item.receipt or item.abort or item.approval or item.unknown
        if entry.waiter is not None and not entry.waiter.done():
            entry.waiter.set_result(answer if item.refusal is None else from_refusal(item.refusal))
        elif item.refusal is not None:
            self._owner.refuse(refused_entry(entry, item.refusal.code, now_ms()))

    def _storage_away(self, doing: str, failure: FailureError) -> None:
        owner = self._owner
        delay_ms = backoff(
            self.stalls,
            workflow.random().random(),
            base=owner.config.alarm_backoff_base_ms,
            cap=owner.config.alarm_backoff_cap_ms,
        )
        self.stalls += 1
        self.retry_at = now_ms() + delay_ms
        owner.last_failure = f"{doing}: {told(failure)}"
        # Those behind the batch too: their turn would not come before storage is back.
        waiting = owner.inbox.waiting()
        owner.inbox.drop(waiting)
        if not owner.inbox.entries:
            self.retry_at = None
        for entry in waiting:
            if entry.waiter is not None and not entry.waiter.done():
                entry.waiter.set_result(Busy(reason="the database did not answer in time"))

    def see(self, survey: Survey, page: Page | None = None) -> None:
        """A survey: the whole object, or what of a shared host was read. For the report; nothing is decided by it."""
        whole = page is None or (page.after == page.origin and survey.following is None)
        if whole and not survey.partial:
            self.survey = survey
            return
        views = {view.thread_id: view for view in self.survey.threads}
        views |= {view.thread_id: view for view in survey.threads}
        self.survey = Survey(
            threads=tuple(views[thread_id] for thread_id in sorted(views) if views[thread_id].nonterminal)
        )

    def carried_survey(self) -> Survey:
        """What travels: a view for each Thread of a large host would weigh more than all it is for, the report."""
        threads = self.survey.threads
        if len(threads) <= limits.REPORT_ROWS_MAX:
            return self.survey
        return self.survey.model_copy(update={"threads": threads[: limits.REPORT_ROWS_MAX], "truncated": True})

    def see_view(self, view: ThreadView) -> None:
        """A newer view of one Thread than the last survey's: what the report shows."""
        others = tuple(thread for thread in self.survey.threads if thread.thread_id != view.thread_id)
        kept = (*others, view) if view.nonterminal else others
        self.survey = Survey(
            threads=tuple(sorted(kept, key=lambda thread: thread.thread_id)), truncated=self.survey.truncated
        )

    # --- lanes that messages name ----------------------------------------------------------------------------------

    def schedule(self, schedule: Schedule) -> Scheduled:
        """Make a lane due. A stretch of the workflow's own state: no storage, no generation unless it is native's."""
        maintenance, now = self._owner.maintenance, now_ms()
        counted = maintenance.schedule(schedule.lane, schedule.due_at, now, schedule.cursor)
        if schedule.cursor is None:
            self._owner.waves.keep(schedule.lane, schedule.due_at)
        maintenance.hint(now)
        row = maintenance.state.queue.get(schedule.lane)
        return Scheduled(lane=schedule.lane, due_at=None if row is None else row.due_at, counted=counted)

    def _strange(self, entries: list[Entry]) -> list[Entry]:
        handles = self._owner.maintenance.handles
        return [entry for entry in entries if not all(handles(lane) for lane in lanes_of(entry.mutation))]

    def _learned(self, batch: list[Entry], answer: SurveyAnswer) -> None:
        """What is still strange now is refused, entry by entry."""
        owner = self._owner
        owner.observe(answer.registry, answer.installed, now_ms())
        self.retry_at, self.stalls = None, 0
        for entry in self._strange(batch):
            lane = next(lane for lane in lanes_of(entry.mutation) if not owner.maintenance.handles(lane))
            self._end(entry, LaneRefused(lane=lane, reason="no worker has it"))

    def _scheduled(self, batch: list[Entry]) -> list[Entry]:
        """Schedules of a batch that had to wait until their lane was known. They never reach storage."""
        found = [entry for entry in batch if isinstance(entry.mutation, Schedule)]
        for entry in found:
            if isinstance(entry.mutation, Schedule):
                self._end(entry, self.schedule(entry.mutation))
        return found

    def _end(self, entry: Entry, answer: Scheduled | LaneRefused) -> None:
        owner = self._owner
        owner.inbox.drop([entry])
        if entry.waiter is not None and not entry.waiter.done():
            entry.waiter.set_result(answer)
        elif isinstance(answer, LaneRefused):
            owner.refuse(refused_entry(entry, answer.code, now_ms()))

    # --- marks -----------------------------------------------------------------------------------------------------

    def note_mark(self, mark: int, now: int) -> None:
        """The sweep found a mark of ours. A mark we never recorded is a batch whose task was lost: real work.

        A mark that an earlier task recorded has served: what it stands for is owed by this state, which is durable.
        """
        if mark > self.applied_through:
            # Which lanes its inputs named nobody knows any more: each gets a look.
            mutation = self._owner.maintenance.prearm(now, lanes=self._owner.maintenance.host_lanes())
            self._owner.maintenance.release(mutation, now, progressed=(NATIVE,))
            self.applied_through = mark
            # What the lost batch's answer would have told: an Attempt of this id may hold a claim.
            self._note_offered(mark)
            self.next_mark = max(self.next_mark, mark + 1)
            self._unmark_uncertified = True
        self.unmark_through = max(self.unmark_through, mark)

    def _mark_clearable(self) -> bool:
        if self.unmark_through == 0 or not (self.retry_at is None or self.retry_at <= now_ms()):
            return False
        # A lost batch's mark is its work's only witness until a finished pass has certified.
        record = self._owner.maintenance.state.record
        certified = not self._owner.passes.active and record.processed >= record.dirty
        return certified or not self._unmark_uncertified

    async def _clear_mark(self) -> None:
        through = self.unmark_through
        # A mark that could not be cleared is found by the next sweep.
        with suppress(FailureError):
            await workflow.execute_local_activity(
                names.ACTIVITY_CLEAR_MARK,
                ClearMarkRequest(object_id=self._owner.object_id, through=through),
                schedule_to_close_timeout=timedelta(milliseconds=self._owner.config.apply_timeout_ms),
                retry_policy=_QUICK_RETRIES,
            )
        if self.unmark_through == through:
            self.unmark_through, self._unmark_uncertified = 0, False
