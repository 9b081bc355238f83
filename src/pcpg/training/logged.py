"""Logged episodes, of a controller or an earlier run, from which a run starts.

    observations   [steps + episodes, ...], each episode with its last one; or [steps, ...] beside next_observations
    actions        [steps, ...] as the environment takes them
    rewards        [steps]
    terminated     [steps] whether the episode ended there
    truncated      [steps] whether it was cut there; optional

The parts of a Dict or Tuple observation are separate arrays, `observations/KEY`. The file is an .npz of these arrays; a
Minari dataset has the same. A run keeps a copy as its first member file and records the source in its config:

    data = {"from": path or "minari:ID", "episodes": ..., "steps": ..., "sha256": of the member file}

Untrusted .npz files are read without pickle, and no array is larger than its bytes.
"""

import contextlib
import dataclasses
import hashlib
import io
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pcpg.config import ConfigError, nested
from pcpg.envs.host import HostEnvironment, unsound
from pcpg.envs.protocol import Environment
from pcpg.envs.spaces import Box, Discrete, MultiDiscrete, Space
from pcpg.learners.transitions import CHANCE, Episodes
from pcpg.run_config import RunConfig
from pcpg.runs.arrays import encode_arrays
from pcpg.runs.disk import exists, largest, read_file, read_head
from pcpg.runs.errors import DamagedFile, RunError
from pcpg.runs.folder import RunFolder
from pcpg.state import SHARED
from pcpg.training.from_minari import DEEPEST, MINARI, of_minari
from pcpg.trees import flatten

NAMES = {
    "actions": ("actions",),
    "rewards": ("rewards",),
    "terminated": ("terminated", "terminations", "terminals"),
    "truncated": ("truncated", "truncations", "timeouts"),
}
"""The names that each array may have."""

Arrays = Mapping[str, np.ndarray]


def begun_with(config: RunConfig, where: str, here: Path | None = None) -> RunConfig:
    """The configuration of a run that starts from these episodes, which are read and checked now."""
    config.check_takes_data()
    source = where if where.startswith(MINARI) else str((here or Path.cwd()) / where)
    with contextlib.closing(config.make_env()) as env:
        part = _read(source, env)
    lengths = part[f"{SHARED}.episodes.lengths"]
    found = {"episodes": len(lengths), "steps": int(lengths.sum()), "sha256": _sha256(part)}
    return dataclasses.replace(config, data={"from": source, **found})


def given_data(folder: RunFolder, config: RunConfig) -> dict[str, np.ndarray] | None:
    """The episodes from which a run starts, or None; reads the copy in its folder, creating it if missing."""
    if not config.data:
        return None
    sha256, path = config.data["sha256"], folder.member(0)
    if not exists(path):
        env = config.make_env()
        part = _read(config.data["from"], env)
        if _sha256(part) != sha256:
            raise RunError(f"{config.data['from']} has changed since {folder.path} was created: start a new run")
        folder.write_member(0, part)
    read = folder.read_member(0, sha256)
    return {name.removeprefix(SHARED): array for name, array in read.items()}


def _sha256(part: Arrays) -> str:
    return hashlib.sha256(encode_arrays(part)).hexdigest()


def _read(source: str, env: Environment) -> dict[str, np.ndarray]:
    """The arrays of the member file for these episodes."""
    try:
        is_minari = source.startswith(MINARI)
        arrays, is_own = of_minari(source.removeprefix(MINARI), env) if is_minari else (read_npz(Path(source)), False)
        episodes = episodes_of(arrays, env, is_own=is_own)
    except DamagedFile as error:
        raise ConfigError(f"--data {error}") from error
    except ValueError as error:
        raise ConfigError(f"--data {source}: {error}") from error
    return {f"{SHARED}.episodes{name}": array for name, array in flatten(episodes).items()}


# From arrays.


@np.errstate(over="ignore", invalid="ignore")  # what is not finite is refused
def episodes_of(arrays: Arrays, env: Environment, *, is_own: bool = False) -> Episodes:
    """The episodes in these arrays, in the form that learners keep; raises ValueError if something does not fit.

    `is_own`: actions are in the policies' form, not the environment's.
    """
    actions, rewards, terminated = (_named(arrays, name) for name in ("actions", "rewards", "terminated"))
    steps = len(actions)
    truncated = _named(arrays, "truncated", np.zeros(steps, bool))
    for name, array in (("rewards", rewards), ("terminated", terminated), ("truncated", truncated)):
        if array.shape != (steps,):
            raise ValueError(f"{name} has shape {array.shape}, expected ({steps},) as there are {steps:,} actions")
        if name != "rewards" and not np.isin(array, (0, 1)).all():
            raise ValueError(f"{name} must be true or false in each step, got {array[~np.isin(array, (0, 1))][0]:g}")
    if not steps:
        raise ValueError("it holds no steps")
    rewards = rewards.astype(np.float32)
    if not np.isfinite(rewards).all():
        raise ValueError(f"rewards[{int(np.argmin(np.isfinite(rewards)))}] is not a finite number")
    terminated, truncated = terminated.astype(bool), truncated.astype(bool)
    ends = np.flatnonzero(terminated | truncated) + 1
    if not len(ends) or ends[-1] != steps:
        last = int(ends[-1]) if len(ends) else 0
        raise ValueError(f"the episode that begins at step {last} has no end: set truncated where it was cut")
    lengths = np.diff(ends, prepend=0)
    return Episodes(
        _observations(arrays, env, steps, ends),
        _actions(actions, env, is_own=is_own),
        rewards,
        terminated,
        lengths.astype(np.int32),
        np.full(len(lengths), CHANCE, np.int8),
    )


def _named(arrays: Arrays, name: str, default: np.ndarray | None = None) -> np.ndarray:
    """The array of a name, or of a synonym."""
    there = [one for one in NAMES[name] if one in arrays]
    if len(there) > 1:
        raise ValueError(f"it has both {there[0]} and {there[1]}, which mean the same: leave one out")
    found = np.asarray(arrays[there[0]]) if there else default
    if found is None:
        raise ValueError(f"it has no {name}: expected observations, actions, rewards, terminated and truncated")
    if found.ndim == 0:
        raise ValueError(f"{name} is a single number, expected one entry per step")
    return found


def _observations(arrays: Arrays, env: Environment, steps: int, ends: np.ndarray) -> np.ndarray:
    """All observations, including the last of each episode, in the form that networks see."""
    here = {name: array for name, array in arrays.items() if name.partition("/")[0] == "observations"}
    if not here:
        raise ValueError("it has no observations: expected observations, or observations/KEY of a Dict")
    if any(not array.ndim for array in here.values()):
        raise ValueError("observations is a single number, expected one entry per step")
    if inside := [(one, other) for one in here for other in here if other.startswith(f"{one}/")]:
        raise ValueError("both {:.60} and {:.60} are arrays, but one is part of the other".format(*inside[0]))
    rows, after = {len(array) for array in here.values()}, steps + len(ends)
    nothing = np.zeros(0)
    followed = all(arrays.get(f"next_{name}", nothing).shape == array.shape for name, array in here.items())
    if rows == {steps} and followed:  # the last one of each episode is the one that followed its last step
        places = np.insert(np.arange(steps), ends, steps + np.arange(len(ends)))
        here = {name: np.concatenate([a, arrays[f"next_{name}"][ends - 1]])[places] for name, a in here.items()}
    elif rows != {after}:
        raise ValueError(
            f"observations has {' and '.join(f'{n:,}' for n in sorted(rows))} rows, expected {after:,} (each of "
            f"{len(ends):,} episodes with its last one), or {steps:,} beside next_observations"
        )
    space = env.observation_space
    whole = here.get("observations")
    if whole is not None and (not isinstance(env, HostEnvironment) or _is_encoded(whole, env)):
        if whole.shape[1:] != space.shape:
            raise ValueError(f"observations has rows of shape {whole.shape[1:]}, expected {space.shape}")
        made = whole.astype(space.dtype)
    else:
        assert isinstance(env, HostEnvironment)
        made = np.stack([_encoded(env, here, row) for row in range(after)])
    bad = unsound(env, made).reshape(after, -1)
    if bad.any():
        row, entry = np.argwhere(bad)[0].tolist()
        raise ValueError(f"observations[{row}], entry {entry}, is {made.reshape(after, -1)[row, entry]:g}")
    return made


def _is_encoded(whole: np.ndarray, env: HostEnvironment) -> bool:
    """Whether observations are already in the form that networks see, as runs keep them."""
    declared = env.declared_spaces["observation"].shape
    return whole.shape[1:] != declared and whole.shape[1:] == env.observation_space.shape


def _encoded(env: HostEnvironment, arrays: Arrays, row: int) -> np.ndarray:
    """One observation in the form that networks see."""
    try:
        return env.encode(_tree({name: array[row] for name, array in arrays.items()}))
    except ValueError as error:
        raise ValueError(f"observations[{row}]: {error}") from error


def _tree(parts: Arrays) -> Any:
    """An observation from its parts: a Dict, a Tuple where keys are numbers, or the array itself."""
    if "observations" in parts:
        return parts["observations"]
    return _tuples(nested({name.partition("/")[2]: value for name, value in parts.items()}, "/"))


def _tuples(found: Any) -> Any:
    """Dicts whose keys are 0, 1, ... as Tuples."""
    if not isinstance(found, dict):
        return found
    inside = {key: _tuples(value) for key, value in found.items()}
    is_tuple = set(inside) == {str(number) for number in range(len(inside))}
    return tuple(inside[str(number)] for number in range(len(inside))) if is_tuple else inside


def _actions(actions: np.ndarray, env: Environment, *, is_own: bool) -> np.ndarray:
    """Actions in the form that policies output."""
    space = env.action_space
    if isinstance(env, HostEnvironment) and not is_own:
        actions = env.coders[1].encode(actions)
    if isinstance(space, Discrete | MultiDiscrete) and actions.dtype.kind not in "iu":
        raise ValueError(f"actions are {actions.dtype}, expected integers")
    if actions.shape[1:] != space.shape:
        raise ValueError(f"actions has rows of shape {actions.shape[1:]}, expected {space.shape}")
    low, high = (space.low, space.high) if isinstance(space, Box) else (0, _most(space))
    room = 1e-4 * (high - low) if isinstance(space, Box) else 0
    bad = ~((actions >= low - room) & (actions <= high + room)).reshape(len(actions), -1).all(axis=1)
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(f"actions[{row}] is outside {space}: clip them where the environment does")
    return np.clip(actions, low, high).astype(space.dtype)


def _most(space: Space) -> Any:
    return space.n - 1 if isinstance(space, Discrete) else np.array(getattr(space, "sizes", 1)) - 1


KINDS = "biuf"
"""Kinds of arrays that are read: booleans, integers and real numbers."""


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """The arrays of episodes in an .npz file by name; raises `DamagedFile` for anything else."""
    if not read_head(path, 2)[0].startswith(b"PK"):
        raise DamagedFile(path, "not an .npz file of numbers")
    data, found = read_file(path), {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = [entry for entry in archive.infolist() if _is_read(entry.filename)]
            size = sum(entry.file_size for entry in entries)
            if size > largest(path):
                raise DamagedFile(path, f"too large: {size:,} bytes unpacked, expected at most {largest(path):,}")
            if len({entry.filename for entry in entries}) < len(entries):
                raise ValueError("two arrays have the same name")
            for entry in entries:
                found[entry.filename.removesuffix(".npy")] = _array(archive.read(entry))
    except RunError:
        raise
    except Exception as error:  # of many kinds: those of zipfile, of four decompressors and of Python's parser
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise DamagedFile(path, f"not an .npz file of numbers: {said:.200}") from error
    return found


def _is_read(name: str) -> bool:
    """Whether an entry of the archive is looked at: whatever else lies in it is not even unpacked."""
    name, _, kind = name.rpartition(".")
    observed = name.partition("/")[0] in ("observations", "next_observations") and name.count("/") < DEEPEST
    return kind == "npy" and (observed or any(name in names for names in NAMES.values()))


def _array(data: bytes) -> np.ndarray:
    """The array in the bytes of an .npy file."""
    file = io.BytesIO(data)
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"version {version} of the .npy format")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, is_fortran, dtype = read(file)
    if dtype.kind not in KINDS:
        raise ValueError(f"an array of {dtype}, expected numbers")
    rest = len(data) - file.tell()
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != rest:
        raise ValueError(f"an array of shape {shape} in {rest:,} bytes")
    return np.frombuffer(data, dtype, offset=file.tell()).reshape(shape, order="F" if is_fortran else "C")
