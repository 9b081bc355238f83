"""What the lemma tests share: scenes (an MDP, a cover, its bonus), and the largest left over right of each lemma."""

from typing import NamedTuple

import numpy as np
import pytest

from pcpg_theory import exact, problems, tabular
from pcpg_theory.mdp import one_hot_pairs, random_mdp, random_policy

_largest: dict[str, float] = {}


class Ratios:
    """Records left/right of each inequality: a bound that is never approached is seen at the end of the run."""

    def check(self, lemma, left, right, slack=1e-9):
        """Assert left <= right (up to rounding) and record their ratio."""
        ratio = float(left) / float(right) if right else float(left > slack)
        _largest[lemma] = max(_largest.get(lemma, -np.inf), ratio)
        assert left <= right + slack * max(1.0, abs(right)), f"{lemma}: {left} > {right}"


@pytest.fixture(scope="session", autouse=True)
def one_blas_thread():
    """Small solves with two spinning threads on busy cores take a thousand times as long: 185 ms against 0.1 ms."""
    from threadpoolctl import threadpool_limits  # comes with scikit-learn

    with threadpool_limits(1):
        yield


@pytest.fixture(scope="session")
def ratios():
    return Ratios()


def pytest_terminal_summary(terminalreporter):
    if _largest:
        terminalreporter.section("lemmas: largest left / right that was met")
        for lemma, ratio in sorted(_largest.items()):
            terminalreporter.write_line(f"{ratio:12.3g}  {lemma}")


class Scene(NamedTuple):
    """A small MDP with features, a cover of a few policies, and the bonus they leave."""

    mdp: object
    phi: object
    visits: object  # [n, S, A]
    rho: object
    bonus: object
    beta: float
    ridge: float
    comparator: object
    linear: object


@pytest.fixture(scope="session")
def scene():
    def make(seed, linear=False, ridge=1.0, states=7, actions=3, policies=2, dim=4):
        rng = np.random.default_rng(seed)
        gamma = float(rng.choice([0.5, 0.8, 0.95]))
        made = None
        if linear:
            made = problems.random_linear_mdp(seed, states, actions, dim, gamma)
            mdp, phi = made.mdp, made.phi
        else:
            mdp = random_mdp(seed, states, actions, gamma, sparsity=0.7)
            phi = one_hot_pairs(mdp)
        visits = np.stack([exact.occupancy(mdp, random_policy(mdp, seed + i)) for i in range(policies)])
        sigma = exact.covariance(phi, visits.sum(0)) + ridge * np.eye(phi.shape[-1])
        form = exact.form(phi, sigma)
        beta = float(np.quantile(form, rng.uniform(0.3, 0.95)))
        bonus = tabular.theory_bonus(phi, visits.sum(0), None, ridge=ridge, beta=beta, gamma=gamma)
        comparator = exact.optimal_policy(mdp).pi if rng.random() < 0.5 else random_policy(mdp, seed + 99)
        return Scene(mdp, phi, visits, visits.mean(0), bonus, beta, ridge, comparator, made)

    return make
