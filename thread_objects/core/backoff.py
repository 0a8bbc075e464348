"""Delays of the maintenance core, all in milliseconds: alarm backoff, its minimum, and the floor of a charge.

Integers only: `j`, the jitter in [0, 1), is applied in parts per million, so that every platform rounds alike.
"""

from thread_objects.contract import limits

_JITTER_PARTS = 1_000_000


def backoff(
    stalls: int,
    j: float,
    *,
    base: int = limits.ALARM_BACKOFF_BASE_MS,
    cap: int = limits.ALARM_BACKOFF_CAP_MS,
) -> int:
    """A delay inside [b/2, b] for b = min(cap, base · 2^min(stalls, 30)), rounded up."""
    bound = min(cap, base << min(stalls, limits.RETRY_STALLS_MAX))
    parts = _JITTER_PARTS + int(j * _JITTER_PARTS)
    return -(-bound * parts // (2 * _JITTER_PARTS))


def minimum_delay(base: int) -> int:
    """The least time between arming the alarm and its deadline: `M` of the contract."""
    return max(1, (base + 1) // 2)


def charge_floor(stalls: int) -> int:
    """How long a charge keeps its row away, by the charges without progress before it."""
    if stalls + 1 >= limits.QUEUE_CHARGES_MAX:
        return limits.QUEUE_PARKED_RETRY_MS
    return min(limits.QUEUE_RETRY_CAP_MS, limits.QUEUE_RETRY_MIN_MS << stalls)
