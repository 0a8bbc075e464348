"""What can be known of an agent's tools without running it.

Rule guarded: an agent that could not be durable is refused when it is bound, never at run time.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic_ai import Tool
from pydantic_ai.toolsets import (
    AbstractToolset,
    ApprovalRequiredToolset,
    CombinedToolset,
    ExternalToolset,
    FunctionToolset,
    PrefixedToolset,
    RenamedToolset,
    WrapperToolset,
)

from thread_objects.core.canonical import RECORD
from thread_objects.core.digests import of_value


@dataclass(frozen=True, slots=True)
class KnownTool:
    """A tool as the agent declares it. `timeout_ms` is its own bound, if it has one."""

    name: str
    schema: str
    approval: bool = False
    timeout_ms: int | None = None


@dataclass(slots=True)
class Surveyed:
    """The tools of some toolsets. `open`: there may be more, known only at run time (MCP, dynamic toolsets)."""

    tools: dict[str, KnownTool] = field(default_factory=dict)
    duplicates: list[str] = field(default_factory=list)
    opaque: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    @property
    def open(self) -> bool:
        """Whether names outside `tools` may exist."""
        return bool(self.opaque)

    def add(self, tools: Iterable[KnownTool]) -> None:
        """Take in tools, noting names that are there already."""
        for tool in tools:
            if tool.name in self.tools:
                self.duplicates.append(tool.name)
            self.tools[tool.name] = tool


def survey(toolsets: Iterable[AbstractToolset[Any]]) -> Surveyed:
    """Survey the toolsets of an agent."""
    found = Surveyed()
    for toolset in toolsets:
        found.add(_walk(toolset, found))
    return found


def _walk(toolset: AbstractToolset[Any], found: Surveyed) -> list[KnownTool]:  # noqa: PLR0911 - one per kind
    match toolset:
        case FunctionToolset():
            return [_known(tool, toolset.timeout, found) for tool in toolset.tools.values()]
        case CombinedToolset():
            return [tool for inner in toolset.toolsets for tool in _walk(inner, found)]
        case PrefixedToolset():
            return [replace(t, name=f"{toolset.prefix}_{t.name}") for t in _walk(toolset.wrapped, found)]
        case RenamedToolset():
            new_names = {old: new for new, old in toolset.name_map.items()}
            return [replace(t, name=new_names.get(t.name, t.name)) for t in _walk(toolset.wrapped, found)]
        case ApprovalRequiredToolset():
            found.refused.append(
                f"{toolset.label} decides on approval inside the call, after its siblings may have started; "
                "name the tools in bind(tools={...: ToolPolicy(approval=True)}) instead"
            )
            return _walk(toolset.wrapped, found)
        case ExternalToolset():
            found.refused.append(f"{toolset.label} holds tools whose results would come from outside the run")
            return []
        case WrapperToolset():
            return _walk(toolset.wrapped, found)
        case _:
            found.opaque.append(toolset.label)
            return []


def _known(tool: Tool[Any], toolset_timeout: float | None, found: Surveyed) -> KnownTool:
    if tool.prepare is not None:
        found.opaque.append(f"the prepare function of tool {tool.name!r}")  # it may rename the tool
    timeout = tool.timeout if tool.timeout is not None else toolset_timeout
    return KnownTool(
        name=tool.name,
        schema=of_value(tool.function_schema.json_schema, RECORD),
        approval=tool.requires_approval,
        timeout_ms=None if timeout is None else max(1, int(timeout * 1_000)),
    )
