"""One incarnation of an object's maintenance: the carried state, and what starts anew with every run."""

from __future__ import annotations

from thread_objects.core.config import MaintenanceConfig
from thread_objects.core.gate import Gate
from thread_objects.core.lanes import Lanes
from thread_objects.core.sighting import Sighting
from thread_objects.core.state import MaintenanceState


class Incarnation:
    """What mutations and events share. `config` and `lanes` are those of what the workers have installed last."""

    __slots__ = ("_own", "config", "gate", "lanes", "sighting", "state")

    def __init__(self, state: MaintenanceState, config: MaintenanceConfig) -> None:
        self.state = state
        self._own = config
        self.gate = Gate()
        self.configure()
        self.sighting = Sighting(state, self.gate, single=not config.shared_host)

    def configure(self) -> None:
        """Take over what is installed. A running event goes on with it."""
        installed = self.state.installed
        self.config = self._own.with_installed(installed) if installed.deployment else self._own
        self.lanes = Lanes(self.config)
