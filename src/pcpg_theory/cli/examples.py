"""`pcpg theory tree | aggregation | kernel`: the paper's examples, each with its numbers and a picture."""

from dataclasses import dataclass

import numpy as np

from pcpg_theory import analysis, exact, examples, kernel, pictures, tabular
from pcpg_theory.cli import DrawnCommand, Mode, Result, at_least, check_seeds, show
from pcpg_theory.examples import fitted_q_iteration, lsvi_ucb
from pcpg_theory.mdp import uniform_policy
from pcpg_theory.settings import Settings, beta_from_mass

METHODS = ("FQI", "LSVI-UCB", "PC-PG")


@dataclass(frozen=True, kw_only=True)
class TreeCommand(DrawnCommand):
    """The binary tree with misleading features: PC-PG reaches 1/2 - eps, while bootstrapping is misled."""

    depth: int = 5
    """Depth of the tree for random and searched features."""
    inner_dim: int = 4
    """Number of features inside the tree."""
    mode: Mode = "sampled"
    """How PC-PG runs. The two other methods run under their best conditions."""
    seeds: int = 5
    """Number of trees of each kind."""
    tries: int = 200
    """Steps of the search for features that mislead fitted Q iteration."""
    episodes: int = 400
    """Episodes of LSVI-UCB."""
    epsilon: float = 0.01
    """PC-PG must come this close to 1/2."""

    def work(self) -> Result:
        """Beliefs and results of each method for random, searched and constructed features."""
        at_least(0, tries=self.tries)
        rows = []
        for seed in check_seeds(self.seeds, self.seed):
            searched = examples.adversarial_tree(self.depth, self.inner_dim, seed, tries=self.tries)
            rows += [
                self._one("random", examples.random_tree(self.depth, self.inner_dim, seed), seed),
                self._one("searched", searched, seed),
                self._one("constructed", examples.deluding_tree(), seed),
            ]
        if self.png is not None:
            pictures.draw_tree(rows, self.png)
        below = 0.5 - self.epsilon
        return {
            "epsilon": self.epsilon,
            "smallest_value": min(row["value"]["PC-PG"] for row in rows),
            "deluded": {name: sum(row["value"][name] < below for row in rows) for name in METHODS},
            "of": len(rows),
            "rows": rows,
        }

    def _one(self, kind: str, tree: examples.BinaryTree, seed: int) -> Result:
        beta = beta_from_mass(0.01, ridge=1e-3)
        settings = Settings(N=10, T=40, eta=10.0, ridge=1e-3, beta=beta, M=500, final_episodes=1000)
        found = tabular.run(tree.mdp, tree.phi, settings, self.mode, seed, keep_iterates=True)
        fqi = fitted_q_iteration(tree.mdp, tree.phi, np.full(tree.mdp.shape, 1.0 / tree.mdp.r.size))
        lsvi = lsvi_ucb(tree.mdp, tree.phi, self.episodes, tree.depth + 2, 1.0, seed)
        # What PC-PG believes of R: the mean critic of the last round, whose e_2 is (s0, R) alone.
        believed = float(found.improvements[-1].thetas.mean(0) @ tree.phi[0, 1])
        value = exact.value(tree.mdp, found.pi)
        return {
            "features": kind,
            "seed": seed,
            "optimal": float(exact.optimal_policy(tree.mdp).V[0]),
            "value": dict(zip(METHODS, (fqi.value, lsvi.value, value), strict=True)),
            "believed": dict(zip(METHODS, (fqi.Q[0, 1], lsvi.Q[0, 1], believed), strict=True)),
            "transfer_error": _tree_transfer(tree, found),
            "steps": {"LSVI-UCB": lsvi.steps, "PC-PG": found.steps},
        }

    @staticmethod
    def render(result: Result) -> None:
        """Print a row for each tree to standard error."""
        methods = ("FQI|.3f", "LSVI|.3f", "PC-PG|.3f")
        columns = ("features", "seed", f"believed R: {methods[0]}", *methods[1:], f"value: {methods[0]}", *methods[1:])
        rows = [
            (row["features"], row["seed"], *(row[what][name] for what in ("believed", "value") for name in METHODS))
            for row in result["rows"]
        ]
        show("binary tree: L is worth 1/2", columns, rows)


def _tree_transfer(tree: examples.BinaryTree, found: tabular.TheoryRun) -> float:
    """The largest transfer error over the iterates of the last round (zero, by the corollary)."""
    d_star = analysis.comparator_distribution(tree.mdp, tree.comparator)
    b = found.bonuses[-2].b
    rho = np.mean([exact.occupancy(tree.mdp, pi) for pi in found.cover.policies[:-1]], axis=0)
    targets = (exact.action_values(tree.mdp, pi, tree.mdp.r + b) - b for pi in found.improvements[-1].iterates[::10])
    return max(analysis.transfer_error(tree.phi, rho, d_star, target).least for target in targets)


@dataclass(frozen=True, kw_only=True)
class AggregationCommand(DrawnCommand):
    """State aggregation with errors off or on the comparator's path: the loss of each method, and the bound."""

    corridor: int = 5
    """Cells of the corridor that the comparator follows."""
    gamma: float = 0.9
    """Discount."""
    points: int = 9
    """Number of sizes of the misspecification."""
    mode: Mode = "exact"
    """How PC-PG runs."""

    def work(self) -> Result:
        """Losses and bounds as the misspecification grows, off the comparator's path and on it."""
        at_least(2, points=self.points)
        off, on = (
            [
                self._one(examples.swamp(float(k), self.corridor, self.gamma, on_path))
                for k in np.linspace(0.0, 0.6, self.points)
            ]
            for on_path in (False, True)
        )
        if self.png is not None:
            pictures.draw_aggregation(off, on, self.png)
        return {"gamma": self.gamma, "off_path": off, "on_path": on}

    def _one(self, made: examples.Swamp) -> Result:
        mdp, phi = made.mdp, made.phi
        settings = Settings(N=12, T=60, eta=10.0, beta=beta_from_mass(0.01), M=2000, K=4000)
        found = tabular.run(mdp, phi, settings, self.mode, self.seed)
        fqi = fitted_q_iteration(mdp, phi, np.full(mdp.shape, 1.0 / mdp.r.size))
        lsvi = lsvi_ucb(mdp, phi, 200, self.corridor + 3, 1.0, self.seed, ridge=0.01)
        target, g = exact.value(mdp, made.comparator), 1.0 - mdp.gamma
        reached = {"PC-PG": exact.value(mdp, found.pi), "FQI": fqi.value, "LSVI-UCB": lsvi.value}
        eps = float(analysis.misspecification(mdp, made.labels).max())
        average = analysis.average_misspecification(mdp, made.labels, made.comparator)
        return {
            "eps_max": eps,
            "eps_average": average,
            "gap": {name: target - value for name, value in reached.items()},
            "bound_average": 2.0 * average / g**3,
            "bound_max": eps / g**2,
            "comparator_value": target,
        }

    @staticmethod
    def render(result: Result) -> None:
        """Print losses and bounds to standard error."""
        methods = ("PC-PG", "FQI", "LSVI-UCB")
        columns = ("error", "eps max|.3f", "eps average|.3f", *(f"{name}|.3f" for name in methods))
        rows = [
            (where, row["eps_max"], row["eps_average"], *(row["gap"][name] for name in methods), row["bound_average"])
            for where in ("off_path", "on_path")
            for row in result[where]
        ]
        show("loss against the comparator", (*columns, "bound (local)|.3g"), rows)


@dataclass(frozen=True, kw_only=True)
class KernelCommand(DrawnCommand):
    """An MDP that is linear in an infinite-dimensional RKHS: Algorithm 1 in the dual, compared with one-hot pairs."""

    states: int = 60
    """Grid points of the swimmer's position."""
    lengthscale: float = 0.06
    """Lengthscale of the RBF kernel over positions."""
    N: int = 12
    """Rounds of Algorithm 1 after the first one."""
    mode: Mode = "exact"
    """exact: population quantities. sampled: resets to s0 only."""

    def work(self) -> Result:
        """Values and information gains over rounds, with the kernel's features and with one-hot pairs."""
        made = kernel.swimmer(self.states, lengthscale=self.lengthscale)
        mdp, beta = made.mdp, beta_from_mass(0.02, ridge=0.01)
        settings = Settings(N=self.N, T=20, eta=3.0, ridge=0.01, beta=beta, W=200.0, M=4000, K=2000)
        runs = {
            name: kernel.run_kernel(made, settings, self.mode, self.seed, dual=name == "kernel")
            for name in ("kernel", "one-hot")
        }
        values = {name: [exact.value(mdp, pi) for pi in run.cover.policies[1:]] for name, run in runs.items()}
        optimal = float(exact.optimal_policy(mdp).V[mdp.s0])
        if self.png is not None:
            pictures.draw_kernel(made.points[::3, 0], runs, values, optimal, self.png)
        result: Result = {
            "optimal_value": optimal,
            "uniform_value": exact.value(mdp, uniform_policy(mdp)),
            "omega": made.omega,
            "xi_bound": made.xi,
            "mode": self.mode,
        }
        for name, run in runs.items():
            known = np.array(run.known) == mdp.r.size
            result[name] = {
                "value": exact.value(mdp, run.pi),
                "values": values[name],
                "escape": [one.escape for one in run.rounds],
                "information_gain": run.gains,
                "all_known_after": int(known.argmax()) + 1 if known.any() else None,
                "steps": run.steps,
            }
        return result

    @staticmethod
    def render(result: Result) -> None:
        """Print both runs to standard error."""
        title = f"swimmer, optimal {result['optimal_value']:.3f}, uniform {result['uniform_value']:.3f}"
        columns = ("features", "value|.3f", "all known after", "information gain|.1f", "environment steps|,")
        rows = []
        for name in ("kernel", "one-hot"):
            row = result[name]
            rows.append((name, row["value"], row["all_known_after"], row["information_gain"][-1], row["steps"]))
        show(title, columns, rows)
