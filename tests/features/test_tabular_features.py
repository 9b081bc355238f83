"""Identity, one-hot and aggregated features against their definitions."""

import jax.numpy as jnp
import numpy as np
import pytest

from pcpg.envs.lock import CombinationLock
from pcpg.envs.maze import Maze
from pcpg.envs.mountain_car import MountainCarContinuous
from pcpg.envs.protocol import Environment
from pcpg.envs.spaces import Box, Discrete
from pcpg.features import make_features
from pcpg.features.tabular import OneHot, StateIndex

LOCK = CombinationLock(horizon=3)


@Environment.register
class Stub:
    """As much of an environment as tabular features look at."""

    def __init__(self, observation_space, num_actions=2):
        self.observation_space = observation_space
        self.action_space = Discrete(num_actions)


def test_identity_is_the_observation_or_its_product_with_the_one_hot_action():
    observation = jnp.arange(8, dtype=jnp.float32)
    phi = make_features("identity", LOCK, 0)
    assert phi.dim == 8 and np.array_equal(phi(observation, jnp.int32(3)), observation)
    phi = make_features("identity", LOCK, 0, with_actions=True)
    expected = np.kron(np.eye(10)[3], np.arange(8))
    assert phi.dim == 80 and np.array_equal(phi(observation, jnp.int32(3)), expected)


def test_identity_of_an_image_lies_between_zero_and_one():
    phi = make_features("identity", Maze(4), 0)
    features = phi(jnp.full((4, 4, 3), 255, jnp.uint8), jnp.int32(0))
    assert phi.dim == 48 and np.array_equal(features, np.ones(48, np.float32))


def test_one_hot_numbers_pairs_by_state_and_then_action():
    for space, show in ((Discrete(4), jnp.int32), (Box(0.0, 1.0, (4,)), lambda s: jnp.eye(4)[s])):
        phi = make_features("one-hot", Stub(space), 0)
        assert phi.dim == 8
        for state in range(4):
            for action in range(2):
                assert np.array_equal(phi(show(state), jnp.int32(action)), np.eye(8)[2 * state + action])


def test_one_hot_by_codes_tells_apart_all_states_of_the_lock():
    codes = np.unique(LOCK.tabular(LOCK.instance(0)).observations, axis=0).astype(np.float32)
    phi = make_features("one-hot", LOCK, 0, codes=codes)
    assert phi.dim == len(codes) * 10 == (6 * 3 + 1) * 10
    actions = np.arange(len(codes)) % 10
    assert np.array_equal(phi.batch(jnp.asarray(codes), jnp.asarray(actions)).argmax(1), np.arange(19) * 10 + actions)


@pytest.mark.parametrize("observation", [[0, 0, 0], [1, 1, 0], [0.5, 0, 0], [1, 0.5, 0]])
def test_an_observation_that_is_no_state_has_zero_features(observation):
    by_place = OneHot(StateIndex(None, 3), 2)
    by_code = OneHot(StateIndex(np.eye(3, dtype=np.float32), 3), 2)
    for phi in (by_place, by_code):
        assert not phi(jnp.asarray(observation, jnp.float32), jnp.int32(1)).any()


def test_aggregation_gives_pairs_with_one_label_one_feature():
    labels = np.array([[0, 1], [0, 2], [3, 2]])
    phi = make_features("aggregation", Stub(Discrete(3)), 0, labels=labels)
    assert phi.dim == 4
    for state in range(3):
        for action in range(2):
            features = phi(jnp.int32(state), jnp.int32(action))
            assert np.array_equal(features, np.eye(4)[labels[state, action]])
    by_state = make_features("aggregation", Stub(Discrete(3)), 0, labels=[1, 0, 1])
    assert np.array_equal(by_state(jnp.int32(2), jnp.int32(0)), [0, 1])


@pytest.mark.parametrize(
    "name, env, options, message",
    [
        ("identity", MountainCarContinuous(), {"with_actions": True}, "need discrete actions"),
        ("one-hot", MountainCarContinuous(), {}, "need discrete actions"),
        ("one-hot", Maze(4), {}, "cannot be one-hot: give codes"),
        ("one-hot", LOCK, {"codes": np.zeros((5, 3))}, r"codes have shape \(5, 3\); expected \(states, 8\)"),
        ("one-hot", LOCK, {"codes": np.zeros((2, 8))}, "two states have the same code"),
        (
            "aggregation",
            Stub(Discrete(3)),
            {"labels": [[0, 1]]},
            r"labels must be integers >= 0 of shape \(3, 2\)",
        ),
        ("aggregation", Stub(Discrete(3)), {"labels": [0.5, 1, 2]}, "labels must be integers"),
    ],
)
def test_what_does_not_fit_is_refused(name, env, options, message):
    with pytest.raises(ValueError, match=message):
        make_features(name, env, 0, **options)
