"""Whether to believe a run: sentences from measured numbers, and nothing where nothing is known."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pcpg.envs import make
from pcpg.reports.page import final_return, overview_row
from pcpg.reports.read import CoverData, RunData
from pcpg.reports.verdict import directions, explored, lines, verdict

EXPLORE = {"max_policies": 10, "patience": 3, "min_growth": 0.03, "ridge": 1e-6, "weights": "d-optimal"}


def run_of(
    log_dets: list[float],
    *,
    returns: list[list[float]],
    final: list[float],
    algo: str = "pcpg",
    env: str = "CombinationLock-v0",
    options: dict[str, Any] | None = None,
    is_finished: bool = True,
) -> RunData:
    """A run of some seeds, all alike but for their final returns; `returns` are those of each member's episodes."""
    seeds = range(len(final))
    options = {"horizon": 2} if options is None else options
    config = {"env": env, "env_options": options, "algo": algo, "seed": 0, "seeds": len(final), "features": "identity"}
    config |= {"feature_options": {}, "agent": {"explore": EXPLORE} if algo == "pcpg" else {}}
    rows: list[dict[str, Any]] = [
        {"phase": "explore", "env_steps": 100 * (at + 1), "log_det": value, "return": float(np.mean(own))}
        for at, (value, own) in enumerate(zip(log_dets, returns, strict=True))
    ]
    for row in rows:
        row["coverage"] = 0.5
    each = tuple(np.array(own) for own in returns)
    sigmas, means = np.stack([np.diag([1.0, 0.5, 0.0])] * max(len(each), 1)), np.array([own.mean() for own in each])
    cover = CoverData(sigmas, np.ones(len(each)), means, np.zeros(0), each)
    return RunData(
        path=Path("runs/mine"),
        config=config,
        versions={},
        device=None,
        summary={"seeds": list(seeds), "final_return": final} if is_finished else None,
        records={seed: [*rows, {"phase": "exploit", "env_steps": 9000, "return": final[seed]}] for seed in seeds},
        timings=[],
        covers=dict.fromkeys(seeds, cover) if algo == "pcpg" else {},
        notes=(),
    )


GROWING = [1.0, 3.0, 5.0, 7.0]
LEVEL = [1.0, 3.0, 3.01, 3.01, 3.01]


def test_a_run_that_never_met_a_reward_says_so_and_what_to_try() -> None:
    said = lines(run_of(GROWING, returns=[[0.0, 0.0]] * 4, final=[0.0]))
    assert said[0] == (
        "Reward: No reward was ever met: all 8 episodes that measured the cover returned 0. "
        "The policy cannot have learned the task."
    )
    assert any(line.startswith("Exploitation did not improve on the cover") for line in said)
    assert said[-1] == (
        "Next: explore longer: pcpg train CombinationLock-v0 --env.horizon 2 --steps 18k --out runs/mine-steps"
    )


def test_a_return_that_is_always_the_same_is_as_good_as_none() -> None:
    said = verdict(run_of(LEVEL, returns=[[-200.0] * 3] * 5, final=[-200.0])).said[0]
    assert "Nothing but the same return was ever met: all 15 episodes that measured the cover returned −200.00" in said


def test_episodes_with_a_reward_are_counted() -> None:
    said = verdict(run_of(LEVEL, returns=[[0.0, 0.0, 1.0]] * 5, final=[1.0])).said
    assert said[0] == "Reward: 5 of the 15 episodes that measured the cover returned something other than 0."


@pytest.mark.parametrize(
    ("log_dets", "end", "words"),
    [
        (LEVEL, "done", "Exploration was done: nothing new was found any more."),
        (GROWING, "cut", "Exploration was cut by the budget while it still grew (the last policy added 2.00 nats)."),
        ([float(i) for i in range(10)], "full", "Exploration was cut at 10 policies while it still grew"),
        ([1.0, 3.0, 3.001], "early", "Exploration ended before it was known to be done (the last policy added 0.001"),
    ],
)
def test_why_exploration_ended_is_told_from_its_growth(log_dets: list[float], end: str, words: str) -> None:
    run = run_of(log_dets, returns=[[0.0, 1.0]] * len(log_dets), final=[1.0])
    assert explored(run, 0)[0] == end
    assert any(line.startswith(words) for line in verdict(run).said)


@pytest.mark.parametrize(
    ("ahead", "closer", "limits", "tried", "steps", "end"),
    [
        ([0.9, 0.1, 0.1, 0.1], 0, {}, None, 100, "done"),
        ([0.9, 0.1, 0.1, 0.9], 1, {}, None, 100, "found"),  # a closer look met what it was for
        ([0.9, 0.1, 0.1, 0.9], 1, {}, None, 240, "cut"),  # there was no room for another round
        ([0.9, 0.1, 0.1, 0.9], 1, {"seconds": 9.0}, None, 100, "cut"),  # the time was over, for all that is known
        ([0.9, 0.1, 0.1, 0.9], 0, {}, None, 100, "cut"),
        ([0.9, 0.1, 0.1, 0.9], 0, {"until": 3.0}, 3.2, 100, "reached"),  # by a try
        ([0.9, 0.1, 0.1, 0.9], 0, {"until": 3.0}, None, 100, "cut"),  # by the task, when exploration was over
    ],
)
def test_why_exploration_ended_where_data_are_kept(
    ahead: list[float], closer: int, limits: dict[str, float], tried: float | None, steps: int, end: str
) -> None:
    run = run_of([0.0] * 4, returns=[[0.0]] * 4, final=[3.5])
    settings = {"patience": 3, "min_value": 0.2, "num_episodes": 20}
    run.config["agent"] = {"explore": settings, "replay": {"capacity": 1000}}
    run.config.update(limits=limits, looked={"env_steps": steps})
    if tried is not None:
        run.records[0].insert(4, {"phase": "exploit", "env_steps": 9000, "return": tried})
    else:
        run.records[0].insert(4, {"phase": "exploit", "env_steps": 9000, "return": None})
    for at, (row, value) in enumerate(zip(run.records[0][:4], ahead, strict=True)):
        row |= {"bonus_ahead": value, "closer_looks": closer, "env_steps": steps * (at + 2)}
    assert explored(run, 0)[0] == end


def test_a_run_that_still_explores_is_not_judged() -> None:
    run = run_of(GROWING, returns=[[0.0]] * 4, final=[0.0], is_finished=False)
    run = dataclasses.replace(run, records={0: run.records[0][:-1]})
    assert explored(run, 0)[0] == "going"
    assert verdict(run).command == "pcpg resume runs/mine"


def test_grid_cells_that_no_policy_can_reach_are_named() -> None:
    lock = make("CombinationLock-v0", horizon=2)
    assert lock.reachable_cells(lock.instance(0)).sum() - lock.possible_cells(lock.instance(0)).sum() == 2
    run = run_of(LEVEL, returns=[[0.0, 1.0]] * 5, final=[1.0])
    assert "6 of 12 grid cells, of which no policy can reach 2, were visited" in verdict(run).said[1]
    for row in run.records[0]:
        row["coverage"] = 10 / 12
    assert "were visited (all that can be reached)" in verdict(run).said[1]


def test_the_possible_cells_of_the_lock_are_those_that_its_model_reaches() -> None:
    lock = make("CombinationLock-v0", horizon=3)
    model = lock.tabular(lock.instance(0))
    reached = np.arange(len(model.transitions)) == model.start
    for _ in range(lock.max_steps):
        reached |= (model.transitions[reached].sum(axis=(0, 1))) > 0
    np.testing.assert_array_equal(lock.possible_cells(lock.instance(0)), reached[1:-1])


def test_directions_are_those_in_which_some_policy_goes() -> None:
    assert directions(np.stack([np.diag([1.0, 0.0, 0.0]), np.diag([0.0, 1e-3, 1e-12])]), 1e-6) == 2


def test_one_seed_has_no_interval_and_is_said_to_be_one() -> None:
    run = run_of(LEVEL, returns=[[0.0, 1.0]] * 5, final=[1.0])
    assert "Seeds: one. Nothing is known about how another would come out." in verdict(run).said
    assert np.isnan(final_return(run).low) and overview_row(run, "mine", 0)["final"] == "1.00"
    assert overview_row(run, "mine", 0)["solved_interval"] == ""


def test_seeds_that_disagree_are_counted() -> None:
    run = run_of(LEVEL, returns=[[0.0, 1.0]] * 5, final=[4.0, 4.0, -1.0])
    assert "Seeds: final returns go from −1.00 to 4.00 over 3 seeds; 2 of them are above 3.50." in verdict(run).said
    assert "Exploitation improved on the cover in 2 of 3 seeds" in " ".join(verdict(run).said)
    assert verdict(run).command == "pcpg resume runs/mine --steps +9k"


def test_a_baseline_is_told_to_explore() -> None:
    run = run_of([], returns=[], final=[-0.33], algo="ppo")
    assert verdict(run).command == (
        "pcpg train CombinationLock-v0 --env.horizon 2 --algo pcpg --steps 9k --out runs/mine-algo"
    )


def test_a_run_on_a_function_s_environment_is_told_in_python() -> None:
    run = run_of(GROWING, returns=[[0.0]] * 4, final=[0.0], env="python:scripts.Door", options={"max_steps": 8})
    assert verdict(run).command == 'pcpg.train(Door, "pcpg", total_steps="18k", out="runs/mine-steps")'


def test_seeds_that_had_no_reason_to_explore_are_said_to_have_learned_from_the_reward_alone() -> None:
    run = run_of(LEVEL, returns=[[0.0, 1.0]] * 5, final=[1.0, 1.0])
    first = dataclasses.replace(run, config=run.config | {"agent": {"explore": EXPLORE | {"reward_first": 0.3}}})
    assert not any("Nothing was explored" in line for line in lines(first))
    alone = [{"phase": "exploit", "env_steps": 9000, "return": 1.0}]
    some = dataclasses.replace(first, records=first.records | {1: alone})
    assert any("Nothing was explored in 1 of 2 seeds: from the reward alone" in line for line in lines(some))
    every = dataclasses.replace(first, records={0: alone, 1: alone}, covers={})
    assert "Nothing was explored: from the reward alone PPO did better than random play." in lines(every)
