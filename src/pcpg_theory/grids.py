"""The paper's tables of hyper-parameters as data: the values that it considered, and those that it chose.

Names are ours, as on the command line: the paper's learning rate is `ppo.learning_rate`. Values that a table shows with
one entry were not varied. Tables: appendix_exp, "PPO+RND" and "PC-PG", each for lock and MountainCar, and for mazes.
"""

import itertools
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

Value = float | int | bool | tuple[int, ...]
Algo = Literal["pcpg", "ppo-rnd"]
Task = Literal["lock", "mountaincar", "maze"]


class Considered(NamedTuple):
    """The values of a setting that were tried, and the one of each task."""

    values: tuple[Value, ...]
    final: Mapping[Task, Value]


def _fixed(value: Value, tasks: tuple[Task, ...]) -> Considered:
    return Considered((value,), dict.fromkeys(tasks, value))


_SMALL: tuple[Task, ...] = ("lock", "mountaincar")
_RATES = (1e-3, 5e-4, 1e-4)
_SHARED = {
    _SMALL: {
        "ppo.hidden": (64, 64),
        "ppo.gae_lambda": 0.95,
        "ppo.max_grad_norm": 5.0,
        "ppo.entropy_coef": 0.01,
        "ppo.clip_eps": 0.2,
        "ppo.minibatch_size": 160,
        "ppo.num_epochs": 5,
    },
    ("maze",): {
        "ppo.hidden": (512,),
        "ppo.gae_lambda": 0.95,
        "ppo.max_grad_norm": 0.5,
        "ppo.entropy_coef": 0.01,
        "ppo.clip_eps": 0.1,
        "ppo.minibatch_size": 128,
        "ppo.num_epochs": 10,
    },
}
_COEFFICIENTS = (1.0, 10.0, 1e2, 1e3, 1e4)
_VARIED: dict[tuple[Algo, tuple[Task, ...]], dict[str, Considered]] = {
    ("ppo-rnd", _SMALL): {
        "ppo.learning_rate": Considered(_RATES, {"lock": 1e-3, "mountaincar": 1e-4}),
        "bonus.normalise": Considered((True, False), dict.fromkeys(_SMALL, False)),
        "bonus.coef": Considered((0.5, *_COEFFICIENTS), dict.fromkeys(_SMALL, 1e3)),
    },
    ("ppo-rnd", ("maze",)): {
        "ppo.learning_rate": Considered(_RATES, {"maze": 1e-3}),
        "bonus.normalise": Considered((True, False), {"maze": True}),
        "bonus.coef": Considered(_COEFFICIENTS, {"maze": 1e3}),
    },
    ("pcpg", _SMALL): {
        "ppo.learning_rate": Considered(_RATES, {"lock": 1e-3, "mountaincar": 5e-4}),
        "explore.epsilon": Considered((0.0, 0.01, 0.05), dict.fromkeys(_SMALL, 0.05)),
    },
    ("pcpg", ("maze",)): {
        "ppo.learning_rate": Considered(_RATES, {"maze": 5e-4}),
        "explore.epsilon": _fixed(0.05, ("maze",)),
    },
}


def considered(algo: Algo, task: Task) -> dict[str, Considered]:
    """The table of an algorithm on a task, by setting."""
    for (name, tasks), varied in _VARIED.items():
        if name == algo and task in tasks:
            return varied | {setting: _fixed(value, tasks) for setting, value in _SHARED[tasks].items()}
    raise ValueError(f"the paper has tables of pcpg and ppo-rnd on lock, mountaincar and maze, not of {algo} on {task}")


def final(algo: Algo, task: Task) -> dict[str, Value]:
    """What the paper chose for a task."""
    return {setting: tried.final[task] for setting, tried in considered(algo, task).items()}


def grid(algo: Algo, task: Task) -> Iterator[dict[str, Value]]:
    """Every combination that the paper considered."""
    table = considered(algo, task)
    for values in itertools.product(*(tried.values for tried in table.values())):
        yield dict(zip(table, values, strict=True))
