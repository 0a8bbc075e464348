"""Delays: alarm backoff, its minimum, and the floors of charges."""

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thread_objects.core.backoff import backoff, charge_floor, minimum_delay


@pytest.mark.parametrize(
    ("stalls", "delays"),
    [
        (0, (50, 75, 88)),
        (1, (100, 150, 175)),
        (3, (400, 600, 700)),
        (5, (1_600, 2_400, 2_800)),
        (6, (2_500, 3_750, 4_375)),
        (7, (2_500, 3_750, 4_375)),
        (30, (2_500, 3_750, 4_375)),
        (10_000, (2_500, 3_750, 4_375)),
    ],
)
def test_backoff_doubles_to_the_cap_and_jitters_in_its_upper_half(stalls, delays):
    """The worked table for base 100, cap 5 000 and j = 0, 0.5, 0.75."""
    assert tuple(backoff(stalls, j, base=100, cap=5_000) for j in (0, 0.5, 0.75)) == delays


@given(
    stalls=st.integers(0, 60),
    j=st.floats(0, 1, exclude_max=True),
    base=st.integers(1, 60_000),
    cap=st.integers(60_000, 3_600_000),
)
def test_backoff_stays_inside_half_and_whole_of_its_bound(stalls, j, base, cap):
    """ceil(b/2 + b/2 · j), inside [b/2, b], exact but for the last of a million jitter parts."""
    bound = min(cap, base * 2 ** min(stalls, 30))
    delay = backoff(stalls, j, base=base, cap=cap)
    assert Fraction(bound, 2) <= delay <= bound
    exact = Fraction(bound, 2) * (1 + Fraction(j))
    assert exact - Fraction(bound, 1_000_000) <= delay <= ceil(exact)


@pytest.mark.parametrize(("base", "delay"), [(1, 1), (2, 1), (3, 2), (100, 50), (101, 51)])
def test_minimum_delay_is_half_the_base_and_never_zero(base, delay):
    """M = max(1, ceil(base / 2)); base 1 gives 1 ms (ALM-012)."""
    assert minimum_delay(base) == delay


def test_charge_floors_double_to_a_minute_then_park_for_an_hour():
    """1 000 · 2^s capped at 60 000; the eighth charge and later ones wait 3 600 000."""
    floors = [charge_floor(stalls) for stalls in range(9)]
    assert floors == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 3_600_000, 3_600_000]
