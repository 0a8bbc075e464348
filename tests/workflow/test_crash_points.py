"""Every crash point of maintenance is passed by somebody: one that is not guards nothing."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.deployment import connected, running_worker, until
from tests.scripted import AGENT
from thread_objects import failpoints
from thread_objects.core import binding, event, native_step
from thread_objects.extensions import Extensions, Lane, WaveContext
from thread_objects.settings import Settings
from workflows import crash_points, passes, pump, thread_object

SOURCES = (binding, event, native_step, passes, pump, thread_object)


def test_every_declared_location_is_in_the_code_and_no_other():
    """The table is the code's."""
    named = {
        name
        for module in SOURCES
        for name in re.findall(r'"([a-z-]+:(?:after|armed|finished))"', _text(module.__file__))
    } - {"attempt:answered"}
    assert named == set(crash_points.LOCATIONS)


def _text(path: str | None) -> str:
    return Path(path or "").read_text()


async def test_every_location_is_passed(
    settings: Settings, thread_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ordinary input, one whose agent nobody binds, and a lane that fails; nothing is passed again by a replay."""
    log = tmp_path / "passed"
    monkeypatch.setattr(failpoints, "_log", str(log))

    async def broken(_context: WaveContext) -> None:
        raise OSError

    extensions = Extensions(lanes=[Lane("broken", broken)])
    async with running_worker(settings, extensions=extensions), connected(settings) as client:
        await client.wait(await client.submit(thread_id, AGENT, "say done", key="k"), timeout=20)
        await client.submit(thread_id, "nobody", "say never", key="n")
        await client.schedule(thread_id, "broken", 0)

        async def failed() -> Any:
            report = await client.report(thread_id)
            return report.lane_failures and report.binding_waits and not report.attempts

        await until(failed)

    def passed() -> set[str]:
        names = {line for line in log.read_text().splitlines() if line.startswith(crash_points.PREFIX)}
        return {name.removeprefix(crash_points.PREFIX) for name in names if "recovery-status" not in name}

    await until(lambda: passed() == set(crash_points.LOCATIONS))
    ensured = log.read_text().count("maintenance:ensure:after")
    assert ensured == 1
