"""What a failure tells, and what it never tells."""

import sqlite3

from activities.failure import CAUSES_MAX, recovery_failure
from activities.watch import RecoveryTimeout, Watch
from thread_objects.clock import SystemClock
from thread_objects.errors import CorruptRecord, OwnershipLost, StoreUnavailable


def told(error, operation="read abort intent"):
    watch = Watch(SystemClock())
    watch.repairing(operation)
    return recovery_failure(error, watch)


def raised(error, cause):
    try:
        raise error from cause
    except type(error) as found:
        return found


def test_a_typed_failure_tells_its_code_and_the_step():
    """Static names only."""
    found = told(OwnershipLost(submission_id="s", actual_epoch=4))
    assert (found.phase, found.reason, found.error_tag, found.operation) == (
        "recovery",
        "failure",
        "OwnershipLost",
        "read abort intent",
    )
    assert found.causes == ()


def test_a_foreign_cause_is_not_named():
    """A driver's error below a typed one stays a failure; its class is not told."""
    error = raised(
        StoreUnavailable(reason="locked"), raised(sqlite3.OperationalError("x"), CorruptRecord(thread_id="t"))
    )
    found = told(error)
    assert (found.reason, found.error_tag, found.causes) == (
        "failure",
        "StoreUnavailable",
        ("ForeignError", "CorruptRecord"),
    )


def test_a_failure_together_with_a_defect_is_a_defect():
    """SWP-008."""
    found = told(ExceptionGroup("both", [StoreUnavailable(reason="x"), ExceptionGroup("in", [KeyError("secret")])]))
    assert (found.reason, found.error_tag, found.causes) == ("defect", "Defect", ("StoreUnavailable", "ForeignError"))


def test_a_timeout_is_a_timeout():
    """SWP-007."""
    found = told(RecoveryTimeout())
    assert (found.reason, found.error_tag) == ("timeout", "RecoveryTimeout")
    assert told(ExceptionGroup("", [RecoveryTimeout(), StoreUnavailable(reason="x")])).reason == "timeout"


def test_causes_are_bounded_and_say_so():
    """At most sixteen."""
    found = told(ExceptionGroup("many", [StoreUnavailable(reason="x") for _ in range(CAUSES_MAX + 1)]))
    assert (len(found.causes), found.causes_truncated) == (CAUSES_MAX, True)
    assert not told(KeyError()).causes_truncated


def test_a_circle_of_causes_ends():
    """Python allows an error to be its own ancestor."""
    first, second = StoreUnavailable(reason="x"), KeyError()
    first.__cause__, second.__cause__ = second, first
    assert told(first).causes == ("ForeignError", "StoreUnavailable")


def test_an_unreadable_row_is_pointed_at():
    """Decoder and sequence, no content."""
    found = told(CorruptRecord(thread_id="t", sequence=9, decoder="ToolCallSettled"))
    assert (found.decoder, found.sequence) == ("ToolCallSettled", 9)


def test_names_are_cut_to_their_bounds():
    """Whatever an error calls itself."""

    class Talkative(StoreUnavailable):
        code = "x" * 500

    found = told(Talkative(reason="r"), operation="o" * 500)
    assert (len(found.error_tag), len(found.operation)) == (128, 256)
