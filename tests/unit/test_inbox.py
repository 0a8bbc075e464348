"""The inbox's bounds: what it holds when it is full still travels to the next run."""

import pytest

from thread_objects.contract import limits
from thread_objects.contract.messages import Abort, Submit
from thread_objects.contract.object import Carried, ObjectStart
from workflows.inbox import Inbox, carried_bytes

PAYLOAD_BYTES_MAX = 2_097_152
"""Temporal's own bound on what a run begins with."""


@pytest.mark.parametrize(
    "mutation",
    [
        Abort(thread_id="t", submission_id="s", author="a", reason=""),
        Submit(thread_id="t", agent_id="a", principal="p", key="k", input="x" * 60_000),
    ],
)
def test_a_full_inbox_travels(mutation: Abort | Submit) -> None:
    """With what frames each entry, and with room for alarms and all else: a run that cannot end would be stuck."""
    inbox = Inbox((), 1_000_000)
    while not inbox.saturated:
        inbox.add(mutation, carried_bytes(mutation, ()))
    start = ObjectStart(carried=Carried(inbox=inbox.carried())).model_dump_json(by_alias=True)
    assert len(start) + 2 * limits.ALARMS_BYTES_MAX <= PAYLOAD_BYTES_MAX
