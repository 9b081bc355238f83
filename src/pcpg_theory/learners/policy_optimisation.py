"""Policy optimisation from s0, without exploration: REINFORCE, NPG, MD-MPI, and with restarts in mind CPI and PSDP.

All start from the uniform policy. Where uniform play never meets a reward, nothing is learnt.
"""

from dataclasses import dataclass

import numpy as np

from pcpg_theory.learners import tables
from pcpg_theory.learners.layout import Episodes, Layout, Mixture
from pcpg_theory.mdp import Array


@dataclass(eq=False)
class SoftmaxLearner(tables.Discounted):
    """A tabular softmax policy with logits theta, and a batch of episodes for each step."""

    batch: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        self.theta = tables.zeros(self.layout, self.n)

    def climb(self, change: Array) -> None:
        """Move the logits."""
        self.theta += change
        self.pi = tables.softmax(self.theta)


@dataclass(eq=False)
class Reinforce(SoftmaxLearner):
    """REINFORCE (Williams 1992): stochastic gradient ascent on the logits of a tabular softmax policy.

        theta(s, .) += scale (1/B) sum over visits of (s, a) in a batch of (G - b_h) (e_a - pi(. | s))

    G is the discounted return from the visit on (gamma = 1 - 1/L), b_h the mean of G at step h over the batch. `scale`
    is the step.
    """

    def learn(self, episodes: Episodes) -> None:
        """Take one gradient step."""
        G = tables.returns_to_go(episodes.r, self.discount)
        sums, _ = tables.pair_sums(self.pi.shape, episodes.s[..., :-1], episodes.a, G - G.mean(1, keepdims=True))
        # sum_a sums(s, a) (e_a - pi) = sums(s, .) - pi(s, .) sum_a sums(s, a)
        gradient = sums - self.pi * sums.sum(-1, keepdims=True)
        self.climb(self.scales / self.batch * gradient)


@dataclass(eq=False)
class NPG(SoftmaxLearner):
    """Natural policy gradient without exploration (Kakade 2001; Agarwal, Kakade, Lee and Mahajan 2019), sampled.

        theta(s, a) += scale (Q^(s, a) - V^(s)) / (1 - gamma)

    the natural gradient of a tabular softmax policy, on pairs met in a batch of episodes from s0: Q^ is the mean return
    of the pair's visits, V^ that of its state's. Pairs that were not met keep their logit: there is no cover to roll in
    from. gamma = 1 - 1/L; `scale` is the paper's eta.
    """

    scale: float | Array = 0.1
    below_one = True

    def learn(self, episodes: Episodes) -> None:
        """Take one natural gradient step."""
        G = tables.returns_to_go(episodes.r, self.discount)
        sums, visits = tables.pair_sums(self.pi.shape, episodes.s[..., :-1], episodes.a, G)
        Q = sums / np.maximum(visits, 1.0)
        V = sums.sum(-1, keepdims=True) / np.maximum(visits.sum(-1, keepdims=True), 1.0)
        self.climb(self.scales / (1.0 - self.discount) * np.where(visits > 0.0, Q - V, 0.0))


def partial_returns(r: Array, V: Array, m: int, gamma: float) -> Array:
    """MD-MPI's m-step targets [..., L] from rewards [..., L] and values [..., L + 1] of the states met.

    Beyond the end of an episode there are no rewards and values are zero, so targets are cut there.
    """
    L = r.shape[-1]
    G = np.zeros_like(r)
    for i in range(min(m, L)):
        G[..., : L - i] += gamma**i * r[..., i:]
    if m < L:
        G[..., : L - m] += gamma**m * V[..., m:L]
    return G


@dataclass(eq=False)
class MDMPI(SoftmaxLearner):
    """Mirror descent modified policy iteration, MD-MPI (Geist, Scherrer and Pietquin 2019), sampled from s0.

        pi_{k+1} = argmax_pi <q_k, pi> - KL(pi, pi_k) / scale,   that is pi_{k+1} ~ pi_k exp(scale q_k)
        q_{k+1}  = (T_{pi_{k+1}})^m q_k

    The second line on samples: for each pair met in a batch of episodes of pi_{k+1}, the mean of its m-step targets
    sum_{i<m} gamma^i r_{h+i} + gamma^m sum_a pi_{k+1}(a | s_{h+m}) q_k(s_{h+m}, a); pairs that were not met keep q_k.
    q starts at 0. gamma = 1 - 1/L.
    """

    m: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        self.q = tables.zeros(self.layout, self.n)
        self.after = self.layout.first[-1] - self.layout.num_states

    def learn(self, episodes: Episodes) -> None:
        """Evaluate the policy that made the episodes, then take a mirror step."""
        V = np.pad((self.pi * self.q).sum(-1), ((0, 0), (0, self.after)))
        targets = partial_returns(episodes.r, V[self._lane[..., None], episodes.s], self.m, self.discount)
        found = tables.pair_means(self.pi.shape, episodes.s[..., :-1], episodes.a, targets)
        self.q = np.where(np.isfinite(found), found, self.q)
        self.climb(self.scales * self.q)


@dataclass(eq=False)
class CPI(tables.Discounted):
    """Conservative policy iteration, CPI (Kakade and Langford 2002), for episodes from s0.

    The paper assumes restarts from a distribution mu that covers the states; here mu is s0, as for all learners, which
    weakens the guarantee: the policy found cannot be improved much in the states it visits itself.

    In each iteration, with pi the policy and values normalised to V = (1-gamma) E sum gamma^t r, in [0, R], R = 1:

        pi'     greedy in estimates of Q^pi: an episode follows pi to step h, Pr(h) ~ gamma^h, acts uniformly, then pi
        A^      estimate of the policy advantage A = E_{s ~ d^pi} sum_a pi'(a | s) A^pi(s, a), from the other half
        pi <- (1 - alpha) pi + alpha pi',   alpha = scale (1-gamma) (A^ - eps/3) / (4 R),   if A^ >= 2 eps/3

    The paper stops at the first A^ below 2 eps/3; here such an iteration leaves pi as it is. States that were not met
    keep pi. scale = 1 is the paper's step, which its theorem shows to improve pi; alpha is cut at one. gamma = 1 - 1/L.
    The number of episodes of an iteration is an argument, where the paper asks for an order,
    R^2 / eps^2 ln(R^2 / (delta eps^2)).
    """

    batch: int = 500
    epsilon: float = 0.01
    below_one = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch < 2:
            raise ValueError(f"batch must be 2 or more, an episode to choose and one to estimate, got {self.batch}")
        self.even = self.pi.copy()
        self.h = tables.geometric_steps(self.streams.uniform(self.batch), self.discount, self.layout.horizon)

    def behaviour(self) -> Mixture:
        """The policies with a uniform action at one step of each episode."""
        which = np.arange(self.layout.horizon) == self.h[..., None]
        return Mixture(np.stack([self.pi, self.even], axis=1), which.astype(np.int64))

    def learn(self, episodes: Episodes) -> None:
        """Take one conservative step; the first half of the episodes chooses pi', the other estimates its advantage."""
        at, half = self.h[..., None], self.batch // 2
        s, a = (np.take_along_axis(part, at, -1)[..., 0] for part in (episodes.s, episodes.a))
        q = (1.0 - self.discount) * np.take_along_axis(tables.returns_to_go(episodes.r, self.discount), at, -1)[..., 0]
        found = tables.pair_means(self.pi.shape, s[:, :half], a[:, :half], q[:, :half])
        greedy = tables.greedy_where_met(found, self.pi)
        change = (greedy - self.pi)[self._lane, s, a][:, half:]
        # An action is uniform, so A times (pi' - pi)(a) q is unbiased; d^pi has mass 1 - gamma^L before the end.
        mass = 1.0 - self.discount**self.layout.horizon
        advantage = mass * self.layout.num_actions * (change * q[:, half:]).mean(1)
        alpha = np.minimum(self.scales[:, 0, 0] * (1.0 - self.discount) * (advantage - self.epsilon / 3.0) / 4.0, 1.0)
        alpha = np.where(advantage >= 2.0 * self.epsilon / 3.0, alpha, 0.0)[:, None, None]
        self.pi = (1.0 - alpha) * self.pi + alpha * greedy
        self.h = tables.geometric_steps(self.streams.uniform(self.batch), self.discount, self.layout.horizon)


def episodes_of_a_step(layout: Layout, epsilon: float, delta: float) -> float:
    """PSDP's number of episodes 2 (A L / eps)^2 (W ln A + ln(2 L / delta)) for the policy of a step."""
    A, L = layout.num_actions, layout.horizon
    policies = layout.width * np.log(A) + np.log(2.0 * L / delta)
    return float(2.0 * (A * L / epsilon) ** 2 * policies)


@dataclass(eq=False)
class PSDP(tables.TabularLearner):
    """PSDP, policy search by dynamic programming (Bagnell, Kakade, Ng and Schneider 2003), for episodes from s0.

    The paper assumes a baseline distribution mu_h over states for each step; here one has to be made from s0, as
    everybody has to: mu_h is where uniform play from s0 is at step h. The guarantee is relative to mu, so it is void
    where uniform play does not go.

    From the last step to the first, with m episodes each: uniform play up to step h and one uniform action there, then
    the policies of the later steps, which are found already;

        pi_h(s) = argmax_a of the mean return from h on over the episodes with s_h = s, a_h = a

    States that were not met stay uniform. The paper asks for an eps-best policy of a class at each step, and loses
    L eps by it. For all maps from W states to A actions, Hoeffding's inequality for importance-weighted returns in
    [0, A L] and a union over the class and the steps give

        m = ceil(scale 2 (A L / eps)^2 (W ln A + ln(2 L / delta)))

    a constant by our derivation; the paper states none. A pass over all steps is scored once it is complete, the first
    one as it goes; the passes after it start afresh with twice the episodes of the one before.
    """

    epsilon: float = 0.1
    delta: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if np.ndim(self.scale) > 0:
            raise ValueError("scale must be one number: it says how many episodes are asked for, of all seeds at once")
        self.batch = int(np.ceil(self.scale * episodes_of_a_step(self.layout, self.epsilon, self.delta)))
        self.h, self.first = self.layout.horizon - 1, True
        self.found = self.pi

    def policy(self) -> Array:
        """The policies of the last complete pass; of the first one as far as it has got."""
        return self.pi if self.first else self.found

    def behaviour(self) -> Array:
        """Uniform play up to the step in question and the policies found for the later ones after it."""
        return self.pi  # those of earlier steps are still uniform

    def learn(self, episodes: Episodes) -> None:
        """Choose the policies of one step, and go to the step before it."""
        h, shape = self.h, self.pi.shape
        Q = tables.pair_means(shape, episodes.s[..., h], episodes.a[..., h], episodes.r[..., h:].sum(-1))
        self.pi = tables.greedy_where_met(Q, self.pi)
        self.h -= 1
        if self.h < 0:
            self.found, self.pi = self.pi, tables.uniform(self.layout, shape[0])
            self.h, self.first, self.batch = self.layout.horizon - 1, False, 2 * self.batch
