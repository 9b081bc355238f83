"""Targets and losses of the off-policy learner, with the networks played by NumPy."""

from typing import Any

import jax
import numpy as np
import pytest

from pcpg.envs.spaces import Box, Discrete, MultiDiscrete
from pcpg.learners.off_policy import (
    LearnInputs,
    Minibatch,
    OffPolicy,
    Rates,
    init_learner,
    init_params,
    rescaled,
    unravelled,
)
from pcpg.policies.off_policy import LOG_STD, Scale

SEEN, BATCH = Box(-1.0, 1.0, (3,)), 6
RATES = Rates(*(np.float32(x) for x in (0.0, 0.25, 0.1, -0.5, 0.0, -9.0, 9.0)))
SCALE = Scale(np.float32([0.1, 0.0, -0.1]), np.float32([1.0, 2.0, 0.5]))


def minibatch(space: Any, seed: int = 0) -> Minibatch:
    rng = np.random.default_rng(seed)
    draw = lambda *shape: rng.normal(size=(1, *shape)).astype(np.float32)  # noqa: E731
    if isinstance(space, Box):
        actions, noise = np.tanh(draw(BATCH, *space.shape)), draw(2, BATCH, *space.shape)
    else:
        high = space.n if isinstance(space, Discrete) else space.sizes
        actions, noise = rng.integers(high, size=(1, BATCH, *space.shape)).astype(np.int32), np.zeros((1, 0), "f4")
    discounts = np.float32([[0.9, 0.81, 0.0, 0.9, 0.0, 0.729]])
    floors, cloned = np.full((1, BATCH), -9.0, np.float32), np.zeros((1, BATCH), np.float32)
    return Minibatch(draw(BATCH, 3), actions, draw(BATCH), discounts, draw(BATCH, 3), floors, cloned, noise)


def learned(space: Any, rates: Rates = RATES, seed: int = 0, **changes: Any) -> tuple[Any, Any, Any, Minibatch, Any]:
    """The outcome of one update; the parameters of now and of the target, which differ; the minibatch; the learner."""
    now, then = (init_params(np.random.default_rng(n), SEEN, space, hidden=(8,), critics=2) for n in (seed, seed + 9))
    now = now._replace(log_alpha=np.float32(-0.7))
    learner = init_learner(now)._replace(target=init_learner(then).target)
    batch = minibatch(space, seed)._replace(**changes)
    found = jax.jit(OffPolicy(now, space).learn)(LearnInputs(learner, batch, SCALE, rates))
    return found, now, then, batch, learner


def seen(observations: np.ndarray) -> np.ndarray:
    return np.clip((observations - SCALE.mean) * SCALE.inverse, -10, 10)


def critics_of(params: Any, x: np.ndarray) -> np.ndarray:
    """Outputs of each critic, [critics, B, outputs]."""
    return np.stack([jax.tree.map(lambda leaf, i=i: leaf[i], params.critics).on_host(x) for i in range(2)])


def test_targets_of_values_are_the_smaller_critic_at_the_action_that_the_newest_values_prefer() -> None:
    found, now, then, batch, _ = learned(Discrete(4))
    here, later, rows = seen(batch.observations[0]), seen(batch.later[0]), np.arange(BATCH)
    best = critics_of(now, later).mean(0).argmax(-1)
    ahead = critics_of(then, later).min(0)[rows, best]
    y = batch.returns[0] + batch.discounts[0] * ahead
    q = critics_of(now, here)[:, rows, batch.actions[0]]
    assert float(found.loss) == pytest.approx(((q - y) ** 2).mean(-1).sum(), rel=1e-4)
    assert float(found.value) == pytest.approx(q.mean(), rel=1e-4)


def test_an_action_of_several_parts_is_worth_the_mean_of_theirs() -> None:
    found, now, then, batch, _ = learned(MultiDiscrete((2, 3)))
    here, later, rows = seen(batch.observations[0]), seen(batch.later[0]), np.arange(BATCH)
    own, target = critics_of(now, later).mean(0), critics_of(then, later).min(0)
    first, second = own[:, :2].argmax(-1), own[:, 2:].argmax(-1)
    ahead = (target[rows, first] + target[rows, 2 + second]) / 2
    y, q, a = batch.returns[0] + batch.discounts[0] * ahead, critics_of(now, here), batch.actions[0]
    chosen = (q[:, rows, a[:, 0]] + q[:, rows, 2 + a[:, 1]]) / 2
    assert float(found.loss) == pytest.approx(((chosen - y) ** 2).mean(-1).sum(), rel=1e-4)


def squashed(outputs: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Actions, and their log-density by the change of variables."""
    mean, raw = np.split(outputs.astype(np.float64), 2, axis=-1)
    log_std = LOG_STD[0] + (LOG_STD[1] - LOG_STD[0]) * (np.tanh(raw) + 1) / 2
    before = mean + np.exp(log_std) * noise
    normal = -(noise**2) / 2 - log_std - np.log(2 * np.pi) / 2
    return np.tanh(before), (normal - np.log1p(-(np.tanh(before) ** 2))).sum(-1)


def test_real_actions_have_the_targets_and_the_loss_of_soft_actor_critic() -> None:
    found, now, then, batch, _ = learned(Box(-1.0, 1.0, (2,)))
    here, later = seen(batch.observations[0]), seen(batch.later[0])
    alpha = np.exp(-0.7)
    after, after_density = squashed(now.actor.on_host(later), batch.noise[0, 0])
    ahead = critics_of(then, np.concatenate([later, after], -1))[..., 0].min(0) - alpha * after_density
    y = batch.returns[0] + batch.discounts[0] * ahead
    q = critics_of(now, np.concatenate([here, batch.actions[0]], -1))[..., 0]
    action, density = squashed(now.actor.on_host(here), batch.noise[0, 1])
    worth = critics_of(now, np.concatenate([here, action], -1))[..., 0].min(0)
    entropy_loss = -0.7 * (-density.mean() - RATES.entropy * 2)
    expected = ((q - y) ** 2).mean(-1).sum() + (alpha * density - worth).mean() + entropy_loss
    assert float(found.loss) == pytest.approx(expected, rel=1e-4)


def test_no_target_lies_below_what_was_earned_from_there_on() -> None:
    floors = np.array([[-9.0, 3.0, -9.0, 2.5, 8.0, -9.0]], np.float32)
    found, now, then, batch, _ = learned(Discrete(4), floors=floors)
    here, later, rows = seen(batch.observations[0]), seen(batch.later[0]), np.arange(BATCH)
    ahead = critics_of(then, later).min(0)[rows, critics_of(now, later).mean(0).argmax(-1)]
    y = np.maximum(batch.returns[0] + batch.discounts[0] * ahead, floors[0])
    q = critics_of(now, here)[:, rows, batch.actions[0]]
    assert float(found.loss) == pytest.approx(((q - y) ** 2).mean(-1).sum(), rel=1e-4)


def test_the_best_episodes_are_imitated_where_their_actions_are_worth_more_in_units_of_the_values() -> None:
    space, cloned = Box(-1.0, 1.0, (2,)), np.array([[1, 1, 1, 1, 0, 0]], np.float32)
    alone, now, _, batch, _ = learned(space)
    beside, *_ = learned(space, RATES._replace(cloning=np.float32(0.7)), cloned=cloned)
    here, actions = seen(batch.observations[0]), batch.actions[0]
    chosen = np.tanh(np.split(now.actor.on_host(here), 2, axis=-1)[0])
    worth = lambda taken: critics_of(now, np.concatenate([here, taken], -1))[..., 0].min(0)  # noqa: E731
    is_better = worth(actions) > worth(chosen)
    assert 0 < is_better[:4].sum() < 4, "the case has actions of both kinds"
    distance = ((chosen - actions) ** 2).mean(-1)
    expected = 0.7 * np.abs(worth(actions)).mean() * (cloned[0] * is_better * distance).mean()
    assert float(beside.loss) - float(alone.loss) == pytest.approx(expected, rel=1e-3)


def test_averaged_weights_move_by_their_own_rates() -> None:
    found, _, _, _, before = learned(Discrete(4), RATES._replace(learning=np.float32(0.01)))
    after = found.learner
    np.testing.assert_allclose(
        after.target, before.target + 0.25 * (after.params - before.target), rtol=1e-5, atol=1e-7
    )
    np.testing.assert_allclose(
        after.average, before.average + 0.1 * (after.params - before.average), rtol=1e-5, atol=1e-7
    )
    assert np.abs(after.params - before.params).max() > 1e-3


def test_where_rewards_change_their_scale_all_values_do_and_nothing_else() -> None:
    _, now, _, batch, learner = learned(Discrete(4))
    x = seen(batch.observations[0])
    scaled = rescaled(learner, now, 0.25)
    for name in ("params", "target", "average"):
        old, new = (unravelled(getattr(one, name), now) for one in (learner, scaled))
        np.testing.assert_allclose(critics_of(new, x), 0.25 * critics_of(old, x), rtol=1e-4, atol=1e-6)
