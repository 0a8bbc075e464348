"""Objects named in settings as `package.module:name`."""

import importlib
from typing import Any

from thread_objects.errors import ConfigError


def imported(path: str, *, setting: str, what: str) -> Any:
    """The object at `package.module:name`, None where the module has none of that name.

    Raises `ConfigError` for a path of another form or a module that does not exist. Errors that the module itself
    raises pass through: they are its author's to read.
    """
    module_name, colon, attribute = path.partition(":")
    if not (module_name and colon and attribute):
        raise ConfigError(setting=setting, reason=f"{path!r} is not of the form package.module:{what}")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise
        raise ConfigError(setting=setting, reason=f"there is no module {error.name!r}") from None
    return getattr(module, attribute, None)
