"""What is not loaded until somebody asks."""

import json
import subprocess
import sys

import thread_objects
from tests.architecture.tree import ROOT

HEAVY = ("sqlalchemy", "sqlmodel", "pydantic_ai", "alembic", "psycopg", "typer", "rich")


def loaded_after(statement: str) -> set[str]:
    """The top-level modules that a new interpreter has loaded after one statement."""
    script = f"{statement}\nimport json, sys\nprint(json.dumps(sorted({{name.split('.')[0] for name in sys.modules}})))"
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    return set(json.loads(ran.stdout))


def test_workflow_loads_neither_database_nor_agent_code():
    """Importing the workflow module stays as light as the sandbox needs it."""
    assert loaded_after("import workflows.thread_object").isdisjoint(HEAVY)


def test_public_package_loads_nothing_by_itself():
    """`import thread_objects` costs nothing until a name is used."""
    assert loaded_after("import thread_objects").isdisjoint({*HEAVY, "temporalio", "pydantic"})


def test_client_loads_neither_agent_code_nor_command_line():
    """A program that only submits needs no pydantic-ai, and no SQL before it names a database."""
    assert loaded_after("from thread_objects import ThreadClient").isdisjoint(HEAVY)


def test_every_public_name_resolves():
    """Each name of `__all__` exists, is listed by dir(), and unknown names are refused as ever."""
    assert thread_objects.__all__ == sorted(set(thread_objects.__all__))
    for name in thread_objects.__all__:
        assert getattr(thread_objects, name) is not None
        assert name in dir(thread_objects)
    assert not hasattr(thread_objects, "no_such_name")
