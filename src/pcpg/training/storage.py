"""The arrays of a run on disk: the states of its seeds, the parts of its rounds, its features.

A part, such as a member of a cover, never changes, so each is written once, in a file of its own; a checkpoint holds
the rest. Member file i holds the parts of all seeds in one round. A run that exploits the assets of another holds a
copy of its member files and, in its config, where they came from:

    source = {"run": path, "algo": ..., "members": [sha256 of each file], "sha256": of all that follows from the assets,
              "covers": {seed: {"weights": [...], "env_steps": steps of the exploration}}}

so that it stays whole when the source is gone. The feature map is drawn once and the same from then on, on any machine.
"""

import functools
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np

from pcpg.algorithms import Agent, Assets, World
from pcpg.budget import NO_BUDGET, NO_LIMITS, Budget
from pcpg.config import Json
from pcpg.engine.program import default_lanes
from pcpg.envs.protocol import Environment
from pcpg.features.base import FeatureMap
from pcpg.run_config import RunConfig
from pcpg.runs.arrays import encode_arrays, write_arrays
from pcpg.runs.disk import exists
from pcpg.runs.errors import DamagedFile, DoesNotFit, NotARun, understood
from pcpg.runs.folder import Notice, RunFolder
from pcpg.state import Ledger, SeedState, of_seed
from pcpg.training.going_on import arrays_so_far
from pcpg.training.trust import environment_of
from pcpg.trees import flatten, unflatten

Arrays = dict[str, np.ndarray]
Read = TypeVar("Read")


def bound_agent(
    config: RunConfig,
    env: Environment,
    features: Callable[[], FeatureMap] | None = None,
    assets: Mapping[int, Assets] | None = None,
    budget: Budget = NO_BUDGET,
    given: Mapping[str, np.ndarray] | None = None,
) -> Agent:
    """The agent of a run; compiles nothing yet."""
    return config.agent.agent(World(env, config.lanes or default_lanes(), features, budget, assets, given))


# States and parts.


def pack_states(agent: Agent, states: Sequence[SeedState[object]]) -> Arrays:
    """The arrays of all seeds that a checkpoint holds, under names that begin with the seed."""
    arrays: Arrays = {}
    for state in states:
        own = flatten(state.ledger) | flatten(agent.moving(state.own))
        own |= _prefixed(".policy", state.policy) | _prefixed(".best_policy", state.best_policy)
        arrays |= {f"{state.seed}/{name}": array for name, array in own.items()}
    return arrays


def unpack_states(
    agent: Agent,
    arrays: Mapping[str, np.ndarray],
    fresh: Sequence[SeedState[object]],
    members: Sequence[Mapping[str, np.ndarray]],
) -> list[SeedState[object]]:
    """The states of all seeds from a checkpoint and the member files; `fresh` are the seeds before round 0."""
    states = []
    for start in fresh:
        own, build = of_seed(start.seed, arrays), functools.partial(unflatten, any_shape=agent.grows)
        ledger = {f".{name}": own.pop(f".{name}") for name in Ledger._fields if f".{name}" in own}
        policy, best = _under(".policy", own), _under(".best_policy", own)
        like = agent.moving(start.own)
        known = flatten(like)
        rest = {
            name: array
            for name, array in own.items()
            if not _is_under(".policy", name)
            and not _is_under(".best_policy", name)
            and (array.size or name in known)  # older checkpoints have some arrays that are empty
        }
        moving = SeedState(
            unflatten(start.ledger, ledger), build(start.policy, policy), build(start.policy, best), build(like, rest)
        )
        states.append(agent.restored(start, moving, parts_of(start.seed, members)))
    return states


def pack_parts(parts: Mapping[int, object]) -> Arrays:
    """The parts that a round wrote for the given seeds."""
    return {f"{seed}/{name}": array for seed, part in parts.items() for name, array in flatten(part).items()}


def parts_of(seed: int, members: Sequence[Mapping[str, np.ndarray]]) -> list[Arrays]:
    """A seed's parts in the member files; a seed that had failed for a while lacks some."""
    return [part for part in (of_seed(seed, arrays) for arrays in members) if part]


def _prefixed(prefix: str, tree: object) -> Arrays:
    return {f"{prefix}{name}": array for name, array in flatten(tree).items()}


def _is_under(prefix: str, name: str) -> bool:
    return name.startswith((f"{prefix}.", f"{prefix}["))


def _under(prefix: str, arrays: Arrays) -> Arrays:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if _is_under(prefix, name)}


# Policies.

LARGEST, SMALL = 4_000, 1_000_000_000
"""How many times the bytes of its arrays the networks of a folder, cover and training included, may need, and how many
are never too many."""


def check_networks(path: Path, files: Sequence[Arrays], config: RunConfig, env: Environment) -> None:
    """Refuse settings and spaces of a folder whose networks its arrays can never fill, before any is made."""
    stored = sum(array.nbytes for arrays in files for array in arrays.values())
    needed = config.agent.cost(env, NO_LIMITS).networks
    if needed > max(LARGEST * stored, SMALL):
        raise DamagedFile(path, f"holds {stored:,} bytes of arrays, but its settings need networks of {needed:,} bytes")


def final_policies(states: Sequence[SeedState[object]]) -> Arrays:
    """The last policy of each seed, and the best by its counted evaluations beside it."""
    arrays: Arrays = {}
    for state in states:
        arrays |= _prefixed(f"{state.seed}/final", state.policy) | _prefixed(f"{state.seed}/best", state.best_policy)
    return arrays


def read_policies(folder: RunFolder, config: RunConfig, env: Environment, kind: str) -> list[Any]:
    """The final or the best policy of each seed."""
    arrays = folder.read_arrays(folder.policy) if folder.is_finished else arrays_so_far(folder)
    check_networks(folder.policy if folder.is_finished else folder.checkpoints, [arrays], config, env)
    return policies_of(arrays, config, env, kind, config.seed_list)


def policies_of(arrays: Arrays, config: RunConfig, env: Environment, kind: str, seeds: Sequence[int]) -> list[Any]:
    """The final or the best policy of some seeds, from their arrays."""
    agent = bound_agent(config, env)
    like = agent.template()
    found = [unflatten(like, _under(f"{seed}/{kind}", arrays), any_shape=agent.grows) for seed in seeds]
    for policy in found if agent.grows else ():
        _check_acts(policy, like, env)
    return found


def _check_acts(policy: Any, like: Any, env: Environment) -> None:
    """Refuse a policy whose arrays, though each may have any shape, do not fit together; nothing is computed."""
    seen = jax.ShapeDtypeStruct((1, *env.observation_space.shape), env.observation_space.dtype)
    gives, expected = (jax.eval_shape(lambda x, one=one: one.outputs(x), seen) for one in (policy, like))
    if gives.shape != expected.shape:
        raise ValueError(f"a policy gives {gives.shape}, expected {expected.shape}")


# What a run leaves for others.


def assets_of(
    folder: RunFolder,
    config: RunConfig,
    seeds: Sequence[int],
    env: Environment,
    notice: Notice = lambda text: None,
) -> list[Assets]:
    """The assets of some seeds as of the last checkpoint; reads every file once."""
    if not config.agent.leaves:
        raise NotARun(f"{folder.path} holds no cover: {config.algo} does not build one")
    checkpoint = folder.newest_checkpoint(notice)
    members = (
        [folder.read_member(i, sha256) for i, sha256 in enumerate(checkpoint.state["members"])] if checkpoint else []
    )
    check_networks(folder.cover, members, config, env)
    agent, found = bound_agent(config, env), []
    with understood(folder.cover):
        for seed in seeds:
            arrays = {} if checkpoint is None else of_seed(seed, checkpoint.arrays)
            one = agent.assets(config.agent.weights(arrays), parts_of(env.dynamics_seed(seed), members))
            if one.cover is None and one.data is None:
                raise NotARun(f"{folder.path}: seed {seed} has no {config.agent.leaves} yet")
            found.append(one)
    return found


def describe_source(folder: RunFolder) -> Json:
    """The record of a finished run's assets for another run; refuses unfinished runs and runs without assets.

    Reads every file, so damage is reported now.
    """
    steps = folder.read_summary()["env_steps"]
    env = environment_of(folder)
    config = RunConfig.from_json(folder.config, env)
    if config.source:
        raise NotARun(f"{folder.path} itself exploits a cover: use {config.source['run']}")
    checkpoint = folder.newest_checkpoint(functools.partial(_refuse, folder))
    members = checkpoint.state["members"] if checkpoint else []
    found = needing_all(lambda: assets_of(folder, config, config.seed_list, env))
    covers = {
        str(seed): {"weights": [] if one.cover is None else one.cover.weights.tolist(), "env_steps": env_steps}
        for seed, one, env_steps in zip(config.seed_list, found, steps, strict=True)
    }
    digest = hashlib.sha256(json.dumps([members, covers], sort_keys=True).encode()).hexdigest()
    run = str(folder.path.resolve())
    return {"run": run, "algo": config.algo, "members": members, "covers": covers, "sha256": digest}


def _refuse(folder: RunFolder, text: str) -> None:
    raise DamagedFile(folder.checkpoints, f"{text}, an earlier cover than the final one: `pcpg resume` rebuilds it")


def source_assets(folder: RunFolder, config: RunConfig) -> dict[int, Assets]:
    """The assets that a run exploits, from its own folder or that of the source."""
    env = config.make_env()
    wanted = sorted({env.dynamics_seed(seed) for seed in config.seed_list})
    members = [folder.read_member(index, sha256) for index, sha256 in enumerate(config.source["members"])]
    check_networks(folder.cover, members, config, env)
    agent, covers = bound_agent(config, env), config.source["covers"]
    with understood(folder.path):
        return {
            seed: agent.assets(np.array(covers[str(seed)]["weights"], float), parts_of(seed, members))
            for seed in wanted
        }


def own_source_assets(folder: RunFolder, config: RunConfig) -> dict[int, Assets] | None:
    """The assets that a run exploits, or None; reads the copy in its folder, creating it if missing."""
    if not config.source:
        return None
    for index, sha256 in enumerate(config.source["members"]):
        if not exists(folder.member(index)):
            try:
                arrays = RunFolder.open(config.source["run"]).read_member(index, sha256)
            except NotARun as error:
                raise NotARun(f"{folder.path} has not yet copied the cover it exploits: {error}") from error
            folder.write_member(index, arrays)
    return needing_all(lambda: source_assets(folder, config))


def members_given(config: RunConfig) -> list[str]:
    """The sha256 of the member files that exist before the first round."""
    return list(config.source.get("members", [])) + ([config.data["sha256"]] if config.data else [])


def needing_all(read: Callable[[], Read]) -> Read:
    """Inside, an error about a damaged member file adds that the cover cannot be restored without it."""
    try:
        return read()
    except DamagedFile as error:
        raise DamagedFile(error.path, f"{error.cause}; the cover cannot be restored without it") from error


# The feature map.


def run_features(folder: RunFolder, config: RunConfig, env: Environment) -> FeatureMap:
    """The feature map from the folder, written there at the first start; a map without arrays has no file."""
    drawn = config.make_features(env)
    arrays = flatten(drawn)
    if not arrays:
        return drawn
    if not exists(folder.features):
        write_arrays(folder.features, arrays)
        return drawn
    read = read_features(folder, drawn)
    return drawn if sha256_of(read) == sha256_of(drawn) else read


def sha256_of(frozen: object) -> str | None:
    """The hash of the file of an agent's frozen arrays, or None without such arrays."""
    arrays = flatten(frozen)
    return hashlib.sha256(encode_arrays(arrays)).hexdigest() if arrays else None


def read_features(folder: RunFolder, drawn: FeatureMap, *, is_drawn: bool = True) -> FeatureMap:
    """The saved feature map, or `drawn`, one of the same shape, if none was saved.

    `is_drawn` is false if `drawn` has only the shape of the true one.
    """
    if not exists(folder.features):
        if not is_drawn and flatten(drawn):
            raise DamagedFile(folder.features, "missing, and it cannot be redrawn without the environment")
        return drawn
    try:
        return unflatten(drawn, folder.read_arrays(folder.features))
    except DoesNotFit as error:
        raise DamagedFile(folder.features, f"not this run's feature map: {error}") from error


def check_features(folder: RunFolder, sha256: str | None, expected: str | None) -> None:
    """Raise unless the feature map is that of the checkpoint; `expected` is None in older checkpoints."""
    if expected is not None and sha256 != expected:
        raise DamagedFile(folder.features, f"altered: its sha256 is {sha256}, the checkpoint expects {expected}")
