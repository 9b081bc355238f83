"""One way to say a setting: the same names, checks and messages from Python, flags, TOML and JSON."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from pcpg.cli.train_flags import read_train_flags
from pcpg.config import ConfigError, from_plain, positive


@dataclasses.dataclass(frozen=True)
class Learner:
    learning_rate: float = 1e-3
    num_epochs: int = 4
    hidden: tuple[int, ...] = (64, 64)
    form: Literal["root", "raw"] = "root"
    anneal: bool = True

    def __post_init__(self) -> None:
        positive(self, "learning_rate")


@dataclasses.dataclass(frozen=True)
class Settings:
    learner: Learner = Learner()
    extra: Learner | None = None
    cell: tuple[int, int] | str | None = None
    limit: float | None = None
    out: Path | None = None


def build(env: Any, rng: Any, *, num_features: int = 8, kernels: Sequence[int] = (1,), codes: Any = None) -> None:
    """Such as makes a feature map."""


def test_absent_entries_come_from_the_default_and_numbers_are_converted() -> None:
    base = Settings(learner=Learner(num_epochs=7), limit=2.0)
    made = from_plain(Settings, {"learner": {"learning_rate": 1, "hidden": [8]}, "extra": {}}, "agent", base)
    assert made == Settings(Learner(1.0, 7, (8,)), Learner(), limit=2.0)
    assert isinstance(made.learner.learning_rate, float)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"lr": 1}, "unknown entry of agent 'lr'; did you mean 'learner.learning_rate'? Valid: learner, extra"),
        ({"learner": {"n_epochs": 1}}, "unknown entry of agent.learner 'n_epochs'; did you mean 'num_epochs'?"),
        ({"lerner": {}}, "unknown entry of agent 'lerner'; did you mean 'learner'?"),
        ({"learner": {"hidden": 64}}, "agent.learner.hidden must be a list, got 64"),
        ({"learner": {"hidden": [64, "x"]}}, "agent.learner.hidden must be an integer, got 'x'"),
        ({"learner": {"num_epochs": True}}, "agent.learner.num_epochs must be an integer, got True"),
        ({"learner": {"learning_rate": 0}}, "agent.learner: learning_rate must be positive, got 0"),
        ({"learner": {"form": "rot"}}, "unknown value of agent.learner.form 'rot'; did you mean 'root'?"),
        ({"learner": None}, "agent.learner must be an object, got None"),
        ({"cell": [1, 2, 3]}, "agent.cell must be text, got [1, 2, 3]"),
        ({"limit": float("nan")}, "agent.limit must be finite, got nan"),
        ({"limit": "1"}, "agent.limit must be a number, got '1'"),
    ],
)
def test_a_wrong_entry_is_refused_with_its_place_and_the_nearest_name(data: Any, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        from_plain(Settings, data, "agent")
    assert message in str(refused.value)


def test_words_of_the_command_line_become_values_of_the_type_of_the_field() -> None:
    words = {
        "learner": {"learning_rate": ["1e-2"], "num_epochs": ["1_000"], "hidden": ["8", "4"], "anneal": False},
        "extra": {"form": ["raw"]},
        "cell": ["3", "7"],
        "limit": ["none"],
        "out": ["runs/a"],
    }
    learner = Learner(0.01, 1000, (8, 4), anneal=False)
    assert from_plain(Settings, words, "", text=True) == Settings(
        learner, Learner(form="raw"), (3, 7), None, Path("runs/a")
    )
    assert from_plain(Settings, {"cell": ["3,7"]}, "", text=True).cell == "3,7"
    with pytest.raises(ConfigError, match=r"--learner.num-epochs must be an integer, got 'many'"):
        from_plain(Settings, {"learner": {"num_epochs": ["many"]}}, "", text=True)
    with pytest.raises(ConfigError, match=r"--learner.hidden must be an integer, got 'x'"):
        from_plain(Settings, {"learner": {"hidden": ["8", "x"]}}, "", text=True)


def test_the_arguments_of_a_function_are_settings_too() -> None:
    assert from_plain(build, {"kernels": ["2", "3"]}, "--phi", {"num_features": 5}, text=True) == {
        "num_features": 5,
        "kernels": (2, 3),
    }
    with pytest.raises(ConfigError, match="unknown entry of phi 'num_feature'; did you mean 'num_features'"):
        from_plain(build, {"num_feature": 1}, "phi")


TOML = """
env = "Chain-v0"
algo = "pcpg"
seeds = 2
features = "fourier"
[env_options]
length = 5
[agent.ppo]
hidden = [16]
learning_rate = 0.01
[agent.explore]
max_policies = 3
[feature_options]
num_features = 6
[limits]
steps = 200000
"""


def test_flags_toml_and_json_say_the_same(tmp_path: Path) -> None:
    import tomllib

    (tmp_path / "run.toml").write_text(TOML, encoding="utf-8")
    (tmp_path / "run.json").write_text(json.dumps(tomllib.loads(TOML)), encoding="utf-8")
    flags = "Chain-v0 --algo pcpg --seeds 2 --features fourier --env.length 5 --ppo.hidden 16 --ppo.learning-rate 0.01"
    flags += " --explore.max-policies 3 --phi.num-features 6 --steps 200k"
    ways = [["--config", str(tmp_path / "run.toml")], ["--config", str(tmp_path / "run.json")], flags.split()]
    toml, from_json, from_flags = (read_train_flags(words, print)[0].to_json() for words in ways)
    assert toml == from_json == from_flags
    assert toml["agent"]["ppo"]["hidden"] == (16,) and toml["limits"]["steps"] == 200_000
