"""The folder of a run: its config, its cover, its summary, and where everything else is."""

import contextlib
import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pcpg.runs.arrays import encode_arrays, read_arrays, write_arrays
from pcpg.runs.disk import LOCK, TEMPORARY, hold_lock, make_folder, remove_leftovers, sync_folder, writing
from pcpg.runs.documents import plain, read_json, write_json
from pcpg.runs.errors import BadValue, DamagedFile, FolderTaken, NotARun

CONFIG = "config.json"
SUMMARY = "summary.json"


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """A run on disk: where it is, its config, and the versions that started it."""

    path: Path
    config: dict[str, Any]
    versions: dict[str, str]

    @classmethod
    def create(cls, path: Path | str, config: Mapping[str, Any]) -> "RunFolder":
        """A new run at `path`, refused if anything else is there already."""
        path, content = Path(path), plain(config, "config")
        _refuse_taken(path, content)
        make_folder(path)
        with hold_lock(path):
            # Again, now that no other process can come between the look and the write.
            _refuse_taken(path, content)
            remove_leftovers(path)
            write_json(path / CONFIG, content)
        return cls.open(path)

    @classmethod
    def open(cls, path: Path | str) -> "RunFolder":
        """The run at `path`, for reading; changes nothing."""
        path = Path(path)
        if not path.is_dir():
            raise NotARun(f"{path}: there is no such folder")
        if not (path / CONFIG).exists():
            raise NotARun(f"{path} is not a run folder: it holds no {CONFIG}")
        content, versions = read_json(path / CONFIG)
        return cls(path, content, versions)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep every other process from training into this folder; first remove what a killed one left."""
        with hold_lock(self.path):
            for folder in (self.path, self.cover, self.checkpoints):
                remove_leftovers(folder)
            yield

    @property
    def cover(self) -> Path:
        """The folder with a file per member of the cover."""
        return self.path / "cover"

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.path / "checkpoints"

    @property
    def metrics(self) -> Path:
        """The reproducible reports."""
        return self.path / "metrics.jsonl"

    @property
    def timings(self) -> Path:
        """The timings, which differ from run to run."""
        return self.path / "timings.jsonl"

    @property
    def policy(self) -> Path:
        """The arrays of the final policy."""
        return self.path / "policy.safetensors"

    @property
    def features(self) -> Path:
        """The arrays of the feature map, where it has any."""
        return self.path / "features.safetensors"

    @property
    def is_finished(self) -> bool:
        """Whether the run came to its end: the summary is the last file written."""
        return (self.path / SUMMARY).exists()

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write the summary, and with it mark the run as finished."""
        self.write_json(SUMMARY, summary)

    def read_summary(self) -> dict[str, Any]:
        """The summary of a finished run."""
        if not self.is_finished:
            raise NotARun(f"{self.path} is not finished (it has no {SUMMARY}): use `pcpg resume {self.path}`")
        return self.read_json(SUMMARY)

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Write `content` to the file `name` of the folder, whole or not at all."""
        write_json(self.path / name, content)

    def read_json(self, name: str) -> dict[str, Any]:
        """The content that `write_json` wrote to the file `name`."""
        return read_json(self.path / name).content

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
            if path.exists() and path.read_bytes() != encode_arrays(arrays):
                raise FolderTaken(
                    f"{path} holds another member {index}, and members never change: "
                    "drop_members(count) removes those that no checkpoint knows"
                )
        # Even when the file is there already: its bytes or its name may not have been synced before the kill.
        return write_arrays(path, arrays)

    def read_member(self, index: int, sha256: str | None = None) -> dict[str, np.ndarray]:
        """The arrays of member `index`; with `sha256`, only if not one byte has changed."""
        return read_arrays(self.member(index), sha256)

    def drop_members(self, count: int) -> None:
        """Remove members `count` and later: after a kill, those that came after the checkpoint."""
        if not self.cover.is_dir():
            return
        with writing(self.cover):
            for path in self.cover.iterdir():
                if re.fullmatch(r"\d{4,}\.safetensors", path.name) and int(path.stem) >= count:
                    path.unlink()
        sync_folder(self.cover)


def _refuse_taken(path: Path, config: dict[str, Any]) -> None:
    """Raise unless `path` is free, or holds no more than a killed creation of a run left there."""
    if path.exists() and not path.is_dir():
        raise FolderTaken(f"{path} is a file: choose another --out")
    if (path / CONFIG).exists():
        raise FolderTaken(_why_taken(path, config))
    names = [entry.name for entry in path.iterdir()] if path.is_dir() else []
    foreign = sorted(name for name in names if name != LOCK and not name.startswith(TEMPORARY))
    if foreign:
        raise FolderTaken(
            f"{path} is neither empty nor a run (it holds {', '.join(foreign[:3])}): choose another --out"
        )


def _why_taken(path: Path, config: dict[str, Any]) -> str:
    try:
        run = RunFolder.open(path)
    except DamagedFile as error:
        return f"{path} holds a run whose config cannot be read ({error}): choose another --out"
    different = list(_differences(run.config, config))
    if different:
        more = f" and {len(different) - 8} more" if len(different) > 8 else ""
        return (
            f"{path} holds a run with another config ({'; '.join(different[:8])}{more}): "
            f"use `pcpg resume {path}` to resume that run, or choose another --out"
        )
    if run.is_finished:
        return f"{path} holds the finished run of this config: choose another --out to run it again"
    return f"{path} holds an unfinished run of this config: use `pcpg resume {path}`, or choose another --out"


def _differences(there: dict[str, Any], here: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for name in sorted(there.keys() | here.keys()):
        if name not in here:
            yield f"{prefix}{name} is {there[name]!r} there, not set here"
        elif name not in there:
            yield f"{prefix}{name} is not set there, {here[name]!r} here"
        elif isinstance(there[name], dict) and isinstance(here[name], dict):
            yield from _differences(there[name], here[name], f"{prefix}{name}.")
        # 1, 1.0 and True are equal in Python and different in a config.
        elif repr(there[name]) != repr(here[name]):
            yield f"{prefix}{name} is {there[name]!r} there, {here[name]!r} here"
