"""The folder of a run: its config, cover and summary, and the paths of everything else."""

import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from pcpg.config import Json
from pcpg.runs import checkpoints as saved
from pcpg.runs import disk
from pcpg.runs.arrays import encode_arrays, read_arrays, write_arrays
from pcpg.runs.disk import TEMPORARY, exists, make_folder, read_file, remove_leftovers, writing
from pcpg.runs.documents import check_state, check_summary, plain, read_document, write_json
from pcpg.runs.errors import BadValue, DamagedFile, FolderTaken, NotARun, RunError
from pcpg.runs.lock import LOCK, hold_lock
from pcpg.runs.manifest import (
    MANIFEST,
    Manifest,
    Seal,
    check_bytes,
    check_lines,
    check_seal,
    read_manifest,
    write_manifest,
)

CONFIG = "config.json"
ENVIRONMENT = "environment.json"
SUMMARY = "summary.json"
MADE_HERE = "made-here"
"""Records that this user created the run, with the hash of its module."""
PARTS = (
    *(CONFIG, ENVIRONMENT, SUMMARY, MANIFEST, "metrics.jsonl", "timings.jsonl", "policy.safetensors"),
    *(MADE_HERE, "features.safetensors", "wandb.json", "report.html", "cover", "checkpoints", "tensorboard", LOCK),
)
"""All names in a run folder that the library reads or writes."""

ENTRIES: dict[str, type] = {"env": str, "algo": str, "agent": dict, "env_options": dict, "seed": int, "seeds": int}
"""Entries that every config must have."""

Notice = Callable[[str], None]
"""Receives notices for the user."""

MOST_SEEDS = 100_000
"""Most seeds of one run; more are a mistake and would exhaust memory before any work."""
MAX_SEED = 2**32 - 1


class Place:
    """A file or folder of a run, by its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, run: "RunFolder", _: object = None) -> Path:
        return run.path / self.name


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """A run on disk: its path, config and manifest, and the versions that started it."""

    path: Path  # absolute: an environment may change the current folder
    config: Json
    versions: dict[str, str]
    manifest: Manifest | None = None  # None: of an older version, or `damage` says what is wrong with it
    damage: DamagedFile | None = None
    name: str = ""  # the path as the user wrote it

    cover = Place("cover")  # a folder with a file per member of the cover
    checkpoints = Place("checkpoints")
    metrics = Place("metrics.jsonl")  # the reproducible reports
    timings = Place("timings.jsonl")  # these differ from run to run
    policy = Place("policy.safetensors")  # the final one
    features = Place("features.safetensors")  # of a feature map that has arrays

    @classmethod
    def create(cls, path: Path | str, config: Mapping[str, object]) -> "RunFolder":
        """Create a run at `path`; refused if anything else is already there."""
        path, content = Path(path), plain(config, "config")
        _refuse_taken(path, content)
        make_folder(path)
        with hold_lock(path):
            # Again, now that no other process can come between the look and the write.
            _refuse_taken(path, content)
            remove_leftovers(path)
            write_json(path / CONFIG, content, sealed=True)
        return cls.open(path)

    @classmethod
    def open(cls, path: Path | str) -> "RunFolder":
        """Open the run at `path` for reading; changes nothing."""
        path = Path(path)
        if not disk.is_folder(path):
            raise NotARun(f"{path}: {'a file, not a run folder' if exists(path) else 'no such folder'}")
        if not exists(path / CONFIG):
            raise NotARun(f"{path} is not a run folder: it holds no {CONFIG}")
        disk.refuse_strange(path, PARTS)
        data = read_file(path / CONFIG)
        content, versions, is_sealed = read_document(path / CONFIG, data)
        _check_config(path, content)
        run = cls(path.absolute(), content, versions, name=str(path))
        if not exists(path / MANIFEST):
            begun = [name for name in (SUMMARY, "metrics.jsonl", "checkpoints") if exists(path / name)]
            lost = DamagedFile(path / MANIFEST, f"missing, but {begun[0]} exists") if is_sealed and begun else None
            return dataclasses.replace(run, damage=lost)
        try:
            manifest = read_manifest(path)
        except DamagedFile as error:
            return dataclasses.replace(run, damage=error)
        if CONFIG in manifest.files:
            check_bytes(path / CONFIG, data, manifest.files[CONFIG])
        return dataclasses.replace(run, manifest=manifest)

    def check_entries(self) -> None:
        """Raise unless the config has the entries that every run has."""
        missing = [name for name in ENTRIES if name not in self.config]
        if missing:
            raise DamagedFile(self.path / CONFIG, f"not the config of a run: {missing[0]!r} is missing")

    @property
    def is_sealed(self) -> bool:
        """Whether the run has a manifest, or no checkpoint that would need one."""
        return self.manifest is not None or not exists(self.checkpoints)

    def seal(self, name: str) -> Seal | None:
        """The seal of a file, or None in an unsealed run; raises `DamagedFile` if the seal is missing."""
        if self.damage is not None:
            raise self.damage
        if self.manifest is None or name == "wandb.json":  # which changes while nothing else does
            return None
        found = self.manifest.files.get(name) or self.manifest.lines.get(name)
        if found is None and self.manifest.finished and exists(self.path / name):
            raise DamagedFile(self.path / name, f"not listed in {MANIFEST} of the finished run")
        return found

    def write_manifest(self, manifest: Manifest, *, settled: bool = True) -> None:
        """Write the manifest of the files as they are now; `settled` as in `write_file`."""
        write_manifest(self.path, manifest, settled=settled)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Lock this folder against other processes, and remove the leftovers of killed ones."""
        with hold_lock(self.path):
            for folder in (self.path, self.cover, self.checkpoints):
                remove_leftovers(folder)
            yield

    @property
    def is_finished(self) -> bool:
        """Whether the run is finished: the manifest, if there is one, is written last."""
        return exists(self.path / SUMMARY) if self.manifest is None else self.manifest.finished

    def write_summary(self, summary: Mapping[str, object]) -> None:
        """Write the summary, which marks the run as finished."""
        self.write_json(SUMMARY, summary)

    def read_summary(self) -> Json:
        """The summary of a finished run."""
        if not self.is_finished:
            raise NotARun(f"{self.path} is not finished (no {SUMMARY}): run `pcpg resume {self.path}`")
        return check_summary(self.path / SUMMARY, self.read_json(SUMMARY), self.config.get("seeds", 1))

    def read_arrays(self, path: Path) -> dict[str, np.ndarray]:
        """The arrays in one of its files, checked against the manifest if there is one."""
        return read_arrays(path, self.seal(path.relative_to(self.path).as_posix()))

    def write_json(self, name: str, content: Mapping[str, object]) -> None:
        """Write `content` to the file `name` of the folder, atomically."""
        write_json(self.path / name, content)

    def read_json(self, name: str) -> Json:
        """The content of the file `name`, checked against the manifest if it is listed there."""
        path, seal = self.path / name, self.seal(name)
        return read_document(path, read_file(path) if seal is None else check_seal(path, seal)).content

    def newest_checkpoint(
        self, notice: Notice = lambda text: None, *, with_metrics: bool = False
    ) -> saved.Checkpoint | None:
        """The newest intact checkpoint that fits the rest of the run; None if there never was one.

        If it is older than the manifest's, `notice` receives the reason. With metrics, the reports up to it must be
        whole as well.
        """
        for attempt in range(5):
            is_last, found, damage = attempt == 4, None, None
            try:
                found = saved.load_latest(
                    self.checkpoints, lambda one: self._check_checkpoint(one, with_metrics=with_metrics)
                )
            except DamagedFile as error:
                damage = error
            known = 0 if self.manifest is None else self.manifest.step
            if damage is None and (0 if found is None else found.step) >= known:
                return found
            if not is_last and self._has_moved_on():
                continue
            if damage is not None:
                raise damage
            where = self.checkpoints / f"{known:06d}"
            if found is None:
                raise DamagedFile(where, "missing, and no other checkpoint exists")
            reasons = "; ".join(skipped.reason for skipped in found.skipped)
            reasons = reasons or f"{where}: missing, but listed in the manifest"
            notice(f"{reasons}; falling back to the checkpoint of step {found.step}")
            return found
        return None

    def _has_moved_on(self) -> bool:
        """Whether another process has saved since this folder was opened: then it is read again."""
        try:
            newer = RunFolder.open(self.path).manifest
        except RunError:
            return False
        if newer is None or self.manifest is None or newer.step == self.manifest.step:
            return False
        object.__setattr__(self, "manifest", newer)
        return True

    def _check_checkpoint(self, found: saved.Checkpoint, *, with_metrics: bool) -> None:
        """Raise `DamagedFile` if a checkpoint that is whole in itself is not that of this run."""
        path = self.checkpoints / f"{found.step:06d}" / saved.STATE
        seal = self.seal(path.relative_to(self.path).as_posix())
        if seal is not None:
            check_bytes(path, read_file(path), seal)
        # While the config changes the manifest does not know it (see `changing`), and a checkpoint has the one before.
        known = None if self.manifest is None else self.manifest.files.get(CONFIG)
        if known is not None and found.state.get("config", known.sha256) != known.sha256:
            raise DamagedFile(path, "belongs to a run with another config")
        check_state(path, found.state)
        lines = found.state.get("metrics")
        if with_metrics and lines is not None:
            try:
                check_lines(self.metrics, Seal(*lines))
            except DamagedFile as error:
                cause = f"{error.cause}; the checkpoint of step {found.step} needs its first {lines[0]:,} bytes"
                raise DamagedFile(error.path, cause) from error

    def member(self, index: int) -> Path:
        """The file of member `index` of the cover."""
        if index < 0:
            raise BadValue(f"the index of a member must be at least 0, got {index}")
        return self.cover / f"{index:04d}.safetensors"

    def write_member(self, index: int, arrays: Mapping[str, np.ndarray]) -> str:
        """Write a member of the cover; its sha256, for the state of the next checkpoint.

        Members never change: writing the same again, as a resumed run does, is allowed, and nothing else.
        """
        path = self.member(index)
        with writing(path):
            make_folder(self.cover)
            if exists(path) and read_file(path) != encode_arrays(arrays):
                raise FolderTaken(
                    f"{path} holds a different member {index}, and members never change: "
                    "drop_members(count) removes members that no checkpoint lists"
                )
        # Even when the file is there already: its bytes or its name may not have been synced before the kill.
        return write_arrays(path, arrays)

    def read_member(self, index: int, sha256: str | None = None) -> dict[str, np.ndarray]:
        """The arrays of member `index`; with `sha256`, only if not one byte has changed."""
        path = self.member(index)
        known = None if self.manifest is None else self.manifest.files.get(path.relative_to(self.path).as_posix())
        return read_arrays(path, known if known is not None and sha256 in (None, known.sha256) else sha256)

    def drop_members(self, count: int) -> None:
        """Remove members `count` and later: after a kill, those that came after the checkpoint."""
        if not self.cover.is_dir():
            return
        with writing(self.cover):
            for path in self.cover.iterdir():
                if re.fullmatch(r"\d{4,}\.safetensors", path.name) and int(path.stem) >= count:
                    path.unlink()
        disk.sync_folder(self.cover)


def _check_config(path: Path, config: Json) -> None:
    """Raise unless a config has all required entries, with the right types."""
    wrong = [name for name, kind in ENTRIES.items() if name in config and type(config[name]) is not kind]
    if wrong:
        name = wrong[0]
        raise DamagedFile(path / CONFIG, f"{name} must be a {ENTRIES[name].__name__}, got {config[name]!r:.60}")
    for name, least, most in (("seeds", 1, MOST_SEEDS), ("seed", 0, MAX_SEED)):
        if not least <= (found := config.get(name, least)) <= most:
            bound = f"at least {least}" if found < least else f"at most {most:,}"
            raise DamagedFile(path / CONFIG, f"{name} must be {bound}, got {found:,}")


def _refuse_taken(path: Path, config: Mapping[str, object]) -> None:
    """Raise unless `path` is free, or holds only the leftovers of a run killed while it was created."""
    if exists(path) and not disk.is_folder(path):
        raise FolderTaken(f"{path} is a file: choose another --out")
    if exists(path / CONFIG):
        raise FolderTaken(_why_taken(path, config))
    names = [entry.name for entry in path.iterdir()] if disk.is_folder(path) else []
    foreign = sorted(name for name in names if name != LOCK and not name.startswith(TEMPORARY))
    if foreign:
        raise FolderTaken(
            f"{path} is neither empty nor a run (it holds {', '.join(foreign[:3])}): choose another --out"
        )


def _why_taken(path: Path, config: Mapping[str, object]) -> str:
    try:
        run = RunFolder.open(path)
    except RunError as error:
        return f"{path} holds a run whose config cannot be read ({error}): choose another --out"
    different = differences(run.config, config)
    if different:
        return (
            f"{path} holds a run with a different config ({different}): "
            f"use `pcpg resume {path}` to resume that run, or choose another --out"
        )
    if run.is_finished:
        return f"{path} holds a finished run of this config: choose another --out to run it again"
    return f"{path} holds an unfinished run of this config: run `pcpg resume {path}`, or choose another --out"


def differences(there: Json, here: Mapping[str, object]) -> str:
    """The first eight settings in which two configs differ, in words; empty if there is none."""
    old, new = dict(_flat(there)), dict(_flat(here))
    changed = (name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    names = sorted(name for name in changed if not name.startswith("looked."))  # what led to the rest
    found = [f"{name} is {old.get(name, 'not set')} there, {new.get(name, 'not set')} here" for name in names]
    return "; ".join(found[:8]) + (f" and {len(found) - 8} more" if len(found) > 8 else "")


def _flat(config: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    # As text: 1, 1.0 and True are equal in Python and different in a config.
    for name, value in config.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", repr(value)
