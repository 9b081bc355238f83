"""The episodes of a local Minari dataset, which may be anybody's: its sizes are looked at before it is read."""

import importlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pcpg.envs.host import HostEnvironment
from pcpg.envs.protocol import Environment
from pcpg.runs.disk import exists, largest, read_file, refuse_strange
from pcpg.runs.errors import DamagedFile, MissingExtra, RunError

MINARI = "minari:"
DEEPEST = 32
"""Levels of Dicts and Tuples in an observation."""


def of_minari(dataset_id: str, env: Environment) -> tuple[dict[str, np.ndarray], bool]:
    """The episodes of a local Minari dataset, and whether `pcpg export` wrote their actions."""
    try:
        minari = importlib.import_module("minari")
    except ImportError as error:
        raise MissingExtra("minari", f"{MINARI}{dataset_id}") from error
    try:
        check_dataset(Path(minari.storage.get_dataset_path(dataset_id)))
        dataset = minari.load_dataset(dataset_id)
        episodes = list(dataset.iterate_episodes())
    except RunError:
        raise
    except Exception as error:  # of many kinds: Minari's, h5py's, the system's
        raise ValueError(f"Minari cannot load it: {type(error).__name__}: {error}".splitlines()[0]) from error
    if not episodes:
        raise ValueError("it holds no steps")
    rows = [
        dict(_leaves("observations", one.observations))
        | {"actions": one.actions}
        | {"rewards": one.rewards, "terminated": one.terminations, "truncated": one.truncations}
        for one in episodes
    ]
    from pcpg.envs.gymnasium_bridge import to_gymnasium_space

    arrays = {name: np.concatenate([np.asarray(row[name]) for row in rows]) for name in rows[0]}
    own, space = to_gymnasium_space(env.action_space), dataset.action_space
    declared = env.declared_spaces["action"] if isinstance(env, HostEnvironment) else own
    if space not in (declared, own):
        raise ValueError(f"its actions are in {space}, expected {declared}")
    return arrays, space != declared


def check_dataset(folder: Path) -> None:
    """Refuse a dataset with links, pipes or more than fits into memory; of its arrays only the sizes are read."""
    refuse_strange(folder, ["data"])
    groups = size = 0
    for path in sorted((folder / "data").glob("*.hdf5")):
        with importlib.import_module("h5py").File(path, "r") as file:
            groups, size = groups + len(file), size + _size(file, path)
    if size > largest(folder):
        raise DamagedFile(folder, f"too large: {size:,} bytes unpacked, expected at most {largest(folder):,}")
    if exists(about := folder / "data" / "metadata.json"):
        number = json.loads(read_file(about))["total_episodes"]
        if groups and number > groups:
            raise DamagedFile(about, f"{number:,} episodes, but there are {groups:,}")


def _size(group: Any, path: Path, depth: int = DEEPEST) -> int:
    """The bytes of all arrays in a group of an HDF5 file, unpacked; what lies in another file is refused."""
    found = 0
    for name in group:
        if type(group.get(name, getlink=True)).__name__ != "HardLink":
            raise DamagedFile(path, f"{name:.60} is a link")
        inside = group[name]
        if hasattr(inside, "keys"):
            if not depth:
                raise DamagedFile(path, "nested too deeply")
            found += _size(inside, path, depth - 1)
        elif inside.external or inside.is_virtual:
            raise DamagedFile(path, f"{name:.60} is in another file")
        else:
            found += inside.nbytes
    return found


def _leaves(name: str, tree: object) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays inside Dicts and Tuples, by their names in a file."""
    items = tree.items() if isinstance(tree, Mapping) else enumerate(tree) if isinstance(tree, tuple) else None
    if items is None:
        yield name, np.asarray(tree)
        return
    for key, inside in items:
        yield from _leaves(f"{name}/{key}", inside)
