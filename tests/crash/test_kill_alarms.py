"""kill -9 around the delivery of an alarm: it is delivered again, under the same key, and listed until it was."""

import asyncio
from datetime import UTC, datetime

import pytest

from tests.alarmed import ASYNC, script
from tests.crash.conftest import Stage
from tests.deployment import until


@pytest.mark.parametrize(("failpoint", "delivered"), [("alarm:before", ["a/2"]), ("alarm:after", ["a/1", "a/2"])])
async def test_kill_around_a_delivery_delivers_again(stage: Stage, failpoint: str, delivered: list[str]) -> None:
    """At least once: the end of a worker between the handler and its answer repeats the handler."""
    stage.worker.environment["THREADS_EXTENSIONS"] = "tests.alarmed:extensions"
    stage.worker.start(THREADS_FAILPOINT=failpoint)
    at = datetime(2020, 1, 1, tzinfo=UTC)
    await stage.client.set_alarm(stage.thread, ASYNC, "a", run_at=at, payload=script(stage.ledger))
    await asyncio.to_thread(stage.worker.died)
    await asyncio.to_thread(stage.worker.start)

    async def gone() -> bool:
        return not await stage.client.alarms(stage.thread)

    await until(gone, timeout_s=30)
    assert [name.rpartition("/")[0] for name in stage.effects()] == delivered
    assert len({name.rpartition("/")[2] for name in stage.effects()}) == 1
