"""How many rows a worker without memory reads to take up a Thread."""

from collections.abc import Callable
from typing import Any

from activities.transcripts import Transcripts
from storage import StoreLimits, open_store
from storage.sqlite import SqliteTransaction


def rows_to_take_up(database_url: str, thread: str) -> tuple[int, int]:
    """The rows read, and the records that the Thread has."""
    store = open_store(database_url, limits=StoreLimits())
    read = 0

    def counted(method: Callable[..., Any], count: Callable[[Any], int]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            nonlocal read
            found = method(*args)
            read += count(found)
            return found

        return run

    originals = SqliteTransaction.all, SqliteTransaction.one
    try:
        records = store.tail(thread).sequence
        SqliteTransaction.all = counted(originals[0], len)  # type: ignore[method-assign]
        SqliteTransaction.one = counted(originals[1], lambda row: int(row is not None))  # type: ignore[method-assign]
        transcript = Transcripts().read(store, thread, tail=records)
    finally:
        SqliteTransaction.all, SqliteTransaction.one = originals  # type: ignore[method-assign]
        store.close()
    if transcript.through != records:
        raise RuntimeError(f"taken up to {transcript.through} of {records}")
    return read, records
