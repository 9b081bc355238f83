"""The bonus of all kept data against its formula, and features that know only what the data say."""

import numpy as np
import pytest

from pcpg.learners.novelty import EXAMPLES, LONG, fitted, no_novelty

RNG = np.random.default_rng(0)


def test_the_bonus_is_the_quadratic_form_of_the_inverse_whatever_the_blocks():
    seen, asked = RNG.normal(size=(5_000, 3)).astype(np.float32), RNG.normal(size=(50, 3)).astype(np.float32)
    novelty = fitted(np.random.default_rng(1), seen, 32, 0.0)
    parts = novelty.with_data(seen[:100]).with_data(seen[100:])
    phi, data = novelty.features(asked).astype(np.float64), novelty.features(seen).astype(np.float64)
    sigma = data.T @ data
    np.testing.assert_allclose(parts.sigma, sigma, rtol=1e-3, atol=0.1)
    form = np.einsum("nd,de,ne->n", phi, np.linalg.inv(np.eye(32) + sigma), phi)
    for power in (0.5, 1.0):
        np.testing.assert_allclose(parts.bonus(asked, parts.inverse_root(), power), form**power, rtol=2e-2)


def test_what_was_often_seen_earns_less_than_what_was_never_seen():
    seen = RNG.normal(size=(2_000, 2)).astype(np.float32) * np.array([1.0, 5.0], np.float32)
    novelty = fitted(np.random.default_rng(1), seen, 256, 0.0).with_data(seen)
    known, strange = novelty.bonus(np.array([[0, 0], [4, -20]], np.float32), novelty.inverse_root(), 0.5)
    assert strange > 2 * known


def test_units_of_entries_and_entries_that_never_change_do_not_matter():
    seen = RNG.normal(size=(1_000, 2)).astype(np.float32)
    other = np.concatenate([seen * np.array([100.0, 0.01], np.float32), np.full((1_000, 1), 7, np.float32)], axis=1)
    bonuses = []
    for x in (seen, other):
        novelty = fitted(np.random.default_rng(1), x, 128, 0.5).with_data(x)
        bonus = novelty.bonus(x, novelty.inverse_root(), 0.5)
        bonuses.append((bonus.mean(), bonus.std()))
    np.testing.assert_allclose(*bonuses, rtol=0.1)


@pytest.mark.parametrize("kind", ["long", "picture"])
def test_long_observations_and_pictures_are_told_apart_by_their_components(kind):
    place = RNG.integers(12, size=(EXAMPLES + 500, 2))
    if kind == "picture":
        seen = np.zeros((len(place), 12, 12, 1), np.uint8)
        seen[np.arange(len(place)), place[:, 0], place[:, 1]] = 255
    else:
        seen = np.tanh(place @ RNG.normal(size=(2, 2 * LONG)) / 12).astype(np.float32)
    often = place[:, 0] < 6
    novelty = fitted(np.random.default_rng(1), seen, 256, 0.0).with_data(seen[often])
    bonus = novelty.bonus(seen, novelty.inverse_root(), 0.5)
    assert bonus[~often].mean() > 1.5 * bonus[often].mean()
    assert no_novelty(int(np.prod(seen.shape[1:])), 256).projection.shape == novelty.projection.shape
