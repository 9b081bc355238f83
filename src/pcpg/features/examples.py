"""Sample pairs of an environment, from which feature maps take the scale of their inputs."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from pcpg.envs.host import EpisodePlayers, HostEnvironment, Players, check_step, guarded
from pcpg.envs.protocol import Environment
from pcpg.envs.spaces import Discrete, Image, MultiDiscrete, Space
from pcpg.features.base import Inputs, input_size
from pcpg.policies.host import draw
from pcpg.shapes import Array, Float, Key, Shaped

Pairs = tuple[Array, Array]
"""Observations [n, ...] and actions [n, ...]."""

LOT = 16
"""Episodes of random play that workers are asked for at a time."""


def examples(env: Environment, rng: np.random.Generator, count: int) -> Pairs:
    """About `count` pairs: drawn evenly by the environment where it knows how, else met in random play."""
    # Random play sees little of an environment that is hard to explore, so features scaled by it saturate far
    # from the start; an environment that knows its bounds says so by a method `examples(rng, count)`.
    own = getattr(env, "examples", None)
    if own is not None:
        return own(rng, count)
    if not isinstance(env, HostEnvironment):
        return random_play(env, rng, count)
    return host_play(env, rng, count) if env.bounds is None else drawn_evenly(env, env.bounds, rng, count)


def drawn_evenly(
    env: HostEnvironment, bounds: tuple[np.ndarray, np.ndarray], rng: np.random.Generator, count: int
) -> Pairs:
    """Observations uniform between their bounds, and uniform actions."""
    observations = rng.uniform(*bounds, (count, *env.observation_space.shape)).astype(np.float32)
    return observations, draw(rng, env.action_space, 1, count).random


def host_play(env: HostEnvironment, rng: np.random.Generator, count: int) -> Pairs:
    """Pairs met by uniformly random actions in an environment on the host, at least `count` of them."""
    players, space = env.players, env.action_space
    if isinstance(players, EpisodePlayers):
        return worker_play(env, players, rng, count)
    observations: list[np.ndarray] = []
    actions: list[np.ndarray] = []
    episodes = 0
    while sum(map(len, actions)) < count:
        with guarded(players):
            seen = players.reset(rng.integers(2**31, size=players.count).tolist())
        alive = np.ones(len(seen), bool)
        for step in range(env.max_steps):
            if not alive.any() or sum(map(len, actions)) >= count:
                break
            chosen = draw(rng, space, 1, len(seen)).random
            observations.append(seen[alive])
            actions.append(chosen[alive])
            with guarded(players):
                moved = players.step(chosen, alive)
            for index in np.flatnonzero(alive).tolist():
                where = {"episode": episodes + index + 1, "step": step + 1}
                check_step(env, moved.observations[index], moved.rewards[index], **where)
            seen, alive = moved.observations.copy(), alive & ~(moved.terminated | moved.truncated)
        episodes += len(alive)
    return np.concatenate(observations), np.concatenate(actions)


def worker_play(env: HostEnvironment, players: EpisodePlayers, rng: np.random.Generator, count: int) -> Pairs:
    """The same in lots of whole episodes, which are not those of fewer or more workers by chance."""
    pairs: list[Pairs] = []
    while sum(len(actions) for _, actions in pairs) < count:
        chosen = [draw(rng, env.action_space, 1, env.max_steps).random for _ in range(LOT)]
        seeds = rng.integers(2**31, size=LOT).tolist()
        pairs += players.play(_random_episode, None, list(zip(seeds, chosen, strict=True)))
    observations, actions = (np.concatenate(part) for part in zip(*pairs, strict=True))
    return observations, actions


def _random_episode(player: Players, shared: None, task: tuple[int, np.ndarray]) -> Pairs:
    """An episode of given actions, as far as it goes; the observations before each."""
    del shared
    seed, actions = task
    with guarded(player):
        observations = [player.reset([seed])[0].copy()]
        for step in range(len(actions)):
            moved = player.step(actions[step : step + 1], np.ones(1, bool))
            if moved.terminated[0] or moved.truncated[0]:
                return np.stack(observations), actions[: step + 1]
            observations.append(moved.observations[0].copy())
    return np.stack(observations[:-1]), actions


def random_play(env: Environment, rng: np.random.Generator, count: int, num_envs: int = 16) -> Pairs:
    """Pairs met by uniformly random actions in the first instance, at least `count` of them."""
    params = env.instance(0)
    key = jax.random.key(int(rng.integers(2**31)))

    @jax.jit
    def play(key: jax.Array) -> Pairs:
        key_reset, key_play = jax.random.split(key)
        first = jax.vmap(env.reset, (0, None))(jax.random.split(key_reset, num_envs), params)

        def move(carry: tuple[jax.Array, object], key: jax.Array) -> tuple[tuple[jax.Array, object], Pairs]:
            observations, states = carry
            key_act, key_move = jax.random.split(key)
            actions = random_actions(key_act, env.action_space, num_envs)
            keys = jax.random.split(key_move, num_envs)
            step = jax.vmap(env.step, (0, 0, 0, None))(keys, states, actions, params)
            return (step.observation, step.state), (observations, actions)

        return jax.lax.scan(move, first, jax.random.split(key_play, math.ceil(count / num_envs)))[1]

    observations, actions = (np.asarray(x) for x in play(key))
    return observations.reshape(-1, *observations.shape[2:]), actions.reshape(-1, *actions.shape[2:])


def random_actions(key: Key[jax.Array, ""], space: Space, count: int) -> Shaped[jax.Array, "{count} ..."]:
    """Uniform actions; standard normal ones where the space is unbounded."""
    if isinstance(space, Image):
        raise ValueError("an action cannot be an image")
    if isinstance(space, Discrete):
        return jax.random.randint(key, (count,), 0, space.n, jnp.int32)
    if isinstance(space, MultiDiscrete):
        return jax.random.randint(key, (count, *space.shape), 0, jnp.asarray(space.sizes), jnp.int32)
    shape = (count, *space.shape)
    if math.isinf(space.high - space.low):
        return jnp.clip(jax.random.normal(key, shape), space.low, space.high)
    return jax.random.uniform(key, shape, jnp.float32, space.low, space.high)


def fit_inputs(env: Environment, pairs: Pairs, *, with_actions: bool) -> tuple[Inputs, Float[np.ndarray, "n size"]]:
    """Inputs with mean 0 and deviation 1 over the pairs, and the pairs' input vectors."""
    observation_space, action_space = env.observation_space, env.action_space if with_actions else None
    observations, actions = (np.asarray(x) for x in pairs)
    expected = (*env.observation_space.shape,), (*env.action_space.shape,)
    if (observations.shape[1:], actions.shape[1:]) != expected or len(observations) != len(actions):
        raise ValueError(
            f"pairs have shapes {observations.shape} and {actions.shape}; expected (n, ...) of {expected[0]} "
            f"and {expected[1]}"
        )
    size = input_size(observation_space, action_space)
    raw = Inputs(np.zeros(size, np.float32), np.ones(size, np.float32), observation_space, action_space)
    vectors = np.asarray(jax.jit(jax.vmap(raw))(observations, actions), np.float64)
    if not np.isfinite(vectors).all():
        raise ValueError("pairs must be finite")
    mean, std = vectors.mean(axis=0), vectors.std(axis=0)
    std = np.where(std > 1e-6, std, 1.0)  # an entry that never changes is left alone
    inputs = Inputs(mean.astype(np.float32), std.astype(np.float32), observation_space, action_space)
    return inputs, (vectors - mean) / std
