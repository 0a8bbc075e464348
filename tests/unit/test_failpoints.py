"""Where a test can end a process."""

import os
import signal
import subprocess
import sys

import pytest

from thread_objects.failpoints import parsed


@pytest.mark.parametrize(
    ("setting", "armed"),
    [
        ("claim:after", ("claim:after", 1)),
        ("claim:after:3", ("claim:after", 3)),
        ("turn:after-response-append", ("turn:after-response-append", 1)),
        ("recovery:claim:after:2", ("recovery:claim:after", 2)),
        ("plain", ("plain", 1)),
        ("", ("", 1)),
    ],
)
def test_a_failpoints_name_may_hold_colons(setting, armed):
    """Only a last part of digits is the number of the hit."""
    assert parsed(setting) == armed


@pytest.mark.parametrize(("setting", "printed"), [("a:b", ""), ("a:b:2", "1\n"), ("a", "1\n2\n"), ("", "1\n2\n")])
def test_an_armed_failpoint_kills_at_its_hit(setting, printed):
    """Kill -9, and no sooner."""
    code = "from thread_objects.failpoints import hit\nfor n in (1, 2):\n    hit('a:b'); print(n, flush=True)"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "THREADS_FAILPOINT": setting},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout == printed
    assert run.returncode == (0 if printed.count("\n") == 2 else -signal.SIGKILL)
