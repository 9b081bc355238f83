"""The interface of the comparators: exact returns, counted samples, seeds that do not see each other."""

import inspect
from functools import partial

import numpy as np
import pytest

from pcpg.envs.chain import Chain
from pcpg.envs.deep_sea import DeepSea
from pcpg.envs.lock import CombinationLock
from pcpg_lab.table1.settings import maker, takes_factors
from pcpg_theory.learners import problem, runner
from pcpg_theory.learners.layout import Mixture, Streams
from pcpg_theory.learners.model_based import UCBVI
from pcpg_theory.learners.pcpg import PCPG
from pcpg_theory.learners.registry import COMPARATORS
from pcpg_theory.learners.thompson import PSRL
from pcpg_theory.mdp import TabularMDP
from pcpg_theory.settings import Settings
from tests.values import optimal_value, policy_value


def random_policies(made, seed=0):
    layout = made.layout
    pi = np.random.default_rng(seed).exponential(size=(made.n, layout.num_states, layout.num_actions))
    return pi / pi.sum(-1, keepdims=True)


def test_optimal_and_uniform_returns_of_the_lock_and_the_sea_agree_with_the_environments():
    for made, env, size in [
        (problem.lock(4, [0, 7]), CombinationLock(4), 5),
        (problem.deep_sea(5, [0, 7]), DeepSea(5), 5),
    ]:
        for i, seed in enumerate([0, 7]):
            model = env.tabular(env.instance(seed))
            assert made.optimal()[i] == pytest.approx(optimal_value(model, size), abs=1e-6)
            even = np.full(model.shape, 1.0 / model.shape[1])
            assert made.uniform()[i] == pytest.approx(policy_value(model, even, size), abs=1e-6)
            assert made.returns(np.full((2, made.layout.num_states, model.shape[1]), 1.0 / model.shape[1]))[
                i
            ] == pytest.approx(made.uniform()[i])
    assert problem.lock(4, [3]).optimal()[0] == pytest.approx(4.0, abs=1e-6)
    assert problem.deep_sea(5, [3]).optimal()[0] == pytest.approx(0.99, abs=1e-6)


def test_a_chain_with_the_time_in_its_state_agrees_with_the_chain():
    env = Chain(5, 9)
    model = env.tabular(())
    made = problem.timed("chain", TabularMDP(model.transitions, model.rewards, 0.9), 9, 1)
    assert made.optimal()[0] == pytest.approx(optimal_value(model, 9))
    assert made.layout.num_states == 1 + 8 * 5 and made.layout.num_shared == 5
    right = np.zeros((1, made.layout.num_states, 2))
    right[..., 1] = 1.0
    stationary = np.zeros(model.shape)
    stationary[:, 1] = 1.0
    assert made.returns(right)[0] == pytest.approx(policy_value(model, stationary, 9))


def test_states_of_riverswim_share_their_model_and_states_of_the_lock_do_not():
    river = problem.riverswim(1).layout
    assert (river.shared[river.first[3] : river.first[4]] == river.shared[river.first[7] : river.first[8]]).all()
    assert river.shared[0] == river.shared[river.first[1]]  # s0 at time 0 and at time 1
    lock = problem.lock(3, [0]).layout
    assert lock.num_shared == lock.num_states == 1 + 4 + 6 + 6
    assert lock.width == 6 and lock.horizon == 4


def test_sampled_returns_agree_with_exact_ones():
    made = problem.random_problem(2, decisions=5)
    pi = random_policies(made)
    env = runner.EpisodeSource(made, Streams([0, 1], 0))
    episodes = env.roll_out(pi, 20_000)
    totals = episodes.r.sum(-1)
    error = np.abs(totals.mean(1) - made.returns(pi)) / (totals.std(1) / np.sqrt(20_000))
    assert error.max() < 4.0
    assert env.steps == 5 * 20_000


def test_each_step_of_each_episode_follows_its_own_policy_of_a_mixture():
    made = problem.random_problem(2, decisions=5)
    always = np.broadcast_to(np.eye(3)[:, None], (2, 3, made.layout.num_states, 3))  # policy k plays action k
    which = np.random.default_rng(0).integers(0, 3, size=(2, 40, 5))
    env = runner.EpisodeSource(made, Streams([0, 1], 0))
    episodes = env.roll_out(Mixture(always, which), 40)
    assert (episodes.a == which).all() and env.steps == 200
    pi = random_policies(made)
    alone, mixed = (runner.EpisodeSource(made, Streams([0, 1], 0)) for _ in range(2))
    stack = np.concatenate([always, pi[:, None]], axis=1)
    for one, other in zip(
        alone.roll_out(pi, 40), mixed.roll_out(Mixture(stack, np.full_like(which, 3)), 40), strict=True
    ):
        assert (one == other).all()


def test_episodes_of_the_lock_pay_its_raw_rewards_and_stay_in_their_layers():
    made = problem.lock(3, [0, 1, 2])
    env = runner.EpisodeSource(made, Streams([0, 1, 2], 0))
    pi = random_policies(made)
    episodes = env.roll_out(pi, 5000)
    raw = (made.low + (made.high - made.low) * episodes.r).sum(-1)
    error = np.abs(raw.mean(1) - made.returns(pi)) / (raw.std(1) / np.sqrt(5000))
    assert error.max() < 4.0
    for h in range(made.horizon + 1):
        inside = episodes.s[..., h]
        assert inside.min() >= made.layout.first[h] and inside.max() < made.layout.first[h + 1]


def test_aggregated_states_look_the_same_and_a_policy_over_them_is_scored_in_the_true_problem():
    made = problem.timed("river", problem.riverswim_mdp(), 4, 1, labels=[0, 0, 0, 1, 1, 1])
    assert made.layout.num_states == 1 + 3 * 2 and made.layout.num_shared == 2
    right = np.zeros((1, made.layout.num_states, 2))
    right[..., 1] = 1.0
    plain = problem.riverswim(1, decisions=4)
    everywhere = np.zeros((1, plain.layout.num_states, 2))
    everywhere[..., 1] = 1.0
    assert made.returns(right)[0] == pytest.approx(plain.returns(everywhere)[0])
    assert made.optimal()[0] == pytest.approx(plain.optimal()[0])
    seen = runner.EpisodeSource(made, Streams([0], 0)).roll_out(right, 100).s
    assert seen.max() < made.layout.first[-1] and set(np.unique(seen[..., 0])) == {0}


class Recorder:
    """A learner that plays uniformly and records what it is given."""

    def __init__(self, layout, streams, batch=1):
        self.batch, self.seen = batch, []
        self.pi = np.full((streams.n, layout.num_states, layout.num_actions), 1.0 / layout.num_actions)

    def policy(self):
        return self.pi

    behaviour = policy

    def learn(self, episodes):
        self.seen.append(episodes)


def test_a_learner_may_change_its_batch_and_never_exceeds_the_budget():
    class Growing(Recorder):
        def learn(self, episodes):
            super().learn(episodes)
            self.batch *= 2

    history = runner.run(problem.riverswim(1), Growing, [0], 320, points=4)
    assert history.steps == 20 * (1 + 2 + 4 + 8)  # sixteen more episodes would be too many


@pytest.mark.parametrize(("batch", "budget", "steps"), [(1, 100, 100), (1, 99, 80), (3, 100, 60), (7, 100, 0)])
def test_a_run_never_takes_more_than_its_budget(batch, budget, steps):
    made = problem.riverswim(2)
    learners = []

    def make(layout, streams):
        learners.append(Recorder(layout, streams, batch))
        return learners[-1]

    history = runner.run(made, make, [0, 1], budget, points=10)
    assert history.steps == steps == sum(e.a[0].size for e in learners[0].seen)
    assert history.samples[-1] == budget and history.returns.shape == (2, len(history.samples))
    assert history.returns == pytest.approx(np.broadcast_to(made.uniform()[:, None], history.returns.shape))


@pytest.mark.parametrize("make", [partial(UCBVI, scale=0.01), PSRL])
def test_a_seed_does_not_depend_on_its_neighbours(make):
    together = runner.run(problem.lock(2, [4, 5, 6]), make, [4, 5, 6], 600)
    alone = runner.run(problem.lock(2, [5]), make, [5], 600)
    assert (together.returns[1] == alone.returns[0]).all()
    assert not (together.returns[0] == together.returns[1]).all()


def test_samples_to_epsilon_asks_that_the_policy_stays_good():
    returns = np.array([[0.0, 1.0, 0.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0, 1.0], [0.0, 1.0, 1.0, 1.0, 0.5]])
    history = runner.History(np.arange(5) * 10, returns, np.ones(3), np.zeros(3), 40)
    assert runner.samples_to(history, 0.1).tolist() == [30.0, 0.0, np.inf]
    assert runner.samples_to(history, 0.5).tolist() == [30.0, 0.0, 10.0]


def test_wrong_problems_and_runs_are_refused():
    mdp = problem.riverswim_mdp()
    P, r = mdp.P[None], mdp.r[None]
    with pytest.raises(ValueError, match="met at two times"):
        problem.layered("river", P, r, 0, 5, 0.0, 1.0)
    with pytest.raises(ValueError, match="rewards must lie"):
        problem.timed("river", mdp, 5, 1, high=0.5)
    with pytest.raises(ValueError, match="labels must have shape"):
        problem.timed("river", mdp, 5, 1, labels=[0, 1])
    with pytest.raises(ValueError, match="does not lead into the next"):
        problem.build("river", [np.array([0]), np.array([0])], P, r, 0.0, 1.0)
    with pytest.raises(ValueError, match="one seed for each of 2"):
        runner.run(problem.riverswim(2), PSRL, [0], 100)
    with pytest.raises(ValueError, match="budget must be 20, the steps of an episode, or more, got 5"):
        runner.run(problem.riverswim(1), PSRL, [0], 5)
    with pytest.raises(ValueError, match="scale must be a positive number, got 0"):
        UCBVI(problem.riverswim(1).layout, Streams([0], 0), scale=0.0)


@pytest.mark.parametrize("name", COMPARATORS)
def test_every_comparator_makes_policies(name):
    entry, made = COMPARATORS[name], problem.lock(2, [0, 1])
    options = {"scale": 1e-6} if name == "psdp" else {}  # its paper's constants ask for millions of episodes at once
    learner = entry.make(made.layout, Streams([0, 1], 1), **options)
    env = runner.EpisodeSource(made, Streams([0, 1], 0))
    for _ in range(3):
        learner.learn(env.roll_out(learner.behaviour(), learner.batch))
        played = learner.behaviour()
        for pi in (learner.policy(), *(played.policies.swapaxes(0, 1) if isinstance(played, Mixture) else [played])):
            assert pi.shape == (2, made.layout.num_states, 10)
            assert pi.min() >= 0.0 and np.abs(pi.sum(-1) - 1.0).max() < 1e-12


@pytest.mark.parametrize("name", COMPARATORS)
def test_every_comparator_refuses_numbers_that_make_no_sense(name):
    make, layout = COMPARATORS[name].make, problem.lock(2, [0]).layout
    known = set(inspect.signature(make).parameters)
    for option in known & {"scale", "delta", "epsilon", "batch", "step", "psi", "m", "omega"}:
        with pytest.raises(ValueError, match=f"{option} must be .*, got 0"):
            make(layout, Streams([0], 1), **{option: 0})
    for option, bad in (
        ("delta", 1.0),
        ("gamma", 1.5),
        ("phi", np.ones((2, 2))),
        ("bonus", "laplace"),
        ("error", -1.0),
    ):
        if option in known:
            with pytest.raises(ValueError, match=r"must (be|have) .*, got"):
                make(layout, Streams([0], 1), **{option: bad})
    if name in ("delayed-q", "npg", "cpi", "pcpg"):  # they divide by 1 - gamma
        with pytest.raises(ValueError, match=r"gamma must be a discount in \[0, 1\), got 1"):
            make(layout, Streams([0], 1), gamma=1.0)


def test_pc_pg_takes_its_features_and_settings_as_they_are_or_refuses_them():
    layout, streams = problem.lock(2, [0]).layout, Streams([0], 1)
    with pytest.raises(ValueError, match="norm at most one"):
        PCPG(layout, streams, phi=np.full((layout.num_states, 10, 3), 2.0))
    with pytest.raises(ValueError, match="uniformly"):
        PCPG(layout, streams, settings=Settings(weights="d_optimal"))
    shared = np.eye(layout.num_states)[:, None].repeat(10, axis=1)  # all actions of a state look the same
    assert PCPG(layout, streams, phi=shared).labels.tolist() == np.arange(layout.num_states).repeat(10).tolist()


def test_the_table_claims_exponential_samples_for_four_comparators():
    blind = {name for name, entry in COMPARATORS.items() if not entry.explores and not entry.extra}
    assert blind == {"epsilon-greedy-q", "reinforce", "npg", "md-mpi"}
    assert {name for name, entry in COMPARATORS.items() if entry.assumes_restarts} == {"cpi", "psdp"}


def test_with_the_theorems_numbers_pc_pg_does_not_begin_within_any_budget():
    made = problem.lock(2, [0])
    history = runner.run(made, COMPARATORS["pcpg"].theory, [0], 10**12, points=2)
    assert history.steps == 0 and history.returns[0] == pytest.approx(made.uniform()[[0, 0, 0]])


def test_an_episode_drawn_at_all_states_at_once_is_the_one_drawn_step_by_step():
    for made in (problem.noisy_sea(4, [0, 1, 2]), problem.lock(2, [0, 1, 2]), problem.riverswim(3, 3, 5)):
        pi = Streams([5, 6, 7], 0).uniform(made.layout.num_states, made.layout.num_actions)
        pi /= pi.sum(-1, keepdims=True)
        once, stepwise = (runner.EpisodeSource(made, Streams([0, 1, 2], 0)) for _ in range(2))
        mixture = Mixture(pi[:, None], np.zeros((3, 1, made.horizon), np.int64))
        for _ in range(300):
            for one, other in zip(once.roll_out(pi), stepwise.roll_out(mixture), strict=True):
                np.testing.assert_array_equal(one, other)
        assert once.steps == stepwise.steps == 300 * made.horizon


def test_numbers_drawn_ahead_are_those_drawn_when_needed():
    ahead, now = runner.Uniform(Streams([3, 4], 0)), Streams([3, 4], 0)
    for shape in ((2, 5, 1), (3, 4000), (2, 700), (9000,), (1,)):
        np.testing.assert_array_equal(ahead.take(*shape), now.uniform(*shape))


@pytest.mark.parametrize("algo", [name for name in COMPARATORS if takes_factors(name)])
def test_factors_side_by_side_are_each_what_they_are_alone(algo):
    factors, seeds = (0.001, 0.3), [0, 1]
    made = problem.noisy_sea(3, seeds)
    alone = [runner.run(made, maker(algo, factor), seeds, 300, points=5).returns for factor in factors]
    lanes = problem.noisy_sea(3, seeds * 2)
    both = runner.run(lanes, maker(algo, np.repeat(factors, 2)), seeds * 2, 300, points=5)
    np.testing.assert_array_equal(both.returns, np.concatenate(alone))


def test_a_factor_that_decides_how_many_episodes_are_asked_for_is_one_for_all_seeds():
    with pytest.raises(ValueError, match="scale must be one number"):
        COMPARATORS["psdp"].make(problem.tree(1, [0, 1]).layout, Streams([0, 1], 0), scale=np.array([1e-5, 1e-4]))


def test_problems_side_by_side_keep_their_chances_and_must_have_the_same_layers():
    parts = [problem.tree(2, [0], gap) for gap in (0.4, 0.1)]
    both = problem.side_by_side(parts)
    np.testing.assert_array_equal(both.optimal(), np.concatenate([part.optimal() for part in parts]))
    with pytest.raises(ValueError, match="the same layers"):
        problem.side_by_side([problem.tree(2, [0]), problem.tree(3, [0])])


def test_the_leaves_of_a_tree_differ_by_the_gap_and_slips_lead_where_nothing_is_paid():
    made = problem.tree(2, [0, 1], 0.2)
    on_the_tree = 0.98**2
    np.testing.assert_allclose(made.optimal(), 0.6 * on_the_tree)
    np.testing.assert_allclose(made.uniform(), on_the_tree * (0.6 + 3 * 0.4) / 4)
