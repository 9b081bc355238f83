"""Whole episodes of a run's policies, played through Gymnasium's interface on any environment."""

import dataclasses
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import gymnasium
import numpy as np

from pcpg.api import Policy, Run
from pcpg.envs import registry
from pcpg.envs.gymnasium_bridge import FunctionalEnv
from pcpg.envs.host import HostEnvironment
from pcpg.runs.errors import RunError

Which = Literal["final", "best", "cover"]


class CannotPlay(RunError):
    """An environment or a policy that cannot be played as asked."""


@dataclasses.dataclass
class Episode:
    """What happened in one episode, as the environment has it."""

    policy: int  # which of the policies that were given
    seed: int  # of the environment's reset
    observations: list[Any]  # one more than the rest: the true last one is there
    actions: list[Any] = dataclasses.field(default_factory=list)
    rewards: list[float] = dataclasses.field(default_factory=list)
    terminated: list[bool] = dataclasses.field(default_factory=list)
    truncated: list[bool] = dataclasses.field(default_factory=list)


def playable_env(run: Run, seed: int, *, pictures: bool = False) -> gymnasium.Env[Any, Any]:
    """The environment of a run's seed behind Gymnasium's interface, as finished policies are evaluated on it."""
    mode = "rgb_array" if pictures else None
    env = run.env.evaluation_env
    if isinstance(env, HostEnvironment):
        return _adapted_env(run, mode)
    with run.playable() as env:  # nothing to close: it is compiled
        pass
    if pictures and not env.can_render:
        raise CannotPlay(f"{run.config.env} has no picture of its states, so there is nothing to show in a video")
    known = {entry.id for entry in registry.spec()}
    options = {field.name: getattr(env, field.name) for field in dataclasses.fields(typing.cast(Any, env))}
    if run.config.env in known and type(registry.make(run.config.env)) is type(env):
        # With a spec, from which others can make it again.
        name = f"{FunctionalEnv.__module__}:pcpg/{run.config.env}"
        return gymnasium.make(name, instance_seed=seed, render_mode=mode, **options)
    return FunctionalEnv(env, instance_seed=seed, render_mode=mode)


def _adapted_env(run: Run, mode: str | None) -> gymnasium.Env[Any, Any]:
    options = dict(run.config.env_options) | ({} if mode is None else {"render_mode": mode})
    run.check_trust()
    try:
        with run.given.used(run.folder):
            env = typing.cast(Any, registry.make(run.config.env, **options))
            made = env.make()
            env.close()  # the one that was made for its spaces
    except (TypeError, ValueError) as error:
        raise CannotPlay(f"{run.config.env} cannot be made with pictures: {error}") from error
    if not isinstance(made, gymnasium.Env):
        raise CannotPlay(f"{run.config.env} is a vector of environments, and there is no single one to play")
    if mode is not None and made.render_mode != mode:
        raise CannotPlay(
            f"{run.config.env} shows no pictures: its render mode is {made.render_mode!r}, expected {mode!r}"
        )
    return made


def chosen_policies(run: Run, which: Which, seed: int | None = None) -> tuple[list[Policy], np.ndarray]:
    """The final policy of a seed, its best, or those of its cover, with the weights by which they are drawn."""
    run.check_seed(seed)
    index = 0 if seed is None else run.config.seed_list.index(seed)
    if which == "cover":
        cover = run.covers[index]
        return run.cover_policies(seed), np.asarray(cover.weights[: int(cover.size)])
    return [(run.best_policies if which == "best" else run.policies)[index]], np.ones(1)


def play(
    env: gymnasium.Env[Any, Any],
    policies: Sequence[Policy],
    weights: np.ndarray,
    episodes: int,
    *,
    greedy: bool = False,
    max_steps: int | None = None,
    first_seed: int = 0,
    watch: Callable[[Episode], None] = lambda episode: None,
) -> Iterator[Episode]:
    """Episodes of policies drawn by their weights; `watch` is called at the start and after every step.

    Episode i resets the environment with seed `first_seed + i`. The time limit `max_steps` truncates.
    """
    rng = np.random.default_rng(first_seed)
    for number in range(episodes):
        chosen = int(rng.choice(len(policies), p=weights / weights.sum()))
        observation, _ = env.reset(seed=first_seed + number)
        episode = Episode(chosen, first_seed + number, [observation])
        watch(episode)
        while not episode.actions or not (episode.terminated[-1] or episode.truncated[-1]):
            action = policies[chosen].act(episode.observations[-1], greedy=greedy)
            observation, reward, terminated, truncated, _ = env.step(action)
            episode.observations.append(observation)
            episode.actions.append(action)
            episode.rewards.append(float(reward))
            episode.terminated.append(bool(terminated))
            is_over = max_steps is not None and len(episode.actions) >= max_steps
            episode.truncated.append(bool(truncated) or (is_over and not terminated))
            watch(episode)
        yield episode
