"""Waits: for a Settlement, and for a Thread's log to grow. Correct by looking, prompt by being told.

Whoever waits holds nothing: cancelling detaches that waiter only, and a waiter that comes back reads what is durable.
A client with a database looks there. Where that database does not know what the server has accepted, a worker is
asked: if the workers' database does, the two are different ones, which is said instead of waiting for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from thread_objects.contract import ids, names
from thread_objects.contract.messages import PendingReceipt, Receipt, Settlement, SubmissionStatus
from thread_objects.contract.operations import InspectRequest, Operation
from thread_objects.contract.reports import RefusedInput, StatusView
from thread_objects.errors import ConfigError, NotFound, OperationDenied, SignalRefused, ThreadError
from thread_objects.inspecting import Inspecting
from thread_objects.reading import Reading
from thread_objects.routing import Routes
from thread_objects.waiting import SettlementWatch

SIGHT_S = 2.0
"""After so long an accepted Submission should be seen in the client's database."""
SIGHT_S_MAX = 60.0
WIRE_S = 10.0


def check_receipt(receipt: PendingReceipt) -> None:
    """A Receipt is good for a wait only as a whole. Raises `OperationDenied` where its ids do not belong together."""
    identity = (receipt.thread_id, receipt.principal, receipt.key)
    submission_id = ids.submission_id(*identity)
    derived = (submission_id, ids.receipt_id(*identity), ids.run_id(submission_id))
    if derived != (receipt.submission_id, receipt.receipt_id, receipt.run_id):
        raise OperationDenied(
            operation=Operation.AWAIT_SETTLEMENT.value,
            reason="the receipt's ids do not belong together",
            thread_id=receipt.thread_id,
            submission_id=receipt.submission_id,
        )


class Awaiting:
    """The waits of one client."""

    def __init__(
        self, objects: Routes, reading: Reading, inspecting: Inspecting, watch: SettlementWatch | None
    ) -> None:
        self._objects = objects
        self._reading = reading
        self._inspecting = inspecting
        self._watch = watch
        self._sighted = False
        """This client's database has shown a Submission: it is the workers'."""

    # --- settlements -----------------------------------------------------------------------------------------------

    async def settlement(self, submission: str | PendingReceipt, thread_id: str | None, caller: str) -> Settlement:
        """Wait, without a bound of its own."""
        accepted = isinstance(submission, Receipt)
        submission_id = submission.submission_id if isinstance(submission, PendingReceipt) else submission
        status = partial(
            self._reading.status, submission_id, thread_id, caller=caller, operation=Operation.AWAIT_SETTLEMENT
        )
        if self._watch is None:
            return await self._polled(submission_id, thread_id, status, accepted=accepted)
        settled = await self._watched(self._watch, submission_id, thread_id, status, accepted=accepted)
        if thread_id not in (None, settled.thread_id):
            raise NotFound(what="submission", id=submission_id)
        return settled

    async def _watched(
        self,
        watch: SettlementWatch,
        submission_id: str,
        thread_id: str | None,
        status: Callable[..., Awaitable[SubmissionStatus | None]],
        *,
        accepted: bool,
    ) -> Settlement:
        waiter = asyncio.create_task(watch.settlement(submission_id))
        try:
            pause_s = SIGHT_S if accepted else 0.5
            seen = accepted and self._sighted
            while not seen:
                done, _ = await asyncio.wait({waiter}, timeout=pause_s)
                if done:
                    break
                look = partial(self._seen, submission_id, thread_id, status, accepted=accepted)
                seen = await self._reading.outlasting(look)
                pause_s = min(SIGHT_S_MAX if accepted or thread_id is None else 5.0, pause_s * 2)
            return await waiter
        finally:
            waiter.cancel()

    async def _seen(
        self,
        submission_id: str,
        thread_id: str | None,
        status: Callable[..., Awaitable[SubmissionStatus | None]],
        *,
        accepted: bool,
    ) -> bool:
        """True once this client's database knows the Submission, from when on a wait is for its Settlement only."""
        if await status() is not None:
            self._sighted = True
            return True
        if accepted or thread_id is None:
            await self._refuse_other_database(submission_id, status)
            return False
        try:
            return await self._accepted(submission_id, thread_id, status)
        except NotFound:
            await self._refuse_other_database(submission_id, status)
            raise

    async def _polled(
        self,
        submission_id: str,
        thread_id: str | None,
        status: Callable[..., Awaitable[SubmissionStatus | None]],
        *,
        accepted: bool,
    ) -> Settlement:
        pause_s = 0.05
        while True:
            found = await status()
            if found is not None and found.settlement is not None:
                return found.settlement
            if found is None and not accepted and thread_id is not None:
                await self._accepted(submission_id, thread_id, status)
            await asyncio.sleep(pause_s)
            pause_s = min(2.0, pause_s * 1.5)

    async def _accepted(
        self, submission_id: str, thread_id: str, status: Callable[..., Awaitable[SubmissionStatus | None]]
    ) -> bool:
        """True once storage knows it. Raises its refusal, or `NotFound` when its object never heard of it."""
        try:
            view = await self._objects.query(thread_id, names.QUERY_STATUS, submission_id, StatusView)
        except NotFound:
            raise NotFound(what="submission", id=submission_id) from None
        if isinstance(view.detail, dict) and "code" in view.detail:
            refusal = RefusedInput.model_validate(view.detail)
            raise SignalRefused(submission_id=submission_id, refused_with=refusal.code)
        if view.known:
            return False
        # It may have moved from the inbox to storage between the two looks.
        if await status() is None:
            raise NotFound(what="submission", id=submission_id)
        return True

    async def _refuse_other_database(
        self, submission_id: str, status: Callable[..., Awaitable[SubmissionStatus | None]]
    ) -> None:
        """Say so where the workers' database holds what this client's does not."""
        try:
            async with asyncio.timeout(WIRE_S):
                elsewhere = await status(by_wire=True)
        except (TimeoutError, ThreadError):
            return  # no worker answers: nothing is known
        if elsewhere is not None and await status() is None:
            raise ConfigError(
                setting="database_url",
                reason=f"this client's database is not the workers': theirs holds {submission_id}, this one does not",
            )

    # --- progress --------------------------------------------------------------------------------------------------

    async def progress(self, thread_id: str, after: int, caller: str) -> int:
        """Wait until the log is longer than `after`; answers how long it is."""
        if self._watch is not None:
            return await self._watch.progress(thread_id, after)
        request = InspectRequest(operation=Operation.OBSERVE, thread_id=thread_id, caller=caller)
        pause_s = 0.05
        while True:
            tail = (await self._inspecting.ask(request)).tail_sequence or 0
            if tail > after:
                return tail
            await asyncio.sleep(pause_s)
            pause_s = min(2.0, pause_s * 1.5)
