"""The gates themselves: strict types, all lint rules, one lock that covers everything."""

import re
import tomllib
from importlib.metadata import version

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.architecture.tree import ROOT, sources

FACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCK = (ROOT / "requirements.txt").read_text()
PINNED = re.compile(
    r"^([A-Za-z0-9._-]+)==(\S+)( ; [^\\]+)? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE
)


def declared() -> list[Requirement]:
    """Every requirement that pyproject.toml names, in whichever table."""
    project = FACTS["project"]
    tables = [
        project["dependencies"],
        *project["optional-dependencies"].values(),
        *FACTS["dependency-groups"].values(),
        FACTS["build-system"]["requires"],
    ]
    return [Requirement(line) for table in tables for line in table]


def test_types_are_strict_for_every_source_package():
    """Mypy is strict and sees the whole deployment."""
    mypy = FACTS["tool"]["mypy"]
    assert mypy["strict"] is True
    assert {"thread_objects", "workflows", "activities", "storage"} <= set(mypy["packages"])
    assert mypy["modules"] == ["worker"]
    loosened = [table["module"] for table in mypy["overrides"] if set(table) - {"module", "ignore_missing_imports"}]
    assert loosened == [["tests.*"]]


def test_lint_selects_all_rules_and_gives_a_reason_for_each_exception():
    """`ALL` is on; an exception without a comment on its line is none."""
    assert FACTS["tool"]["ruff"]["lint"]["select"] == ["ALL"]
    text = (ROOT / "pyproject.toml").read_text()
    block = text.split("ignore = [", 1)[1].split("\n]", 1)[0]
    bare = [line.strip() for line in block.splitlines() if line.strip() and "#" not in line]
    assert bare == []


def test_every_suppression_names_its_rule():
    """A bare `noqa` or `type: ignore` hides more than it says."""
    bare = re.compile(r"#\s*noqa(?!: ?[A-Z])|#\s*type: ignore(?!\[)")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sources("thread_objects", "workflows", "activities", "storage", "worker.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if bare.search(line)
    ]
    assert found == []


def test_lock_holds_only_pinned_and_hashed_requirements():
    """Nothing stands in the lock but name, version and hashes: no address, no path, no option."""
    rest = PINNED.sub("", LOCK)
    assert rest.strip() == ""


def test_lock_satisfies_every_declared_requirement():
    """What pyproject.toml asks for is in the lock, in a version that it accepts."""
    pinned = {canonicalize_name(name): pin for name, pin, *_ in PINNED.findall(LOCK)}
    for requirement in declared():
        pin = pinned.get(canonicalize_name(requirement.name))
        assert pin is not None, f"{requirement} is not locked"
        assert requirement.specifier.contains(pin, prereleases=True), f"{requirement} is locked at {pin}"


def test_tests_run_on_the_locked_versions():
    """The environment of this run is the lock's, not whatever was lying about."""
    pinned = {name: pin for name, pin, *_ in PINNED.findall(LOCK)}
    differing = {
        requirement.name: (version(requirement.name), pinned[canonicalize_name(requirement.name)])
        for requirement in declared()
        if requirement.name not in {"hatchling", "editables"}
        and version(requirement.name) != pinned[canonicalize_name(requirement.name)]
    }
    assert differing == {}
