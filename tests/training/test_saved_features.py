"""The feature map of a run is saved with it, and a resumed run uses what was saved."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import pcpg
from pcpg import run_config
from pcpg.run_config import RunConfig
from pcpg.runs import checkpoints
from pcpg.runs.arrays import read_arrays, write_arrays
from pcpg.runs.errors import DamagedFile
from pcpg.training.loop import start_run, train_run

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*is unsealed")]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, tiny: Callable[..., dict[str, Any]]) -> Path:
    """A finished run with random features."""
    settings = tiny("pcpg")["agent"] | {"exploit": {"num_rounds": 0}}
    config = tiny("pcpg", features="random-mlp", feature_options={"num_features": 8}, agent=settings, seeds=1)
    folder = start_run(RunConfig.from_json(config), tmp_path_factory.mktemp("features") / "run")
    assert train_run(folder).finished
    return folder.path


@pytest.fixture
def begun(whole: Path, tmp_path: Path, unseal: Callable[[Path], None]) -> Path:
    """The same run as of the last checkpoint but one, of an older version: a round of exploration is still to come."""
    copy = shutil.copytree(whole, tmp_path / "run")
    (copy / "summary.json").unlink()
    unseal(copy)
    shutil.rmtree(copy / "checkpoints" / f"{checkpoints.steps(copy / 'checkpoints')[-1]:06d}")
    return copy


def test_the_saved_map_is_the_one_that_was_drawn(whole: Path) -> None:
    run = pcpg.load(whole)
    drawn = run.config.make_features(run.env)
    saved = read_arrays(whole / "features.safetensors")
    assert sum(array.size for array in saved.values()) == sum(np.size(leaf) for leaf in jax.tree.leaves(drawn))
    pair = (np.ones((3, *run.env.observation_space.shape), np.float32), np.zeros(3, np.int32))
    np.testing.assert_array_equal(run.features.batch(*pair), drawn.batch(*pair))


def test_a_run_goes_on_with_what_was_saved_where_drawing_gives_something_else(
    begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = (begun / "features.safetensors").read_bytes()
    draw = run_config.make_features

    def other(name: str, env: Any, seed: int, **options: Any) -> Any:
        return draw(name, env, seed + 1, **options)

    monkeypatch.setattr(run_config, "make_features", other)
    run_config._make_features.cache_clear()
    names = ("policy.safetensors", "metrics.jsonl", "cover/0007.safetensors")
    before = [(begun / name).read_bytes() for name in names]
    run = pcpg.resume(begun)
    run_config._make_features.cache_clear()
    assert [(begun / name).read_bytes() for name in names] == before
    assert (begun / "features.safetensors").read_bytes() == saved
    changed = run.config.make_features(run.env)
    assert not all(np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (run.features, changed)), strict=True))
    run_config._make_features.cache_clear()


def test_an_altered_map_or_one_of_another_shape_is_named(begun: Path) -> None:
    path = begun / "features.safetensors"
    arrays = read_arrays(path)
    name, first = next(iter(arrays.items()))
    write_arrays(path, arrays | {name: first + 1})
    with pytest.raises(DamagedFile, match=r"features\.safetensors: altered: its sha256 is .*, the checkpoint expects"):
        pcpg.resume(begun)
    write_arrays(path, {"other": first})
    with pytest.raises(DamagedFile, match=r"features\.safetensors: not this run's feature map: missing"):
        pcpg.resume(begun)


def test_a_map_that_got_lost_is_drawn_again_if_it_is_the_same(begun: Path) -> None:
    path = begun / "features.safetensors"
    before = path.read_bytes()
    path.unlink()
    pcpg.resume(begun)
    assert path.read_bytes() == before


def test_an_agent_without_a_feature_map_leaves_no_file(tmp_path: Path, tiny: Callable[..., dict[str, Any]]) -> None:
    agent = tiny("ppo")["agent"] | {"budget": 1}
    folder = start_run(RunConfig.from_json(tiny("ppo", agent=agent)), tmp_path / "run")
    assert train_run(folder).finished
    assert not folder.features.exists()
