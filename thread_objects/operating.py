"""What an operator does through a client: explain, verify, scan, retry, wake, wait for progress.

Every operation asks the authoriser first. Explaining, verifying and scanning read; nothing they do is ever a repair.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING

from thread_objects.contract import limits, names
from thread_objects.contract.messages import PendingReceipt, Retry, Wake
from thread_objects.contract.operations import (
    BlockedOn,
    Explanation,
    InspectRequest,
    ObligationsPage,
    ObligationsQuery,
    Operation,
    RetryAnswer,
    Severity,
    ThreadExplanation,
)
from thread_objects.contract.reports import AlarmView, Verification
from thread_objects.errors import InvalidInput, NotFound, WaitTimeout
from thread_objects.validating import valid

if TYPE_CHECKING:
    from thread_objects.authorising import Authorisation
    from thread_objects.awaiting import Awaiting
    from thread_objects.inspecting import Inspecting
    from thread_objects.routing import Routes
    from thread_objects.waiters import Waiters


class Operating:
    """The operator's part of `ThreadClient`."""

    _authorisation: Authorisation
    _awaiting: Awaiting
    _caller: str
    _inspecting: Inspecting
    _objects: Routes
    _waiters: Waiters

    async def explain(self, submission: str | PendingReceipt, *, thread_id: str | None = None) -> Explanation:
        """What is owed to a Submission, what recovery would decide for it now, and on which evidence.

        Reads one consistent moment and writes nothing. `NotFound` where there is no such Submission (in this Thread,
        where one is named), `CorruptRecord` where a stored record of it cannot be read.
        """
        submission_id, thread_id = identity(submission, thread_id)
        await self._authorisation.check(Operation.EXPLAIN, self._caller, thread_id, submission_id)
        found = await self._inspecting.explanation(
            InspectRequest(
                operation=Operation.EXPLAIN, submission_id=submission_id, thread_id=thread_id, caller=self._caller
            )
        )
        if found is None:
            raise NotFound(what="submission", id=submission_id)
        return found

    async def explain_thread(
        self, thread_id: str, *, after: int = 0, limit: int = limits.EXPLAINED_ROWS_MAX
    ) -> ThreadExplanation:
        """A Thread and its unsettled Submissions, at most 32 at a time; go on with `after=next_after`.

        A Submission that cannot be read is listed in `unreadable` and hides no other. `NotFound` for a Thread that
        the database does not know.
        """
        await self._authorisation.check(Operation.EXPLAIN_THREAD, self._caller, thread_id)
        if not 1 <= limit <= limits.EXPLAINED_ROWS_MAX or after < 0:
            raise InvalidInput(what="limit", actual=limit, maximum=limits.EXPLAINED_ROWS_MAX)
        found = await self._inspecting.thread_explanation(
            InspectRequest(
                operation=Operation.EXPLAIN_THREAD,
                thread_id=thread_id,
                after=after,
                limit=limit,
                caller=self._caller,
            )
        )
        if found is None:
            raise NotFound(what="thread", id=thread_id)
        return found

    async def verify(self, thread_id: str, *, require_all_settled: bool = False) -> Verification:
        """Check that a Thread's log and ledger are whole and agree. Reads all of it; repairs nothing.

        One consistent moment, also while work goes on. A Thread that does not exist is empty, and whole. Takes about
        a tenth of a millisecond per record; without a database it runs in a worker, for at most 10 minutes.
        """
        await self._authorisation.check(Operation.VERIFY, self._caller, thread_id)
        request = InspectRequest(
            operation=Operation.VERIFY,
            thread_id=thread_id,
            require_all_settled=require_all_settled,
            caller=self._caller,
        )
        found = (await self._inspecting.ask(request)).verification
        if found is None:
            raise NotFound(what="thread", id=thread_id)
        return found

    async def retry(
        self, submission: str | PendingReceipt, *, author: str, reason: str, thread_id: str | None = None
    ) -> RetryAnswer:
        """Execute, now, exactly what recovery would decide for a Submission, and answer what that left behind.

        A repair leaves an audit with author and reason in the log. `RetryRefused` where there is nothing to execute:
        the Submission is settled, or waits for a resolution or an approval. `RecoveryBlocked` while recovery of its
        Thread has failed and is not tried again yet. Safe to repeat; beside a living owner it changes nothing.
        """
        submission_id, thread_id = identity(submission, thread_id)
        await self._authorisation.check(Operation.RETRY, author, thread_id, submission_id)
        # Without a reason nothing is read either, also where the Thread has to be looked up first.
        valid(Retry, thread_id=thread_id or "?", submission_id=submission_id, author=author, reason=reason)
        request = InspectRequest(
            operation=Operation.EXPLAIN, submission_id=submission_id, thread_id=thread_id, caller=author
        )
        if thread_id is None:
            # Only storage knows whose it is.
            found = (await self._inspecting.ask(request)).explanation
            if found is None:
                raise NotFound(what="submission", id=submission_id)
            thread_id = found.thread_id
            self._objects.learn(thread_id, found.object_id)
        message = valid(Retry, thread_id=thread_id, submission_id=submission_id, author=author, reason=reason)
        return await self._objects.update(thread_id, names.RETRY, message, RetryAnswer)

    async def wake(self, thread_id: str) -> AlarmView:
        """A hint to look again. Grants nothing and changes no ownership; returns the alarm slot."""
        await self._authorisation.check(Operation.WAKE, self._caller, thread_id)
        return await self._objects.update(thread_id, names.WAKE, Wake(), AlarmView)

    async def scan_obligations(
        self,
        aging_seconds: int,
        overdue_seconds: int,
        *,
        thread_id: str | None = None,
        agent: str | None = None,
        principal: str | None = None,
        blocked_on: Collection[BlockedOn | str] = (),
        severity: Severity | str = Severity.OK,
        after: str | None = None,
        limit: int = 100,
    ) -> ObligationsPage:
        """Unsettled Submissions over all Threads, or of one: what each waits for, since when, and how late that is.

        At most `limit` (1 to 256) of them; go on with `after=next_after` until that is None. With filters (an agent,
        a principal, what it waits for, a severity at least) a page may be short, or empty with a `next_after`.
        A page costs the same whatever the past holds.
        """
        await self._authorisation.check(Operation.SCAN_OBLIGATIONS, self._caller, thread_id)
        query = valid(
            ObligationsQuery,
            aging_seconds=aging_seconds,
            overdue_seconds=overdue_seconds,
            thread_id=thread_id,
            agent_id=agent,
            principal=principal,
            blocked_on=tuple(blocked_on),
            severity_min=severity,
            after=after,
            limit=limit,
        )
        request = InspectRequest(operation=Operation.SCAN_OBLIGATIONS, obligations=query, caller=self._caller)
        return (await self._inspecting.ask(request)).obligations or ObligationsPage()

    async def await_progress(
        self,
        thread_id: str,
        *,
        after: int = 0,
        timeout: float | None = None,  # noqa: ASYNC109 - a wait without one is the common case
        waiter: str | None = None,
    ) -> int:
        """Wait until the Thread's log is longer than `after`, and answer how long it is. Asked for as observing.

        At once where it is already. Cancelling, timing out (`WaitTimeout`) or `cancel_wait(waiter)` ends this wait
        only. A lost notification costs time and never an answer; after a restart, ask again with the same `after`.
        """
        await self._authorisation.check(Operation.OBSERVE, self._caller, thread_id)
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            async with asyncio.timeout(timeout):
                return await self._waiters.until(waiter, self._awaiting.progress(thread_id, after, self._caller))
        except TimeoutError:
            waited_ms = round((loop.time() - started) * 1_000)
            told = f"the log of {thread_id} has not grown past {after}"
            raise WaitTimeout(told, submission_id="", waited_ms=waited_ms) from None

    def cancel_wait(self, waiter: str) -> bool:
        """End the waits of this name, or the next one to come. A hint: at most 1 024 are kept. Ends no work."""
        return self._waiters.cancel(waiter)


def identity(submission: str | PendingReceipt, thread_id: str | None) -> tuple[str, str | None]:
    """The Submission's id, and its Thread's where that is known."""
    if isinstance(submission, PendingReceipt):
        return submission.submission_id, submission.thread_id
    return submission, thread_id
