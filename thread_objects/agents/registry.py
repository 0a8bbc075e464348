"""The agents a worker serves.

Rule guarded: one binding per id, and a key that is the same in every process serving the same bindings, in
whatever order they were listed.
"""

from collections.abc import Iterable, Iterator

from thread_objects.agents.binding import AgentBinding
from thread_objects.core.digests import of_value
from thread_objects.errors import BindingError, BindingUnavailable, ConfigError
from thread_objects.importing import imported
from thread_objects.ports import Reconciler


class Registry:
    """Bindings by agent id.

    `key` is the binding registry key: a digest over ids and digests. It changes when an agent is added, removed
    or changed, and a change of it is what resumes Submissions parked for want of a binding.
    """

    def __init__(self, bindings: Iterable[AgentBinding]) -> None:
        self._bindings: dict[str, AgentBinding] = {}
        for binding in bindings:
            if binding.id in self._bindings:
                raise BindingError(agent_id=binding.id, reason="two bindings have this id")
            self._bindings[binding.id] = binding
        facts = {agent_id: dict(binding.digests) for agent_id, binding in self._bindings.items()}
        self.key: str = "reg-" + of_value(facts)[:32]

    def get(self, agent_id: str) -> AgentBinding:
        """The binding of an agent. Raises `BindingUnavailable` when this worker has none."""
        binding = self._bindings.get(agent_id)
        if binding is None:
            raise BindingUnavailable(agent_id=agent_id, reason="this worker has no binding of that id")
        return binding

    def run_duration_ms(self, agent_id: str) -> int:
        """How long a Run of this agent may take. Raises `BindingUnavailable`."""
        return self.get(agent_id).policy.duration_ms

    def reconciler(self, agent_id: str, tool_name: str) -> Reconciler | None:
        """Who can say what became of a lost call of this tool. Raises `BindingUnavailable`."""
        return self.get(agent_id).tool(tool_name).reconciler

    def __contains__(self, agent_id: object) -> bool:
        return agent_id in self._bindings

    def __iter__(self) -> Iterator[AgentBinding]:
        return iter(self._bindings.values())

    def __len__(self) -> int:
        return len(self._bindings)


def load_registry(path: str) -> Registry:
    """The registry at `package.module:name`; the name may also be a function that makes one.

    Raises `ConfigError` when it cannot be imported or is none. Errors raised by the module itself pass through.
    """
    found = imported(path, setting="agents", what="registry")
    if callable(found) and not isinstance(found, Registry):
        found = found()
    if not isinstance(found, Registry):
        raise ConfigError(setting="agents", reason=f"{path!r} is no Registry")
    return found
