"""The state of a run: its folder checked, and its seeds restored from the newest checkpoint that fits."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import jax

from pcpg.algorithms import Agent
from pcpg.run_config import RunConfig
from pcpg.runs.disk import truncate
from pcpg.runs.documents import versions
from pcpg.runs.errors import understood
from pcpg.runs.folder import RunFolder
from pcpg.runs.verify import damages
from pcpg.state import SeedState
from pcpg.training.storage import check_features, check_networks, members_given, needing_all, unpack_states

UNSEALED = "{} is unsealed (written by a version without manifests), so changes to some files go undetected"

Say = Callable[[str], None]


def opened_again(folder: RunFolder, notice: Say) -> tuple[RunFolder, bool]:
    """The current folder, and whether its run is finished and intact.

    Lost or damaged files that follow from a checkpoint will be rewritten; such a run counts as unfinished.
    """
    folder = RunFolder.open(folder.path)
    if folder.damage is not None:
        notice(f"{folder.damage}; rewriting it from the newest checkpoint")
        return dataclasses.replace(folder, damage=None), False
    if not folder.is_sealed:
        notice(UNSEALED.format(folder.path))
        return folder, folder.is_finished
    found = damages(folder) if folder.is_finished else []
    for error in found:
        notice(f"{error}; rewriting everything after the newest checkpoint")
    return folder, folder.is_finished and not found


class Restored(NamedTuple):
    """The state of a run."""

    states: list[SeedState[object]]
    step: int
    hashes: list[str]  # of the member files
    failed: dict[int, str]  # by seed, why it stopped


def restore(folder: RunFolder, agent: Agent, config: RunConfig, features: str | None, notice: Say) -> Restored:
    """The states of all seeds, from the newest checkpoint that fits the rest of the run, or fresh ones."""
    checkpoint = folder.newest_checkpoint(notice, with_metrics=True)
    if checkpoint is not None:
        check_networks(folder.checkpoints, [checkpoint.arrays], config, agent.env)
    looked = int(config.looked.get("env_steps", 0))
    fresh = [agent.init(seed).noted(env_steps=looked) for seed in config.seed_list]
    if checkpoint is None:
        given = members_given(config)
        folder.drop_members(len(given))
        return Restored(fresh, 0, given, {})
    lines = checkpoint.state.get("metrics")
    if lines is not None:  # what was reported after the checkpoint is reported again
        truncate(folder.metrics, int(lines[0]))
    if folder.manifest is None or checkpoint.step >= folder.manifest.step:
        for skipped in checkpoint.skipped:
            notice(f"{skipped.reason}; falling back to the checkpoint of step {checkpoint.step}")
    changed = what_changed(checkpoint.state.get("device"), checkpoint.versions)
    if changed:
        notice(f"saved with {changed}: bit-exact resume is not guaranteed")
    check_features(folder, features, checkpoint.state.get("features"))
    hashes = list(checkpoint.state["members"])
    failed = {int(seed): str(cause) for seed, cause in checkpoint.state.get("failed", {}).items()}
    given = len(members_given(config))  # what comes after is its own
    own = list(enumerate(hashes))[given:]
    members = needing_all(lambda: [folder.read_member(index, sha256) for index, sha256 in own])
    folder.drop_members(len(hashes))
    with understood(folder.checkpoints):
        states = unpack_states(agent, checkpoint.arrays, fresh, members)
    return Restored(states, checkpoint.step, hashes, failed)


@functools.cache
def device_kind() -> str:
    """The kind of device, for a CPU with its name and model: compiled code depends on its instruction set."""
    kind = jax.devices()[0].device_kind
    if jax.default_backend() != "cpu":
        return kind
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    entries = (line.partition(":")[::2] for line in lines)
    known = {name.strip(): value.strip() for name, value in entries}
    if "model name" not in known:
        return kind
    # Virtual machines use one name for several processor generations.
    model = "-".join(known[name] for name in ("cpu family", "model", "stepping") if name in known)
    return f"{kind} ({known['model name']}{f', {model}' if model else ''})"


def what_changed(device: str | None, saved: Mapping[str, str]) -> str:
    """How the device and versions differ from the saved ones, to follow "saved with"; empty if they do not."""
    here = {"device": device_kind()} | versions()
    there = {"device": device or "an unknown device"} | dict(saved)
    names = [name for name in here if there.get(name, "nothing") != here[name]]
    return "; ".join(f"{_said(name, there.get(name, 'nothing'))}, here {here[name]}" for name in names)


def _said(name: str, value: str) -> str:
    return value if name == "device" else f"{name} {value}"
