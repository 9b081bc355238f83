"""The episodic elliptical bonus: golden values, where it begins anew, what it leads to."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcpg.bonuses.e3b import E3B, episodic_bonus
from pcpg.bonuses.protocol import At
from pcpg.engine.rollout import Rollout
from pcpg.envs.spaces import Box, Discrete

RIDGE = 0.5


def by_hand(here: np.ndarray, following: np.ndarray, ends: np.ndarray | None = None) -> np.ndarray:
    """The definition, with an inverse at every step."""
    steps, places, size = here.shape
    out = np.zeros((steps, places))
    for place in range(places):
        covariance = RIDGE * np.eye(size) + np.outer(here[0, place], here[0, place])
        for t in range(steps):
            if t and ends is not None and ends[t - 1, place]:
                covariance = RIDGE * np.eye(size) + np.outer(here[t, place], here[t, place])
            phi = following[t, place]
            out[t, place] = phi @ np.linalg.solve(covariance, phi)
            covariance += np.outer(phi, phi)
    return out


def episodes(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    states = np.random.default_rng(seed).standard_normal((7, 3, 4)).astype(np.float32)
    return states[:-1], states[1:]


def test_states_without_noise_are_paid_for_by_how_often_they_came() -> None:
    place = np.eye(2, dtype=np.float32)
    states = place[[0, 0, 0, 1, 0]][:, None]
    bonus = episodic_bonus(states[:-1], states[1:], RIDGE)
    expected = [1 / (RIDGE + 1), 1 / (RIDGE + 2), 1 / RIDGE, 1 / (RIDGE + 3)]
    np.testing.assert_allclose(bonus[:, 0], expected, rtol=1e-5)


def test_the_bonus_is_the_definition_with_an_inverse_at_every_step() -> None:
    here, following = episodes()
    for bonus in (episodic_bonus, jax.jit(episodic_bonus)):
        np.testing.assert_allclose(bonus(here, following, RIDGE), by_hand(here, following), rtol=1e-3)


def test_it_begins_anew_where_an_episode_follows_another() -> None:
    here, following = episodes(1)
    ends = np.zeros((6, 3), bool)
    ends[2, 1] = ends[3, 2] = True
    here[3, 1], here[4, 2] = 2.0, -1.0  # the first states of the new episodes, which followed no step
    bonus = episodic_bonus(here, following, RIDGE, jnp.asarray(ends))
    np.testing.assert_allclose(bonus, by_hand(here, following, ends), rtol=1e-3)
    assert np.abs(bonus - by_hand(here, following)).max() > 0.01


def test_features_have_norm_1_so_that_the_bonus_does_not_depend_on_the_scale_of_observations() -> None:
    e3b = E3B().init(np.random.default_rng(0), Box(-1e4, 1e4, (5,)), Discrete(3), (16, 16))
    seen = np.random.default_rng(1).standard_normal((6, 2, 5)).astype(np.float32)
    for scale in (1e-2, 1.0, 1e3):
        features = e3b.model.features(seen * scale)
        np.testing.assert_allclose(np.linalg.norm(features, axis=-1), 1.0, rtol=1e-2)
        bonus = episodic_bonus(features[:-1], features[1:], 0.1)
        assert np.all((bonus > 0) & (bonus <= 10.0 + 1e-3))


def test_its_returns_have_deviation_1_whatever_is_masked() -> None:
    e3b = E3B().init(np.random.default_rng(0), Box(0.0, 1.0, (5,)), Discrete(3), (8,))
    bonus, mask = jnp.asarray([[3.0, 50.0], [1.0, 50.0]]), jnp.asarray([[True, False], [True, False]])
    nothing, never = jnp.zeros((2, 2)), jnp.zeros((2, 2), bool)
    data = Rollout(jnp.zeros((3, 2, 5)), nothing, nothing, nothing, never, never, mask, mask, nothing)
    scaled, moved = E3B().scaled(e3b, bonus, mask, data, At(Discrete(3), gamma=0.5))
    deviation = np.std([3.0, 1.0 + 0.5 * 3.0])  # of the sums so far, the older discounted
    np.testing.assert_allclose(scaled, np.array([[3.0, 0.0], [1.0, 0.0]]) / deviation, rtol=1e-4)
    assert moved.scale.total == 2 and e3b.scale.total == 0


@pytest.mark.slow
def test_ppo_walks_to_the_far_end_of_a_corridor_that_pays_nothing_on_the_way() -> None:
    import gymnasium
    from gymnasium import spaces

    import pcpg

    class Corridor(gymnasium.Env):
        """16 places, each left by another action than the one before; the last pays 1 and ends the episode.

        Every episode has another colour. Where one action led to the end, a policy that drifts could come there too.
        """

        observation_space, action_space = spaces.Box(0.0, 1.0, (24,)), spaces.Discrete(4)
        max_steps = 32

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.place, self.colour = 0, self.np_random.random(8)
            return self.seen(), {}

        def seen(self):
            return np.concatenate([np.eye(16)[self.place], self.colour]).astype(np.float32)

        def step(self, action):
            self.place = self.place + 1 if action == self.place % 4 else max(self.place - 1, 0)
            return self.seen(), float(self.place == 15), self.place == 15, False, {}

    small = {"num_updates": 10, "num_episodes": 32, "minibatch_size": 64, "hidden": (32,)}
    runs = {
        algo: pcpg.train(Corridor, algo, seeds=2, total_steps="36k", config={"ppo": small, "visit_episodes": 16})
        for algo in ("ppo-e3b", "ppo")
    }
    reached = {algo: run.summary["final_return"] for algo, run in runs.items()}
    assert min(reached["ppo-e3b"]) > 0.7 and max(reached["ppo"]) < 0.3, reached
