"""The README's programs and its walk through, run as they stand there."""

import re
import subprocess
import sys
from pathlib import Path

from tests.architecture.tree import ROOT
from tests.workflow.command import BOUND_S, all_gone, environment
from tests.workflow.test_dev import dev

README = (ROOT / "README.md").read_text()

# Somebody who types is slower than a script: what is not there yet (code 5) is asked for again.
PATIENT = """
threads() {
  for _ in $(seq 300); do
    "$PYTHON" -m thread_objects.cli "$@"; code=$?
    [ $code = 5 ] || return $code
    sleep 0.1
  done
  return $code
}
"""


def block(name: str) -> str:
    """The code block that is marked with this name."""
    (code,) = re.findall(rf"<!-- runs: {re.escape(name)} -->\n```\w+\n(.*?)```", README, re.DOTALL)
    return code


def test_agent_and_program_of_the_readme_work(tmp_path: Path):
    """`shop.py` is served, `send.py` submits, approves and waits."""
    (tmp_path / "shop.py").write_text(block("shop.py"))
    (tmp_path / "send.py").write_text(block("send.py"))
    with dev(tmp_path, "--agents", "shop:registry") as (_process, settings):
        ran = subprocess.run(
            [sys.executable, "send.py"],
            cwd=tmp_path,
            env=environment(**settings),
            capture_output=True,
            text=True,
            timeout=BOUND_S,
            check=False,
        )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "asks to call refund with {'order_id': 0}" in ran.stdout
    assert ran.stdout.splitlines()[-1].startswith("completed ")
    assert all_gone(tmp_path)


def test_walk_through_of_the_readme_holds(tmp_path: Path):
    """Submit, watch, approve, kill -9, report, resolve: every command does what its comment says."""
    with dev(tmp_path) as (_process, settings):
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", PATIENT + block("shell")],
            cwd=tmp_path,
            env=environment(**settings, PYTHON=sys.executable),
            capture_output=True,
            text=True,
            timeout=2 * BOUND_S,
            check=False,
        )
    shown = ran.stdout
    assert ran.returncode == 0, shown + ran.stderr
    assert "Order 1001 (tea pot): arrived broken." in shown
    assert "waits for approval: refund" in shown
    assert "Done: refunded 18.50 for order 1001." in shown
    assert "ship_order: outcome unknown" in shown
    assert "Order 1002 is on its way: parcel 1002-1." in shown
    assert shown.count("calls ship_order(") == 1
    assert all_gone(tmp_path)
