"""Agents: bind pydantic-ai agents, say how their tools may be treated, and list them for a worker."""

from thread_objects.agents.bind import PydanticAgentBinding, bind
from thread_objects.agents.binding import AgentBinding, Journal, RunRequest
from thread_objects.agents.call import ToolCall, current_call
from thread_objects.agents.policy import (
    ApprovalAnswer,
    ApprovalPolicy,
    ApprovalQuestion,
    RunPolicy,
    ToolPolicy,
)
from thread_objects.agents.registry import Registry, load_registry
from thread_objects.agents.scheduling import schedule_lane, schedule_lane_sync
from thread_objects.core.recovery import (
    CompletedWithResult,
    LostCall,
    NeverStarted,
    Reconciled,
    SafeToRetry,
    Uncertain,
)
from thread_objects.ports import Reconciler

__all__ = [
    "AgentBinding",
    "ApprovalAnswer",
    "ApprovalPolicy",
    "ApprovalQuestion",
    "CompletedWithResult",
    "Journal",
    "LostCall",
    "NeverStarted",
    "PydanticAgentBinding",
    "Reconciled",
    "Reconciler",
    "Registry",
    "RunPolicy",
    "RunRequest",
    "SafeToRetry",
    "ToolCall",
    "ToolPolicy",
    "Uncertain",
    "bind",
    "current_call",
    "load_registry",
    "schedule_lane",
    "schedule_lane_sync",
]
