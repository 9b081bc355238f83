"""A user's own feature function."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from pcpg.envs import make
from pcpg.features.base import own_features, register_features

SOURCE = Path(__file__).parents[2] / "src"

ON_ONE_CORE = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import numpy as np
from pcpg.envs import make
from pcpg.features.base import own_features, register_features
from pcpg.engine.program import Program

phi = own_features(register_features(lambda o, a: np.array([float(o[0]), float(a), 1.0])), make("Chain-v0"))
assert not phi.is_traced
pairs = np.ones((40_000, 8), np.float32), np.ones(40_000, np.int32)
[rows] = Program(lambda pair: phi.batch(*pair), lanes=1)([pairs])
assert rows.shape == (40_000, 3) and rows.sum() == 120_000
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores are chosen by Linux alone")
def test_a_function_that_cannot_be_traced_does_not_hang_on_one_core(tmp_path: Path) -> None:
    own = os.environ | {"PYTHONPATH": str(SOURCE), "JAX_PLATFORMS": "cpu", "JAX_COMPILATION_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", ON_ONE_CORE], env=own, timeout=200, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_function_may_write_to_what_it_is_given() -> None:
    def phi(observation, action):
        observation += float(action)  # no tracer has a float
        return observation

    made = own_features(register_features(phi), make("Chain-v0"))
    seen = np.zeros((3, 8), np.float32)
    rows = jax.jit(made.batch)(seen, np.arange(3, dtype=np.int32))
    np.testing.assert_array_equal(rows, np.arange(3)[:, None] * np.ones(8))
    assert not seen.any()
