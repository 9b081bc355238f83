"""Members of a cover of networks: writing, reading, and computations on them."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from pcpg.algorithms import Arrays
from pcpg.algos.pcpg_settings import ExploreConfig
from pcpg.cover.bonus import ridge_of, whitening
from pcpg.cover.cover import Cover
from pcpg.policies.networks import ActorCritic
from pcpg.trees import unflatten


class Member(NamedTuple):
    """The stored data of a member of the cover; never changes."""

    policy: ActorCritic
    sigma: np.ndarray  # [d, d]
    cells: np.ndarray  # visits by cell, over the episodes of its covariance
    returns: np.ndarray  # [episodes]


def unpacked(like: ActorCritic, part: Arrays) -> Member:
    """A member from its arrays; `like` is a policy of the same shape."""
    prefix = ".policy"
    policy = unflatten(like, {name[len(prefix) :]: a for name, a in part.items() if name.startswith(prefix)})
    return Member(policy, part[".sigma"], part[".cells"], part[".returns"])


def stacked(empty: Cover[ActorCritic], members: Sequence[Member]) -> Cover[ActorCritic]:
    """The cover of some members at once: `add_member` copies the whole stack each time."""
    stack, sigmas = jax.tree.map(np.copy, empty.members), empty.sigmas.copy()
    for index, member in enumerate(members):
        jax.tree.map(lambda place, leaf, i=index: place.__setitem__(i, leaf), stack, member.policy)
        sigma = np.asarray(member.sigma, np.float64)
        sigmas[index] = (sigma + sigma.T) / 2
    return Cover(stack, sigmas, empty.weights, np.asarray(len(members), np.int32))


def with_room(cover: Cover[ActorCritic], capacity: int) -> Cover[ActorCritic]:
    """The cover with room for so many members."""
    more = capacity - cover.capacity

    def pad(leaf: np.ndarray) -> np.ndarray:
        return np.concatenate([leaf, np.zeros((more, *leaf.shape[1:]), leaf.dtype)])

    members = jax.tree.map(pad, cover.members)
    return Cover(members, pad(cover.sigmas), pad(cover.weights), cover.size) if more else cover


def scaled_whitening(cover: Cover, config: ExploreConfig) -> np.ndarray:
    """W of cover/bonus.py as float32; scaled by the cover, such that the form has mean 1 over its policies."""
    whiten = whitening(cover.sigma_sum, ridge_of(cover.used, config.ridge_scale, config.ridge))
    if config.bonus_scale == "cover":
        # E[phi' S^-1 phi] = tr(W' E[phi phi'] W) under the uniform mixture of the members.
        mean = np.einsum("ij,ik,kj->", whiten, cover.sigma_sum, whiten) / int(cover.size)
        whiten = whiten / np.sqrt(max(mean, 1e-30))
    return whiten.astype(np.float32)


def exploration_is_over(log_dets: np.ndarray, config: ExploreConfig) -> bool:
    """Whether the cover is full, or its log-determinant grew too little for too long.

    The rule sees features alone, nothing of the environment's internals. With D-optimal weights `log_dets[i]` is the
    largest log det of a mixture of the first i + 1 covariances, which a policy that reaches nothing new cannot raise
    and no policy can lower. With uniform weights it is that of their plain mean: a policy may lower it, and one that
    only repeats what the rarer members reach may raise it, so the rule is then no more than a sign.
    """
    if len(log_dets) >= config.max_policies:
        return True
    if len(log_dets) <= config.patience:
        return False
    return bool(log_dets[-1] - log_dets[-1 - config.patience] < config.min_growth)
