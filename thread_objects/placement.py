"""Placement: which Thread Object owns a Thread. The same for every client and worker of an installation.

Rule guarded: a placement only says where a *new* Thread goes. Storage remembers who owns a Thread; whoever asks another
object is told the right one (`ThreadPlacedElsewhere`), so that a changed placement moves nothing and loses nothing.
"""

from __future__ import annotations

import hashlib
import importlib
import re
from collections.abc import Callable

from thread_objects.contract import limits
from thread_objects.errors import ConfigError, InvalidInput

Place = Callable[[str], str]
"""The object id of a thread id. Pure, and total."""

NONE = "none"
HOSTS_MAX = 100_000
_HASH = re.compile(r"hash:([1-9][0-9]{0,5})")


class Placement:
    """The placement of a setting. `shared`: objects own several Threads."""

    def __init__(self, setting: str = NONE) -> None:
        self.shared = setting != NONE
        self._place = _place(setting)

    def object_id(self, thread_id: str) -> str:
        """Where a new Thread of this id goes. `InvalidInput` when a function of yours answers no id."""
        placed = self._place(thread_id)
        if not isinstance(placed, str) or not 1 <= len(placed) <= limits.ID_CHARS_MAX:
            raise InvalidInput(
                what=f"placement: {str(placed)[:64]!r} is no id of 1 to {limits.ID_CHARS_MAX} characters"
            )
        return placed


def _place(setting: str) -> Place:
    if setting == NONE:
        return lambda thread_id: thread_id
    hosts = _HASH.fullmatch(setting)
    if hosts is not None:
        number = int(hosts[1])
        if number > HOSTS_MAX:
            raise ConfigError(setting="placement", reason=f"{number} hosts, at most {HOSTS_MAX}")
        return lambda thread_id: f"host-{_bucket(thread_id, number)}-of-{number}"
    return _function(setting)


def _bucket(thread_id: str, number: int) -> int:
    # Not `hash`: that is another one in every process.
    return int.from_bytes(hashlib.sha256(thread_id.encode("utf-8", "surrogatepass")).digest()[:8]) % number


def _function(setting: str) -> Place:
    module_name, colon, attribute = setting.partition(":")
    if not (module_name and colon and attribute):
        reason = f"{setting!r} is none of none, hash:N and package.module:function"
        raise ConfigError(setting="placement", reason=reason)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise
        raise ConfigError(setting="placement", reason=f"there is no module {error.name!r}") from None
    found = getattr(module, attribute, None)
    if not callable(found):
        raise ConfigError(setting="placement", reason=f"{setting!r} is no function")
    place: Place = found
    return place
