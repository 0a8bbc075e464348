"""How an input becomes a user prompt.

A text is the prompt. A list of texts and pydantic-ai's own file items (`{"kind": "image-url", ...}`) is a prompt of
several parts. Any other JSON value is its text.
"""

from collections.abc import Callable, Sequence

from pydantic import JsonValue, TypeAdapter, ValidationError
from pydantic_ai.messages import UserContent
from pydantic_core import to_json

Prompt = str | Sequence[UserContent]
InputAdapter = Callable[[JsonValue], Prompt]
"""Makes the user prompt of an input. Raising means that this deploy cannot read it: the work stays owed."""

_PARTS: TypeAdapter[list[UserContent]] = TypeAdapter(list[UserContent])


def default_prompt(value: JsonValue) -> Prompt:
    """The prompt of an input, where the binding has no adapter of its own."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(_is_part(item) for item in value):
        try:
            return _PARTS.validate_json(to_json(value))
        except ValidationError:
            pass  # it only looks like parts
    return to_json(value).decode()


def _is_part(item: JsonValue) -> bool:
    return isinstance(item, str) or (isinstance(item, dict) and isinstance(item.get("kind"), str))
