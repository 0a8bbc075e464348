"""The one seam between the public face and the deployment.

`workflows`, `activities`, `storage` and `worker` stand beside `thread_objects` in a checkout, and inside it as
`thread_objects._deploy.*` in the wheel. Nothing else in this package knows where they are.
"""

import importlib
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

_ROOT = Path(__file__).resolve().parent.parent


@cache
def in_checkout() -> bool:
    """True when the deployment's folders stand beside this package."""
    return (_ROOT / "worker.py").is_file() and (_ROOT / "workflows" / "thread_object.py").is_file()


@cache
def load(name: str) -> ModuleType:
    """Import one of `workflows`, `activities`, `storage`, `worker` from wherever it is installed."""
    if not in_checkout():
        return importlib.import_module(f"thread_objects._deploy.{name}")
    if str(_ROOT) not in sys.path:
        sys.path.insert(0, str(_ROOT))
    return importlib.import_module(name)
