"""PC-PG end to end on the smallest lock: it explores, it stops by itself, it solves, and what it costs is counted."""

import dataclasses
import logging
from typing import Any

import jax
import numpy as np
import pytest

from pcpg.algorithms import World
from pcpg.algos.pcpg_settings import ExploitConfig, ExploreConfig, PCPGConfig
from pcpg.cover.bonus import whitening
from pcpg.cover.cover import add_member, empty_cover
from pcpg.engine.together import stepped
from pcpg.envs.lock import CombinationLock
from pcpg.features import make_features
from pcpg.learners.settings import PPOConfig
from pcpg.state import DONE

ENV = CombinationLock(horizon=2)
PHI = make_features("identity", ENV, 0)
WORLD = World(ENV, features=lambda: PHI)
SEEDS = (0, 1, 2, 3)
STEPS = 3  # decisions of an episode, always
REACHABLE = np.array([kind != 2 or level == 2 for _ in range(2) for kind in range(3) for level in (1, 2)])
"""Cells by lock, kind and level: one cannot be dead at level 1."""

PPO = PPOConfig(num_updates=40, num_episodes=128, minibatch_size=64, learning_rate=3e-3, hidden=(32,))
EXPLORE = ExploreConfig(num_groups=16, visit_episodes=128, max_policies=8, min_growth=0.05, patience=3)
CONFIG = PCPGConfig(PPO, EXPLORE, ExploitConfig(num_rounds=6, advantage_floor=1.0))

TINY = PCPGConfig(
    PPOConfig(num_updates=2, num_episodes=32, minibatch_size=32, hidden=(16,)),
    ExploreConfig(num_groups=8, visit_episodes=32, max_policies=3),
    ExploitConfig(num_rounds=2),
)


class Run:
    """The final state of each seed, its reports, and how many programs XLA compiled on the way."""

    def __init__(self, agent, seeds):
        counter = Counter()
        logger = logging.getLogger("jax._src.dispatch")
        logger.addHandler(counter)
        try:
            with jax.log_compiles():
                self.states, self.reports = train(agent, seeds)
        finally:
            logger.removeHandler(counter)
        self.compilations = counter.count


class Counter(logging.Handler):
    """Counts what JAX says it has compiled: the programs' own count is not asked."""

    count = 0

    def emit(self, record):
        self.count += "Finished XLA compilation" in record.getMessage()


def train(agent, seeds):
    states = {seed: agent.init(seed) for seed in seeds}
    reports: dict[int, list[Any]] = {seed: [] for seed in seeds}
    while active := [seed for seed in seeds if states[seed].phase != DONE]:
        for seed, (state, report) in zip(active, stepped(agent, [states[seed] for seed in active]), strict=True):
            states[seed] = state
            reports[seed].append(report)
    return states, reports


def metric(reports, name, phase=None):
    return [report.metrics[name] for report in reports if phase in (None, report.metrics["phase"])]


def assert_same(a, b):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.fixture(scope="module")
def agent():
    return CONFIG.agent(WORLD)


@pytest.fixture(scope="module")
def run(agent):
    return Run(agent, SEEDS)


@pytest.mark.parametrize("seed", SEEDS)
def test_exploration_without_reward_reaches_every_cell_there_is(run, seed):
    explored = [report.part.cells for report in run.reports[seed] if report.part is not None]
    np.testing.assert_array_equal(np.sum(explored, axis=0) > 0, REACHABLE)
    assert metric(run.reports[seed], "coverage")[-1] == pytest.approx(REACHABLE.mean())
    np.testing.assert_array_equal(run.states[seed].ledger.seen, REACHABLE)


@pytest.mark.parametrize("seed", SEEDS)
def test_exploitation_of_the_cover_solves_the_task(run, seed):
    state = run.states[seed]
    assert float(state.ledger.last_return) > 3.5
    exploited = metric(run.reports[seed], "return", "exploit")
    assert (float(state.ledger.last_return), float(state.ledger.best_return)) == (exploited[-1], max(exploited))


def test_a_run_explores_and_then_exploits_for_its_number_of_rounds(run):
    for seed, reports in run.reports.items():
        size = int(run.states[seed].own.cover.size)
        assert metric(reports, "phase") == ["explore"] * size + ["exploit"] * 6
        assert metric(reports, "policies", "explore") == list(range(1, size + 1))
        assert metric(reports, "round") == list(range(size + 6))
        assert [report.part is not None for report in reports] == [True] * size + [False] * 6


def test_each_seed_stops_exploring_by_its_own_rule(run):
    for seed, reports in run.reports.items():
        log_dets = metric(reports, "log_det", "explore")
        growth = [log_dets[n] - log_dets[n - EXPLORE.patience] for n in range(EXPLORE.patience, len(log_dets))]
        assert min(growth[:-1]) >= EXPLORE.min_growth  # never before ...
        assert growth[-1] < EXPLORE.min_growth or len(log_dets) == 8  # ... and then at once
        np.testing.assert_array_equal(run.states[seed].own.log_dets[: len(log_dets)], log_dets)
    assert len({int(state.own.cover.size) for state in run.states.values()}) > 1  # not all at once


def test_a_seed_ends_with_the_same_bits_alone_or_beside_seeds_that_stop_at_other_times(agent, run):
    states, reports = train(agent, [2])
    assert_same(states[2], run.states[2])
    assert [report.metrics for report in reports[2]] == [report.metrics for report in run.reports[2]]


def test_every_round_has_random_numbers_of_its_own_and_every_seed_its_own_instance(agent, run, monkeypatch):
    seen = {"improve": [], "visit": []}

    def recording(part):
        run_alone = getattr(agent, part).run

        def call(inputs):
            seen[part] += [(int(given.seed), int(given.round)) for given in inputs]
            for given in inputs:
                assert_same(given.env_params, ENV.instance(int(given.seed)))
            return run_alone(inputs)

        return call

    for part in seen:
        monkeypatch.setattr(getattr(agent, part), "run", recording(part))
    train(agent, [1, 2])
    rounds = {seed: len(run.reports[seed]) for seed in (1, 2)}
    everything = [(seed, number) for seed, count in rounds.items() for number in range(count)]
    assert sorted(seen["visit"]) == everything
    assert sorted(seen["improve"]) == [(seed, number) for seed, number in everything if number > 0]


def test_every_step_is_counted_roll_ins_and_visits_included(run):
    for seed, reports in run.reports.items():
        rounds = len(reports)
        # The first round only visits; every other has its updates too.
        updates = (rounds - 1) * PPO.num_updates * PPO.num_episodes * STEPS
        assert int(run.states[seed].ledger.env_steps) == rounds * EXPLORE.visit_episodes * STEPS + updates
        one = (EXPLORE.visit_episodes + PPO.num_updates * PPO.num_episodes) * STEPS
        np.testing.assert_array_equal(np.diff(metric(reports, "env_steps")), one)


def test_the_cover_holds_the_policies_and_covariances_of_its_rounds_and_weights_on_the_simplex(run):
    for seed, reports in run.reports.items():
        cover = run.states[seed].own.cover
        for index in range(int(cover.size)):
            member = reports[index].part
            assert_same(cover.member(index), member.policy)
            np.testing.assert_allclose(cover.used[index], member.sigma, atol=1e-6)
        np.testing.assert_allclose(cover.weights.sum(), 1.0, rtol=1e-9)
        assert (cover.weights >= 0).all() and not cover.weights[int(cover.size) :].any()
        assert int(np.count_nonzero(cover.weights)) == metric(reports, "policies_with_weight", "explore")[-1]


def test_exploitation_starts_from_a_fresh_policy_and_leaves_the_cover_as_it_was(agent, run):
    state = agent.init(0)
    while state.phase == 0:
        ((state, _),) = stepped(agent, [state])
    size = int(state.own.cover.size)
    assert state.ledger.best_return == -np.inf and state.ledger.phase_round == 0 and not state.own.adam.mu.any()
    assert all(
        (state.policy.actor_head.weight != state.own.cover.members.actor_head.weight[i]).any() for i in range(size)
    )
    assert_same(state.own.cover, run.states[0].own.cover)


def test_the_reward_bonus_version_solves_the_task_on_the_same_programs(agent, run):
    explore = dataclasses.replace(EXPLORE, reward_coef=1.0)
    bonus = PCPGConfig(PPO, explore, ExploitConfig(num_rounds=0, warm_start=True)).agent(WORLD)
    # The coefficients of reward and bonus are arrays: what the reward-free version compiled serves here as well.
    vars(bonus).update(improve=agent.improve, visit=agent.visit)
    done = Run(bonus, (0, 1))
    assert done.compilations == 0
    for seed, reports in done.reports.items():
        assert set(metric(reports, "phase")) == {"explore"}
        returns, state = metric(reports, "return"), done.states[seed]
        assert returns[-1] > 3.5
        # What is handed back is the best of the cover by the reward.
        assert float(state.ledger.last_return) == float(state.ledger.best_return) == max(returns)
        assert_same(state.policy, state.own.cover.member(int(np.argmax(returns))))


def test_the_number_of_compilations_does_not_depend_on_the_number_of_policies(run):
    assert run.compilations == 2  # improve and visit, for 5 or 6 policies ...
    tiny = Run(TINY.agent(WORLD), (0,))
    assert int(tiny.states[0].own.cover.size) == 3
    assert tiny.compilations == 2  # ... and for 3


def test_without_a_number_the_capacity_and_the_rounds_follow_from_the_length_of_an_episode():
    agent = PCPGConfig().agent(WORLD)
    assert (agent.init(0).own.cover.capacity, agent.left(agent.init(0))) == (2 * 3 + 8, 2 * 3 + 8 + 3 + 4)
    agent = TINY.agent(WORLD)
    assert (agent.init(0).own.cover.capacity, agent.left(agent.init(0))) == (3, 3 + 2)


def cover_of(*diagonals):
    cover = empty_cover({"weight": np.zeros(1)}, dim=3, capacity=4)
    for diagonal in diagonals:
        cover = add_member(cover, {"weight": np.ones(1)}, np.diag(np.float64(diagonal)))
    return cover


def test_the_scaled_bonus_has_mean_one_over_the_policies_of_the_cover():
    cover = cover_of([0.5, 0.5, 0.0], [0.1, 0.0, 0.9])
    whiten = ExploreConfig(ridge=0.01).whitening(cover).astype(np.float64)
    assert EXPLORE.whitening(cover).dtype == np.float32
    forms = np.diag(whiten @ whiten.T)  # of the unit vectors
    np.testing.assert_allclose(np.array([0.6, 0.5, 0.9]) @ forms / 2, 1.0, rtol=1e-5)
    # Relative to each other the forms stay 1 / (mass + lambda).
    masses = np.array([0.6, 0.5, 0.9]) + 0.01
    np.testing.assert_allclose(forms * masses, forms[0] * masses[0], rtol=1e-5)


def test_the_raw_bonus_is_left_as_it_is():
    cover = cover_of([0.5, 0.5, 0.0])
    config = ExploreConfig(ridge=0.01, bonus_scale="raw")
    np.testing.assert_allclose(config.whitening(cover), whitening(np.diag([0.5, 0.5, 0.0]), 0.01), rtol=1e-6)


def test_settings_that_do_not_fit_each_other_are_refused():
    with pytest.raises(ValueError, match=r"num_episodes \(128\) must be a multiple of num_groups \(48\)"):
        PCPGConfig(PPO, dataclasses.replace(EXPLORE, num_groups=48))
    with pytest.raises(ValueError, match=r"gamma must be below 1, got 1.0"):
        PCPGConfig(dataclasses.replace(PPO, gamma=1.0), dataclasses.replace(EXPLORE, bonus_form="indicator"))
    with pytest.raises(ValueError, match="beta must be positive, got 0"):
        ExploreConfig(bonus_form="indicator", beta=0.0)


RULE = ExploreConfig(min_growth=0.1, patience=2)


@pytest.mark.parametrize(
    ("log_dets", "capacity", "is_over"),
    [
        ([0.0], 9, False),  # nothing to compare with
        ([0.0, 0.0], 9, False),  # one policy more is not two
        ([0.0, 0.04, 0.08], 9, True),  # too little over two policies together
        ([0.0, 0.06, 0.12], 9, False),  # two small steps, but enough together
        ([0.0, 5.0, 5.04, 5.08], 9, True),  # whatever came before
        ([0.0, 0.0, 0.0, 1.0], 9, False),
        ([0.0, 1.0, 1.0], 9, False),  # the last grew nothing, the one before did
        ([0.0, -0.5, -1.0], 9, True),
        ([0.0, 1.0, 2.0], 3, True),  # full
        ([0.0, 1.0], 3, False),
        ([0.0], 1, True),
    ],
)
def test_exploration_ends_when_the_cover_is_full_or_has_grown_too_little(log_dets, capacity, is_over):
    assert dataclasses.replace(RULE, max_policies=capacity).is_over(np.array(log_dets)) is is_over


def test_growth_of_exactly_the_least_is_growth():
    assert not ExploreConfig(9, min_growth=0.5, patience=2).is_over(np.array([0.0, 0.25, 0.5]))
    assert ExploreConfig(9, min_growth=0.5001, patience=2).is_over(np.array([0.0, 0.25, 0.5]))


def test_patience_counts_the_policies_over_which_growth_is_measured():
    flat = np.zeros(5)
    assert [ExploreConfig(9, patience=patience).is_over(flat) for patience in (3, 4, 5)] == [
        True,
        True,
        False,
    ]
