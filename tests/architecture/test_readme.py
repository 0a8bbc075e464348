"""The README's tables are those of the code. (Its programs run in tests/workflow/test_readme.py.)"""

import importlib.util
import re
from types import ModuleType

import pytest

from tests.architecture.tree import ROOT
from thread_objects.cli.app import VERBS

README = (ROOT / "README.md").read_text()


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    """`.ci/readme.py`."""
    spec = importlib.util.spec_from_file_location("readme", ROOT / ".ci" / "readme.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tables_are_those_of_the_code(generator: ModuleType):
    """Settings and exit codes are shown as they are; `python .ci/readme.py` writes them."""
    assert generator.written(README) == README


def test_every_setting_and_code_is_described(generator: ModuleType):
    """No row of a table is left without its meaning."""
    bare = [row for row in (generator.settings_table() + generator.exits_table()).splitlines() if row.endswith("|  |")]
    assert bare == []


def test_every_verb_is_named():
    """A verb that the README does not name does not exist for its reader."""
    verbs = {verb.__name__ for group in VERBS.values() for verb in group}
    assert {verb for verb in verbs if f"`{verb}`" not in README} == set()


def test_links_lead_somewhere():
    """Every relative link of the README is a file of this repository."""
    targets = re.findall(r"\]\((?!https?:)([^)#]+)\)", README)
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_commands_that_are_named_exist():
    """`make` targets in README and CONTRIBUTING are targets of the Makefile."""
    makefile = (ROOT / "Makefile").read_text()
    for text in (README, (ROOT / "CONTRIBUTING.md").read_text()):
        for target in re.findall(r"(?:^|`)make ([a-z]+)", text, re.MULTILINE):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
