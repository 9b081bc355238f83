"""The manifest of a run: checksums of all other files, so that every loss or change is noticed.

It is written last, atomically, after each checkpoint and at the end, and lists the length and sha256 of every file; for
reports, which grow line by line, those of a prefix. If a run is killed between a checkpoint and its manifest, the
checkpoint is newer, but it has its own seal. The same may happen after a power cut: a round syncs only the content of
the manifest, and its name is synced when the run is finished.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from pcpg.runs.disk import read_file
from pcpg.runs.documents import read_json, write_json
from pcpg.runs.errors import DamagedFile

MANIFEST = "manifest.json"


class Seal(NamedTuple):
    """The length and sha256 of a file, or of the prefix that counts."""

    length: int
    sha256: str

    @classmethod
    def of(cls, data: bytes) -> "Seal":
        """The seal of some bytes."""
        return cls(len(data), hashlib.sha256(data).hexdigest())


class Manifest(NamedTuple):
    """The files of a run as of its newest complete checkpoint."""

    step: int
    finished: bool
    files: dict[str, Seal]  # by name, relative to the run folder
    lines: dict[str, Seal]  # of files that grow: their first bytes


def write_manifest(folder: Path, manifest: Manifest, *, settled: bool = True) -> None:
    """Write the manifest of a run folder; `settled` as in `write_file`."""
    tables = {
        name: {file: list(seal) for file, seal in sorted(getattr(manifest, name).items())}
        for name in ("files", "lines")
    }
    write_json(folder / MANIFEST, {"step": manifest.step, "finished": manifest.finished} | tables, settled=settled)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a run folder; raises `DamagedFile` if it is missing or invalid."""
    path = folder / MANIFEST
    content = read_json(path).content
    try:
        step, finished = content["step"], content["finished"]
        if type(step) is not int or type(finished) is not bool:
            raise TypeError("step must be an integer and finished true or false")
        return Manifest(step, finished, _seals(content["files"]), _seals(content["lines"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedFile(path, f"not the manifest of a run: {error}") from error


def _seals(table: Mapping[str, tuple[int, str]]) -> dict[str, Seal]:
    seals = {}
    for name, (size, sha256) in table.items():
        if type(size) is not int or type(sha256) is not str:
            raise TypeError(f"{name} must have a length and a sha256")
        seals[name] = Seal(size, sha256)
    return seals


def check_seal(path: Path, seal: Seal) -> bytes:
    """The bytes of a file, checked against its seal."""
    return check_bytes(path, read_file(path, seal.length), seal)


def check_bytes(path: Path, data: bytes, seal: Seal) -> bytes:
    """The bytes, checked against the seal."""
    if len(data) > seal.length:
        raise DamagedFile(path, f"too long: {len(data):,} bytes, expected {seal.length:,}")
    if len(data) < seal.length:
        raise DamagedFile(path, f"cut short: {len(data):,} of {seal.length:,} bytes" if data else "empty")
    found = hashlib.sha256(data).hexdigest()
    if found != seal.sha256:
        raise DamagedFile(path, f"altered: its sha256 is {found}, the manifest says {seal.sha256}")
    return data


def check_lines(path: Path, seal: Seal) -> bytes:
    """The sealed prefix of a growing file; later lines are left out."""
    return check_bytes(path, read_file(path)[: seal.length], seal)
