"""The description of an environment in a run folder, so readers need not create it.

A run records spaces, episode length, the layout of grid cells and the solved return when it starts. From these
`recorded` makes an environment that has the facts but cannot be played; creating the true one may import a module that
the folder names, which requires trust.
"""

import base64
import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from pcpg.config import Json
from pcpg.envs.host import HostEnvironment, Players
from pcpg.envs.protocol import CellGrid, Described, Environment, Step
from pcpg.envs.spaces import MOST_ENTRIES, Box, Cells, Discrete, Image, MultiDiscrete, Space, flat_size

if TYPE_CHECKING:
    import gymnasium

SPACES = {kind.__name__: kind for kind in (Discrete, MultiDiscrete, Box, Cells, Image)}
LARGEST = 3e38  # what stands for an infinite bound: JSON has no infinity


class NotMade(ValueError):
    """An environment that is only known from a run folder and cannot be played."""


def describe(name: str, env: Environment, seeds: Iterable[int]) -> dict[str, object]:
    """The facts about an environment that readers of a run folder need, as JSON values."""
    cells = env.cells
    is_open = {} if cells is None else {seed: env.reachable_cells(env.instance(seed)) for seed in sorted(set(seeds))}
    closed = {str(seed): np.packbits(some).tobytes() for seed, some in is_open.items() if not some.all()}
    on_host = isinstance(env, HostEnvironment)
    return {
        "env": name,
        "observation_space": _space_to_json(env.observation_space),
        "action_space": _space_to_json(env.action_space),
        "max_steps": env.max_steps,
        "evaluation_steps": env.evaluation_env.max_steps,
        "solved_return": env.solved_return,
        "is_reward_free": env.is_reward_free,
        "tasks": env.tasks,
        "cells": None if cells is None else [list(part) for part in cells],
        "reachable": {seed: base64.b64encode(bits).decode("ascii") for seed, bits in closed.items()},
        "on_host": on_host,
        "notices": list(env.notices),
        "spaces": _host_spaces(env) if on_host else None,
    }


def recorded(name: str, content: Json) -> Environment:
    """The environment that `describe` recorded; raises `ValueError` for any other content."""
    try:
        if content["env"] != name:
            raise ValueError(f"it describes {content['env']!r}, not {name!r}")
        facts = _facts(name, content)
        return RecordedHost(facts) if content["on_host"] else Recorded(facts)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ValueError(f"not a description of an environment: {error!r:.200}") from error


@dataclasses.dataclass(frozen=True, eq=False)
class Facts:
    """The recorded facts about an environment."""

    name: str
    observation_space: Space
    action_space: Space
    max_steps: int
    evaluation_steps: int
    solved_return: float | None
    is_reward_free: bool
    tasks: int
    cells: CellGrid | None
    reachable: Mapping[str, str]
    notices: tuple[str, ...]
    spaces: Json | None


def _facts(name: str, content: Json) -> Facts:
    cells = content["cells"]
    grid = None if cells is None else CellGrid(*(tuple(str(label) for label in part) for part in cells))
    if grid is not None and grid.size > 10_000_000:
        raise ValueError(f"{grid.size:,} grid cells")
    solved = content["solved_return"]
    steps, longest, tasks = (int(content[key]) for key in ("max_steps", "evaluation_steps", "tasks"))
    if min(steps, longest, tasks) < 1:
        raise ValueError("max_steps, evaluation_steps and tasks must be at least 1")
    return Facts(
        name,
        _space_of_json(content["observation_space"]),
        _space_of_json(content["action_space"]),
        steps,
        longest,
        None if solved is None else float(solved),
        bool(content["is_reward_free"]),
        tasks,
        grid,
        dict(content["reachable"]),
        tuple(str(text) for text in content["notices"]),
        content["spaces"],
    )


@dataclasses.dataclass(frozen=True, eq=False)
class Recorded(Described):
    """An environment as described in a run folder: it has the recorded facts and refuses to play."""

    facts: Facts

    @property
    def about(self) -> Facts:
        return self.facts

    @property
    def can_render(self) -> bool:
        return False

    @property
    def solved_return(self) -> float | None:
        return self.facts.solved_return

    @property
    def is_reward_free(self) -> bool:
        return self.facts.is_reward_free

    @property
    def evaluation_env(self) -> "Recorded":
        if self.facts.evaluation_steps == self.facts.max_steps:
            return self
        return type(self)(dataclasses.replace(self.facts, max_steps=self.facts.evaluation_steps))

    def instance(self, seed: int) -> Any:
        return seed  # all that is known of an instance goes by its seed

    def reachable_cells(self, params: object) -> np.ndarray:
        packed = self.facts.reachable.get(str(params))
        if packed is None:
            return np.ones(self.num_cells, bool)
        return np.unpackbits(np.frombuffer(base64.b64decode(packed), np.uint8), count=self.num_cells).astype(bool)

    def examples(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Made-up pairs for the shapes of a feature map, whose numbers are in the folder."""
        seen = rng.uniform(0.0, 1.0, (count, *self.observation_space.shape)).astype(self.observation_space.dtype)
        return seen, rng.integers(0, 1, (count, *self.action_space.shape)).astype(self.action_space.dtype)

    def reset(self, key: jax.Array, params: object) -> tuple[jax.Array, object]:
        raise self.refusal

    def transition(self, key: jax.Array, state: object, action: jax.Array, params: object) -> Step:
        raise self.refusal

    @property
    def refusal(self) -> NotMade:
        return NotMade(f"{self.facts.name} is known only from the run folder and cannot be played")


class RecordedHost(Recorded, HostEnvironment):
    """A recorded environment that is stepped on the host: it also encodes and decodes."""

    @property
    def declared_spaces(self) -> dict[str, "gymnasium.Space"]:
        from pcpg.envs.adapters.spaces import space_of_json

        if self.facts.spaces is None:
            raise self.refusal
        try:
            return {key: space_of_json(self.facts.spaces[key]) for key in ("observation", "action")}
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError, MemoryError) as error:
            raise ValueError(f"not the spaces of {self.facts.name}: {error!r:.200}") from error

    @property
    def notices(self) -> tuple[str, ...]:
        return self.facts.notices

    @property
    def players(self) -> Players:
        raise self.refusal


def _host_spaces(env: HostEnvironment) -> dict[str, object]:
    from pcpg.envs.adapters.spaces import space_to_json

    return {key: space_to_json(space) for key, space in env.declared_spaces.items()}


def _space_to_json(space: Space) -> Json:
    fields = dataclasses.asdict(space)
    for bound in ("low", "high"):
        if bound in fields:
            fields[bound] = float(np.clip(fields[bound], -LARGEST, LARGEST))
    return {"kind": type(space).__name__} | fields


def _space_of_json(content: Json) -> Space:
    fields = {name: value for name, value in content.items() if name != "kind"}
    for name, value in fields.items():
        if name in ("shape", "sizes"):
            fields[name] = tuple(int(size) for size in value)
        elif name in ("low", "high"):
            fields[name] = float(value) if abs(value) < LARGEST else float(np.sign(value) * np.inf)
        else:
            fields[name] = int(value)
    sizes = fields.get("shape") or [fields.get(name, 1) for name in ("height", "width", "channels")]
    if min(sizes, default=1) < 0 or np.prod(np.array(sizes, float)) > MOST_ENTRIES:
        raise ValueError(f"a space of shape {sizes}")
    space = SPACES[content["kind"]](**fields)
    if flat_size(space) > MOST_ENTRIES:
        raise ValueError(f"a space of {flat_size(space):,} entries")
    return space
