"""`improve` on tasks whose values are known, and what a round of updates must and must not depend on."""

import dataclasses
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params
from scipy import special

from pcpg.algorithms import World
from pcpg.algos.on_policy import check_updates
from pcpg.algos.ppo import BaselineConfig
from pcpg.algos.rounds import check_visits
from pcpg.bonuses.elliptical import Elliptical
from pcpg.bonuses.protocol import CoverArrays
from pcpg.bonuses.rnd import RND, prediction_error
from pcpg.cover.bonus import whitening
from pcpg.engine.play import VisitInputs, Visitor, Visits
from pcpg.engine.program import Program
from pcpg.engine.together import stepped
from pcpg.envs.lock import CombinationLock
from pcpg.envs.protocol import Environment, Step
from pcpg.envs.spaces import Box, Discrete
from pcpg.features import make_features
from pcpg.learners import ppo as improve_module
from pcpg.learners.ppo import ImproveInputs, ImproveOutputs, Learner, earned, make_task
from pcpg.learners.settings import PPOConfig
from pcpg.learners.update import init_adam
from pcpg.policies.networks import init_actor_critic
from pcpg.state import Ledger, NonFinite, SeedState
from tests import probes

TINY = PPOConfig(num_updates=2, num_episodes=32, minibatch_size=32, hidden=(16,))


def network(env, seed=0):
    rng = np.random.default_rng(seed)
    return init_actor_critic(rng, env.observation_space, env.action_space, hidden=(16,), shared_body=True)


def task(**changes):
    numbers: dict[str, Any] = {
        "reward_coef": 1.0,
        "bonus_coef": 0.0,
        "start_share": 0.0,
        "epsilon": 0.05,
        "learning_rate": (1e-3, 1e-3),
        "entropy_coef": (0.01, 0.01),
        "advantage_floor": 0.0,
    }
    return make_task(**numbers | changes)


def assert_same(a, b):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)


def differ(a, b):
    return any((x != y).any() for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


# Probes: after a few updates the value and the policy are those that can be computed by hand.

PROBE = PPOConfig(60, 64, minibatch_size=64, learning_rate=1e-2, gamma=0.5, entropy_coef=0.0, hidden=(16,))


def trained(env, autoreset=False, **changes):
    """Values and outputs of the policy after one round on a probe, as functions of observations."""
    config = dataclasses.replace(PROBE, **changes)
    policy = network(env)
    settings = task(learning_rate=(config.learning_rate, 0.0), entropy_coef=(0.0, 0.0), epsilon=0.0, start_share=1.0)
    inputs = ImproveInputs(np.uint32(0), np.int32(0), env.instance(0), policy, init_adam(policy), settings, None, None)
    (output,) = Program(Learner(env, config, autoreset=autoreset).improve, lanes=1)([inputs])
    assert output.finite.all()
    assert int(output.env_steps) == config.num_updates * config.num_episodes * env.max_steps
    return (lambda x: np.asarray(output.policy.value(np.float32(x)))), (
        lambda x: np.asarray(output.policy.outputs(np.float32(x)))
    )


def test_the_value_of_one_step_with_reward_one_is_one():
    value, _ = trained(probes.OneStep())
    np.testing.assert_allclose(value([[1.0]]), 1.0, atol=0.02)


def test_the_values_of_two_states_are_their_rewards():
    value, _ = trained(probes.TwoStates())
    np.testing.assert_allclose(value([[1.0], [-1.0]]), [1.0, -1.0], atol=0.1)


def test_a_delayed_reward_is_credited_to_the_decision_that_earned_it_and_discounted_once():
    value, outputs = trained(probes.Delayed())
    np.testing.assert_allclose(value([[1.0, 0.0], [-1.0, 0.0]]), 0.5, atol=0.05)  # gamma
    np.testing.assert_allclose(value([[1.0, 1.0]]), 1.0, atol=0.05)
    chances = special.softmax(outputs([[1.0, 0.0], [-1.0, 0.0]]), axis=-1)
    assert chances[0, 1] > 0.95 and chances[1, 0] > 0.95


def test_a_value_is_bootstrapped_where_a_time_limit_cuts_the_episode():
    # Reward 1 for ever: 1 / (1 - 0.8) = 5. Cut after 3 steps without bootstrapping, at most 2.44.
    value, _ = trained(probes.Truncation(limit=3), gamma=0.8, num_updates=100)
    np.testing.assert_allclose(value([[1.0]]), 5.0, atol=0.2)


def test_the_policy_learns_the_action_that_pays():
    value, outputs = trained(probes.Action())
    assert special.softmax(outputs([[1.0]]), axis=-1)[0, 1] > 0.95
    np.testing.assert_allclose(value([[1.0]]), 1.0, atol=0.05)


def test_a_gaussian_policy_finds_the_best_real_action():
    _, outputs = trained(probes.Continuous())
    mean, log_std = outputs([[1.0]])[0]
    np.testing.assert_allclose(mean, 0.5, atol=0.1)
    assert log_std < -0.5  # and grows sure of it


# Autoreset: episodes of 1 to 3 decisions, one after the other, in windows of 7.

WINDOW, PLACES = 7, 16


@dataclasses.dataclass(frozen=True)
class Relay(probes.Probe):
    """What will happen in an episode is drawn at its start and shown: the observation is (time, *plan).

    The plan is its length, whether its end is a truncation, and a number of its own.
    """

    @property
    def observation_space(self):
        return Box(0.0, 3.0, (4,))

    @property
    def max_steps(self):
        return WINDOW

    def reset(self, key, params):
        key_length, key_kind, key_own = jax.random.split(key, 3)
        length = jax.random.randint(key_length, (), 1, 4).astype(jnp.float32)
        kind = jax.random.bernoulli(key_kind).astype(jnp.float32)
        state = probes.ProbeState(
            jnp.zeros(()), jnp.stack([length, kind, jax.random.uniform(key_own, (), jnp.float32, 0.0, 3.0)])
        )
        return self.observe(state), state

    def transition(self, key, state, action, params):
        moved = probes.ProbeState(state.time + 1, state.memory)
        reward = state.time + 0.5 * action + state.memory[2]
        ended, truncates = moved.time >= state.memory[0], state.memory[1] == 1
        return Step(self.observe(moved), moved, reward, ended & ~truncates, ended & truncates, {})

    def observe(self, state):
        return jnp.concatenate([state.time[None], state.memory])


RELAY_CONFIG = PPOConfig(num_updates=2, num_episodes=PLACES, minibatch_size=PLACES, hidden=(16,), gamma=0.9)
RELAY = Learner(Relay(), RELAY_CONFIG, autoreset=True)


def fresh_rnd():
    spaces = Relay().observation_space, Relay().action_space
    return RND().init(np.random.default_rng(3), *spaces, (16,))


def relay_inputs(seed=0, rnd=None, **changes):
    policy = network(Relay(), seed)
    # Larger weights, so that values of observations lie apart.
    policy = jax.tree.map(lambda leaf: np.float32(3.0) * leaf, policy)
    adam = init_adam((policy, None if rnd is None else rnd.predictor))
    return ImproveInputs(np.uint32(seed), np.int32(0), (), policy, adam, task(**changes), None, rnd)


class Episode(NamedTuple):
    place: int
    start: int
    stop: int
    end: str  # terminated, truncated, or cut by the end of the window
    seen: np.ndarray  # [stop - start + 1, 4] the true last observation included
    rewards: np.ndarray


def episodes_of(data):
    """The episodes of a rollout one by one, played again by hand from what their first observation announces."""
    episodes = []
    for place in range(PLACES):
        start = 0
        while start < WINDOW:
            _, length, kind, own = data.observations[start, place]
            stop = min(start + int(length), WINDOW)
            times = np.arange(stop - start + 1)
            seen = np.stack([np.float32([time, length, kind, own]) for time in times])
            rewards = times[:-1] + 0.5 * data.actions[start:stop, place] + own
            end = ("truncated" if kind else "terminated") if stop - start == length else "cut"
            episodes.append(Episode(place, start, stop, end, seen, rewards))
            start = stop
    return episodes


@pytest.fixture(scope="module")
def relay():
    """A rollout with autoreset, and what the update learned from it."""
    inputs, batches = relay_inputs(), []

    def keep(loss, params, adam, batch, *args, **options):
        batches.append(batch)
        return params, adam, {"policy_loss": jnp.zeros(()), "value_loss": jnp.zeros(())}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(improve_module, "minimise", keep)
        data = RELAY.gather(inputs.common, inputs.policy, jax.random.key(5))
        keys = (jax.random.key(1), jax.random.key(2))
        _, measured = RELAY.learn(inputs.common, inputs.carry, data, keys, jnp.float32(0.0))
    samples = jax.tree.map(lambda x: np.asarray(x).reshape(WINDOW, PLACES, *x.shape[1:]), batches[0])
    return jax.device_get(data), samples, jax.device_get(measured)


def test_with_autoreset_a_window_holds_episodes_of_every_length_and_end(relay):
    data, _, (_, steps, _) = relay
    episodes = episodes_of(data)
    assert {(e.end, e.stop - e.start) for e in episodes} >= {
        (k, n) for k in ("terminated", "truncated") for n in (1, 2, 3)
    }
    assert {e.end for e in episodes if e.stop == WINDOW} == {"terminated", "truncated", "cut"}
    assert data.alive.all() and int(steps) == WINDOW * PLACES
    for e in episodes:
        np.testing.assert_array_equal(data.observations[e.start : e.stop, e.place], e.seen[:-1])
        np.testing.assert_array_equal(data.next_observations[e.start : e.stop, e.place], e.seen[1:])
        np.testing.assert_allclose(data.rewards[e.start : e.stop, e.place], e.rewards, rtol=1e-6)
        for kind in ("terminated", "truncated"):
            marks = getattr(data, kind)[e.start : e.stop, e.place]
            np.testing.assert_array_equal(marks, (np.arange(e.start, e.stop) == e.stop - 1) & (e.end == kind))


def test_with_autoreset_advantages_and_targets_are_those_of_the_episodes_one_by_one(relay):
    data, samples, _ = relay
    value, gamma, lam = relay_inputs().policy.value, RELAY_CONFIG.gamma, RELAY_CONFIG.gae_lambda
    advantages, targets = np.zeros((2, WINDOW, PLACES))
    for e in episodes_of(data):
        values = np.asarray(value(e.seen), np.float64)
        last = 0.0
        for i in reversed(range(e.stop - e.start)):
            nothing_follows = e.end == "terminated" and e.start + i == e.stop - 1
            following = 0.0 if nothing_follows else values[i + 1]
            last = e.rewards[i] + gamma * following - values[i] + gamma * lam * last
            advantages[e.start + i, e.place], targets[e.start + i, e.place] = last, last + values[i]
    assert samples.mask.all()
    np.testing.assert_allclose(samples.targets, targets, rtol=1e-4, atol=1e-4)
    expected = (advantages - advantages.mean()) / advantages.std()
    np.testing.assert_allclose(samples.advantages, expected, rtol=1e-3, atol=1e-4)
    # The value of the next episode's first observation in place of the true last one would be far off.
    wrong = np.asarray(value(data.observations[1:])) - np.asarray(value(data.next_observations))
    assert np.abs(wrong[:-1][data.truncated[:-1]]).min() > 1e-3


def test_with_autoreset_the_return_is_the_mean_over_the_episodes_that_ended(relay):
    data, _, (metrics, _, _) = relay
    returns = [e.rewards.sum() for e in episodes_of(data) if e.end != "cut"]
    np.testing.assert_allclose(metrics["return"], np.mean(returns), rtol=1e-5)


def test_with_autoreset_distillation_pays_for_the_true_last_observation_of_an_episode():
    rnd, learner = fresh_rnd(), dataclasses.replace(RELAY, bonus=RND())
    inputs = relay_inputs(rnd=rnd)
    data = learner.gather(inputs.common, inputs.policy, jax.random.key(5))
    bonus, _ = learner.bonus.pay(rnd, data, learner.at(inputs.common))
    for e in episodes_of(jax.device_get(data)):
        expected = prediction_error(rnd.predictor, rnd.target, e.seen[1:])
        np.testing.assert_allclose(bonus[e.start : e.stop, e.place], expected, rtol=1e-4, atol=1e-6)


def test_with_autoreset_rewards_and_bonuses_are_scaled_by_the_discounted_returns_of_the_episodes_one_by_one():
    rnd, learner = fresh_rnd(), dataclasses.replace(RELAY, bonus=RND(normalise=True))
    inputs = relay_inputs(rnd=rnd)
    rng, space = np.random.default_rng(0), Relay().observation_space
    policy = init_actor_critic(rng, space, Discrete(2), hidden=(16,), shared_body=True, normalise_rewards=True)
    data = learner.gather(inputs.common, policy, jax.random.key(5))
    _, normaliser = earned(policy, data, learner.config.gamma)
    _, after = learner.bonus.pay(rnd, data, learner.at(inputs.common))
    rewarded, paid = [], []
    for e in episodes_of(jax.device_get(data)):
        errors = np.asarray(prediction_error(rnd.predictor, rnd.target, e.seen[1:]))
        for rewards, returns in ((e.rewards, rewarded), (errors, paid)):
            total = 0.0
            for reward in rewards:
                total = RELAY_CONFIG.gamma * total + reward
                returns.append(total)
    assert normaliser is not None and normaliser.returns is not None
    np.testing.assert_allclose(normaliser.returns.variance, np.var(rewarded), rtol=1e-3)
    np.testing.assert_allclose(after.scale.variance, np.var(paid), rtol=1e-3)


def test_with_autoreset_every_update_has_all_its_steps_and_the_same_seed_gives_the_same_bits():
    program = Program(RELAY.improve, lanes=1)
    first, again, other = program([relay_inputs(0), relay_inputs(0), relay_inputs(1)])
    assert_same(first, again)
    assert differ(first.policy, other.policy)
    assert int(first.env_steps) == 2 * WINDOW * PLACES
    assert int(first.adam.steps) == 2 * RELAY_CONFIG.num_epochs * WINDOW  # no minibatch is left out
    assert first.finite.all() and np.isfinite(first.metrics["return"])


def test_where_all_episodes_have_their_full_length_autoreset_changes_nothing():
    # An episode of this lock has 3 decisions, always.
    settings = task(start_share=1.0)
    (off,), (on,) = (
        Program(Learner(LOCK, TINY, autoreset=autoreset).improve, lanes=1)(
            [inputs_of(0, cover=False)._replace(task=settings)]
        )
        for autoreset in (False, True)
    )
    assert int(on.env_steps) == int(off.env_steps)
    for one, same in zip(jax.tree.leaves(on), jax.tree.leaves(off), strict=True):
        np.testing.assert_allclose(one, same, rtol=1e-4, atol=1e-5)


@dataclasses.dataclass(frozen=True)
class Roomy(Environment[Any, Any]):
    """An environment that says that its episodes may be longer than they are."""

    inner: Environment[Any, Any]

    @property
    def observation_space(self):
        return self.inner.observation_space

    @property
    def action_space(self):
        return self.inner.action_space

    @property
    def max_steps(self):
        return WINDOW

    def instance(self, seed):
        return self.inner.instance(seed)

    def reset(self, key, params):
        return self.inner.reset(key, params)

    def transition(self, key, state, action, params):
        return self.inner.transition(key, state, action, params)


def test_with_autoreset_values_and_policies_are_learned_as_without():
    value, outputs = trained(Roomy(probes.Delayed()), autoreset=True)
    np.testing.assert_allclose(value([[1.0, 0.0], [-1.0, 0.0]]), 0.5, atol=0.05)  # gamma
    np.testing.assert_allclose(value([[1.0, 1.0]]), 1.0, atol=0.05)
    chances = special.softmax(outputs([[1.0, 0.0], [-1.0, 0.0]]), axis=-1)
    assert chances[0, 1] > 0.95 and chances[1, 0] > 0.95


def test_with_autoreset_a_value_is_bootstrapped_where_a_time_limit_cuts_an_episode():
    value, _ = trained(Roomy(probes.Truncation(limit=3)), autoreset=True, gamma=0.8)
    np.testing.assert_allclose(value([[1.0]]), 5.0, atol=0.2)


def test_with_autoreset_a_last_observation_that_is_not_finite_is_noticed_although_a_new_episode_follows():
    env = probes.NonFinite(finite_steps=1, where="observation")
    agent = BaselineConfig(ppo=TINY, visit_episodes=32, autoreset=True).agent(World(env))
    with pytest.raises(NonFinite, match="an observation became non-finite in update 0"):
        stepped(agent, [agent.init(7)])


# A round through a cover, on the smallest lock.

LOCK = CombinationLock(horizon=2)
PHI = make_features("identity", LOCK, 0)
LEARNER = Learner(LOCK, TINY, num_groups=8, bonus=Elliptical(), sample_share=0.0)


def inputs_of(seed=0, *, number=0, cover=True, **changes):
    policy = network(LOCK, seed)
    arrays = None
    if cover:
        members = jax.tree.map(lambda *leaves: np.stack(leaves), *[network(LOCK, 100 + seed + i) for i in range(3)])
        whiten = whitening(np.diag(np.arange(PHI.dim) / PHI.dim), 0.01).astype(np.float32)
        arrays = CoverArrays(PHI, whiten, members, np.float32([0.25, 0.75, 0.0]))
    settings = task(bonus_coef=1.0, **changes)
    adam = init_adam(policy)
    return ImproveInputs(np.uint32(seed), np.int32(number), LOCK.instance(seed), policy, adam, settings, arrays, None)


@pytest.fixture(scope="module")
def program():
    return Program(LEARNER.improve, lanes=1)


@pytest.fixture(scope="module")
def alone(program):
    """Four seeds, each in a call of its own."""
    return [program([inputs_of(seed)])[0] for seed in range(4)]


def test_a_round_counts_every_step_of_its_episodes_the_roll_in_included(alone):
    # An episode of this lock has 3 decisions, always.
    assert [int(output.env_steps) for output in alone] == [2 * 32 * 3] * 4
    assert all(output.finite.all() and output.finite.shape == (2, 4) for output in alone)


def test_a_round_takes_a_gradient_step_for_each_minibatch_of_each_pass(alone):
    # Roll-in takes half of 96 steps but for the first: (3 + 1) / 6 of them are own, two minibatches of 32.
    assert LEARNER.num_samples(True) == 64
    assert int(alone[0].adam.steps) == 2 * TINY.num_epochs * 2


def test_the_same_seed_gives_the_same_bits(program, alone):
    assert_same(program([inputs_of(0)])[0], alone[0])


def test_another_seed_or_another_round_gives_another_result(program, alone):
    def with_numbers(seed, number):
        return inputs_of(0)._replace(seed=np.uint32(seed), round=np.int32(number))

    results = program([with_numbers(0, 0), with_numbers(1, 0), with_numbers(0, 1)])
    assert_same(results[0], alone[0])
    assert differ(results[1].policy, results[0].policy)
    assert differ(results[2].policy, results[0].policy)
    assert differ(results[2].policy, results[1].policy)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 0, 2, 1), (2, 2, 0)])
def test_a_seed_gives_the_same_bits_alone_or_beside_others_in_threads(program, alone, order):
    for seed, output in zip(order, program([inputs_of(seed) for seed in order]), strict=True):
        assert_same(output, alone[seed])


def test_another_task_and_another_cover_compile_nothing(program, alone):
    before = program.compilations
    other = inputs_of(0, learning_rate=(1e-3, 0.0), reward_coef=0.0, epsilon=0.5)
    assert other.cover is not None
    other = other._replace(cover=other.cover._replace(weights=np.float32([0.0, 0.5, 0.5])))
    assert differ(program([other])[0].policy, alone[0].policy)
    assert program.compilations == before == 1


def test_no_seeds_give_no_outputs_and_compile_nothing():
    fresh = Program(LEARNER.improve, lanes=1)
    assert fresh([]) == []
    assert fresh.compilations == 0


def test_a_lane_of_a_fixed_width_depends_neither_on_its_place_nor_on_its_neighbours(alone):
    wide = Program(LEARNER.improve, lanes=4)
    together = wide([inputs_of(seed) for seed in (0, 1, 2, 3)])
    for order in [(3, 1, 0, 2), (0, 0, 0, 0), (2,), (1, 3), (3, 2, 1, 0, 1, 2)]:
        for seed, output in zip(order, wide([inputs_of(seed) for seed in order]), strict=True):
            assert_same(output, together[seed])
    assert wide.compilations == 1
    # The width is another program with other rounding, but the same algorithm: the same steps, close numbers.
    assert int(together[0].env_steps) == int(alone[0].env_steps)
    np.testing.assert_allclose(
        together[0].policy.critic_head.weight, alone[0].policy.critic_head.weight, rtol=0.05, atol=0.01
    )


def test_a_learning_rate_of_zero_leaves_the_policy_as_it_was(program):
    inputs = inputs_of(0, learning_rate=(0.0, 0.0))
    (output,) = program([inputs])
    assert_same(output.policy, inputs.policy)
    assert output.adam.mu.any()  # gradients there were


def test_learning_rate_and_entropy_go_linearly_from_the_first_update_to_after_the_last(monkeypatch):
    def fake(loss, params, adam, batch, key, learning_rate, **options):
        # The biases of the heads keep the books: the learning rate, and the weight of the entropy in the loss.
        policy, _ = params
        lower = dataclasses.replace(policy, actor_head=jax.tree.map(lambda leaf: 0.0 * leaf, policy.actor_head))
        peaked = jax.tree.map(lambda leaf: leaf.at[0].add(1e3) if leaf.ndim == 1 else leaf, lower.actor_head)
        flat = batch._replace(advantages=0.0 * batch.advantages)
        uniform_loss = loss((lower, None), flat)[0]
        peaked_loss = loss((dataclasses.replace(lower, actor_head=peaked), None), flat)[0]
        entropy_coef = (peaked_loss - uniform_loss) / jnp.log(2.0)
        bias = policy.critic_head.bias + learning_rate
        actor_bias = policy.actor_head.bias + entropy_coef
        policy = dataclasses.replace(
            policy,
            critic_head=dataclasses.replace(policy.critic_head, bias=bias),
            actor_head=dataclasses.replace(policy.actor_head, bias=actor_bias),
        )
        return (policy, None), adam, {"policy_loss": jnp.zeros(()), "value_loss": jnp.zeros(())}

    monkeypatch.setattr(improve_module, "minimise", fake)
    env = probes.OneStep()  # two actions, so an entropy of log 2 at most
    learner = Learner(env, dataclasses.replace(TINY, num_updates=4))
    policy, settings = network(env), task(learning_rate=(0.8, 0.4), entropy_coef=(0.1, 0.0))
    inputs = ImproveInputs(np.uint32(0), np.int32(0), (), policy, init_adam(policy), settings, None, None)
    output = jax.jit(lambda inputs: learner.improve(inputs))(inputs)
    np.testing.assert_allclose(output.policy.critic_head.bias, 0.8 + 0.7 + 0.6 + 0.5, rtol=1e-5)
    np.testing.assert_allclose(output.policy.actor_head.bias, 0.1 + 0.075 + 0.05 + 0.025, rtol=1e-3)


@pytest.mark.parametrize(
    ("env", "episodes", "minibatch", "share", "has_roll_in", "expected"),
    [
        (CombinationLock(2), 32, 32, 1.0, False, 96),  # all of 32 x 3 steps
        (CombinationLock(2), 32, 32, 0.0, True, 64),  # own steps: 96 (3 + 1) / (2 x 3) = 64
        (CombinationLock(2), 32, 32, 0.25, True, 64),  # 96 (0.25 + 0.75 x 2/3) = 72, in whole minibatches
        (CombinationLock(4), 64, 64, 0.0, True, 192),  # 320 (5 + 1) / 10 = 192
        (CombinationLock(2), 32, 50, 1.0, False, 50),  # 96 in whole minibatches of 50
        (CombinationLock(2), 32, 500, 0.0, True, 96),  # never less than a minibatch, never more than there are
        (probes.OneStep(), 8, 4, 0.0, True, 8),  # a single step is never rolled in
    ],
)
def test_the_samples_of_an_update_are_the_expected_own_steps_in_whole_minibatches(
    env, episodes, minibatch, share, has_roll_in, expected
):
    config = PPOConfig(num_episodes=episodes, minibatch_size=minibatch)
    assert Learner(env, config, sample_share=share).num_samples(has_roll_in) == expected


def test_without_a_cover_nothing_is_rolled_in(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a roll-in was drawn")

    monkeypatch.setattr(improve_module, "draw_roll_in", refuse)
    learner = Learner(LOCK, TINY)
    jax.make_jaxpr(learner.improve)(inputs_of(0, cover=False))
    with pytest.raises(AssertionError, match="a roll-in was drawn"):
        jax.make_jaxpr(learner.improve)(inputs_of(0))
    assert learner.num_samples(False) == 96


def test_the_bonus_of_a_step_is_the_form_of_its_features_under_the_cover():
    kinds = [("indicator", 0.5), ("indicator", 3.0), ("quadratic", 1.0), ("root", 1.0), ("quadratic", 1.0, 2.0)]

    @jax.jit
    def run(inputs):
        data = LEARNER.gather(inputs.common, inputs.policy, jax.random.key(0))
        at = LEARNER.at(inputs.common)
        return data.observations[:-1], [Elliptical(*kind).pay(None, data, at)[0] for kind in kinds]

    phi, bonuses = jax.device_get(run(inputs_of(0)))  # the features are the observations
    inverse = np.linalg.inv(np.diag(np.arange(PHI.dim) / PHI.dim) + 0.01 * np.eye(PHI.dim))
    form = np.einsum("tei,ij,tej->te", phi, inverse, phi)
    unknown = [(form >= beta) / (1 - TINY.gamma) for beta in (0.5, 3.0)]
    for bonus, expected in zip(bonuses, [*unknown, form, np.sqrt(form), np.minimum(form, 2.0)], strict=True):
        np.testing.assert_allclose(bonus, expected, rtol=1e-3)
        assert np.ptp(expected) > 0


def precisions(jaxpr, shape):
    """Precision of every product of a program whose one operand or result has the shape, inner programs included."""
    found = []
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            shapes = [variable.aval.shape for variable in (*equation.invars, *equation.outvars)]
            found += [equation.params["precision"]] if shape in shapes else []
        for inner in jaxprs_in_params(equation.params):
            found += precisions(inner, shape)
    return found


def test_bonus_and_covariance_are_at_full_precision_in_the_whole_programs():
    square, highest = (PHI.dim, PHI.dim), (jax.lax.Precision.HIGHEST,) * 2
    inputs = inputs_of(0)
    with jax.default_matmul_precision("tensorfloat32"):
        improve = jax.make_jaxpr(lambda inputs: LEARNER.improve(inputs))(inputs)
        visit = jax.make_jaxpr(lambda inputs: Visitor(LOCK, 32).visit(inputs))(
            VisitInputs(inputs.seed, inputs.round, inputs.env_params, inputs.policy, PHI)
        )
    assert precisions(improve.jaxpr, square) == [highest]
    assert precisions(visit.jaxpr, square) == [highest]


# Numbers that are not finite.


def test_an_environment_that_returns_nan_is_named_with_seed_update_and_round():
    env = probes.NonFinite(finite_steps=1)
    agent = BaselineConfig(ppo=TINY, visit_episodes=32).agent(World(env))
    with pytest.raises(NonFinite, match="seed 7: a reward became non-finite in update 0 of round 0"):
        stepped(agent, [agent.init(7)])


def state_of(seed=3, number=5, steps=12_345):
    return SeedState(Ledger.start(seed, 0), None, None, None).noted(round=number, env_steps=steps)


def outputs_with(finite):
    return ImproveOutputs(None, None, None, np.int32(0), {}, np.array(finite))


@pytest.mark.parametrize(
    ("finite", "what"),
    [
        ([[1, 1, 1, 1], [0, 1, 1, 0], [0, 0, 0, 0]], "a reward became non-finite in update 1"),
        ([[1, 1, 1, 1], [1, 1, 1, 1], [1, 0, 0, 0]], "an observation became non-finite in update 2"),
        ([[1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]], "a bonus became non-finite in update 0"),
        ([[1, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]], "a loss became non-finite in update 0"),
    ],
)
def test_the_first_number_that_is_not_finite_is_named_with_its_update(finite, what):
    where = "seed 3: " + what + " of round 5, after 12,345 environment steps; the last good checkpoint is kept"
    with pytest.raises(NonFinite, match=where):
        check_updates(state_of(), outputs_with(np.array(finite, bool)))


def test_finite_numbers_pass():
    check_updates(state_of(), outputs_with(np.ones((3, 4), bool)))
    check_visits(state_of(), Visits(None, None, None, None, None, np.array(True)))


def test_visits_that_are_not_finite_are_named_with_the_round():
    with pytest.raises(NonFinite, match=r"seed 3: the visits of the newest policy contain .* in round 5, after 12,345"):
        check_visits(state_of(), Visits(None, None, None, None, None, np.array(False)))


@pytest.mark.parametrize("where", ["reward", "observation"])
def test_visits_notice_what_is_not_finite(where):
    env = probes.NonFinite(finite_steps=1, where=where)
    visit = jax.jit(lambda inputs: Visitor(env, 4).visit(inputs))
    visits = visit(VisitInputs(np.uint32(0), np.int32(0), (), network(env), None))
    assert not bool(visits.finite)


def test_visits_report_covariance_returns_lengths_and_cells():
    visit = jax.jit(lambda inputs: Visitor(LOCK, 64).visit(inputs))
    visits = jax.device_get(visit(VisitInputs(np.uint32(0), np.int32(0), LOCK.instance(0), network(LOCK), PHI)))
    assert bool(visits.finite)
    np.testing.assert_array_equal(visits.lengths, 3)
    assert int(visits.env_steps) == 64 * 3
    # Two of three decisions are taken in a cell; s0 is none.
    assert visits.cells.shape == (12,)
    assert visits.cells.sum() == 64 * 2
    assert set(np.round(visits.returns, 3)) <= {-0.5, -1.0, 1.0, 4.0}
    # phi is a one-hot of kind, level and lock, and zero at s0: the diagonal holds shares of all decisions.
    cells = visits.cells.reshape(2, 3, 2) / (64 * 3)
    shares = np.concatenate([cells.sum(axis=(0, 2)), cells.sum(axis=(0, 1)), cells.sum(axis=(1, 2))])
    np.testing.assert_allclose(np.diag(visits.sigma), shares, rtol=1e-5)


def test_outputs_come_back_in_the_order_of_the_inputs_although_they_finish_in_another(monkeypatch):
    program: Program[Any, Any] = Program(lambda x: x + 1, lanes=1)
    program([np.float32(0)])
    [(device, compiled)] = program._compiled.items()

    def slow_at_first(x):
        time.sleep(0.2 if x == 0 else 0.0)
        return compiled(x)

    monkeypatch.setitem(program._compiled, device, slow_at_first)
    assert [float(y) for y in program([np.float32(i) for i in range(5)])] == [1, 2, 3, 4, 5]
