"""A store that fails, or is overtaken, at one operation."""

from collections.abc import Callable
from typing import Any


class Proxied:
    """Every operation of `store`, except that the named ones are what a test says."""

    def __init__(self, store: Any, **changed: Callable[..., Any]) -> None:
        self._store = store
        self._changed = changed
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.calls.append(name)
        return self._changed.get(name) or getattr(self._store, name)


def raising(error: BaseException) -> Callable[..., Any]:
    """An operation that raises."""

    def raise_it(*_args: Any, **_kwargs: Any) -> Any:
        raise error

    return raise_it
