"""Algorithm 1 on a tabular MDP with features, exact or sampled: what theory plugs into the shared outer loop.

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

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from pcpg.algorithm1_old import Parts, cover_step, explore_step
from pcpg.theory import critic as critics
from pcpg.theory import exact
from pcpg.theory.mdp import Array, TabularMDP, check_features, uniform_policy
from pcpg.theory.npg import Improved, npg_update
from pcpg.theory.samplers import (
    Index,
    Policies,
    Simulator,
    d_sampler,
    q_estimator,
    start_values,
    visit_frequencies,
)
from pcpg.theory.settings import Settings

Mode = Literal["exact", "sampled"]


class Cover(NamedTuple):
    """The policies found so far and what each visits: [n, S, A] both."""

    policies: Array
    visits: Array


class Bonus(NamedTuple):
    """The bonus of an episode, and the quadratic form it comes from."""

    b: Array
    form: Array
    log_det: float  # log det(Sigma_mix / lambda): the information gain of the cover


class Episode(NamedTuple):
    """What one episode did, evaluated exactly (no algorithm sees these numbers)."""

    n: int
    value: float  # V^{pi^{n+1}}(s0; r)
    value_bonus: float  # V^{pi^{n+1}}(s0; r + b^n)
    escape: float  # Pr_{d^{n+1}}((s, a) unknown)
    known_pairs: int
    information_gain: float  # log det(Sigma_mix^n / lambda)
    chosen: int
    steps: int  # environment steps so far


@dataclass
class Run:
    """A run of Algorithm 1: the returned policy, the cover, the record of each episode, the samples by kind."""

    pi: Array
    chosen: int
    cover: Cover  # pi^0 .. pi^N
    bonuses: list[Bonus]  # b^0 .. b^N; b^n made pi^{n+1}
    episodes: list[Episode]
    steps: int
    samples: dict[str, int]
    improvements: list[Improved] = field(default_factory=list)


def weighted_rho(cover: Cover, weights: Array) -> Array:
    """Return rho_mix: the mean of the cover's occupancies by these weights."""
    return np.einsum("n,nsa->sa", weights, cover.visits)


def theory_bonus(phi: Array, total_visits: Array, labels: Index | None, lam: float, beta: float, gamma: float) -> Bonus:
    """Return b = 1{phi' Sigma_mix^-1 phi >= beta} / (1-gamma), Sigma_mix = sum of covariances + lambda I."""
    if labels is not None:
        mass = np.bincount(labels, weights=total_visits.reshape(-1), minlength=phi.shape[-1])
        inverse: Array = (1.0 / (mass + lam)).astype(np.float64)
        quadratic = inverse[labels].reshape(total_visits.shape)
        log_det = float(np.log1p(mass / lam).sum())
    else:
        sigma_mix = exact.covariance(phi, total_visits) + lam * np.eye(phi.shape[-1])
        quadratic = exact.form(phi, sigma_mix)
        log_det = float(np.linalg.slogdet(sigma_mix / lam)[1])
    return Bonus((quadratic >= beta) / (1.0 - gamma), quadratic, log_det)


def fit_samples(phi: Array, labels: Index | None, settings: Settings, s: Index, a: Index, y: Array) -> Array:
    """Return theta^t from M pairs and their targets, by the solver of the settings."""
    if settings.critic == "sgd":
        return critics.projected_sgd(phi[s, a][None], y[None], settings.W, settings.sgd_step)[0]
    # Least squares on samples is least squares on pairs, weighted by counts, with the mean target of each pair.
    index, size = s * phi.shape[1] + a, phi.shape[0] * phi.shape[1]
    counts = np.bincount(index, minlength=size)
    means = np.bincount(index, weights=y, minlength=size) / np.maximum(counts, 1)
    return critics.least_squares(critics.factorise(phi, counts / len(y), labels), means, settings.W)


class Learner:
    """The parts of Algorithm 1 for one MDP, one set of features and one mode."""

    def __init__(self, mdp: TabularMDP, phi: Array, settings: Settings, mode: Mode, rng: np.random.Generator) -> None:
        self.phi = check_features(mdp, phi)
        settings.check(self.phi, mdp.gamma)
        if mode not in ("exact", "sampled"):
            raise ValueError(f"mode is {mode!r}; expected 'exact' or 'sampled'")
        self.mdp, self.settings, self.mode = mdp, settings, mode
        self.labels = critics.partition_labels(self.phi)
        self.sim = Simulator(mdp, rng)
        self.last: Improved | None = None
        self.samples = {"covariance": 0, "critic": 0, "select": 0, "final": 0}

    def parts(self) -> Parts:
        """Return the five functions of the outer loop."""
        improve = self.improve_exact if self.mode == "exact" else self.improve_sampled
        return Parts(self.covariance, self.extend, self.weights, self.bonus, improve)

    def covariance(self, policy: Array) -> Array:
        """Return what the policy visits, exact or empirical over K pairs (line 4)."""
        if self.mode == "exact":
            return exact.occupancy(self.mdp, policy)
        return self._counted("covariance", lambda: visit_frequencies(self.sim, policy, self.settings.K))

    def extend(self, cover: Cover, policy: Array, visits: Array) -> Cover:
        """Return the cover with one policy more (line 5)."""
        return Cover(*(np.concatenate([old, new[None]]) for old, new in zip(cover, (policy, visits), strict=True)))

    def weights(self, cover: Cover) -> Array:
        """Return the weights of the policies in rho_mix."""
        n = len(cover.policies)
        if self.settings.weights == "uniform":
            return np.full(n, 1.0 / n)
        from pcpg.cover.design import d_optimal  # here: few runs want it

        sigmas = np.stack([exact.covariance(self.phi, visits) for visits in cover.visits])
        return np.asarray(d_optimal(sigmas, ridge=self.settings.lam).weights, dtype=np.float64)

    def bonus(self, cover: Cover) -> Bonus:
        """Return the bonus of the cover (line 6)."""
        s = self.settings
        return theory_bonus(self.phi, cover.visits.sum(0), self.labels, s.lam, s.beta, self.mdp.gamma)

    def improve_exact(self, policy: Array, cover: Cover, weights: Array, bonus: Bonus) -> Array:
        """Return the next policy by NPG with population critics and exact values (line 7)."""
        del policy  # NPG of the paper starts each episode from the restricted uniform policy
        s, mdp, b = self.settings, self.mdp, bonus.b
        regress = self.population_critic(weighted_rho(cover, weights))
        found: list[float] = []

        def fit(pi: Array, t: int) -> Array:
            V, Q = exact.evaluate(mdp, pi, mdp.r + b)
            found.append(float(V[mdp.s0]))
            return regress(Q - b)

        self.last = npg_update(self.phi, b, mdp.available, fit, lambda _: np.array(found), s.T, s.eta)
        return self.last.pi

    def population_critic(self, rho: Array) -> Callable[[Array], Array]:
        """Return the map from targets [S, A] to the best theta under rho: one factorisation for all iterations."""
        factor = critics.factorise(self.phi, rho, self.labels)
        return lambda target: critics.least_squares(factor, target, self.settings.W)

    def improve_sampled(self, policy: Array, cover: Cover, weights: Array, bonus: Bonus) -> Array:
        """Return the next policy by NPG with critics and choices from samples (line 7)."""
        del policy
        s, sim, b = self.settings, self.sim, bonus.b
        reward = self.mdp.r + b
        # rho_mix does not depend on pi^t, so the roll-ins of all T critics are drawn at once.
        which = sim.rng.choice(len(weights), size=s.T * s.M, p=weights)
        pairs = self._counted("critic", lambda: d_sampler(sim, Policies(cover.policies), which))

        def fit(pi: Array, t: int) -> Array:
            start = type(pairs)(*(part[t * s.M : (t + 1) * s.M] for part in pairs))
            nobody = np.zeros(s.M, dtype=np.int64)
            q = self._counted("critic", lambda: q_estimator(sim, Policies(pi), nobody, start, reward))
            return self.fit_samples(start.s, start.a, q - b[start.s, start.a])

        def select(iterates: Array) -> Array:
            return self._counted("select", lambda: start_values(sim, iterates, s.select_episodes, reward))

        self.last = npg_update(self.phi, b, self.mdp.available, fit, select, s.T, s.eta)
        return self.last.pi

    def fit_samples(self, s: Index, a: Index, y: Array) -> Array:
        """Return theta^t from M pairs and their targets."""
        return fit_samples(self.phi, self.labels, self.settings, s, a, y)

    def choose(self, policies: Array) -> int:
        """Return the index of the best policy by value under the true reward, exact or by counted episodes."""
        if self.mode == "exact":
            return int(np.argmax([exact.value(self.mdp, pi) for pi in policies]))
        found = self._counted(
            "final", lambda: start_values(self.sim, policies, self.settings.final_episodes, self.mdp.r)
        )
        return int(np.argmax(found))

    def _counted(self, kind: str, work: Callable[[], Any]) -> Any:
        before = self.sim.steps
        result = work()
        self.samples[kind] += self.sim.steps - before
        return result


def run(
    mdp: TabularMDP,
    phi: Array,
    settings: Settings,
    mode: Mode = "exact",
    seed: int = 0,
    keep_iterates: bool = False,
) -> Run:
    """Return a run of Algorithm 1: N episodes from the uniform policy, and the best policy by true value."""
    learner = Learner(mdp, phi, settings, mode, np.random.default_rng(seed))
    parts, policy = learner.parts(), uniform_policy(mdp)
    empty = np.zeros((0, *mdp.shape))
    covered = cover_step(parts, policy, Cover(empty, empty))
    bonuses, episodes, improvements = [covered.bonus], [], []
    for n in range(settings.N):
        policy, covered = explore_step(parts, policy, covered)
        assert learner.last is not None
        episodes.append(_record(mdp, n, policy, bonuses[-1], learner))
        improvements += [learner.last] if keep_iterates else []
        bonuses.append(covered.bonus)
    policies = covered.cover.policies
    chosen = learner.choose(policies)
    steps, samples = learner.sim.steps, dict(learner.samples)
    return Run(policies[chosen], chosen, covered.cover, bonuses, episodes, steps, samples, improvements)


def _record(mdp: TabularMDP, n: int, policy: Array, bonus: Bonus, learner: Learner) -> Episode:
    assert learner.last is not None
    d = exact.occupancy(mdp, policy)
    escape = float(d[bonus.b > 0.0].sum())
    plain = float((d * mdp.r).sum()) / (1.0 - mdp.gamma)
    with_bonus = plain + escape / (1.0 - mdp.gamma) ** 2
    known = int((bonus.b == 0.0).sum())
    return Episode(n, plain, with_bonus, escape, known, bonus.log_det, learner.last.chosen, learner.sim.steps)
