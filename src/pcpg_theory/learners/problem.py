"""Episodic problems with L decisions and reset to s0, an instance for each seed, and exact undiscounted returns.

States of the problem lie in layers, as the learner's do (see `layout`); `observed` says which state of the learner
each of them is seen as. Rewards are shifted and scaled into [0, 1] for the learner, which changes no order of
policies since all episodes have L decisions; returns are reported in the environment's own reward.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pcpg_theory.learners.layout import Layout
from pcpg_theory.mdp import Array, Index, TabularMDP, random_mdp


@dataclass(frozen=True, eq=False)
class Episodic:
    """An episodic problem in layers, for n seeds; made by the functions below."""

    name: str
    first: tuple[int, ...]  # L + 2 entries: the states of step h are first[h] .. first[h + 1] - 1
    P: Array  # [n, X, A, W] probability of each state of the next layer
    r: Array  # [n, X, A] reward in [0, 1]
    observed: Index  # [X and layer L] the learner's state
    layout: Layout
    low: float  # raw reward = low + (high - low) r
    high: float
    noisy: bool = False  # a reward is 1 with probability r and 0 else, as learners see it

    @property
    def n(self) -> int:
        """The number of instances, one for each seed."""
        return len(self.P)

    @property
    def horizon(self) -> int:
        """The number of decisions of an episode."""
        return len(self.first) - 2

    def returns(self, pi: Array) -> Array:
        """The exact expected raw return [n] of policies [n, S, A] over the learner's states."""
        chosen = pi[:, self.observed[: self.first[-2]]]
        return self._backward(lambda h, Q: (chosen[:, self.first[h] : self.first[h + 1]] * Q).sum(-1))

    def optimal(self) -> Array:
        """The best expected raw return [n] of any policy that sees the true state and the time."""
        return self._backward(lambda _, Q: Q.max(-1))

    def uniform(self) -> Array:
        """The expected raw return [n] of uniform play."""
        return self._backward(lambda _, Q: Q.mean(-1))

    def _backward(self, value: Callable[[int, Array], Array]) -> Array:
        V = np.zeros((self.n, 1))
        for h in range(self.horizon - 1, -1, -1):
            here, wide = slice(self.first[h], self.first[h + 1]), self.first[h + 2] - self.first[h + 1]
            V = V if h < self.horizon - 1 else np.zeros((self.n, wide))
            V = value(h, self.r[:, here] + np.einsum("nxaw,nw->nxa", self.P[:, here, :, :wide], V))
        return self.low * self.horizon + (self.high - self.low) * V[:, 0]


def side_by_side(parts: Sequence[Episodic]) -> Episodic:
    """The instances of problems that differ in their chances and rewards alone, one after the other."""
    first = parts[0]
    if any(part.first != first.first or part.high != first.high or part.low != first.low for part in parts):
        raise ValueError("problems side by side must have the same layers and the same range of rewards")
    P, r = np.concatenate([part.P for part in parts]), np.concatenate([part.r for part in parts])
    return replace(first, P=P, r=r)


def build(
    name: str, layers: Sequence[Index], P: Array, raw: Array, low: float, high: float, labels: ArrayLike | None = None
) -> Episodic:
    """The problem of P [n, states, A, states] and raw rewards [n, states, A] with these states at each time.

    The first layer must be s0 alone. `labels` [states] aggregates: states of equal label look the same at equal times.
    """
    labels = np.arange(P.shape[1]) if labels is None else np.asarray(labels)
    if labels.shape != (P.shape[1],):
        raise ValueError(f"labels must have shape ({P.shape[1]},), one for each state, got {labels.shape}")
    if len(layers) < 2 or len(layers[0]) != 1:
        raise ValueError("a problem must have at least one decision, and s0 alone in the first layer")
    inside = np.concatenate(layers[:-1])
    least, most = raw[:, inside].min(), raw[:, inside].max()
    if not low < high or least < low - 1e-9 or most > high + 1e-9:
        raise ValueError(f"raw rewards must lie in the range ({low}, {high}), got {least} to {most}")
    n, actions, width = len(P), P.shape[2], max(map(len, layers))
    first = tuple(int(k) for k in np.cumsum([0, *map(len, layers)]))
    rows = np.zeros((n, first[-2], actions, width))
    for h, (here, after) in enumerate(itertools.pairwise(layers)):
        rows[:, first[h] : first[h + 1], :, : len(after)] = P[:, here][..., after]
    if np.abs(rows.sum(-1) - 1.0).max() > 1e-8:
        raise ValueError(f"{name}: some move of a layer does not lead into the next one")
    rows /= rows.sum(-1, keepdims=True)  # a correction of rounding only: every draw must find its outcome
    seen = [np.unique(labels[layer]) for layer in layers]
    starts = np.cumsum([0, *map(len, seen)])
    places = [starts[h] + np.searchsorted(seen[h], labels[layer]) for h, layer in enumerate(layers)]
    layout = Layout(tuple(int(k) for k in starts), actions, _shared(seen))
    scaled = np.clip((raw[:, inside] - low) / (high - low), 0.0, 1.0)
    return Episodic(name, first, rows, scaled, np.concatenate(places).astype(np.int64), layout, low, high)


def _shared(seen: Sequence[Array]) -> Index:
    """A number for each decision state: equal where the label and the labels of the next layer are equal."""
    numbers: dict[tuple[int, tuple[int, ...]], int] = {}
    keys = [(int(z), tuple(map(int, after))) for here, after in itertools.pairwise(seen) for z in here]
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)


def layered(
    name: str,
    P: Array,
    raw: Array,
    start: int,
    decisions: int,
    low: float,
    high: float,
    labels: ArrayLike | None = None,
) -> Episodic:
    """A problem whose states hold their time already: layers are what can be reached at each step."""
    moves = P.max((0, 2)) > 0.0
    layer = np.arange(P.shape[1]) == start
    layers = [np.flatnonzero(layer)]
    for _ in range(decisions):
        layer = moves[layer].any(0)
        layers.append(np.flatnonzero(layer))
    every = np.concatenate(layers)
    if len(every) != len(set(every.tolist())):
        raise ValueError(f"{name}: a state can be met at two times; use `timed`")
    return build(name, layers, P, raw, low, high, labels)


def timed(
    name: str, mdp: TabularMDP, decisions: int, n: int, high: float = 1.0, labels: ArrayLike | None = None
) -> Episodic:
    """An MDP cut after this many decisions, the time put into the state; n equal instances."""
    layers = [np.array([mdp.s0]), *[np.arange(mdp.num_states)] * decisions]
    P, r = (np.broadcast_to(part, (n, *part.shape)) for part in (mdp.P, mdp.r))
    return build(name, layers, P, r, 0.0, high, labels)


def lock(horizon: int, seeds: Sequence[int]) -> Episodic:
    """The combination lock, an instance for each seed: H + 1 decisions, best return 4."""
    from pcpg.envs.lock import CombinationLock  # here: environments import JAX, arrays do not

    return _instances(f"lock H={horizon}", CombinationLock(horizon), seeds, -1.0 / horizon, 5.0)


def deep_sea(size: int, seeds: Sequence[int]) -> Episodic:
    """Deep Sea, an instance for each seed: `size` decisions, best return 0.99."""
    from pcpg.envs.deep_sea import MOVE_COST, DeepSea

    return _instances(f"deep sea of {size}", DeepSea(size), seeds, -MOVE_COST / size, 1.0)


def _instances(name: str, env: Any, seeds: Sequence[int], low: float, high: float) -> Episodic:
    """The exact models of an environment's instances, whose states hold their time."""
    models = [env.tabular(env.instance(seed)) for seed in seeds]
    P, raw = np.stack([m.transitions for m in models]), np.stack([m.rewards for m in models])
    return layered(name, P, raw, models[0].start, env.max_steps, low, high)


TREASURE = 0.3
SLIP, GOOD_LEAF, OTHER_LEAF = 0.02, 0.3, 0.1


def noisy_sea(size: int, seeds: Sequence[int]) -> Episodic:
    """Deep Sea with noise: a move right slips to the left with probability 1/(2 size), and rewards are drawn as 0 or 1.

    The treasure is there three times of ten, and a move right costs 0.05 / size: who was there once without luck turns
    back forever, unless something like a bonus sends it there again.
    """
    if size < 2:
        raise ValueError(f"size must be two or more, got {size}")
    S, end, cost, slip = size * size + 1, size * size, 0.05 / size, 0.5 / size
    P, raw = np.zeros((len(seeds), S, 2, S)), np.zeros((len(seeds), S, 2))
    for i, seed in enumerate(seeds):
        right = np.random.default_rng([7, seed]).integers(0, 2, size=(size, size))  # which action goes right, by cell
        for row in range(size):
            for column in range(row + 1):
                s, a, below = row * size + column, right[row, column], (row + 1) * size
                left, on = (end, end) if row + 1 == size else (below + max(column - 1, 0), below + column + 1)
                P[i, s, 1 - a, left], P[i, s, a, on] = 1.0, 1.0 - slip
                P[i, s, a, left] += slip
                raw[i, s, a] = (TREASURE * (1.0 - slip) if row == column == size - 1 else 0.0) - cost
    return replace(layered(f"noisy sea of {size}", P, raw, 0, size, -cost, 1.0), noisy=True)


def tree(depth: int, seeds: Sequence[int], gap: float | None = None, astray: int = 0) -> Episodic:
    """A binary tree in which moves slip and leaves pay by chance: one pays with probability 0.3, the others 0.1.

    A move goes to the child it names, or, with probability 0.02, off the tree, where nothing is paid; the last
    decision, at a leaf, draws the reward. One try of a leaf says little, so a learner that never retries misses
    the good one, and a slip does not bring it back. With `gap` the good leaf pays (1 + gap) / 2 and the others
    (1 - gap) / 2: no learner can distinguish them in fewer than order 1/gap^2 visits. So many further actions lead
    `astray`: off the tree, where the last decision then pays as any other leaf does. Uniform play meets the good leaf
    once in (2 + astray)^depth episodes, while states double with the depth, and nothing but that leaf pays more.
    """
    good, other = (GOOD_LEAF, OTHER_LEAF) if gap is None else ((1.0 + gap) / 2.0, (1.0 - gap) / 2.0)
    if not 1 <= depth <= 8:
        raise ValueError(f"depth must be 1 to 8, got {depth}")
    nodes, first, actions = 2 ** (depth + 1) - 1, 2**depth - 1, 2 + astray
    S = nodes + depth + 1  # off the tree at each depth, and the end
    P, raw = np.zeros((len(seeds), S, actions, S)), np.zeros((len(seeds), S, actions))
    for s in range(first):
        off = nodes + (s + 1).bit_length() - 1
        P[:, s, :, off] = 1.0
        for a in range(2):
            P[:, s, a, 2 * s + 1 + a], P[:, s, a, off] = 1.0 - SLIP, SLIP
    for off in range(nodes, S - 1):
        P[:, off, :, off + 1] = 1.0
    P[:, first:nodes, :, S - 1] = 1.0
    raw[:, first:nodes], raw[:, S - 2] = other, other if astray else 0.0
    for i, seed in enumerate(seeds):
        raw[i, first + int(np.random.default_rng([8, seed]).integers(2**depth))] = good
    return replace(layered(f"tree of depth {depth}", P, raw, 0, depth + 1, 0.0, 1.0), noisy=True)


def noisy_lock(horizon: int, seeds: Sequence[int], static: int = 8) -> Episodic:
    """A lock with a television: of three actions one leads on, one to the dead end, one to noise, for the rest of time.

    The right action of each of `horizon` levels leads on and the last one pays 1 with probability a half. Noise is one
    of `static` states at each time, redrawn after every action, and pays 1 with probability 0.02: who likes what it
    cannot predict stays there.
    """
    if horizon < 1 or static < 1:
        raise ValueError(f"horizon and static must be 1 or more, got {horizon} and {static}")
    each, decisions = 2 + static, horizon
    S = (decisions + 1) * each
    P, raw = np.zeros((len(seeds), S, 3, S)), np.zeros((len(seeds), S, 3))
    for i, seed in enumerate(seeds):
        order = np.stack([np.random.default_rng([6, seed, h]).permutation(3) for h in range(decisions)])
        for h in range(decisions):
            good, after = h * each, (h + 1) * each
            noise = slice(after + 2, after + each)
            right, dead, away = order[h]
            P[i, good, right, after] = P[i, good, dead, after + 1] = 1.0
            P[i, good, away, noise] = 1.0 / static
            P[i, good + 1, :, after + 1] = 1.0
            P[i, good + 2 : after, :, noise] = 1.0 / static
            raw[i, good + 2 : after] = 0.02
        raw[i, (decisions - 1) * each, order[-1][0]] = 0.5
    return replace(layered(f"noisy lock H={horizon}", P, raw, 0, decisions, 0.0, 1.0), noisy=True)


def riverswim_mdp(length: int = 6, gamma: float = 0.95) -> TabularMDP:
    """RiverSwim (Strehl and Littman 2008): left is sure and pays 0.005 at the start, right is hard and pays 1.

    Swimming right: from the start 0.6 on, 0.4 stay; inside 0.35 on, 0.6 stay, 0.05 back; at the end 0.6 stay, 0.4 back.
    """
    if length < 2:
        raise ValueError(f"length must be two states or more, got {length}")
    P, r, last = np.zeros((length, 2, length)), np.zeros((length, 2)), length - 1
    for s in range(length):
        P[s, 0, max(s - 1, 0)] = 1.0
        on, stay, back = (0.6, 0.4, 0.0) if s == 0 else (0.0, 0.6, 0.4) if s == last else (0.35, 0.6, 0.05)
        for place, chance in ((min(s + 1, last), on), (s, stay), (max(s - 1, 0), back)):
            P[s, 1, place] += chance
    r[0, 0], r[last, 1] = 0.005, 1.0
    return TabularMDP(P, r, gamma)


def riverswim(n: int, length: int = 6, decisions: int = 20) -> Episodic:
    """RiverSwim cut after `decisions`, n equal instances."""
    return timed(f"RiverSwim of {length}", riverswim_mdp(length), decisions, n)


def random_problem(n: int, seed: int = 0, num_states: int = 20, num_actions: int = 3, decisions: int = 10) -> Episodic:
    """A random MDP with few successors to each pair, cut after `decisions`, n equal instances."""
    mdp = random_mdp(seed, num_states, num_actions, 0.9, sparsity=0.9)
    return timed(f"random MDP of {num_states}", mdp, decisions, n)
