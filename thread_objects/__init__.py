"""Thread Objects: durable conversations with AI agents on Temporal.

Bind pydantic-ai agents, start workers, send input from anywhere. Every accepted input gets a Receipt and is owed
exactly one Settlement; a tool that may have run and left no result becomes an Unknown Outcome, never run again.

Names are loaded when they are first used, so that importing a part costs that part only.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thread_objects.admission import AdmissionQuestion, AdmissionRules
    from thread_objects.agents import (
        AgentBinding,
        Registry,
        RunPolicy,
        ToolPolicy,
        bind,
        current_call,
        schedule_lane,
        schedule_lane_sync,
    )
    from thread_objects.alarms import AlarmHandler, DueAlarm
    from thread_objects.authorising import Authoriser, OperationRequest
    from thread_objects.client import ThreadClient
    from thread_objects.contract.alarms import NamedAlarm
    from thread_objects.contract.archive import ArchiveReport
    from thread_objects.contract.messages import (
        AdmissionFacts,
        LogRecord,
        PendingReceipt,
        Receipt,
        Settlement,
        SubmissionStatus,
    )
    from thread_objects.contract.operations import (
        BlockedOn,
        Explanation,
        Obligation,
        ObligationsPage,
        Operation,
        RetryAnswer,
        Severity,
        ThreadExplanation,
    )
    from thread_objects.contract.recovery_events import RecoveryEvent
    from thread_objects.contract.reports import ObjectReport, Verification
    from thread_objects.contract.states import Decision, LanePhase, Outcome, ResolutionKind, SubmissionState, ToolClass
    from thread_objects.database import ThreadDatabase
    from thread_objects.errors import AdmissionPolicyError, ThreadError
    from thread_objects.extensions import Extensions, Lane, WaveContext, WaveInterrupted
    from thread_objects.settings import Settings

_HOME = {
    "AdmissionFacts": "contract.messages",
    "AdmissionPolicyError": "errors",
    "AdmissionQuestion": "admission",
    "AdmissionRules": "admission",
    "AgentBinding": "agents",
    "AlarmHandler": "alarms",
    "ArchiveReport": "contract.archive",
    "Authoriser": "authorising",
    "BlockedOn": "contract.operations",
    "Decision": "contract.states",
    "DueAlarm": "alarms",
    "Explanation": "contract.operations",
    "Extensions": "extensions",
    "Lane": "extensions",
    "LanePhase": "contract.states",
    "LogRecord": "contract.messages",
    "NamedAlarm": "contract.alarms",
    "ObjectReport": "contract.reports",
    "Obligation": "contract.operations",
    "ObligationsPage": "contract.operations",
    "Operation": "contract.operations",
    "OperationRequest": "authorising",
    "Outcome": "contract.states",
    "PendingReceipt": "contract.messages",
    "Receipt": "contract.messages",
    "RecoveryEvent": "contract.recovery_events",
    "Registry": "agents",
    "ResolutionKind": "contract.states",
    "RetryAnswer": "contract.operations",
    "RunPolicy": "agents",
    "Settings": "settings",
    "Settlement": "contract.messages",
    "Severity": "contract.operations",
    "SubmissionState": "contract.states",
    "SubmissionStatus": "contract.messages",
    "ThreadClient": "client",
    "ThreadDatabase": "database",
    "ThreadError": "errors",
    "ThreadExplanation": "contract.operations",
    "ToolClass": "contract.states",
    "ToolPolicy": "agents",
    "Verification": "contract.reports",
    "WaveContext": "extensions",
    "WaveInterrupted": "extensions",
    "bind": "agents",
    "current_call": "agents",
    "schedule_lane": "agents",
    "schedule_lane_sync": "agents",
}

__all__ = [
    "AdmissionFacts",
    "AdmissionPolicyError",
    "AdmissionQuestion",
    "AdmissionRules",
    "AgentBinding",
    "AlarmHandler",
    "ArchiveReport",
    "Authoriser",
    "BlockedOn",
    "Decision",
    "DueAlarm",
    "Explanation",
    "Extensions",
    "Lane",
    "LanePhase",
    "LogRecord",
    "NamedAlarm",
    "ObjectReport",
    "Obligation",
    "ObligationsPage",
    "Operation",
    "OperationRequest",
    "Outcome",
    "PendingReceipt",
    "Receipt",
    "RecoveryEvent",
    "Registry",
    "ResolutionKind",
    "RetryAnswer",
    "RunPolicy",
    "Settings",
    "Settlement",
    "Severity",
    "SubmissionState",
    "SubmissionStatus",
    "ThreadClient",
    "ThreadDatabase",
    "ThreadError",
    "ThreadExplanation",
    "ToolClass",
    "ToolPolicy",
    "Verification",
    "WaveContext",
    "WaveInterrupted",
    "bind",
    "current_call",
    "schedule_lane",
    "schedule_lane_sync",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
