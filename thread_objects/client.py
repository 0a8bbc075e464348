"""ThreadClient: send input to a Thread from anywhere, and learn what became of it.

Every call is safe to repeat. Refusals are typed errors of `thread_objects.errors`; `retryable` ones (busy, moving,
away) are repeated here for a bounded time with the same key before they reach the caller.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import uuid
from collections.abc import AsyncGenerator, Sequence
from datetime import datetime
from typing import Self

from pydantic import JsonValue
from temporalio.client import (
    Client,
)

from thread_objects.authorising import LOCAL, Authoriser, authorisation
from thread_objects.awaiting import Awaiting, check_receipt
from thread_objects.clock import instant_ms
from thread_objects.connection import connect
from thread_objects.contract import ids, limits, names
from thread_objects.contract.alarms import AlarmCancelled, AlarmSet, CancelAlarm, NamedAlarm, SetAlarm
from thread_objects.contract.messages import (
    Abort,
    AbortAnswer,
    AdmissionFacts,
    ApprovalAnswer,
    LogRecord,
    PendingReceipt,
    Receipt,
    ResolveApproval,
    ResolveUnknown,
    Schedule,
    Scheduled,
    Settlement,
    SubmissionStatus,
    Submit,
    UnknownAnswer,
)
from thread_objects.contract.operations import Operation
from thread_objects.contract.reports import ObjectReport, RecoveryStatus
from thread_objects.contract.states import Decision, ResolutionKind
from thread_objects.contract.views import Fault
from thread_objects.errors import InvalidInput, WaitTimeout
from thread_objects.inspecting import Inspecting
from thread_objects.objects import Objects, wire_bytes
from thread_objects.operating import Operating, identity
from thread_objects.placement import Placement
from thread_objects.reading import Reading
from thread_objects.routing import Routes
from thread_objects.settings import Settings, load_settings
from thread_objects.validating import valid
from thread_objects.waiters import Waiters
from thread_objects.waiting import SettlementWatch


class ThreadClient(Operating):
    """One connection to Temporal and, where a database URL is known, one to the database. Use as a context manager.

    Without a database URL every result is the same; reading it takes a short workflow instead of a query in SQL.
    """

    def __init__(self, temporal: Client, settings: Settings, *, authoriser: Authoriser | None = None) -> None:
        self._temporal = temporal
        self._authorisation = authorisation(authoriser, settings.authoriser)
        self._caller = settings.caller or LOCAL
        objects = Objects(temporal, settings)
        self._reading = Reading(temporal, objects, settings)
        self._objects = Routes(objects, Placement(settings.placement), self._reading.owner)
        self._inspecting = Inspecting(temporal, objects, self._reading, settings)
        self._watch = SettlementWatch(self._reading.open_reader) if settings.database_url else None
        self._awaiting = Awaiting(self._objects, self._reading, self._inspecting, self._watch)
        self._waiters = Waiters()

    # --- life ---------------------------------------------------------------------------------------------------

    @classmethod
    async def connect(
        cls,
        settings: Settings | None = None,
        *,
        address: str | None = None,
        namespace: str | None = None,
        profile: str | None = None,
        api_key: str | None = None,
        tls: bool | None = None,
        database_url: str | None = None,
        task_queue: str | None = None,
        caller: str | None = None,
        authoriser: Authoriser | None = None,
    ) -> Self:
        """Connect by settings (environment, `threads.toml`, Temporal's own profile), each overridable here.

        `authoriser` is asked before every operation; without one, here or in the settings, everything is allowed.
        Raises `ServerUnavailable` after `Settings.connect_timeout_s`, `ConfigError` for a bad setting.
        """
        overrides = {
            "address": address,
            "namespace": namespace,
            "profile": profile,
            "api_key": api_key,
            "tls": tls,
            "database_url": database_url,
            "task_queue": task_queue,
            "caller": caller,
        }
        given = {name: value for name, value in overrides.items() if value is not None}
        settings = load_settings(**given) if settings is None else settings.model_copy(update=given)
        return cls(await connect(settings), settings, authoriser=authoriser)

    def acting_as(self, caller: str) -> Self:
        """This client, with another caller told to the authoriser. Shares its connections: close the first only."""
        other = copy.copy(self)
        other._caller = caller  # noqa: SLF001 - its own copy
        return other

    async def close(self) -> None:
        """Release the database connection and the poller. The Temporal connection closes with its last user."""
        if self._watch is not None:
            await asyncio.to_thread(self._watch.close)
        await self._reading.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def temporal(self) -> Client:
        """The Temporal client underneath."""
        return self._temporal

    # --- mutations ------------------------------------------------------------------------------------------------

    async def submit(
        self,
        thread_id: str,
        agent: str,
        input: JsonValue,  # noqa: A002 - the word users write
        *,
        key: str | None = None,
        principal: str = "local",
        lanes: Sequence[str] = (),
        facts: AdmissionFacts | None = None,
    ) -> Receipt:
        """Hand one input to a Thread (created if need be) and get its Receipt, in one round trip.

        `key` makes the call safe to repeat: same key and input, same Receipt (`replayed`). Without one a fresh key
        is drawn, which protects this call's own retries only. `lanes` have something to do because of this input:
        they are due once it is stored. `facts` (a group, a fence, where it came from) belong to the admission: a
        repetition says the same. Raises `AdmissionConflict`, `AdmissionLimitExceeded`, `AdmissionPolicyError`,
        `InvalidInput`, `LaneRefused`, `Busy` (after 30 s of trying), `ServerUnavailable`.
        """
        message = self._submission(thread_id, agent, input, key, principal, lanes=lanes, facts=facts)
        return await self._objects.update(thread_id, names.SUBMIT, message, Receipt, start=True)

    async def submit_signal(
        self,
        thread_id: str,
        agent: str,
        input: JsonValue,  # noqa: A002 - the word users write
        *,
        key: str | None = None,
        principal: str = "local",
        lanes: Sequence[str] = (),
        facts: AdmissionFacts | None = None,
    ) -> PendingReceipt:
        """As `submit`, without waiting for admission: returns when the server has the signal.

        The identities are derived, so the PendingReceipt is good for `wait`; a refusal shows there. Input whose
        message is over 64 KiB goes by update instead, since a signal cannot be refused.
        """
        message = self._submission(thread_id, agent, input, key, principal, lanes=lanes, facts=facts)
        payload_bytes = wire_bytes(message)
        if payload_bytes > limits.SIGNAL_BYTES_MAX:
            return await self._objects.update(thread_id, names.SUBMIT, message, Receipt, start=True)
        await self._objects.signal(thread_id, names.SUBMIT, message)
        return _pending(message)

    async def abort(self, thread_id: str, submission_id: str, *, author: str, reason: str) -> AbortAnswer:
        """Ask for a Submission to be aborted; the first request wins. `SettlementConflict` when it is settled."""
        await self._authorisation.check(Operation.ABORT, author, thread_id, submission_id)
        message = valid(Abort, thread_id=thread_id, submission_id=submission_id, author=author, reason=reason)
        return await self._objects.update(thread_id, names.ABORT, message, AbortAnswer)

    async def resolve_approval(
        self,
        thread_id: str,
        submission_id: str,
        tool_call_id: str,
        decision: Decision | str,
        *,
        resolver: str,
        reason: str = "",
    ) -> ApprovalAnswer:
        """Approve or deny a call. `ApprovalConflict` when it was decided the other way."""
        await self._authorisation.check(Operation.RESOLVE_APPROVAL, resolver, thread_id, submission_id)
        message = valid(
            ResolveApproval,
            thread_id=thread_id,
            submission_id=submission_id,
            tool_call_id=tool_call_id,
            decision=decision,
            resolver=resolver,
            reason=reason,
        )
        return await self._objects.update(thread_id, names.RESOLVE_APPROVAL, message, ApprovalAnswer)

    async def resolve_unknown(
        self,
        thread_id: str,
        submission_id: str,
        tool_call_id: str,
        resolution: ResolutionKind | str,
        *,
        author: str,
        reason: str = "",
        result: JsonValue = None,
        is_failure: bool = False,
    ) -> UnknownAnswer:
        """Close an Unknown Outcome by fact, or permit a retry. `UnknownResolutionConflict` on contradiction."""
        await self._authorisation.check(Operation.RESOLVE_UNKNOWN, author, thread_id, submission_id)
        message = valid(
            ResolveUnknown,
            thread_id=thread_id,
            submission_id=submission_id,
            tool_call_id=tool_call_id,
            resolution=resolution,
            result=result,
            is_failure=is_failure,
            author=author,
            reason=reason,
        )
        return await self._objects.update(thread_id, names.RESOLVE_UNKNOWN, message, UnknownAnswer)

    async def schedule(
        self, thread_id: str, lane: str, due_at: int | datetime, *, cursor: int | None = None
    ) -> Scheduled:
        """Make a lane of the Thread's object due by `due_at` (epoch milliseconds, or an aware datetime).

        Without a `cursor` a pause that failures left behind stays. With one it is progress and ends the pause, but it
        counts only when the cursor is higher than all before, so that repeating is harmless. The object is created if
        need be. Raises `LaneRefused` where no worker has the lane, `InvalidInput`, `Busy`, `ServerUnavailable`.
        """
        try:
            message = valid(Schedule, lane=lane, due_at=instant_ms(due_at), cursor=cursor)
        except ValueError as error:
            raise InvalidInput(what=f"due_at: {error}") from None
        await self._authorisation.check(Operation.WAKE, self._caller, thread_id)
        return await self._objects.update(thread_id, names.SCHEDULE, message, Scheduled, start=True)

    # --- alarms ---------------------------------------------------------------------------------------------------

    async def set_alarm(
        self, thread_id: str, tag: str, alarm_id: str, *, run_at: datetime, payload: JsonValue = None
    ) -> AlarmSet:
        """Arm an alarm of this Thread, or move it: a worker's handler for `tag` gets it at `run_at`, at least once.

        `run_at` is aware and at most ten years ahead; one that has passed is due at once. Equal content is no change,
        other content replaces. The payload is JSON of at most 16 KiB. An object keeps 1 024 alarms and 192 KiB of
        them. Raises `DurableAlarmError` past a bound.
        """
        if run_at.tzinfo is None:
            raise InvalidInput(what="run_at: an instant without a time zone could be any of several")
        at = int(run_at.timestamp() * 1_000)
        message = valid(SetAlarm, thread_id=thread_id, tag=tag, alarm_id=alarm_id, run_at=at, payload=payload)
        return await self._objects.update(thread_id, names.SET_ALARM, message, AlarmSet, start=True)

    async def cancel_alarm(self, thread_id: str, tag: str, alarm_id: str) -> AlarmCancelled:
        """Drop an alarm. Safe to repeat; a delivery that runs already may end, and is not repeated."""
        message = valid(CancelAlarm, thread_id=thread_id, tag=tag, alarm_id=alarm_id)
        return await self._objects.update(thread_id, names.CANCEL_ALARM, message, AlarmCancelled)

    async def alarms(self, thread_id: str) -> list[NamedAlarm]:
        """The alarms of this Thread, the next one first, with what their deliveries came to so far."""
        return await self._objects.query(thread_id, names.QUERY_ALARMS, thread_id, list[NamedAlarm])

    # --- reads ------------------------------------------------------------------------------------------------------

    async def report(self, thread_id: str) -> ObjectReport:
        """The Thread Object's own view: what is owed, what blocks it, what will happen next.

        Of a shared host the lists by Thread hold this Thread's; everything else is the host's.
        """
        await self._authorisation.check(Operation.REPORT, self._caller, thread_id)
        return await self._objects.query(thread_id, names.QUERY_REPORT, thread_id, ObjectReport)

    async def object_id(self, thread_id: str) -> str:
        """The Thread Object that owns the Thread: as storage says, else as the placement says for a new one."""
        await self._authorisation.check(Operation.REPORT, self._caller, thread_id)
        return await self._objects.owner(thread_id)

    async def object_report(self, object_id: str) -> ObjectReport:
        """The report of a Thread Object by its own id: of a shared host with all its Threads (the first 256)."""
        await self._authorisation.check(Operation.REPORT, self._caller, object_id)
        return await self._objects.objects.query(object_id, names.QUERY_REPORT, None, ObjectReport)

    async def recovery_status(self, thread_id: str, *, object_id: str | None = None) -> Fault | None:
        """The retained failure of a Thread's recovery; None when none is known, which is no proof of health.

        `object_id`: the owner, where it is not the Thread itself.
        """
        await self._authorisation.check(Operation.EXPLAIN, self._caller, thread_id)
        name = names.QUERY_RECOVERY_STATUS
        owner = object_id or await self._objects.owner(thread_id)
        found = await self._objects.objects.query(owner, name, thread_id, RecoveryStatus)
        return found.fault

    async def status(self, submission_id: str, *, thread_id: str | None = None) -> SubmissionStatus | None:
        """Where a Submission stands; None when the database has never seen it (in this Thread, where one is named)."""
        await self._authorisation.check(Operation.STATUS, self._caller, thread_id, submission_id)
        return await self._reading.status(submission_id, thread_id, caller=self._caller)

    async def find(self, thread_id: str, principal: str, key: str) -> SubmissionStatus | None:
        """The Submission of an idempotency key; None is proof that it was never admitted."""
        submission_id = ids.submission_id(thread_id, principal, key)
        await self._authorisation.check(Operation.STATUS, self._caller, thread_id, submission_id)
        return await self._reading.find(thread_id, principal, key, caller=self._caller)

    async def log(self, thread_id: str, *, after: int = 0, limit: int = 256) -> list[LogRecord]:
        """A page of the Thread's log past sequence `after`, 1 to 1 024 records (fewer when they are large)."""
        await self._authorisation.check(Operation.OBSERVE, self._caller, thread_id)
        return await self._reading.log(thread_id, after=after, limit=limit, caller=self._caller)

    async def follow(self, thread_id: str, *, after: int = 0, until: str | None = None) -> AsyncGenerator[LogRecord]:
        """The log from `after` on, as it grows. Ends after the settlement of `until`; without it, never by itself.

        A stream that ends in any other way raises: `StreamEnded` when the client was closed, `StoreUnavailable`
        when the database stayed away for 30 s.
        """
        await self._authorisation.check(Operation.OBSERVE, self._caller, thread_id)
        async with contextlib.aclosing(
            self._reading.follow(thread_id, after=after, until=until, caller=self._caller)
        ) as records:
            async for record in records:
                yield record

    async def wait(
        self,
        submission: str | PendingReceipt,
        *,
        thread_id: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - a wait without one is the common case
        waiter: str | None = None,
    ) -> Settlement:
        """Wait for the Settlement. Costs no workflow event; cancelling or timing out detaches only this caller.

        `timeout` in seconds, None = for ever; `waiter` names this wait for `cancel_wait`. Raises `WaitTimeout`,
        `WaitCancelled`; a Submission that was sent by signal and refused raises its refusal; `NotFound` for an id
        that nobody ever sent, when its Thread is known; `OperationDenied` for a Receipt whose ids do not belong
        together; `StoreUnavailable` when the client is closed, or the database stays away before it has shown the
        Submission; `ConfigError` when this client's database is not the workers'.
        """
        submission_id, thread_id = identity(submission, thread_id)
        if isinstance(submission, PendingReceipt):
            check_receipt(submission)
        await self._authorisation.check(Operation.AWAIT_SETTLEMENT, self._caller, thread_id, submission_id)
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            async with asyncio.timeout(timeout):
                work = self._awaiting.settlement(submission, thread_id, self._caller)
                return await self._waiters.until(waiter, work)
        except TimeoutError:
            waited_ms = round((loop.time() - started) * 1_000)
            raise WaitTimeout(submission_id=submission_id, waited_ms=waited_ms) from None

    # --- underneath ---------------------------------------------------------------------------------------------------

    def _submission(
        self,
        thread_id: str,
        agent: str,
        given: JsonValue,
        key: str | None,
        principal: str,
        *,
        lanes: Sequence[str],
        facts: AdmissionFacts | None,
    ) -> Submit:
        drawn = key if key is not None else uuid.uuid4().hex
        fields = {"thread_id": thread_id, "agent_id": agent, "principal": principal, "key": drawn, "input": given}
        return valid(Submit, **fields, lanes=tuple(lanes), facts=facts)


def _pending(message: Submit) -> PendingReceipt:
    identity = (message.thread_id, message.principal, message.key)
    submission_id = ids.submission_id(*identity)
    return PendingReceipt(
        thread_id=message.thread_id,
        principal=message.principal,
        key=message.key,
        submission_id=submission_id,
        receipt_id=ids.receipt_id(*identity),
        run_id=ids.run_id(submission_id),
    )
