"""What a run keeps on disk, as arrays and back: the states of its seeds, the members of their covers, its feature map.

Members of a cover never change, so each is written once, in a file of its own; a checkpoint holds the rest. The file of
member i holds that member of every seed that added one in round i. A run that exploits the cover of another holds a
copy of its member files and, in its config, where they came from:

    source = {"run": path, "algo": ..., "members": [sha256 of each file], "sha256": of all that follows from the cover,
              "covers": {seed: {"weights": [...], "env_steps": steps of the exploration}}}

so that it stays whole when the source is gone. The feature map is drawn once and the same from then on, on any machine.
"""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from pcpg.algorithms import ALGORITHMS
from pcpg.config import ReplayConfig
from pcpg.cover.cover import Cover, empty_cover, with_weights
from pcpg.envs.protocol import Environment
from pcpg.features.base import FeatureMap
from pcpg.policies.kernel import GreedyPolicy
from pcpg.policies.networks import ActorCritic
from pcpg.practice.agent import Agent, Covers
from pcpg.practice.kept import Batch, Kept
from pcpg.practice.replay_state import ReplayState, no_members
from pcpg.run_config import RunConfig
from pcpg.runs.arrays import encode_arrays, flatten, scalar, unflatten, write_arrays
from pcpg.runs.disk import exists
from pcpg.runs.errors import DamagedFile, DoesNotFit, NotARun, understood
from pcpg.runs.folder import Notice, RunFolder
from pcpg.state import Member, SeedState
from pcpg.training.going_on import arrays_so_far
from pcpg.training.trust import environment_of

Arrays = dict[str, np.ndarray]

# States and members.


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
        if isinstance(start, ReplayState):
            states.append(_with_data(start, _of_seed(int(start.seed), arrays), members))
            continue
        state = unflatten(_moving(start), _of_seed(int(start.seed), arrays))
        cover = start.cover
        if cover is not None and cover.size == 0:  # not one that was there before the first round
            head: Any = state.cover
            parts = parts_of(int(start.seed), members)[: int(head.size)]
            own = [unpack_member(int(start.seed), start.policy, part) for part in parts]
            cover = dataclasses.replace(stack_members(cover, own), weights=head.weights)
        states.append(state._replace(cover=cover))
    return states


def parts_of(seed: int, members: Sequence[Mapping[str, np.ndarray]]) -> list[Mapping[str, np.ndarray]]:
    """The member files that hold a member of a seed: one that failed for a while has no part in some."""
    return [part for part in members if any(name.startswith(f"{seed}/") for name in part)]


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


def stack_members(empty: Cover[ActorCritic], members: Sequence[Member]) -> Cover[ActorCritic]:
    """The cover of some members at once: `add_member` copies the whole stack each time."""
    stacked, sigmas = jax.tree.map(np.copy, empty.members), empty.sigmas.copy()
    for index, member in enumerate(members):
        jax.tree.map(lambda stack, leaf, i=index: stack.__setitem__(i, leaf), stacked, member.policy)
        sigma = np.asarray(member.sigma, np.float64)
        sigmas[index] = (sigma + sigma.T) / 2
    return Cover(stacked, sigmas, empty.weights, np.asarray(len(members), np.int32))


def final_policies(states: Sequence[SeedState]) -> Arrays:
    """The last policy of each seed, and the best by its counted evaluations beside it."""
    arrays: Arrays = {}
    for state in states:
        for kind, policy in (("final", state.policy), ("best", state.best_policy)):
            arrays |= {f"{int(state.seed)}/{kind}{name}": leaf for name, leaf in flatten(policy).items()}
    return arrays


def read_policies(folder: RunFolder, config: RunConfig, env: Environment, kind: str) -> list[ActorCritic]:
    """The final or the best policy of each seed."""
    arrays = folder.read_arrays(folder.policy) if folder.is_finished else arrays_so_far(folder)
    like = policy_template(config, env)
    return [
        unflatten(
            like,
            {name[len(prefix) :]: leaf for name, leaf in arrays.items() if name.startswith(prefix)},
            any_shape=isinstance(like, GreedyPolicy),
        )
        for prefix in (f"{seed}/{kind}" for seed in config.seed_list)
    ]


def policy_template(config: RunConfig, env: Environment) -> ActorCritic:
    """A policy of the kind that the run trains."""
    return ALGORITHMS[config.algo].template(config.agent, env)


def _moving(state: Any) -> Any:
    if isinstance(state, ReplayState):
        return state._replace(kept=None, cover=state.cover._replace(w=None, landmarks=None, visits=None))
    if state.cover is None:
        return state
    head = Cover(None, np.zeros((0, 0, 0)), state.cover.weights, state.cover.size)
    return state._replace(cover=head)


def _with_data(
    start: ReplayState, arrays: Mapping[str, np.ndarray], members: Sequence[Mapping[str, np.ndarray]]
) -> ReplayState:
    """A seed that keeps its data: from a checkpoint, and from the rounds in the member files."""
    state, kept = unflatten(_moving(start), arrays, any_shape=True), start.kept
    assert kept is not None
    room = state.model.landmarks.capacity
    cover = no_members(len(state.model.w), room)
    for part in parts_of(int(start.seed), members)[: int(state.batches)]:
        own = _of_seed(int(start.seed), part)
        kept.restore(_batch(own))
        if own[".features"] == state.features:
            w, visits = own[".w"], own[".visits"]
            cover = cover._replace(
                w=np.concatenate([cover.w, np.pad(w, ((0, 0), (0, room - w.shape[-1])))[None]]),
                landmarks=np.append(cover.landmarks, own[".landmarks"]),
                visits=np.concatenate([cover.visits, np.pad(visits, (0, room - len(visits)))[None]]),
            )
    cover = cover._replace(weights=state.cover.weights, size=state.cover.size)
    return state._replace(cover=cover, kept=kept)


def _prefixed(seed: int, arrays: Arrays) -> Arrays:
    return {f"{seed}/{name}": array for name, array in arrays.items()}


def _of_seed(seed: int, arrays: Mapping[str, np.ndarray]) -> Arrays:
    prefix = f"{seed}/"
    return {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}


# Covers.


def covers_of(
    folder: RunFolder, config: RunConfig, seeds: Sequence[int], env: Environment, notice: Notice = lambda text: None
) -> list[Cover[ActorCritic]]:
    """The covers of some seeds as of the last checkpoint; every file is read once."""
    checkpoint = folder.newest_checkpoint(notice)
    weights: dict[int, np.ndarray] = {}
    with understood(folder.cover):
        for seed in seeds:
            name = f"{seed}/.cover"
            if ALGORITHMS[config.algo].exploit is None:
                raise NotARun(f"{folder.path} holds no cover: {config.algo} keeps none")
            size = 0 if checkpoint is None else scalar(checkpoint.arrays[f"{name}.size"])
            if checkpoint is None or size == 0:
                raise NotARun(f"{folder.path}: the cover of seed {seed} has no member: nothing was explored so far")
            weights[env.dynamics_seed(seed)] = checkpoint.arrays[f"{name}.weights"][:size]
        covers = _read_covers(folder, config, env, weights, checkpoint.state["members"] if checkpoint else [])
        return [covers[env.dynamics_seed(seed)] for seed in seeds]


def describe_source(folder: RunFolder) -> dict[str, Any]:
    """What another run needs to know of the cover of a finished run; refuses a run that has none or is not finished.

    Every file of the cover is read: a damaged one is named now.
    """
    steps = folder.read_summary()["env_steps"]
    env = environment_of(folder)
    config = RunConfig.from_json(folder.config, env)
    if config.source:
        raise NotARun(f"{folder.path} itself exploits a cover: use that of {config.source['run']}")
    checkpoint = folder.newest_checkpoint(functools.partial(_refuse, folder))
    members = checkpoint.state["members"] if checkpoint else []
    if keeps_data(config):
        needing_all(lambda: [folder.read_member(index, sha256) for index, sha256 in enumerate(members)])
        weights: list[list[float]] = [[] for _ in steps]
    else:
        weights = [cover.weights.tolist() for cover in covers_of(folder, config, config.seed_list, env)]
    covers = {
        str(seed): {"weights": own, "env_steps": env_steps}
        for seed, own, env_steps in zip(config.seed_list, weights, steps, strict=True)
    }
    digest = hashlib.sha256(json.dumps([members, covers], sort_keys=True).encode()).hexdigest()
    run = str(folder.path.resolve())
    return {"run": run, "algo": config.algo, "members": members, "covers": covers, "sha256": digest}


def _refuse(folder: RunFolder, text: str) -> None:
    raise DamagedFile(folder.checkpoints, f"{text}, which is not the cover of its end: `pcpg resume` makes it anew")


def read_source_covers(folder: RunFolder, config: RunConfig) -> Covers:
    """The covers that a run exploits, from its own folder or from that of the source, with room for the largest.

    Of a run that keeps its data they are the data.
    """
    env = config.make_env()
    wanted = sorted({env.dynamics_seed(seed) for seed in config.seed_list})
    if keeps_data(config):
        return {seed: _read_data(folder, config, env, seed, config.source["members"]) for seed in wanted}  # pyright: ignore
    weights = {seed: np.array(config.source["covers"][str(seed)]["weights"]) for seed in wanted}
    capacity = max(map(len, weights.values()))
    return _read_covers(folder, config, env, weights, config.source["members"], capacity)


def keeps_data(config: RunConfig) -> bool:
    """Whether the members of a run hold data instead of policies to roll in."""
    return isinstance(config.agent, ReplayConfig)


def _read_data(folder: RunFolder, config: RunConfig, env: Environment, seed: int, hashes: Sequence[str]) -> Kept:
    """All transitions of a seed."""
    space = env.observation_space
    assert isinstance(config.agent, ReplayConfig)
    kept = Kept(space.shape, np.dtype(space.dtype), config.agent.replay.ignored)
    for index, sha256 in enumerate(hashes):
        own = _of_seed(seed, folder.read_member(index, sha256))
        if own:  # a seed that had ended by then has no part in it
            kept.restore(_batch(own))
    return kept


def read_data(folder: RunFolder, config: RunConfig, seed: int) -> Kept:
    """All transitions that a seed has kept, as of the last checkpoint."""
    checkpoint = folder.newest_checkpoint()
    members = checkpoint.state["members"] if checkpoint else []
    return _read_data(folder, config, environment_of(folder), seed, members)


def _batch(own: Mapping[str, np.ndarray]) -> Batch:
    prefix = ".batch."
    return Batch(**{name[len(prefix) :]: leaf for name, leaf in own.items() if name.startswith(prefix)})


def own_source_covers(folder: RunFolder, config: RunConfig) -> Covers | None:
    """The covers that a run exploits, from its own copy, made where it is missing; None: it explores by itself."""
    if not config.source:
        return None
    for index, sha256 in enumerate(config.source["members"]):
        if not exists(folder.member(index)):
            try:
                arrays = RunFolder.open(config.source["run"]).read_member(index, sha256)
            except NotARun as error:
                raise NotARun(f"{folder.path} has no copy yet of the cover that it exploits: {error}") from error
            folder.write_member(index, arrays)
    return needing_all(lambda: read_source_covers(folder, config))


def needing_all(read: Any) -> Any:
    """What reads member files; one that is damaged says that the cover cannot be restored without it."""
    try:
        return read()
    except DamagedFile as error:
        raise DamagedFile(error.path, f"{error.cause}; the cover cannot be restored without it") from error


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
    for index, sha256 in enumerate(hashes):
        if all(len(members[seed]) == len(own) for seed, own in weights.items()):
            break
        arrays = folder.read_member(index, sha256)
        for seed, own in weights.items():
            if len(members[seed]) < len(own) and parts_of(seed, [arrays]):
                members[seed].append(unpack_member(seed, like, arrays))
    covers: Covers = {}
    for seed, own in weights.items():
        empty = empty_cover(members[seed][0].policy, members[seed][0].sigma.shape[0], max(capacity, len(own)))
        covers[seed] = with_weights(stack_members(empty, members[seed]), own)
    return covers


# The feature map.


def with_saved_features(folder: RunFolder, agent: Agent) -> tuple[Agent, str | None]:
    """The agent with the feature map that lies in the folder, put there at the first start, and the file's sha256.

    An agent without a feature map, or with one that holds no arrays, has no such file.
    """
    if agent.phi is None or not (arrays := flatten(agent.phi)):
        return agent, None
    if not exists(folder.features):
        return agent, write_arrays(folder.features, arrays)
    phi = read_features(folder, agent.phi)
    data = encode_arrays(flatten(phi))
    if data != encode_arrays(arrays):
        agent = dataclasses.replace(agent, phi=phi)
    return agent, hashlib.sha256(data).hexdigest()


def read_features(folder: RunFolder, drawn: FeatureMap, *, is_drawn: bool = True) -> FeatureMap:
    """The feature map as it was saved; `drawn` is one of the same shape, and the answer where none was saved.

    Where it has no more than the shape of the true one, `is_drawn` is false.
    """
    if not exists(folder.features):
        if not is_drawn and flatten(drawn):
            raise DamagedFile(folder.features, "missing, and without the environment it cannot be drawn again")
        return drawn
    try:
        return unflatten(drawn, folder.read_arrays(folder.features))
    except DoesNotFit as error:
        raise DamagedFile(folder.features, f"not the feature map of this run: {error}") from error


def check_features(folder: RunFolder, sha256: str | None, expected: str | None) -> None:
    """Raise if the feature map is not the one with which a checkpoint was made; `expected` is None in older ones."""
    if expected is not None and sha256 != expected:
        raise DamagedFile(folder.features, f"altered: its sha256 is {sha256}, the checkpoint expects {expected}")
