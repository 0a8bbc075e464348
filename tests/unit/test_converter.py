"""The shared converter writes and reads exactly what pydantic's own does."""

from typing import Any

import pytest
from temporalio.contrib.pydantic import PydanticPayloadConverter

from thread_objects.contract.activities import AttemptRequest
from thread_objects.contract.object import ObjectStart
from thread_objects.converter import SharedPydanticConverter

VALUES: list[tuple[Any, type]] = [
    (ObjectStart(), ObjectStart),
    (
        AttemptRequest(object_id="o", thread_id="t", producer_id="p", attempt_id="a", yield_at=1, deadline_at=2),
        AttemptRequest,
    ),
    ({"deep": [1, 2.5, None, "é"]}, dict),
    (b"\x00\xff", bytes),
    (None, type(None)),
]


@pytest.mark.parametrize(("value", "kind"), VALUES, ids=lambda value: type(value).__name__)
def test_payloads_are_the_same_both_ways(value: Any, kind: type) -> None:
    """A client with pydantic's converter and a worker with this one understand each other."""
    ours, theirs = SharedPydanticConverter(), PydanticPayloadConverter()
    payload = ours.to_payloads([value])[0]
    assert payload == theirs.to_payloads([value])[0]
    assert ours.from_payloads([payload], [kind]) == theirs.from_payloads([payload], [kind]) == [value]
