"""The lock's table at smoke scale, and its practical half against the exact model of the lock."""

import dataclasses

import jax
import numpy as np
import pytest

import pcpg
from pcpg.algorithms import ALGORITHMS
from pcpg.algos.pcpg_settings import PCPGConfig
from pcpg.algos.ppo import BaselineConfig
from pcpg.config import from_plain
from pcpg.envs.lock import CombinationLock
from pcpg_lab.claims import lock
from pcpg_lab.claims.harness import run_or_read
from pcpg_lab.claims.lock import PAPER_EPISODES, Flags, make_cell, paper_budget
from tests.values import occupancy, policy_value

pytestmark = pytest.mark.slow

SHORT = {"ppo": {"num_updates": 20}, "explore": {"patience": 3}, "exploit": {"num_rounds": 7}}
BRIEF = from_plain(PCPGConfig, SHORT, "config", ALGORITHMS["pcpg"].presets.compiled)


def run_pcpg(out, seeds=1, agent=BRIEF):
    """The record of PC-PG at H = 5."""
    cell = make_cell(Flags(scale="smoke", seeds=seeds), "pcpg", 5)
    return run_or_read(cell._replace(config=dataclasses.replace(cell.config, agent=agent)), out, lock.measure)


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """PC-PG at H = 5 on a seed that was not tuned on, and PPO with as many steps as PC-PG used."""
    out = tmp_path_factory.mktemp("lock")
    ours = run_pcpg(out)
    ppo = make_cell(Flags(scale="smoke", seeds=1), "ppo", 5, max(ours["env_steps"]))
    return out, [ours, run_or_read(ppo, out, lock.measure)]


def test_pcpg_solves_the_lock_of_horizon_5_and_ppo_with_as_many_steps_does_not(records):
    _, (ours, ppo) = records
    assert min(ours["final_return"]) > 3.5, ours["final_return"]
    assert max(ppo["final_return"]) < 0.5, ppo["final_return"]
    assert min(ppo["env_steps"]) >= max(ours["env_steps"])


def test_pcpg_covers_both_locks_to_their_ends(records):
    _, (ours, _) = records
    for rows in ours["history"].values():
        assert rows[-1][2:] == [5, 5]


def test_a_cell_that_is_done_is_not_run_again(records):
    out, (ours, _) = records
    assert run_pcpg(out)["time"] == ours["time"]
    with pytest.raises(ValueError, match="choose another --out"):
        run_pcpg(out, seeds=3)
    names = r"\(ppo.num_updates, explore.patience, exploit.num_rounds\)"
    with pytest.raises(ValueError, match=f"other settings {names}: choose another --out"):
        run_pcpg(out, agent=ALGORITHMS["pcpg"].presets.compiled)


def test_the_summary_counts_successes_with_intervals_and_names_its_budgets(records):
    _, both = records
    cells = lock.CLAIM.summarise(both)["cells"]
    assert [(cell["algo"], cell["budget"], cell["successes"]) for cell in cells] == [
        ("pcpg", "own", 1),
        ("ppo", "equal", 0),
    ]
    assert cells[0]["interval"][1] == 1.0 and cells[1]["interval"][0] == 0.0
    text = lock.table({"cells": cells})
    assert "**1/1**" in text and "**0/1**" in text


def _record(budget: int, rows: list) -> dict:
    return {
        "algo": "ppo",
        "horizon": 2,
        "config": {"budget": budget},
        "history": {"0": rows},
        "final_return": [rows[-1][1]],
        "env_steps": [rows[-1][0]],
        "best_successes": 0,
        "seconds": 1.0,
        "device": "cpu",
        "commit": None,
        "time": "",
        "command": "",
    }


def test_a_run_of_the_papers_budget_gives_the_column_of_equal_samples_too():
    long = _record(paper_budget(2), [[100, 4.0, 0, 0], [250, 1.0, 0, 0], [PAPER_EPISODES * 3, 4.0, 0, 0]])
    ours = _record(0, [[200, 4.0, 2, 2]]) | {"algo": "pcpg"}
    cells = lock.CLAIM.summarise([ours, long])["cells"]
    assert [(cell["budget"], cell["successes"]) for cell in cells] == [("own", 1), ("paper", 1), ("equal", 0)]
    assert cells[2]["env_steps_per_seed"] == 250  # the first round that reached PC-PG's 200


def test_steps_to_solve_are_those_after_which_a_seed_stays_solved():
    rows = [[10, 4.0, 0, 0], [20, 0.0, 0, 0], [30, 3.9, 0, 0], [40, 4.0, 0, 0]]
    ours = _record(0, rows) | {"algo": "pcpg", "horizon": 7}
    assert lock.steps_to_solve([ours]) == [(7, 30)]


@pytest.mark.parametrize("algo", ["ppo", "ppo-rnd"])
def test_the_baselines_have_the_papers_settings(algo):
    config = make_cell(Flags(), algo, 15, used=1_000_000).config.agent
    assert isinstance(config, BaselineConfig)
    ppo = config.ppo
    assert (ppo.num_epochs, ppo.minibatch_size, ppo.learning_rate, ppo.entropy_coef) == (5, 160, 1e-3, 0.01)
    assert (ppo.clip_eps, ppo.gae_lambda, ppo.max_grad_norm, ppo.hidden) == (0.2, 0.95, 5.0, (64, 64))
    assert config.budget == 48_000_000


def test_estimated_coverage_and_return_agree_with_the_exact_model(tmp_path):
    horizon = 3
    config = {
        "ppo": {"num_updates": 10, "num_episodes": 256},
        "explore": {"max_policies": 3, "visit_episodes": 2000},
        "exploit": {"num_rounds": 3},
    }
    run = pcpg.train("CombinationLock-v0", horizon=horizon, seed=3, config=config, out=tmp_path / "run")
    env = CombinationLock(horizon)
    model = env.tabular(env.instance(3))
    for index in range(int(run.cover.size)):
        policy = np.asarray(jax.nn.softmax(run.cover.member(index).outputs(model.observations)), np.float64)
        visits = occupancy(model, policy / policy.sum(axis=1, keepdims=True), env.max_steps).sum(axis=1)
        visits[model.terminal] = 0.0  # the state after the last decision is acted in no more
        exact = np.einsum("s,si,sj->ij", visits / visits.sum(), model.observations, model.observations)
        # An entry is a mean over 2,000 independent episodes of numbers in [0, 1]: five standard errors.
        np.testing.assert_allclose(run.cover.sigmas[index], exact, atol=5 * 0.5 / np.sqrt(2000))
    policy = np.asarray(jax.nn.softmax(run.policy.network.outputs(model.observations)), np.float64)
    exact_return = policy_value(model, policy / policy.sum(axis=1, keepdims=True), env.max_steps)
    returns = run.evaluate(4000).returns[0]
    assert abs(returns.mean() - exact_return) < 5 * max(returns.std(), 0.1) / np.sqrt(4000)
