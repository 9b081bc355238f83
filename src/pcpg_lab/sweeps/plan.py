"""The cells of a sweep, from a TOML file or a Python file; every one is checked before any work starts.

block = 4                       # seeds of a cell
cores = 1                       # of a cell; gpus = 0.25 lets four share one

[base]                          # what all have: entries of a configuration, as in `pcpg train --config`
env = "CombinationLock-v0"
seeds = 16

[grid]                          # every combination
"env_options.horizon" = [2, 5]

[[cells]]                       # and each of these with each combination
algo = "pcpg"
agent.explore.max_policies = 8

[[cells]]
algo = "ppo"
"""

import dataclasses
import hashlib
import itertools
import json
import math
import runpy
import tomllib
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pcpg.config import ConfigError, Json, check_choice
from pcpg.engine.program import ACCELERATOR_LANES
from pcpg.envs.adapters.from_module import put_on_path
from pcpg.run_config import RunConfig
from pcpg.runs.disk import exists, read_file
from pcpg.runs.documents import refuse_nested
from pcpg.training.loop import check_instances

ENTRIES = ("block", "cores", "gpus", "base", "grid", "cells", "tune")
MOST_CELLS = 10_000
NAMED = 5
"""Bad cells that an error names; the others are counted."""

Settings = Json


class Cell(NamedTuple):
    """A run of a sweep."""

    id: str  # hash of its resolved settings
    label: str  # the settings that distinguish it
    group: str  # hash of its settings but for the seeds
    config: Settings  # resolved, as JSON values


@dataclasses.dataclass(frozen=True)
class Plan:
    """The cells of a sweep, and the resources of each."""

    cells: tuple[Cell, ...]
    cores: int = 1
    gpus: float | None = None
    """GPUs per cell; None: a whole one if there are any."""


def read_plan(path: Path | str) -> Plan:
    """The plan in a file: TOML, or Python with a mapping SWEEP of the same entries."""
    entries = read_entries(Path(path))
    if "tune" in entries:
        raise ConfigError(f"{path} has a table [tune], which a sweep does not read: pcpg tune {path}")
    return plan_of(entries)


def read_entries(path: Path) -> Settings:
    """The entries of a file."""
    if not exists(path):
        raise ConfigError(f"{path}: no such file; a plan is a .toml or a .py file (docs/how-to/cluster.md)")
    data = read_file(path)
    try:
        entries = _run(path) if path.suffix == ".py" else tomllib.loads(data.decode())
    except ConfigError:
        raise
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    if not isinstance(entries, Mapping):
        raise ConfigError(f"{path} must define SWEEP, a mapping, got {entries!r:.60}")
    try:
        refuse_nested(entries)
    except ValueError as error:
        raise ConfigError(f"{path} is {error}") from error
    return dict(entries)


def _run(path: Path) -> Any:
    """What a Python file, given by the user, calls SWEEP."""
    put_on_path(path.resolve().parent)
    try:
        names = runpy.run_path(str(path), run_name="sweep_file")
    except Exception as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        where = f", line {lines[-1]}" if lines else ""
        raise ConfigError(f"{path}{where}: {type(error).__name__}: {error}") from error
    return names.get("SWEEP")


def plan_of(entries: Json) -> Plan:
    """The plan of a sweep's entries; one error names all cells that cannot be run."""
    for name in entries:
        check_choice("entry of a sweep", name, ENTRIES)
    block, cores = entries.get("block", ACCELERATOR_LANES), entries.get("cores", 1)
    for name, value in (("block", block), ("cores", cores)):
        if type(value) is not int or value < 1:
            raise ConfigError(f"{name} must be an integer of at least 1, got {value!r}")
    gpus = entries.get("gpus")
    if gpus is not None and (isinstance(gpus, bool) or not isinstance(gpus, int | float) or gpus < 0):
        raise ConfigError(f"gpus must be a share of a GPU, 0 or more, got {gpus!r}")
    given = list(combinations(entries))
    if not given:
        raise ConfigError("a sweep needs a cell: expected entries 'base', 'grid' or 'cells'")
    names, resolved, wrong = labels_of(given), [], []
    for number, (settings, name) in enumerate(zip(given, names, strict=True), start=1):
        try:
            config = RunConfig.from_json(settings).resolved()
            check_instances(config)
            resolved.append((config, name))
            config.make_env().close()  # its workers are those of the cells
        except (ValueError, TypeError) as error:
            wrong.append(f"cell {number} of {len(given)} ({name or 'the only one'}): {error}")
    if wrong:
        more = f"; and {len(wrong) - NAMED} more" if len(wrong) > NAMED else ""
        raise ConfigError("; ".join(wrong[:NAMED]) + more)
    cells = [cell for config, name in resolved for cell in in_blocks(config, name, block)]
    found: dict[str, Cell] = {}
    for cell in cells:
        if cell.id in found:
            raise ConfigError(f"two cells have the same settings: {cell.label or 'the only two'}")
        found[cell.id] = cell
    return Plan(tuple(cells), cores, None if gpus is None else float(gpus))


def combinations(entries: Json) -> Iterator[Settings]:
    """The given settings of every cell: the base, a point of the grid, an entry of the list."""
    base, grid = entries.get("base", {}), entries.get("grid", {})
    listed = entries.get("cells", [{}])
    if not isinstance(listed, list | tuple):
        raise ConfigError(f"cells must be a list of tables of settings, got {listed!r:.60}")
    for what, part in (("base", base), ("grid", grid), *(("a cell", cell) for cell in listed)):
        if not isinstance(part, Mapping):
            raise ConfigError(f"{what} must be a table of settings, got {part!r:.60}")
    grid = dict(leaves(grid))
    for name, values in grid.items():
        if not isinstance(values, list | tuple) or not values:
            raise ConfigError(f"grid.{name} must be a list of values, got {values!r:.60}")
    if not (base or grid or "cells" in entries):
        return
    if (count := math.prod(map(len, grid.values())) * len(listed)) > MOST_CELLS:
        raise ConfigError(
            f"a sweep may have at most {MOST_CELLS:,} cells, got {count:,}: the grid has every combination"
        )
    for cell in listed:
        for point in itertools.product(*grid.values()):
            yield merged(base, dict(zip(grid, point, strict=True)), cell)


def merged(*parts: Json) -> Settings:
    """Nested settings in one, of which later ones win; a name may hold points, as in "ppo.hidden"."""
    made: Settings = {}
    for part in parts:
        for name, value in leaves(part):
            place = made
            *path, last = name.split(".")
            for step in path:
                place = place.setdefault(step, {})
                if not isinstance(place, dict):
                    raise ConfigError(f"{name} cannot be set: {step} is {place!r:.60}, not a table of settings")
            place[last] = value
    return made


def leaves(tree: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The entries of nested settings, with names such as agent.ppo.hidden."""
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def labels_of(given: list[Settings]) -> list[str]:
    """Of each cell the settings in which it differs from another."""
    flat = [dict(leaves(settings)) for settings in given]
    names = dict.fromkeys(name for one in flat for name in one)
    differ = [name for name in names if len({json.dumps(one.get(name), default=str) for one in flat}) > 1]
    return [", ".join(f"{name.split('.')[-1]} {one[name]}" for name in differ if name in one) for one in flat]


def in_blocks(config: RunConfig, name: str, block: int) -> Iterator[Cell]:
    """The cells of a run's seeds: as many as run in one program, one block after the other."""
    group = digest(config.to_json(), without=("seed", "seeds"))
    for first in range(0, config.seeds, block):
        count = min(block, config.seeds - first)
        part = dataclasses.replace(config, seed=config.seed + first, seeds=count)
        low, high = part.seed_list[0], part.seed_list[-1]
        seeds = f"seed {low}" if low == high else f"seeds {low} to {high}"
        settings = json.loads(json.dumps(part.to_json()))
        yield Cell(digest(settings), f"{name}, {seeds}" if name else seeds, group, settings)


def digest(settings: Mapping[str, object], without: tuple[str, ...] = ()) -> str:
    """The hash of some settings."""
    kept = {name: value for name, value in settings.items() if name not in without}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:16]
