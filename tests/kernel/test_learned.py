"""Features that kept data learn: noise leaves them, and a run with them is exact to resume."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pcpg
from pcpg.algos.on_data import Episodes
from pcpg.data import Kept
from pcpg.kernel.views import KeepConfig, Kernel, learn_inputs
from pcpg.training.storage import assets_of

LEARNED = {
    "replay": {"features": "inverse-dynamics", "capacity": 600},
    "explore": {"num_episodes": 16, "patience": 2, "min_value": 0.4},
    "exploit": {"visit_episodes": 8},
}
SIZE, NOISE, LENGTH = 6, 3, 50
MOVES = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])


def walks(drifts: bool) -> Episodes:
    """Random walks on a grid, seen beside noise that jumps, or drifts and is cut at its bounds."""
    rng = np.random.default_rng(0)
    actions = rng.integers(4, size=(LENGTH, 60))
    place, noise = rng.integers(SIZE, size=(60, 2)), rng.uniform(-1, 1, (60, NOISE))
    seen = [np.concatenate([place / SIZE, noise], axis=1)]
    for action in actions:
        place = np.clip(place + MOVES[action], 0, SIZE - 1)
        noise = np.clip(noise + rng.normal(0, 0.1, noise.shape), -1, 1) if drifts else rng.uniform(-1, 1, noise.shape)
        seen.append(np.concatenate([place / SIZE, noise], axis=1))
    no, last = np.zeros(actions.shape, bool), np.arange(LENGTH)[:, None] == LENGTH - 1
    return Episodes(np.float32(seen), actions, no.astype(np.float32), no, last | no, ~no, None)


@pytest.mark.parametrize("drifts", [False, True])
def test_neighbouring_places_lie_farther_apart_than_one_place_with_another_noise(drifts: bool) -> None:
    kept = Kept((2 + NOISE,), np.dtype(np.float32))
    kept.add(kept.batch_of(walks(drifts)))
    [encoder] = Kernel(KeepConfig(), 4, 1).learn.run([learn_inputs(kept, np.arange(kept.size), 0, 4)])
    seen = np.random.default_rng(1).uniform(-1, 1, (3, 500, 2 + NOISE)).astype(np.float32)
    seen[:, :, :2] = np.random.default_rng(2).integers(SIZE - 1, size=(500, 2)) / SIZE  # the same in all three ...
    seen[2, :, 0] += 1 / SIZE  # ... but that the third is one place on
    here, again, beside = (np.asarray(encoder.features(one)) for one in seen)
    same, other = (np.mean(np.sum((here - one) ** 2, axis=1)) for one in (again, beside))
    assert other > 3 * same, f"{other:.4f} beside {same:.4f}"
    plain = [np.mean(np.sum((seen[0] - one) ** 2, axis=1)) for one in seen[1:]]
    assert plain[1] < 1.1 * plain[0], "which is not so entry by entry"


def test_entries_that_are_ignored_leave_learned_features_as_they_are() -> None:
    kept = Kept((2 + NOISE,), np.dtype(np.float32), ignored=(2, 4))
    kept.add(kept.batch_of(walks(drifts=False)))
    [encoder] = Kernel(KeepConfig(), 4, 1).learn.run([learn_inputs(kept, np.arange(kept.size), 0, 4)])
    seen = np.random.default_rng(1).uniform(-1, 1, (20, 2 + NOISE)).astype(np.float32)
    other = seen.copy()
    other[:, [2, 4]] += 1
    np.testing.assert_array_equal(encoder.features(seen), encoder.features(other))
    other[:, 3] += 1
    assert np.abs(np.asarray(encoder.features(seen)) - encoder.features(other)).max() > 1e-4


def test_an_interrupted_run_with_learned_features_ends_as_one_left_alone(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"algo": "pcpg-replay", "config": LEARNED, "size": 3, "seed": 3}

    def observe(progress: Any) -> None:
        if progress.step == 2:
            raise ZeroDivisionError

    whole = pcpg.train("DeepSea-v0", out=tmp_path / "whole", **settings)
    with pytest.raises(ZeroDivisionError):
        pcpg.train("DeepSea-v0", out=tmp_path / "cut", observer=observe, **settings)
    resumed = pcpg.resume(tmp_path / "cut")
    for name in ("metrics.jsonl", "policy.safetensors"):
        assert (resumed.path / name).read_bytes() == (whole.path / name).read_bytes(), name
    [assets] = assets_of(whole.folder, whole.config, [3], whole.env)
    assert assets.data is not None and assets.data.size == whole.summary["env_steps"][0]
    loaded = pcpg.load(whole.path)
    assert loaded.policy.network.landmarks.encoder is not None
    assert loaded.evaluate(8).mean_return == whole.evaluate(8).mean_return
