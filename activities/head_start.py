"""An Attempt that begins beside the workflow task that will ask for it.

An idle object that admits one input says so with the batch, and the worker that applied the batch begins the Attempt
at once instead of waiting until the server has the workflow task and hands out the activity. The activity then adopts
what has begun.

Rules guarded: before adoption a head start claims the head, makes its input canonical and asks the model, and
commits nothing else: no response, no handler, no settlement. One that is not adopted in time hands its claim back.
Its attempt id is known to the workflow before it begins, so that a lost one is superseded like any Attempt.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from thread_objects.agents.registry import Registry
from thread_objects.clock import Clock
from thread_objects.contract import limits
from thread_objects.contract.activities import ApplyAnswer, ApplyRequest, AttemptAnswer, AttemptRequest
from thread_objects.contract.states import SubmissionState

from .control import Control

PATIENCE_S = 2.0
"""How long after its beginning a head start can be adopted. The workflow task it races takes milliseconds."""
HEADWAY_S = 0.002
"""The workflow's own stretch after the batch goes first: its caller waits for the Receipt."""
LOOK_S = 0.05
"""How often somebody who waits for adoption looks whether the worker shuts down."""


class HeadStart:
    """One Attempt under way. Adopted, or given up, exactly once."""

    def __init__(self, request: AttemptRequest, patience_s: float = PATIENCE_S) -> None:
        self.request = request
        self.control = Control()
        self.ended: Future[AttemptAnswer] = Future()
        self._adopted = threading.Event()
        self._lock = threading.Lock()
        self._given_up = False
        self._wake: Callable[[], object] | None = None
        self._until = time.monotonic() + patience_s

    def adopt(self, request: AttemptRequest) -> bool:
        """The activity is here. False when it comes too late: then wait for `ended` and begin anew."""
        with self._lock:
            if self._given_up or self.ended.done():
                return False
            self.request = request
            self._adopted.set()
            if self._wake is not None:
                self._wake()
            return True

    def wait(self) -> AttemptRequest | None:
        """The activity's own request, once it is here. None: nobody came, hand back."""
        while not self._adopted.wait(LOOK_S):
            if time.monotonic() >= self._until or self.control.told:
                return self._give_up()
        return self.request

    async def waited(self) -> AttemptRequest | None:
        """As `wait`, without holding the event loop. Who shuts down cancels it."""
        loop, here = asyncio.get_running_loop(), asyncio.Event()
        with self._lock:
            if self._adopted.is_set():
                return self.request
            self._wake = partial(loop.call_soon_threadsafe, here.set)
        try:
            async with asyncio.timeout(max(0.0, self._until - time.monotonic())):
                await here.wait()
        except TimeoutError:
            return self._give_up()
        finally:
            with self._lock:
                self._wake = None
        return self.request

    def _give_up(self) -> AttemptRequest | None:
        with self._lock:
            if self._adopted.is_set():
                return self.request
            self._given_up = True
            return None


class HeadStarts:
    """The head starts of one worker process."""

    def __init__(
        self,
        advance: Callable[[HeadStart], AttemptAnswer],
        *,
        clock: Clock,
        registry: Registry,
        at_most: int,
        headway_s: float = HEADWAY_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._advance = advance
        self._clock = clock
        self._registry = registry
        self._at_most = at_most
        self._headway_s = headway_s
        self._patience_s = patience_s
        self._running: dict[str, HeadStart] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._threads = ThreadPoolExecutor(max_workers=max(1, at_most), thread_name_prefix="head-start")

    def offer(self, request: ApplyRequest, answer: ApplyAnswer) -> str | None:
        """Begin, if the batch left exactly one new input to run. The attempt id of what runs, or None."""
        offer = request.head_start
        if offer is None:
            return None
        with self._lock:
            if offer.attempt_id in self._running:
                return offer.attempt_id  # the batch is applied again, and its head start is still under way
            if self._closed or len(self._running) >= self._at_most or not self._worth_it(answer):
                return None
            now = self._clock.now()
            head = self._running[offer.attempt_id] = HeadStart(
                AttemptRequest(
                    object_id=request.object_id,
                    thread_id=request.items[0].mutation.thread_id,
                    producer_id=offer.producer_id,
                    attempt_id=offer.attempt_id,
                    yield_at=now + limits.PASS_YIELD_AFTER_MS,
                    deadline_at=now + limits.PASS_DEADLINE_MS,
                ),
                self._patience_s,
            )
            try:
                self._threads.submit(self._run, head)
            except RuntimeError:  # no thread to be had: the batch is applied all the same
                del self._running[offer.attempt_id]
                return None
        return offer.attempt_id

    def take(self, attempt_id: str) -> HeadStart | None:
        """The head start of this Attempt, if it runs in this process."""
        with self._lock:
            return self._running.get(attempt_id)

    def close(self) -> None:
        """Take no more; those that nobody adopted hand back. Bounded by their patience."""
        with self._lock:
            self._closed = True
            running = list(self._running.values())
        for head in running:
            head.control.tell()
        self._threads.shutdown(wait=True)

    def _worth_it(self, answer: ApplyAnswer) -> bool:
        receipt = answer.answers[0].receipt if len(answer.answers) == 1 else None
        if receipt is None or receipt.replayed or len(answer.survey.threads) != 1:
            return False
        view = answer.survey.threads[0]
        return (
            view.nonterminal == 1
            and view.fault_retry_at is None
            and view.head is not None
            and view.head.submission_id == receipt.submission_id
            and view.head.state is SubmissionState.READY
            and not view.head.abort_requested
            and view.head.agent_id in self._registry
        )

    def _run(self, head: HeadStart) -> None:
        try:
            time.sleep(self._headway_s)
            answer = self._advance(head)
        except BaseException as error:  # noqa: BLE001 - whoever adopted it judges
            self._forget(head)
            head.ended.set_exception(error)
        else:
            self._forget(head)
            head.ended.set_result(answer)

    def _forget(self, head: HeadStart) -> None:
        with self._lock:
            self._running.pop(head.request.attempt_id, None)
