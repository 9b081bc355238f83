"""The time limit of an environment that declares none: found from random play, the same for every command, counted."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import pcpg
from pcpg.algos.auto import LOOK_SHARE, STEPS, USUAL, WATCHED, Ended, limit_from, limited, look_and_choose
from pcpg.budget import Limits
from pcpg.envs.adapters.names import register_function
from pcpg.envs.registry import complete_options
from pcpg.run_config import RunConfig, chosen_by_a_look
from pcpg.runs.folder import RunFolder
from tests.play.test_play import Corridor


class Clock(gymnasium.Env[Any, Any]):
    """Five places in a ring; after `length` steps it truncates, and declares no limit. Step `dies` terminates."""

    observation_space = spaces.Box(0.0, 5.0, (1,))
    action_space = spaces.Discrete(2)

    def __init__(self, length: int = 37, dies: int = 0) -> None:
        self.length, self.dies = length, dies

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.time = self.place = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.time, self.place = self.time + 1, (self.place + int(action)) % 5
        return np.full(1, self.place, np.float32), 0.0, self.time == self.dies, self.time == self.length, {}


gymnasium.register("OwnClock-v0", entry_point=Clock)
ID = "gymnasium:OwnClock-v0"


@pytest.mark.parametrize(
    ("ends", "limit"),
    [
        ([Ended(1000, False, True)], 1000),
        ([Ended(30, True, False), Ended(137, False, True)], 137),
        ([Ended(n, True, False) for n in (1, 3, 2)], 30),
        ([Ended(n, True, False) for n in (9, 20, 60)], 600),
        ([Ended(n, True, False) for n in (90, 200, 300)], USUAL),
        ([Ended(n, True, False) for n in (600, 700)] + [Ended(700, False, False)], 1400),
        ([Ended(500, True, False)] * 4, 500),  # a clock that calls itself an end
        ([Ended(5, True, False)] * 8, 50),  # the first mistake may end all of them
        ([Ended(WATCHED, False, False)], USUAL),
    ],
)
def test_the_limit_leaves_an_episode_whole_or_room_beyond_random_play(ends: list[Ended], limit: int):
    assert limit_from(ends)[0] == limit


def test_a_limit_that_is_declared_is_not_looked_for():
    found = limited("gymnasium:CartPole-v1", complete_options("gymnasium:CartPole-v1", {}))
    assert found.env.max_steps == 500 and found.env_steps == 0 and not found.said


@pytest.mark.parametrize(
    ("options", "limit", "steps"), [({}, 37, 37), ({"dies": 20}, 200, 160), ({"length": 0}, USUAL, WATCHED)]
)
def test_an_environment_that_truncates_itself_has_its_own_limit_for_every_command(
    cli: Callable[..., Any], tmp_path: Any, options: dict[str, int], limit: int, steps: int
):
    given = [word for name, value in options.items() for word in (f"--env.{name}", value)]
    assert cli("look", ID, *given, "--json").json["max_steps"] == limit
    assert f"max_steps ({limit})" in " ".join(cli("train", ID, *given, "--algo", "ppo", "--help").out.split())
    looked = look_and_choose(ID, complete_options(ID, options))
    chosen = chosen_by_a_look(ID, options, Limits())
    for found in (looked.options, chosen["env_options"]):
        assert found["max_steps"] == limit
    named = RunConfig.from_json({"env": ID, "algo": "ppo", "env_options": options})
    assert named.env_options["max_steps"] == limit and named.looked["env_steps"] == steps
    assert named.resolved().looked == named.looked, "looked for once"
    assert steps < chosen["looked"]["env_steps"] <= max(LOOK_SHARE * STEPS, steps + 2 * limit)
    assert "no time limit declared" in chosen["looked"]["saw"][3] and f"using {limit:,} steps" in named.looked["saw"][0]


def test_steps_of_random_play_that_found_a_limit_are_counted_and_said(cli: Callable[..., Any], tmp_path: Any):
    small = ["--budget", "400", "--ppo.num-episodes", "4", "--ppo.num-updates", "1", "--visit-episodes", "2"]
    answer = cli("train", ID, "--algo", "ppo", "--env.num-envs", "2", *small, "--out", tmp_path / "run")
    assert answer.code == 0 and "no time limit declared; the environment truncates episodes itself" in answer.err
    run = pcpg.load(tmp_path / "run")
    whole_rounds, rest = divmod(run.summary["env_steps"][0] - 37, 6 * 37)
    assert whole_rounds > 0 and rest == 0, "37 steps found the limit"
    assert RunFolder.open(tmp_path / "run").config["env_options"]["max_steps"] == 37


def test_python_finds_the_same_limit_for_a_function():
    name = register_function(Corridor)
    assert RunConfig.from_json({"env": name, "algo": "ppo"}).make_env().max_steps == limited(name, {}).env.max_steps
