"""Episodes of an environment on the host: roll in through the cover, then act by the policy; all in NumPy."""

from typing import Any, NamedTuple

import jax
import numpy as np

from pcpg.cover.rollin import RollIn
from pcpg.envs.host import HostEnvironment, guarded
from pcpg.envs.spaces import Discrete
from pcpg.policies import host
from pcpg.policies.networks import ActorCritic


class Played(NamedTuple):
    """T steps of E episodes as they were played; see Rollout for what the arrays are."""

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    alive: np.ndarray
    length: np.ndarray | None  # [E] steps of the roll-in, None without one


def play(
    env: HostEnvironment,
    policy: Any,
    rng: np.random.Generator,
    num_episodes: int,
    *,
    roll_in: RollIn | None = None,
    epsilon: float = 0.0,
    greedy: bool = False,
    candidates: np.ndarray | None = None,
) -> Played:
    """Whole episodes from the start; with a roll-in, the first own step is epsilon-greedy.

    With `candidates` policies choose among these by number, and so are their actions recorded.
    """
    steps, space = env.max_steps, env.action_space if candidates is None else Discrete(len(candidates))
    seeds = rng.integers(2**31, size=num_episodes).tolist()
    choices = host.draw(rng, space, steps, num_episodes)
    shape = (steps, num_episodes)
    seen = env.observation_space
    played = Played(
        np.zeros((steps + 1, num_episodes, *seen.shape), seen.dtype),
        np.zeros((*shape, *space.shape), space.dtype),
        np.zeros(shape, np.float32),
        np.zeros(shape, bool),
        np.zeros(shape, bool),
        np.zeros(shape, bool),
        None if roll_in is None else np.asarray(roll_in.length),
    )
    cast = _Cast(policy, roll_in, num_episodes)
    for first in range(0, num_episodes, env.players.count):
        wave = slice(first, min(first + env.players.count, num_episodes))
        with guarded(env.players):
            observations = env.players.reset(seeds[wave])
        alive = np.ones(len(observations), bool)
        for t in range(steps):
            played.observations[t, wave] = observations
            if not alive.any():
                continue  # those that have ended stay where they are
            outputs = cast.outputs(t, wave, played.observations[t, wave], alive, host.num_parameters(space))
            actions = host.choose(space, outputs, choices.noise[t, wave], greedy=greedy)
            if played.length is not None:
                flip = (played.length[wave] == t) & (choices.flips[wave] < epsilon)
                actions[flip] = choices.random[wave][flip]
            with guarded(env.players):
                moved = env.players.step(actions if candidates is None else candidates[actions], alive)
            observations = np.where(_like(alive, moved.observations), moved.observations, observations)
            played.actions[t, wave] = actions
            played.rewards[t, wave] = np.where(alive, moved.rewards, 0.0)
            played.terminated[t, wave] = moved.terminated & alive
            # An episode that goes beyond the horizon is cut here.
            played.truncated[t, wave] = (moved.truncated | (t == steps - 1)) & alive & ~moved.terminated
            played.alive[t, wave] = alive
            alive = alive & ~(moved.terminated | moved.truncated)
        played.observations[steps, wave] = observations
    return played


class _Cast:
    """Who acts in which episode: the policy, or before it one of the cover."""

    def __init__(self, policy: Any, roll_in: RollIn | None, num_episodes: int) -> None:
        self.policy = host.Actor(policy)
        self.rollers: list[host.Actor] = []
        self.length = np.zeros(num_episodes, np.int32)
        if roll_in is not None:
            groups = jax.tree.leaves(roll_in.policies)[0].shape[0]
            self.length = np.asarray(roll_in.length)
            self.rollers = [host.Actor(_member(roll_in.policies, index)) for index in range(groups)]
            self.group = np.arange(num_episodes) * groups // num_episodes

    def outputs(self, t: int, wave: slice, observations: np.ndarray, alive: np.ndarray, size: int) -> np.ndarray:
        """Parameters of the action distributions [n, size]; zeros where the episode is over."""
        out = np.zeros((len(observations), size), np.float32)
        own = alive & (t >= self.length[wave])
        if own.any():
            out[own] = self.policy(observations[own])
        rolling = alive & ~own
        if rolling.any():
            group = self.group[wave]
            for index in np.unique(group[rolling]).tolist():
                rows = rolling & (group == index)
                out[rows] = self.rollers[index](observations[rows])
        return out


def _member(stacked: Any, index: int) -> ActorCritic:
    return jax.tree.map(lambda leaf: leaf[index], stacked)


def _like(mask: np.ndarray, array: np.ndarray) -> np.ndarray:
    return mask.reshape(mask.shape + (1,) * (array.ndim - 1))
