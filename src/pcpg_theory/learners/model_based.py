"""The model-based row of the table: E3, R-max, UCRL2 and UCBVI, planning in a model estimated from counts."""

from dataclasses import dataclass

import numpy as np

from pcpg_theory.learners import tables
from pcpg_theory.learners.layout import Episodes, Layout
from pcpg_theory.mdp import Array, Index, Mask


@dataclass(eq=False)
class E3(tables.ModelLearner):
    """E3, explicit explore or exploit (Kearns and Singh 2002), for episodes from s0.

    A state is known when each of its actions was tried m times. In unknown states the least tried action is played
    (balanced wandering). In known ones, on the empirical model of the known states:

        explore   the policy that is most likely to reach an unknown state, if that is likelier than eps / (2 L)
        exploit   the policy of the largest return, unknown states being worth nothing, else

    By the explore-or-exploit lemma the second is near-optimal when the first cannot leave the known states. The paper
    has m of order (S T G / eps)^4 Var ln(1 / delta), with T steps, returns of at most G and Var the variance of
    rewards. Here T and G are L and Var is at most one: m = ceil(scale (S L^2 / eps)^4 ln(1 / delta)). The paper leaves
    the constant open; it is taken as one. S counts states with their time in them. The exploiting policy is what is
    scored, as what E3 returns when it halts.
    """

    epsilon: float = 0.1
    delta: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        layout = self.layout
        theory = (layout.num_states * layout.horizon**2 / self.epsilon) ** 4 * np.log(1.0 / self.delta)
        self.m = np.ceil(self.scales * theory)
        self.threshold = self.epsilon / (2.0 * layout.horizon)
        self.play = self.pi

    def behaviour(self) -> Array:
        """The exploring policies where something unknown is in reach, the exploiting ones elsewhere."""
        return self.play

    def learn(self, episodes: Episodes) -> None:
        """Count the visits to unknown states and plan again; models of known states are not changed."""
        counts, s = self.counts, episodes.s[..., :-1]
        fresh = ~self.known()[self._lane[..., None], s]
        if not fresh.any():
            return
        counts.add(episodes, keep=fresh)
        known, P = self.known(), counts.transitions()
        wander = tables.greedy(-counts.visits)
        escape = self._plan(np.zeros_like(counts.rewards), P, known, worth=1.0)
        returns = self._plan(counts.mean_reward(), P, known, worth=0.0)
        at_known = known[..., None]
        explore = np.where(at_known, tables.greedy(escape), wander)
        self.pi = np.where(at_known, tables.greedy(returns), wander)
        reach = escape[:, 0].max(-1) >= self.threshold
        self.play = np.where(reach[:, None, None], explore, self.pi)

    def known(self) -> Mask:
        """Which states are known, [n, S]."""
        return self.counts.visits.min(-1) >= self.m[..., 0]

    def _plan(self, r: Array, P: Array, known: Mask, worth: float) -> Array:
        def finish(here: slice, Q: Array) -> Array:
            return np.where(known[:, here, None], Q, worth)

        return tables.induct(self.layout, r, P, finish)


def known_after(states: int, actions: int, horizon: int, epsilon: float, delta: float) -> float:
    """R-max's number of visits K_1 after which a pair is known, for rewards of at most one."""
    accuracy = (4.0 * states * horizon / epsilon) ** 3
    confidence = -6.0 * np.log(delta / (6.0 * states * actions**2)) ** 3
    return float(max(np.ceil(accuracy), np.ceil(confidence)) + 1.0)


def heaven(layout: Layout, gamma: float) -> Array:
    """The most that can remain, sum_{k < L-h} gamma^k, for each decision state."""
    powers: Array = np.cumsum(gamma ** np.arange(layout.horizon), dtype=np.float64)
    return powers[layout.remaining[: layout.num_states].astype(np.int64) - 1]


@dataclass(eq=False)
class RMax(tables.ModelLearner):
    """R-max (Brafman and Tennenholtz 2002): pairs tried fewer than m times are taken to lead to heaven.

    A pair is known from its m-th visit on, with the model estimated from those m visits. Unknown pairs are worth the
    most that can remain, sum_{k < L-h} gamma^k. The policy is optimal in that model; it changes only when a pair
    becomes known.

        m = ceil(scale (max((4 S T / eps)^3, -6 ln^3(delta / (6 S A^2))) + 1))

    T is the eps-return mixing time, here the horizon L; S counts states with their time in them. gamma = 1 - 1/L.
    """

    gamma: float | None = None
    epsilon: float = 0.1
    delta: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        layout = self.layout
        theory = known_after(layout.num_states, layout.num_actions, layout.horizon, self.epsilon, self.delta)
        self.m = np.ceil(self.scales * theory)
        self.discount = tables.discount(layout.horizon, self.gamma)
        self.top = heaven(layout, self.discount)[:, None]
        self.pi = tables.greedy(tables.zeros(layout, self.n) + self.top)

    def learn(self, episodes: Episodes) -> None:
        """Count the visits of unknown pairs; plan again where one became known."""
        counts, at = self.counts, (self._lane[..., None], episodes.s[..., :-1], episodes.a)
        fresh = counts.visits[at] < self.m
        if not fresh.any():
            return
        counts.add(episodes, keep=fresh)
        if (fresh & (counts.visits[at] >= self.m)).any():
            self.pi = tables.greedy(self._plan())

    def _plan(self) -> Array:
        known = self.counts.visits >= self.m
        P = self.discount * self.counts.transitions()

        def finish(here: slice, Q: Array) -> Array:
            return np.where(known[:, here], Q, self.top[here])

        return tables.induct(self.layout, self.counts.mean_reward(), P, finish)


def optimistic_mean(P: Array, radius: Array, V: Array) -> Array:
    """The largest P' V over distributions P' within `radius` of P in norm 1: P [n, s, A, w], V [n, w].

    Half the radius is put on the best successor and taken from the worst ones, as in UCRL2's Figure 2.
    """
    order = np.argsort(-V, axis=-1, kind="stable")
    V = np.take_along_axis(V, order, axis=-1)
    p = np.take_along_axis(P, order[:, None, None, :], axis=-1)
    first = np.minimum(1.0, p[..., 0] + radius / 2.0)
    p = np.concatenate([first[..., None], p[..., 1:]], axis=-1)
    excess = np.maximum(p.sum(-1, keepdims=True) - 1.0, 0.0)
    worse = np.cumsum(p[..., ::-1], axis=-1)[..., ::-1] - p  # mass on successors worse than each
    p = p - np.clip(excess - worse, 0.0, p)
    return np.einsum("nsaw,nw->nsa", p, V)


def reward_radius(N: Array, states: int, actions: int, t: int, delta: float) -> Array:
    """The radius sqrt(7 ln(2 S A t / delta) / (2 max(1, N))) of UCRL2's rewards."""
    return np.sqrt(3.5 * np.log(2.0 * states * actions * t / delta) / np.maximum(N, 1.0))


def transition_radius(N: Array, width: int, actions: int, t: int, delta: float) -> Array:
    """The radius sqrt(14 W ln(2 A t / delta) / max(1, N)) of UCRL2's transitions."""
    return np.sqrt(14.0 * width * np.log(2.0 * actions * t / delta) / np.maximum(N, 1.0))


@dataclass(eq=False)
class UCRL2(tables.EpochLearner):
    """UCRL2 (Jaksch, Ortner and Auer 2010), its extended value iteration run backward over the layers of an episode.

    At the start of an epoch it takes the best policy in the best MDP that the counts allow:

        abs(r - r^) <= scale sqrt(7 ln(2 S A t / delta) / (2 max(1, N)))
        norm_1(P - P^) <= scale sqrt(14 W ln(2 A t / delta) / max(1, N))

    and plays it until some pair's visits have doubled (looked at after each episode). The paper maximises the average
    reward of an endless MDP; with resets every L steps that is the return of an episode, so one backward pass over the
    layers takes the place of its iteration. W states of the next layer, where the paper has all S. With the paper's
    radii a pair that was not tried can be anything; it stays so whatever the scale.
    """

    delta: float = 0.1

    def plan(self, which: Index) -> Array:
        """The Q of the best MDP within the radii."""
        layout, N = self.layout, self.counts.visits[which]
        P, r = self.counts.transitions()[which], self.counts.mean_reward()[which]
        r = r + self.scales[which] * reward_radius(N, layout.num_states, layout.num_actions, self.steps, self.delta)

        def q(here: slice, _: slice, V: Array) -> Array:
            wide, n = V.shape[1], N[:, here]
            radius = self.scales[which] * transition_radius(n, wide, layout.num_actions, self.steps, self.delta)
            found = np.minimum(r[:, here] + optimistic_mean(P[:, here, :, :wide], radius, V), self.top[here])
            return np.where(n > 0.0, found, self.top[here])

        return tables.backward(layout, r.shape, q)


def hoeffding_bonus(N: Array, horizon: int, ell: float) -> Array:
    """UCBVI-CH's bonus 7 L ell / sqrt(N), for N of at least one."""
    return 7.0 * horizon * ell / np.sqrt(N)


def bernstein_bonus(N: Array, P: Array, V: Array, arrivals: Array, horizon: int, ell: float, pairs: float) -> Array:
    """UCBVI-BF's bonus for N [n, s, A], P [n, s, A, w], V [n, w], arrivals [n, w]; pairs = S^2 A."""
    mean = np.einsum("nsaw,nw->nsa", P, V)
    variance = np.maximum(np.einsum("nsaw,nw->nsa", P, V**2) - mean**2, 0.0)
    worst = np.minimum(1e4 * horizon**3 * pairs * ell**2 / np.maximum(arrivals, 1.0), horizon**2)
    spread = np.einsum("nsaw,nw->nsa", P, worst)
    return np.sqrt(8.0 * ell * variance / N) + 14.0 * horizon * ell / (3.0 * N) + np.sqrt(8.0 * spread / N)


@dataclass(eq=False)
class UCBVI(tables.ModelLearner):
    """UCBVI (Azar, Osband and Munos 2017), with Hoeffding (UCBVI-CH) and Bernstein-Freedman (UCBVI-BF) bonuses.

        Q_h(s, a) = min(Q_h of the last episode, L - h, r^ + P^ V_{h+1} + scale b),  greedy play

        Hoeffding  b = 7 L ell / sqrt(N)
        Bernstein  b = sqrt(8 ell Var_{P^}(V_{h+1}) / N) + 14 L ell / (3 N)
                       + sqrt(8 sum_y P^(y) min(100^2 L^3 S^2 A ell^2 / N'_{h+1}(y), L^2) / N)

    N counts visits of (s, a) at all times (the model is stationary), N'_{h+1}(y) visits of y at step h+1;
    ell = ln(5 S A t / delta) with t the samples so far, where the paper knows the total T.
    """

    delta: float = 0.1
    bonus: tables.Bonus = "hoeffding"
    share = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.arrivals = np.zeros((self.n, self.layout.first[-1]))  # N'_h(y): states hold their time
        self.Q = tables.highest(self.layout, self.n)
        self.pi = tables.greedy(self.Q)

    def learn(self, episodes: Episodes) -> None:
        """Count an episode and plan again."""
        self.count(episodes)
        np.add.at(self.arrivals, (self._lane[..., None], episodes.s), 1.0)
        layout, which = self.layout, self.counts.model_state
        ell = float(np.log(5.0 * layout.num_shared * layout.num_actions * self.steps / self.delta))
        N, r = np.maximum(self.counts.visits, 1.0), self.counts.mean_reward()
        if self.bonus == "hoeffding":
            r = r + self.scales * hoeffding_bonus(N, layout.horizon, ell)
        r = np.where(self.counts.visits > 0.0, r, np.inf)[:, which]  # not tried: the cut alone holds
        P, N = self.counts.transitions()[:, which], N[:, which]
        pairs = float(layout.num_shared**2 * layout.num_actions)

        def q(here: slice, after: slice, V: Array) -> Array:
            rows, arrivals = P[:, here, :, : V.shape[1]], self.arrivals[:, after]
            new = r[:, here] + tables.expected(P, here, V)
            if self.bonus == "bernstein":
                new += self.scales * bernstein_bonus(N[:, here], rows, V, arrivals, layout.horizon, ell, pairs)
            return np.minimum(self.Q[:, here], new)

        self.Q = tables.backward(layout, self.Q.shape, q)
        self.pi = tables.greedy(self.Q)
