"""Transitions in flat arrays: their observations found again, their actions in the units of the policy."""

import numpy as np
import pytest

from pcpg.envs.spaces import Box, Discrete
from pcpg.learners.transitions import CHANCE, Episodes, Transitions

LENGTHS, TERMINATES = (3, 1, 5, 2), (True, False, False, True)
"""The second and the third are cut by a time limit."""


def episodes(seed: int = 0) -> tuple[Transitions, list[tuple[np.ndarray, ...]]]:
    """Some episodes in two rounds, and the same as a list: observations, actions, rewards."""
    rng, kept = np.random.default_rng(seed), Transitions(Box(-9.0, 9.0, (2,)), Discrete(3))
    listed = [
        (rng.random((n + 1, 2), np.float32), rng.integers(3, size=n).astype(np.int32), rng.random(n, np.float32))
        for n in LENGTHS
    ]
    for some in (slice(0, 2), slice(2, 4)):
        seen, actions, rewards = (np.concatenate(parts) for parts in zip(*listed[some], strict=True))
        lengths = np.array(LENGTHS[some], np.int32)
        ends = np.zeros(lengths.sum(), bool)
        ends[np.cumsum(lengths) - 1] = TERMINATES[some]
        kept.add(Episodes(seen, actions, rewards, ends, lengths, np.full(len(lengths), CHANCE, np.int8)))
    return kept, listed


def test_the_observations_that_followed_and_the_first_ones_are_those_of_the_episodes() -> None:
    kept, listed = episodes()
    landing = kept.observations[kept.landing_rows(np.arange(kept.size))]
    np.testing.assert_array_equal(landing, np.concatenate([seen[1:] for seen, _, _ in listed]))
    np.testing.assert_array_equal(kept.first_observations, np.stack([seen[0] for seen, _, _ in listed]))


def test_what_was_earned_from_a_step_on_is_the_discounted_rest_of_its_episode() -> None:
    kept, listed = episodes()
    earned = [sum(0.9**k * reward for k, reward in enumerate(r[t:])) for _, _, r in listed for t in range(len(r))]
    np.testing.assert_allclose(kept.earned(kept.column("reward"), 0.9), earned, rtol=1e-5)
    ends = kept.column("terminated").copy()
    ends[5] = True  # another task ends inside the third episode, and what follows does not count before it
    other = kept.relabelled(kept.column("reward"), ends).earned(kept.column("reward"), 0.9)
    third = listed[2][2]
    assert other[4:6].tolist() == pytest.approx([third[0] + 0.9 * third[1], third[1]])
    assert other[6:].tolist() == pytest.approx(earned[6:])


def test_real_actions_are_kept_in_the_units_of_the_policy() -> None:
    kept = Transitions(Box(-1.0, 1.0, (1,)), Box(2.0, 6.0, (1,)))
    actions = np.array([[2.0], [5.0], [7.0]], np.float32)
    none = np.zeros(3, np.float32)
    kept.add(Episodes(np.zeros((4, 1), np.float32), actions, none, none > 0, np.array([3]), np.zeros(1, np.int8)))
    made = kept.minibatch(np.arange(3)[None], 1, 0.9, none[None], np.zeros((1, 0), np.float32))
    assert made.actions[0, :, 0].tolist() == [-1.0, 0.5, 1.0]
