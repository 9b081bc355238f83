"""Returns and means over batches of on-policy episodes, which learners of policies share."""

import numpy as np

from pcpg.theory.learners.layout import Episodes, Index
from pcpg.theory.mdp import Array


def returns_to_go(r: Array, gamma: float) -> Array:
    """Return sum_{k >= h} gamma^(k-h) r_k for rewards [..., L]."""
    G = np.zeros_like(r)
    total = np.zeros(r.shape[:-1])
    for h in range(r.shape[-1] - 1, -1, -1):
        total = r[..., h] + gamma * total
        G[..., h] = total
    return G


def pair_sums(episodes: Episodes, x: Array, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Return the sums of x [n, B, L] over the visits of each pair, and the visits, both of shape [n, S, A]."""
    lane: Index = np.arange(shape[0])[:, None, None]
    at = (lane, episodes.s[..., :-1], episodes.a)
    sums, visits = np.zeros(shape), np.zeros(shape)
    np.add.at(sums, at, x)
    np.add.at(visits, at, 1.0)
    return sums, visits


def softmax(logits: Array) -> Array:
    """Return the softmax over the last axis."""
    p = np.exp(logits - logits.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)
