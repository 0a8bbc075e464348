"""Composition root: settings -> client -> database -> activities -> Worker.

`python worker.py --agents package.module:registry` serves a task queue until SIGTERM or SIGINT, then drains: no new
work, running Attempts come to a Turn boundary or are handed back, and nothing is settled by the shutdown.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import os
import signal
import socket
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import structlog
from temporalio.client import Client
from temporalio.worker import Worker

from thread_objects import _runtime
from thread_objects.agents import load_registry
from thread_objects.authorising import ALLOWS_ALL, Authorisation, load_authoriser
from thread_objects.clock import SystemClock
from thread_objects.connection import connect
from thread_objects.contract import names
from thread_objects.contract.views import Registry as RegistryView
from thread_objects.errors import ConfigError, ThreadError
from thread_objects.extensions import Extensions, load_extensions
from thread_objects.objects import Objects
from thread_objects.placement import Placement
from thread_objects.ports import Store
from thread_objects.settings import Settings, load_settings

if TYPE_CHECKING:
    from thread_objects.agents import Registry
    from thread_objects.authorising import Authoriser

STICKY_TIMEOUT = timedelta(seconds=2)
"""How long a workflow task waits for the worker that has the object in memory: after kill -9 this is lost time."""
READY_LINE = "worker ready"

log = structlog.get_logger("worker")


def _deployed(module: str) -> Any:
    package, _, name = module.partition(".")
    root = _runtime.load(package)
    return __import__(f"{root.__name__}.{name}", fromlist=[name]) if name else root


def _parts() -> tuple[Any, ...]:
    return tuple(
        _deployed(name)
        for name in (
            "storage",
            "activities.alarms",
            "activities.attempt",
            "activities.courier",
            "activities.ledger",
            "activities.operating",
            "activities.recovery",
            "activities.sweep",
            "activities.waves",
            "workflows.payloads",
            "workflows.sandbox",
            "workflows.thread_inspect",
            "workflows.thread_object",
            "workflows.thread_read",
        )
    )


def _settle_memory() -> None:
    """What was imported stays for good: the collector need not walk it again under every Attempt.

    A tenth of a busy worker's time was spent on that with the interpreter's own thresholds.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


class WorkerProcess:
    """One worker process: opened by `start`, closed by `stop`, both bounded."""

    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        extensions: Extensions | None = None,
        *,
        authoriser: Authoriser | None = None,
    ) -> None:
        if settings.database_url is None:
            raise ConfigError(setting="database_url", reason="a worker needs a database")
        self._settings = settings
        self._registry = registry
        Placement(settings.placement)  # clients place; a worker only refuses a setting that nobody could use
        self._extensions = extensions or Extensions()
        if authoriser is None and settings.authoriser is not None:
            authoriser = load_authoriser(settings.authoriser)
        self._authorisation = Authorisation(authoriser)
        # Host and process id let the next worker on this machine see at once that this one is gone.
        self.ready = asyncio.Event()
        self.identity = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"

    async def run(self, stopping: asyncio.Event) -> None:
        """Serve until `stopping` is set."""
        (
            storage,
            alarms,
            attempt,
            courier,
            ledger,
            operating,
            recovery,
            sweep,
            waves,
            payloads,
            sandbox,
            thread_inspect,
            thread_object,
            thread_read,
        ) = _parts()
        payloads.leave_out_idle_walks()
        settings, clock = self._settings, SystemClock()
        temporal: Client = await connect(settings)
        store: Store = await asyncio.to_thread(
            storage.open_store,
            settings.database_url,
            limits=storage.StoreLimits(
                queue_depth=settings.queue_depth,
                input_bytes=settings.input_bytes,
                database_bytes=settings.database_bytes,
            ),
            rules=self._extensions.admission,
            synchronous=settings.sqlite_synchronous,
            pool_size=settings.database_pool,
        )
        key = self._registry.key
        deployment = await asyncio.to_thread(store.deployment_order, key, now=clock.now())
        view = RegistryView(key=key, deployment=deployment)
        installed = self._extensions.installed
        number = await asyncio.to_thread(store.deployment_order, installed.digest or "ext-none", now=clock.now())
        installed = installed.model_copy(update={"deployment": number})
        recovery_activities = recovery.RecoveryActivities(store, clock=clock, registry=self._registry, view=view)
        attempt_activities = attempt.AttemptActivities(
            store,
            clock=clock,
            registry=self._registry,
            view=view,
            recover=recovery_activities.recover_thread,
            head_starts=settings.head_starts,
            courier=courier.Courier(Objects(temporal, settings), asyncio.get_running_loop()),
        )
        ledger_activities = ledger.LedgerActivities(
            store,
            clock=clock,
            worker=self.identity,
            registry=view,
            head_starts=attempt_activities.head_starts,
            installed=installed,
            authorisation=self._authorisation,
        )
        operator_activities = operating.OperatorActivities(
            store, clock=clock, registry=self._registry, view=view, authorisation=self._authorisation
        )
        wave_activities = waves.WaveActivities(self._extensions, store, clock=clock, installed=installed)
        alarm_activities = alarms.AlarmActivities(self._extensions.alarms)
        sweeper = sweep.MarkSweep(
            store,
            temporal,
            settings=settings,
            clock=clock,
            worker=self.identity,
            registry=view,
            agents=sorted(binding.id for binding in self._registry),
        )
        room = settings.attempts + settings.waves + 16
        with ThreadPoolExecutor(max_workers=room, thread_name_prefix="activity") as threads:
            shared: dict[str, Any] = {
                "activity_executor": threads,
                "identity": self.identity,
                "max_heartbeat_throttle_interval": timedelta(milliseconds=500),
                "default_heartbeat_throttle_interval": timedelta(milliseconds=500),
                "graceful_shutdown_timeout": timedelta(seconds=settings.drain_s),
            }
            main = Worker(
                temporal,
                task_queue=settings.task_queue,
                workflows=[thread_object.ThreadObject, thread_read.ThreadRead, thread_inspect.ThreadInspect],
                activities=[
                    ledger_activities.apply_mutations,
                    ledger_activities.survey,
                    ledger_activities.clear_mark,
                    ledger_activities.read,
                    operator_activities.inspect,
                    operator_activities.verify,
                    operator_activities.retry,
                    recovery_activities.recover,
                    attempt_activities.attempt,
                    wave_activities.recovery_events,
                ],
                workflow_runner=sandbox.workflow_runner(),
                max_cached_workflows=settings.workflow_cache,
                max_concurrent_activities=settings.attempts,
                sticky_queue_schedule_to_start_timeout=STICKY_TIMEOUT,
                workflow_failure_exception_types=[],
                **shared,
            )
            async with contextlib.AsyncExitStack() as serving:
                if self._extensions.alarms or not self._extensions.empty:
                    # Before the objects: what the first of them asks for finds somebody.
                    queue = settings.task_queue + names.WAVES_QUEUE_SUFFIX
                    beside = Worker(
                        temporal,
                        task_queue=queue,
                        activities=[*wave_activities.listed(), alarm_activities.deliver_alarm],
                        max_concurrent_activities=settings.waves,
                        **shared,
                    )
                    await serving.enter_async_context(beside)
                await serving.enter_async_context(main)
                sweeping = asyncio.create_task(sweeper.run())
                _settle_memory()
                self.ready.set()
                if not self._authorisation.installed:
                    log.info(ALLOWS_ALL)
                log.info(READY_LINE, identity=self.identity, task_queue=settings.task_queue, agents=len(self._registry))
                await stopping.wait()
                log.info("worker draining", seconds=settings.drain_s)
                sweeping.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await sweeping
        await asyncio.to_thread(attempt_activities.head_starts.close)
        await asyncio.to_thread(store.worker_gone, self.identity)
        log.info("worker stopped")


async def serve(settings: Settings, registry: Registry, extensions: Extensions) -> None:
    """Serve until SIGTERM or SIGINT, then drain."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    await WorkerProcess(settings, registry, extensions).run(stopping)


def main(argv: list[str] | None = None) -> int:
    """Entry point; 0 after a drain, 2 for a bad setting, 7 when server or database is out of reach."""
    parser = argparse.ArgumentParser(prog="worker", description="Serve Thread Objects.")
    parser.add_argument("--agents", help="package.module:registry")
    parser.add_argument("--extensions", help="package.module:extensions")
    parser.add_argument("--database-url")
    parser.add_argument("--address", help="Temporal server, host:port")
    parser.add_argument("--namespace")
    parser.add_argument("--task-queue")
    given = parser.parse_args(argv)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.KeyValueRenderer(key_order=["timestamp", "level", "event"]),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    if "" not in sys.path:
        sys.path.insert(0, "")  # the user's agents live in the working directory
    try:
        settings = load_settings(**vars(given))
        if settings.agents is None:
            raise ConfigError(setting="agents", reason="say which registry to serve: package.module:registry")
        registry = load_registry(settings.agents)
        run(settings, registry, load_extensions(settings.extensions))
    except ThreadError as error:
        print(f"worker: {error}", file=sys.stderr)  # noqa: T201 - the one line an operator gets
        return 7 if error.retryable else 2
    return 0


def run(settings: Settings, registry: Registry, extensions: Extensions) -> None:
    """Serve on a fast event loop where one is installed."""
    try:
        import uvloop  # noqa: PLC0415 - optional
    except ImportError:
        asyncio.run(serve(settings, registry, extensions))
    else:
        uvloop.run(serve(settings, registry, extensions))


if __name__ == "__main__":
    sys.exit(main())
