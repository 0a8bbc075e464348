"""Asks an authoriser before an operation reads or writes anything. Fail closed where one is installed.

A client asks its own for every operation. A worker asks its own for what reaches an object or a database through it
(aborts, decisions, resolutions, retries and reads of clients without a database), whoever sent it and by whatever
program; so what must not happen without permission is refused where the database is, not where the request is made.
"""

import asyncio
import inspect
import logging
import queue
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from thread_objects.contract import limits
from thread_objects.contract.operations import Operation
from thread_objects.errors import ConfigError, OperationDenied
from thread_objects.importing import imported

ALLOWS_ALL = "no authoriser is installed: every operation is allowed"
LOCAL = "local"
"""The caller where nobody said who asks."""
NO_ANSWER = "the authoriser gave no answer in time"

log = logging.getLogger("thread_objects")


@dataclass(frozen=True, slots=True)
class OperationRequest:
    """What is about to be done, to what, and who asks. Ids that were not given are None.

    `caller` is the author, resolver or principal that a mutation records, for reads the client's own caller: a name
    that whoever sends it chooses. Who must not choose freely has to be told apart before, where requests come in.
    """

    operation: Operation
    caller: str
    thread_id: str | None = None
    submission_id: str | None = None


class Authoriser(Protocol):
    """Allows or denies operations. None allows; a text denies and is the reason (at most 4 096 characters).

    Plain or asynchronous. Called before any read or write of the operation, possibly many times for one operation
    and from any thread; an asynchronous one runs on the client's loop, and in a worker on a loop of each call. An
    exception, any other answer, or none within 2 s denies.
    """

    def __call__(self, request: OperationRequest, /) -> str | Awaitable[str | None] | None:
        """None, or why not."""


class Authorisation:
    """The authoriser of one client or worker, or none."""

    def __init__(self, authoriser: Authoriser | None = None, *, timeout_ms: int = limits.AUTHORISER_TIMEOUT_MS) -> None:
        self._authoriser = authoriser
        self._timeout_s = timeout_ms / 1_000

    @property
    def installed(self) -> bool:
        """Whether anybody is asked at all."""
        return self._authoriser is not None

    async def check(
        self, operation: Operation, caller: str, thread_id: str | None = None, submission_id: str | None = None
    ) -> None:
        """Ask, on the caller's loop. Raises `OperationDenied`."""
        if self._authoriser is None:
            return
        request = OperationRequest(operation, caller, thread_id, submission_id)
        try:
            async with asyncio.timeout(self._timeout_s):
                said = await _said(self._authoriser, request)
        except TimeoutError:
            said = NO_ANSWER
        except Exception as error:  # noqa: BLE001 - whatever it raised, it did not allow
            said = _failed(error)
        denial = _denial(said)
        if denial is not None:
            raise denied(request, denial)

    def refusals(self, requests: Sequence[OperationRequest]) -> list[OperationDenied | None]:
        """Ask about each, in order, from a thread without a loop. The time is for all of them together."""
        if self._authoriser is None:
            return [None] * len(requests)
        authoriser, answers = self._authoriser, queue.SimpleQueue[Any]()

        def ask() -> None:
            for request in requests:
                try:
                    said = authoriser(request)
                    answers.put(asyncio.run(_awaited(said)) if inspect.isawaitable(said) else said)
                except BaseException as error:  # noqa: BLE001 - whatever it raised, it did not allow
                    answers.put(_failed(error))

        threading.Thread(target=ask, name="authoriser", daemon=True).start()
        ends_at = time.monotonic() + self._timeout_s
        return [
            None if (denial := _denial(_next_of(answers, ends_at))) is None else denied(request, denial)
            for request in requests
        ]

    def refuse(self, request: OperationRequest) -> None:
        """Ask about one, from a thread without a loop. Raises `OperationDenied`."""
        (refusal,) = self.refusals([request])
        if refusal is not None:
            raise refusal


def _next_of(answers: "queue.SimpleQueue[Any]", ends_at: float) -> object:
    try:
        return answers.get(timeout=max(0.0, ends_at - time.monotonic()))
    except queue.Empty:
        return NO_ANSWER


def denied(request: OperationRequest, reason: str) -> OperationDenied:
    """The refusal as the typed error."""
    return OperationDenied(
        operation=request.operation.value,
        reason=reason,
        thread_id=request.thread_id,
        submission_id=request.submission_id,
    )


def _denial(said: object) -> str | None:
    if said is None:
        return None
    if not isinstance(said, str):
        return f"the authoriser answered {type(said).__name__}, which allows nothing"
    return said[: limits.DENIAL_CHARS_MAX] or "denied"


def _failed(error: BaseException) -> str:
    # Its message may hold anything; it is the authoriser's own to log.
    return f"the authoriser failed ({type(error).__name__})"


async def _said(authoriser: Authoriser, request: OperationRequest) -> object:
    """Ask on this loop what is asynchronous, on a thread of its own what may block."""
    if inspect.iscoroutinefunction(authoriser) or inspect.iscoroutinefunction(type(authoriser).__call__):
        return await _awaited(authoriser(request))
    said = await _on_a_thread(lambda: authoriser(request))
    return await _awaited(said) if inspect.isawaitable(said) else said


async def _awaited(said: Any) -> Any:
    return await said


async def _on_a_thread(call: Callable[[], Any]) -> Any:
    """The answer of something that may hang. It is then left behind: a pool's thread would hold up the process."""
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[Any] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if answered.done():
            return
        if error is None:
            answered.set_result(value)
        else:
            # What ends a process must not end the loop that asked.
            answered.set_exception(error if isinstance(error, Exception) else RuntimeError(type(error).__name__))

    def run() -> None:
        value, failure = None, None
        try:
            value = call()
        except BaseException as error:  # noqa: BLE001 - carried to whoever asked
            failure = error
        with suppress(RuntimeError):  # the loop is gone, and whoever asked with it
            loop.call_soon_threadsafe(settle, value, failure)

    threading.Thread(target=run, name="authoriser", daemon=True).start()
    return await answered


def load_authoriser(path: str) -> Authoriser:
    """The authoriser at `package.module:callable`. Raises `ConfigError`: nothing opens without the one configured."""
    found = imported(path, setting="authoriser", what="callable")
    if not callable(found):
        raise ConfigError(setting="authoriser", reason=f"{path!r} is nothing that can be called")
    authoriser: Authoriser = found
    return authoriser


def authorisation(authoriser: Authoriser | None, path: str | None) -> Authorisation:
    """The authoriser given, else the one of the settings, else none, which is said once."""
    if authoriser is None and path is not None:
        authoriser = load_authoriser(path)
    if authoriser is None:
        log.info(ALLOWS_ALL)
    return Authorisation(authoriser)
