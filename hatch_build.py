"""Puts the deployment into the wheel as `thread_objects._deploy`.

A hook and not `force-include` in pyproject.toml: that one also copies the files on an editable install, and a
stale copy in site-packages is the last thing a checkout needs.
"""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

DEPLOYMENT = ("workflows", "activities", "storage", "worker.py")


class DeploymentHook(BuildHookInterface[Any]):
    """Adds the deployment's files to a standard wheel; every other build is left alone."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Map each part to its place; a part that is missing fails the build."""
        if self.target_name != "wheel" or version != "standard":
            return
        for part in DEPLOYMENT:
            build_data["force_include"][str(Path(self.root) / part)] = f"thread_objects/_deploy/{part}"
