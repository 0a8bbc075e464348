"""Alarm handlers of the tests. The payload is the script: a file that every delivery leaves a line in, and what it does.

`fail`: how many deliveries raise before one ends well; `hold`: seconds that a delivery takes.
"""

import asyncio
import time
from pathlib import Path
from typing import Any

from tests.scripted import effect
from thread_objects.alarms import DueAlarm
from thread_objects.extensions import Extensions

SYNC, ASYNC = "sync", "async"


def _note(alarm: DueAlarm) -> dict[str, Any]:
    script = alarm.payload
    assert isinstance(script, dict)
    effect(str(script["ledger"]), f"{alarm.alarm_id}/{alarm.attempt}/{alarm.dedupe_key}")
    if alarm.attempt <= script.get("fail", 0):
        raise LookupError("secret text that no history may hold")
    return script


def plain(alarm: DueAlarm) -> None:
    """A plain function, on a thread of its own."""
    time.sleep(_note(alarm).get("hold", 0))


async def hurried(alarm: DueAlarm) -> None:
    """An asynchronous one."""
    script = _note(alarm)
    if "hold" in script:
        await asyncio.sleep(script["hold"])
        effect(str(script["ledger"]), f"{alarm.alarm_id}/end")


def script(ledger: Path, **more: Any) -> dict[str, Any]:
    """A payload."""
    return {"ledger": str(ledger), **more}


extensions = Extensions(alarms={SYNC: plain, ASYNC: hurried})
