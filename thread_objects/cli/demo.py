"""`threads demo`: a whole conversation on real servers, shown as it happens."""

import asyncio
import contextlib
import signal
import tempfile
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from thread_objects.cli.arguments import LOCAL
from thread_objects.cli.exits import Exit, complain
from thread_objects.cli.local import Local, WorkerFailedError, ended
from thread_objects.cli.records import Line, lines_of, transcript_of
from thread_objects.cli.render import Screen
from thread_objects.cli.serving import DEMO_AGENTS
from thread_objects.cli.session import leave
from thread_objects.client import ThreadClient
from thread_objects.contract import ids
from thread_objects.contract.messages import PendingReceipt
from thread_objects.contract.reports import ObjectReport
from thread_objects.contract.states import Decision, Outcome

THREAD, AGENT, OPERATOR = "demo", "support", "you"
BY_SIGNAL = "Where is order 1001?"
BY_UPDATE = "And order 1002?"
FOR_APPROVAL = "Please refund order 1001."
KEYS = ("demo-1", "demo-2", "demo-3")
WHOLE_S = 120.0
"""The demo takes a few seconds; past this something hangs, and it says so instead of hanging too."""
CERTIFIED_S = 5.0
POLL_S = 0.05
T = TypeVar("T")


def demo() -> None:
    """Three inputs through a real Temporal server and a real database, start to end, leaving nothing behind."""

    async def run() -> Exit:
        with tempfile.TemporaryDirectory(prefix="threads-demo-", ignore_cleanup_errors=True) as folder:
            local = Local(Path(folder), agents=DEMO_AGENTS, working_folder=Path(folder))
            return await _Demo(local).run()

    leave(run)


class _Demo:
    """One demo: servers up, three inputs, what came of them, everything down again."""

    def __init__(self, local: Local) -> None:
        self._local = local
        self._screen = Screen()
        self._started = time.monotonic()

    async def run(self) -> Exit:
        """The exit code; ends with everything stopped, also after a failure or a signal."""
        me = asyncio.current_task()
        assert me is not None  # noqa: S101  # this is a coroutine
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, me.cancel)
        try:
            async with asyncio.timeout(WHOLE_S):
                await self._start()
                return await self._while_worker_lives(self._converse())
        except WorkerFailedError as failure:
            complain(str(failure))
            return Exit.UNEXPECTED
        except TimeoutError:
            last_words = self._local.worker.log_tail() if self._local.worker is not None else ""
            complain(f"the demo is not done after {WHOLE_S:.0f} s; the worker's last words: {last_words}")
            return Exit.UNEXPECTED
        except asyncio.CancelledError:
            return Exit.INTERRUPTED
        finally:
            await asyncio.to_thread(self._local.stop)

    async def _start(self) -> None:
        local = self._local
        await local.server.start()
        self._say("server", f"Temporal dev server at {local.server.address}, its state in a file")
        worker = local.start_worker()
        await local.worker_ready()
        self._say("worker", f"pid {worker.pid}, agents in {local.agents}")
        self._say("database", local.database_url)

    async def _while_worker_lives(self, work: Coroutine[Any, Any, T]) -> T:
        async def watch() -> int:
            while True:
                worker = self._local.worker
                code = worker.exit_code if worker is not None else 0
                if code is not None:
                    return code
                await asyncio.sleep(POLL_S)

        working, watching = asyncio.create_task(work), asyncio.create_task(watch())
        try:
            await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            worker = self._local.worker
            said = worker.log_tail() if worker is not None else ""
            raise WorkerFailedError(f"{ended(watching.result())}: {said}", code=watching.result())
        finally:
            for task in (working, watching):
                task.cancel()
            await asyncio.gather(working, watching, return_exceptions=True)

    async def _converse(self) -> Exit:
        async with await ThreadClient.connect(self._local.settings) as client:
            self._screen.title("What happens")
            following = asyncio.create_task(self._follow(client))
            try:
                receipts = await self._submit(client)
                await following
            finally:
                following.cancel()
            settlements = [await client.wait(receipt) for receipt in receipts]

            self._screen.title("Receipts")
            for receipt in receipts:
                self._screen.receipt(receipt)
                self._screen.line("")
            self._screen.line("Settlements", "bold")
            for settlement in settlements:
                self._screen.settlement(settlement)
            self._screen.title("Transcript")
            for record in await client.log(THREAD):
                for line in transcript_of(record):
                    self._screen.happened(line)
            self._screen.title("Report")
            self._screen.report(await _certified(client), now=time.time_ns() // 1_000_000)
        completed = sum(settlement.outcome is Outcome.COMPLETED for settlement in settlements)
        self._screen.title(f"{completed} of {len(settlements)} completed; stopping the worker and the server")
        return Exit.OK if completed == len(settlements) else Exit.FAILED

    async def _submit(self, client: ThreadClient) -> list[PendingReceipt]:
        self._say("you", f"by signal: {BY_SIGNAL}")
        receipts = [await client.submit_signal(THREAD, AGENT, BY_SIGNAL, key=KEYS[0])]
        for key, text in zip(KEYS[1:], (BY_UPDATE, FOR_APPROVAL), strict=True):
            self._say("you", f"by update: {text}")
            receipts.append(await client.submit(THREAD, AGENT, text, key=key))
        return receipts

    async def _follow(self, client: ThreadClient) -> None:
        """Show every record as it is committed, and give the approval when it is asked for."""
        last = ids.submission_id(THREAD, LOCAL, KEYS[-1])
        async for record in client.follow(THREAD, until=last):
            for line in lines_of(record):
                self._happened(line)
            if record.kind == "ToolApprovalRequested":
                call = str(record.payload["toolCallId"])
                answer = await client.resolve_approval(
                    THREAD, last, call, Decision.APPROVED, resolver=OPERATOR, reason="the pot was broken"
                )
                self._say(OPERATOR, f"{answer.decision}: {call}")

    def _say(self, who: str, what: str) -> None:
        self._happened(Line(who, what, "bold"))

    def _happened(self, line: Line) -> None:
        self._screen.happened(line, before=f"{time.monotonic() - self._started:6.2f} s ")


async def _certified(client: ThreadClient) -> ObjectReport:
    """The report once the last pass has certified what it saw; the latest one if that takes too long."""
    report = await client.report(THREAD)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CERTIFIED_S):
            while report.generation.processed != report.generation.dirty:
                await asyncio.sleep(POLL_S)
                report = await client.report(THREAD)
    return report
