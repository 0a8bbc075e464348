"""The measurements, each the same code for either side."""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.probes import Meter, percentile
from benchmarks.sides import Side, Timed
from benchmarks.workload import CALLS_PER_TURN, effects

PAUSE_S = 0.1
LOOP_TURNS = 20
CRASH_TURN = 11
CRASH_BOUND_S = 150.0


@dataclass(frozen=True, slots=True)
class Counts:
    """How much of everything."""

    warm: int = 20
    closed: int = 200
    paced: int = 100
    loops: int = 7
    threads: int = 64
    per_thread: int = 20
    aging: int = 1_000


SHORT = Counts(warm=5, closed=30, paced=15, loops=2, threads=16, per_thread=5, aging=120)
"""For a look, not for a number."""

Result = dict[str, Any]


async def hello(side: Side, thread: str, *, by_signal: bool = False) -> Timed:
    """One exchange that must come back with the answer."""
    timed = await side.exchange(thread, "hello", by_signal=by_signal)
    return _answered(side, timed)


def _answered(side: Side, timed: Timed) -> Timed:
    if timed.text != side.answer:
        raise RuntimeError(f"not the answer: {timed.text!r:.400}")
    return timed


def _latencies(exchanges: list[Timed]) -> Result:
    settled = [exchange.settled_ms for exchange in exchanges]
    receipts = [exchange.receipt_ms for exchange in exchanges]
    return {
        "n": len(exchanges),
        "p50": percentile(settled, 0.5),
        "p95": percentile(settled, 0.95),
        "p99": percentile(settled, 0.99),
        "receipt_p50": percentile(receipts, 0.5),
        "receipt_p95": percentile(receipts, 0.95),
    }


async def w1(side: Side, counts: Counts, folder: Path) -> Result:
    """One Thread, one client, the next text as soon as the last is settled."""
    del folder
    await side.begin("w1")
    meter = Meter(side.stage.pids)
    exchanges = [await hello(side, "w1") for _ in range(counts.closed)]
    return {**_latencies(exchanges), "cpu_ms_per_sub": meter.cpu_ms_per(counts.closed), "rss_mb": meter.rss_mb()}


async def _paced(side: Side, count: int, *, by_signal: bool) -> Result:
    await side.begin("paced")
    meter = Meter(side.stage.pids)
    exchanges = []
    for _ in range(count):
        exchanges.append(await hello(side, "paced", by_signal=by_signal))
        await asyncio.sleep(PAUSE_S)
    return {**_latencies(exchanges), "cpu_ms_per_sub": meter.cpu_ms_per(count), "rss_mb": meter.rss_mb()}


async def w1_paced(side: Side, counts: Counts, folder: Path) -> Result:
    """As W1 with 100 ms between an outcome and the next text: what one caller sees who is not in a hurry."""
    del folder
    return await _paced(side, counts.paced, by_signal=False)


async def w1_signal(side: Side, counts: Counts, folder: Path) -> Result:
    """As paced W1, submitted by signal."""
    del folder
    return await _paced(side, counts.paced, by_signal=True)


async def w2(side: Side, counts: Counts, folder: Path) -> Result:
    """Twenty turns of two tools each, on Threads that exist already; and how much history that leaves."""
    del folder
    threads = [f"w2-{index}" for index in range(counts.loops)]
    before = []
    for thread in threads:
        await side.create(thread)
        before.append(await side.events(thread))
    meter = Meter(side.stage.pids)
    totals_ms, events = [], []
    for thread, already in zip(threads, before, strict=True):
        timed = _answered(side, await side.exchange(thread, f"loop {LOOP_TURNS}"))
        totals_ms.append(timed.settled_ms)
        events.append(await side.events(thread) - already)
    return {
        "n": counts.loops,
        "median_ms": statistics.median(totals_ms),
        "ms_per_turn": statistics.median(totals_ms) / (LOOP_TURNS + 1),
        "p95_ms": percentile(totals_ms, 0.95),
        "events": statistics.median(events),
        "events_max": max(events),
        "cpu_ms_per_sub": meter.cpu_ms_per(counts.loops),
        "rss_mb": meter.rss_mb(),
    }


async def w3(side: Side, counts: Counts, folder: Path) -> Result:
    """Many new Threads at once, each with one text at a time."""
    del folder

    async def one(thread: str) -> list[float]:
        await side.begin(thread)
        return [(await hello(side, thread)).settled_ms for _ in range(counts.per_thread)]

    meter = Meter(side.stage.pids)
    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(f"w3-{index}")) for index in range(counts.threads)]
    took_s = time.perf_counter() - began
    latencies = [latency for task in tasks for latency in task.result()]
    return {
        "n": len(latencies),
        "per_s": len(latencies) / took_s,
        "lat_p50": percentile(latencies, 0.5),
        "lat_p99": percentile(latencies, 0.99),
        "cpu_ms_per_sub": meter.cpu_ms_per(len(latencies)),
        "rss_mb": meter.rss_mb(),
    }


async def w4(side: Side, counts: Counts, folder: Path) -> Result:
    """One Thread that grows old: whether the thousandth exchange costs what the first did, and the first of a new worker."""
    del folder
    await side.begin("w4")
    meter = Meter(side.stage.pids)
    settled = [(await hello(side, "w4")).settled_ms for _ in range(counts.aging)]
    edge = min(50, len(settled) // 2)
    first, last = statistics.median(settled[:edge]), statistics.median(settled[-edge:])
    result: Result = {
        "n": counts.aging,
        "first50": first,
        "last50": last,
        "last_over_first": last / first,
        "max_ms": max(settled),
        "total_s": sum(settled) / 1e3,
        "cpu_ms_per_sub": meter.cpu_ms_per(counts.aging),
        "rss_mb": meter.rss_mb(),
        **await side.rows("w4"),
    }
    side.stage.kill_worker()
    await side.start_worker()
    result["cold_ms"] = (await hello(side, "w4")).settled_ms
    result["warm_ms"] = statistics.median([(await hello(side, "w4")).settled_ms for _ in range(edge)])
    return result


async def w5(side: Side, counts: Counts, folder: Path) -> Result:
    """kill -9 of the worker in the middle of turn 11, both of its tools under way, and a new worker at once."""
    del counts
    traces = folder / "effects.txt"
    doomed = {f"c{CRASH_TURN - 1}-{index}" for index in range(CALLS_PER_TURN)}
    await side.begin("w5")
    # Workers run in `folder`; a bare name has no space in it, wherever the checkout is.
    async with asyncio.timeout(CRASH_BOUND_S), asyncio.TaskGroup() as group:
        job = group.create_task(side.exchange("w5", f"crash {LOOP_TURNS} {traces.name}"))
        while not doomed <= {effect.call for effect in effects(traces)}:
            if job.done():
                raise RuntimeError(f"settled before the crash: {job.result().text!r:.400}")
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.05)  # effects done, neither tool finished
        side.stage.kill_worker()
        before = effects(traces)
        restarted = time.time()
        await side.start_worker()
        booted_s = time.time() - restarted
        operator = group.create_task(side.operate("w5", restarted, CALLS_PER_TURN))
        # Settled without anything for an operator to do: then there is nothing to wait for either.
        await asyncio.wait({operator, job}, return_when=asyncio.FIRST_COMPLETED)
        _answered(side, await job)
        settled_s = time.time() - restarted
        if not operator.done():
            operator.cancel()
    done = effects(traces)
    old_pids = {effect.pid for effect in before}
    resumed = [effect.at for effect in done if effect.pid not in old_pids]
    ids = [effect.call for effect in done]
    repeated = sorted({call for call in ids if ids.count(call) > 1})
    return {
        "effects_at_kill": len(before),
        "boot_s": booted_s,
        **({} if operator.cancelled() else operator.result()),
        "resume_s": min(resumed) - restarted if resumed else None,
        "settled_s": settled_s,
        "effects": len(ids),
        "twice": len(ids) - len(set(ids)),
        "repeated": repeated,
    }


MEASURES: dict[str, Callable[[Side, Counts, Path], Awaitable[Result]]] = {
    "w1": w1,
    "w1_paced": w1_paced,
    "w1_signal": w1_signal,
    "w2": w2,
    "w3": w3,
    "w4": w4,
    "w5": w5,
}


async def measure(name: str, side: Side, counts: Counts, folder: Path) -> Result:
    """Warm up (not before a crash) and measure; numbers are rounded to a microsecond."""
    if name != "w5":
        await side.begin("warm")
        for _ in range(counts.warm):
            await hello(side, "warm")
    result = await MEASURES[name](side, counts, folder)
    return {key: round(value, 3) if isinstance(value, float) else value for key, value in result.items()}
