"""PC-PG that keeps its data: the lock within 100k steps, exact to resume, on any kind of actions."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import pcpg
from pcpg.config import ConfigError, KeepConfig, ReplayConfig, ReplayExploitConfig, ReplayExploreConfig
from pcpg.cover.landmarks import no_landmarks
from pcpg.envs.deep_sea import DeepSea
from pcpg.envs.lock import CombinationLock
from pcpg.practice import fitting, replay_data
from pcpg.practice.fitting import Episodes
from pcpg.practice.grains import GRAINS, SMOOTH_GRAINS, grain_of, grains_for, refined_landmarks
from pcpg.practice.kept import Batch, Kept
from pcpg.practice.replay import ReplayAgent
from pcpg.practice.replay_data import fit_inputs, scale_of
from pcpg.practice.tries import is_by_chance
from pcpg.runs.metrics import read_metrics
from pcpg.state import DONE, EXPLOIT
from pcpg.training.storage import read_data

TINY = {"explore": {"patience": 2, "min_value": 0.4}, "replay": {"capacity": 5000}, "exploit": {"visit_episodes": 8}}


def train(agent: ReplayAgent, seeds: list[int]) -> tuple[dict[int, Any], dict[int, list[Any]]]:
    states = {seed: agent.init(seed) for seed in seeds}
    reports: dict[int, list[Any]] = {seed: [] for seed in seeds}
    while active := [seed for seed in seeds if states[seed].phase != DONE]:
        for seed, (state, report) in zip(active, agent.step([states[seed] for seed in active]), strict=True):
            states[seed] = state
            reports[seed].append(report)
    return states, reports


@pytest.fixture(scope="module")
def solved():
    return train(ReplayAgent(CombinationLock(8), ReplayConfig(), 1), [1000, 1001])


def test_the_lock_of_horizon_8_is_solved_from_the_data_within_100k_steps(solved):
    states, reports = solved
    for seed, state in states.items():
        assert float(state.last_return) > 3.9
        assert int(state.env_steps) <= 100_000
        evaluated = reports[seed][-1].metrics
        explored = reports[seed][-2].metrics
        assert evaluated["env_steps"] - explored["env_steps"] == 32 * 9, "the task is learned without a new step"


def test_without_the_bonus_it_is_not(solved):
    states, _ = solved
    explore = ReplayExploreConfig(bonus_coef=0.0, min_value=0.0)
    steps = max(int(state.env_steps) for state in states.values())
    agent = ReplayAgent(CombinationLock(8), ReplayConfig(KeepConfig(capacity=2 * steps), explore), 1)
    states, _ = train(agent, [1000, 1001])
    assert all(float(state.last_return) < 1.0 for state in states.values())


def test_every_transition_is_kept_and_every_step_is_counted(solved):
    for state in solved[0].values():
        assert state.kept.size == int(state.env_steps)
        assert len(state.kept.observations) == 6 * 8 + 1 - 2 + 0, "all states that can be met, the end among them"


def test_exploration_ends_when_the_start_promises_little_for_some_rounds(solved):
    for reports in solved[1].values():
        ahead = [report.metrics["bonus_ahead"] for report in reports if report.metrics["phase"] == "explore"]
        assert max(ahead[-5:]) < 0.2 <= min(max(ahead[i : i + 5]) for i in range(len(ahead) - 5))


def test_transitions_are_left_out_of_a_fit_only_where_more_observations_differ_than_there_is_room_for(
    solved, monkeypatch
):
    agent, state = ReplayAgent(CombinationLock(8), ReplayConfig(), 1), solved[0][1000]
    state = state._replace(phase=np.int32(EXPLOIT))
    whole = fit_inputs(agent, state)
    monkeypatch.setattr(replay_data, "MOST_SHARES", 0)
    for most, used in ((50, whole.weight.sum()), (10, 10)):
        monkeypatch.setattr(replay_data, "MOST_FITTED", most)
        assert fit_inputs(agent, state).weight.sum() == used
    assert whole.weight.sum() > 1000


def test_the_kernel_of_a_task_is_narrower_in_its_second_round_and_in_its_third(solved):
    agent, state = ReplayAgent(CombinationLock(8), ReplayConfig(), 1), solved[0][1000]
    scales = [
        fit_inputs(agent, state._replace(phase=np.int32(EXPLOIT), phase_round=np.int32(at))).landmarks.inverse_scale
        for at in range(4)
    ]
    for scale, narrower in zip(scales, (1, 4, 16, 1), strict=True):
        np.testing.assert_allclose(scale, narrower * np.asarray(scales[0]))


def test_with_shares_among_the_nearest_landmarks_alone_values_hardly_change(solved, monkeypatch):
    env, state = CombinationLock(8), solved[0][1000]._replace(phase=np.int32(EXPLOIT))
    given = fit_inputs(ReplayAgent(env, ReplayConfig(), 1), state)
    (whole,) = ReplayAgent(env, ReplayConfig(), 1).solve([given])
    monkeypatch.setattr(fitting, "MOST_SHARES", 0)
    (nearest,) = ReplayAgent(env, ReplayConfig(), 1).solve([given])
    np.testing.assert_allclose(nearest.value, whole.value, rtol=1e-3)
    np.testing.assert_allclose(nearest.w, whole.w, atol=1e-3)


@pytest.mark.parametrize(("width", "has_root"), [(100.0, False), (0.3, True)])
def test_landmarks_of_a_task_that_would_be_more_than_allowed_are_spread_out_without_features(width, has_root):
    kept = kept_of_rows(np.random.default_rng(0).random((200, 2), np.float32))
    agent = ReplayAgent(DeepSea(4), ReplayConfig(KeepConfig(max_landmarks=64)), 1)
    model = agent.init(0).model._replace(landmarks=no_landmarks(np.full(2, width), 64))
    state = agent.init(0)._replace(kept=kept, model=model)
    found = refined_landmarks(agent, state, np.arange(200))
    assert (int(found.count) == 64) is not has_root
    assert np.asarray(found.root).any() == has_root


@pytest.mark.parametrize(("kind", "follows"), [("median", True), ("raw", False)])
def test_the_kernel_is_as_wide_as_the_data_say_or_as_it_is_told(kind, follows):
    rows = np.random.default_rng(0).random((50, 2), np.float32)
    agent = ReplayAgent(DeepSea(4), ReplayConfig(KeepConfig(bandwidth=0.5, bandwidth_scale=kind)), 1)
    near, far = (scale_of(agent, kept_of_rows(size * rows), None) for size in (1, 10))
    np.testing.assert_allclose(near, 10 * far if follows else np.full(2, 2.0), rtol=1e-4)


def kept_of_rows(rows):
    kept = Kept(rows.shape[1:], rows.dtype)
    codes, _ = kept.numbers_of(rows)
    nothing = np.zeros(len(rows))
    kept.add(Batch(rows[:0], codes, codes, *(nothing.astype(kind) for kind in (int, float, bool, bool, bool))))
    return kept


def test_a_task_is_tried_with_each_grain_and_then_with_the_best_and_the_others_in_turns(solved):
    state = solved[0][1000]._replace(phase=np.int32(EXPLOIT), best_grain=np.int32(2))
    turns = [grain_of(state._replace(phase_round=np.int32(turn))) for turn in range(9)]
    assert turns == [0, 1, 2, 2, 0, 2, 1, 2, 2]


def test_a_return_that_is_enough_by_chance_alone_is_that_of_fresh_episodes_in_the_end(solved):
    agent, state = ReplayAgent(CombinationLock(8), ReplayConfig(), 1), solved[0][1000]
    lucky, idle = np.asarray(1e6), agent.init(1000).policy
    state = state._replace(phase=np.int32(EXPLOIT), confirms=np.asarray(True), best_return=lucky, best_policy=idle)
    [(after, report)] = agent.step([state])
    assert float(after.best_return) == report.metrics["return"] < 1.0, "what the policy earns, not what it was said to"
    assert not after.confirms and after.phase == EXPLOIT and after.phase_round == state.phase_round
    assert report.metrics["env_steps"] - int(state.env_steps) == 32 * 9
    [(found, _)] = agent.step([after])
    assert float(found.best_return) > 3.9 and found.phase == DONE


@pytest.mark.parametrize(
    ("returns", "last", "is_doubtful"),
    [([4.0, 4.0, 4.0, 4.0], 4.0, False), ([4.5, 2.6, 4.4, 2.6], 3.525, True), ([9.0] * 4, 0.0, True)],
)
def test_a_policy_is_played_again_where_its_return_may_be_enough_by_chance(solved, returns, last, is_doubtful):
    agent = ReplayAgent(CombinationLock(8), ReplayConfig(), 1)
    best = np.asarray(max(np.mean(returns), last))
    state = solved[0][1000]._replace(best_return=best, last_return=np.asarray(last))
    assert is_by_chance(agent, state, np.array(returns)) is is_doubtful


def test_values_are_interpolated_where_short_observations_hardly_come_again(solved):
    rng, state = np.random.default_rng(0), solved[0][1000]
    short, again = rng.random((1000, 2), np.float32), rng.integers(25, size=(1000, 2)).astype(np.float32)
    for rows, grains in ((short, SMOOTH_GRAINS), (short[:400], GRAINS), (again, GRAINS)):
        assert grains_for(state._replace(kept=kept_of_rows(rows))) == grains
    long = rng.random((1000, 40), np.float32)
    assert grains_for(state._replace(kept=kept_of_rows(long))) == GRAINS


@pytest.mark.parametrize(
    ("lengths", "cut", "is_good"),
    [
        ([4, 4, 4, 4], False, False),  # all end at the limit, which is called an end
        ([4, 2, 3, 1], False, True),
        ([4, 2, 3, 4], False, False),  # two are not enough
        ([4, 2, 3, 4], True, True),  # the limit is called one, so that an end at it is real
    ],
)
def test_where_every_step_costs_an_end_is_good_unless_it_is_the_time_limit(lengths, cut, is_good):
    kept = Kept((1,), np.dtype(np.float32))
    alive = np.arange(4)[:, None] < np.array([*lengths, 4])
    last = np.arange(4)[:, None] == np.array([*lengths, 4]) - 1
    truncated = last & (np.arange(5) == 4) & cut
    observations = np.random.default_rng(0).random((5, 5, 1), np.float32)
    kept.add(
        kept.batch_of(
            Episodes(observations, np.zeros((4, 5), int), -np.ones((4, 5)), last & ~truncated, truncated, alive, None)
        )
    )
    assert kept.has_success == is_good


def test_the_kept_transitions_fall_into_whole_episodes(solved):
    for state in solved[0].values():
        kept, episodes = state.kept, state.kept.episodes()
        assert sorted(np.concatenate(episodes)) == list(range(kept.size))
        for places in episodes:
            code, after = kept.column("code")[places], kept.column("next_code")[places]
            assert (code[1:] == after[:-1]).all(), "each step begins where the last one led"
            assert kept.column("first")[places].tolist() == [True] + [False] * (len(places) - 1)
            assert kept.ends[places].tolist() == [False] * (len(places) - 1) + [True]


def test_a_seed_ends_with_the_same_bits_alone_or_beside_others():
    config = ReplayConfig(KeepConfig(capacity=3000), ReplayExploreConfig(patience=2, min_value=0.5))
    agent = ReplayAgent(CombinationLock(3), config, 1)
    together, _ = train(agent, [0, 1, 2])
    alone, _ = train(agent, [1])
    for x, y in zip(jax.tree.leaves(together[1].policy), jax.tree.leaves(alone[1].policy), strict=True):
        np.testing.assert_array_equal(x, y)
    assert int(together[1].env_steps) == int(alone[1].env_steps)


def test_the_budget_of_data_ends_exploration_before_it_is_exceeded():
    config = ReplayConfig(KeepConfig(capacity=1000), ReplayExploreConfig(min_value=0.0), ReplayExploitConfig(backups=0))
    states, _ = train(ReplayAgent(CombinationLock(8), config, 1), [0])
    assert 1000 - 32 * 9 < states[0].kept.size <= 1000


def test_with_a_target_the_task_is_tried_on_the_way_and_exploration_ends_when_it_is_reached(
    solved, tmp_path: Path
) -> None:
    run = pcpg.train("CombinationLock-v0", "pcpg-replay", horizon=8, seed=1000, until=3.5, out=tmp_path / "run")
    phases = [row["phase"] for row in read_metrics(run.folder.metrics)]
    assert phases[-2:] == ["exploit", "exploit"], "the try that reached the target, and the evaluation after it"
    assert run.summary["env_steps"][0] < 0.7 * int(solved[0][1000].env_steps)
    assert run.evaluate(20).mean_return[0] > 3.5
    never = {"config": {"explore": {"attempts": 0.0}, "replay": {"capacity": 4000}}}
    other = pcpg.train("CombinationLock-v0", "pcpg-replay", horizon=8, until=3.5, out=tmp_path / "never", **never)
    assert [row["phase"] for row in read_metrics(other.folder.metrics)].count("exploit") == 1


class Demanding(DeepSea):
    """DeepSea that calls itself solved at a return that nobody can earn."""

    @property
    def solved_return(self) -> float:
        return 10.0


def test_a_task_is_tried_again_while_what_the_environment_calls_solved_is_not_reached():
    config = ReplayConfig(KeepConfig(capacity=3000), exploit=ReplayExploitConfig(visit_episodes=8, steps=100))

    def tries(env: DeepSea) -> int:
        _, reports = train(ReplayAgent(env, config, 1), [0])
        return [report.metrics["phase"] for report in reports[0]].count("exploit")

    assert tries(DeepSea(4)) == 1
    assert tries(Demanding(4)) == 1 + 100 // (8 * 4), "as often as its steps allow"


def test_where_no_steps_are_named_a_task_that_is_not_solved_has_all_that_there_is_room_for():
    exploit = ReplayExploitConfig(visit_episodes=8)
    config = ReplayConfig(KeepConfig(capacity=1500), exploit=exploit)
    kept = {env: train(ReplayAgent(env(4), config, 1), [0])[0][0].kept.size for env in (DeepSea, Demanding)}
    assert kept[DeepSea] < 1300
    assert 1500 - 8 * 4 < kept[Demanding] <= 1500 + 8 * 4


def files_of(path: Path) -> dict[str, bytes]:
    names = ("metrics.jsonl", "policy.safetensors", "summary.json")
    return {name: (path / name).read_bytes() for name in names} | {
        member.name: member.read_bytes() for member in sorted((path / "cover").iterdir())
    }


@pytest.mark.parametrize("stop", [1, 4])
def test_an_interrupted_run_ends_as_one_left_alone_data_included(tmp_path: Path, stop: int) -> None:
    settings: Any = {"algo": "pcpg-replay", "horizon": 3, "seeds": 2, "config": TINY}
    whole = pcpg.train("CombinationLock-v0", out=tmp_path / "whole", **settings)

    def observe(progress: Any) -> None:
        if progress.step == stop:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        pcpg.train("CombinationLock-v0", out=tmp_path / "cut", observer=observe, **settings)
    resumed = pcpg.resume(tmp_path / "cut")
    assert files_of(resumed.path) == files_of(whole.path)
    assert len(read_data(whole.folder, whole.config, 1).episodes()) == whole.summary["env_steps"][1] // 4
    assert resumed.evaluate(4).returns.shape == (2, 4)
    np.testing.assert_array_equal(resumed.evaluate(4).returns, whole.evaluate(4).returns)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "options"),
    [("gymnasium:FrozenLake-v1", {"is_slippery": False})],
)
def test_environments_on_the_host_keep_their_data_too(env: str, options: dict[str, Any], tmp_path: Path) -> None:
    config = TINY | {"replay": {"capacity": 6000}}
    run = pcpg.train(env, "pcpg-replay", config=config, out=tmp_path / "run", **options)
    assert run.summary["env_steps"][0] > 0
    if "Lake" in env:
        assert run.evaluate(20).mean_return == [1.0]
    action = run.policy.act((run.env.observation_space.shape == (4,) and [0.0] * 4) or 0)
    assert int(action) == action


def test_the_data_of_a_maze_lead_to_goals_that_were_named_afterwards_without_a_new_step(tmp_path: Path) -> None:
    explored = pcpg.train("Maze-v0", "pcpg-replay", size=8, out=tmp_path / "maze", config={"explore": {"patience": 2}})
    goals = pcpg.exploit(explored, goals=4, out=tmp_path / "goals")
    assert goals.summary["env_steps"] == [0] * 4
    assert goals.evaluate(10).mean_return == [1.0] * 4
    again = pcpg.load(tmp_path / "goals")
    np.testing.assert_array_equal(again.evaluate(3).returns, goals.evaluate(3).returns)
    some = pcpg.exploit(explored, goals=4, new_steps="7k", out=tmp_path / "some")
    assert all(0 < steps <= 7000 for steps in some.summary["env_steps"])
    assert some.evaluate(10).mean_return == [1.0] * 4
    lazy = pcpg.exploit(explored, reward=lambda observation, action: (action == 4).astype(float))
    assert lazy.policy.act(np.asarray(explored.env.reset(jax.random.key(0), explored.env.instance(0))[0])) == 4


def test_a_task_is_played_and_fitted_again_within_its_steps_and_can_be_resumed(tmp_path: Path) -> None:
    settings: Any = {"algo": "pcpg-replay", "size": 5, "config": TINY | {"exploit": {"steps": 400, "tolerance": -1.0}}}
    explored = pcpg.train("DeepSea-v0", out=tmp_path / "explored", **settings)
    rows = [json.loads(line) for line in (explored.path / "metrics.jsonl").read_text().splitlines()]
    assert [row["phase"] for row in rows].count("exploit") == 1 + 400 // (32 * 5)
    changes: Any = {"new_steps": 400, "config": {"exploit": {"visit_episodes": 8, "tolerance": -1.0}}}
    whole = pcpg.exploit(explored, reward=pay_less, out=tmp_path / "whole", **changes)
    assert whole.summary["env_steps"][0] == 400

    def observe(progress: Any) -> None:
        if progress.step == 4:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        pcpg.exploit(explored, reward=pay_less, out=tmp_path / "cut", observer=observe, **changes)
    resumed = pcpg.resume(tmp_path / "cut", reward=pay_less)
    assert files_of(resumed.path) == files_of(whole.path)


def pay_less(observation: Any, action: Any) -> Any:
    """Another reward than the environment's."""
    return (action == 0) * 0.5 + observation.sum() * 0.0 - 0.4


def test_entries_that_are_ignored_are_not_kept_and_change_no_action(tmp_path: Path) -> None:
    settings = {"replay": {"ignored": [0, 1, 2], "capacity": 6000}}
    stages = "gymnasium:pcpg.envs.adapters.own_tasks:Stages-v0"
    run = pcpg.train(stages, "pcpg-replay", config=settings, seed=1000, out=tmp_path / "run")
    kept = read_data(run.folder, run.config, 1000)
    assert not kept.observations[:, :3].any() and len(kept.observations) <= 64 * 3 < kept.size
    seen = np.random.default_rng(0).random((20, 8), np.float32)
    other = seen.copy()
    other[:, :3] = 7.0
    values = [np.asarray(run.policy.network.values(one)) for one in (seen, other)]
    np.testing.assert_array_equal(*values)
    with pytest.raises(ConfigError, match=r"replay.ignored names entry 8, and the last of an observation is 7"):
        pcpg.train(stages, "pcpg-replay", config={"replay": {"ignored": [8]}})


def test_entries_of_listed_observations_can_be_ignored_too(tmp_path: Path) -> None:
    config = TINY | {"replay": {"ignored": [0], "capacity": 2000}}  # whether the state is the first of a level
    run = pcpg.train("CombinationLock-v0", "pcpg-replay", horizon=2, config=config, out=tmp_path / "run")
    kept = read_data(run.folder, run.config, 0)
    assert kept.size == run.summary["env_steps"][0] and not kept.observations[:, 0].any()
    assert kept.observations.any()


def test_continuous_actions_are_chosen_from_a_grid(tmp_path: Path) -> None:
    config = {"replay": {"capacity": 13_000, "num_actions": 3}, "exploit": {"visit_episodes": 8}}
    run = pcpg.train("MountainCarContinuous-v0", "pcpg-replay", config=config, out=tmp_path / "run")
    action = run.policy.act([-0.5, 0.0], greedy=True)
    assert abs(float(action[0])) in (0.0, 1.0)
    metrics = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert metrics[0]["landmarks"] >= 1 and metrics[-1]["phase"] == "exploit"


def test_observations_are_kept_once_and_numbered_in_the_order_in_which_they_came():
    kept = Kept((2,), np.dtype(np.float32))
    path = np.array([[[0, 0]], [[1, 0]], [[0, 0]], [[2, 2]]], np.float32)  # [T + 1, E, 2]
    yes, no = np.ones((3, 1), bool), np.zeros((3, 1), bool)
    batch = kept.batch_of(Episodes(path, np.int32([[0], [1], [0]]), np.float32([[0], [0], [5]]), no, no, yes, no))
    assert batch.code.tolist() == [0, 1, 0] and batch.next_code.tolist() == [1, 0, 2]
    np.testing.assert_array_equal(kept.observations, np.float32([[0, 0], [1, 0], [2, 2]]))
    assert batch.first.tolist() == [True, False, False]
    kept.add(batch)
    again = Kept((2,), np.dtype(np.float32))
    again.restore(batch)
    assert again.size == kept.size == 3
    for name in Batch._fields[1:]:
        np.testing.assert_array_equal(again.column(name), kept.column(name))
    np.testing.assert_array_equal(again.numbers_of(path[:, 0])[0], [0, 1, 0, 2])


def test_settings_out_of_range_are_refused():
    for wrong, message in (
        ({"max_landmarks": 100}, "max_landmarks must be a power of two of at least 64, got 100"),
        ({"capacity": -1}, "capacity must be 0"),
        ({"tolerance": 0.0}, "tolerance must lie between"),
    ):
        with pytest.raises(ValueError, match=message):
            KeepConfig(**wrong)
    with pytest.raises(ValueError, match="or a multiple of 8, got 12"):
        dataclasses.replace(ReplayExploreConfig(), num_episodes=12)


@pytest.mark.slow
def test_a_later_reward_that_is_larger_is_preferred_to_an_early_one():
    import gymnasium
    from gymnasium import spaces

    import pcpg

    class Patience(gymnasium.Env):
        """The first action decides: 1 after the second step, or 1.1 after the fiftieth; others change nothing."""

        observation_space, action_space = spaces.Box(-1.0, 1.0, (2,)), spaces.Discrete(2)
        max_steps = 50

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.chosen, self.time = -1.0, 0
            return self.seen(), {}

        def seen(self):
            return np.array([self.chosen, self.time / 50], np.float32)

        def step(self, action):
            self.chosen = float(action) if self.time == 0 else self.chosen
            self.time += 1
            paid = 1.0 if (self.chosen, self.time) == (0.0, 2) else 1.1 * ((self.chosen, self.time) == (1.0, 50))
            return self.seen(), paid, self.time == 50, False, {}

    run = pcpg.train(Patience, "pcpg-replay", total_steps="20k", progress=False)
    assert run.evaluate(5).mean_return[0] == pytest.approx(1.1)
