"""Features from inverse dynamics: they keep what actions move and drop what they do not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcpg.envs.spaces import Box, Discrete
from pcpg.features.inverse_dynamics import init_inverse_dynamics, inverse_loss
from pcpg.learners.update import init_adam, minimise
from pcpg.policies.distributions import for_space

MOVES = np.array([[1, 0], [-1, 0], [0, 1], [0, -1]], np.float32)


def transitions(number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Moves in a plane, with six entries of noise beside the place."""
    rng = np.random.default_rng(0)
    place, action = rng.uniform(-1, 1, (number, 2)), rng.integers(4, size=number)
    noise = rng.uniform(-1, 1, (2, number, 6))
    here = np.concatenate([place, noise[0]], axis=1)
    after = np.concatenate([place + 0.3 * MOVES[action], noise[1]], axis=1)
    return here.astype(np.float32), after.astype(np.float32), action.astype(np.int32)


def test_trained_features_tell_places_apart_and_do_not_see_noise() -> None:
    spaces = Box(-2.0, 2.0, (8,)), Discrete(4)
    model, distribution = init_inverse_dynamics(np.random.default_rng(0), *spaces, (32, 32)), for_space(spaces[1])
    here, after, action = (jnp.asarray(part) for part in transitions(2048))

    def loss(model, part):
        value = inverse_loss(model.outputs(part[0], part[1]), part[2], jnp.ones(len(part[2]), bool), distribution)
        return value, {"loss": value}

    def by_noise(model) -> float:
        """How much noise moves features, relative to how much places do."""
        rng = np.random.default_rng(1)
        fixed, other = np.zeros((256, 8), np.float32), np.zeros((256, 8), np.float32)
        fixed[:, 2:], other[:, :2] = rng.uniform(-1, 1, (256, 6)), rng.uniform(-1, 1, (256, 2))
        return float(np.std(model.features(fixed), axis=0).sum() / np.std(model.features(other), axis=0).sum())

    before = by_noise(model)
    fit = jax.jit(
        lambda model, key: minimise(
            *(loss, model, init_adam(model), (here, after, action), key, 3e-3),
            **{"num_epochs": 30, "minibatch_size": 128, "max_grad_norm": 5.0},
        )
    )
    trained = fit(model, jax.random.key(0))[0]
    right = np.argmax(trained.outputs(here, after), axis=-1) == action
    assert right.mean() > 0.95
    assert before > 1.0 > 0.6 > by_noise(trained)


def test_the_loss_of_what_is_not_known_is_the_entropy_of_the_actions_and_masks_count() -> None:
    distribution = for_space(Discrete(4))
    outputs, actions = jnp.zeros((5, 4)).at[4, 0].set(1e3), jnp.array([0, 1, 2, 3, 3])
    mask = jnp.array([True, True, True, True, False])
    assert float(inverse_loss(outputs, actions, mask, distribution)) == pytest.approx(np.log(4), rel=1e-6)


def test_real_actions_have_a_density() -> None:
    spaces = Box(-1.0, 1.0, (3,)), Box(-1.0, 1.0, (2,))
    model = init_inverse_dynamics(np.random.default_rng(0), *spaces, (8, 8))
    outputs = model.outputs(np.zeros((5, 3), np.float32), np.ones((5, 3), np.float32))
    value = inverse_loss(outputs, jnp.zeros((5, 2)), jnp.ones(5, bool), for_space(spaces[1]))
    assert outputs.shape == (5, 4) and np.isfinite(float(value))
