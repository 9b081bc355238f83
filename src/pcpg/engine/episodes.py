"""Episodes of an environment on the host: roll in through the cover, then act by the policy; all in NumPy."""

import copy
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pcpg.cover.cover import RollIn, mixed_log_prob
from pcpg.engine.rollout import Rollout
from pcpg.envs.host import EpisodePlayers, HostEnvironment, Players, check_step, guarded, unsound
from pcpg.envs.protocol import Environment
from pcpg.envs.spaces import Discrete, Space
from pcpg.policies import host
from pcpg.policies.distributions import Distribution
from pcpg.policies.networks import ActorCritic
from pcpg.shapes import Scalar


class Played(NamedTuple):
    """T steps of E episodes as they were played; see Rollout for what the arrays are."""

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    alive: np.ndarray
    length: np.ndarray | None  # [E] steps of the roll-in, None without one

    def rollout(self, log_probs: jax.Array, own: jax.Array) -> Rollout:
        """The arrays of a compiled rollout; on the host there are no cells."""
        arrays = (jnp.asarray(array) for array in self[:6])
        observations, actions, rewards, terminated, truncated, alive = arrays
        cells = jnp.full(own.shape, -1, jnp.int32)
        return Rollout(observations, actions, log_probs, rewards, terminated, truncated, alive, own, cells)


def rollout_of(played: Played, policy: ActorCritic, distribution: Distribution, epsilon: Scalar) -> Rollout:
    """Episodes as the learner takes them: with the log-density of what acted, and where the policy itself did.

    Where the cover acted the density is the policy's own; nothing is learned from those steps.
    """
    actions = jnp.asarray(played.actions)
    log_probs = distribution.log_prob(policy.outputs(played.observations[:-1]), actions)
    own = jnp.asarray(played.alive)
    if played.length is not None:
        t = jnp.arange(played.rewards.shape[0])[:, None]
        mixed = mixed_log_prob(log_probs, distribution.random_log_prob(actions), epsilon)
        log_probs = jnp.where(t == played.length, mixed, log_probs)
        own = own & (t >= played.length)
    return played.rollout(log_probs, own)


def play(
    env: HostEnvironment,
    policy: object,
    rng: np.random.Generator,
    num_episodes: int,
    *,
    roll_in: RollIn | None = None,
    epsilon: float = 0.0,
    greedy: bool = False,
    candidates: np.ndarray | None = None,
    squashed: bool = False,
) -> Played:
    """Whole episodes from the start; with a roll-in, the first own step is epsilon-greedy.

    With `candidates` policies choose among these by number, and so are their actions recorded. `squashed`: policies
    give real actions before tanh.
    """
    space = env.action_space if candidates is None else Discrete(len(candidates))
    show = _Show(
        _Cast(policy, roll_in, num_episodes),
        *(env.observation_space, space, env.max_steps),
        *(epsilon, greedy, candidates, squashed),
    )
    seeds = rng.integers(2**31, size=num_episodes)
    choices = host.draw(rng, space, env.max_steps, num_episodes)
    length = None if roll_in is None else np.asarray(roll_in.length)
    players = env.players
    # A compiled policy acts for all at once, here: to compile it in every process would take longer than it saves.
    if isinstance(players, EpisodePlayers) and not show.cast.is_compiled:
        lengths = [None] * num_episodes if length is None else length.tolist()
        tasks = [
            _Task(int(seeds[e]), _of(choices, e), lengths[e], int(show.cast.group[e])) for e in range(num_episodes)
        ]
        parts = [one._replace(length=None) for one in players.play(_one_episode, show, tasks)]
        arrays = [np.concatenate(part, axis=1) for part in list(zip(*parts, strict=True))[:-1]]
        return Played._make([*arrays, length])
    played = _empty(show, num_episodes, length)
    for first in range(0, num_episodes, players.count):
        _perform(players, show, slice(first, min(first + players.count, num_episodes)), seeds, choices, played)
    return played


def check_played(env: Environment, played: Any) -> None:
    """Refuse episodes [T, E] with a reward or an observation that nobody can learn from; the first one is named."""
    alive, rewards, observations = (np.asarray(part) for part in (played.alive, played.rewards, played.observations))
    if np.isfinite(rewards[alive]).all() and not unsound(env, observations[:-1][alive]).any():
        return
    for episode, step in np.argwhere(alive.T).tolist():
        check_step(env, observations[step, episode], rewards[step, episode], episode=episode + 1, step=step + 1)


class _Show(NamedTuple):
    """Shared inputs of all episodes."""

    cast: "_Cast"
    seen: Space  # the space of observations
    space: Space  # that of actions
    steps: int
    epsilon: float
    greedy: bool
    candidates: np.ndarray | None
    squashed: bool


class _Task(NamedTuple):
    """One episode: everything random in it, who rolls in, and for how long."""

    seed: int
    choices: host.Choices
    length: int | None
    group: int


def _of(choices: host.Choices, episode: int) -> host.Choices:
    one = slice(episode, episode + 1)
    return host.Choices(choices.noise[:, one], choices.flips[one], choices.random[one])


def _one_episode(player: Players, show: _Show, task: _Task) -> Played:
    """An episode in the process of a worker."""
    length = None if task.length is None else np.full(1, task.length, np.int32)
    cast = show.cast.alone(task.group, length)
    played = _empty(show, 1, length)
    _perform(player, show._replace(cast=cast), slice(0, 1), np.array([task.seed]), task.choices, played)
    return played


def _empty(show: _Show, num_episodes: int, length: np.ndarray | None) -> Played:
    shape, seen, space = (show.steps, num_episodes), show.seen, show.space
    return Played(
        np.zeros((show.steps + 1, num_episodes, *seen.shape), seen.dtype),
        np.zeros((*shape, *space.shape), space.dtype),
        np.zeros(shape, np.float32),
        np.zeros(shape, bool),
        np.zeros(shape, bool),
        np.zeros(shape, bool),
        length,
    )


def _perform(
    players: Players, show: _Show, wave: slice, seeds: np.ndarray, choices: host.Choices, played: Played
) -> None:
    """Play some episodes in parallel, to their ends."""
    cast, space, steps, candidates = show.cast, show.space, show.steps, show.candidates
    with guarded(players):
        observations = players.reset(seeds[wave].tolist())
    alive = np.ones(len(observations), bool)
    for t in range(steps):
        played.observations[t, wave] = observations
        if not alive.any():
            continue  # those that have ended stay where they are
        outputs = cast.outputs(t, wave, played.observations[t, wave], alive, host.num_parameters(space))
        actions = host.choose(space, outputs, choices.noise[t, wave], greedy=show.greedy)
        actions = host.within(space, actions) if show.squashed else actions
        if played.length is not None:
            flip = (played.length[wave] == t) & (choices.flips[wave] < show.epsilon)
            actions[flip] = choices.random[wave][flip]
        with guarded(players):
            moved = players.step(actions if candidates is None else candidates[actions], alive)
        observations = np.where(_like(alive, moved.observations), moved.observations, observations)
        played.actions[t, wave] = actions
        played.rewards[t, wave] = np.where(alive, moved.rewards, 0.0)
        played.terminated[t, wave] = moved.terminated & alive
        # An episode that goes beyond the horizon is cut here.
        played.truncated[t, wave] = (moved.truncated | (t == steps - 1)) & alive & ~moved.terminated
        played.alive[t, wave] = alive
        alive = alive & ~(moved.terminated | moved.truncated)
    played.observations[steps, wave] = observations


class _Cast:
    """The acting policy of each episode: first a member of the cover, then the policy itself."""

    def __init__(self, policy: object, roll_in: RollIn | None, num_episodes: int) -> None:
        self.policy = host.Actor(policy)
        self.rollers: list[host.Actor] = []
        self.length = self.group = np.zeros(num_episodes, np.int32)
        if roll_in is not None:
            groups = jax.tree.leaves(roll_in.policies)[0].shape[0]
            self.length = np.asarray(roll_in.length)
            self.rollers = [host.Actor(_member(roll_in.policies, index)) for index in range(groups)]
            self.group = np.arange(num_episodes) * groups // num_episodes

    @property
    def is_compiled(self) -> bool:
        """Whether any policy acts by a compiled program."""
        return any(actor.is_compiled for actor in (self.policy, *self.rollers))

    def alone(self, group: int, length: np.ndarray | None) -> "_Cast":
        """The policies of one episode."""
        made = copy.copy(self)
        made.length, made.group = np.zeros(1, np.int32) if length is None else length, np.full(1, group)
        return made

    def outputs(self, t: int, wave: slice, observations: np.ndarray, alive: np.ndarray, size: int) -> np.ndarray:
        """Parameters of the action distributions [n, size]; zeros after the end of an episode."""
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


def _member(stacked: object, index: int) -> ActorCritic:
    return jax.tree.map(lambda leaf: leaf[index], stacked)


def _like(mask: np.ndarray, array: np.ndarray) -> np.ndarray:
    return mask.reshape(mask.shape + (1,) * (array.ndim - 1))
