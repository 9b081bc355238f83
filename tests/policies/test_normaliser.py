"""Running scales of observations and rewards."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pcpg
from pcpg.envs.spaces import Box, Discrete, Image
from pcpg.policies.host import Actor
from pcpg.policies.networks import init_actor_critic
from pcpg.policies.normaliser import Moments, init_normaliser


def test_moments_of_parts_are_those_of_the_whole():
    rng = np.random.default_rng(0)
    values, mask = rng.normal(3.0, 2.0, (300, 2)).astype(np.float32), rng.random(300) < 0.7
    moments = Moments(np.float32(0), np.zeros(2, np.float32), np.ones(2, np.float32))
    for part in np.split(np.arange(300), [10, 11, 200]):
        moments = moments.update(jnp.asarray(values[part]), jnp.asarray(mask[part]))
    assert float(moments.number) == mask.sum()
    np.testing.assert_allclose(moments.mean, values[mask].mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(moments.variance, values[mask].var(axis=0), rtol=1e-4)


def scaled_policy():
    policy = init_actor_critic(
        np.random.default_rng(0), Box(-1.0, 1.0, (3,)), Discrete(2), hidden=(4,), shared_body=True,
        normalise_observations=True,
    )  # fmt: skip
    values = np.random.default_rng(1).normal(50.0, 10.0, (100, 3)).astype(np.float32)
    normaliser = policy.normaliser.with_observations(jnp.asarray(values), jnp.ones(100, bool))
    return jax.device_get(jax.tree.map(lambda x: x, policy.__class__(**vars(policy) | {"normaliser": normaliser})))


def test_a_policy_sees_scaled_observations_compiled_and_on_the_host():
    policy = scaled_policy()
    seen = policy.normaliser.seen(np.full((1, 3), 1e6, np.float32))
    np.testing.assert_array_equal(seen, np.full((1, 3), 10.0))
    observations = np.random.default_rng(2).normal(50.0, 10.0, (5, 3)).astype(np.float32)
    np.testing.assert_allclose(Actor(policy)(observations), policy.outputs(observations), rtol=1e-4, atol=1e-6)


def test_no_gradient_reaches_the_scales():
    gradient = jax.grad(lambda policy: jnp.sum(policy.value(jnp.ones((2, 3)))))(scaled_policy())
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(gradient.normaliser))
    assert np.any(gradient.actor_body.layers[0].weight)


def test_images_are_not_scaled_a_second_time():
    with pytest.raises(ValueError, match="images are already scaled"):
        init_actor_critic(
            np.random.default_rng(0), Image(16, 16, 3), Discrete(2), hidden=(4,), shared_body=True,
            normalise_observations=True,
        )  # fmt: skip
    assert init_normaliser((3,), observations=False, returns=False) is None


def test_the_scales_are_saved_with_the_policies_and_the_cover(tmp_path):
    config = {
        "ppo": {"num_updates": 2, "num_episodes": 32, "hidden": [8], "normalise_observations": True,
                "normalise_rewards": True},
        "explore": {"max_policies": 3, "visit_episodes": 8, "num_groups": 4},
        "exploit": {"num_rounds": 1},
    }  # fmt: skip
    run = pcpg.train("ProbeDelayed-v0", config=config, out=tmp_path / "run")
    normaliser = pcpg.load(tmp_path / "run").policy.network.normaliser
    # Two decisions an episode; the first policy of the cover has learned nothing yet.
    assert normaliser.observations.number == normaliser.returns.number == 3 * 2 * 32 * 2
    np.testing.assert_array_equal(run.cover.members.normaliser.observations.number, [0, 128, 256])
    assert 0 < normaliser.returns.variance < 1
