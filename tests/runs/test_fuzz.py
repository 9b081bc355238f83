"""A little of `python -m tests.fuzz`: random damage to a folder is told, refused or harmless, and never a surprise."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]


def test_no_damage_goes_unnoticed_and_none_ends_in_a_traceback() -> None:
    command = [sys.executable, "-m", "tests.fuzz", "--mutations", "4", "--kinds", "ppo-rnd", "--seed", "5"]
    own = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    done = subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 mutations" in done.stdout and "'refused'" in done.stdout
