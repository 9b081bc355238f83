"""What is measured in a cell: a tuning, samples to epsilon (A and its like), losses by error (B), values on trees (C).

Each function takes the arguments of its cells (see `plan`) and returns their record.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from pcpg_lab.claims.records import Record
from pcpg_lab.table1.growth import finite
from pcpg_lab.table1.problems import (
    Misspecified,
    TreeKind,
    accuracy,
    errors,
    make,
    make_gap,
    make_tree,
    misspecified,
    size_of,
    unavoidable,
)
from pcpg_lab.table1.settings import (
    FACTORS,
    GAP_FACTORS,
    LOSS,
    OTHER_FACTORS,
    OWN,
    REFINE,
    SETTLE,
    Family,
    allowed,
    maker,
    takes_factors,
)
from pcpg_theory import exact, own, tabular
from pcpg_theory.examples import fitted_q_iteration, lsvi_ucb
from pcpg_theory.learners import runner
from pcpg_theory.learners.layout import Maker
from pcpg_theory.learners.problem import Episodic, side_by_side
from pcpg_theory.learners.registry import COMPARATORS
from pcpg_theory.mdp import Array
from pcpg_theory.settings import Settings, beta_from_mass

TIE = float(np.log(1.25))
"""Difference of two scores of a tuning that is noise."""
HOPE = 1.0 / 3.0
"""Share of its budget after which a trial is given up if no seed is better than uniform play by epsilon."""
Problems = dict[str, Callable[[Sequence[int]], Episodic]]
METHODS = ("fitted Q iteration", "LSVI-UCB", "PC-PG")
RIDGE = 1e-3


def tune(algo: str, sizes: dict[Family, int], budget: int, seeds: Sequence[int]) -> Record:
    """The scores of all factors and the best of them: one factor for each algorithm, chosen on other seeds.

    A factor is scored on all families at one size each: the mean of ln(samples to epsilon), where a seed that
    did not get there counts as SETTLE times the budget.
    """
    problems: Problems = {family: partial(make, family, size) for family, size in sizes.items()}
    trials = _trials(algo, allowed(algo, FACTORS), problems, budget, seeds)
    best = choose(trials)
    trials += _trials(algo, allowed(algo, tuple(best * step for step in REFINE)), problems, budget, seeds)
    return {"trials": trials, "factor": choose(trials)}


def choose(trials: list[Record]) -> float:
    """The factor of the best trial; of those within TIE of it, the one nearest to the papers' own constants.

    Where no factor gets there, the mean share of the optimal return over the grid of samples decides.
    """
    least = min(trial["log_samples"] for trial in trials)
    good = [trial for trial in trials if trial["log_samples"] <= least + TIE]
    if all(value is None for trial in good for found in trial["samples"].values() for value in found):
        return max(good, key=lambda trial: round(trial["share"], 9))["factor"]
    return min(good, key=lambda trial: abs(np.log(trial["factor"])))["factor"]


def choose_own(trials: list[Record], factor: float) -> float:
    """The one factor, unless another of the trials was better by more than noise."""
    least = min(trial["log_samples"] for trial in trials)
    one = next(trial for trial in trials if trial["factor"] == factor)
    return factor if one["log_samples"] <= least + TIE else choose(trials)


def _trials(algo: str, factors: Sequence[float], problems: Problems, budget: int, seeds: Sequence[int]) -> list[Record]:
    """The scores of factors on these problems; all of them in one run where the learner can have them in parallel."""
    blocks = [factors] if takes_factors(algo) else [[factor] for factor in factors]
    return [trial for block in blocks for trial in _side_by_side(algo, block, problems, budget, seeds)]


def _side_by_side(
    algo: str, factors: Sequence[float], problems: Problems, budget: int, seeds: Sequence[int]
) -> list[Record]:
    grid, lanes, shape = runner.log_grid(budget), list(seeds) * len(factors), (len(factors), len(seeds))
    logs, shares, samples = [], [], {}
    for name, make_problem in problems.items():
        made = make_problem(lanes)
        settle = runner.Settle(accuracy(made), SETTLE, int(HOPE * budget))
        learner = maker(algo, factor_of_each(factors, len(seeds)))
        history = runner.run(made, learner, lanes, budget, grid=grid, settle=settle)
        found = runner.samples_to(history, settle.epsilon)
        logs.append(np.log(np.where(np.isfinite(found), found, SETTLE * budget)).reshape(shape))
        gap = (history.optimal - history.uniform)[:, None]
        share = (history.returns - history.uniform[:, None]) / gap
        missing = len(grid) - share.shape[1]  # a run that ended early is taken to have stayed where it was
        share = np.concatenate([share, np.repeat(share[:, -1:], missing, axis=1)], axis=1)
        shares.append(share.mean(1).reshape(shape))
        samples[name] = found.reshape(shape)
    scores, heights = np.mean(logs, axis=(0, 2)), np.mean(shares, axis=(0, 2))
    return [
        {
            "factor": factor,
            "log_samples": float(scores[i]),
            "share": float(heights[i]),
            "samples": {name: none_where_censored(found[i]) for name, found in samples.items()},
        }
        for i, factor in enumerate(factors)
    ]


def factor_of_each(factors: Sequence[float], seeds: int) -> float | Array:
    """The factor of each lane when each factor has this many seeds; the number itself if there is one factor."""
    return factors[0] if len(factors) == 1 else np.repeat(np.array(factors), seeds)


def none_where_censored(samples: Array) -> list[float | None]:
    """Numbers of samples for JSON, None where they are infinite: the seed did not get there."""
    return [finite(value) for value in samples]


def measure_samples(
    algo: str, family: Family, size: int, factor: float | None, budget: int, seeds: Sequence[int]
) -> Record:
    """Samples to epsilon of each seed, None where censored; factor None: the theorem's own constants.

    They are the first point of a fixed grid from which on the current policy stays epsilon-optimal, by its exact
    return; a seed that never gets there is censored at the budget.
    """
    make_learner = COMPARATORS[algo].theory if factor is None else maker(algo, factor)
    if make_learner is None:
        raise ValueError(f"factor must be a number for {algo}, whose paper states no constants, got None")
    return _measured(make(family, size, seeds), make_learner, budget, seeds)


def _measured(made: Episodic, make_learner: Maker, budget: int, seeds: Sequence[int]) -> Record:
    settle = runner.Settle(accuracy(made), SETTLE)
    history = runner.run(made, make_learner, seeds, budget, grid=runner.log_grid(budget), settle=settle)
    return {
        "samples": none_where_censored(runner.samples_to(history, settle.epsilon)),
        "final_return": history.returns[:, -1].tolist(),
        "optimal": history.optimal.tolist(),
        "uniform": history.uniform.tolist(),
        "steps": history.steps,
        "size": size_of(made)._asdict(),
        "regret": regret_curve(history, made.horizon),
    }


def regret_curve(history: runner.History, horizon: int) -> Record:
    """The regret of the policies in force, in episodes of uniform play's loss, on the grid: the mean over seeds."""
    loss = ((history.optimal[:, None] - history.returns) / (history.optimal - history.uniform)[:, None]).mean(0)
    between = np.diff(history.samples, prepend=0) / horizon
    return {"samples": history.samples.tolist(), "regret": np.round(np.cumsum(loss * between), 3).tolist()}


def measure_own(
    algo: str,
    family: Family,
    size: int,
    factor: float,
    limit: int,
    budget: int,
    seeds: Sequence[int],
    tuning_seeds: Sequence[int],
) -> Record:
    """Samples with the best of three factors for this size, found on other seeds within `limit` samples.

    What takes longer than the one factor did is no better: that is the limit.
    """
    tried = allowed(algo, tuple(factor * step for step in OWN))
    trials = _trials(algo, tried, {family: partial(make, family, size)}, limit, tuning_seeds)
    best = choose_own(trials, factor)
    found = None if best == factor else measure_samples(algo, family, size, best, budget, seeds)
    return {"trials": trials, "best": best, "samples": found["samples"] if found else None}


def measure_accuracy(
    algo: str, family: Family, size: int, factor: float, shares: Sequence[float], budget: int, seeds: Sequence[int]
) -> Record:
    """Samples of each seed to each of several accuracies, from runs that end when the smallest is settled."""
    made = make(family, size, seeds)
    gap = made.optimal() - made.uniform()
    settle = runner.Settle(min(shares) * gap, SETTLE)
    history = runner.run(made, maker(algo, factor), seeds, budget, grid=runner.log_grid(budget), settle=settle)
    samples = {f"{share:g}": none_where_censored(runner.samples_to(history, share * gap)) for share in shares}
    return {"samples": samples, "sizes": {f"{share:g}": size_of(made, share)._asdict() for share in shares}}


def measure_gaps(algo: str, gaps: Sequence[float], factor: float, **runs: Any) -> Record:
    """Samples of each seed on trees of these gaps, with one factor for all of them, found on other seeds."""
    problems: Problems = {f"{gap:g}": partial(make_gap, gap) for gap in gaps}
    trials, best, found = _tuned(algo, [factor * step for step in GAP_FACTORS], problems, **runs)
    samples, sizes = ({gap: one[what] for gap, one in found.items()} for what in ("samples", "size"))
    return {"trials": trials, "best": best, "samples": samples, "sizes": sizes}


def measure_problem(algo: str, reference: str, factor: float, **runs: Any) -> Record:
    """Samples of each seed on the problem FILE:NAME, with the best of three factors, found on other seeds."""
    name = reference.rpartition(":")[2]

    def made(lanes: Sequence[int]) -> Episodic:
        return own.episodic(name, own.load(reference)(list(lanes)), len(lanes))

    trials, best, found = _tuned(algo, [factor * step for step in OWN], {name: made}, **runs)
    return {"trials": trials, "best": best, **found[name]}


def _tuned(
    algo: str,
    factors: Sequence[float],
    problems: Problems,
    tuning_budget: int,
    budget: int,
    seeds: Sequence[int],
    tuning_seeds: Sequence[int],
) -> tuple[list[Record], float, dict[str, Record]]:
    """Trials of factors on other seeds, the best of them, and what is measured with it on each problem."""
    trials = _trials(algo, allowed(algo, tuple(factors)), problems, tuning_budget, tuning_seeds)
    best = choose(trials)
    return trials, best, {name: _measured(of(seeds), maker(algo, best), budget, seeds) for name, of in problems.items()}


def measure_losses(
    algo: str,
    problem: Misspecified,
    kappas: Sequence[float],
    factor: float,
    budget: int,
    seeds: Sequence[int],
    tuning_seeds: Sequence[int],
) -> Record:
    """A row for each error: the errors of the problem, and losses of the seeds with the best factor for it.

    Every learner sees the same labels. The loss is the optimal return less the exact one of the current policy, the
    mean over the last quarter decade of the grid of samples. A learner that loses LOSS more than the best policy over
    labels with its tuned factor may try others; the tuning seeds decide which is best.
    """
    lanes = [*seeds, *tuning_seeds]
    tried: list[dict[float, list[float]]] = [{} for _ in kappas]
    for i, (found,) in enumerate(_losses(algo, [factor], problem, kappas, budget, lanes)):
        tried[i][factor] = found

    def score(i: int, each: float) -> float:
        return float(np.mean(tried[i][each][len(seeds) :]))

    lost = [i for i, kappa in enumerate(kappas) if score(i, factor) > LOSS + unavoidable(problem, kappa)]
    others = allowed(algo, tuple(factor * step for step in OTHER_FACTORS))
    for block in [others] if takes_factors(algo) else [[other] for other in others]:
        for i, found in zip(lost, _losses(algo, block, problem, [kappas[i] for i in lost], budget, lanes), strict=True):
            tried[i] |= dict(zip(block, found, strict=True))
    rows = []
    for i, (kappa, by_factor) in enumerate(zip(kappas, tried, strict=True)):
        best = min(by_factor, key=partial(score, i))
        rows.append(
            {
                "kappa": kappa,
                **errors(misspecified(problem, kappa))._asdict(),
                "factor": best,
                "loss": by_factor[best][: len(seeds)],
                "mean_loss_by_factor": {
                    f"{each:g}": float(np.mean(losses[: len(seeds)])) for each, losses in by_factor.items()
                },
            }
        )
    return {"rows": rows}


def _losses(
    algo: str,
    factors: Sequence[float],
    problem: Misspecified,
    kappas: Sequence[float],
    budget: int,
    seeds: Sequence[int],
) -> list[list[list[float]]]:
    """The losses by kappa, factor and seed: all of them in one run."""
    if not kappas or not factors:
        return []
    lanes, shape = list(seeds) * len(factors), (len(kappas), len(factors), len(seeds))
    made = side_by_side([misspecified(problem, kappa).episodic(len(lanes)) for kappa in kappas])
    each = factor_of_each(factors, len(seeds))
    scales = each if isinstance(each, float) else np.tile(each, len(kappas))
    history = runner.run(made, maker(algo, scales), lanes * len(kappas), budget, grid=runner.log_grid(budget))
    late = history.samples >= budget / 10.0**0.25
    return (history.optimal - history.returns[:, late].mean(1)).reshape(shape).tolist()


def measure_trees(features: TreeKind, depth: int, seeds: Sequence[int], policies: int, pairs: int) -> Record:
    """By method the value that is reached on the tree of each seed and the samples used, and the optimum.

    Fitted Q iteration gets the model; PC-PG, with at most this many policies in its cover and pairs for a critic, gets
    episodes from s0, and LSVI-UCB as many samples as PC-PG took.
    """
    value: dict[str, list[float]] = {name: [] for name in METHODS}
    steps: dict[str, list[int]] = {name: [] for name in METHODS}
    optimal, beta = [], beta_from_mass(0.01, RIDGE)
    settings = Settings(
        N=policies,
        T=20,
        eta=10.0,
        ridge=RIDGE,
        beta=beta,
        M=pairs,
        K=5 * pairs,
        final_episodes=5 * pairs,
        estimate="discounted",
        stop=0.01,
        patience=2,
    )
    for seed in seeds:
        tree = make_tree(features, depth, seed)
        optimal.append(float(exact.optimal_policy(tree.mdp).V[0]))
        fqi = fitted_q_iteration(tree.mdp, tree.phi, np.full(tree.mdp.shape, 1.0 / tree.mdp.r.size))
        ours = tabular.run(tree.mdp, tree.phi, settings, "sampled", seed)
        episodes = max(1, ours.steps // (depth + 2))
        lsvi = lsvi_ucb(tree.mdp, tree.phi, episodes, depth + 2, 1.0, seed, batch=0.05)
        reached = (fqi.value, lsvi.value, exact.value(tree.mdp, ours.pi))
        for name, one, used in zip(METHODS, reached, (fqi.steps, lsvi.steps, ours.steps), strict=True):
            value[name].append(float(one))
            steps[name].append(int(used))
    return {"value": value, "steps": steps, "optimal": optimal}
