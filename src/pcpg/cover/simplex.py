"""The largest value of a quadratic model on the simplex: the inner problem of the design's Newton step."""

import numpy as np

# Curvature added to H, relative to its mean: makes the step unique where policies are interchangeable.
_PROXIMAL = 1e-8


def simplex_maximiser(hessian: np.ndarray, gradient: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The maximiser on the simplex of the quadratic model of log det at the weights."""
    n = len(weights)
    hessian = hessian + _PROXIMAL * hessian.trace() / n * np.eye(n)
    linear = gradient + hessian @ weights
    level = weights @ gradient
    noise = 1e-12 * np.abs(linear).max() + 1e-6 * (gradient.max() - level)
    # The model is b'x - x'Hx/2. Block pivoting (Portugal, Judice and Vicente 1994) exchanges every policy on the
    # wrong side, starting from those that would keep weight if moved alone; a few rounds mostly do.
    free = hessian.diagonal() * weights + gradient > level
    for _ in range(12):
        target, level = _stationary(hessian, linear, free)
        wrong = np.where(free, target < 0.0, linear - hessian @ target > level + noise)
        if not wrong.any():
            return target
        free = free ^ wrong
    return _active_set(hessian, linear, noise)


def _stationary(hessian: np.ndarray, linear: np.ndarray, free: np.ndarray) -> tuple[np.ndarray, float]:
    """The stationary point of the model with sum one and zeros off `free`, and its multiplier."""
    block = hessian if free.all() else hessian[free][:, free]
    best, shift = np.linalg.solve(block, np.stack((linear[free], np.ones(len(block))), axis=1)).T
    level = (best.sum() - 1.0) / shift.sum()
    target = np.zeros(len(linear))
    target[free] = best - level * shift
    return target, float(level)


def _active_set(hessian: np.ndarray, linear: np.ndarray, noise: float) -> np.ndarray:
    """The maximiser on the simplex of the model, found one policy at a time."""
    # Block pivoting goes round in circles where there are more policies than independent covariances. This
    # method (Lawson and Hanson 1974, with a sum) raises the model at every exchange and frees no redundant policy.
    target = np.zeros(len(linear))
    target[np.argmax(linear - hessian.diagonal() / 2.0)] = 1.0
    free = target > 0.0
    for _ in range(10 * len(linear)):
        pull = linear - hessian @ target
        entering = np.argmax(np.where(free, -np.inf, pull))
        if pull[entering] - target @ pull <= noise:
            break
        free[entering] = True
        while True:
            aim, _ = _stationary(hessian, linear, free)
            down = np.flatnonzero(free & (aim <= 0.0))
            if len(down) == 0:
                break
            fractions = target[down] / (target[down] - aim[down])
            target = target + fractions.min() * (aim - target)
            free[down[fractions <= fractions.min()]] = False
            target = np.where(free, np.maximum(target, 0.0), 0.0)
        if not free[entering]:
            break
        target = aim
    return target
