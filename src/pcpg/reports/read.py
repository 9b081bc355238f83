"""The contents of a run folder, with a note for everything that cannot be read."""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pcpg.algorithms import Arrays, Shown, label, settings_of
from pcpg.config import Json
from pcpg.envs.adapters.names import OURS, is_adapted, is_on_host, outside_module
from pcpg.envs.protocol import Environment
from pcpg.envs.recorded import recorded
from pcpg.envs.registry import complete_options, make
from pcpg.runs import checkpoints
from pcpg.runs.disk import exists
from pcpg.runs.documents import is_list_of, is_number
from pcpg.runs.errors import DamagedFile, RunError, understood
from pcpg.runs.folder import ENVIRONMENT, MADE_HERE, RunFolder
from pcpg.runs.metrics import numbers_of, read_whole_metrics, spent
from pcpg.state import of_seed

Record = Json


@dataclasses.dataclass(frozen=True)
class RunData:
    """The data of a run for the report."""

    path: Path
    config: Json
    versions: dict[str, str]
    device: str | None
    summary: Json | None  # of a finished run
    records: dict[int, list[Record]]  # by seed
    timings: list[Record]
    covers: dict[int, Shown]  # by seed
    notes: tuple[str, ...]  # what is missing or damaged
    described: dict[str, object] | None = None  # what the folder says of its environment
    failed: dict[int, str] = dataclasses.field(default_factory=dict)  # by seed, why it stopped before its end

    @property
    def algo(self) -> str:
        """The display name of the algorithm."""
        algo = str(self.config["algo"])
        return label(algo) + (" (given cover)" if self.source else "")

    @property
    def source(self) -> str:
        """The run whose cover is exploited; empty if the run explored itself."""
        return str(self.config.get("source", {}).get("run", ""))

    @property
    def seeds(self) -> list[int]:
        return list(range(self.config["seed"], self.config["seed"] + self.config["seeds"]))

    @property
    def env_options(self) -> dict[str, object]:
        """The options of the environment that affect learning, without defaults."""
        said, is_outside = self.config["env_options"], is_on_host(self.config["env"])
        # How many play in parallel changes nothing but the time.
        wanted = [name for name in said if not is_outside or name not in OURS or (name == "max_steps" and said[name])]
        usual = {} if is_adapted(self.config["env"]) else _defaults(self.config["env"])
        return {name: said[name] for name in wanted if said[name] is not None and said[name] != usual.get(name)}

    @property
    def env_key(self) -> str:
        """The environment with its options: runs with the same key can be compared."""
        options = ", ".join(f"{name} {value}" for name, value in self.env_options.items())
        name = str(self.config["env"]).removeprefix("python:")  # a class or function of the user's
        return f"{name} ({options})" if options else name

    @property
    def has_explored(self) -> bool:
        """Whether any round explored."""
        return any(record.get("phase") == "explore" for records in self.records.values() for record in records)

    @property
    def explore(self) -> Json:
        """The settings of exploration; empty if the algorithm has none."""
        found = self.config["agent"].get("explore")
        return found if isinstance(found, dict) else {}

    def ridge_of(self, cover: Shown) -> float:
        """lambda, added to the covariance of a cover; may be relative to the mean squared norm of the features."""
        ridge = float(self.explore.get("ridge", 0.0))
        if cover.sigmas is not None and self.explore.get("ridge_scale") == "features":
            ridge *= float(np.trace(cover.sigmas[0]))
        return ridge

    @functools.cached_property
    def env(self) -> Environment | None:
        """The environment, for its grid cells and solved return; None if unknown."""
        return known_env(self.config, self.described)

    @property
    def solved_return(self) -> float | None:
        return None if self.env is None else self.env.solved_return

    @property
    def is_reward_free(self) -> bool:
        """Whether the environment is known to pay no reward, and none was given to the run."""
        is_given = bool(self.config.get("source", {}).get("reward"))
        return self.env is not None and self.env.is_reward_free and not is_given

    @property
    def needs_trust(self) -> bool:
        """Whether playing would import a module named in the folder, which this user did not create."""
        module = outside_module(str(self.config["env"]), self.config.get("env_options", {}))
        return module is not None and not exists(self.path / MADE_HERE)

    def history(self, name: str) -> list[np.ndarray]:
        """By seed: rows of environment steps and the value of a metric, [points, 2]."""
        rows = [
            [(record["env_steps"], record[name]) for record in self.records[seed] if record.get(name) is not None]
            for seed in self.seeds
            if seed in self.records
        ]
        return [np.array(points, float) for points in rows if points]

    def last(self, seed: int, name: str) -> Any:
        """The newest value of a metric of a seed, or None."""
        values = [record[name] for record in self.records.get(seed, []) if record.get(name) is not None]
        return values[-1] if values else None

    @functools.cached_property
    def final_returns(self) -> dict[int, float]:
        """The final or newest mean return of each seed; seeds without one are left out."""
        if self.summary is not None:
            last = dict(zip(self.summary["seeds"], self.summary["final_return"], strict=True))
        else:
            last = {seed: self.last(seed, "return") for seed in self.seeds}
        return {seed: value for seed, value in last.items() if value is not None}

    @property
    def solved(self) -> int:
        """The number of seeds with a final return above the environment's solved return."""
        threshold = self.solved_return
        return 0 if threshold is None else sum(value > threshold for value in self.final_returns.values())

    @property
    def ends(self) -> dict[int, str]:
        """Why the exploration of each seed ended, as a key of `ENDS`; empty if unknown."""
        summary = self.summary or {}
        return dict(zip(summary.get("seeds", []), summary.get("ended", []), strict=False))

    @property
    def steps_per_seed(self) -> int:
        """The most environment steps of any seed."""
        return max((self.last(seed, "env_steps") or 0 for seed in self.seeds), default=0)

    @property
    def env_steps(self) -> int:
        """Environment steps of all seeds together."""
        return sum(self.last(seed, "env_steps") or 0 for seed in self.seeds)

    @property
    def seconds(self) -> float:
        """Seconds of all rounds, excluding compilation."""
        return spent(self.timings)[0]

    @property
    def compile_seconds(self) -> float:
        """Seconds of compilation in all processes of the run."""
        return spent(self.timings)[1]


def _defaults(env_id: str) -> dict[str, object]:
    """The default options of a built-in environment."""
    try:
        return complete_options(env_id, {})
    except ValueError:
        return {}  # it is not known here


def read_run(path: Path | str) -> RunData:
    """Read a run, finished or not; raises for a folder that is not a run or has no readable config."""
    folder = RunFolder.open(Path(path))
    folder.check_entries()
    notes: list[str] = []
    if folder.damage is not None:
        notes.append(f"The files cannot be checked against each other: {folder.damage}.")
        folder = dataclasses.replace(folder, damage=None)
    elif not folder.is_sealed:
        notes.append(
            "The run is unsealed (written by a version without manifests), so changes to some files go undetected."
        )
    described = _described(folder, notes)
    records: dict[int, list[Record]] = {}
    for record in _lines(folder, folder.metrics, notes, REPORT):
        records.setdefault(record["seed"], []).append(record)
    checkpoint, summary = _checkpoint(folder, notes), _summary(folder, notes)
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
    if silent := [str(seed) for seed in run.seeds if seed not in records]:
        notes.append(f"No reports from seed{'s' * (len(silent) > 1)} {', '.join(silent[:20])} yet.")
    notes += [f"Seed {seed} failed: {cause}." for seed, cause in failed.items()]
    return dataclasses.replace(run, notes=tuple(notes))


def _described(folder: RunFolder, notes: list[str]) -> dict[str, object] | None:
    if not exists(folder.path / ENVIRONMENT):
        if folder.manifest is not None and ENVIRONMENT in folder.manifest.files:
            notes.append(f"{ENVIRONMENT}, the description of the environment, is missing.")
        return None
    try:
        content = folder.read_json(ENVIRONMENT)
        recorded(folder.config["env"], content)
        return content
    except (RunError, ValueError) as error:
        notes.append(f"The description of the environment cannot be read: {error}.")
        return None


def _summary(folder: RunFolder, notes: list[str]) -> Json | None:
    if not folder.is_finished:
        notes.append(
            f"The run is not finished; these are its results so far. Continue it with `pcpg resume {folder.path}`."
        )
        return None
    try:
        summary = folder.read_summary()
        if not {"seeds", "final_return"} <= summary.keys():
            raise DamagedFile(folder.path / "summary.json", "not the summary of a run")
        return summary
    except RunError as error:
        notes.append(f"The summary cannot be read: {error}. Using the last reports instead.")
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
        notes.append(f"{path.name}: {damage.cause}; the data shown may be wrong.")
    records = [numbers_of(record) for record in records]
    for place, record in enumerate(records):
        wrong = [name for name, kind in entries.items() if name not in record or not is_number(record, name, kind)]
        wrong += [] if _are_cells(record.get("cells"), records[0].get("cells")) else ["of visits for each cell"]
        if wrong:
            notes.append(
                f"{path.name}: line {place + 1} has no number {wrong[0]}; ignoring that line and all later ones."
            )
            return records[:place]
    return records


def _are_cells(visits: Any, first: Any) -> bool:
    """Whether visits are one number per cell, as many as in the first report, or absent."""
    if visits is None:
        return True
    return is_list_of(visits, int) and len(visits) == len(first or ()) and all(0 <= one < 1 << 53 for one in visits)


def _checkpoint(folder: RunFolder, notes: list[str]) -> checkpoints.Checkpoint | None:
    try:
        checkpoint = folder.newest_checkpoint(lambda text: notes.append(f"{text}."))
    except RunError as error:
        notes.append(f"No checkpoint can be read: {error}.")
        return None
    if checkpoint is None:
        notes.append("No checkpoint found: the cover and the device are unknown.")
        return None
    known = 0 if folder.manifest is None else folder.manifest.step
    if checkpoint.step >= known:
        notes += [f"Skipped a damaged checkpoint: {skipped.reason}." for skipped in checkpoint.skipped]
    return checkpoint


def _covers(
    folder: RunFolder, checkpoint: checkpoints.Checkpoint | None, env: Environment | None, notes: list[str]
) -> dict[int, Shown]:
    """The covers of all seeds; one with a missing member is omitted, since its weights refer to all members."""
    if checkpoint is None or settings_of(folder.config) is None:
        return {}
    parts: list[Arrays] = []
    for index, sha256 in enumerate(checkpoint.state.get("members", [])):
        try:
            parts.append(folder.read_member(index, sha256))
        except DamagedFile as error:
            notes.append(f"A member of the cover cannot be read: {error}. Covers with this member are omitted.")
            break
    covers = {}
    for seed in range(folder.config["seed"], folder.config["seed"] + folder.config["seeds"]):
        try:
            cover = cover_of(folder, checkpoint.arrays, parts, seed, env)
        except DamagedFile as error:
            notes.append(f"The cover of seed {seed} cannot be read: {error}.")
            continue
        if cover is not None:
            covers[seed] = cover
    return covers


def cover_of(
    folder: RunFolder, arrays: Arrays, parts: Sequence[Arrays], seed: int, env: Environment | None
) -> Shown | None:
    """The cover of a seed, from the arrays of a checkpoint and of the member files; None if it has none."""
    settings = settings_of(folder.config)
    if settings is None:
        return None
    with understood(folder.checkpoints):
        own = of_seed(seed, arrays)
        size = len(settings.weights(own))
    explored = seed if env is None else env.dynamics_seed(seed)
    written = [part for one in parts if (part := of_seed(explored, one))]  # a seed that had ended has no part in some
    if len(written) < size:
        raise DamagedFile(
            folder.cover, f"has {len(written)} members of seed {explored}, but the checkpoint lists {size}"
        )
    with understood(folder.cover):
        cover = settings.shown(own, written) if size else None
        lengths = {len(entries) for entries in cover or () if entries is not None}
        if len(lengths) > 1 or (cover is not None and not all(each.size for each in cover.returns)):
            raise ValueError("a member of the cover is not complete")
        return cover


def known_env(config: Json, described: Json | None) -> Environment | None:
    """The environment of a run: built-in ones by their options, external ones as described in the folder."""
    try:
        if is_adapted(config["env"]):
            return None if described is None else recorded(config["env"], described)
        return make(config["env"], **config["env_options"])
    except (ValueError, TypeError, ImportError):
        return None
