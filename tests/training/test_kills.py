"""A little of `python -m tests.kills`: real kills of all that the tests of resume do not kill."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are found by their environment")
def test_killed_runs_end_as_those_left_alone_and_leave_no_process() -> None:
    command = [sys.executable, "-m", "tests.kills", "--kills", "3", "--only", "workers", "report"]
    own = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    done = subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 kills over pcpg, workers, report: 0 wrong" in done.stdout
