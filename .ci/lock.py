"""Print what the lock has to satisfy: every requirement named in pyproject.toml, sorted.

`make lock` feeds this to pip-compile, so that pyproject.toml stays the only place where a requirement is written.
"""

import sys
import tomllib
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def requirements() -> list[str]:
    """Runtime, extras, test group and build backend in one list."""
    facts = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = facts["project"]
    return sorted(
        {
            *project["dependencies"],
            *chain.from_iterable(project["optional-dependencies"].values()),
            *chain.from_iterable(facts["dependency-groups"].values()),
            *facts["build-system"]["requires"],
        }
    )


if __name__ == "__main__":
    sys.stdout.write("\n".join(requirements()) + "\n")
