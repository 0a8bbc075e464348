"""One incarnation of an object's maintenance: the carried state, and what starts anew with every run."""

from __future__ import annotations

from thread_objects.core.config import MaintenanceConfig
from thread_objects.core.gate import Gate
from thread_objects.core.lanes import Lanes
from thread_objects.core.sighting import Sighting
from thread_objects.core.state import MaintenanceState


class Incarnation:
    """What mutations and events share."""

    __slots__ = ("config", "gate", "lanes", "sighting", "state")

    def __init__(self, state: MaintenanceState, config: MaintenanceConfig) -> None:
        self.state = state
        self.config = config
        self.gate = Gate()
        self.lanes = Lanes(config)
        self.sighting = Sighting(state, self.gate, single=not config.shared_host)
