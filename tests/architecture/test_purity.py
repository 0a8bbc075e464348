"""`core` and the messages read no clock, no randomness, no environment, and do no I/O.

They are passed through the workflow sandbox, which therefore does not watch them; these tests do.
"""

import ast
import textwrap
from pathlib import Path

import pytest

from tests.architecture.tree import parsed, sources, where

PURE = ("thread_objects/core", "thread_objects/contract")
FORBIDDEN_MODULES = frozenset(
    [
        "asyncio",
        "concurrent",
        "contextvars",
        "ctypes",
        "getpass",
        "glob",
        "http",
        "importlib",
        "io",
        "locale",
        "logging",
        "multiprocessing",
        "os",
        "pathlib",
        "platform",
        "random",
        "select",
        "secrets",
        "selectors",
        "shutil",
        "signal",
        "socket",
        "sqlite3",
        "ssl",
        "subprocess",
        "sys",
        "tempfile",
        "threading",
        "time",
        "urllib",
        "uuid",
        "weakref",
        "zoneinfo",
        "structlog",
        "temporalio",
    ]
)
FORBIDDEN_CALLS = frozenset(
    ["open", "input", "print", "exec", "eval", "compile", "__import__", "id", "hash", "globals", "breakpoint"]
)
FORBIDDEN_ATTRIBUTES = frozenset(
    ["now", "utcnow", "today", "fromtimestamp", "urandom", "uuid1", "uuid4", "getenv", "environ", "perf_counter"]
)


def impurities(tree: ast.Module) -> list[tuple[ast.AST, str]]:
    """What a pure module must not hold, with its place."""
    found: list[tuple[ast.AST, str]] = []
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found += [(node, a.name) for a in names if a.name.split(".")[0] in FORBIDDEN_MODULES]
            case ast.ImportFrom(module=str(module), level=0) if module.split(".")[0] in FORBIDDEN_MODULES:
                found.append((node, module))
            case ast.Call(func=ast.Name(id=name)) if name in FORBIDDEN_CALLS:
                found.append((node, f"{name}()"))
            case ast.Call(func=ast.Attribute(attr=name)) if name in FORBIDDEN_ATTRIBUTES:
                found.append((node, f".{name}()"))
            case ast.AsyncFunctionDef() | ast.Await() | ast.AsyncFor() | ast.AsyncWith():
                found.append((node, "async"))
            case ast.Global():
                found.append((node, "global"))
            case _:
                pass
    return found


def set_iterations(tree: ast.Module) -> list[ast.AST]:
    """Loops over something that is visibly a set: its order differs between processes."""

    def is_set(node: ast.expr) -> bool:
        match node:
            case ast.Set() | ast.SetComp():
                return True
            case ast.Call(func=ast.Name(id="set" | "frozenset")):
                return True
            case ast.BinOp(left=left, right=right, op=ast.BitOr() | ast.BitAnd() | ast.Sub() | ast.BitXor()):
                return is_set(left) or is_set(right)
            case ast.Call(func=ast.Name(id="list" | "tuple" | "enumerate"), args=[first, *_]):
                return is_set(first)
            case _:
                return False

    loops = [node for node in ast.walk(tree) if isinstance(node, ast.For | ast.comprehension) and is_set(node.iter)]
    return [loop.iter for loop in loops]


@pytest.mark.parametrize("path", sources(*PURE), ids=lambda path: path.stem)
def test_pure_modules_hold_nothing_impure(path: Path):
    """No clock, randomness, environment, I/O, logging, coroutine or module-level state in a pure module."""
    assert [f"{where(path, node)}: {what}" for node, what in impurities(parsed(path))] == []


@pytest.mark.parametrize("path", sources(*PURE, "workflows"), ids=lambda path: path.stem)
def test_deterministic_modules_never_iterate_a_set(path: Path):
    """Neither workflow code nor the pure core loops over a set; `sorted(...)` of one is fine."""
    assert [where(path, node) for node in set_iterations(parsed(path))] == []


@pytest.mark.parametrize(
    "line",
    [
        "import time",
        "from os import environ",
        "import random as dice",
        "datetime.now()",
        "uuid.uuid4()",
        "open('x')",
        "async def run(): ...",
    ],
)
def test_impurity_is_found(line: str):
    """The check itself sees each kind of impurity (it would be worth nothing otherwise)."""
    assert impurities(ast.parse(line))


@pytest.mark.parametrize("loop", ["for x in {1, 2}: ...", "y = [x for x in set(z)]", "for x in set(a) | b: ..."])
def test_set_iteration_is_found(loop: str):
    """The check itself sees loops over sets."""
    assert set_iterations(ast.parse(textwrap.dedent(loop)))


def test_sorted_set_is_no_finding():
    """Sorting gives a set an order."""
    assert set_iterations(ast.parse("for x in sorted({1, 2}): ...")) == []
