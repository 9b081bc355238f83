"""The types of settings are those of the dataclasses, and a type checker finds a wrong name or value in a call."""

import dataclasses
import subprocess
import sys
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import pcpg
from pcpg.algorithms import ALGORITHMS

SETTINGS = [row.settings for row in ALGORITHMS.values()]
GROUPS = {frozenset(field.name for field in dataclasses.fields(kind)): kind for kind in SETTINGS}
"""By the names of their fields. An algorithm may do without a type: an editor then completes nothing."""


def agrees(typed: Any, kind: Any) -> None:
    """Check that a TypedDict has the entries of a dataclass, with their types."""
    own, found = typing.get_type_hints(kind), typing.get_type_hints(typed)
    fields = [field.name for field in dataclasses.fields(kind)]
    assert list(found) == fields and not typed.__required_keys__
    for name in fields:
        if dataclasses.is_dataclass(own[name]):
            agrees(found[name], own[name])
        elif name == "bonus":  # its name, or its settings with the name among them
            assert found[name] == str | Mapping[str, object] | None
        else:
            assert found[name] == (Sequence[int] if own[name] == tuple[int, ...] else own[name]), name


@pytest.mark.parametrize("typed", typing.get_args(pcpg.Settings), ids=lambda typed: typed.__name__)
def test_the_types_of_settings_are_those_of_the_dataclasses(typed: Any) -> None:
    agrees(typed, GROUPS[frozenset(typed.__annotations__)])
    assert isinstance(pcpg.Settings, types.UnionType)


RIGHT = """
import pcpg
pcpg.train("Maze-v0", "ppo", config={"ppo": {"learning_rate": 1e-3, "hidden": [64, 64]}, "budget": 1000})
pcpg.train("Maze-v0", "pcpg-deep", config={"learn": {"updates": 4.0}, "explore": {"bonus_form": "root"}})
settings: pcpg.Settings = {"replay": {"ignored": (0, 1)}}
pcpg.train("Maze-v0", config=settings, size=10)
"""
WRONG = (
    '{"ppo": {"lr": 1}}',
    '{"ppo": {"learning_rate": "fast"}}',
    '{"learning_rate": 1e-3}',
    '{"explore": {"bonus_form": "cubic"}}',
)


@pytest.mark.slow
def test_a_type_checker_finds_a_wrong_name_or_value(tmp_path: Path) -> None:
    calls = [f'pcpg.train("Maze-v0", config={settings})' for settings in WRONG]
    (tmp_path / "snippet.py").write_text(RIGHT + "\n".join(calls))
    command = [Path(sys.executable).with_name("basedpyright"), "--pythonpath", sys.executable, "snippet.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    first = RIGHT.count("\n") + 1
    errors = {int(line.split(":")[1]) for line in done.stdout.splitlines() if " - error: " in line}
    assert errors == set(range(first, first + len(WRONG))), done.stdout
