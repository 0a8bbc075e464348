"""Binding waits: a head whose agent has no current binding is reported once and waits for the registry.

It keeps no ownership and no timer. Its abort, and the object's other work, go on.
"""

from __future__ import annotations

from thread_objects.contract.activities import AttemptAnswer
from thread_objects.core.event_state import EventState
from thread_objects.core.record import BindingWait


def keep_wait(event: EventState, answer: AttemptAnswer, now: int) -> BindingWait | None:
    """Store or clear the wait that an Attempt's end asks for. Answers a wait that is to be reported now."""
    record, head = event.state.record, answer.view.head
    held = record.wait_of(answer.view.thread_id)
    wait: BindingWait | None = None
    known = False
    if answer.ended == "unbound":
        if answer.registry.key and answer.registry.key != record.registry_key:
            # An older deployment's registry says nothing about the one that counts: the head is tried again.
            return None
        submission_id = answer.submission_id or ("" if head is None else head.submission_id)
        known = held is not None and held.submission_id == submission_id
        wait = BindingWait(
            answer.view.thread_id,
            submission_id,
            held.reported_at if held is not None and known else now,
            answer.agent_id or "",
            0 if head is None else head.queue_sequence,
        )
    elif held is None or held.submission_id != answer.submission_id or answer.ended == "faulted":
        return None
    with event.state.transaction() as tx:
        tx.record = tx.record.with_wait(answer.view.thread_id, wait)
    event.steps.append("binding-retry:after")
    return None if known else wait
