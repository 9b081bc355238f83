"""Certificates from data alone: of runs of the theory, and of run folders by `pcpg certify`."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pcpg
from pcpg_theory import certificate, exact, problems, tabular
from pcpg_theory.certificate import Recorder, certify_moves
from pcpg_theory.cli.certify import numbered
from pcpg_theory.mdp import TabularMDP, random_mdp
from pcpg_theory.optimism import Range, bernstein, optimism
from tests.old_runs import unpacked
from tests.same_bits import BASE


class Logged(Recorder):
    """A recorder whose moves are also written down one by one."""

    def __init__(self, mdp: TabularMDP, rng: np.random.Generator) -> None:
        super().__init__(mdp, rng)
        self.log: list[tuple[int, int, int]] = []

    def move(self, s: Any, a: Any) -> Any:
        after = super().move(s, a)
        self.log += zip(s.tolist(), a.tolist(), after.tolist(), strict=True)
        return after


def test_a_run_is_recorded_as_it_moves_but_for_what_follows_the_end_of_an_episode() -> None:
    problem, settings = problems.make("lock", 2, 0, "sampled")
    mdp = problem.mdp
    oracle = tabular.Oracle(mdp, tabular.primal_features(mdp, problem.phi, settings), settings, "sampled", 0)
    oracle.sim = sim = Logged(mdp, np.random.default_rng(0))
    tabular.run_oracle(oracle)
    log = [(s, a, y) for s, a, y in sim.log if not mdp.terminal[s]]
    order = list(dict.fromkeys(x for s, _, y in log for x in (s, y) if not mdp.terminal[x]))
    data, total = sim.data(), {}
    for s, a, y in log:
        key = order.index(s), a, -1 if mdp.terminal[y] else order.index(y), mdp.r[s, a]
        total[key] = total.get(key, 0) + 1
    rows = zip(data.state, data.action, data.after, data.reward, data.met, strict=True)
    assert {(int(s), int(a), int(y), r): n for s, a, y, r, n in rows} == total
    assert (data.num_states, data.num_actions) == (len(order), mdp.num_actions) and mdp.terminal.any()


@pytest.mark.parametrize("seed", range(3))
def test_the_bounds_of_a_run_hold_and_say_something(seed: int) -> None:
    found = certificate.certified_run("aggregated", None, "sampled", seed, 0.1)
    alone, made = found.from_data, found.by_terms
    assert alone is not None and alone.bound == pytest.approx(alone.upper - alone.lower)
    assert alone.upper >= made.optimal and alone.lower <= made.optimal - made.gap
    assert made.gap <= alone.bound < 0.1 * made.trivial
    assert certificate.certified_run("linear", None, "exact", 0, 0.1).from_data is None


def test_with_few_moves_the_bound_is_large_and_with_many_small() -> None:
    mdp, bounds = random_mdp(0, 5, 2, 0.8), []
    best = exact.optimal_policy(mdp)
    for moves in (10, 1000, 30_000):
        sim, s = Recorder(mdp, np.random.default_rng(0)), np.zeros(50, np.int64)
        for _ in range(moves):
            s = sim.move(s, sim.rng.integers(2, size=50))
        bounds.append(certify_moves(sim, mdp, best.pi, 0.1).upper)
    assert bounds[0] > bounds[1] > bounds[2] > best.V[0] > bounds[2] - 0.1


def test_rewards_above_one_are_refused_by_the_analysis_and_known_to_the_data() -> None:
    small = random_mdp(0, 4, 2, 0.5)
    mdp = TabularMDP(small.P, 20.0 * small.r, 0.5, r_max=20.0)
    settings = problems.AGGREGATED
    oracle = tabular.Oracle(
        mdp, tabular.primal_features(mdp, np.eye(8).reshape(4, 2, 8), settings), settings, "sampled", 0
    )
    oracle.sim = sim = Recorder(mdp, np.random.default_rng(0))
    found = tabular.run_oracle(oracle, keep_iterates=True)
    with pytest.raises(ValueError, match=r"rewards must lie in \[0, 1\], as the bonus assumes, got 1"):
        certificate.certify(mdp, np.eye(8).reshape(4, 2, 8), settings, found)
    made = certify_moves(sim, mdp, found.pi, 0.1)
    gap = exact.optimal_policy(mdp).V[0] - exact.value(mdp, found.pi)
    assert gap <= made.bound < 40.0


# Run folders.


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made: dict[str, Path] = {}

    def folder(name: str) -> Path:
        if name not in made:
            made[name] = unpacked(BASE, name, tmp_path_factory.mktemp(name))
        return made[name]

    return folder


LOCK = ("--r-min", "-0.51", "--r-max", "5")


def test_the_command_bounds_the_gap_of_a_run_by_its_own_data(folders: Any, cli: Any) -> None:
    answer = cli("certify", folders("pcpg-replay"), *LOCK, "--most", 5, "--episodes", 500, "--json")
    [found] = answer.json["seeds"]
    assert found["upper"] >= 4.0 >= found["mean_return"] >= found["lower"], "the lock is worth 4"
    assert found["bound"] == pytest.approx(found["upper"] - found["lower"])
    assert found["trivial"] == pytest.approx(5 + 3 * 0.51) and found["episodes"] == 500
    run = pcpg.load(folders("pcpg-replay"))
    assert found["lower"] == pytest.approx(bernstein(run.evaluate(500).returns[0], -1.53, 5.0, 0.025))
    kept = list(run.kept_episodes())
    assert found["transitions"] == sum(len(episode.rewards) for episode in kept)
    assert found["states"] == len({x.tobytes() for episode in kept for x in episode.observations[:-1]})


def test_a_lake_through_gymnasium_is_bounded_too_and_less_sharply_where_less_is_known(folders: Any, cli: Any) -> None:
    known, unknown = (
        cli("certify", folders("host-replay"), *more, "--episodes", 50, "--json").json["seeds"][0]
        for more in (("--most", 1), ())
    )
    assert known["trivial"] == 1.0 and unknown["trivial"] == 100.0, "100 steps of at most 1"
    assert known["upper"] <= 1.0 and unknown["bound"] <= 100.0 and known["states"] <= 16


def test_transitions_are_numbered_as_the_episodes_tell_them(folders: Any) -> None:
    run = pcpg.load(folders("host-replay"))
    episodes = list(run.kept_episodes())
    data, is_listed = numbered(run, 0, episodes)
    names: dict[bytes, int] = {}
    total: dict[tuple[int, int, int, float], int] = {}
    for one in episodes:
        codes = [names.setdefault(x.tobytes(), len(names)) for x in one.observations]
        for t, (action, reward, ends) in enumerate(zip(one.actions, one.rewards, one.terminated, strict=True)):
            key = codes[t], int(action), -1 if ends else codes[t + 1], float(reward)
            total[key] = total.get(key, 0) + 1
    left = {s for s, *_ in total} | {y for _, _, y, _ in total if y >= 0}
    rank = {-1: -1} | {old: new for new, old in enumerate(sorted(left))}  # ends are no states
    rows = zip(data.state, data.action, data.after, data.reward, data.met, strict=True)
    found = {(int(s), int(a), int(y), r): n for s, a, y, r, n in rows}
    assert found == {(rank[s], a, rank[y], r): n for (s, a, y, r), n in total.items()}
    assert is_listed and data.num_actions == 4 and data.began.sum() == len(episodes) and data.first.tolist() == [0]


def test_an_action_that_was_never_tried_may_be_worth_all_there_is(folders: Any) -> None:
    run = pcpg.load(folders("host-replay"))
    first = [one._replace(actions=0 * one.actions) for one in run.kept_episodes()]
    data, _ = numbered(run, 0, first)
    assert data.num_actions == 4 and set(data.action) == {0}
    assert optimism(data, Range(0.0, 1.0, 1.0), 0.05, steps=100).start == 1.0


@pytest.mark.parametrize(
    ("name", "flags", "message"),
    [
        (
            "pcpg-replay",
            ("--r-min", "-1", "--r-max", "4"),
            "r_max must be at least the largest reward of the data, got 4",
        ),
        ("pcpg-replay", ("--r-max", "5"), "r_min must be at most the least reward of the data, got 0 and -0.5"),
        ("pcpg-replay", (*LOCK, "--most", "2"), "returns must lie between -1.53 and 2, as declared"),
        ("pcpg-replay", ("--r-max", "0"), "r_min must be below r_max, both finite, got 0 and 0"),
        ("pcpg-replay", (*LOCK, "--delta", "1"), "delta must be a probability above 0 and below 1, got 1"),
        ("pcpg-replay", (*LOCK, "--episodes", "1"), "episodes must be at least 2, got 1"),
        ("ppo", (), "holds no data: ppo keeps none; train with --algo pcpg-replay"),
    ],
)
def test_what_cannot_be_certified_is_refused_in_one_line(
    name: str, flags: tuple[str, ...], message: str, folders: Any, cli: Any
) -> None:
    answer = cli("certify", folders(name), *flags)
    assert answer.code == 2 and message in answer.err.replace("\n", " ")


def test_observations_that_may_not_be_states_are_asked_about(folders: Any, cli: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("pcpg.envs.lock.CombinationLock.state_observations", lambda self, params: None)
    answer = cli("certify", folders("pcpg-replay"), *LOCK)
    assert answer.code == 2 and "add --markov" in answer.err
    whole = cli("certify", folders("pcpg-replay"), *LOCK, "--markov", "--episodes", 20, "--json")
    assert json.dumps(whole.json["seeds"]) and whole.code == 0
