"""Offsets: opaque, and refused when nobody handed them out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thread_objects.core.offsets import offset_of, sequence_of


@given(st.integers(0, 2**63 - 1))
def test_offset_leads_back_to_its_sequence(sequence: int):
    """What a log hands out it understands (LOG-011)."""
    assert sequence_of(offset_of(sequence)) == sequence


@pytest.mark.parametrize("made_up", ["", "5", "o1.", "o1.-5", "o1.+5", "o1.5 ", "o1.5_0", "o2.5", "o1.0x5", "o1.G"])
def test_made_up_offset_is_refused(made_up: str):
    """A client cannot write one itself."""
    with pytest.raises(ValueError, match="not an offset"):
        sequence_of(made_up)
