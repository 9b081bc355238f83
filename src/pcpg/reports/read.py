"""What a run folder holds, read as far as it can be, with a note for everything that cannot."""

import dataclasses
import functools
import itertools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pcpg.algorithms import label
from pcpg.envs.adapters.names import OURS, is_adapted, is_on_host
from pcpg.envs.protocol import Environment
from pcpg.envs.recorded import recorded
from pcpg.envs.registry import make
from pcpg.runs import checkpoints
from pcpg.runs.arrays import scalar
from pcpg.runs.disk import exists
from pcpg.runs.errors import DamagedFile, RunError, understood
from pcpg.runs.folder import ENVIRONMENT, RunFolder
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
    described: dict[str, Any] | None = None  # what the folder says of its environment
    failed: dict[int, str] = dataclasses.field(default_factory=dict)  # by seed, why it stopped before its end

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

    def ridge_of(self, cover: "CoverData") -> float:
        """lambda for a cover: times the mean squared norm of its features, where it is relative to that."""
        is_relative = self.explore.get("ridge_scale") == "features" and cover.sigmas.size
        return self.ridge * float(np.trace(cover.sigmas[0])) if is_relative else self.ridge

    @functools.cached_property
    def env(self) -> Environment | None:
        """What is known of the environment, for its grid cells and its solved return; None where nothing is."""
        return known_env(self.config, self.described)

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
    folder.check_entries()
    notes: list[str] = []
    if folder.damage is not None:
        notes.append(f"Nothing says that the files belong together: {folder.damage}.")
        folder = dataclasses.replace(folder, damage=None)
    elif not folder.is_sealed:
        notes.append("The run is unsealed, of a version without manifests: a change in some files goes unnoticed.")
    described = _described(folder, notes)
    records: dict[int, list[Record]] = {}
    for record in _lines(folder, folder.metrics, notes, REPORT):
        records.setdefault(record["seed"], []).append(record)
    checkpoint = _checkpoint(folder, notes)
    summary = _summary(folder, notes)
    known = (checkpoint.state if summary is None and checkpoint is not None else summary or {}).get("failed", {})
    failed = {int(seed): str(cause) for seed, cause in known.items()}
    run = RunData(
        path=folder.path,
        config=folder.config,
        versions=folder.versions,
        device=None if checkpoint is None else checkpoint.state.get("device"),
        summary=summary,
        records=records,
        timings=_lines(folder, folder.timings, notes, TIMING),
        covers=_covers(folder, checkpoint, known_env(folder.config, described), notes),
        notes=(),
        described=described,
        failed=failed,
    )
    silent = [str(seed) for seed in run.seeds if seed not in records]
    if silent:
        notes.append(f"No reports from seed{'s' * (len(silent) > 1)} {', '.join(silent[:20])} yet.")
    notes += [f"Seed {seed} failed: {cause}." for seed, cause in failed.items()]
    return dataclasses.replace(run, notes=tuple(notes))


def _described(folder: RunFolder, notes: list[str]) -> dict[str, Any] | None:
    if not exists(folder.path / ENVIRONMENT):
        if folder.manifest is not None and ENVIRONMENT in folder.manifest.files:
            notes.append(f"{ENVIRONMENT} is missing, which says what the environment looks like.")
        return None
    try:
        content = folder.read_json(ENVIRONMENT)
        recorded(folder.config["env"], content)
        return content
    except (RunError, ValueError) as error:
        notes.append(f"What the folder says of its environment cannot be read: {error}.")
        return None


def _summary(folder: RunFolder, notes: list[str]) -> dict[str, Any] | None:
    if not folder.is_finished:
        notes.append(
            f"The run is not finished; these are the results so far. `pcpg resume {folder.path}` continues it."
        )
        return None
    try:
        summary = folder.read_summary()
        if not {"seeds", "final_return"} <= summary.keys():
            raise DamagedFile(folder.path / "summary.json", "not the summary of a run")
        return summary
    except RunError as error:
        notes.append(f"The summary cannot be read: {error}. The last reports are used instead.")
        return None


REPORT = {"seed": int, "round": int, "env_steps": int, "return": float}
TIMING = {"seconds": float, "compile_seconds": float}


def _lines(folder: RunFolder, path: Path, notes: list[str], entries: dict[str, type]) -> list[Record]:
    if not exists(path):
        notes.append(f"{path.name} is missing.")
        return []
    is_over = folder.manifest is not None and folder.manifest.finished
    records, damage = read_whole_metrics(path, folder.seal(path.name), finished=is_over)
    if damage is not None:
        notes.append(f"{path.name}: {damage.cause}; what is shown may not be what was written.")
    for place, record in enumerate(records):
        wrong = [name for name, kind in entries.items() if name not in record or not _is_number(record, name, kind)]
        if wrong:
            notes.append(f"{path.name}: line {place + 1} has no number {wrong[0]}; everything from there is left out.")
            return records[:place]
    return records


def _is_number(record: Record, name: str, kind: type) -> bool:
    """Whether an entry is a number; a return may be none, where no episode ended."""
    value = record[name]
    return (value is None and name == "return") or (isinstance(value, kind | int) and not isinstance(value, bool))


def _checkpoint(folder: RunFolder, notes: list[str]) -> checkpoints.Checkpoint | None:
    try:
        checkpoint = folder.newest_checkpoint(lambda text: notes.append(f"{text}."))
    except RunError as error:
        notes.append(f"No checkpoint can be read: {error}.")
        return None
    if checkpoint is None:
        notes.append("There is no checkpoint, so the cover and the device are unknown.")
        return None
    known = 0 if folder.manifest is None else folder.manifest.step
    if checkpoint.step >= known:
        notes += [f"A damaged checkpoint was skipped: {skipped.reason}." for skipped in checkpoint.skipped]
    return checkpoint


def _covers(
    folder: RunFolder, checkpoint: checkpoints.Checkpoint | None, env: Environment | None, notes: list[str]
) -> dict[int, CoverData]:
    """The covers of all seeds; one with a missing member is left out, since its weights are those of all members."""
    if checkpoint is None:
        return {}
    first, count = folder.config["seed"], folder.config["seeds"]
    sizes = {seed: scalar(checkpoint.arrays.get(f"{seed}/.cover.size")) for seed in range(first, first + count)}
    if not any(sizes.values()):
        return {}
    members: list[dict[str, np.ndarray]] = []
    for index, sha256 in enumerate(checkpoint.state.get("members", [])):
        try:
            members.append(folder.read_member(index, sha256))
        except DamagedFile as error:
            notes.append(f"A member of the cover cannot be read: {error}. Covers with this member are left out.")
            break
    if members and not any(name.endswith("/.sigma") for name in members[0]):
        return {}  # a run that keeps its data: its members have data in place of covariances
    covers = {}
    for seed, size in sizes.items():
        explored = seed if env is None else env.dynamics_seed(seed)
        own = members_of(members, explored)
        if 0 < size <= len(own):
            try:
                with understood(folder.cover):
                    covers[seed] = cover_data(own[:size], explored, checkpoint.arrays[f"{seed}/.cover.weights"][:size])
            except DamagedFile as error:
                notes.append(f"The cover of seed {seed} cannot be read: {error}.")
    return covers


def members_of(members: list[dict[str, np.ndarray]], explored: int) -> list[dict[str, np.ndarray]]:
    """The member files in which the seed that explored has a part: one that failed for a while has none in some."""
    return [arrays for arrays in members if f"{explored}/.returns" in arrays]


def known_env(config: dict[str, Any], described: dict[str, Any] | None) -> Environment | None:
    """The environment of a run without making an outside one: ours by its options, others as the folder has them."""
    try:
        if is_adapted(config["env"]):
            return None if described is None else recorded(config["env"], described)
        return make(config["env"], **config["env_options"])
    except (ValueError, TypeError, ImportError):
        return None


def cover_data(members: list[dict[str, np.ndarray]], explored: int, weights: np.ndarray) -> CoverData:
    """The cover of the seed that explored, from the arrays of the member files."""
    none = np.zeros((0, 0))  # members that keep data instead of covariances
    sigmas = np.stack([arrays.get(f"{explored}/.sigma", none) for arrays in members]).astype(np.float64)
    each = tuple(np.asarray(arrays[f"{explored}/.returns"], np.float64) for arrays in members)
    returns = np.array([own.mean() for own in each])
    cells = np.stack([arrays[f"{explored}/.cells"] for arrays in members])
    return CoverData((sigmas + sigmas.transpose(0, 2, 1)) / 2, np.asarray(weights, float), returns, cells, each)
