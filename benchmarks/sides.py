"""The two sides behind one face, so that the same code measures both."""

import asyncio
import contextlib
import importlib
import os
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from temporalio.client import Client

from benchmarks.bars import OURS, PEER
from benchmarks.resumption import rows_to_take_up
from benchmarks.stage import Stage
from benchmarks.workload import AGENT, ANSWER, ANSWER_CHARS
from thread_objects.client import ThreadClient
from thread_objects.contract.messages import PendingReceipt
from thread_objects.contract.reports import ObjectReport
from thread_objects.contract.views import OpenCall

ROOT = Path(__file__).resolve().parent.parent
QUIET_S = 30.0
ASK_S = 3.0
"""A query that went to a dead worker's queue is asked again after this."""
POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Timed:
    """One exchange: milliseconds to the receipt and to the outcome, and the outcome's text."""

    receipt_ms: float
    settled_ms: float
    text: object


class Side(Protocol):
    """One system under measurement."""

    name: str
    stage: Stage
    answer: str
    """What every exchange must come back with."""

    async def open(self) -> None:
        """Start the worker and connect."""

    async def close(self) -> None:
        """Disconnect."""

    async def start_worker(self) -> None:
        """Start the worker; returns when it says that it is up."""

    async def create(self, thread: str) -> None:
        """Make sure that the Thread exists and rests."""

    async def begin(self, thread: str) -> None:
        """What this side does before the first submission to a Thread, inside the timed stretch."""

    async def exchange(self, thread: str, text: str, *, by_signal: bool = False) -> Timed:
        """Submit one text and wait for its outcome."""

    async def events(self, thread: str) -> int:
        """History events of the Thread's workflow, once nothing more is to come."""

    async def rows(self, thread: str) -> dict[str, int]:
        """What a worker without memory reads from a database to take up the Thread."""

    async def operate(self, thread: str, since: float, expected: int) -> dict[str, float]:
        """After a crash: what an operator has to do, and when it could be done (seconds since `since`)."""


class Ours:
    """Thread Objects, by the public client and the shipped worker, with default settings."""

    name = OURS

    def __init__(self, stage: Stage, folder: Path) -> None:
        self.stage = stage
        self.answer = ANSWER
        self._database_url = f"sqlite:///{folder / 'threads.db'}"
        self._client: ThreadClient | None = None

    async def open(self) -> None:
        await self.start_worker()
        self._client = await ThreadClient.connect(address=self.stage.server.address, database_url=self._database_url)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    async def start_worker(self) -> None:
        await self.stage.start_worker(
            [sys.executable, str(ROOT / "worker.py"), "--agents", "benchmarks.bench_agents:registry"],
            "worker ready",
            {"THREADS_ADDRESS": self.stage.server.address, "THREADS_DATABASE_URL": self._database_url},
        )

    async def create(self, thread: str) -> None:
        await self.exchange(thread, "hello")
        await self._quiet(thread)

    async def begin(self, thread: str) -> None:
        """Nothing: the first submission creates its Thread."""

    async def exchange(self, thread: str, text: str, *, by_signal: bool = False) -> Timed:
        client = self._connected()
        send = client.submit_signal if by_signal else client.submit
        began = time.perf_counter()
        receipt: PendingReceipt = await send(thread, AGENT, text, key=uuid.uuid4().hex)
        received = time.perf_counter()
        settlement = await client.wait(receipt)
        settled = time.perf_counter()
        answer = settlement.result if settlement.outcome == "completed" else settlement
        return Timed((received - began) * 1e3, (settled - began) * 1e3, answer)

    async def events(self, thread: str) -> int:
        """Raises `RuntimeError` when the history is not one run, whose events would not be all."""
        handle = self._connected().temporal.get_workflow_handle(thread)
        length = -1
        while True:  # what certifies the object may itself be on its way into the history: look until it rests
            report = await self._quiet(thread)
            seen = (await handle.describe()).history_length
            if report.run_count != 1:
                raise RuntimeError(f"{thread} continued as new: {report.run_count} runs")
            if seen == length:
                return seen
            length = seen
            await asyncio.sleep(0.2)

    async def rows(self, thread: str) -> dict[str, int]:
        read, records = await asyncio.to_thread(rows_to_take_up, self._database_url, thread)
        return {"records": records, "resume_rows": read}

    async def operate(self, thread: str, since: float, expected: int) -> dict[str, float]:
        calls: list[OpenCall] = []
        while len(calls) < expected:
            with contextlib.suppress(TimeoutError):
                report = await asyncio.wait_for(self._connected().report(thread), ASK_S)
                calls = [call for view in report.threads for call in view.open_calls if call.waits_for == "unknown"]
            await asyncio.sleep(POLL_S)
        visible = time.time() - since
        await asyncio.gather(*(self._resolve(thread, call) for call in calls))
        return {"unknown_visible_s": visible, "resolved_s": time.time() - since}

    async def _resolve(self, thread: str, call: OpenCall) -> None:
        await self._connected().resolve_unknown(
            thread,
            call.submission_id,
            call.tool_call_id,
            "completed-with-result",
            author="operator",
            reason="its trace was found",
            result={"ok": True},
        )

    async def _quiet(self, thread: str) -> ObjectReport:
        """Wait until nothing is owed: certified, no Attempt, nothing in the inbox, an empty alarm slot."""
        async with asyncio.timeout(QUIET_S):
            while True:
                report = await self._connected().report(thread)
                generation, alarm = report.generation, report.alarm
                certified = generation.processed >= generation.dirty and generation.active_mutations == 0
                waiting = report.inbox or report.attempts or alarm.maintenance is not None or alarm.alarms_total
                if certified and not waiting:
                    return report
                await asyncio.sleep(POLL_S)

    def _connected(self) -> ThreadClient:
        assert self._client is not None
        return self._client


class PlainTemporal:
    """The peer: a workflow per Thread, an activity per model call and per tool call. Its program is not ours.

    `program` is the folder that holds it; its own code submits, and this class only starts its processes the way
    ours are started.
    """

    name = PEER

    def __init__(self, stage: Stage, program: Path) -> None:
        self.stage = stage
        self.answer = ""
        self._program = program
        self._peer: Any = None

    async def open(self) -> None:
        os.environ["TPORT"] = str(self.stage.server.port)
        sys.path.insert(0, str(self._program))
        self.answer = importlib.import_module("workload").ANSWER
        if len(self.answer) != ANSWER_CHARS:
            raise RuntimeError("the peer does another workload: its answer has another length")
        self._peer = importlib.import_module("peer_temporal").Temporal("db")
        self._peer.client = await Client.connect(self.stage.server.address)
        await self.start_worker()

    async def close(self) -> None:
        """Its connection ends with this process."""

    async def start_worker(self) -> None:
        await self.stage.start_worker(
            [sys.executable, str(self._program / "peer_temporal.py"), "worker"],
            "READY",
            {"TPORT": str(self.stage.server.port)},
        )

    async def create(self, thread: str) -> None:
        await self._peer.ensure_thread(thread)

    async def begin(self, thread: str) -> None:
        await self._peer.ensure_thread(thread)

    async def exchange(self, thread: str, text: str, *, by_signal: bool = False) -> Timed:
        assert not by_signal, "the peer's receipt is the acceptance of its update"
        received: list[float] = []
        began = time.perf_counter()
        answer = await self._peer.submit(thread, text, lambda: received.append(time.perf_counter()))
        settled = time.perf_counter()
        return Timed((received[0] - began) * 1e3, (settled - began) * 1e3, answer)

    async def events(self, thread: str) -> int:
        return int(await self._peer.events(thread))

    async def rows(self, thread: str) -> dict[str, int]:
        """None: it replays its history."""
        del thread
        return {}

    async def operate(self, thread: str, since: float, expected: int) -> dict[str, float]:
        """Nothing: it runs the calls again by itself."""
        del thread, since, expected
        return {}
