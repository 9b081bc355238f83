"""The cover's bonus with that of E3B: beside it, and times it."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pcpg
from pcpg.algos.pcpg_settings import ExploreConfig
from pcpg.bonuses.e3b import E3B, episodic_bonus
from pcpg.bonuses.elliptical import Elliptical, Joined
from pcpg.bonuses.protocol import At, CoverArrays, Learned
from pcpg.engine.rollout import Rollout
from pcpg.envs.spaces import Box, Discrete

SPACES = Box(-3.0, 3.0, (5,)), Discrete(3)
PLACES = np.random.default_rng(1).standard_normal((4, 5)).astype(np.float32)
WALKED = jnp.asarray(PLACES[[0, 1, 2, 1, 1, 3]][:, None])  # one episode, which comes to place 1 three times
PAID = jnp.asarray([[1.0], [2.0], [3.0], [4.0], [5.0]])
STATE = E3B().init(np.random.default_rng(0), *SPACES, (16, 16))


class Step:
    """A feature map whose form is the square of 1 + the number of the action."""

    dim = 1

    def batch(self, observations: jax.Array, actions: jax.Array) -> jax.Array:
        return 1.0 + actions[:, None]


def joined(*, is_product: bool, coef: float = 0.5) -> tuple[np.ndarray, Learned]:
    nothing, always = jnp.zeros((5, 1)), jnp.ones((5, 1), bool)
    actions = jnp.arange(5)[:, None]
    data = Rollout(WALKED, actions, nothing, nothing, ~always, ~always, always, always, nothing)
    phi: Any = Step()
    at = At(SPACES[1], 0.9, cover=CoverArrays(phi, np.eye(1), None, np.ones(1)))
    np.testing.assert_allclose(Elliptical().pay(None, data, at)[0], PAID)
    found, moved = Joined(coef=coef, is_product=is_product).pay(STATE, data, at)
    return np.asarray(found), moved


def own() -> np.ndarray:
    features = STATE.model.features(WALKED)
    return np.asarray(episodic_bonus(features[:-1], features[1:], E3B().ridge))


def test_times_the_cover_pays_what_is_new_in_the_episode_and_hardly_what_it_has_met() -> None:
    found, moved = joined(is_product=True)
    np.testing.assert_allclose(found, PAID * own() * E3B().ridge, rtol=1e-5)
    assert np.all(found <= PAID + 1e-5)
    assert found[3] / PAID[3] < 0.1, "the same place twice in a row"
    assert moved is STATE, "a factor needs no scale"


def test_beside_the_cover_the_episodic_bonus_is_added_by_its_weight() -> None:
    found, moved = joined(is_product=False)
    nothing, _ = joined(is_product=False, coef=0.0)
    twice, _ = joined(is_product=False, coef=1.0)
    np.testing.assert_array_equal(nothing, PAID)
    np.testing.assert_allclose(twice - nothing, 2 * (found - nothing), rtol=1e-5)
    np.testing.assert_allclose((found - nothing) / (found - nothing)[0], own() / own()[0], rtol=1e-3)
    assert moved.scale.total == 5


def train(episodic: str, out: Path, **options: Any) -> pcpg.Run:
    config = {
        "ppo": {"num_updates": 2, "num_episodes": 16, "minibatch_size": 32, "hidden": [8]},
        "explore": {"max_policies": 3, "visit_episodes": 8, "num_groups": 4, "episodic": episodic},
        "exploit": {"num_rounds": 1},
    }
    return pcpg.train("Chain-v0", "pcpg", config=config, out=out, progress=False, **options)


@pytest.mark.parametrize("episodic", ["beside", "times"])
def test_pcpg_trains_the_networks_of_the_episodic_bonus_in_every_round_of_updates(
    episodic: Any, tmp_path: Path
) -> None:
    run = train(episodic, tmp_path / "run")
    rounds = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    losses = [entry.get("train/inverse_loss") for entry in rounds]
    assert losses[0] is None, "the first policy is not trained"
    assert len(losses) == 4 and all(loss > 0 for loss in losses[1:])
    assert losses[1] != losses[2]


def test_a_run_with_both_bonuses_that_was_stopped_ends_as_one_left_alone(tmp_path: Path) -> None:
    whole = train("beside", tmp_path / "whole")
    train("beside", tmp_path / "stopped", observer=lambda progress: progress.step < 2)
    again = pcpg.resume(tmp_path / "stopped", progress=False)
    for name in ("metrics.jsonl", "policy.safetensors", "summary.json"):
        assert (again.path / name).read_bytes() == (whole.path / name).read_bytes()


def test_a_negative_weight_is_refused() -> None:
    with pytest.raises(ValueError, match="episodic_coef must be 0 or more, got -1"):
        ExploreConfig(episodic_coef=-1.0)
