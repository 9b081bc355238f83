"""What of a run folder is whole, what is not, and what that costs: `pcpg verify`."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pcpg.runs import checkpoints
from pcpg.runs.disk import exists
from pcpg.runs.documents import read_json
from pcpg.runs.errors import DamagedFile, RunError
from pcpg.runs.folder import CONFIG, ENVIRONMENT, SUMMARY, RunFolder
from pcpg.runs.manifest import MANIFEST, check_lines, check_seal
from pcpg.runs.metrics import read_whole_metrics

WHOLE, DAMAGED, UNKNOWN = "whole", "damaged", "not sealed"


class Checked(NamedTuple):
    """One file of a run."""

    name: str
    state: str  # WHOLE, DAMAGED, or UNKNOWN: in order by itself, but nothing says that it is the same as ever
    detail: str = ""  # what is wrong with it
    cost: str = ""  # what that costs


def verify(folder: RunFolder) -> list[Checked]:
    """Every file of a run, in the order of its importance."""
    found = list(_sealed(folder)) if folder.manifest is not None else list(_unsealed(folder))
    if folder.damage is not None:
        found.insert(0, Checked(folder.damage.path.name, DAMAGED, folder.damage.cause, _cost(folder.damage.path.name)))
    return found


def damages(folder: RunFolder) -> list[DamagedFile]:
    """What is wrong with the files of a run, but for what is for information only."""
    bad = [one for one in verify(folder) if one.state == DAMAGED and one.name != folder.timings.name]
    return [DamagedFile(folder.path / one.name, one.detail) for one in bad]


def _sealed(folder: RunFolder) -> Iterator[Checked]:
    assert folder.manifest is not None
    yield Checked(MANIFEST, WHOLE)
    for name, seal in folder.manifest.files.items():
        if _is_outdated(folder, name):
            continue
        yield _checked(folder, name, lambda path, seal=seal: check_seal(path, seal))
        if name.endswith(f"/{checkpoints.STATE}"):
            yield _checked(folder, name.replace(checkpoints.STATE, checkpoints.ARRAYS), _check_arrays)
    for name, seal in folder.manifest.lines.items():
        check = check_seal if folder.manifest.finished else check_lines
        yield _checked(folder, name, lambda path, seal=seal, check=check: check(path, seal))
    if folder.manifest.finished:
        for path in sorted([*folder.checkpoints.glob("[0-9]*"), *folder.cover.glob("[0-9]*")]):
            name = path.relative_to(folder.path).as_posix()
            if not any(known == name or known.startswith(f"{name}/") for known in folder.manifest.files):
                yield Checked(name, DAMAGED, "the manifest of the finished run does not know it", "it is not used")


def _is_outdated(folder: RunFolder, name: str) -> bool:
    """Whether a file is of a checkpoint that a newer one replaced, after which the run was killed before its seal."""
    checkpoint = (folder.path / name).parent
    if folder.is_finished or checkpoint.parent != folder.checkpoints or exists(checkpoint):
        return False
    newest = max(checkpoints.steps(folder.checkpoints), default=-1)
    try:
        return folder.manifest is not None and checkpoints.load(folder.checkpoints, newest).step > folder.manifest.step
    except RunError:
        return False


def _unsealed(folder: RunFolder) -> Iterator[Checked]:
    """Files of a run without a manifest: those with a seal of their own can be looked at."""
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
            yield Checked(name, DAMAGED, _cause(error), _cost(name))
    for index, sha256 in enumerate(members):
        name = folder.member(index).relative_to(folder.path).as_posix()
        yield _checked(folder, name, lambda path, i=index, h=sha256: folder.read_member(i, h))
    for path in (folder.metrics, folder.timings):
        damage = read_whole_metrics(path)[1] if exists(path) else DamagedFile(path, "missing")
        state = UNKNOWN if damage is None else DAMAGED
        yield Checked(path.name, state, "" if damage is None else damage.cause, _cost(path.name) if damage else "")
    for path in (folder.policy, folder.features):
        if exists(path):
            yield Checked(path.name, UNKNOWN)


def _check_arrays(path: Path) -> object:
    return checkpoints.load(path.parents[1], int(path.parent.name))


def _checked(folder: RunFolder, name: str, check: object) -> Checked:
    try:
        check(folder.path / name)  # pyright: ignore[reportCallIssue]
    except RunError as error:
        return Checked(name, DAMAGED, _cause(error), _cost(name))
    return Checked(name, WHOLE)


def _cause(error: RunError) -> str:
    return error.cause if isinstance(error, DamagedFile) else str(error)


COSTS = {
    CONFIG: "the run cannot be used; with config.json from a backup it can",
    ENVIRONMENT: "nothing of an outside environment can be said without making it",
    MANIFEST: "nothing says that the files belong together; `pcpg resume` writes it anew from the newest checkpoint",
    SUMMARY: "`pcpg resume` writes it anew from the newest checkpoint",
    "policy.safetensors": "`pcpg resume` writes it anew from the newest checkpoint",
    "features.safetensors": "the cover cannot be extended, nor its features computed",
    "metrics.jsonl": "curves are wrong from there on, and an unfinished run cannot go on",
    "timings.jsonl": "times in the report, and nothing else",
}


def _cost(name: str) -> str:
    """What the loss of a file means."""
    if name.startswith("checkpoints/"):
        return "training goes back to the checkpoint before it, which costs a round or a few"
    if name.startswith("cover/"):
        return "covers with this member cannot be restored, so the run cannot go on; the final policy is not concerned"
    return COSTS.get(name, "")
