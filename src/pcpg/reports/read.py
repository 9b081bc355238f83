"""What a run folder holds, read as far as it can be, with a note for everything that cannot."""

import dataclasses
import functools
import itertools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pcpg.algorithms import label
from pcpg.envs.adapters.names import OURS, is_on_host
from pcpg.envs.protocol import Environment
from pcpg.envs.registry import make
from pcpg.runs import checkpoints
from pcpg.runs.errors import DamagedFile, RunError
from pcpg.runs.folder import RunFolder
from pcpg.runs.metrics import read_whole_metrics

Record = dict[str, Any]


class CoverData(NamedTuple):
    """The cover of one seed as its files have it."""

    sigmas: np.ndarray  # [members, d, d] float64
    weights: np.ndarray  # [members]
    returns: np.ndarray  # [members] mean over the episodes of the covariance
    cells: np.ndarray  # [members, cells] visits by grid cell; empty where the environment has no grid cells
    each: tuple[np.ndarray, ...] = ()  # of each member, the return of every episode of its covariance


@dataclasses.dataclass(frozen=True)
class RunData:
    """All that the report uses of a run."""

    path: Path
    config: dict[str, Any]
    versions: dict[str, str]
    device: str | None
    summary: dict[str, Any] | None  # of a finished run
    records: dict[int, list[Record]]  # by seed
    timings: list[Record]
    covers: dict[int, CoverData]  # by seed
    notes: tuple[str, ...]  # what is missing or damaged

    @property
    def algo(self) -> str:
        """The algorithm, as people call it."""
        algo = str(self.config["algo"])
        return label(algo) + (" (given cover)" if self.source else "")

    @property
    def source(self) -> str:
        """The run whose cover was taken over; empty where the run made its own."""
        return str(self.config.get("source", {}).get("run", ""))

    @property
    def seeds(self) -> list[int]:
        return list(range(self.config["seed"], self.config["seed"] + self.config["seeds"]))

    @property
    def env_key(self) -> str:
        """The environment with its options: runs with the same key can be compared."""
        said = self.config["env_options"]
        if is_on_host(self.config["env"]):  # how many play side by side changes nothing but the time
            said = {name: value for name, value in said.items() if name not in OURS or (name == "max_steps" and value)}
        options = ", ".join(f"{name} {value}" for name, value in said.items() if value is not None)
        return f"{self.config['env']} ({options})" if options else self.config["env"]

    @property
    def has_cover(self) -> bool:
        """Whether the algorithm keeps a cover, be it there already or not."""
        return self.config["algo"].startswith("pcpg")

    @property
    def explore(self) -> dict[str, Any]:
        """The settings of exploration; empty where the algorithm has none."""
        return self.config["agent"].get("explore") or {}

    @property
    def ridge(self) -> float:
        """lambda, added to the summed covariance."""
        return float(self.explore.get("ridge", 0.0))

    @functools.cached_property
    def env(self) -> Environment | None:
        """The environment, for its grid cells and its solved return; None where it cannot be made here."""
        return _env(self.config)

    @property
    def solved_return(self) -> float | None:
        return None if self.env is None else self.env.solved_return

    def history(self, name: str) -> list[np.ndarray]:
        """For each seed that has it: rows of environment steps and the value of a metric, [points, 2]."""
        rows = [
            [(record["env_steps"], record[name]) for record in self.records[seed] if record.get(name) is not None]
            for seed in self.seeds
            if seed in self.records
        ]
        return [np.array(points, float) for points in rows if points]

    def last(self, seed: int, name: str) -> Any:
        """The newest value of a metric of a seed, None where there is none."""
        values = [record[name] for record in self.records.get(seed, []) if record.get(name) is not None]
        return values[-1] if values else None

    @property
    def final_returns(self) -> dict[int, float]:
        """The mean return of each seed's policy at the end, or so far; seeds without any are left out."""
        if self.summary is not None:
            last = dict(zip(self.summary["seeds"], self.summary["final_return"], strict=True))
        else:
            last = {seed: self.last(seed, "return") for seed in self.seeds}
        return {seed: value for seed, value in last.items() if value is not None}

    @property
    def env_steps(self) -> int:
        """Environment steps of all seeds together."""
        return sum(self.last(seed, "env_steps") or 0 for seed in self.seeds)

    @property
    def seconds(self) -> float:
        """Seconds of all rounds, without compilation."""
        return sum(record["seconds"] for record in self.timings)

    @property
    def compile_seconds(self) -> float:
        """Seconds of compilation of all processes that worked on the run; each counts from zero."""
        spent = [record["compile_seconds"] for record in self.timings]
        # It only falls where another process took over.
        return sum(now for now, after in itertools.pairwise([*spent, -1.0]) if after < now)


def read_run(path: Path | str) -> RunData:
    """A run, finished or not; a folder that is not a run, or whose config cannot be read, is an error."""
    folder = RunFolder.open(Path(path))
    notes: list[str] = []
    records: dict[int, list[Record]] = {}
    for record in _lines(folder.metrics, notes):
        records.setdefault(record["seed"], []).append(record)
    checkpoint = _checkpoint(folder, notes)
    run = RunData(
        path=folder.path,
        config=folder.config,
        versions=folder.versions,
        device=None if checkpoint is None else checkpoint.state.get("device"),
        summary=_summary(folder, notes),
        records=records,
        timings=_lines(folder.timings, notes),
        covers=_covers(folder, checkpoint, notes),
        notes=(),
    )
    silent = [str(seed) for seed in run.seeds if seed not in records]
    if silent:
        notes.append(f"No reports from seed{'s' * (len(silent) > 1)} {', '.join(silent)} yet.")
    return dataclasses.replace(run, notes=tuple(notes))


def _summary(folder: RunFolder, notes: list[str]) -> dict[str, Any] | None:
    if not folder.is_finished:
        notes.append(
            f"The run is not finished; these are the results so far. `pcpg resume {folder.path}` continues it."
        )
        return None
    try:
        return folder.read_summary()
    except RunError as error:
        notes.append(f"The summary cannot be read: {error}. The last reports are used instead.")
        return None


def _lines(path: Path, notes: list[str]) -> list[Record]:
    if not path.exists():
        notes.append(f"{path.name} is missing.")
        return []
    records, damage = read_whole_metrics(path)
    if damage is not None:
        notes.append(f"{path.name}: {damage.cause}; everything after it is left out.")
    return records


def _checkpoint(folder: RunFolder, notes: list[str]) -> checkpoints.Checkpoint | None:
    try:
        checkpoint = checkpoints.load_latest(folder.checkpoints)
    except RunError as error:
        notes.append(f"No checkpoint can be read: {error}.")
        return None
    if checkpoint is None:
        notes.append("There is no checkpoint, so the cover and the device are unknown.")
        return None
    notes += [f"A damaged checkpoint was skipped: {skipped.reason}." for skipped in checkpoint.skipped]
    return checkpoint


def _covers(folder: RunFolder, checkpoint: checkpoints.Checkpoint | None, notes: list[str]) -> dict[int, CoverData]:
    """The covers of all seeds; one with a missing member is left out, since its weights are those of all members."""
    if checkpoint is None:
        return {}
    first, count = folder.config["seed"], folder.config["seeds"]
    sizes = {seed: int(checkpoint.arrays.get(f"{seed}/.cover.size", 0)) for seed in range(first, first + count)}
    members: list[dict[str, np.ndarray]] = []
    for index in range(max(sizes.values())):
        try:
            members.append(folder.read_member(index, checkpoint.state["members"][index]))
        except DamagedFile as error:
            notes.append(f"A member of the cover cannot be read: {error}. Covers with this member are left out.")
            break
    if members and not any(name.endswith("/.sigma") for name in members[0]):
        return {}  # a run that keeps its data: its members have data in place of covariances
    env = _env(folder.config)
    explored = {seed: seed if env is None else env.dynamics_seed(seed) for seed in sizes}
    return {
        seed: cover_data(members[:size], explored[seed], checkpoint.arrays[f"{seed}/.cover.weights"][:size])
        for seed, size in sizes.items()
        if 0 < size <= len(members)
    }


def _env(config: dict[str, Any]) -> Environment | None:
    try:
        env = make(config["env"], **config["env_options"])
        _ = env.observation_space  # other people's environments are only really made when asked
    except (ValueError, ImportError):
        return None
    return env


def cover_data(members: list[dict[str, np.ndarray]], explored: int, weights: np.ndarray) -> CoverData:
    """The cover of the seed that explored, from the arrays of the member files."""
    none = np.zeros((0, 0))  # members that keep data instead of covariances
    sigmas = np.stack([arrays.get(f"{explored}/.sigma", none) for arrays in members]).astype(np.float64)
    each = tuple(np.asarray(arrays[f"{explored}/.returns"], np.float64) for arrays in members)
    returns = np.array([own.mean() for own in each])
    cells = np.stack([arrays[f"{explored}/.cells"] for arrays in members])
    return CoverData((sigmas + sigmas.transpose(0, 2, 1)) / 2, np.asarray(weights, float), returns, cells, each)
