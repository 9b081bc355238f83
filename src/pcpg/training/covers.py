"""Covers on disk: that of a run, and that of a finished run as the source of another one.

A run that exploits the cover of another holds a copy of its member files and, in its config, where they came from:

    source = {"run": path, "algo": ..., "members": [sha256 of each file], "sha256": of all that follows from the cover,
              "covers": {seed: {"weights": [...], "env_steps": steps of the exploration}}}

so that it stays whole when the source is gone.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from pcpg.config import BaselineConfig
from pcpg.cover.cover import Cover, empty_cover, with_weights
from pcpg.envs.protocol import Environment
from pcpg.policies.networks import ActorCritic, init_actor_critic
from pcpg.run_config import RunConfig
from pcpg.runs import checkpoints
from pcpg.runs.errors import NotARun
from pcpg.runs.folder import RunFolder
from pcpg.state import Member
from pcpg.training.snapshot import unpack_member

Covers = dict[int, Cover[ActorCritic]]
"""By the seed of the run that explored."""


def policy_template(config: RunConfig, env: Environment) -> ActorCritic:
    """A policy of the shape that the run trains."""
    ppo = config.agent.ppo
    return init_actor_critic(
        np.random.default_rng(0),
        env.observation_space,
        env.action_space,
        **ppo.network,
    )


def covers_of(folder: RunFolder, config: RunConfig, seeds: Sequence[int]) -> list[Cover[ActorCritic]]:
    """The covers of some seeds as of the last checkpoint; every file is read once."""
    checkpoint = checkpoints.load_latest(folder.checkpoints)
    env = config.make_env()
    weights: dict[int, np.ndarray] = {}
    for seed in seeds:
        name = f"{seed}/.cover"
        if isinstance(config.agent, BaselineConfig):
            raise NotARun(f"{folder.path} holds no cover: {config.algo} keeps none")
        size = 0 if checkpoint is None else int(checkpoint.arrays[f"{name}.size"])
        if checkpoint is None or size == 0:
            raise NotARun(f"{folder.path}: the cover of seed {seed} has no member yet")
        weights[env.dynamics_seed(seed)] = checkpoint.arrays[f"{name}.weights"][:size]
    covers = _read_covers(folder, config, env, weights, checkpoint.state["members"] if checkpoint else [])
    return [covers[env.dynamics_seed(seed)] for seed in seeds]


def describe_source(folder: RunFolder) -> dict[str, Any]:
    """What another run needs to know of the cover of a finished run; refuses a run that has none or is not finished.

    Every file of the cover is read: a damaged one is named now.
    """
    steps = folder.read_summary()["env_steps"]
    config = RunConfig.from_json(folder.config)
    if config.source:
        raise NotARun(f"{folder.path} itself exploits a cover: use that of {config.source['run']}")
    covers = {
        str(seed): {"weights": cover.weights.tolist(), "env_steps": env_steps}
        for seed, cover, env_steps in zip(
            config.seed_list, covers_of(folder, config, config.seed_list), steps, strict=True
        )
    }
    checkpoint = checkpoints.load_latest(folder.checkpoints)
    members = checkpoint.state["members"] if checkpoint else []
    digest = hashlib.sha256(json.dumps([members, covers], sort_keys=True).encode()).hexdigest()
    return {
        "run": str(folder.path.resolve()),
        "algo": config.algo,
        "members": members,
        "covers": covers,
        "sha256": digest,
    }


def read_source_covers(folder: RunFolder, config: RunConfig) -> Covers:
    """The covers that a run exploits, from its own folder or from that of the source, with room for the largest."""
    env = config.make_env()
    wanted = sorted({env.dynamics_seed(seed) for seed in config.seed_list})
    weights = {seed: np.array(config.source["covers"][str(seed)]["weights"]) for seed in wanted}
    capacity = max(map(len, weights.values()))
    return _read_covers(folder, config, env, weights, config.source["members"], capacity)


def fetch_members(folder: RunFolder, source: Mapping[str, Any]) -> None:
    """Copies into a run's folder the member files of its source that are not there yet."""
    for index, sha256 in enumerate(source["members"]):
        if not folder.member(index).exists():
            try:
                arrays = RunFolder.open(source["run"]).read_member(index, sha256)
            except NotARun as error:
                raise NotARun(f"{folder.path} has no copy yet of the cover that it exploits: {error}") from error
            folder.write_member(index, arrays)


def _read_covers(
    folder: RunFolder,
    config: RunConfig,
    env: Environment,
    weights: Mapping[int, np.ndarray],
    hashes: Sequence[str],
    capacity: int = 0,
) -> Covers:
    like = policy_template(config, env)
    members: dict[int, list[Member]] = {seed: [] for seed in weights}
    for index in range(max(map(len, weights.values()))):
        arrays = folder.read_member(index, hashes[index])
        for seed, own in weights.items():
            if index < len(own):
                members[seed].append(unpack_member(seed, like, arrays))
    return {seed: _stack(members[seed], own, max(capacity, len(own))) for seed, own in weights.items()}


def _stack(members: list[Member], weights: np.ndarray, capacity: int) -> Cover[ActorCritic]:
    """The cover of some members at once: `add_member` copies the whole stack each time."""
    cover = empty_cover(members[0].policy, members[0].sigma.shape[0], capacity)
    for index, member in enumerate(members):
        jax.tree.map(lambda stack, leaf, i=index: stack.__setitem__(i, leaf), cover.members, member.policy)
        sigma = np.asarray(member.sigma, np.float64)
        cover.sigmas[index] = (sigma + sigma.T) / 2
    return with_weights(Cover(cover.members, cover.sigmas, cover.weights, np.asarray(len(members), np.int32)), weights)
