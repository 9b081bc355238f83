"""The states of all seeds as flat arrays and back: what a checkpoint and the member files hold.

Members of a cover never change, so each is written once, in a file of its own; a checkpoint holds the rest.
The file of member i holds that member of every seed that added one in round i.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from pcpg.cover.cover import Cover
from pcpg.runs.arrays import flatten, unflatten
from pcpg.state import Member, SeedState

Arrays = dict[str, np.ndarray]


def pack_states(states: Sequence[SeedState]) -> Arrays:
    """The moving part of all seeds, by names that begin with the seed."""
    arrays: Arrays = {}
    for state in states:
        arrays |= _prefixed(int(state.seed), flatten(_moving(state)))
    return arrays


def unpack_states(
    arrays: Mapping[str, np.ndarray], fresh: Sequence[SeedState], members: Sequence[Mapping[str, np.ndarray]]
) -> list[SeedState]:
    """The states of all seeds from a checkpoint and the member files; `fresh` are the seeds before round 0."""
    states = []
    for start in fresh:
        state = unflatten(_moving(start), _of_seed(int(start.seed), arrays))
        if start.cover is not None:
            state = state._replace(cover=_whole_cover(start, state.cover, members))
        states.append(state)
    return states


def pack_members(members: Mapping[int, Member]) -> Arrays:
    """One member of each of the given seeds."""
    arrays: Arrays = {}
    for seed, member in members.items():
        arrays |= _prefixed(seed, flatten(member))
    return arrays


def unpack_member(seed: int, like: Any, arrays: Mapping[str, np.ndarray]) -> Member:
    """The member of one seed; `like` is a policy of the same shape."""
    own = _of_seed(seed, arrays)
    prefix = ".policy"
    policy = unflatten(like, {name[len(prefix) :]: a for name, a in own.items() if name.startswith(prefix)})
    return Member(policy, own[".sigma"], own[".cells"], own[".returns"])


def _moving(state: SeedState) -> SeedState:
    if state.cover is None:
        return state
    head = Cover(None, np.zeros((0, 0, 0)), state.cover.weights, state.cover.size)
    return state._replace(cover=head)


def _whole_cover(start: SeedState, head: Any, members: Sequence[Mapping[str, np.ndarray]]) -> Cover:
    cover: Any = start.cover
    if cover.size > 0:  # a cover that was there before the first round
        return cover
    stacked = jax.tree.map(np.copy, cover.members)
    sigmas = cover.sigmas.copy()
    for index in range(int(head.size)):
        member = unpack_member(int(start.seed), start.policy, members[index])
        jax.tree.map(lambda stack, leaf, i=index: stack.__setitem__(i, leaf), stacked, member.policy)
        sigma = np.asarray(member.sigma, np.float64)
        sigmas[index] = (sigma + sigma.T) / 2
    return Cover(stacked, sigmas, head.weights, head.size)


def _prefixed(seed: int, arrays: Arrays) -> Arrays:
    return {f"{seed}/{name}": array for name, array in arrays.items()}


def _of_seed(seed: int, arrays: Mapping[str, np.ndarray]) -> Arrays:
    prefix = f"{seed}/"
    return {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}
