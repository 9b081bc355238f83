"""No key is used twice, and programs run the same where the user has switched 64-bit numbers on."""

import dataclasses

import jax
import numpy as np
import pytest

from pcpg.algorithms import Assets, World
from pcpg.algos.pcpg_settings import ExploitConfig, ExploreConfig, PCPGConfig
from pcpg.algos.ppo import BaselineConfig
from pcpg.bonuses.e3b import E3B
from pcpg.bonuses.rnd import RND
from pcpg.cover.cover import add_member, with_weights
from pcpg.engine import play
from pcpg.engine.together import stepped
from pcpg.envs.given_reward import GivenReward
from pcpg.envs.lock import CombinationLock
from pcpg.features import make_features
from pcpg.learners import ppo_host
from pcpg.learners.settings import PPOConfig
from pcpg.state import DONE
from tests import probes

pytestmark = pytest.mark.slow

TINY = PPOConfig(num_updates=2, num_episodes=32, minibatch_size=32, hidden=(16,))
LOCK = CombinationLock(horizon=2)


def baseline(env, bonus=None, **settings):
    # One round reaches the budget.
    config = BaselineConfig(ppo=TINY, bonus=bonus, budget=1, visit_episodes=32, **settings)
    return config.agent(World(env))


def pcpg(env=LOCK, **changes):
    explore = dataclasses.replace(ExploreConfig(num_groups=8, visit_episodes=32, max_policies=3), **changes)
    config = PCPGConfig(TINY, explore, ExploitConfig(num_rounds=1))
    return config.agent(World(env, features=lambda: make_features("identity", env, 0)))


def exploiter():
    fresh = pcpg().init(0)
    cover = add_member(fresh.own.cover, fresh.policy, np.eye(fresh.own.cover.sigmas.shape[-1]))
    config = PCPGConfig(TINY, ExploreConfig(num_groups=8, visit_episodes=32), ExploitConfig(num_rounds=1))
    reward = GivenReward(LOCK, lambda observation, action, following: following.sum() - action)
    return config.agent(World(reward, assets={0: Assets(with_weights(cover, np.ones(1)))}))


AGENTS = {
    "exploit, a reward given": exploiter,
    "pcpg": pcpg,
    "pcpg-bonus": lambda: pcpg(reward_coef=1.0),
    "ppo": lambda: baseline(LOCK),
    "ppo-rnd": lambda: baseline(LOCK, RND(normalise=True)),
    "ppo-e3b": lambda: baseline(LOCK, E3B()),
    "ppo-e3b, autoreset": lambda: baseline(LOCK, E3B(), autoreset=True),
    "ppo-e3b, continuous actions": lambda: baseline(probes.Continuous(), E3B()),
    "ppo, autoreset": lambda: baseline(LOCK, autoreset=True),
    "ppo-rnd, autoreset": lambda: baseline(LOCK, RND(normalise=True), autoreset=True),
    "ppo, continuous actions": lambda: baseline(probes.Continuous()),
    "pcpg, continuous actions": lambda: pcpg(probes.Continuous()),
}


class Tracer:
    """Stands in for `Program`: traces, which is when keys and types are checked, and answers with ones of the shape."""

    def __init__(self, function, lanes, axes=0):
        self.function = function
        self.types = []

    def __call__(self, inputs):
        traced = jax.jit(lambda inputs: self.function(inputs)).trace(inputs[0])
        self.types = [out.dtype for out in jax.tree.leaves(traced.out_info)]
        ones = jax.tree.map(lambda out: np.ones(out.shape, out.dtype), traced.out_info)
        return [ones for _ in inputs]


def train(agent):
    """A seed from its beginning to its end."""
    state = agent.init(0)
    while state.phase != DONE:
        ((state, _),) = stepped(agent, [state])
    return state


def traced(name, monkeypatch):
    """The agent after a whole run in which every program was traced and none compiled."""
    monkeypatch.setattr(ppo_host, "Program", Tracer)
    monkeypatch.setattr(play, "Programs", Tracer)
    agent = AGENTS[name]()
    train(agent)
    return agent


@pytest.mark.parametrize("name", AGENTS)
def test_no_program_of_an_agent_uses_a_key_twice(name, monkeypatch):
    with jax.debug_key_reuse(True):
        traced(name, monkeypatch)


def test_the_check_of_keys_would_notice():
    def twice(key):
        return jax.lax.scan(lambda total, _: (total + jax.random.normal(key), None), 0.0, length=2)[0]

    with jax.debug_key_reuse(True), pytest.raises(jax.errors.KeyReuseError):
        jax.jit(lambda seed: twice(jax.random.key(seed))).trace(0)


@pytest.mark.parametrize("name", AGENTS)
def test_with_64_bit_numbers_switched_on_all_results_keep_their_types(name, monkeypatch):
    expected = traced(name, monkeypatch)
    jax.config.update("jax_enable_x64", True)
    try:
        agent = traced(name, monkeypatch)
    finally:
        jax.config.update("jax_enable_x64", False)
    for part in ("improve", "visit"):
        types = vars(agent)[part].run.types
        assert types == vars(expected)[part].run.types
        assert set(map(str, types)) <= {"float32", "int32", "bool"}


def test_with_64_bit_numbers_switched_on_a_run_has_the_same_results():
    expected = train(pcpg())
    jax.config.update("jax_enable_x64", True)
    try:
        state = train(pcpg())
    finally:
        jax.config.update("jax_enable_x64", False)
    assert int(state.ledger.env_steps) == int(expected.ledger.env_steps)
    np.testing.assert_array_equal(state.ledger.seen, expected.ledger.seen)
    for leaf, same in zip(jax.tree.leaves(state), jax.tree.leaves(expected), strict=True):
        assert leaf.dtype == same.dtype
        # Optax corrects its bias in 64 bits then: the same random numbers, another rounding.
        np.testing.assert_allclose(leaf, same, rtol=1e-3, atol=1e-4)
