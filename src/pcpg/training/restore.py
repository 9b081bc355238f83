"""Where a run stands: its folder looked through, and the states of its seeds from the newest checkpoint that fits."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pcpg.practice.agent import Agent
from pcpg.run_config import RunConfig
from pcpg.runs.disk import truncate
from pcpg.runs.errors import understood
from pcpg.runs.folder import RunFolder
from pcpg.runs.verify import damages
from pcpg.state import SeedState
from pcpg.training.provenance import what_changed
from pcpg.training.storage import check_features, needing_all, unpack_states

UNSEALED = "{} is unsealed: a version without manifests wrote it, so a change in some of its files goes unnoticed"

Say = Callable[[str], None]


def opened_again(folder: RunFolder, notice: Say) -> tuple[RunFolder, bool]:
    """The folder as it is now, and whether its run is over and whole.

    What follows from a checkpoint and is lost or damaged is written anew: then the run is not over.
    """
    folder = RunFolder.open(folder.path)
    if folder.damage is not None:
        notice(f"{folder.damage}; it is written anew from the newest checkpoint")
        return dataclasses.replace(folder, damage=None), False
    if not folder.is_sealed:
        notice(UNSEALED.format(folder.path))
        return folder, folder.is_finished
    found = damages(folder) if folder.is_finished else []
    for error in found:
        notice(f"{error}; what follows from the newest checkpoint is written anew")
    return folder, folder.is_finished and not found


class Restored(NamedTuple):
    """Where a run stands."""

    states: list[SeedState]
    step: int
    hashes: list[str]  # of the member files
    failed: dict[int, str]  # by seed, why it stopped


def restore(folder: RunFolder, agent: Agent, config: RunConfig, features: str | None, notice: Say) -> Restored:
    """The states of all seeds, from the newest checkpoint that fits the rest of the run, or fresh ones."""
    looked = int(config.looked.get("env_steps", 0))
    fresh = [agent.init(seed)._replace(env_steps=np.asarray(looked, np.int64)) for seed in config.seed_list]
    checkpoint = folder.newest_checkpoint(notice, with_metrics=True)
    if checkpoint is None:
        given = list(config.source.get("members", []))
        folder.drop_members(len(given))
        return Restored(fresh, 0, given, {})
    lines = checkpoint.state.get("metrics")
    if lines is not None:  # what was reported after the checkpoint is reported again
        truncate(folder.metrics, int(lines[0]))
    if folder.manifest is None or checkpoint.step >= folder.manifest.step:
        for skipped in checkpoint.skipped:
            notice(f"{skipped.reason}; going back to the checkpoint of step {checkpoint.step}")
    changed = what_changed(checkpoint.state.get("device"), checkpoint.versions)
    if changed:
        notice(f"saved with {changed}: bit-exact resume is not guaranteed")
    check_features(folder, features, checkpoint.state.get("features"))
    hashes = list(checkpoint.state["members"])
    failed = {int(seed): str(cause) for seed, cause in checkpoint.state.get("failed", {}).items()}
    given = len(config.source.get("members", []))  # the cover that it exploits; what comes after is its own
    own = list(enumerate(hashes))[given:]
    members = needing_all(lambda: [folder.read_member(index, sha256) for index, sha256 in own])
    folder.drop_members(len(hashes))
    with understood(folder.checkpoints):
        states = unpack_states(checkpoint.arrays, fresh, members)
    return Restored(states, checkpoint.step, hashes, failed)
