"""Minibatches in shards: the steps of whole ones, whatever computes them."""

from typing import Any

import jax
import numpy as np
import pytest

import pcpg
from pcpg.config import PPOConfig

SMALL: dict[str, Any] = {"num_updates": 2, "num_episodes": 16, "hidden": [8], "num_epochs": 2, "minibatch_size": 64}


@pytest.mark.parametrize("algo", ["ppo", "ppo-rnd"])
def test_minibatches_in_shards_take_the_steps_of_whole_ones(algo: str) -> None:
    def trained(shards: int) -> list[np.ndarray]:
        config = {"ppo": SMALL | {"shards": shards}, "visit_episodes": 8, "budget": 500}
        run = pcpg.train("gymnasium:CartPole-v1", algo, max_steps=20, num_envs=8, config=config)
        assert ("shards" in run.config.to_json()["agent"]["ppo"]) is (shards > 1)
        return [np.asarray(leaf) for leaf in jax.tree.leaves(run.policy.network)]

    for whole, cut in zip(trained(1), trained(4), strict=True):
        np.testing.assert_allclose(whole, cut, rtol=1e-3, atol=1e-5)


def test_shards_must_divide_a_minibatch() -> None:
    with pytest.raises(ValueError, match="shards must be 1 or more and divide minibatch_size, got 3"):
        PPOConfig(minibatch_size=64, shards=3)
    with pytest.raises(ValueError, match="got 0"):
        PPOConfig(shards=0)
