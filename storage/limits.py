"""Configured limits of admission. Out of bounds means a `ConfigError` before anything is opened."""

from dataclasses import dataclass

from thread_objects.contract import limits
from thread_objects.errors import ConfigError


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """What one database admits. Checked in the order input bytes, queue depth, storage size; replays are exempt."""

    queue_depth: int = limits.QUEUE_DEPTH_DEFAULT
    """Nonterminal Submissions per Thread, 1..100 000. Refused when the count has reached it."""
    input_bytes: int = limits.STORED_VALUE_BYTES_MAX
    """Canonical UTF-8 bytes of one input, 1..2 000 000."""
    database_bytes: int = limits.DATABASE_BYTES_DEFAULT
    """Size of the whole database, 1..10 000 000 000. Refused when it is larger."""

    def __post_init__(self) -> None:
        for setting, maximum in (
            ("queue_depth", limits.QUEUE_DEPTH_MAX),
            ("input_bytes", limits.STORED_VALUE_BYTES_MAX),
            ("database_bytes", limits.DATABASE_BYTES_MAX),
        ):
            value = getattr(self, setting)
            if type(value) is not int or not 1 <= value <= maximum:
                raise ConfigError(setting=setting, reason=f"must be an integer in 1..{maximum}, is {value!r}")
