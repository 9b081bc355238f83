"""The parameters of the main theorem, as printed and corrected, with their cost.

The paper's settings for accuracy 4 eps (it loses factors; PAPER values are kept for comparison with the true ones):

| number   | as printed                                | corrected, sampled mode                                  |
|----------|-------------------------------------------|----------------------------------------------------------|
| T        | 4 W^2 log A / ((1-g)^2 eps^2)             | the same                                                 |
| beta     | eps^2 (1-g)^2 / (4 W^2)                   | eps^2 (1-g)^2 / (32 W^2)                                 |
| N        | >= 4 W^2 I_N / ((1-g)^3 eps^3)            | >= 128 W^2 I_N / (eps^3 (1-g)^4)                         |
| eps_stat | eps^3 (1-g)^3 / (4 I_N)                   | 4 W^2 / N                                                |
| M        | 144 W^4 I_N^2 ln(NT/delta) / (eps^6 (1-g)^10) | from the true SGD excess, truncated Q-estimates      |
| K        | 32 N^2 ln(N d_hat / delta)                | 32 N^2 ln(8 N d_hat / delta)                             |

I_N depends on N, so N is the least number that satisfies its own condition: solved by a fixed-point iteration from
below, which converges since I_N grows slower than N. "Samples" of the paper are pairs: each costs about 1/(1-gamma)
environment steps to draw, and a Q-estimate as many again. Choosing the best of T iterates and of N policies is not
counted in the paper at all; Hoeffding's inequality gives the episodes for it.

A check of the corrected numbers, term by term, with x = eps (1-gamma). The population form is at most 2 beta on known
pairs and at least beta / 2 on unknown ones. Regret of NPG 2 W sqrt(log A / T) = x; ridge 4 sqrt(2 beta) W = x;
statistics 2 sqrt(2 beta N eps_stat) = x at eps_stat = 4 W^2 / N; potential 2 I_N / (N (beta / 2) (1-gamma)) = x. Each
over (1-gamma) is eps: 4 eps in all.
"""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

from pcpg_theory.analysis import finite_dimensional_bound, rbf_bound
from pcpg_theory.mdp import check_gamma

Gain = Callable[[float], float]  # N -> a bound on I_N(1)


class Numbers(NamedTuple):
    """Parameters and costs; floats, since they outgrow every integer type."""

    T: float
    ridge: float
    beta: float
    N: float
    information_gain: float
    eps_stat: float
    M: float
    K: float
    pairs_critic: float  # N T M
    pairs_covariance: float  # N K
    pairs_total: float
    steps_total: float  # environment steps of all pairs and Q-estimates
    episodes_choice: float  # to choose iterates and the final policy, within eps
    steps_choice: float


class TheoremNumbers(NamedTuple):
    """A query of the theorem, with its parameters as printed and corrected."""

    epsilon: float
    delta: float
    gamma: float
    num_actions: int
    W: float
    intrinsic_dim: float
    paper: Numbers
    corrected: Numbers


def linear_W(omega: float, xi: float, gamma: float) -> float:
    """W of a linear MDP: omega + xi / (1-gamma)^2."""
    return omega + xi / (1.0 - gamma) ** 2


def aggregation_W(num_labels: int, gamma: float) -> float:
    """W of a state aggregation with |Z| labels: sqrt(|Z|) / (1-gamma)^2."""
    return math.sqrt(num_labels) / (1.0 - gamma) ** 2


def solve_N(factor: float, gain: Gain, max_iterations: int = 10_000) -> float:
    """The least N >= 1 with N >= factor * gain(N), rounded up where a float can tell."""
    N = 1.0
    for _ in range(max_iterations):
        needed = max(1.0, factor * gain(N))
        if needed <= N * (1.0 + 1e-13):
            return float(math.ceil(N)) if N < 2**52 else N
        N = needed
        if not math.isfinite(N):
            break
    raise ValueError("no N satisfies N >= factor * I_N: the information gain grows too fast")


def paper_N_finite(factor: float, dim: int) -> float:
    """The N that the paper's remark says suffices in dimension d: 2 f d ln(f d), f = 4 W^2 / ((1-g)^3 eps^3)."""
    return 2.0 * factor * dim * math.log(factor * dim)


def sgd_samples(eps_stat: float, W: float, gamma: float, failures: float) -> tuple[float, float]:
    """M and the bound H on truncated Q-estimates for which the critic's excess is at most eps_stat.

    Estimates of Q - b are sums of at most L rewards of at most (2-gamma)/(1-gamma), cut at L = ln(1/tau)/(1-gamma). The
    cut costs a bias of at most gamma^L (2-gamma)/(1-gamma)^2 in the target. Half of eps_stat goes to it, half to the
    lemma.
    """
    r_max = (2.0 - gamma) / (1.0 - gamma)
    span = 1.0 / (1.0 - gamma) ** 2
    # A bias of at most e in the target moves a squared loss by at most 2 e (W + span) + e^2, that of both thetas.
    e = min(1.0, eps_stat / 4.0 / (2.0 * (W + span) + 1.0))
    length = 1.0 if gamma == 0.0 else max(1.0, math.log(r_max / (1.0 - gamma) / e) / -math.log(gamma))
    H = length * r_max
    constant = (2.0 + 4.0 * math.sqrt(2.0 * math.log(failures))) * W * (W + H)
    return (constant / (eps_stat / 2.0)) ** 2, H


def _costs(
    T: float,
    beta: float,
    N: float,
    gain: float,
    eps_stat: float,
    M: float,
    K: float,
    *,
    epsilon: float,
    delta: float,
    gamma: float,
) -> Numbers:
    critic, covariance, g = N * T * M, N * K, 1.0 - gamma
    steps = critic * (gamma + 1.0) / g + covariance * gamma / g
    # Hoeffding: values of r + b lie in [0, (2-g)/(1-g)^2], N times T iterates; of r in [0, 1/(1-g)], N policies.
    inner = ((2.0 - gamma) / g**2 / epsilon) ** 2 / 2.0 * math.log(2.0 * N * T / delta)
    outer = (1.0 / g / epsilon) ** 2 / 2.0 * math.log(2.0 * N / delta)
    episodes = N * T * inner + N * outer
    pairs = (critic, covariance, critic + covariance)
    return Numbers(T, 1.0, beta, N, gain, eps_stat, M, K, *pairs, steps, episodes, episodes / g)


def theorem(
    epsilon: float, gamma: float, *, num_actions: int, W: float, gain: Gain, intrinsic_dim: float, delta: float = 0.1
) -> TheoremNumbers:
    """The theorem's numbers for accuracy 4 epsilon, as printed and corrected."""
    check_gamma(gamma)
    if not 0.0 < epsilon < 1.0 / (1.0 - gamma):
        raise ValueError(f"epsilon must be above 0 and below 1/(1-gamma) = {1 / (1 - gamma):g}, got {epsilon}")
    if not 0.0 < delta < 0.5:
        raise ValueError(f"delta must be above 0 and below 1/2, got {delta}")
    if num_actions < 1 or not W > 0.0 or not intrinsic_dim >= 1.0:
        given = f"{num_actions}, {W} and {intrinsic_dim}"
        raise ValueError(f"num_actions must be 1 or more, W positive and intrinsic_dim 1 or more, got {given}")
    g, x = 1.0 - gamma, epsilon * (1.0 - gamma)
    T = max(1.0, 4.0 * W**2 * math.log(num_actions) / x**2)
    asked = {"epsilon": epsilon, "delta": delta, "gamma": gamma}

    N = solve_N(4.0 * W**2 / x**3, gain)
    I_N = gain(N)
    M = 144.0 * W**4 * I_N**2 * math.log(N * T / delta) / (epsilon**6 * g**10)
    K = 32.0 * N**2 * math.log(N * intrinsic_dim / delta)
    eps_stat = x**3 / (4.0 * I_N)
    paper = _costs(T, x**2 / (4.0 * W**2), N, I_N, eps_stat, M, K, **asked)

    N = solve_N(128.0 * W**2 / (epsilon**3 * g**4), gain)
    I_N, eps_stat = gain(N), 4.0 * W**2 / N
    M, _ = sgd_samples(eps_stat, W, gamma, N * T / delta)
    K = 32.0 * N**2 * math.log(8.0 * N * intrinsic_dim / delta)
    corrected = _costs(T, x**2 / (32.0 * W**2), N, I_N, eps_stat, M, K, **asked)
    return TheoremNumbers(epsilon, delta, gamma, num_actions, W, intrinsic_dim, paper, corrected)


def gain_bound(kind: Literal["finite", "rbf"], dim: int, constant: float = 1.0) -> Gain:
    """The bound on I_N(1) as a function of N: d log(1 + N), or constant * log(1 + N)^(d+1)."""
    if kind not in ("finite", "rbf"):
        raise ValueError(f"kind must be 'finite' or 'rbf', got {kind!r}")
    if dim < 1 or not constant > 0.0:
        raise ValueError(f"dim must be 1 or more and constant positive, got {dim} and {constant}")
    return (lambda N: finite_dimensional_bound(N, dim)) if kind == "finite" else (lambda N: rbf_bound(N, dim, constant))
