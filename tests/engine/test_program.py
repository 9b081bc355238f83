"""One program for many seeds: what the seeds share is handed over once."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from pcpg.engine.program import Program, on_devices


class Inputs(NamedTuple):
    own: Any
    shared: Any
    nothing: None = None


def product(inputs: Inputs) -> Any:
    return inputs.own * inputs.shared["table"].sum()


@pytest.mark.parametrize("lanes", [1, 3, 8])
def test_a_part_that_all_seeds_share_gives_the_same_as_one_copy_each(lanes: int) -> None:
    table = {"table": np.arange(4.0, dtype=np.float32)}
    inputs = [Inputs(np.float32(number), table) for number in range(5)]
    expected = [6.0 * number for number in range(5)]
    shared = Program(product, lanes, axes=Inputs(0, None, 0))
    assert [float(out) for out in shared(inputs)] == [float(out) for out in Program(product, lanes)(inputs)] == expected


def test_the_shared_part_is_not_stacked() -> None:
    def shape(inputs: Inputs) -> Any:
        seen.append(inputs.shared.shape)
        return inputs.own

    seen: list[tuple[int, ...]] = []
    program = Program(shape, 4, axes=Inputs(0, None, 0))
    packed = program([Inputs(np.float32(1), np.zeros((2, 3), np.float32))] * 3)
    assert len(packed) == 3 and seen == [(2, 3)]


def test_seeds_spread_over_eight_devices_have_the_bytes_of_one() -> None:
    script = Path(__file__).parents[2] / "benchmarks" / "devices.py"
    own = os.environ | {"PYTHONPATH": str(script.parents[1] / "src")}
    done = subprocess.run([sys.executable, script, "--small"], capture_output=True, text=True, env=own, check=False)
    assert done.returncode == 0, done.stderr
    [seeds] = json.loads(done.stdout.splitlines()[-1])
    assert seeds["devices"] == [1, 2] and seeds["files"] == 3 and seeds["same_bytes"]


def test_more_devices_than_there_are_is_refused() -> None:
    with pytest.raises(ValueError, match="at most the 1 that JAX sees"), on_devices(2):
        pass
