"""What no tracked file may hold, and what every test must."""

import ast
import re
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT, parsed, sources, tracked, where

# Written in pieces, so that this file is no finding of its own.
UNFINISHED = re.compile("NotImplemented" + r"Error|\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X")) + r")\b")
MACHINE_PATH = re.compile(r"(?<![\w.~}>-])/(?:" + "home|root|Users|work|opt|tmp|mnt" + r")/")
PACKAGE_INDEX = re.compile("index" + r"[-_]url|https?://[^\s]*/" + r"simple\b", re.IGNORECASE)
LINES_MAX = 500


def findings(pattern: re.Pattern[str]) -> list[str]:
    """Every place in a tracked text file where the pattern occurs."""
    found = []
    for path in tracked():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        found += [
            f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}"
            for number, line in enumerate(text.splitlines(), 1)
            if pattern.search(line)
        ]
    return found


def test_no_tracked_file_names_a_machine_path():
    """Nothing in the repository depends on where it was written."""
    assert findings(MACHINE_PATH) == []


def test_no_tracked_file_names_a_package_index():
    """Where packages come from is the installer's business."""
    assert findings(PACKAGE_INDEX) == []


def test_nothing_is_left_unfinished():
    """No promise of later work stands in the code."""
    assert [found for found in findings(UNFINISHED) if ".py:" in found] == []


def laws_of(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The test functions of a file, methods included."""
    return [
        node
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    ]


TEST_FILES = [path for path in sources("tests") if path.name.startswith("test_")]


@pytest.mark.parametrize("path", TEST_FILES, ids=lambda path: str(path.relative_to(ROOT / "tests")))
def test_every_test_states_its_law_and_checks_it(path: Path):
    """Each test has a docstring and something that can fail; none is skipped or expected to fail."""
    for node in laws_of(path):
        said = ast.dump(node)
        assert ast.get_docstring(node), f"{where(path, node)} {node.name} has no docstring"
        checks = ("Assert(" in said, "raises" in said, "assert_" in said, "check" in said, "expect" in said)
        assert any(checks), f"{where(path, node)} {node.name} asserts nothing"
    source = path.read_text()
    for escape in ("pytest.mark." + "skip", "pytest." + "skip", "x" + "fail", "import" + "orskip"):
        assert escape not in source, f"{path.relative_to(ROOT)} holds {escape}"


def test_files_are_found_without_git_too(monkeypatch: pytest.MonkeyPatch):
    """A checkout that came as an archive, on a machine without git, is looked at as well."""
    with_git = set(tracked())
    monkeypatch.setenv("PATH", "")
    without_git = set(tracked.__wrapped__())
    assert {path for path in with_git if path.suffix == ".py"} <= without_git


def test_no_test_module_is_empty():
    """A file called test_* holds at least one test."""
    assert [str(path.relative_to(ROOT)) for path in TEST_FILES if not laws_of(path)] == []


def test_source_modules_stay_readable():
    """No source module outgrows one sitting by far, and none hides under a name that is no noun."""
    modules = sources("thread_objects", "workflows", "activities", "storage", "worker.py")
    assert [
        f"{path.relative_to(ROOT)}: {lines}"
        for path in modules
        if (lines := len(path.read_text().splitlines())) > LINES_MAX
    ] == []
    nameless = {"utils", "util", "helpers", "common", "base", "manager", "misc"}
    assert [str(path.relative_to(ROOT)) for path in modules if path.stem in nameless] == []
