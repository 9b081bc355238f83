"""Episodes of a run, fresh or kept, as a Minari dataset for offline learning; needs the extra `minari`."""

import importlib
import itertools
import re
import string
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces

from pcpg.api import KeptEpisode, Run
from pcpg.envs.gymnasium_bridge import to_gymnasium_space
from pcpg.machine import environment_variable
from pcpg.play import CannotPlay, Episode, Which, chosen_policies, play, playable_env
from pcpg.runs.errors import MissingExtra

PATH = "MINARI_DATASETS_PATH"
"""The environment variable that says where Minari keeps its datasets."""


def default_id(run: Run, which: str) -> str:
    """A dataset's id such as pcpg/CombinationLock-v0/cover-v0."""
    return f"pcpg/{re.sub('[^A-Za-z0-9_-]', '-', run.config.env)}/{which}-v0"


def check_export(out: Path, dataset_id: str) -> None:
    """Refuse invalid datasets before anything is played."""
    minari = _minari()
    try:
        minari.dataset.minari_dataset.parse_dataset_id(dataset_id)
    except (ValueError, TypeError) as error:
        raise CannotPlay(f"{dataset_id!r} is not a valid dataset id: expected one like pcpg/lock/cover-v0") from error
    if (out / dataset_id).exists():
        raise CannotPlay(f"{out / dataset_id} already exists: choose another --id or --out")


def save(
    run: Run, out: Path, *, which: Which | Literal["kept"] | None, episodes: int | None, greedy: bool, **given: Any
) -> tuple[str, Any]:
    """What `pcpg export` does: episodes that were kept, or that policies play; the dataset's id and the dataset."""
    which = which or ("kept" if run.keeps_data else "cover")
    name = given.pop("dataset_id") or default_id(run, which)
    run.check_seed(given["seed"])
    check_export(out, name)
    if which == "kept":
        return name, export_data(run, out, episodes=episodes, dataset_id=name, **given)
    return name, export(run, out, which=which, episodes=episodes or 100, greedy=greedy, dataset_id=name, **given)


def export(
    run: Run,
    out: Path,
    *,
    which: Which = "cover",
    seed: int | None = None,
    episodes: int = 100,
    greedy: bool = False,
    dataset_id: str | None = None,
) -> Any:
    """Play episodes and save them as a Minari dataset under the folder `out`; the dataset.

    With `which="cover"` each episode is played by a policy of the cover, drawn by its weight. Load it again with
    MINARI_DATASETS_PATH set to `out`.
    """
    dataset_id = dataset_id or default_id(run, which)
    check_export(out, dataset_id)
    policies, weights = chosen_policies(run, which, seed)
    own_seed = run.config.seed if seed is None else seed
    env = playable_env(run, own_seed)
    limit = run.env.evaluation_env.max_steps
    played = play(env, policies, weights, episodes, greedy=greedy, max_steps=limit)
    buffers = [
        _buffer(number, one, seed=one.seed, infos={"policy": [one.policy] * len(one.observations)})
        for number, one in enumerate(played)
    ]
    about = f"{episodes} episodes of {which} policies of a pcpg run on {run.config.env}, seed {own_seed}"
    spaces_of = storable(env.observation_space), storable(env.action_space)
    dataset = _written(run, out, dataset_id, buffers, spaces_of, about, env if env.spec is not None else None)
    env.close()
    return dataset


def export_data(
    run: Run, out: Path, *, seed: int | None = None, episodes: int | None = None, dataset_id: str | None = None
) -> Any:
    """Save the episodes that a run of `pcpg-replay` kept, all or the first so many, as a Minari dataset; the dataset.

    No step is taken. Observations and actions are in the library's format, the parts of a Dict concatenated as numbers.
    """
    if not run.keeps_data:
        raise CannotPlay(
            f"{run.path} holds no data: {run.config.algo} does not keep its episodes; export its cover instead"
        )
    dataset_id = dataset_id or default_id(run, "kept")
    check_export(out, dataset_id)
    run.check_seed(seed)
    own_seed, env = run.config.seed if seed is None else seed, run.env
    some = itertools.islice(run.kept_episodes(own_seed), episodes)
    parts = [_buffer(number, episode, infos={}) for number, episode in enumerate(some)]
    about = f"{len(parts)} episodes kept by a pcpg run on {run.config.env}, seed {own_seed}"
    both = to_gymnasium_space(env.observation_space), to_gymnasium_space(env.action_space)
    return _written(run, out, dataset_id, parts, both, about, None)


def _written(
    run: Run,
    out: Path,
    dataset_id: str,
    buffers: Sequence[object],
    both: tuple[gymnasium.Space, gymnasium.Space],
    about: str,
    env: gymnasium.Env | None,
) -> Any:
    out.mkdir(parents=True, exist_ok=True)
    with environment_variable(PATH, str(out.resolve())), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="`?(code_permalink|author|author_email|eval_env|env_spec)`? is ")
        return _minari().create_dataset_from_buffers(
            dataset_id,
            buffers,
            env=env,
            observation_space=both[0],
            action_space=both[1],
            algorithm_name=run.config.algo,
            description=about,
            jpeg_encoding=False,  # observations come back as they were
        )


LONGEST_TEXT = 4096


def storable(space: gymnasium.Space) -> gymnasium.Space:
    """A space that Minari can write down: text of another kind, such as MiniGrid's missions, as a Text space."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: storable(part) for key, part in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([storable(part) for part in space.spaces])
    if not isinstance(space, spaces.Text) and space.dtype is not None and space.dtype.kind == "U":
        return spaces.Text(LONGEST_TEXT, min_length=0, charset=string.printable)
    return space


def _buffer(number: int, episode: Episode | KeptEpisode, **more: object) -> object:
    return _minari().data_collector.EpisodeBuffer(
        id=number,
        observations=_stacked(episode.observations),
        actions=_stacked(episode.actions),
        rewards=np.asarray(episode.rewards).tolist(),
        terminations=np.asarray(episode.terminated).tolist(),
        truncations=np.asarray(episode.truncated).tolist(),
        **more,
    )


def _stacked(items: Sequence[Any] | np.ndarray) -> object:
    """Arrays with a leading axis of time; dictionaries and tuples by their parts."""
    if isinstance(items[0], dict):
        return {key: _stacked([item[key] for item in items]) for key in items[0]}
    if isinstance(items[0], tuple):
        return tuple(_stacked([item[index] for item in items]) for index in range(len(items[0])))
    return items if isinstance(items[0], str) else np.stack([np.asarray(item) for item in items])


def _minari() -> ModuleType:
    try:
        importlib.import_module("h5py")  # Minari itself does not need it before it writes
        return importlib.import_module("minari")
    except ImportError as error:
        raise MissingExtra("minari", "a Minari dataset") from error
