"""Algorithm 1 on a tabular MDP with features, exact or sampled: the parts of the page `pcpg.algorithm1`.

    exact    population covariances (the occupancy itself), exact action values, exact choice of iterates
    sampled  only resets to s0: K pairs for a covariance, M pairs with a Q-estimate for a critic, episodes to choose

| symbol      | name       | meaning                                                                       |
|-------------|------------|-------------------------------------------------------------------------------|
| d^n         | visits     | occupancy of pi^n over pairs, exact or empirical                              |
| Sigma_mix^n | sigma_mix  | SUM of the policies' covariances plus lambda I                                |
| rho_mix^n   | rho        | weighted MEAN of the occupancies (uniform weights in the paper)               |
| b^n         | b          | 1{phi' Sigma_mix^-1 phi >= beta} / (1-gamma)                                  |

Policies, visits and bonuses are arrays [S, A]; a covariance is E_visits[phi phi'], formed where it is needed.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, NamedTuple

import numpy as np

from pcpg.algorithm1 import Explored, Parts, explore_round
from pcpg_theory import critic, exact
from pcpg_theory.mdp import Array, Index, TabularMDP, check_features, uniform_policy
from pcpg_theory.npg import Improved, at_once, awaited, npg_update
from pcpg_theory.samplers import (
    Pairs,
    Policies,
    Simulator,
    d_sampler,
    discounted_sums,
    q_estimator,
    start_values,
    visit_frequencies,
)
from pcpg_theory.settings import Settings

Mode = Literal["exact", "sampled"]


class TabularCover(NamedTuple):
    """The policies found so far and their visits: [n, S, A] both."""

    policies: Array
    visits: Array


class Bonus(NamedTuple):
    """The bonus of a cover, and the quadratic form it comes from."""

    b: Array
    form: Array
    log_det: float  # log det(Sigma_mix / lambda): the information gain of the cover


class Features(NamedTuple):
    """All that depends on the features: here in the primal, in `pcpg_theory.kernel` in the dual."""

    phi: Array  # theta . phi is phi @ theta
    bonus: Callable[[TabularCover], Bonus]  # line 6
    regress: critic.Regress


class RoundRecord(NamedTuple):
    """The results of one round, evaluated exactly (no algorithm sees these numbers)."""

    n: int
    value: float  # V^{pi^{n+1}}(s0; r)
    value_bonus: float  # V^{pi^{n+1}}(s0; r + b^n)
    escape: float  # Pr_{d^{n+1}}((s, a) unknown)
    known_pairs: int
    information_gain: float  # log det(Sigma_mix^n / lambda)
    chosen: int
    steps: int  # environment steps so far


@dataclass
class TheoryRun:
    """A run of Algorithm 1: the returned policy, the cover, the record of each round, the samples by kind."""

    pi: Array
    chosen: int
    cover: TabularCover  # pi^0 .. pi^N
    bonuses: list[Bonus]  # b^0 .. b^N; b^n made pi^{n+1}
    rounds: list[RoundRecord]
    steps: int
    samples: dict[str, int]
    improvements: list[Improved] = field(default_factory=list)
    designs: list[Array] = field(default_factory=list)  # weights of pi^0 .. pi^n in rho_mix^n, for each n

    @property
    def gains(self) -> list[float]:
        """The information gain of the cover with pi^1 .. pi^N in it."""
        return [bonus.log_det for bonus in self.bonuses[1:]]

    @property
    def known(self) -> list[int]:
        """The number of known pairs with pi^1 .. pi^N in the cover."""
        return [int((bonus.b == 0.0).sum()) for bonus in self.bonuses[1:]]


def weighted_rho(visits: Array, weights: Array) -> Array:
    """rho_mix: the mean of occupancies [n, S, A] by weights [n]."""
    return np.einsum("n,nsa->sa", weights, visits)


def theory_bonus(
    phi: Array, total_visits: Array, labels: Index | None, *, ridge: float, beta: float, gamma: float
) -> Bonus:
    """b = 1{phi' Sigma_mix^-1 phi >= beta} / (1-gamma), Sigma_mix = sum of covariances + lambda I."""
    if labels is not None:
        mass = np.bincount(labels, weights=total_visits.reshape(-1), minlength=phi.shape[-1])
        inverse: Array = (1.0 / (mass + ridge)).astype(np.float64)
        quadratic = inverse[labels].reshape(total_visits.shape)
        log_det = float(np.log1p(mass / ridge).sum())
    else:
        sigma_mix = exact.covariance(phi, total_visits) + ridge * np.eye(phi.shape[-1])
        quadratic = exact.form(phi, sigma_mix)
        log_det = float(np.linalg.slogdet(sigma_mix / ridge)[1])
    return Bonus((quadratic >= beta) / (1.0 - gamma), quadratic, log_det)


def primal_features(mdp: TabularMDP, phi: Array, settings: Settings) -> Features:
    """Bonus and critic by the features themselves, checked."""
    phi = check_features(mdp, phi)
    settings.check(phi, mdp.gamma)
    labels, s = critic.partition_labels(phi), settings

    def bonus(cover: TabularCover) -> Bonus:
        return theory_bonus(phi, cover.visits.sum(0), labels, ridge=s.ridge, beta=s.beta, gamma=mdp.gamma)

    return Features(phi, bonus, critic.regression(phi, labels, s.W))


class Oracle:
    """The MDP itself (exact), or a simulator of it (sampled), whose steps are counted by kind."""

    def __init__(self, mdp: TabularMDP, features: Features, settings: Settings, mode: Mode, seed: int) -> None:
        if mode not in ("exact", "sampled"):
            raise ValueError(f"mode must be 'exact' or 'sampled', got {mode!r}")
        self.mdp, self.features, self.settings, self.mode = mdp, features, settings, mode
        self.sim = Simulator(mdp, np.random.default_rng(seed))
        self.samples = {"covariance": 0, "critic": 0, "select": 0, "final": 0}

    @contextmanager
    def counted(self, kind: str) -> Iterator[Simulator]:
        """The simulator, whose steps meanwhile count as those of a kind."""
        before = self.sim.steps
        yield self.sim
        self.samples[kind] += self.sim.steps - before


def visit(oracle: Oracle, policy: Array) -> Array:
    """The visits of the policy, exact or empirical over K pairs (line 4)."""
    if oracle.mode == "exact":
        return exact.occupancy(oracle.mdp, policy)
    with oracle.counted("covariance") as sim:
        return visit_frequencies(sim, policy, oracle.settings.K)


def extend(cover: TabularCover, policy: Array, visits: Array) -> TabularCover:
    """The cover with one policy more (line 5)."""
    return TabularCover(*(np.concatenate([old, new[None]]) for old, new in zip(cover, (policy, visits), strict=True)))


def design(oracle: Oracle, cover: TabularCover) -> Array:
    """The weights of the policies in rho_mix."""
    n = len(cover.policies)
    if oracle.settings.weights == "uniform":
        return np.full(n, 1.0 / n)
    from pcpg.cover.design import d_optimal  # here: few runs want it

    sigmas = np.stack([exact.covariance(oracle.features.phi, visits) for visits in cover.visits])
    return np.asarray(d_optimal(sigmas, ridge=oracle.settings.ridge).weights, dtype=np.float64)


def improve(oracle: Oracle, now: Explored) -> Improved:
    """The next policy by Algorithm 2 (line 7), which starts from the restricted uniform policy in every round."""
    fit, select = exact_critic(oracle, now) if oracle.mode == "exact" else sampled_critic(oracle, now)
    s = oracle.settings
    return npg_update(oracle.features.phi, now.bonus.b, oracle.mdp.available, fit, select, T=s.T, eta=s.eta)


Fit = Callable[[Array, int], Array]  # (pi^t, t) -> theta^t
Select = Callable[[Array], Array]  # iterates [T, S, A] -> values under r + b


def exact_critic(oracle: Oracle, now: Explored) -> tuple[Fit, Select]:
    """Population critics under rho_mix, and exact values."""
    mdp, b = oracle.mdp, now.bonus.b
    regress = oracle.features.regress(weighted_rho(now.cover.visits, now.design))
    found: list[float] = []

    def fit(pi: Array, t: int) -> Array:
        V, Q = exact.evaluate(mdp, pi, mdp.r + b)
        found.append(float(V[mdp.s0]))
        return regress(Q - b)

    return fit, lambda _: np.array(found)


def sampled_critic(oracle: Oracle, now: Explored) -> tuple[Fit, Select]:
    """Critics from M pairs of rho_mix with a Q-estimate each, and values from episodes."""
    s, b, features = oracle.settings, now.bonus.b, oracle.features
    reward = oracle.mdp.r + b
    # rho_mix does not depend on pi^t, so the roll-ins of all T critics are drawn at once.
    which = oracle.sim.rng.choice(len(now.design), size=s.T * s.M, p=now.design)
    with oracle.counted("critic") as sim:
        pairs = d_sampler(sim, Policies(now.cover.policies), which)

    def fit(pi: Array, t: int) -> Array:
        start = Pairs(*(part[t * s.M : (t + 1) * s.M] for part in pairs))
        with oracle.counted("critic") as sim:
            one, chains = Policies(pi), np.zeros(s.M, dtype=np.int64)
            if s.estimate == "discounted":
                q = discounted_sums(sim, one, chains, start, reward, s.tail)
            else:
                q = q_estimator(sim, one, chains, start, reward)
        return critic.fit_samples(features.phi, features.regress, s, start.s, start.a, q - b[start.s, start.a])

    def select(iterates: Array) -> Array:
        with oracle.counted("select") as sim:
            return start_values(sim, iterates, s.select_episodes, reward, s.tail)

    return fit, select


def choose(oracle: Oracle, policies: Array) -> int:
    """The index of the best policy by value under the true reward, exact or by counted episodes."""
    s = oracle.settings
    if oracle.mode == "exact":
        return int(np.argmax([exact.value(oracle.mdp, pi) for pi in policies]))
    with oracle.counted("final") as sim:
        return int(np.argmax(start_values(sim, policies, s.final_episodes, oracle.mdp.r, s.tail)))


def next_round(oracle: Oracle, now: Explored) -> Explored:
    """One round of Algorithm 1 with the oracle's parts."""
    better, seen, weights = (awaited(partial(part, oracle)) for part in (improve, visit, design))
    return at_once(explore_round(now, Parts(better, seen, extend, weights, oracle.features.bonus)))


def run(
    mdp: TabularMDP, phi: Array, settings: Settings, mode: Mode = "exact", seed: int = 0, keep_iterates: bool = False
) -> TheoryRun:
    """A run of Algorithm 1: at most N rounds from the uniform policy, and the best policy by true value."""
    return run_oracle(Oracle(mdp, primal_features(mdp, phi, settings), settings, mode, seed), keep_iterates)


def has_stopped(settings: Settings, b: Array, visits: Array) -> bool:
    """Whether what the newest policy visits, made on the bonus b, calls for an end.

    Its value under r + b is above its value under r by Pr(unknown)/(1-gamma)^2 (the paper's `perf_absorb`), so one that
    is good under r + b and meets nothing unknown is good under r.
    """
    return settings.stop is not None and float(visits[b > 0.0].sum()) <= settings.stop


def run_oracle(oracle: Oracle, keep_iterates: bool = False) -> TheoryRun:
    """A run of Algorithm 1 with a given oracle."""
    empty = np.zeros((0, *oracle.mdp.shape))
    now = next_round(oracle, Explored(uniform_policy(oracle.mdp), TabularCover(empty, empty)))
    bonuses, designs, records, improvements, quiet = [now.bonus], [now.design], [], [], 0
    for n in range(oracle.settings.N):
        now = next_round(oracle, now)
        records.append(_record(oracle, n, now, bonuses[-1]))
        improvements += [now.improved] if keep_iterates else []
        quiet = quiet + 1 if has_stopped(oracle.settings, bonuses[-1].b, now.seen) else 0
        bonuses.append(now.bonus)
        designs.append(now.design)
        if quiet == oracle.settings.patience:
            break
    chosen = choose(oracle, now.cover.policies)
    steps, samples = oracle.sim.steps, dict(oracle.samples)
    best = now.cover.policies[chosen]
    return TheoryRun(best, chosen, now.cover, bonuses, records, steps, samples, improvements, designs)


def _record(oracle: Oracle, n: int, now: Explored, bonus: Bonus) -> RoundRecord:
    """The record of the round that made pi^{n+1} with the bonus b^n."""
    mdp = oracle.mdp
    d = exact.occupancy(mdp, now.policy)
    escape = float(d[bonus.b > 0.0].sum())
    plain = float((d * mdp.r).sum()) / (1.0 - mdp.gamma)
    with_bonus = plain + escape / (1.0 - mdp.gamma) ** 2
    known = int((bonus.b == 0.0).sum())
    return RoundRecord(n, plain, with_bonus, escape, known, bonus.log_det, int(now.improved.chosen), oracle.sim.steps)
