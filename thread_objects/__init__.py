"""Thread Objects: durable conversations with AI agents on Temporal.

Bind pydantic-ai agents, start workers, send input from anywhere. Every accepted input gets a Receipt and is owed
exactly one Settlement; a tool that may have run and left no result becomes an Unknown Outcome, never run again.

Names are loaded when they are first used, so that importing a part costs that part only.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thread_objects.agents import (
        AgentBinding,
        Registry,
        RunPolicy,
        ToolPolicy,
        bind,
        current_call,
    )
    from thread_objects.client import ThreadClient
    from thread_objects.contract.messages import (
        LogRecord,
        PendingReceipt,
        Receipt,
        Settlement,
        SubmissionStatus,
    )
    from thread_objects.contract.reports import ObjectReport
    from thread_objects.contract.states import Decision, Outcome, ResolutionKind, SubmissionState, ToolClass
    from thread_objects.errors import ThreadError
    from thread_objects.settings import Settings

_HOME = {
    "AgentBinding": "agents",
    "Decision": "contract.states",
    "LogRecord": "contract.messages",
    "ObjectReport": "contract.reports",
    "Outcome": "contract.states",
    "PendingReceipt": "contract.messages",
    "Receipt": "contract.messages",
    "Registry": "agents",
    "ResolutionKind": "contract.states",
    "RunPolicy": "agents",
    "Settings": "settings",
    "Settlement": "contract.messages",
    "SubmissionState": "contract.states",
    "SubmissionStatus": "contract.messages",
    "ThreadClient": "client",
    "ThreadError": "errors",
    "ToolClass": "contract.states",
    "ToolPolicy": "agents",
    "bind": "agents",
    "current_call": "agents",
}

__all__ = [
    "AgentBinding",
    "Decision",
    "LogRecord",
    "ObjectReport",
    "Outcome",
    "PendingReceipt",
    "Receipt",
    "Registry",
    "ResolutionKind",
    "RunPolicy",
    "Settings",
    "Settlement",
    "SubmissionState",
    "SubmissionStatus",
    "ThreadClient",
    "ThreadError",
    "ToolClass",
    "ToolPolicy",
    "bind",
    "current_call",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
