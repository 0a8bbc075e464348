"""One translator both ways: every class of the tree crosses the wire and arrives as itself."""

from typing import Any, get_type_hints

import pytest
from temporalio.exceptions import ActivityError, ApplicationError

from thread_objects import errors
from thread_objects.contract.activities import Refusal
from thread_objects.errors import ThreadError, error_classes, from_failure, from_refusal, to_application_error

EXAMPLES: dict[str, Any] = {"int": 7, "str": "seven"}


def example(cls: type[ThreadError]) -> ThreadError:
    """An instance with every field set."""
    hints = get_type_hints(cls)
    fields = {name: 7 if "int" in str(hints[name]) else "seven" for name in cls.field_names()}
    return cls(**fields)


@pytest.mark.parametrize("cls", sorted(error_classes().values(), key=lambda cls: cls.code), ids=lambda cls: cls.code)
def test_every_error_round_trips(cls: type[ThreadError]) -> None:
    """Class, message, fields and retryability survive."""
    error = example(cls)
    failure = to_application_error(error)
    assert (failure.type, failure.non_retryable) == (cls.code, not cls.retryable)
    arrived = from_failure(failure)
    assert type(arrived) is cls
    assert (arrived.fields, arrived.message, arrived.retryable) == (error.fields, error.message, error.retryable)
    for name in cls.field_names():
        assert getattr(arrived, name) == getattr(error, name)


def test_codes_are_unique_and_stable() -> None:
    """A code is its class's name and belongs to one class only."""
    classes = [cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, ThreadError)]
    assert {cls.code for cls in classes} == {cls.__name__ for cls in classes} == set(error_classes())


def test_an_unknown_code_keeps_its_code() -> None:
    """A newer worker may refuse with what this client does not know."""
    arrived = from_refusal(Refusal(code="FromTheFuture", message="no", fields={"x": 1}, retryable=True))
    assert type(arrived) is ThreadError
    assert (arrived.code, arrived.fields) == ("FromTheFuture", {"x": 1})
    assert ThreadError.code == "ThreadError"


def test_a_typed_error_is_found_under_any_wrapping() -> None:
    """Temporal wraps an activity's failure; what was raised is what arrives."""
    inner = to_application_error(errors.Busy(reason="later"))
    outer = ActivityError(
        "failed",
        scheduled_event_id=1,
        started_event_id=2,
        identity="w",
        activity_type="a",
        activity_id="1",
        retry_state=None,
    )
    outer.__cause__ = inner
    found = from_failure(outer)
    assert isinstance(found, errors.Busy)
    assert found.reason == "later"
    assert from_failure(ApplicationError("plain")) is None
    assert from_failure(ApplicationError("odd", {"no": "refusal"})) is None


def test_a_missing_field_is_said_at_once() -> None:
    """A refusal without its facts is a defect where it is raised."""
    with pytest.raises(TypeError, match="submission_id"):
        errors.OwnershipLost(actual_epoch=3)
