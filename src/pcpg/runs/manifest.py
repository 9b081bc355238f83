"""The manifest of a run: one file with checksums of all others, so no loss or change goes unnoticed.

It is written last, after each checkpoint and at the end, whole or not at all, and says of every file how long it is and
what its sha256 is; of reports, which grow by lines, that of the first so many bytes. A run that is killed between a
checkpoint and its manifest has a checkpoint that is newer: that one has a seal of its own. So may a run after a power
cut: what a round costs is one sync of the manifest's content, and its name is synced when the run is finished.
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
    """How long a file is, or the part of it that counts, and the sha256 of that."""

    length: int
    sha256: str

    @classmethod
    def of(cls, data: bytes) -> "Seal":
        """The seal of some bytes."""
        return cls(len(data), hashlib.sha256(data).hexdigest())


class Manifest(NamedTuple):
    """What a run consisted of when its newest checkpoint was whole."""

    step: int
    finished: bool
    files: dict[str, Seal]  # by name, relative to the run folder
    lines: dict[str, Seal]  # of files that grow: their first bytes


def write_manifest(folder: Path, manifest: Manifest, *, settled: bool = True) -> None:
    """Write the manifest of a run folder; `settled` is that of `write_file`."""
    tables = {
        name: {file: list(seal) for file, seal in sorted(getattr(manifest, name).items())}
        for name in ("files", "lines")
    }
    write_json(folder / MANIFEST, {"step": manifest.step, "finished": manifest.finished} | tables, settled=settled)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a run folder; `DamagedFile` where it is missing or not one."""
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
    """The bytes of a file that must be as long as its seal says and have its sha256."""
    return check_bytes(path, read_file(path, seal.length), seal)


def check_bytes(path: Path, data: bytes, seal: Seal) -> bytes:
    """The bytes themselves, if they are those of the seal."""
    if len(data) > seal.length:
        raise DamagedFile(path, f"too long: {len(data):,} bytes, expected {seal.length:,}")
    if len(data) < seal.length:
        raise DamagedFile(path, f"cut short: {len(data):,} of {seal.length:,} bytes" if data else "empty")
    found = hashlib.sha256(data).hexdigest()
    if found != seal.sha256:
        raise DamagedFile(path, f"altered: its sha256 is {found}, the manifest says {seal.sha256}")
    return data


def check_lines(path: Path, seal: Seal) -> bytes:
    """The first lines of a file that grows, if they are those of the seal; what came after them is left out."""
    return check_bytes(path, read_file(path)[: seal.length], seal)
