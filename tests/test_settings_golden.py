"""What runs of every algorithm are resolved to, by environment and limits, is what it was: tests/golden/settings.json.

    python -m tests.test_settings_golden      writes the file anew; its diff says what has changed

Of each environment and algorithm the file holds the whole configuration without limits, and for each limit the
entries that differ from it, by their path, or the message with which it is refused.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from pcpg import run_config
from pcpg.algorithms import ALGORITHMS
from pcpg.config import ConfigError
from pcpg.run_config import RunConfig

FILE = Path(__file__).parent / "golden" / "settings.json"
ENVIRONMENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "lock 2": ("CombinationLock-v0", {"horizon": 2}),
    "lock 15": ("CombinationLock-v0", {"horizon": 15}),
    "lock 100": ("CombinationLock-v0", {"horizon": 100}),
    "maze 10": ("Maze-v0", {"size": 10}),
    "maze 20": ("Maze-v0", {"size": 20}),
    "deep sea": ("DeepSea-v0", {}),
    "mountain car": ("MountainCarContinuous-v0", {}),
    "host lake": ("gymnasium:FrozenLake-v1", {}),
    "host cart": ("gymnasium:CartPole-v1", {}),
    "host mountain car": ("gymnasium:MountainCarContinuous-v0", {}),
    "host pendulum": ("gymnasium:Pendulum-v1", {}),
}
LIMITS: dict[str, dict[str, Any]] = {
    "steps 20k": {"steps": 20_000},
    "steps 300k": {"steps": 300_000},
    "steps 5M": {"steps": 5_000_000},
    "60 seconds": {"seconds": 60.0},
    "until 1": {"until": 1.0},
}


def resolved(env: str, algo: str, limits: dict[str, Any]) -> dict[str, Any] | str:
    """The configuration of a run with everything worked out, or why it is refused."""
    name, options = ENVIRONMENTS[env]
    given = {"env": name, "env_options": options, "algo": algo, "limits": limits}
    try:
        return json.loads(json.dumps(RunConfig.from_json(given).resolved().to_json()))
    except ConfigError as error:
        return str(error)


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """The entries of nested objects by their path."""
    if not isinstance(value, dict) or not value:
        return {path: value}
    return {name: leaf for key, part in value.items() for name, leaf in leaves(part, f"{path}.{key}").items()}


def table_of(env: str) -> dict[str, Any]:
    """By algorithm: the configuration without limits, and what each limit changes."""
    table: dict[str, Any] = {}
    for algo in ALGORITHMS:
        whole = resolved(env, algo, {})
        before = leaves(whole)
        table[algo] = {"no limits": whole}
        for name, limits in LIMITS.items():
            found = resolved(env, algo, limits)
            after, gone = leaves(found), "(gone)"
            changed = {
                path: after.get(path, gone) for path in {**before, **after} if before.get(path) != after.get(path)
            }
            table[algo][name] = found if isinstance(found, str) else changed
    return table


@pytest.fixture(autouse=True)
def endless_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a machine has free is no part of the settings."""
    monkeypatch.setattr(run_config, "free_memory", lambda: None)


@pytest.mark.parametrize("env", ENVIRONMENTS)
def test_every_algorithm_is_resolved_to_the_settings_of_old_under_every_limit(env: str) -> None:
    golden = json.loads(FILE.read_text())[env]
    found = json.loads(json.dumps(table_of(env)))
    assert golden.keys() <= found.keys(), "an algorithm may come, none may go"
    wrong = {
        f"{algo}, {limit}{path}": (leaves(expected)[path], leaves(found[algo][limit]).get(path))
        for algo, limits in golden.items()
        for limit, expected in limits.items()
        for path in leaves(expected)
        if leaves(found[algo][limit]).get(path) != leaves(expected)[path]
    }
    assert not wrong, "by place: what it was, what it is now"
    assert {algo: found[algo] for algo in golden} == golden


@pytest.mark.parametrize("env", ["lock 15", "maze 10", "host cart"])
@pytest.mark.parametrize("limits", [{}, *LIMITS.values()], ids=str)
def test_settings_that_are_resolved_stay_as_they_are(env: str, limits: dict[str, Any]) -> None:
    for algo in ALGORITHMS:
        once = resolved(env, algo, limits)
        if isinstance(once, dict):
            assert json.loads(json.dumps(RunConfig.from_json(once).resolved().to_json())) == once


if __name__ == "__main__":
    tables = {env: table_of(env) for env in ENVIRONMENTS}
    FILE.write_text(json.dumps(tables, indent=0, sort_keys=True, separators=(",", ":")) + "\n")
