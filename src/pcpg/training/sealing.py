"""Sealing a run while it trains: the manifest after each checkpoint and at the end."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from pcpg.runs import checkpoints
from pcpg.runs.disk import exists, read_file
from pcpg.runs.folder import CONFIG, ENVIRONMENT, SUMMARY, RunFolder
from pcpg.runs.manifest import Manifest, Seal
from pcpg.runs.metrics import JsonLines


class Sealer:
    """Caches the seals of files that no longer change, so no round reads them again."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self._is_open = False  # whether the manifest on disk is known to say that the run is unfinished
        # Existing seals take precedence: an altered file must not get a new one.
        known = {} if folder.manifest is None else folder.manifest.files
        self._kept = {name: seal for name, seal in known.items() if name.startswith(f"{folder.checkpoints.name}/")}
        self._files: dict[str, Seal] = {}
        self.altered: list[Path] = []
        for path in (folder.path / CONFIG, folder.path / ENVIRONMENT, folder.features):
            if exists(path):
                found = Seal.of(read_file(path))
                self._files[path.name] = known.get(path.name, found)
                self.altered += [path] if self._files[path.name] != found else []

    @property
    def config(self) -> str:
        """The sha256 of the config: a checkpoint is valid only with that config."""
        return self._files[CONFIG].sha256

    def add(self, path: Path, sha256: str) -> None:
        """Add a file whose sha256 is known because it was just written or checked."""
        self._files[self._name(path)] = Seal(path.lstat().st_size, sha256)

    def seal(self, step: int, lines: dict[str, JsonLines], *, finished: bool) -> None:
        """Write the manifest, after everything else is on disk."""
        files = dict(self._files)
        for kept in checkpoints.steps(self.folder.checkpoints):
            path = self.folder.checkpoints / f"{kept:06d}" / checkpoints.STATE
            name = self._name(path)
            if name not in self._kept or kept == step:
                self._kept[name] = Seal.of(read_file(path))
            files[name] = self._kept[name]
        if finished:
            for path in (self.folder.policy, self.folder.path / SUMMARY):
                files[path.name] = Seal.of(read_file(path))
        grown = {name: log.seal for name, log in lines.items()}
        self.folder.write_manifest(Manifest(step, finished, files, grown), settled=finished or not self._is_open)
        self._is_open = True

    def _name(self, path: Path) -> str:
        return path.relative_to(self.folder.path).as_posix()


@contextlib.contextmanager
def changing(folder: RunFolder, step: int) -> Iterator[None]:
    """Inside, the config and checkpoints of a run may change, and the run counts as unfinished.

    Meanwhile the manifest lists none of them, so a killed process leaves a readable folder; afterwards it lists them as
    they are. A run without a manifest gets one when it trains.
    """
    manifest = folder.manifest
    if manifest is None:
        yield
        return
    end = (CONFIG, SUMMARY, folder.policy.name)
    files = {
        name: seal
        for name, seal in manifest.files.items()
        if name not in end and not name.startswith(f"{folder.checkpoints.name}/")
    }
    folder.write_manifest(Manifest(min(step, manifest.step), False, files, manifest.lines))
    yield
    files[CONFIG] = Seal.of(read_file(folder.path / CONFIG))
    for kept in checkpoints.steps(folder.checkpoints):
        path = folder.checkpoints / f"{kept:06d}" / checkpoints.STATE
        name = path.relative_to(folder.path).as_posix()
        known = None if kept == step else manifest.files.get(name)
        files[name] = known or Seal.of(read_file(path))
    folder.write_manifest(Manifest(step, False, files, manifest.lines))
