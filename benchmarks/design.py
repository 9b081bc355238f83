"""Seconds of the design step; beside it the paper's way to its weights, 2,000 steps of Adam at 0.001, and the
classical one, multiplicative updates until the same gap is reached or their steps run out.

The covariances are made up: each policy sees a few directions much and most hardly ever. All ways are
judged by the same certificate: `gap`, the nats of log det that no other weights could add. Seconds are of the
processor, so that other programs do not count.
"""

import json
import time
from typing import Any

import numpy as np

from pcpg.cover.design import d_optimal

RIDGE = 0.01
# Policies and features: a lock of 10 levels, random Fourier features, the 512 random features of the maze.
SIZES = ((16, 15), (20, 64), (48, 64), (150, 64), (28, 512))
LARGEST_FOR_ADAM = 1_000_000  # entries of all covariances together; beyond, 2,000 steps take minutes
GAP = 1e-6  # nats: what the design step asks of itself


def covariances(num_policies: int, num_features: int, seed: int = 0) -> np.ndarray:
    """Covariances [n, d, d] of policies that differ in what they visit."""
    rng = np.random.default_rng(seed)
    visits = rng.exponential(size=(num_policies, 2 * num_features)) ** 6
    points = rng.normal(size=(2 * num_features, num_features)) / np.sqrt(num_features)
    visits /= visits.sum(axis=1, keepdims=True)
    return np.einsum("nk,kd,ke->nde", visits, points, points, optimize=True)


def gap(sigmas: np.ndarray, weights: np.ndarray) -> float:
    """Nats of log det that no other weights could add to these."""
    gradient = _gradient(sigmas, weights)
    return float(gradient.max() - weights @ gradient)


def _gradient(sigmas: np.ndarray, weights: np.ndarray) -> np.ndarray:
    total = np.tensordot(weights, sigmas, 1) + RIDGE * np.eye(sigmas.shape[1])
    return sigmas.reshape(len(sigmas), -1) @ np.linalg.inv(total).ravel()


def adam_weights(sigmas: np.ndarray, num_steps: int = 2000, learning_rate: float = 1e-3) -> np.ndarray:
    """Weights after ascent on the logits of a softmax, as the paper's appendix describes it."""
    logits, mean, square = np.zeros((3, len(sigmas)))
    for step in range(1, num_steps + 1):
        weights = np.exp(logits - logits.max())
        weights /= weights.sum()
        gradient = _gradient(sigmas, weights)
        slope = weights * (gradient - weights @ gradient)
        mean = 0.9 * mean + 0.1 * slope
        square = 0.999 * square + 0.001 * slope**2
        rate = learning_rate * np.sqrt(1.0 - 0.999**step) / (1.0 - 0.9**step)
        logits = logits + rate * mean / (np.sqrt(square) + 1e-8)
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def multiplicative_weights(sigmas: np.ndarray, max_steps: int = 5000) -> np.ndarray:
    """Weights after w_i <- w_i g_i / sum_j w_j g_j, which never lowers log det."""
    weights = np.full(len(sigmas), 1.0 / len(sigmas))
    for _ in range(max_steps):
        gradient = _gradient(sigmas, weights)
        mean = weights @ gradient
        if gradient.max() - mean <= GAP:
            break
        weights = weights * gradient / mean
    return weights


def measure() -> dict[str, Any]:
    """Seconds and gap of each way, by number of policies and features."""
    rows: dict[str, Any] = {}
    for num_policies, num_features in SIZES:
        sigmas = covariances(num_policies, num_features)
        design = d_optimal(sigmas, ridge=RIDGE, tol=GAP)  # the first call pays for loading the linear algebra
        seconds = []
        for _ in range(5):
            start = time.process_time()
            d_optimal(sigmas, ridge=RIDGE, tol=GAP)
            seconds.append(time.process_time() - start)
        row = {"seconds": min(seconds), "gap": gap(sigmas, design.weights)}
        if sigmas.size <= LARGEST_FOR_ADAM:
            start = time.process_time()
            weights = adam_weights(sigmas)
            row |= {"adam_seconds": time.process_time() - start, "adam_gap": gap(sigmas, weights)}
            start = time.process_time()
            weights = multiplicative_weights(sigmas)
            row["multiplicative_seconds"] = time.process_time() - start
            row["multiplicative_gap"] = gap(sigmas, weights)
        rows[f"{num_policies} policies, {num_features} features"] = row
    return rows


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
