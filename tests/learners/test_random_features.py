"""The bonus of all kept data in random features: the definition in double precision, and what data do to it."""

import numpy as np
import pytest

from pcpg.learners.novelty import Novelty, fitted


def made(size: int = 3, count: int = 400, features: int = 32, bandwidth: float = 1.0) -> tuple[Novelty, np.ndarray]:
    seen = np.random.default_rng(0).normal(2.0, [[0.1] + [3.0] * (size - 1)], (count, size)).astype(np.float32)
    return fitted(np.random.default_rng(1), seen, features, bandwidth), seen


def features_of(novelty: Novelty, seen: np.ndarray) -> np.ndarray:
    """sqrt(2 / d) cos(W' x + c) of the whitened observations, in double precision."""
    x = (seen.astype(np.float64) - novelty.mean) @ novelty.projection.astype(np.float64)
    return np.sqrt(2 / len(novelty.offsets)) * np.cos(x @ novelty.weights.astype(np.float64) + novelty.offsets)


@pytest.mark.parametrize("power", [0.5, 1.0])
def test_the_bonus_is_the_quadratic_form_of_the_inverse_of_all_that_was_seen_or_its_root(power: float) -> None:
    empty, seen = made()
    novelty = empty.with_data(seen[:150]).with_data(seen[150:])
    phi = features_of(novelty, seen)
    inverse = np.linalg.inv(np.eye(32) + phi.T @ phi)
    asked = np.random.default_rng(2).normal(2.0, 5.0, (50, 3)).astype(np.float32)
    expected = np.einsum("ni,ij,nj->n", features_of(novelty, asked), inverse, features_of(novelty, asked)) ** power
    np.testing.assert_allclose(novelty.bonus(asked, novelty.inverse_root(), power), expected, rtol=2e-3)


def test_entries_are_whitened_so_that_each_counts_alike() -> None:
    novelty, seen = made()
    x = (seen - novelty.mean) @ novelty.projection
    np.testing.assert_allclose(x.std(axis=0), 1.0, rtol=1e-3)
    np.testing.assert_allclose(x.mean(axis=0), 0.0, atol=1e-3)


def test_products_of_features_are_the_gaussian_kernel_of_the_width_that_is_asked_for() -> None:
    for width in (0.5, 2.0):
        novelty, seen = made(features=20_000, bandwidth=width)
        x = (seen[:30] - novelty.mean) @ novelty.projection
        kernel = np.exp(-((x[:, None] - x[None]) ** 2).sum(-1) / (2 * width**2))
        phi = features_of(novelty, seen[:30])
        np.testing.assert_allclose(phi @ phi.T, kernel, atol=0.04)


def test_without_a_width_it_follows_the_effective_dimensions() -> None:
    for size, width in ((4, 0.5), (16, 2.0)):  # independent entries: as many dimensions as there are
        rng = np.random.default_rng(0)
        novelty = fitted(np.random.default_rng(1), rng.normal(size=(2000, size)).astype("f4"), 4000, 0.0)
        assert novelty.weights.std() == pytest.approx(1 / width, rel=0.05)


def test_what_was_seen_often_is_worth_little_and_what_was_not_as_much_as_before() -> None:
    empty, seen = made(features=512, bandwidth=0.3)
    novelty = empty.with_data(np.repeat(seen[:1], 99, axis=0))
    far = seen[:1] + np.array([[0.0, 30.0, -30.0]], np.float32)
    before, after = (one.bonus(np.concatenate([seen[:1], far]), one.inverse_root(), 1.0) for one in (empty, novelty))
    norm = float((features_of(empty, seen[:1]) ** 2).sum())
    assert after[0] == pytest.approx(norm / (1 + 99 * norm), rel=0.02) and after[1] > 0.8 * before[1]
