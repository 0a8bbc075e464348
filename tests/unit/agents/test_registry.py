"""The registry: unique ids, a key that is the same everywhere, and a loader that says what is wrong."""

import subprocess
import sys
import types
from pathlib import Path

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from thread_objects.agents import Registry, ToolPolicy, Uncertain, bind, load_registry
from thread_objects.contract.states import ToolClass
from thread_objects.errors import BindingError, BindingUnavailable, ConfigError

ROOT = Path(__file__).parents[3]


def look() -> str:
    """Look."""
    return "here"


def bound(agent_id: str, tool_class: ToolClass = ToolClass.UNCERTAIN):
    """A binding."""
    return bind(Agent(TestModel(), tools=[look]), id=agent_id, tools={"look": tool_class})


def test_ids_are_unique():
    """Two bindings of one id would make it a matter of luck which runs."""
    with pytest.raises(BindingError) as refused:
        Registry([bound("a"), bound("b"), bound("a")])
    assert refused.value.agent_id == "a"


def test_the_key_depends_on_ids_and_digests_only():
    """Order does not matter; a changed contract, a new or a missing binding does."""
    key = Registry([bound("a"), bound("b")]).key
    assert Registry([bound("b"), bound("a")]).key == key
    others = [[bound("a")], [bound("a"), bound("c")], [bound("a"), bound("b", ToolClass.READONLY)], []]
    assert key not in {Registry(other).key for other in others}


def test_the_key_is_the_same_in_another_process():
    """Hash seeds and import order have no part in it."""
    code = "from thread_objects.cli.demo_agents import registry; print(registry.key)"
    keys = {
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code],
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed, "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(keys) == 1


def test_an_agent_that_is_not_bound_is_unavailable():
    """Parked, not failed: the error says that this worker has none."""
    registry = Registry([bound("a")])
    assert registry.get("a").id == "a"
    assert registry.run_duration_ms("a") == 3_600_000
    for ask in (registry.get, registry.run_duration_ms):
        with pytest.raises(BindingUnavailable):
            ask("b")
    assert ("a" in registry, "b" in registry, len(registry)) == (True, False, 1)


def test_the_reconciler_of_a_tool_is_found_through_the_registry():
    """Recovery asks by agent and tool; no reconciler is None, no agent is unavailable."""

    def look_up(_call):
        return Uncertain()

    binding = bind(Agent(TestModel(), tools=[look]), id="a", tools={"look": ToolPolicy(reconciler=look_up)})
    registry = Registry([binding])
    assert registry.reconciler("a", "look") is look_up
    assert registry.reconciler("a", "other") is None
    with pytest.raises(BindingUnavailable):
        registry.reconciler("b", "look")


def test_a_registry_is_loaded_by_its_path(monkeypatch):
    """A name, or a function that makes one."""
    module = types.ModuleType("shop_agents")
    module.registry = Registry([bound("a")])  # type: ignore[attr-defined]
    module.make = lambda: Registry([bound("b")])  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shop_agents", module)
    assert "a" in load_registry("shop_agents:registry")
    assert "b" in load_registry("shop_agents:make")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("shop", "not of the form"),
        (":registry", "not of the form"),
        ("no_such_module_anywhere:registry", "no module 'no_such_module_anywhere'"),
        ("thread_objects:nothing", "is no Registry"),
        ("thread_objects.contract.limits:LEASE_MS", "is no Registry"),
    ],
)
def test_a_path_that_leads_nowhere_is_a_configuration_error(path: str, reason: str):
    """Said at start, with what was looked for."""
    with pytest.raises(ConfigError) as refused:
        load_registry(path)
    assert reason in refused.value.reason


def test_an_error_inside_the_module_is_shown_as_it_is(tmp_path: Path, monkeypatch):
    """A missing dependency of the user's module is not said to be a missing module of ours."""
    (tmp_path / "broken_agents.py").write_text("import a_dependency_that_is_missing\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="a_dependency_that_is_missing"):
        load_registry("broken_agents:registry")
