"""The functional environments as Gymnasium environments."""

import sys
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from pcpg.envs import Box, CombinationLock, Discrete, Image, InvalidOption, make, registry, spec
from pcpg.envs.gymnasium_bridge import FunctionalEnv, register_all, to_gymnasium_space
from tests.probes import Continuous, OneStep, Truncation


@pytest.mark.parametrize("env_id", [entry.id for entry in spec()])
def test_a_registered_environment_passes_gymnasiums_own_check(env_id: str):
    check_env(gymnasium.make(f"pcpg/{env_id}").unwrapped)  # its warnings are errors here


def test_stepping_is_the_functional_environment_with_the_same_keys():
    functional = make("CombinationLock-v0", horizon=4)
    params = functional.instance(3)
    env = FunctionalEnv(functional, instance_seed=3)
    key = jax.random.key(11)
    rng = np.random.default_rng(0)
    reset, transition = jax.jit(functional.reset), jax.jit(functional.transition)
    kinds = []
    for episode in range(3):
        key, key_reset = jax.random.split(key)
        expected, state = reset(key_reset, params)
        observation, info = env.reset(seed=11 if episode == 0 else None)
        np.testing.assert_array_equal(observation, expected)
        assert info == {}
        terminated = False
        while not terminated:
            lock, kind, level = (int(part) for part in state)
            good = params.good_action[lock, min(kind, 1), min(max(level - 1, 0), 3)]
            action = int(good) if rng.random() < 0.9 else int(rng.integers(10))
            key, key_move = jax.random.split(key)
            moved = transition(key_move, state, np.int32(action), params)
            observation, reward, terminated, truncated, _ = env.step(action)
            np.testing.assert_array_equal(observation, moved.observation)
            assert (reward, terminated, truncated) == (float(moved.reward), bool(moved.terminated), False)
            state = moved.state
            kinds.append(int(state.kind))
    assert len(kinds) == 15
    assert len(set(kinds)) == 3  # good and dead states were all compared


def test_a_seed_repeats_the_episodes_and_another_does_not():
    env = FunctionalEnv(CombinationLock(horizon=8))

    def run(seed: int) -> list:
        env.reset(seed=seed)
        observations = []
        for _ in range(6):
            observations.append(env.step(0)[0].tolist())
            env.reset()
        return observations

    first, second, other = run(5), run(5), run(6)
    assert first == second
    assert first != other
    assert len({tuple(observation) for observation in first}) == 2  # a reset without a seed does not start over


def test_without_any_seed_two_environments_differ():
    openings = []
    for _ in range(40):  # alike by chance with probability 2^-39
        env = FunctionalEnv(CombinationLock())
        env.reset()
        openings.append(tuple(env.step(0)[0]))
    assert len(set(openings)) == 2


def test_options_and_the_instance_are_chosen_in_make():
    env = gymnasium.make("pcpg/CombinationLock-v0", horizon=4, instance_seed=3).unwrapped
    assert isinstance(env, FunctionalEnv)
    assert env.functional == CombinationLock(4)
    np.testing.assert_array_equal(env.params.good_action, CombinationLock(4).instance(3).good_action)
    assert env.observation_space == gymnasium.spaces.Box(0, 1, (9,), np.float32)
    assert env.action_space == gymnasium.spaces.Discrete(10)


def test_a_wrong_option_in_make_is_named():
    with pytest.raises(InvalidOption, match="has no option 'horizn'; did you mean 'horizon'"):
        gymnasium.make("pcpg/CombinationLock-v0", horizn=4)


def test_environments_with_equal_options_share_one_compilation():
    first, second = (FunctionalEnv(CombinationLock(6), instance_seed=seed) for seed in (0, 1))
    assert first._programs is second._programs
    for env in (first, second, first):
        env.reset(seed=0)
        env.step(1)
        env.step(np.int64(2))
    compiled: Any = first._programs
    assert (compiled.step._cache_size(), compiled.reset._cache_size()) == (1, 1)


def test_a_time_limit_truncates():
    env = FunctionalEnv(Truncation(limit=2))
    env.reset(seed=0)
    assert env.step(0) == (np.float32([1.0]), 1.0, False, False, {})
    assert env.step(0) == (np.float32([1.0]), 1.0, False, True, {})


def test_a_step_without_reset_is_refused_at_the_start_and_after_the_end():
    env = FunctionalEnv(OneStep())
    with pytest.raises(gymnasium.error.ResetNeeded, match="call reset"):
        env.step(0)
    env.reset(seed=0)
    assert env.step(0)[2] is True
    with pytest.raises(gymnasium.error.ResetNeeded, match="call reset"):
        env.step(0)


@pytest.mark.parametrize("action", [10, -1, 1.5, np.array([1]), "left"])
def test_an_action_outside_a_discrete_space_is_refused(action):
    env = FunctionalEnv(CombinationLock(2))
    env.reset(seed=0)
    with pytest.raises(ValueError, match="action must be an integer from 0 to 9, got"):
        env.step(action)


def test_a_real_action_may_have_any_precision_but_only_one_shape():
    env = FunctionalEnv(Continuous())
    env.reset(seed=0)
    assert env.step(np.array([0.25], np.float64))[1] == -0.0625
    env.reset()
    with pytest.raises(ValueError, match=r"action must have shape \(1,\), got \(\)"):
        env.step(0.25)


def test_observations_are_arrays_that_the_user_may_write_to():
    env = FunctionalEnv(CombinationLock(2))
    first, _ = env.reset(seed=0)
    second, *_ = env.step(0)
    for observation in (first, second):
        observation[:] = 7.0
    assert env.step(0)[0].max() <= 1.0


def test_spaces_are_translated():
    assert to_gymnasium_space(Discrete(4)) == gymnasium.spaces.Discrete(4)
    assert to_gymnasium_space(Box(-1.0, 2.0, (3,))) == gymnasium.spaces.Box(-1, 2, (3,), np.float32)
    assert to_gymnasium_space(Image(4, 5, 3)) == gymnasium.spaces.Box(0, 255, (4, 5, 3), np.uint8)


def test_vector_environments_of_gymnasium_work():
    envs = gymnasium.make_vec("pcpg/CombinationLock-v0", num_envs=3, vectorization_mode="sync", horizon=2)
    envs.reset(seed=0)
    ends = [envs.step(np.array([0, 4, 9]))[2].tolist() for _ in range(5)]
    envs.close()
    assert [all(end) for end in ends] == [False, False, True, False, False]


@pytest.fixture
def scratch_registries(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Copies of both registries that are thrown away after the test; returns Gymnasium's."""
    theirs = dict(gymnasium.registry)
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))
    monkeypatch.setattr(gymnasium.envs.registration, "registry", theirs)
    monkeypatch.setattr(gymnasium, "registry", theirs)
    return theirs


def test_registering_again_adds_what_is_new_and_leaves_the_rest(scratch_registries: dict[str, Any]):
    register_all()  # what was registered since the module was imported
    before = dict(scratch_registries)
    registry.register("Mine-v0", OneStep, "for this test")
    register_all()
    assert set(scratch_registries) - set(before) == {"pcpg/Mine-v0"}
    assert all(scratch_registries[name] is kept for name, kept in before.items())


def test_gymnasium_finds_an_environment_by_the_name_of_the_module(
    scratch_registries: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    for name in [name for name in scratch_registries if name.startswith("pcpg/")]:
        del scratch_registries[name]
    monkeypatch.delitem(sys.modules, "pcpg.envs.gymnasium_bridge")  # as if nobody had imported it yet
    env = gymnasium.make("pcpg.envs.gymnasium_bridge:pcpg/Chain-v0", length=3)
    assert env.reset(seed=0)[0].tolist() == [1.0, 0.0, 0.0]
