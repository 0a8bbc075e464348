"""Workflow tasks without a walk through their payloads where nothing would be done to them.

For every workflow task the SDK visits each payload of it six times: for a codec and for an external storage, which
Thread Objects have neither of. That is a fifth of a busy worker's time. With neither, each visit hands back what it
was given, so the walk is left out; with either, the SDK's own functions run.
"""

from functools import wraps
from typing import Any

from temporalio.bridge import worker as bridge

_WALKS = ("decode_activation", "encode_completion")


def _without_idle_walks(walk: Any, metrics: Any) -> Any:
    @wraps(walk)
    async def walked(task: Any, data_converter: Any, *args: Any, **given: Any) -> Any:
        if data_converter.payload_codec is None and data_converter.external_storage is None:
            return metrics()
        return await walk(task, data_converter, *args, **given)

    walked.without_idle_walks = True  # type: ignore[attr-defined]
    return walked


def leave_out_idle_walks() -> bool:
    """Install it for this process; repeating is harmless. False where the SDK is not as expected: then nothing is."""
    storage = getattr(getattr(bridge, "temporalio", None), "converter", None)
    metrics = getattr(getattr(storage, "_extstore", None), "StorageOperationMetrics", None)
    walks = [getattr(bridge, name, None) for name in _WALKS]
    if metrics is None or None in walks:
        return False
    for name, walk in zip(_WALKS, walks, strict=True):
        if not hasattr(walk, "without_idle_walks"):
            setattr(bridge, name, _without_idle_walks(walk, metrics))
    return True
