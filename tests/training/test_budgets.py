"""Budgets of steps and time, targets, and going on with a run that is finished or stopped."""

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pcpg
from pcpg.algorithms import ALGORITHMS, World
from pcpg.algos.replay import KeepConfig, ReplayConfig, ReplayExploitConfig, ReplayExploreConfig
from pcpg.budget import Budget, Limits, read_steps, read_time
from pcpg.config import ConfigError
from pcpg.envs.deep_sea import DeepSea
from pcpg.presets import preset
from pcpg.run_config import RunConfig
from pcpg.runs.documents import write_json
from pcpg.runs.folder import CONFIG, RunFolder
from pcpg.runs.metrics import read_metrics
from pcpg.runs.verify import DAMAGED, verify
from pcpg.state import DONE, EXPLOIT, EXPLORE, Ledger, SeedState
from pcpg.training.going_on import go_on
from pcpg.training.sealing import changing

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compile_once")]

Tiny = Callable[..., dict[str, Any]]
ROUND = (3 * 64 + 32) * 3
"""Steps of a tiny round on the lock of horizon 2: three updates of 64 episodes and a visit of 32."""


def train(tiny: Tiny, algo: Any = "pcpg", **options: Any) -> pcpg.Run:
    return pcpg.train("CombinationLock-v0", algo, horizon=2, config=tiny(algo)["agent"], **options)


@pytest.mark.parametrize(
    ("given", "steps"),
    [("500k", 500_000), ("1M", 10**6), ("2.5M", 2_500_000), ("200000", 200_000), (300, 300), ("1_000", 1000)],
)
def test_steps_are_read_as_people_write_them(given: int | str, steps: int) -> None:
    assert read_steps(given) == (steps, False)
    assert read_steps(f"+{given}") == (steps, True)


@pytest.mark.parametrize(("given", "seconds"), [("90s", 90), ("10m", 600), ("1.5h", 5400), ("1h30m", 5400), (45, 45)])
def test_times_are_read_as_people_write_them(given: float | str, seconds: float) -> None:
    assert read_time(given) == (seconds, False)
    assert read_time(f"+{given}" if isinstance(given, str) else f"+{given}s") == (seconds, True)


@pytest.mark.parametrize("wrong", ["", "many", "5x", "-3k", "0", "k"])
def test_what_is_no_number_of_steps_or_no_time_is_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match="steps must be a number such as 500k"):
        read_steps(wrong)
    with pytest.raises(ConfigError, match="a time must look like 90s"):
        read_time(wrong)


@pytest.mark.parametrize("algo", list(ALGORITHMS))
@pytest.mark.parametrize("env_id", ["CombinationLock-v0", "DeepSea-v0", "gymnasium:CartPole-v1", "gymnasium:Taxi-v4"])
@pytest.mark.parametrize("steps", [300_000, 5_000_000])
def test_the_schedule_fits_the_budget_and_working_it_out_again_changes_nothing(
    algo: str, env_id: str, steps: int
) -> None:
    env, limits = pcpg.make(env_id), Limits(steps)
    config = preset(env_id, algo).sized(env, limits)
    assert config.sized(env, limits) == config
    cost = config.cost(env, limits)
    if isinstance(config, ReplayConfig):
        assert config.replay.capacity + config.exploit.visit_episodes * env.max_steps == steps
        return
    assert 3 * cost.round_steps <= steps
    if config.leaves == "cover":  # room for as many policies as the budget may hold
        assert config.explore.max_policies * cost.round_steps >= steps
        given = dataclasses.replace(config, explore=dataclasses.replace(config.explore, max_policies=5))
        assert given.sized(env, limits).explore.max_policies == 5
    else:
        assert config.budget == steps


def test_without_a_budget_the_settings_are_what_they_were() -> None:
    env = pcpg.make("gymnasium:CartPole-v1")
    config = preset("gymnasium:CartPole-v1", "pcpg")
    assert config.sized(env, Limits()).explore.max_policies == 10
    assert "limits" not in RunConfig("Chain-v0", "ppo", preset("Chain-v0", "ppo")).to_json()


def test_a_budget_that_holds_no_two_episodes_is_refused() -> None:
    for algo in ALGORITHMS:
        with pytest.raises(ConfigError, match=r"a budget of 100 steps is too small .* use at least 400"):
            preset("gymnasium:CartPole-v1", algo).sized(pcpg.make("PointMass-v0"), Limits(100))


@pytest.mark.parametrize("algo", list(ALGORITHMS))
@pytest.mark.parametrize("env_id", ["PointMass-v0", "gymnasium:CartPole-v1"])
@pytest.mark.parametrize("max_steps", [100, 1000, 4000])
def test_ten_thousand_steps_are_enough_for_every_algorithm(algo: str, env_id: str, max_steps: int) -> None:
    options = {"steps": max_steps} if env_id == "PointMass-v0" else {"max_steps": max_steps}
    env, limits = pcpg.make(env_id, **options), Limits(10_000)
    config = preset(env_id, algo).sized(env, limits)
    assert config.sized(env, limits) == config
    cost = config.cost(env, limits)
    assert cost.round_steps <= 10_000, "the round that reaches the budget is completed"


@pytest.mark.parametrize("algo", ["pcpg", "pcpg-replay"])
def test_a_small_budget_in_long_episodes_is_spent(algo: Any, tmp_path: Path) -> None:
    run = pcpg.train("Chain-v0", algo, length=20, horizon=500, total_steps=6_000, out=tmp_path / "run")
    assert 4_000 <= run.summary["env_steps"][0] < 9_000


def test_pcpg_spends_half_of_its_steps_on_the_cover_and_the_rest_on_the_task(tiny: Tiny, tmp_path: Path) -> None:
    steps = 14 * ROUND
    run = train(tiny, total_steps=steps, out=tmp_path / "run")
    assert steps <= run.summary["env_steps"][0] < steps + ROUND
    explored = [row for row in read_metrics(run.folder.metrics) if row["phase"] == "explore"]
    assert explored[-1]["env_steps"] >= steps / 2 > explored[-2]["env_steps"]
    # Stopped by its observer, it is as far as it is; resumed, it ends with the same bytes.
    cut = train(tiny, total_steps=steps, out=tmp_path / "cut", observer=lambda progress: progress.step < 5)
    assert not cut.is_finished and cut.summary["rounds"] == 5
    assert cut.policy.act([0.0] * run.env.observation_space.shape[0]) in range(10)
    again = pcpg.resume(tmp_path / "cut")
    for name in ("config.json", "metrics.jsonl", "policy.safetensors", "summary.json"):
        assert (again.path / name).read_bytes() == (run.path / name).read_bytes()
    # Finished, it goes on.
    before = (run.path / "metrics.jsonl").read_bytes()
    more = pcpg.resume(run.path, total_steps=f"+{2 * ROUND}")
    assert more.is_finished and more.config.limits.steps == run.summary["env_steps"][0] + 2 * ROUND
    assert more.summary["env_steps"][0] >= more.config.limits.steps
    assert (run.path / "metrics.jsonl").read_bytes().startswith(before)
    with pytest.raises(ConfigError, match="adds none"):
        pcpg.resume(run.path, total_steps=10)
    with pytest.raises(ConfigError, match=r"add more, as in --steps \+500k"):
        pcpg.resume(run.path, until=3.0)


def test_a_baseline_goes_on_with_more_and_ends_at_a_target(tiny: Tiny, tmp_path: Path) -> None:
    run = train(tiny, "ppo", until=-100.0)
    assert run.summary["rounds"] == 1, "any return is above the target"
    with pytest.raises(ConfigError, match="extend it with"):
        pcpg.resume(run.path, until=3.0)
    more = pcpg.resume(run.path, total_steps="+2k", until=1000.0)
    assert more.summary["env_steps"][0] >= run.summary["env_steps"][0] + 2000


def test_the_command_line_has_the_same_limits(cli: Callable[..., Any], config_file: Any, tmp_path: Path) -> None:
    out = tmp_path / "run"
    answer = cli("train", "--config", config_file("ppo", seeds=1), "--until", -100, "--out", out, "--json")
    assert answer.json["env_steps_per_seed"] == ROUND
    assert "a seed stops at a return of -100" in answer.err
    resumed = cli("resume", out, "--steps", "+1k", "--until", 1000, "--json").json
    assert resumed["env_steps_per_seed"] >= ROUND + 1000
    assert cli("resume", out, "--steps", "1x").code == 2


def state(phase: int) -> SeedState[Any]:
    ledger = Ledger.start(0, 0).noted(phase=phase, env_steps=100, round=4, last_return=1.0)
    return SeedState(ledger, None, None, None)


def test_no_round_is_begun_that_would_likely_end_after_the_time() -> None:
    late, early = (Budget(Limits(seconds=100.0), time.monotonic() - spent) for spent in (85.0, 70.0))
    ledger = state(EXPLOIT).ledger
    assert late.is_over(ledger) and not early.is_over(ledger)  # four rounds so far: 21 s each, 17.5 s
    assert late.why_over(ledger) == "time" and early.why_over(ledger) is None
    assert early.ends_exploration(state(EXPLORE).ledger, has_task=True)
    assert not early.ends_exploration(state(EXPLORE).ledger, has_task=False)


def test_what_was_spent_before_anything_was_explored_is_no_part_of_its_share() -> None:
    budget = Budget(Limits(steps=200))  # of which 100 are spent
    assert budget.ends_exploration(state(EXPLORE).ledger, has_task=True)
    assert not budget.ends_exploration(state(EXPLORE).ledger, has_task=True, begun=0.1)  # until 0.55
    assert budget.ends_exploration(state(EXPLORE).ledger.noted(env_steps=110), has_task=True, begun=0.1)


def test_a_target_ends_a_seed_in_any_phase() -> None:
    for phase in (EXPLORE, EXPLOIT):
        assert Budget(Limits(until=1.0)).why_over(state(phase).ledger) == "target"
        assert Budget(Limits(until=1.5)).why_over(state(phase).ledger) is None


def test_what_follows_at_the_end_of_the_time_or_at_the_target_is_for_the_algorithm_to_say() -> None:
    env = DeepSea(4)
    baseline, cover, data = (preset("DeepSea-v0", algo).agent(World(env)) for algo in ("ppo", "pcpg", "pcpg-replay"))
    assert baseline.stopped(state(EXPLOIT), "time").phase == DONE
    assert cover.stopped(state(EXPLORE), "target").phase == cover.stopped(state(EXPLOIT), "time").phase == DONE
    assert cover.stopped(state(EXPLORE), "time").phase == EXPLORE, "its rounds see to the time themselves"
    # A seed that keeps its data still learns the task from them.
    assert data.stopped(state(EXPLORE), "time").phase == data.stopped(state(EXPLORE), "target").phase == EXPLOIT
    assert data.stopped(state(EXPLOIT), "time").phase == DONE


def test_a_run_that_exploits_a_cover_has_none_of_its_limits(tiny: Tiny) -> None:
    explored = train(tiny, total_steps=14 * ROUND, until=100.0)
    exploited = pcpg.exploit(explored, config={"exploit": {"num_rounds": 1}})
    assert exploited.config.limits == Limits() and exploited.summary["rounds"] == 1


def test_a_run_that_goes_on_stays_sealed_even_where_it_is_killed_in_between(tiny: Tiny, tmp_path: Path) -> None:
    run = train(tiny, "ppo", out=tmp_path / "run", seeds=2)
    folder = RunFolder.open(run.path)

    def damaged() -> list[Any]:
        return [one for one in verify(RunFolder.open(run.path)) if one.state == DAMAGED]

    opened = go_on(folder, steps=f"+{ROUND}")
    assert opened.is_sealed and not opened.is_finished and not damaged()
    assert opened.seal(CONFIG) is not None and opened.manifest is not None
    assert pcpg.load(run.path).summary["rounds"] == opened.manifest.step
    with pytest.raises(OSError, match="killed"), changing(opened, opened.manifest.step):
        write_json(run.path / CONFIG, opened.config | {"lanes": 1}, sealed=True)
        raise OSError("killed")
    assert not damaged()
    ended = pcpg.resume(run.path)
    assert ended.is_finished and ended.config.lanes == 1 and not damaged()
    assert min(ended.summary["env_steps"]) > min(run.summary["env_steps"])


def test_of_a_run_that_is_not_finished_a_damaged_checkpoint_is_told_and_not_read(tiny: Tiny, tmp_path: Path) -> None:
    run = train(tiny, "ppo", out=tmp_path / "run", observer=lambda seen: seen.step < 2)
    assert not run.is_finished and run.summary["rounds"] == 2
    [newest] = sorted(run.folder.checkpoints.iterdir())[-1:]
    state = newest / "state.json"
    state.write_bytes(state.read_bytes().replace(b'"step": 2', b'"step": 3', 1))
    with pytest.warns(UserWarning, match="falling back to the checkpoint of step 1"):
        assert pcpg.load(run.path).summary["rounds"] == 1


@pytest.mark.parametrize("random_return", [-1.0, 1e9])
def test_exploration_begins_where_the_reward_alone_does_not_beat_random_play(
    random_return: float, tiny: Tiny, tmp_path: Path
) -> None:
    config = tiny("pcpg")["agent"]
    config["explore"] |= {"reward_first": 0.3, "random_return": random_return}
    config["exploit"] |= {"keep_best": True}
    steps = 14 * ROUND
    run = pcpg.train("CombinationLock-v0", "pcpg", horizon=2, config=config, total_steps=steps, out=tmp_path / "run")
    rows = read_metrics(run.folder.metrics)
    phases = [row["phase"] for row in rows]
    if random_return < 0:
        assert set(phases) == {"exploit"} and run.summary["policies"] == [0]
    else:
        first = phases.index("explore")
        assert rows[first - 1]["env_steps"] >= 0.3 * steps > rows[first - 2]["env_steps"]
        after = phases[first:].index("exploit") + first
        assert rows[after - 1]["env_steps"] >= 0.65 * steps > rows[after - 2]["env_steps"]
        assert phases == ["exploit"] * first + ["explore"] * (after - first) + ["exploit"] * (len(rows) - after)
    # The last round plays two policies in 32 episodes each, and trains none.
    assert rows[-1]["env_steps"] - rows[-2]["env_steps"] <= 2 * 32 * 3 and "train/return" not in rows[-1]
    assert run.summary["final_return"][0] == rows[-1]["return"]
    stopped = pcpg.train(
        *("CombinationLock-v0", "pcpg"),
        **{"horizon": 2, "config": config, "total_steps": steps, "out": tmp_path / "cut"},
        observer=lambda progress: progress.step < 3,
    )
    again = pcpg.resume(stopped.path)
    assert (again.path / "policy.safetensors").read_bytes() == (run.path / "policy.safetensors").read_bytes()


def rounds_of(path: Path) -> list[str]:
    return [row["phase"] for row in read_metrics(path / "metrics.jsonl")]


def test_kept_data_go_on_with_their_task_and_keep_the_best_policy(tmp_path: Path) -> None:
    out, config = tmp_path / "run", {"exploit": {"visit_episodes": 8}}
    run = pcpg.train("DeepSea-v0", "pcpg-replay", size=4, total_steps=2000, config=config, out=out, progress=False)
    before, rounds = run.summary, len(rounds_of(out))
    after = pcpg.resume(out, total_steps="+200", progress=False).summary
    assert rounds_of(out)[rounds:] and set(rounds_of(out)[rounds:]) == {"exploit"}
    assert after["best_return"][0] >= before["best_return"][0]
    assert after["env_steps"][0] > before["env_steps"][0]


def test_kept_data_that_were_cut_go_on_exploring(tmp_path: Path) -> None:
    out, config = tmp_path / "run", {"exploit": {"visit_episodes": 8}}
    run = pcpg.train("DeepSea-v0", "pcpg-replay", size=8, total_steps=1200, config=config, out=out, progress=False)
    rounds = len(rounds_of(out))
    assert run.summary["env_steps"][0] < 2000
    pcpg.resume(out, total_steps="+1500", progress=False)
    assert rounds_of(out)[rounds:].count("explore") >= 4


@pytest.mark.parametrize(
    ("quiet", "closer", "seconds", "explored", "goes_on"),
    [
        (5, 0, 0.0, 100, True),  # it was done
        (2, 0, 0.0, 100, False),  # by its time or a target
        (2, 1, 0.0, 100, True),  # a closer look found the reward
        (2, 1, 9.0, 100, False),  # the time was over, for all that is known
        (2, 1, 0.0, 990, False),  # its room was used up
    ],
)
def test_a_task_goes_on_only_where_nothing_had_cut_the_exploration_before_it(
    quiet: int, closer: int, seconds: float, explored: int, goes_on: bool
) -> None:
    agent = ReplayConfig(KeepConfig(capacity=1000), ReplayExploreConfig(num_episodes=8), ReplayExploitConfig(backups=8))
    arrays = {".quiet": np.asarray(quiet), ".closer": np.asarray(closer), ".explored": np.asarray(explored)}
    phase = agent.reopened(arrays, DeepSea(4), Limits(seconds=seconds))
    assert phase == (EXPLOIT if goes_on else EXPLORE)
