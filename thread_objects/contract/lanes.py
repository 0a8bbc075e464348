"""What the workers of a Thread Object have installed beside agents: lanes and the other waves, as data.

The object learns it from activity answers, so that a lane comes and goes without any change of workflow code.
"""

from typing import Annotated

from pydantic import Field

from thread_objects.contract import limits
from thread_objects.contract.states import LanePhase
from thread_objects.contract.wire import Wire

LaneId = Annotated[str, Field(min_length=1, max_length=limits.LANE_ID_CHARS_MAX)]


class LaneInfo(Wire):
    """One host lane: its id, how long a wave may take, and when it may run."""

    id: LaneId
    allowance_ms: Annotated[int, Field(ge=1, le=limits.LANE_ALLOWANCE_MS_MAX)]
    phase: LanePhase = LanePhase.CONCURRENT


class Installed(Wire):
    """The extensions of one deployment.

    `digest` is empty where nothing is installed; `deployment` orders the deployments, an older one never replaces a
    newer one.
    """

    digest: str = ""
    deployment: int = 0
    publication: bool = False
    projection: bool = False
    message_timeout_ms: Annotated[int, Field(ge=1, le=limits.LANE_ALLOWANCE_MS_MAX)] | None = None
    recovery_events: bool = False
    lanes: Annotated[tuple[LaneInfo, ...], Field(max_length=limits.LANES_MAX)] = ()
