"""Attacks by the current folder: a user stands in the folder of a stranger, and nothing that lies there is run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pcpg
from tests.conftest import ROOT

pytestmark = pytest.mark.usefixtures("compile_once")

MARK = "import os\nwith open(os.environ['MARK'], 'a') as file:\n    print(__name__, __file__, file=file)\n"
OPTIONAL = ("etils", "flatbuffers", "typeguard", "zstandard", "libtpu", "jax_cuda12_plugin", "cython")
"""Modules that libraries import where they are installed, which they seldom are."""
STANDARD = ("multiprocessing", "random", "pickle", "tempfile", "runpy")
"""Modules that a new process of Python imports before anything of ours."""
DOOR = """
import gymnasium
from gymnasium import spaces
import hostile_helper
class Door(gymnasium.Env):
    observation_space, action_space, max_steps = spaces.Discrete(2), spaces.Discrete(2), 3
    def reset(self, *, seed=None, options=None):
        return 0, {}
    def step(self, action):
        return 1, 0.0, True, False, {}
"""
NEEDED = ("numpy", "jax", "sitecustomize", "usercustomize", "pcpg_lab", "pcpg_theory", "gymnasium", "rich", "json")
"""Modules that are imported from elsewhere."""
COMMANDS = """
import sys
from pcpg.__main__ import main
if __name__ == "__main__":
    for words in sys.argv[1].split(";"):
        sys.argv = ["pcpg", *words.split()]
        try:
            main()
        except SystemExit as done:
            if done.code:
                sys.exit(words)
"""
SWEEP = """
[base]
env = "CombinationLock-v0"
algo = "ppo"
env_options = {horizon = 2}
[base.agent]
budget = 20
visit_episodes = 4
ppo = {num_updates = 1, num_episodes = 4, hidden = [8]}
"""


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes")
def test_nothing_that_lies_in_the_current_folder_is_run_unless_it_is_named(tmp_path: Path) -> None:
    small = {"ppo": {"num_updates": 1, "num_episodes": 4, "hidden": [8]}, "budget": 20, "visit_episodes": 4}
    env = {"env": "gymnasium:FrozenLake-v1", "max_steps": 8, "num_envs": 2, "workers": 1}
    here = pcpg.train(**env, algo="ppo", config=small, out=tmp_path / "run").path
    for name in (*OPTIONAL, *STANDARD, *NEEDED, "hostile_plugin", "hostile_helper", "named_helper"):
        (here / f"{name}.py").write_text(MARK)
    (here / "jax_plugins" / "evil").mkdir(parents=True)
    (here / "jax_plugins" / "evil" / "__init__.py").write_text(MARK)
    (here / "evil-1.0.dist-info").mkdir()
    (here / "evil-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    points = "[gymnasium.envs]\n__root__ = hostile_plugin\n[jax_plugins]\nevil = hostile_plugin\n"
    (here / "evil-1.0.dist-info" / "entry_points.txt").write_text(points)
    os.mkfifo(here / "matplotlibrc")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "doors.py").write_text(DOOR)
    (tmp_path / "own" / "hostile_helper.py").write_text("")
    (here / "named_doors.py").write_text(DOOR.replace("hostile_helper", "named_helper"))
    own = os.environ | {"PYTHONPATH": str(ROOT / "src"), "MARK": str(tmp_path / "mark")}
    (here / "sweep.toml").write_text(SWEEP)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "commands").write_text(COMMANDS)  # elsewhere, as the command is
    words = "report .;verify .;resume . --steps +20;sweep sweep.toml --out sweep;evaluate . --episodes 2;"
    words += f"look {tmp_path}/own/doors.py:Door;look named_doors:Door"
    command = [sys.executable, tmp_path / "bin" / "commands", words]
    done = subprocess.run(command, cwd=here, env=own, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    ran = [line.split()[0] for line in (tmp_path / "mark").read_text().splitlines()]
    assert ran == ["named_helper"], "the last command named its neighbour"
