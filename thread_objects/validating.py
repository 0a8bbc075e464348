"""Builds messages from what a caller gave, or says in one typed error what is wrong with it."""

from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from thread_objects.errors import InvalidInput

M = TypeVar("M")


def valid(kind: type[M], **fields: Any) -> M:
    """The message. Raises `InvalidInput`."""
    try:
        return TypeAdapter(kind).validate_python(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidInput(what=f"{where}: {first['msg']}" if where else first["msg"]) from None
