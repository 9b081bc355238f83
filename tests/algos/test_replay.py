"""PC-PG that keeps its data: the lock within 100k steps, exact to resume, on any kind of actions."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pcpg
from pcpg.algorithms import World
from pcpg.algos.on_data import Episodes
from pcpg.algos.replay import ReplayAgent, ReplayConfig
from pcpg.algos.replay_explore import ReplayExploreConfig
from pcpg.algos.replay_task import GRAINS, SMOOTH_GRAINS, Grain, ReplayExploitConfig, grains_for, refined_landmarks
from pcpg.budget import NO_LIMITS, Budget, Limits
from pcpg.config import ConfigError
from pcpg.data import Batch, Kept
from pcpg.engine.together import stepped, together
from pcpg.envs.deep_sea import DeepSea
from pcpg.envs.lock import CombinationLock
from pcpg.kernel import fitting, inputs
from pcpg.kernel.landmarks import no_landmarks
from pcpg.kernel.views import KeepConfig, scale_of
from pcpg.runs.metrics import read_metrics
from pcpg.state import DONE, EXPLOIT, EXPLORE, NonFinite
from pcpg.training.storage import assets_of
from tests.algos.test_pcpg import train
from tests.probes import Delayed, ProbeState

TINY = {"explore": {"patience": 2, "min_value": 0.4}, "replay": {"capacity": 5000}, "exploit": {"visit_episodes": 8}}


def agent_of(env: Any, config: Any = None) -> ReplayAgent:
    config = config or ReplayConfig()
    return config.sized(env, NO_LIMITS).agent(World(env))


def awaited(agent: ReplayAgent, asked: Any) -> Any:
    """What a part of a round returns."""
    [found] = together([asked], agent.programs)
    return found


def task_inputs(agent: ReplayAgent, state: Any) -> Any:
    return awaited(agent, agent.task.inputs(state, agent.task.grain_of(state)))


def data_of(run: Any, seed: int) -> Kept:
    """All transitions that a seed of a run has kept."""
    [assets] = assets_of(run.folder, run.config, [seed], run.env)
    assert isinstance(assets.data, Kept)
    return assets.data


@pytest.fixture(scope="module")
def solved():
    return train(agent_of(CombinationLock(8)), [1000, 1001])


def test_the_lock_of_horizon_8_is_solved_from_the_data_within_100k_steps(solved):
    states, reports = solved
    for seed, state in states.items():
        assert float(state.ledger.last_return) > 3.9
        assert int(state.ledger.env_steps) <= 100_000
        evaluated = reports[seed][-1].metrics
        explored = reports[seed][-2].metrics
        assert evaluated["env_steps"] - explored["env_steps"] == 32 * 9, "the task is learned without a new step"


def test_without_the_bonus_it_is_not(solved):
    states, _ = solved
    explore = ReplayExploreConfig(bonus_coef=0.0, min_value=0.0)
    steps = max(int(state.ledger.env_steps) for state in states.values())
    agent = agent_of(CombinationLock(8), ReplayConfig(KeepConfig(capacity=2 * steps), explore))
    states, _ = train(agent, [1000, 1001])
    assert all(float(state.ledger.last_return) < 1.0 for state in states.values())


def test_every_transition_is_kept_and_every_step_is_counted(solved):
    for state in solved[0].values():
        assert state.own.kept.size == int(state.ledger.env_steps)
        assert len(state.own.kept.observations) == 6 * 8 + 1 - 2 + 0, "all states that can be met, the end among them"


def test_exploration_ends_when_the_start_promises_little_for_some_rounds(solved):
    for reports in solved[1].values():
        ahead = [report.metrics["bonus_ahead"] for report in reports if report.metrics["phase"] == "explore"]
        assert max(ahead[-5:]) < 0.2 <= min(max(ahead[i : i + 5]) for i in range(len(ahead) - 5))


def test_transitions_are_left_out_of_a_fit_only_where_more_observations_differ_than_there_is_room_for(
    solved, monkeypatch
):
    agent, state = agent_of(CombinationLock(8)), solved[0][1000]
    whole = task_inputs(agent, state)
    monkeypatch.setattr(inputs, "MOST_SHARES", 0)
    for most, used in ((50, whole.weight.sum()), (10, 10)):
        monkeypatch.setattr(inputs, "MOST_FITTED", most)
        assert task_inputs(agent, state).weight.sum() == used
    assert whole.weight.sum() > 1000


def test_the_kernel_of_a_task_is_narrower_in_its_second_round_and_in_its_third(solved):
    agent, state = agent_of(CombinationLock(8)), solved[0][1000]
    scales = [task_inputs(agent, state.noted(phase_round=at)).landmarks.inverse_scale for at in range(4)]
    for scale, narrower in zip(scales, (1, 4, 16, 1), strict=True):
        np.testing.assert_allclose(scale, narrower * np.asarray(scales[0]))


def test_with_shares_among_the_nearest_landmarks_alone_values_hardly_change(solved, monkeypatch):
    env, state = CombinationLock(8), solved[0][1000].noted(phase_round=0)
    given = task_inputs(agent_of(env), state)
    (whole,) = agent_of(env).task.solve.run([given])
    monkeypatch.setattr(fitting, "MOST_SHARES", 0)
    (nearest,) = agent_of(env).task.solve.run([given])
    np.testing.assert_allclose(nearest.value, whole.value, rtol=1e-3)
    np.testing.assert_allclose(nearest.w, whole.w, atol=1e-3)


@pytest.mark.parametrize(("width", "has_root"), [(100.0, False), (0.3, True)])
def test_landmarks_of_a_task_that_would_be_more_than_allowed_are_spread_out_without_features(width, has_root):
    kept = kept_of_rows(np.random.default_rng(0).random((200, 2), np.float32))
    agent = agent_of(DeepSea(4), ReplayConfig(KeepConfig(max_landmarks=64)))
    old = no_landmarks(np.full(2, width), 64)
    found = awaited(agent, refined_landmarks(agent.kernel, kept, np.arange(200), old, Grain(4.0)))
    assert (int(found.count) == 64) is not has_root
    assert np.asarray(found.root).any() == has_root


@pytest.mark.parametrize(("kind", "follows"), [("median", True), ("raw", False)])
def test_the_kernel_is_as_wide_as_the_data_say_or_as_it_is_told(kind, follows):
    rows = np.random.default_rng(0).random((50, 2), np.float32)
    keep = KeepConfig(bandwidth=0.5, bandwidth_scale=kind)
    near, far = (scale_of(keep, kept_of_rows(size * rows), None) for size in (1, 10))
    np.testing.assert_allclose(near, 10 * far if follows else np.full(2, 2.0), rtol=1e-4)


def kept_of_rows(rows):
    kept = Kept(rows.shape[1:], rows.dtype)
    codes, _ = kept.numbers_of(rows)
    nothing = np.zeros(len(rows))
    kept.add(Batch(rows[:0], codes, codes, *(nothing.astype(kind) for kind in (int, float, bool, bool, bool))))
    return kept


def test_a_task_is_tried_with_each_grain_and_then_with_the_best_and_the_others_in_turns(solved):
    task, state = agent_of(CombinationLock(8)).task, solved[0][1000].owning(best_grain=np.int32(2))
    turns = [task.grain_of(state.noted(phase_round=turn)) for turn in range(9)]
    assert turns == [0, 1, 2, 2, 0, 2, 1, 2, 2]


def test_a_return_that_is_enough_by_chance_alone_is_that_of_fresh_episodes_in_the_end(solved):
    agent, state = agent_of(CombinationLock(8)), solved[0][1000]
    state = state._replace(best_policy=agent.init(1000).policy).owning(confirms=np.asarray(True))
    state = state.noted(phase=EXPLOIT, best_return=1e6)
    [(after, report)] = stepped(agent, [state])
    assert float(after.ledger.best_return) == report.metrics["return"] < 1.0, (
        "what the policy earns, not what it was said to"
    )
    assert not after.own.confirms and after.phase == EXPLOIT
    assert after.ledger.phase_round == state.ledger.phase_round
    assert report.metrics["env_steps"] - int(state.ledger.env_steps) == 32 * 9
    [(found, _)] = stepped(agent, [after])
    assert float(found.ledger.best_return) > 3.9 and found.phase == DONE


@pytest.mark.parametrize(
    ("returns", "last", "is_doubtful"),
    [([4.0, 4.0, 4.0, 4.0], 4.0, False), ([4.5, 2.6, 4.4, 2.6], 3.525, True), ([9.0] * 4, 0.0, True)],
)
def test_a_policy_is_played_again_where_its_return_may_be_enough_by_chance(solved, returns, last, is_doubtful):
    agent = agent_of(CombinationLock(8))
    state = solved[0][1000].noted(best_return=max(np.mean(returns), last), last_return=last)
    assert agent.task.is_by_chance(state, np.array(returns)) is is_doubtful


def test_values_are_interpolated_where_short_observations_hardly_come_again():
    rng = np.random.default_rng(0)
    short, again = rng.random((1000, 2), np.float32), rng.integers(25, size=(1000, 2)).astype(np.float32)
    for rows, grains in ((short, SMOOTH_GRAINS), (short[:400], GRAINS), (again, GRAINS)):
        assert grains_for(kept_of_rows(rows)) == grains
    long = rng.random((1000, 40), np.float32)
    assert grains_for(kept_of_rows(long)) == GRAINS


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
        kept, episodes = state.own.kept, state.own.kept.episodes()
        assert sorted(np.concatenate(episodes)) == list(range(kept.size))
        for places in episodes:
            code, after = kept.column("code")[places], kept.column("next_code")[places]
            assert (code[1:] == after[:-1]).all(), "each step begins where the last one led"
            assert kept.column("first")[places].tolist() == [True] + [False] * (len(places) - 1)
            assert kept.ends[places].tolist() == [False] * (len(places) - 1) + [True]


BROKEN = {"reward": False, "observation": False}


@dataclasses.dataclass(frozen=True)
class BrokenInSeed1(Delayed):
    """Two decisions; in seed 1 the second gives a NaN wherever BROKEN says so."""

    def instance(self, seed: int) -> Any:
        return {name: np.asarray(seed == 1 and broken) for name, broken in BROKEN.items()}

    def reset(self, key: jax.Array, params: Any) -> Any:
        return super().reset(key, ())

    def transition(self, key: jax.Array, state: ProbeState, action: jax.Array, params: Any) -> Any:
        step, ends = super().transition(key, state, action, ()), state.time == 1
        reward = jnp.where(ends & params["reward"], jnp.nan, step.reward)
        return step._replace(
            reward=reward, observation=jnp.where(ends & params["observation"], jnp.nan, step.observation)
        )


@pytest.mark.parametrize("phase", [EXPLORE, EXPLOIT])
@pytest.mark.parametrize("where", ["reward", "observation"])
def test_a_round_with_a_number_that_is_not_finite_leaves_the_data_as_they_were_and_other_seeds_go_on(
    where, phase, monkeypatch
):
    config = ReplayConfig(
        KeepConfig(capacity=4000),
        ReplayExploreConfig(num_episodes=8, patience=2, min_value=0.5),
        ReplayExploitConfig(visit_episodes=8),
    )
    agent = agent_of(BrokenInSeed1(), config)
    healthy, _ = train(agent, [0, 1])
    states = [agent.init(seed) for seed in (0, 1)]
    states = [state for state, _ in stepped(agent, states)]
    while states[1].phase != phase:
        states = [state for state, _ in stepped(agent, states)]
    kept = states[1].own.kept
    size, observations = kept.size, kept.observations.copy()
    assert size == int(states[1].ledger.env_steps)
    for _ in range(2):  # once more: what was met in the failed round is not known from it
        monkeypatch.setitem(BROKEN, where, True)
        other, error = together([agent.step(state) for state in states], agent.programs)
        assert isinstance(error, NonFinite) and "seed 1: the visits of the newest policy contain" in str(error)
        assert not isinstance(other, NonFinite)
        assert other[0].own.kept.size == int(other[0].ledger.env_steps), "of the seed beside it everything is kept"
        states[0] = other[0] if other[0].phase != DONE else agent.init(0)
        assert kept.size == size
        np.testing.assert_array_equal(kept.observations, observations)

    monkeypatch.setitem(BROKEN, where, False)
    state = states[1]
    while state.phase != DONE:
        ((state, _),) = stepped(agent, [state])
    for name in kept._columns:
        np.testing.assert_array_equal(state.own.kept.column(name), healthy[1].own.kept.column(name))
    for x, y in zip(jax.tree.leaves(state.policy), jax.tree.leaves(healthy[1].policy), strict=True):
        np.testing.assert_array_equal(x, y)


def test_the_budget_of_data_ends_exploration_before_it_is_exceeded():
    config = ReplayConfig(KeepConfig(capacity=1000), ReplayExploreConfig(min_value=0.0), ReplayExploitConfig(backups=0))
    states, _ = train(agent_of(CombinationLock(8), config), [0])
    assert 1000 - 32 * 9 < states[0].own.kept.size <= 1000


def test_with_a_target_the_task_is_tried_on_the_way_and_exploration_ends_when_it_is_reached(
    solved, tmp_path: Path
) -> None:
    run = pcpg.train("CombinationLock-v0", "pcpg-replay", horizon=8, seed=1000, until=3.5, out=tmp_path / "run")
    phases = [row["phase"] for row in read_metrics(run.folder.metrics)]
    assert phases[-2:] == ["exploit", "exploit"], "the try that reached the target, and the evaluation after it"
    assert run.summary["env_steps"][0] < 0.7 * int(solved[0][1000].ledger.env_steps)
    assert run.evaluate(20).mean_return[0] > 3.5
    never = {"config": {"explore": {"attempts": 0.0}, "replay": {"capacity": 4000}}}
    other = pcpg.train("CombinationLock-v0", "pcpg-replay", horizon=8, until=3.5, out=tmp_path / "never", **never)
    assert [row["phase"] for row in read_metrics(other.folder.metrics)].count("exploit") == 1


def test_an_agent_says_why_its_exploration_ended():
    def why(env: Any, config: Any, limits: Limits = NO_LIMITS) -> list[str]:
        agent = config.sized(env, limits).agent(World(env, budget=Budget(limits)))
        first, state = agent.ended(agent.init(0)), train(agent, [0])[0][0]
        return [first, agent.ended(state)]

    explore, free = ReplayExploreConfig(patience=2, min_value=0.5), ReplayExploreConfig(min_value=0.0)
    assert why(CombinationLock(3), ReplayConfig(explore=explore)) == ["exploring", "quiet"]
    assert why(CombinationLock(3), ReplayConfig(KeepConfig(capacity=500), free)) == ["exploring", "full"]
    assert why(CombinationLock(3), ReplayConfig(explore=free), Limits(steps=500)) == ["exploring", "budget"]
    agent = agent_of(CombinationLock(3))
    stopped = agent.stopped(agent.init(0), "target")
    assert stopped.phase == EXPLOIT and agent.ended(stopped) == "target"


class Demanding(DeepSea):
    """DeepSea that calls itself solved at a return that nobody can earn."""

    @property
    def solved_return(self) -> float:
        return 10.0


def test_a_task_is_tried_again_while_what_the_environment_calls_solved_is_not_reached():
    config = ReplayConfig(KeepConfig(capacity=3000), exploit=ReplayExploitConfig(visit_episodes=8, steps=100))

    def tries(env: DeepSea) -> int:
        _, reports = train(agent_of(env, config), [0])
        return [report.metrics["phase"] for report in reports[0]].count("exploit")

    assert tries(DeepSea(4)) == 1
    assert tries(Demanding(4)) == 1 + 100 // (8 * 4), "as often as its steps allow"


def test_where_no_steps_are_named_a_task_that_is_not_solved_has_all_that_there_is_room_for():
    exploit = ReplayExploitConfig(visit_episodes=8)
    config = ReplayConfig(KeepConfig(capacity=1500), exploit=exploit)
    kept = {env: train(agent_of(env(4), config), [0])[0][0].own.kept.size for env in (DeepSea, Demanding)}
    assert kept[DeepSea] < 1300
    assert 1500 - 8 * 4 < kept[Demanding] <= 1500 + 8 * 4


def files_of(path: Path) -> dict[str, bytes]:
    names = ("metrics.jsonl", "policy.safetensors", "summary.json")
    return {name: (path / name).read_bytes() for name in names} | {
        member.name: member.read_bytes() for member in sorted((path / "cover").iterdir())
    }


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
    stages = "gymnasium:pcpg_lab.envs.own_tasks:Stages-v0"
    run = pcpg.train(stages, "pcpg-replay", config=settings, seed=1000, out=tmp_path / "run")
    kept = data_of(run, 1000)
    assert not kept.observations[:, :3].any() and len(kept.observations) <= 64 * 3 < kept.size
    seen = np.random.default_rng(0).random((20, 8), np.float32)
    other = seen.copy()
    other[:, :3] = 7.0
    values = [np.asarray(run.policy.network.values(one)) for one in (seen, other)]
    np.testing.assert_array_equal(*values)
    with pytest.raises(ConfigError, match=r"replay.ignored names entry 8, but an observation's last entry is 7"):
        pcpg.train(stages, "pcpg-replay", config={"replay": {"ignored": [8]}})


def test_entries_of_listed_observations_can_be_ignored_too(tmp_path: Path) -> None:
    config = TINY | {"replay": {"ignored": [0], "capacity": 2000}}  # whether the state is the first of a level
    run = pcpg.train("CombinationLock-v0", "pcpg-replay", horizon=2, config=config, out=tmp_path / "run")
    kept = data_of(run, 0)
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
