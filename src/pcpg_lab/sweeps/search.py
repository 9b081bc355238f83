"""The search of a [tune] table: the settings that it offers, and the cell of a point of it."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from pcpg.config import ConfigError, check_choice, check_type
from pcpg_lab.sweeps.plan import Cell, Plan, merged, plan_of

SEARCH = ("low", "high", "log", "step")


@dataclasses.dataclass(frozen=True)
class Search:
    """The search of a [tune] table."""

    search: dict[str, Any]
    metric: str = "return"
    direction: str = "maximize"
    trials: int = 20
    seed: int = 0
    warmup: int = 3
    """Rounds before which no trial is stopped."""
    prune: bool = True

    def __post_init__(self) -> None:
        check_choice("value of tune.direction", self.direction, ("maximize", "minimize"))
        if self.trials < 1:
            raise ConfigError(f"tune.trials must be at least 1, got {self.trials}")
        if self.seed < 0:
            raise ConfigError(f"tune.seed must be 0 or more, got {self.seed}")
        if not self.search:
            raise ConfigError("tune.search must name at least one setting")
        for name, space in self.search.items():
            if isinstance(space, Mapping):
                for entry in space:
                    check_choice(f"entry of tune.search.{name}", entry, SEARCH)
                if not {"low", "high"} <= space.keys():
                    raise ConfigError(f"tune.search.{name} needs a low and a high end, got {dict(space)}")
                _check_range(name, space)
            elif not isinstance(space, list | tuple) or not space:
                raise ConfigError(f"tune.search.{name} must be a range or a list of choices, got {space!r}")


def _check_range(name: str, space: Mapping[str, Any]) -> None:
    """Refuse a range from which Optuna cannot draw."""
    numbers = {entry: space[entry] for entry in ("low", "high", "step") if entry in space}
    for entry, value in numbers.items():
        if type(value) not in (int, float) or not math.isfinite(value):
            raise ConfigError(f"tune.search.{name}.{entry} must be a finite number, got {value!r:.60}")
    low, high, step, log = space["low"], space["high"], space.get("step"), space.get("log", False)
    if type(log) is not bool:
        raise ConfigError(f"tune.search.{name}.log must be true or false, got {log!r:.60}")
    if low > high:
        raise ConfigError(f"tune.search.{name}: low must be at most high, got {low} and {high}")
    if step is not None and (log or step <= 0):
        raise ConfigError(f"tune.search.{name}.step must be positive, and cannot go with log, got {dict(space)}")
    if type(low) is type(high) is int and type(step) not in (int, type(None)):
        raise ConfigError(f"tune.search.{name}.step must be an integer between integer ends, got {step}")
    if log and low <= 0:
        raise ConfigError(f"tune.search.{name}.low must be positive with log, got {low}")


def search_of(entries: Mapping[str, Any]) -> Search:
    """The search in a file; both ends are built as cells, so that an unknown setting is refused at once."""
    said = entries.get("tune")
    if not isinstance(said, Mapping):
        raise ConfigError("a file for `pcpg tune` needs a table [tune]")
    hints = {field.name: field.type for field in dataclasses.fields(Search)}
    for name, value in said.items():
        check_choice("entry of tune", name, hints)
        check_type({"search": Mapping}.get(name, hints[name]), value, f"tune.{name}")
    search = Search(**{**said, "search": dict(said.get("search", {}))})
    for end in ("low", "high"):
        cell_of(entries, {name: end_of(space, end) for name, space in search.search.items()})
    return search


def end_of(space: Any, end: str) -> Any:
    return space[end] if isinstance(space, Mapping) else space[0 if end == "low" else -1]


def cell_of(entries: Mapping[str, Any], params: Mapping[str, Any]) -> tuple[Cell, Plan]:
    """The one cell of a point, with all its seeds in it."""
    base = entries.get("base", {})
    if not isinstance(base, Mapping):
        raise ConfigError(f"base must be a table of settings, got {base!r:.60}")
    base = merged(base, params)
    resources = {name: entries[name] for name in ("cores", "gpus") if name in entries}
    seeds = base.get("seeds", 1)
    plan = plan_of(resources | {"block": max(1, seeds) if type(seeds) is int else 1, "base": base})
    label = ", ".join(f"{name.split('.')[-1]} {value}" for name, value in params.items())
    return plan.cells[0]._replace(label=label), plan


def suggested(trial: Any, name: str, space: Any) -> Any:
    """The value of a setting in a trial of Optuna."""
    if not isinstance(space, Mapping):
        # Optuna keeps numbers and words alone: a list is chosen by its place.
        return space[trial.suggest_categorical(name, list(range(len(space))))]
    more = {key: space[key] for key in ("log", "step") if key in space}
    is_whole = all(type(space[end]) is int for end in ("low", "high"))
    suggest = trial.suggest_int if is_whole else trial.suggest_float
    return suggest(name, space["low"], space["high"], **more)
