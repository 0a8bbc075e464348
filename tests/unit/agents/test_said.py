"""What is said of failures, and what an input says to a model."""

from typing import Any

import pytest
from pydantic_ai.exceptions import FallbackExceptionGroup, ModelHTTPError, ModelRateLimitError
from pydantic_ai.messages import ImageUrl

from thread_objects.agents.failures import asked_delay_ms, diagnose, may_pass
from thread_objects.agents.prompts import default_prompt
from thread_objects.contract import limits
from thread_objects.errors import AgentApprovalDenied, AgentPolicyError, StoreUnavailable

SECRET = "sk-secret"


def http(status: int, **headers: str) -> ModelHTTPError:
    """A provider's refusal."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return ModelHTTPError(status, "m", {"error": SECRET}, headers=given, provider_error_code="overloaded")


@pytest.mark.parametrize(
    ("error", "tag", "message"),
    [
        (ValueError("no"), "ValueError", "no"),
        (KeyError(), "KeyError", "KeyError"),
        (http(503), "ModelHTTPError", "model 'm' answered with status 503, code overloaded"),
        (
            FallbackExceptionGroup("all failed", [http(500), ValueError("x")]),
            "FallbackExceptionGroup",
            "ModelHTTPError: model 'm' answered with status 500, code overloaded; ValueError: x",
        ),
        (
            AgentPolicyError(policy_limit="turns", maximum=3),
            "AgentPolicyError",
            "run policy exhausted (policy_limit=turns, maximum=3)",
        ),
    ],
)
def test_a_diagnostic_is_a_tag_and_a_message(error: Exception, tag: str, message: str):
    """Class name and words; never the provider's payload."""
    said = diagnose(error)
    assert (said.error_tag, said.message) == (tag, message)
    assert SECRET not in said.message


def test_a_diagnostic_is_bounded():
    """However much an exception has to say."""
    said = diagnose(ValueError("x" * 100_000))
    assert len(said.message) == limits.DIAGNOSTIC_MESSAGE_CHARS_MAX
    denied = AgentApprovalDenied(tool_call_id="c", tool_name="t", resolver="r", reason="x" * 100_000)
    assert len(diagnose(denied).message) <= limits.DIAGNOSTIC_MESSAGE_CHARS_MAX


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (http(500), True),
        (http(529), True),
        (http(429), True),
        (http(409), True),
        (http(400), False),
        (http(422), False),
        (http(400, x_should_retry="true"), True),
        (http(503, x_should_retry="false"), False),
        (FallbackExceptionGroup("x", [http(400), http(503)]), True),
        (FallbackExceptionGroup("x", [http(400), ValueError()]), False),
        (StoreUnavailable(reason="away"), False),
        (TimeoutError(), False),
    ],
)
def test_which_failures_may_pass(error: Exception, passes: bool):
    """F14: by the provider's category and hint; nothing else is asked again."""
    assert may_pass(error) is passes


@pytest.mark.parametrize(
    ("error", "delay"),
    [
        (http(429, retry_after="2"), 2_000),
        (http(429, retry_after_ms="1500"), 1_500),
        (http(429), None),
        (ModelRateLimitError("m", "slow down", retry_after=0.5), 500),
        (FallbackExceptionGroup("x", [http(429, retry_after="2"), http(429, retry_after="3")]), 3_000),
        (ValueError(), None),
    ],
)
def test_how_long_a_provider_asks_to_be_left_alone(error: Exception, delay: int | None):
    """Milliseconds, from whichever header says it; of several the longest."""
    assert asked_delay_ms(error) == delay


@pytest.mark.parametrize(
    ("value", "prompt"),
    [
        ("hello", "hello"),
        ("", ""),
        ({"order": 7}, '{"order":7}'),
        ([1, 2], "[1,2]"),
        ([], "[]"),
        (None, "null"),
        (["a", "b"], ["a", "b"]),
        (["a", {"kind": "no-such-kind"}], '["a",{"kind":"no-such-kind"}]'),
    ],
)
def test_an_input_says_what_it_says(value: Any, prompt: Any):
    """A text is the prompt, parts are parts, other JSON is its text."""
    assert default_prompt(value) == prompt


def test_file_items_of_an_input_are_read():
    """pydantic-ai's own JSON of its parts."""
    text, picture = default_prompt(["see", {"kind": "image-url", "url": "https://example.com/a.png"}])
    assert text == "see"
    assert isinstance(picture, ImageUrl)
