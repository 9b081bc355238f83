"""What a look chooses, on measurements that are made up, and a run that was chosen for."""

from typing import Any

import gymnasium
import numpy as np
import pytest

import pcpg
from pcpg.algos.auto import LOOK_SHARE, choose, chosen_line, flags_of, look_and_choose
from pcpg.algos.look import Look, look
from pcpg.budget import Limits
from pcpg.config import ConfigError
from pcpg.envs import make
from pcpg.envs.adapters.names import register_function
from pcpg.run_config import chosen_by_a_look
from pcpg.runs.folder import RunFolder
from pcpg.runs.metrics import read_metrics
from pcpg_lab.envs import own_tasks

CARTPOLE = Look(
    episodes=40,
    env_steps=800,
    steps_per_second=1e4,
    max_steps=500,
    lengths=(9, 20.0, 60),
    ended_early=1.0,
    rewarded_steps=1.0,
    rewards=(1.0, 1.0),
    returns=(9.0, 20.0, 60.0),
    shape=(4,),
    kind="vector",
    observed=(-2.4, 2.5),
    constant=0,
    distinct=800,
    first=40,
    differs_after_reset=True,
    noise=(),
    by_action=1.0,
    good=0.9,
    return_error=1.0,
    again=0.0,
)


class Pixels(gymnasium.Env[Any, Any]):
    """A light that moves to the right over a dark picture; the end pays."""

    observation_space = gymnasium.spaces.Box(0, 255, (16, 16, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)
    max_steps = 15

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.place = 0
        return self.seen(), {}

    def seen(self) -> np.ndarray:
        picture = np.zeros((16, 16, 3), np.uint8)
        picture[:, self.place] = 255
        return picture

    def step(self, action: Any) -> Any:
        self.place = self.place + 1 if action else 0
        return self.seen(), float(self.place == 15), self.place == 15, False, {}

    def idle(self, action: Any) -> Any:
        return self.seen(), 0.0, False, False, {}


UNPAID: dict[str, Any] = {"good": 0.0, "returns": (-200.0, -200.0, -200.0), "return_error": 0.0}
GRID: dict[str, Any] = {"shape": (147,), "kind": "zeros and ones", "observed": (0.0, 1.0), "layout": 20.0}
PICTURE: dict[str, Any] = {"shape": (64, 64, 3), "kind": "image", "observed": (0.0, 255.0)}


@pytest.mark.parametrize(
    ("seen", "algo", "begins_with_reward"),
    [
        ({}, "pcpg", True),  # it is paid for every step that it lasts
        ({"is_continuous": True}, "pcpg-deep", False),  # paid or not
        (PICTURE | {"layout": 1000.0, "is_continuous": True, "shape": (210, 160, 3)}, "pcpg", True),
        ({"kind": "one-hot", "shape": (500,), "distinct": 365}, "pcpg-replay", False),
        ({"differs_after_reset": False, "distinct": 60}, "pcpg-replay", False),
        ({"distinct": 60, "again": 0.9}, "pcpg-replay", False),  # from other starts to the same places
        ({"distinct": 60, "again": 0.1} | UNPAID, "pcpg-deep", False),
        ({"shape": (2,)} | UNPAID, "pcpg-deep", False),
        ({"shape": (2,), "noise": (0, 1)} | UNPAID, "pcpg-deep", False),  # nothing lasts
        ({"shape": (100,)} | UNPAID, "pcpg-deep", False),
        ({"shape": (6,), "noise": (4,)} | UNPAID, "pcpg-deep", False),
        ({"differs_after_reset": False, "distinct": 60, "noise": (3,)}, "pcpg", True),  # what is paid may be for it
        (GRID | UNPAID, "ppo-ranked", False),
        (GRID | UNPAID | {"distinct": 60, "again": 0.9}, "ppo-ranked", False),  # views are alike in all levels
        (GRID | UNPAID | {"layout": 4.0}, "pcpg-deep", False),  # another start in the same world
        (GRID | {"good": 0.1}, "pcpg", True),
        (GRID | UNPAID | {"differs_after_reset": False}, "pcpg-deep", False),
        (PICTURE | UNPAID | {"layout": 3000.0}, "ppo-ranked", False),
        (PICTURE | UNPAID | {"layout": 1000.0}, "pcpg-deep", False),  # something small that starts elsewhere
    ],
)
def test_the_first_row_that_fits_decides(seen: dict[str, Any], algo: str, begins_with_reward: bool) -> None:
    choice = choose(CARTPOLE._replace(**seen))
    assert choice.algo == algo and ("explore" in choice.agent) is begins_with_reward


@pytest.mark.parametrize(
    "seen",
    [{"shape": (6,), "noise": (1, 4)}, {"shape": (9,), "noise": (4,), "differs_after_reset": False, "distinct": 60}],
)
def test_noise_beside_what_is_short_or_comes_again_is_ignored(seen: dict[str, Any]) -> None:
    choice = choose(CARTPOLE._replace(**seen | UNPAID))
    assert choice.algo == "pcpg-replay" and choice.agent == {"replay": {"ignored": seen["noise"]}}
    assert flags_of(choice)[1] == f"--replay.ignored {' '.join(map(str, seen['noise']))}"


@pytest.mark.parametrize("action_space", [gymnasium.spaces.Box(-1, 1, (8,)), gymnasium.spaces.MultiDiscrete([5] * 6)])
@pytest.mark.parametrize("seen", [{"kind": "one-hot", "differs_after_reset": False}, {"shape": (3,), "noise": (0,)}])
def test_data_are_not_kept_where_actions_are_too_many_to_compare(action_space: Any, seen: dict[str, Any]) -> None:
    made = type("Made", (Pixels,), {"action_space": action_space, "step": Pixels.idle})
    found = look(make(register_function(made)), most_steps=100)
    assert not found.can_keep and look(make(register_function(Pixels)), most_steps=100).can_keep
    assert choose(CARTPOLE._replace(**seen | UNPAID)).algo == "pcpg-replay"
    assert choose(CARTPOLE._replace(**seen | UNPAID, can_keep=found.can_keep)).algo == "pcpg-deep"


def test_ppo_has_to_beat_random_play_by_three_standard_errors() -> None:
    assert choose(CARTPOLE).agent["explore"] == {"reward_first": 0.3, "random_return": 23.0}


def test_where_layouts_change_and_random_play_is_paid_nothing_but_the_reward_is_learned_from() -> None:
    paid = CARTPOLE._replace(**GRID, good=0.1)
    assert choose(paid).agent["explore"]["reward_first"] == 1.0
    assert choose(paid._replace(differs_after_reset=False)).agent["explore"]["reward_first"] == 0.3


def test_observations_of_another_size_are_normalised() -> None:
    for observed in ((-300.0, 2.0), (0.0, 0.04)):
        assert choose(CARTPOLE._replace(observed=observed)).agent["ppo"] == {"normalise_observations": True}


def test_pictures_that_come_again_are_kept_and_their_task_is_solved_by_the_name_alone(tmp_path: Any) -> None:
    run = pcpg.train(Pixels, total_steps="30k", out=tmp_path / "run")
    assert run.config.algo == "pcpg-replay" and run.evaluate(20).mean_return == [1.0]


@pytest.mark.parametrize("seen", [{}, {"shape": (210, 160, 3), "distinct": 1, "good": 0.0}])
def test_pictures_that_are_paid_or_large_are_for_networks_which_scale_them_as_they_are(seen: dict[str, Any]) -> None:
    choice = choose(CARTPOLE._replace(**PICTURE | {"differs_after_reset": False} | seen))
    assert choice.algo == "pcpg" and "ppo" not in choice.agent


def test_a_choice_is_said_as_the_flags_that_make_it() -> None:
    flags = flags_of(choose(CARTPOLE._replace(observed=(0.0, 90.0))))
    assert flags == [
        "--algo pcpg",
        "--explore.reward-first 0.3",
        "--explore.random-return 23",
        "--ppo.normalise-observations",
    ]


def test_what_is_compiled_is_not_looked_at() -> None:
    assert chosen_by_a_look("CombinationLock-v0", {}, Limits()) == {"algo": "pcpg"}


def test_a_look_takes_at_most_its_share_of_the_budget() -> None:
    found = chosen_by_a_look("gymnasium:CliffWalking-v1", {"max_steps": 100}, Limits(steps=50_000))
    assert found["algo"] == "pcpg-replay" and 0 < found["looked"]["env_steps"] <= LOOK_SHARE * 50_000
    assert len(found["looked"]["saw"]) == 3 and found["looked"]["chose"].startswith("chosen: --algo pcpg-replay")


def test_a_look_by_itself_shows_and_chooses_what_a_run_without_flags_does() -> None:
    name = "gymnasium:FrozenLake-v1"
    alone, in_run = look_and_choose(name, {}), chosen_by_a_look(name, {}, Limits())["looked"]
    assert alone.choice is not None and in_run["chose"] == chosen_line(alone.choice)
    assert in_run["env_steps"] == alone.env_steps


def test_noise_is_told_from_what_lasts_and_layouts_from_starts() -> None:
    stages = chosen_by_a_look("gymnasium:pcpg_lab.envs.own_tasks:Stages-v0", {}, Limits(steps=100_000))
    assert stages["algo"] == "pcpg-replay" and stages["agent"] == {"replay": {"ignored": (0, 1, 2)}}
    assert "observations repeat apart from 3 entries of noise" in stages["looked"]["chose"]
    assert "3 entries of noise; without noise " in stages["looked"]["saw"][2]
    env = gymnasium.make("pcpg_lab.envs.own_tasks:NewMaze-v0")
    mazes = {env.reset(seed=seed)[0][0].tobytes() for seed in range(8)}
    assert len(mazes) == 8, "every reset has another maze"


def test_the_goal_of_every_new_maze_can_be_reached() -> None:
    env = own_tasks.NewMaze()
    for seed in range(20):
        env.reset(seed=seed)
        reached, edge = {(0, 0)}, [(0, 0)]
        while edge:
            row, column = edge.pop()
            for down, right in own_tasks.MOVES.tolist():
                cell = row + down, column + right
                inside = min(cell) >= 0 and max(cell) < env.size
                if inside and env.open[cell] and cell not in reached:
                    reached.add(cell)
                    edge.append(cell)
        assert (env.size - 1, env.size - 1) in reached


def test_the_three_stages_are_passed_in_their_order() -> None:
    env = own_tasks.Stages()
    env.reset(seed=0)
    up, down, _, right = range(4)
    paid = [env.step(move)[1] for move in [right] * 7 + [down] * 7 + [up] * 7]
    assert sum(paid) == 0 and env.stage == 0, "the chest and the way out come after the key"
    env.reset(seed=0)
    moves = [down] * 7 + [up] * 7 + [right] * 7 + [down] * 7
    paid = [env.step(move)[1] for move in moves]
    assert paid == [0.0] * 27 + [1.0] and len(moves) < env.max_steps


def test_steps_of_the_look_are_counted_in_a_run_of_a_name_alone(tmp_path: Any) -> None:
    run = pcpg.train("gymnasium:FrozenLake-v1", total_steps="6k", max_steps=20, num_envs=8, out=tmp_path / "run")
    assert run.config.algo == "pcpg-replay" and 0 < run.config.looked["env_steps"] <= 120
    first = read_metrics(run.folder.metrics)[0]["env_steps"]
    assert run.config.looked["env_steps"] < first and run.summary["env_steps"][0] <= 6000
    assert pcpg.load(run.path).config.looked == run.config.looked


def test_the_reward_cannot_come_first_without_a_budget() -> None:
    with pytest.raises(ConfigError, match=r"explore.reward_first is a share of the budget"):
        pcpg.train("CombinationLock-v0", "pcpg", horizon=2, config={"explore": {"reward_first": 0.3}})


def test_the_command_says_what_was_seen_and_chosen_unless_a_setting_is_given(
    cli: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pcpg.cli.train.train_folder", lambda *arguments, **asked: 0)
    answer = cli("train", "gymnasium:CartPole-v1", "--algo", "auto", "--steps", "200k", "--out", tmp_path / "auto")
    said = " ".join(answer.err.split())
    assert "reward: 100.00% of steps have a reward" in said and "chosen: --algo pcpg --explore.reward-first 0.3" in said
    chosen = RunFolder.open(tmp_path / "auto").config
    assert chosen["looked"]["env_steps"] <= 4000 and chosen["agent"]["explore"]["reward_first"] == 0.3
    given = ("--ppo.hidden", "8", "--steps", "200k", "--out", tmp_path / "given")
    assert "chosen" not in cli("train", "gymnasium:CartPole-v1", *given).err
    assert "looked" not in RunFolder.open(tmp_path / "given").config
