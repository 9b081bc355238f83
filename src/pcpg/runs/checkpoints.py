"""Checkpoints: step-numbered folders, written atomically; the last few are kept."""

import contextlib
import dataclasses
import hashlib
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pcpg.config import Json
from pcpg.runs.arrays import encode_arrays, read_arrays
from pcpg.runs.disk import make_folder, read_file, remove_leftovers, sync_folder, temporary_name, write_file, writing
from pcpg.runs.documents import plain, read_json, write_json
from pcpg.runs.errors import BadValue, DamagedFile, DiskFull, RunError

ARRAYS = "arrays.safetensors"
STATE = "state.json"


class Skipped(NamedTuple):
    """A damaged checkpoint that was skipped, and why."""

    step: int
    reason: str


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """What was saved at `step`, the versions that saved it, and the newer damaged ones that were skipped."""

    step: int
    arrays: dict[str, np.ndarray]
    state: Json
    versions: dict[str, str]
    skipped: tuple[Skipped, ...] = ()


def save(
    root: Path | str, step: int, arrays: Mapping[str, np.ndarray], state: Mapping[str, object], keep: int = 2
) -> Path:
    """Write the newest checkpoint under `root` and remove all but the last `keep`; returns its folder.

    The caller must hold the lock of the run. Checkpoints of later steps are removed too: they are left over if a run
    went back to an earlier step.
    """
    root = Path(root)
    if not isinstance(step, int) or isinstance(step, bool) or step < 0:
        raise BadValue(f"the step of a checkpoint must be an integer of at least 0, got {step!r}")
    if keep < 1:
        raise BadValue(f"keep must be at least 1, got {keep}")
    target = root / f"{step:06d}"
    # Before anything is written: what cannot be stored is refused with the disk as it was.
    data, host_state = encode_arrays(arrays), plain(state, "state")
    try:
        with writing(target):
            make_folder(root)
            remove_leftovers(root)
            _write(target, step, data, host_state)
            _keep_last(root, step, keep)
    except DiskFull as error:
        # Named as it would have been: nobody knows the name it has while it is written aside.
        inside = error.path.parent == temporary_name(target)
        raise DiskFull(target / error.path.name if inside else error.path, _what_stays(root)) from error
    return target


def load(root: Path | str, step: int) -> Checkpoint:
    """The checkpoint of `step`, or an error that names the file and the cause."""
    folder = Path(root) / f"{step:06d}"
    if not folder.is_dir():
        there = ", ".join(str(other) for other in steps(root)) or "none"
        raise DamagedFile(folder, f"no checkpoint of step {step}; available: {there}")
    content, versions, _ = read_json(folder / STATE)
    if content.get("step") != step:
        raise DamagedFile(folder / STATE, f"belongs to step {content.get('step')}, not to {step}")
    sha256, state, size = content.get("arrays_sha256"), content.get("state"), content.get("arrays_bytes")
    if not isinstance(sha256, str) or not isinstance(state, dict) or not isinstance(size, int | None):
        raise DamagedFile(folder / STATE, "not the state of a checkpoint")
    arrays = read_arrays(folder / ARRAYS, sha256 if size is None else (size, sha256))
    return Checkpoint(step, arrays, state, versions)


def load_latest(root: Path | str, check: Callable[[Checkpoint], None] = lambda checkpoint: None) -> Checkpoint | None:
    """The newest intact checkpoint, skipping damaged ones; None if there never was one.

    `check` may raise `DamagedFile` for one that does not fit the rest of its run. A checkpoint in another format is an
    error, and so is a folder where every checkpoint is damaged: whether to start over is for the user to decide.
    """
    skipped: list[Skipped] = []
    for step in reversed(steps(root)):
        try:
            found = dataclasses.replace(load(root, step), skipped=tuple(skipped))
            check(found)
            return found
        except DamagedFile as error:
            skipped.append(Skipped(step, str(error)))
    if skipped:
        reasons = "; ".join(reason for _, reason in skipped)
        raise DamagedFile(root, f"no intact checkpoint ({reasons})")
    return None


def steps(root: Path | str) -> list[int]:
    """The steps with a checkpoint under `root`, intact or not, in order."""
    root = Path(root)
    is_there = root.is_dir() and not root.is_symlink()
    names = [path.name for path in root.iterdir() if path.is_dir() and not path.is_symlink()] if is_there else []
    return sorted(int(name) for name in names if name.isdecimal() and name == f"{int(name):06d}")


def _write(target: Path, step: int, data: bytes, state: Mapping[str, object]) -> None:
    aside = temporary_name(target)
    try:
        aside.mkdir()
        write_file(aside / ARRAYS, data, settled=False)  # its name is synced with that of the state
        sha256 = hashlib.sha256(data).hexdigest()
        write_json(aside / STATE, {"step": step, "arrays_sha256": sha256, "arrays_bytes": len(data), "state": state})
        if not _is_same(target, aside):
            # A folder cannot be renamed onto another. Only a damaged one, or one of a future left behind, is
            # ever here: between the two renames the one before it is the newest.
            _remove(target)
            os.rename(aside, target)
            sync_folder(target.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _is_same(target: Path, aside: Path) -> bool:
    """Whether an intact checkpoint with the same content is already there, judged by the seals."""
    try:
        load(target.parent, int(target.name))
    except RunError:
        return False
    return read_file(target / STATE) == read_file(aside / STATE)


def _keep_last(root: Path, step: int, keep: int) -> None:
    earlier = [other for other in steps(root) if other <= step]
    for other in steps(root):
        if other not in earlier[-keep:]:
            _remove(root / f"{other:06d}")


def _remove(folder: Path) -> None:
    if not folder.exists():
        return
    # Renamed first: a removal that is killed halfway must not look like a damaged checkpoint.
    aside = temporary_name(folder.with_name(f"old-{folder.name}"))
    os.rename(folder, aside)
    shutil.rmtree(aside)


def _what_stays(root: Path) -> str:
    with contextlib.suppress(RunError, OSError):
        latest = load_latest(root)
        return "there is no earlier checkpoint" if latest is None else f"the last good checkpoint {latest.step} is kept"
    return "there is no intact earlier checkpoint"
