"""`pcpg verify`: missing or corrupted files of a run, and their cost."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from pcpg.runs import checkpoints
from pcpg.runs.disk import exists
from pcpg.runs.documents import read_json
from pcpg.runs.errors import DamagedFile, RunError
from pcpg.runs.folder import CONFIG, ENVIRONMENT, SUMMARY, RunFolder
from pcpg.runs.manifest import MANIFEST, Manifest, check_lines, check_seal
from pcpg.runs.metrics import read_whole_metrics

WHOLE, DAMAGED, UNKNOWN = "whole", "damaged", "not sealed"


class Checked(NamedTuple):
    """One file of a run."""

    name: str
    state: str  # WHOLE, DAMAGED, or UNKNOWN: valid by itself, but without a seal to compare with
    detail: str = ""  # what is wrong with it
    cost: str = ""  # the consequence


def verify(folder: RunFolder) -> list[Checked]:
    """Every file of a run, in order of importance."""
    found = list(_unsealed(folder) if folder.manifest is None else _sealed(folder, folder.manifest))
    if folder.damage is not None:
        found.insert(0, _damaged(folder.damage.path.name, folder.damage))
    return found


def damages(folder: RunFolder) -> list[DamagedFile]:
    """The problems of a run's files, except those for information only."""
    bad = [one for one in verify(folder) if one.state == DAMAGED and one.name != folder.timings.name]
    return [DamagedFile(folder.path / one.name, one.detail) for one in bad]


def _sealed(folder: RunFolder, manifest: Manifest) -> Iterator[Checked]:
    yield Checked(MANIFEST, WHOLE)
    for name, seal in manifest.files.items():
        if _is_outdated(folder, manifest, name):
            continue
        yield _checked(folder, name, lambda path, seal=seal: check_seal(path, seal))
        if name.endswith(f"/{checkpoints.STATE}"):
            arrays = name.replace(checkpoints.STATE, checkpoints.ARRAYS)
            yield _checked(folder, arrays, lambda path: checkpoints.load(path.parents[1], int(path.parent.name)))
    check = check_seal if manifest.finished else check_lines
    for name, seal in manifest.lines.items():
        yield _checked(folder, name, lambda path, seal=seal: check(path, seal))
    if manifest.finished:
        for path in sorted([*folder.checkpoints.glob("[0-9]*"), *folder.cover.glob("[0-9]*")]):
            name = path.relative_to(folder.path).as_posix()
            if not any(known == name or known.startswith(f"{name}/") for known in manifest.files):
                yield Checked(name, DAMAGED, "not listed in the manifest of the finished run", "ignored")


def _is_outdated(folder: RunFolder, manifest: Manifest, name: str) -> bool:
    """Whether a file belongs to a replaced checkpoint, if the run was killed before sealing the newer one."""
    checkpoint = (folder.path / name).parent
    if manifest.finished or checkpoint.parent != folder.checkpoints or exists(checkpoint):
        return False
    newest = max(checkpoints.steps(folder.checkpoints), default=-1)
    try:
        return checkpoints.load(folder.checkpoints, newest).step > manifest.step
    except RunError:
        return False


def _unsealed(folder: RunFolder) -> Iterator[Checked]:
    """Files of a run without a manifest; only those with their own seal can be checked."""
    for name in (CONFIG, ENVIRONMENT, SUMMARY):
        if exists(folder.path / name):
            yield _checked(folder, name, read_json)
    members: list[str] = []
    for step in checkpoints.steps(folder.checkpoints):
        name = f"{folder.checkpoints.name}/{step:06d}"
        try:
            members = checkpoints.load(folder.checkpoints, step).state.get("members", [])
            yield Checked(name, WHOLE)
        except RunError as error:
            yield _damaged(name, error)
    for index, sha256 in enumerate(members):
        name = folder.member(index).relative_to(folder.path).as_posix()
        yield _checked(folder, name, lambda path, i=index, h=sha256: folder.read_member(i, h))
    for path in (folder.metrics, folder.timings):
        damage = read_whole_metrics(path)[1] if exists(path) else DamagedFile(path, "missing")
        yield Checked(path.name, UNKNOWN) if damage is None else _damaged(path.name, damage)
    for path in (folder.policy, folder.features):
        if exists(path):
            yield Checked(path.name, UNKNOWN)


def _checked(folder: RunFolder, name: str, check: Callable[[Path], object]) -> Checked:
    try:
        check(folder.path / name)
    except RunError as error:
        return _damaged(name, error)
    return Checked(name, WHOLE)


def _damaged(name: str, error: RunError) -> Checked:
    cause = error.cause if isinstance(error, DamagedFile) else str(error)
    return Checked(name, DAMAGED, cause, next((cost for start, cost in COSTS.items() if name.startswith(start)), ""))


COSTS = {
    CONFIG: "the run cannot be used until config.json is restored from a backup",
    ENVIRONMENT: "an external environment cannot be described without creating it",
    MANIFEST: "the files cannot be checked against each other; `pcpg resume` rewrites it from the newest checkpoint",
    SUMMARY: "`pcpg resume` rewrites it from the newest checkpoint",
    "policy.safetensors": "`pcpg resume` rewrites it from the newest checkpoint",
    "features.safetensors": "the cover cannot be extended and its features cannot be computed",
    "metrics.jsonl": "curves are wrong from there on, and an unfinished run cannot resume",
    "timings.jsonl": "only the times in the report",
    "checkpoints/": "training resumes from the previous checkpoint, losing a few rounds",
    "cover/": "covers with this member cannot be restored, so the run cannot resume; the final policy is not affected",
}
"""The cost of losing a file, by the prefix of its name."""
