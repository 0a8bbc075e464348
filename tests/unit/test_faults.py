"""When a Thread that cannot be recovered is looked at again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thread_objects.contract.limits import FAULT_ATTEMPTS_MAX, FAULT_RETRY_CAP_MS
from thread_objects.core.faults import RecoveryFailure, next_fault

FAILURE = RecoveryFailure("recovery", "failure", "StoreUnavailable", "claim", ("ForeignError",))


def after(attempts: int, *, first: int = 1_000):
    return next_fault(None, "t", FAILURE, first).model_copy(update={"attempts": attempts, "retry_at": 1})


def test_the_first_failure_is_retried_after_five_seconds():
    """SWP-010."""
    fault = next_fault(None, "t", FAILURE, 1_000)
    assert (fault.attempts, fault.first_failed_at, fault.last_failed_at, fault.retry_at) == (1, 1_000, 1_000, 6_000)


@pytest.mark.parametrize(
    ("case", "previous", "now", "attempts", "retry_at"),
    [
        ("SWP-011", 1, 6_000, 2, 16_000),
        ("SWP-012", 3, 100_000, 4, 140_000),
        ("SWP-014", 50, 0, 51, 60_000),
        ("SWP-015", FAULT_ATTEMPTS_MAX, 0, FAULT_ATTEMPTS_MAX, 60_000),
    ],
)
def test_later_failures_back_off_and_keep_the_first_instant(case, previous, now, attempts, retry_at):
    """SWP-011, SWP-012, SWP-014, SWP-015."""
    fault = next_fault(after(previous), "t", FAILURE, now)
    assert (fault.attempts, fault.retry_at, fault.first_failed_at, fault.last_failed_at) == (
        attempts,
        retry_at,
        1_000,
        now,
    ), case


def test_delays_double_up_to_a_minute():
    """5, 10, 20, 40, 60, 60 seconds."""
    fault, delays = None, []
    for _ in range(6):
        fault = next_fault(fault, "t", FAILURE, 0)
        delays.append(fault.retry_at)
    assert delays == [5_000, 10_000, 20_000, 40_000, 60_000, 60_000]


def test_the_newest_failure_is_the_one_that_is_told():
    """Nothing of the old failure but its first instant and its count is kept."""
    corrupt = RecoveryFailure("history", "failure", "CorruptRecord", "read history", (), False, "ToolCallSettled", 4)
    fault = next_fault(after(1), "t", corrupt, 9)
    assert (fault.error_tag, fault.phase, fault.decoder, fault.sequence) == (
        "CorruptRecord",
        "history",
        "ToolCallSettled",
        4,
    )


def test_a_stored_fault_of_another_thread_is_refused():
    """SWP-027."""
    with pytest.raises(ValueError, match="another thread"):
        next_fault(after(1), "other", FAILURE, 0)


@given(st.integers(1, FAULT_ATTEMPTS_MAX), st.integers(0, 2**42))
def test_the_wait_is_never_longer_than_a_minute_nor_shorter_than_five_seconds(attempts, now):
    """Whatever the count, the Thread is looked at within a minute."""
    wait = next_fault(after(attempts), "t", FAILURE, now).retry_at - now
    assert 5_000 <= wait <= FAULT_RETRY_CAP_MS
