"""What all feature maps share, and how they are made by name."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

from pcpg.envs.lock import CombinationLock
from pcpg.envs.maze import Maze
from pcpg.envs.mountain_car import MountainCarContinuous
from pcpg.features import FEATURES, FeatureMap, make_features
from pcpg.features.examples import random_play

LOCK, MAZE, CAR = CombinationLock(horizon=3), Maze(8), MountainCarContinuous()
CODES = np.unique(LOCK.tabular(LOCK.instance(0)).observations, axis=0)  # s0 and the end look the same
MADE = {
    "identity": (LOCK, {"with_actions": True}),
    "one-hot": (LOCK, {"codes": CODES}),
    "aggregation": (LOCK, {"codes": CODES, "labels": np.arange(len(CODES)) // 2}),
    "fourier": (CAR, {"num_features": 16}),
    "random-conv": (MAZE, {"num_features": 32, "num_kernels": (4, 8)}),
    "random-mlp": (CAR, {"num_features": 16}),
}
MADE |= {name: (CAR, {}) for name in FEATURES if name not in MADE}  # a new map with its defaults


@functools.cache
def pairs_of(env):
    return random_play(env, np.random.default_rng(1), 6, num_envs=3)


@jax.jit
def features_of(phi, observations, actions):
    return phi.batch(observations, actions)


@pytest.mark.parametrize("name", MADE)
def test_a_map_gives_dim_float32_features_alone_and_in_batches_and_depends_on_its_seed_only(name):
    env, options = MADE[name]
    phi = make_features(name, env, 7, **options)
    assert isinstance(phi, FeatureMap)
    observations, actions = pairs_of(env)
    many = features_of(phi, observations, actions)
    assert many.shape == (6, phi.dim) and many.dtype == jnp.float32
    one = jax.jit(lambda phi: phi(jnp.asarray(observations[4]), jnp.asarray(actions[4])))(phi)
    np.testing.assert_allclose(one, many[4], atol=1e-6)
    again = make_features(name, env, 7, **options)
    assert eqx.tree_equal(phi, again)
    other = make_features(name, env, 8, **options)
    drawn = name in ("fourier", "random-conv", "random-mlp")
    assert eqx.tree_equal(phi, other) is not drawn


@pytest.mark.parametrize("name", MADE)
def test_maps_of_several_seeds_stack_into_one_of_arrays_only(name):
    env, options = MADE[name]
    maps = [make_features(name, env, seed, **options) for seed in range(2)]
    leaves = jax.tree.leaves(maps[0])
    assert all(isinstance(leaf, np.ndarray) for leaf in leaves)
    assert all(leaf.dtype == np.float32 or leaf.dtype.kind in "iu" for leaf in leaves)
    observations, actions = pairs_of(env)
    if leaves:
        stacked = jax.tree.map(lambda *parts: np.stack(parts), *maps)
        both = jax.jit(jax.vmap(features_of, (0, None, None)))(stacked, observations, actions)
        np.testing.assert_allclose(both[1], features_of(maps[1], observations, actions), atol=1e-6)
    assert hash(jax.tree.structure(maps[0])) == hash(jax.tree.structure(maps[1]))


def equations(jaxpr):
    """All equations of a jaxpr, those of inner ones too."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in jaxprs_in_params(equation.params):
            yield from equations(inner)


@pytest.mark.parametrize("name, products", [("fourier", 1), ("random-conv", 3), ("random-mlp", 2)])
def test_every_product_is_asked_for_in_full_precision(name, products):
    # On a GPU the default is TF32, whose rounding is larger than the bonus.
    env, options = MADE[name]
    phi = make_features(name, env, 0, **options)
    traced = jax.make_jaxpr(features_of)(phi, *pairs_of(env))
    found = [e for e in equations(traced.jaxpr) if e.primitive.name in ("dot_general", "conv_general_dilated")]
    assert len(found) == products
    highest = jax.lax.Precision.HIGHEST
    assert all(e.params["precision"] in (highest, (highest, highest)) for e in found)


def test_a_wrong_name_or_option_is_refused_with_the_nearest_valid_one():
    with pytest.raises(ValueError, match=r"unknown features 'fourrier'; did you mean 'fourier'\?"):
        make_features("fourrier", CAR, 0)
    with pytest.raises(ValueError, match=r"unknown option of fourier features 'num_feature'; did you mean 'num_f"):
        make_features("fourier", CAR, 0, num_feature=3)


def test_random_play_meets_pairs_of_the_spaces_of_the_environment():
    for env in (LOCK, MAZE, CAR):
        observations, actions = pairs_of(env)
        assert len(observations) == len(actions) == 6
        assert all(env.observation_space.contains(o) for o in observations)
        assert all(env.action_space.contains(a) for a in actions)
