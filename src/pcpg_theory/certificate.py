"""A bound on V* - V^pi for a single run: the analysis with measured terms in place of bounds.

For every round n, with b = b^n, K its known states, d~ the occupancy of the augmented comparator, pi^t the iterates:

    V* <= V~ (optimism),   V~ - V^t_b <= 1/(1-gamma) sum_{s in K} d~(s) sum_a (pi* - pi^t)(a|s) (Q^t - b)(s, a)
    Q^t - b = theta^t phi  +  (theta*^t - theta^t) phi  +  (Q^t - b - theta*^t phi)
    V^{n+1} = V^{n+1}_b - Pr_{d^{n+1}}(unknown) / (1-gamma)^2

with theta*^t a best fit under rho_mix. So V* - V^{n+1} is at most the sum of these terms, each a mean over t:

| term       | what is measured                                             | what the theorem has in its place        |
|------------|--------------------------------------------------------------|------------------------------------------|
| regret     | of NPG against the comparator, by the critics' own scores    | ln A / (eta T) + eta range^2 / 8         |
| statistics | norm(v^t) sqrt(eps_stat), v^t = sum d~ (pi* - pi^t) phi,     | 2 sqrt(beta (n+1) eps_stat)              |
|            | the norm that of Sigma_rho^-1                                | + 4 sqrt(beta lambda) W                  |
| bias       | of the best fit along the comparator                         | 2 sqrt(A eps_bias)                       |
| iterate    | what the chosen iterate is worth less than the mean one      | 0, the best is chosen                    |
| potential  | Pr_{d^{n+1}}(unknown) / (1-gamma)^2                          | c I_N / (N beta (1-gamma)^2), on average |
| policy     | V^{n+1} less that of the returned one, from fresh episodes   | 0, the best is chosen                    |

The first three over (1-gamma). All but the last are computed from the model, which no learner has: the certificate is
of the analysis on this run, and says which of its terms is large. The last one is an empirical Bernstein bound (Maurer
and Pontil 2009) with probability 1 - delta, its episodes being no part of the run.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pcpg_theory import critic, exact, problems, tabular
from pcpg_theory.analysis import augmented_comparator, augmented_mdp
from pcpg_theory.mdp import Array, Index, TabularMDP
from pcpg_theory.npg import known_states
from pcpg_theory.optimism import Data, Range, bernstein, optimism
from pcpg_theory.samplers import Policies, Simulator, discounted_sums, reset
from pcpg_theory.settings import Settings
from pcpg_theory.tabular import Mode, TheoryRun, weighted_rho

TAIL = 1e-4


# From the moves that the run itself paid for, and nothing else.


class Recorder(Simulator):
    """A simulator that keeps count of its moves; those in terminal states are no steps.

    `paid` [S, A, S] are rewards that depend on where a move leads; by default they are r.
    """

    def __init__(self, mdp: TabularMDP, rng: np.random.Generator, paid: Array | None = None) -> None:
        super().__init__(mdp, rng)
        self._terminal = mdp.terminal
        self.paid = np.broadcast_to(mdp.r[..., None], mdp.P.shape) if paid is None else paid
        self.counts = np.zeros((*mdp.shape, mdp.num_states))
        self.order = [mdp.s0]  # states as they were met
        self._met = np.arange(mdp.num_states) == mdp.s0

    def move(self, s: Index, a: Index) -> Index:
        """The next state of each chain."""
        after, alive = super().move(s, a), ~self._terminal[s]
        place = (s * self.num_actions + a) * self.num_states + after
        self.counts += np.bincount(place[alive], minlength=self.counts.size).reshape(self.counts.shape)
        new = after[alive & ~self._met[after] & ~self._terminal[after]]
        self._met[new] = True
        self.order += dict.fromkeys(new.tolist())
        return after

    @property
    def number(self) -> Index:
        """Of each state, by when it was met; -1: never, or the end of an episode."""
        number = np.full(self.num_states, -1)
        number[self.order] = np.arange(len(self.order))
        return number

    def data(self) -> Data:
        """The moves by kind; terminal states are ends of episodes."""
        number, (s, a, y) = self.number, np.nonzero(self.counts)
        count, reward, start = self.counts[s, a, y], self.paid[s, a, y], np.zeros(1, np.int64)
        return Data(number[s], a, number[y], reward, count, start, np.ones(1), len(self.order), self.num_actions)


class FromMoves(NamedTuple):
    """V* - V^pi is at most `bound`, by V* at most `upper` and V^pi at least `lower`."""

    bound: float
    upper: float
    lower: float


def certify_moves(
    sim: Recorder, mdp: TabularMDP, pi: Array, delta: float, *, episodes: int = 2000, seed: int = 0
) -> FromMoves:
    """The certificate of a policy from the moves of its run and fresh episodes; the MDP itself is only played.

    Every chain begins in s0, which is the only start by definition, so nothing is estimated of it.
    """
    declared = Range(0.0, mdp.r_max).check()
    upper = float(optimism(sim.data(), declared, delta / 2.0, gamma=mdp.gamma).Q[0, 0].max())
    fresh, one, chains = Simulator(mdp, np.random.default_rng([11, seed])), Policies(pi), np.zeros(episodes, np.int64)
    sums = discounted_sums(fresh, one, chains, reset(fresh, one, chains), mdp.r, TAIL)  # what is cut is not negative
    lower = bernstein(sums, 0.0, declared.largest(1.0 / (1.0 - mdp.gamma)), delta / 2.0)
    return FromMoves(max(upper - lower, 0.0), upper, lower)


# From measured terms.


class Terms(NamedTuple):
    """The parts of a bound, each already divided by its powers of (1-gamma)."""

    regret: float
    statistics: float
    bias: float
    iterate: float
    potential: float
    policy: float = 0.0

    @property
    def total(self) -> float:
        """The bound."""
        return sum(self)


class Certificate(NamedTuple):
    """V* - V of the returned policy is at most `bound`, with probability 1 - delta."""

    bound: float
    gap: float  # the true gap
    trivial: float  # r_max / (1-gamma)
    optimal: float  # V*: no gap can be larger, since rewards are not negative
    n: int  # the round whose terms these are
    measured: Terms
    theorem: Terms
    eps_stat: float  # the largest of all rounds and iterates, as the next one
    eps_bias: float
    information_gain: float

    @property
    def holds(self) -> bool:
        """Whether the bound is true of this run."""
        return self.gap <= self.bound + 1e-9


class _Round(NamedTuple):
    measured: Terms
    theorem: Terms
    eps_stat: float
    eps_bias: float


def certify(
    mdp: TabularMDP,
    phi: Array,
    settings: Settings,
    found: TheoryRun,
    *,
    delta: float = 0.05,
    episodes: int = 2000,
    seed: int = 0,
) -> Certificate:
    """The best certificate of a run that kept its iterates, against an optimal comparator."""
    if mdp.r[mdp.available].max() > 1.0:
        raise ValueError(f"rewards must lie in [0, 1], as the bonus assumes, got {mdp.r.max():g}: divide them")
    if len(found.improvements) != len(found.rounds):
        raise ValueError("the run must have kept its iterates: tabular.run(..., keep_iterates=True)")
    best = exact.optimal_policy(mdp)
    labels = critic.partition_labels(phi)
    rounds = [_round(mdp, phi, labels, settings, found, n, best.pi) for n in range(len(found.rounds))]
    totals = np.array([one.measured.total for one in rounds])
    candidates = {int(totals.argmin())} | ({found.chosen - 1} if found.chosen else set())
    rng = np.random.default_rng([9, seed])
    with_policy = {
        n: rounds[n].measured._replace(policy=_worse(mdp, found, n + 1, rng, delta, episodes)) for n in candidates
    }
    n = min(with_policy, key=lambda each: with_policy[each].total)
    value = float(best.V[mdp.s0])
    return Certificate(
        bound=with_policy[n].total,
        gap=value - exact.value(mdp, found.pi),
        trivial=mdp.r_max / (1.0 - mdp.gamma),
        optimal=value,
        n=n,
        measured=with_policy[n],
        theorem=rounds[n].theorem,
        eps_stat=max(one.eps_stat for one in rounds),
        eps_bias=max(one.eps_bias for one in rounds),
        information_gain=found.bonuses[-1].log_det,
    )


class CertifiedRun(NamedTuple):
    """A run of a problem with both of its certificates."""

    mdp: str
    steps: int
    by_terms: Certificate
    from_data: FromMoves | None  # None: an exact run plays nothing


def certified_run(
    name: str, horizon: int | None, mode: Mode, seed: int, delta: float, **options: object
) -> CertifiedRun:
    """A run of a problem of `pcpg theory run` with options other than its preset's, and its certificates."""
    problem, settings = problems.make(name, horizon, seed, mode)
    mdp, settings = problem.mdp, replace(settings, **options)
    oracle = tabular.Oracle(mdp, tabular.primal_features(mdp, problem.phi, settings), settings, mode, seed)
    oracle.sim = sim = Recorder(mdp, np.random.default_rng(seed))
    found = tabular.run_oracle(oracle, keep_iterates=True)
    made = certify(mdp, problem.phi, settings, found, delta=delta, seed=seed)
    played = None if mode == "exact" else certify_moves(sim, mdp, found.pi, delta, seed=seed)
    return CertifiedRun(problem.name, found.steps, made, played)


def _round(
    mdp: TabularMDP, phi: Array, labels: Index | None, s: Settings, found: TheoryRun, n: int, comparator: Array
) -> _Round:
    g, b, made = 1.0 - mdp.gamma, found.bonuses[n].b, found.improvements[n]
    members = np.stack([exact.occupancy(mdp, pi) for pi in found.cover.policies[: n + 1]])
    rho = weighted_rho(members, found.designs[n])
    factor = critic.factorise(phi, rho, labels)
    known = known_states(b, mdp.available)
    path = exact.occupancy(augmented_mdp(mdp, b), augmented_comparator(mdp, b, comparator)).sum(1) * known
    d_star = exact.uniform_start_pairs(mdp, exact.occupancy(mdp, comparator).sum(1))
    rows = []
    for pi, theta in zip(made.iterates, made.thetas, strict=True):
        V, Q = exact.evaluate(mdp, pi, mdp.r + b)
        target, scores = Q - b, phi @ theta
        fit = nearest_best_fit(factor, target, s.W, theta)
        move = path[:, None] * (comparator - pi)
        residual = target - phi @ fit
        v, apart = np.einsum("sa,sad->d", move, phi), fit - theta
        error = weighted_square(factor, apart)
        rest = abs(float(outside(factor, v) @ apart))
        rows.append(
            (
                float((move * scores).sum()),
                dual_norm(factor, v) * np.sqrt(error) + rest,
                float((move * residual).sum()),
                float(V[mdp.s0]),
                error,
                float((d_star * residual**2).sum()),
                float(np.ptp(scores, axis=1)[known].max(initial=0.0)),
            )
        )
    regret, statistics, bias, values, errors, biases, ranges = np.array(rows).T
    record = found.rounds[n]
    measured = Terms(
        regret=float(regret.mean()) / g,
        statistics=float(statistics.mean()) / g,
        bias=float(bias.mean()) / g,
        iterate=float(values.mean()) - record.value_bonus,
        potential=record.escape / g**2,
    )
    A, N, T = mdp.num_actions, len(found.rounds), len(rows)
    c = (1.0 / s.ridge) / np.log1p(1.0 / s.ridge)
    W = s.W if np.isfinite(s.W) else float(np.linalg.norm(made.thetas, axis=-1).max())
    theorem = Terms(
        regret=(np.log(A) / (s.eta * T) + s.eta * float((ranges**2).mean()) / 8.0) / g,
        statistics=(2.0 * float(np.sqrt(s.beta * (n + 1) * errors).mean()) + 4.0 * float(np.sqrt(s.beta * s.ridge)) * W)
        / g,
        bias=2.0 * float(np.sqrt(A * biases).mean()) / g,
        iterate=0.0,
        potential=c * found.bonuses[-1].log_det / (N * s.beta * g**2),
    )
    return _Round(measured, theorem, float(errors.max()), float(biases.max()))


def _worse(
    mdp: TabularMDP, found: TheoryRun, index: int, rng: np.random.Generator, delta: float, episodes: int
) -> float:
    """How much more the policy of this index is worth than the returned one, at most, with probability 1 - delta/2."""
    if index == found.chosen:
        return 0.0
    sim, g = Simulator(mdp, rng), 1.0 - mdp.gamma
    means, radii, top, log = [], [], mdp.r_max / g, np.log(8.0 / delta)
    for pi in (found.cover.policies[index], found.pi):
        policies, chains = Policies(pi), np.zeros(episodes, np.int64)
        sums = discounted_sums(sim, policies, chains, reset(sim, policies, chains), mdp.r, TAIL)
        means.append(float(sums.mean()))
        radii.append(np.sqrt(2.0 * float(sums.var(ddof=1)) * log / episodes) + 7.0 * top * log / (3.0 * (episodes - 1)))
    return means[0] - means[1] + sum(radii) + TAIL * top


def _shape(factor: critic.Factor) -> tuple[Array, Array]:
    """The squares of the singular values that count, and the directions [k, d] they belong to."""
    keep = factor.singular > (0.0 if factor.right is None else critic.RANK_CUTOFF * factor.singular.max(initial=0.0))
    right = np.eye(len(factor.singular)) if factor.right is None else factor.right
    return factor.singular[keep] ** 2, right[keep]


def weighted_square(factor: critic.Factor, x: Array) -> float:
    """x' Sigma_rho x."""
    square, right = _shape(factor)
    return float(square @ (right @ x) ** 2)


def dual_norm(factor: critic.Factor, v: Array) -> float:
    """norm of v by the pseudo-inverse of Sigma_rho."""
    square, right = _shape(factor)
    return float(np.sqrt(((right @ v) ** 2 / square).sum()))


def outside(factor: critic.Factor, v: Array) -> Array:
    """The part of v in directions that rho never shows."""
    _, right = _shape(factor)
    return v - right.T @ (right @ v)


def nearest_best_fit(factor: critic.Factor, target: Array, W: float, theta: Array) -> Array:
    """The minimiser of the loss under rho that agrees with theta where rho sees nothing, if W has room for that."""
    least = critic.least_squares(factor, target, W)
    near = least + outside(factor, theta)
    return near if np.linalg.norm(near) <= W else least
