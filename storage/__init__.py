"""Storage of Thread Objects: the ledger and the log, on SQLite or PostgreSQL."""

from .limits import StoreLimits
from .opening import open_reader, open_store

__all__ = ["StoreLimits", "open_reader", "open_store"]
