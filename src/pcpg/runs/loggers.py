"""Loggers for TensorBoard and Weights & Biases: reports under the names that CleanRL gave them, by environment steps.

metrics.jsonl is the source of truth. If a run already has reports, because it was resumed or was not logged before, a
new logger receives each of them once.
"""

import contextlib
import importlib
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from pcpg.config import Json
from pcpg.runs.disk import exists
from pcpg.runs.errors import BadValue, DamagedFile, MissingExtra
from pcpg.runs.folder import RunFolder
from pcpg.runs.metrics import Logger, read_metrics

# Metrics that CleanRL calls something else, or that do not belong under `losses/`.
NAMES = {
    "return": "charts/episodic_return",
    "best_episode": "charts/best_episode",
    "coverage": "charts/coverage",
    "train/return": "charts/rollout_return",
    "train/bonus": "charts/bonus",
    "train/clip_fraction": "losses/clipfrac",
    "train/rnd_loss": "losses/fwd_loss",
    "policies": "cover/policies",
    "policies_with_weight": "cover/policies_with_weight",
    "log_det": "cover/log_det",
    "design_gap": "cover/design_gap",
}
NOT_METRICS = ("step", "seed", "round", "phase", "env_steps", "cells", "usual_return")


def named(record: Mapping[str, object]) -> dict[str, float]:
    """The numbers of a report under the usual dashboard names."""
    numbers = {name: value for name, value in record.items() if isinstance(value, int | float)}
    return {
        NAMES.get(name, name.replace("train/", "losses/")): float(value)
        for name, value in numbers.items()
        if name not in NOT_METRICS
    }


class _Speed:
    """Environment steps per second of each seed, from one of its reports to the next."""

    def __init__(self) -> None:
        self.last: dict[int, tuple[int, float]] = {}

    def of(self, record: Json) -> dict[str, float]:
        now, before = time.perf_counter(), self.last.get(record["seed"])
        self.last[record["seed"]] = (record["env_steps"], now)
        return {} if before is None else {"charts/SPS": (record["env_steps"] - before[0]) / max(now - before[1], 1e-9)}


class _Dashboard:
    """Receives reports under dashboard names, including those already in metrics.jsonl."""

    def catch_up(self, folder: RunFolder) -> None:
        """Send the reports in metrics.jsonl."""
        self.speed = _Speed()
        for record in read_metrics(folder.metrics) if exists(folder.metrics) else []:
            self.send(record, named(record))

    def write(self, record: Json) -> None:
        """Log one report."""
        self.send(record, named(record) | self.speed.of(record))

    def send(self, record: Json, values: Mapping[str, float]) -> None:
        """Log the values of a report."""
        raise NotImplementedError


class TensorBoard(_Dashboard):
    """Event files under tensorboard/seed-N of the run folder; rewritten from metrics.jsonl when a run is resumed."""

    def __init__(self, folder: RunFolder) -> None:
        self.module, self.root = _module("tensorboard"), folder.path / "tensorboard"
        self.writers: dict[int, Any] = {}
        for old in self.root.glob("seed-*/events.out.tfevents.*"):
            old.unlink()
        self.catch_up(folder)

    def send(self, record: Json, values: Mapping[str, float]) -> None:
        """Append the values to the file of their seed."""
        seed = record["seed"]
        if seed not in self.writers:
            self.writers[seed] = self.module.SummaryWriter(logdir=str(self.root / f"seed-{seed}"))
        for name, value in values.items():
            self.writers[seed].add_scalar(name, value, global_step=record["env_steps"])
        self.writers[seed].flush()

    def close(self) -> None:
        """Close the event files."""
        for writer in self.writers.values():
            writer.close()


class WeightsAndBiases(_Dashboard):
    """One W&B run per seed, in one group. W&B's own variables apply, such as WANDB_MODE=offline and WANDB_PROJECT.

    wandb.json in the run folder records the ids and what was sent, so a resumed run sends nothing twice.
    """

    FILE = "wandb.json"

    def __init__(self, folder: RunFolder) -> None:
        wandb = _module("wandb")
        if (folder.path / "wandb").is_symlink():
            raise DamagedFile(folder.path / "wandb", "is a link; logging would write to its target")
        self.folder = folder
        first, count = folder.config["seed"], folder.config["seeds"]
        begun = exists(folder.path / self.FILE)
        fresh = {str(seed): {"id": uuid.uuid4().hex[:12], "sent": 0} for seed in range(first, first + count)}
        self.state: dict[str, Json] = folder.read_json(self.FILE) if begun else fresh
        self.runs: dict[int, Any] = {}
        for seed, state in self.state.items():
            run = wandb.init(
                project=os.environ.get("WANDB_PROJECT", "pcpg"),
                id=state["id"],
                name=f"{folder.path.name}-seed-{seed}",
                group=folder.path.name,
                config=_without_paths(folder.config) | {"seed": int(seed)},
                dir=str(folder.path),
                resume="allow",
                reinit="create_new",
            )
            run.define_metric("*", step_metric="global_step")
            self.runs[int(seed)] = run
        self.catch_up(folder)

    def close(self) -> None:
        """Finish the W&B runs."""
        for run in self.runs.values():
            run.finish()

    def send(self, record: Json, values: Mapping[str, float]) -> None:
        """Send the values to the run of their seed, unless an earlier process did."""
        state = self.state[str(record["seed"])]
        if record["step"] <= state["sent"]:
            return
        self.runs[record["seed"]].log({**values, "global_step": record["env_steps"]}, step=record["step"])
        state["sent"] = record["step"]
        self.folder.write_json(self.FILE, self.state)


LOGGERS = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases}
PACKAGES = {
    "tensorboard": ("tensorboardX", "logging to TensorBoard"),
    "wandb": ("wandb", "logging to Weights & Biases"),
}


def check_loggers(wanted: Iterable[str | Logger]) -> None:
    """Refuse unknown names and missing packages before any work."""
    for name in wanted:
        if callable(getattr(name, "write", None)):
            continue
        if not isinstance(name, str) or name not in LOGGERS:
            raise BadValue(f"unknown logger {name!r}; valid: {', '.join(LOGGERS)}")
        _module(name)


@contextlib.contextmanager
def opened(wanted: Iterable[str | Logger], folder: RunFolder) -> Iterator[tuple[Logger, ...]]:
    """The loggers of a run, made from their names if necessary; those made here are closed at the end."""
    wanted = tuple(wanted)
    check_loggers(wanted)
    with contextlib.ExitStack() as stack:
        loggers: list[Logger] = []
        for logger in wanted:
            if isinstance(logger, str):
                logger = stack.enter_context(contextlib.closing(LOGGERS[logger](folder)))
            loggers.append(logger)
        yield tuple(loggers)


def _without_paths(config: Json) -> dict[str, object]:
    """A config without local paths, to be sent elsewhere: only the name of a source folder is kept."""
    source = config.get("source") or {}
    return {**config, "source": source | {"run": Path(str(source["run"])).name}} if "run" in source else dict(config)


def _module(name: str) -> ModuleType:
    package, what = PACKAGES[name]
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise MissingExtra(name, what) from error
