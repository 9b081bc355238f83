"""Ranked episodes: what they score, what is kept, and that it is imitated."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcpg.algos.ppo import BaselineConfig
from pcpg.bonuses.protocol import At, Samples
from pcpg.bonuses.ranked import Ranked, RankedEpisodes, coded, first_of_each, packed, unpacked
from pcpg.budget import NO_LIMITS
from pcpg.config import ConfigError
from pcpg.engine.rollout import Rollout
from pcpg.envs.registry import make
from pcpg.envs.spaces import Box, Cells, Discrete, Image
from pcpg.learners.update import init_adam, minimise
from pcpg.policies.networks import init_actor_critic
from pcpg.state import EXPLOIT
from pcpg.trees import flatten

STEPS, WIDTH = 6, 4
SEEN, ACTIONS = Box(0.0, 1.0, (WIDTH,)), Discrete(3)
SMALL = RankedEpisodes(keep=12, keep_most=30, num_features=8, level_share=1.0, view_bonus=0.0)
AT = At(ACTIONS, 0.9)


def fresh(ranked: RankedEpisodes = SMALL, space: Any = SEEN) -> Ranked:
    return ranked.init(np.random.default_rng(0), space, ACTIONS, (8,))


def episodes(returns: list[float], lengths: list[int], seed: int = 0, *, distinct: int = 100) -> Rollout:
    """Episodes with `distinct` views each at most, and actions that say which episode it was."""
    rng, count = np.random.default_rng(seed), len(returns)
    views = rng.random((distinct, count, WIDTH), np.float32)[np.arange(STEPS + 1) % distinct]
    alive = np.arange(STEPS)[:, None] < np.array(lengths)
    rewards = np.where(np.arange(STEPS)[:, None] == np.array(lengths) - 1, np.array(returns), 0.0).astype(np.float32)
    actions = np.broadcast_to(np.arange(count) % 3, alive.shape).astype(np.int32)
    never, none = np.zeros(alive.shape, bool), np.zeros(alive.shape, np.float32)
    cells = np.full(alive.shape, -1, np.int32)
    return jax.tree.map(jnp.asarray, Rollout(views, actions, none, rewards, never, never, alive, alive, cells))


def after(*rollouts: Rollout, ranked: RankedEpisodes = SMALL) -> Ranked:
    state, pay = fresh(ranked), jax.jit(lambda state, data: ranked.pay(state, data, AT))
    for data in rollouts:
        paid, state = pay(state, data)
        assert not np.any(paid)
    return jax.device_get(state)


def returns_kept(state: Ranked) -> list[float]:
    return [round(float(value), 3) for value in state.returns[: state.kept]]


def test_the_volume_is_the_log_determinant_of_the_distinct_views_by_numpy() -> None:
    data = episodes([0.0, 0.0], [5, 6], distinct=4)
    state = after(data)
    units = np.asarray(fresh().body(data.observations[:-1]), np.float64)
    alive = np.asarray(data.alive)
    centred = units - units[alive].mean(axis=0)
    phi = centred / np.linalg.norm(centred, axis=-1, keepdims=True)
    for episode, length in enumerate((5, 6)):
        distinct = phi[: min(length, 4), episode]
        log_det = np.linalg.slogdet(np.eye(8) + distinct.T @ distinct / 0.1)[1]
        volume = next(v for v, a in zip(state.volumes, state.actions, strict=True) if a == episode)
        assert volume == pytest.approx(log_det / (length * np.log(11)), rel=1e-3)


def volumes(views: Any, lengths: list[int]) -> Any:
    """Of episodes [T, E, ...] in the same features, judged together."""
    alive, views = jnp.arange(len(views))[:, None] < jnp.asarray(lengths), jnp.asarray(views)
    is_new = jax.vmap(first_of_each, (1, 1), 1)(coded(views), alive)
    return np.asarray(jax.jit(SMALL.judged)(fresh(), views, alive, is_new)[0])


def test_the_volume_does_not_depend_on_the_order_of_the_steps() -> None:
    rng = np.random.default_rng(0)
    views = rng.random((STEPS, 1, WIDTH), np.float32)
    orders = [views, views[::-1], views[rng.permutation(STEPS)]]
    found = volumes(np.concatenate(orders, axis=1), [STEPS] * 3)
    np.testing.assert_allclose(found, found[0], rtol=1e-4)


def test_of_episodes_of_one_length_the_one_with_more_distinct_views_has_more_volume() -> None:
    rng = np.random.default_rng(0)
    views = rng.random((STEPS, 1, WIDTH), np.float32)
    repeated = [views[np.arange(STEPS) % distinct] for distinct in (1, 2, 3, 4, 6)]
    found = volumes(np.concatenate(repeated, axis=1), [STEPS] * 5)
    assert np.all(np.diff(found) > 0) and found[0] > 0 and found[-1] <= 1


def test_the_store_keeps_to_its_bounds_and_its_shares_whatever_is_played() -> None:
    ranked, rng = dataclasses.replace(SMALL, level_share=0.5), np.random.default_rng(0)
    pay, state, best = jax.jit(lambda state, data: ranked.pay(state, data, AT)[1]), fresh(ranked), -np.inf
    for number in range(12):
        returns = rng.normal(size=4).round(2).tolist()
        best = max(best, *returns)
        data = episodes(returns, rng.integers(1, STEPS + 1, 4).tolist(), number % 3)  # three sets of levels take turns
        state = jax.device_get(pay(state, data))
        kept = int(state.kept)
        assert 1 <= kept <= 30 and np.isfinite(state.returns[:kept]).all() and np.isneginf(state.returns[kept:]).all()
        scores = np.asarray(ranked.scores(state, jnp.asarray(state.returns[:kept]), jnp.asarray(state.volumes[:kept])))
        assert np.all(np.diff(scores) <= 1e-6) and state.returns[0] == np.float32(best)
        assert max(np.unique(state.levels[:kept], return_counts=True)[1]) <= 0.5 * max(kept, 12)


def test_of_large_pictures_no_more_are_kept_than_fit() -> None:
    ranked = dataclasses.replace(SMALL, keep=4000, keep_most=8000)
    made = jax.eval_shape(lambda: jax.tree.map(jnp.asarray, fresh(ranked, Image(210, 160, 3))))
    assert made.observations.shape == (2**27 // 100_800, 210, 160, 3) and made.actions.shape == made.returns.shape


def test_counts_are_the_share_of_views_that_differ() -> None:
    ranked = dataclasses.replace(SMALL, novelty="counts")
    state = after(episodes([0.0, 0.0], [6, 6], distinct=3), ranked=ranked)
    np.testing.assert_allclose(state.volumes[: state.kept], 0.5)


def test_the_best_episodes_are_kept_best_first_whatever_came_between() -> None:
    state = after(episodes([0.1, 0.9], [6, 6]), episodes([0.3, 0.2], [6, 6], 1), episodes([0.0, 0.6], [6, 3], 2))
    assert returns_kept(state) == [0.9] * 6 + [0.6] * 3 + [0.3] * 3
    assert state.low == 0 and state.high == np.float32(0.9)


def test_among_equal_returns_the_wider_episode_is_kept() -> None:
    wide, narrow = episodes([0.0], [6]), episodes([0.0], [6], 1, distinct=2)
    ranked = dataclasses.replace(SMALL, keep=6, keep_most=6)
    for order in ((wide, narrow), (narrow, wide)):
        kept = after(*order, ranked=ranked).observations
        np.testing.assert_array_equal(kept, np.asarray(wide.observations)[:6, 0])


def test_more_is_kept_once_successes_fill_the_room() -> None:
    few = after(episodes([0.0, 1.0, 0.1, 0.2], [6] * 4))
    many = after(episodes([0.0, 1.0, 0.9, 0.8], [6] * 4))
    assert (few.kept, many.kept) == (12, 18)
    assert after(*(episodes([0.0, 1.0, 0.9, 0.8], [6] * 4, seed) for seed in range(3))).kept == 30


def test_scores_do_not_depend_on_the_scale_of_rewards() -> None:
    plain, scaled = ([0.1, 0.9, 0.5], [10.0 * r - 50 for r in (0.1, 0.9, 0.5)])
    one, other = (after(episodes(returns, [6, 6, 6])) for returns in (plain, scaled))
    np.testing.assert_array_equal(one.actions, other.actions)


def test_a_level_that_comes_back_has_its_share_and_its_better_episode_stays() -> None:
    ranked = dataclasses.replace(SMALL, level_share=0.5)
    level, other = episodes([1.0], [6]), episodes([0.1], [6], 1)
    again = level._replace(rewards=0.9 * level.rewards, actions=level.actions + 1)
    state = after(again, level, other, ranked=ranked)
    assert returns_kept(state) == [1.0] * 6 + [0.1] * 6
    assert returns_kept(after(again, level, other)) == [1.0] * 6 + [0.9] * 6


def test_equal_views_have_equal_numbers_and_are_counted_once() -> None:
    views = jnp.asarray([[[0.0, 1.0]], [[1.0, 0.0]], [[0.0, 1.0]], [[0.5, 0.5]]])
    codes = coded(views)[:, 0]
    assert codes[0] == codes[2] and len(set(np.asarray(codes).tolist())) == 3
    assert first_of_each(codes, jnp.ones(4, bool)).tolist() == [True, True, False, True]
    assert first_of_each(codes, jnp.asarray([True, True, True, False])).tolist() == [True, True, False, False]


def test_zeros_and_ones_are_kept_as_bits_and_come_back() -> None:
    views = jnp.asarray(np.random.default_rng(0).integers(2, size=(5, 13)), jnp.float32)
    np.testing.assert_array_equal(unpacked(packed(views), 13), views)
    assert fresh(space=Cells(0.0, 1.0, (13,), 1, 4, 3)).observations.shape == (30, 2)


def test_what_is_kept_is_imitated_and_nothing_while_nothing_is_kept() -> None:
    state = after(episodes([1.0], [6], distinct=6))
    policy = policy_of(1)
    zeros = jnp.zeros(8)
    samples = Samples(jnp.zeros((8, WIDTH)), zeros, zeros, zeros, zeros, zeros > 1, None)
    samples = samples._replace(beside=SMALL.beside(state, jax.random.key(0), 8))
    assert samples.beside.shape == (8, 2) and int(jnp.max(samples.beside)) < state.kept == 6

    def loss(policy: Any, part: Any, state: Any = state) -> Any:
        return SMALL.loss(policy, None, state, part, AT)

    options = {"num_epochs": 60, "minibatch_size": 8, "max_grad_norm": 5.0}
    trained, _, _ = jax.jit(
        lambda policy: minimise(loss, policy, init_adam(policy), samples, jax.random.key(0), 0.01, **options)
    )(policy)
    logits = np.asarray(trained.outputs(state.observations[:6]))
    assert (logits.argmax(axis=-1) == state.actions[:6]).all()
    assert float(loss(policy, samples, fresh())[0]) == 0.0


def test_of_a_rewarded_episode_only_steps_to_new_views_or_rewards_are_kept() -> None:
    state = after(episodes([1.0, 0.0], [6, 6], distinct=4))  # views 0 1 2 3 0 1 2: three steps lead to new ones
    first = np.asarray(episodes([1.0, 0.0], [6, 6], distinct=4).observations)[[0, 1, 2, 5], 0]
    np.testing.assert_array_equal(state.observations[:4], first)
    assert returns_kept(state) == [1.0] * 4 + [0.0] * 6
    ended = after(episodes([0.0, 1.0], [6, 3], distinct=2))  # what is shown after the end does not count
    assert returns_kept(ended) == [1.0] * 2 + [0.0] * 6


def test_the_last_view_of_an_episode_is_one_it_led_to() -> None:
    state = after(episodes([1.0, 0.0], [3, 6])._replace(rewards=jnp.zeros((STEPS, 2)).at[0, 0].set(1.0)))
    assert returns_kept(state)[:3] == [1.0] * 3


def drawn(state: Ranked, count: int = 4000, **changes: Any) -> Any:
    ranked = dataclasses.replace(SMALL, **changes)
    return np.asarray(ranked.beside(state, jax.random.key(0), count)).reshape(-1)


def test_a_share_of_what_is_imitated_is_of_rewarded_episodes() -> None:
    state = after(episodes([1.0, 0.0], [2, 6]))
    places = [drawn(state, success_share=share) for share in (0.0, 0.5, 1.0)]
    np.testing.assert_allclose([np.mean(found < 2) for found in places], [0.25, 0.625, 1.0], atol=0.02)
    assert all(set(found) == set(range(size)) for found, size in zip(places, (8, 8, 2), strict=True))


def test_before_the_first_reward_all_that_is_kept_is_imitated() -> None:
    assert set(drawn(after(episodes([0.0, 0.0], [2, 6])), success_share=1.0)) == set(range(8))
    assert not drawn(fresh()).any()


def weights(scale: float, values: Any, policy: Any) -> Any:
    """Of the steps of two episodes whose rewards are scaled."""
    state = after(episodes([scale, 0.0], [3, 6]))
    return np.asarray(SMALL.weights(policy, state, jnp.arange(9), jnp.asarray(values, jnp.float32)))


def policy_of(seed: int, **options: Any) -> Any:
    return init_actor_critic(np.random.default_rng(seed), SEEN, ACTIONS, hidden=(16,), shared_body=True, **options)


def test_a_rewarded_step_counts_by_how_far_it_exceeds_its_value() -> None:
    values = [0.5, 0.95, 0.0, *[7.0] * 6]
    expected = [3 * (0.81 - 0.5), 0.0, 3.0, *[1.0] * 6]  # three steps from the reward on: 0.81, 0.9, 1
    np.testing.assert_allclose(weights(1.0, values, policy_of(1)), expected, rtol=1e-5)
    np.testing.assert_allclose(weights(40.0, np.multiply(40, values), policy_of(1)), expected, rtol=1e-5)


def test_values_of_scaled_rewards_are_compared_with_scaled_returns() -> None:
    policy = policy_of(1, normalise_rewards=True)
    scaled = policy.normaliser.with_returns(jnp.asarray([0.0, 8.0]), jnp.ones(2, bool))  # their deviation is 4
    policy = dataclasses.replace(policy, normaliser=scaled)
    found = weights(40.0, [5.0, 9.5, 0.0, *[7.0] * 6], policy)
    np.testing.assert_allclose(found, [3 * (0.81 - 0.5), 0.0, 3.0, *[1.0] * 6], rtol=1e-4)


def test_views_that_are_new_in_their_episode_are_paid_until_episodes_succeed() -> None:
    ranked = dataclasses.replace(SMALL, view_bonus=0.1)
    data = episodes([0.0, 0.0, 0.0, 0.0], [6, 6, 2, 6], distinct=4)
    paid, state = ranked.pay(fresh(), data, AT)
    once = [0.1] * 3 + [0.0] * 3
    np.testing.assert_allclose(np.asarray(paid).T, [once, once, [0.1, 0.1, 0, 0, 0, 0], once])
    _, state = ranked.pay(state, data._replace(rewards=data.rewards.at[0, 0].set(5.0)), AT)
    for reward, left in ((0.25, 0.5), (0.5, 0.0)):  # half of a tenth of the range of returns, and a tenth
        paid, _ = ranked.pay(state, data._replace(rewards=data.rewards.at[0].set(reward)), AT)
        np.testing.assert_allclose(np.asarray(paid)[:, 1], left * 5 * np.array(once), atol=1e-6)


def test_a_checkpoint_without_what_is_kept_now_is_refused_before_the_run_is_changed() -> None:
    env = make("Rooms-v0")
    arrays = {f".rnd{name}": array for name, array in flatten(fresh(space=env.observation_space)).items()}
    settings = BaselineConfig(bonus=SMALL)
    assert settings.reopened(arrays, env, NO_LIMITS) == EXPLOIT
    del arrays[".rnd.ahead"]
    with pytest.raises(ConfigError, match=r"without \.ahead of the bonus ranked: the run can be evaluated but not"):
        settings.reopened(arrays, env, NO_LIMITS)


def test_whole_episodes_are_needed() -> None:
    with pytest.raises(ValueError, match="the bonus ranked needs whole episodes: autoreset must be false"):
        BaselineConfig(bonus=RankedEpisodes(), autoreset=True)
