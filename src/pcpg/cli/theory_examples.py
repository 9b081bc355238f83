"""`pcpg theory tree | aggregation | kernel`: the paper's examples, each with its numbers and a picture."""

from dataclasses import dataclass

import numpy as np

from pcpg.cli.theory import DrawnOutput, Mode, Result, check_seeds, finish, show, table
from pcpg.theory import analysis, exact, examples, kernel, tabular
from pcpg.theory.examples import fitted_q_iteration, lsvi_ucb
from pcpg.theory.mdp import uniform_policy
from pcpg.theory.settings import Settings, beta_from_mass


@dataclass(frozen=True, kw_only=True)
class TreeCommand(DrawnOutput):
    """The binary tree with pathological features: PC-PG reaches 1/2 - eps where bootstrapping is deluded."""

    depth: int = 5
    """Depth of the tree for random and searched features."""
    inner_dim: int = 4
    """Number of features inside the tree."""
    mode: Mode = "sampled"
    """How PC-PG runs; the two contrasts are given what is best for them."""
    seeds: int = 5
    """How many trees of each kind."""
    tries: int = 200
    """Moves of the search for features that delude fitted Q iteration."""
    episodes: int = 400
    """Episodes of LSVI-UCB."""
    epsilon: float = 0.01
    """PC-PG must come this near to 1/2."""

    def __call__(self) -> Result:
        """For random, searched and constructed features, what each method believes and reaches."""
        check_seeds(self.seeds, self.seed)
        if self.tries < 0:
            raise ValueError(f"tries must be 0 or more, got {self.tries}")
        rows = []
        for seed in range(self.seed, self.seed + self.seeds):
            made = {
                "random": examples.random_tree(self.depth, self.inner_dim, seed),
                "searched": examples.adversarial_tree(self.depth, self.inner_dim, seed, tries=self.tries),
                "constructed": examples.deluding_tree(),
            }
            rows += [self._one(kind, tree, seed) for kind, tree in made.items()]
        if self.png is not None:
            from pcpg.theory.pictures import draw_tree

            draw_tree(rows, self.png)
        reached = [row["value"]["PC-PG"] for row in rows]
        deluded = {
            name: sum(row["value"][name] < 0.5 - self.epsilon for row in rows) for name in ("FQI", "LSVI-UCB", "PC-PG")
        }
        result = {
            "epsilon": self.epsilon,
            "smallest_value": min(reached),
            "deluded": deluded,
            "of": len(rows),
            "rows": rows,
        }
        return finish(result, self.out)

    def _one(self, kind: str, tree: examples.BinaryTree, seed: int) -> Result:
        beta = beta_from_mass(0.01, ridge=1e-3)
        settings = Settings(N=10, T=40, eta=10.0, ridge=1e-3, beta=beta, M=500, final_episodes=1000)
        found = tabular.run(tree.mdp, tree.phi, settings, self.mode, seed, keep_iterates=True)
        uniform = np.full(tree.mdp.shape, 1.0 / tree.mdp.r.size)
        fqi = fitted_q_iteration(tree.mdp, tree.phi, uniform)
        lsvi = lsvi_ucb(tree.mdp, tree.phi, self.episodes, tree.depth + 2, 1.0, seed)
        # What PC-PG believes of R: the mean critic of the last round, whose e_2 is (s0, R) alone.
        believed = float(found.improvements[-1].thetas.mean(0) @ tree.phi[0, 1])
        return {
            "features": kind,
            "seed": seed,
            "optimal": float(exact.optimal_policy(tree.mdp).V[0]),
            "value": {"FQI": fqi.value, "LSVI-UCB": lsvi.value, "PC-PG": exact.value(tree.mdp, found.pi)},
            "believed": {"FQI": fqi.Q[0, 1], "LSVI-UCB": lsvi.Q[0, 1], "PC-PG": believed},
            "transfer_error": _tree_transfer(tree, found),
            "steps": {"LSVI-UCB": lsvi.steps, "PC-PG": found.steps},
        }

    @staticmethod
    def render(result: Result) -> None:
        """Print the trees as a table on standard error."""
        made = table(
            "binary tree: L is worth 1/2",
            "features",
            "seed",
            "believed R: FQI",
            "LSVI",
            "PC-PG",
            "value: FQI",
            "LSVI",
            "PC-PG",
        )
        for row in result["rows"]:
            cells = [
                f"{row[what][name]:.3f}" for what in ("believed", "value") for name in ("FQI", "LSVI-UCB", "PC-PG")
            ]
            made.add_row(row["features"], str(row["seed"]), *cells)
        show(made)


def _tree_transfer(tree: examples.BinaryTree, found: tabular.TheoryRun) -> float:
    """The largest transfer error over the iterates of the last round (zero, by the corollary)."""
    d_star = analysis.comparator_distribution(tree.mdp, tree.comparator)
    b = found.bonuses[-2].b
    rho = np.mean([exact.occupancy(tree.mdp, pi) for pi in found.cover.policies[:-1]], axis=0)
    errors = []
    for pi in found.improvements[-1].iterates[::10]:
        target = exact.action_values(tree.mdp, pi, tree.mdp.r + b) - b
        errors.append(analysis.transfer_error(tree.phi, rho, d_star, target).least)
    return max(errors)


@dataclass(frozen=True, kw_only=True)
class AggregationCommand(DrawnOutput):
    """State aggregation that is wrong off the comparator's path, or on it: what each method loses, and the bound."""

    corridor: int = 5
    """Cells of the corridor that the comparator follows."""
    gamma: float = 0.9
    """Discount."""
    points: int = 9
    """How many sizes of misspecification."""
    mode: Mode = "exact"
    """How PC-PG runs."""

    def __call__(self) -> Result:
        """Losses and bounds as the misspecification grows, off the comparator's path and on it."""
        if self.points < 2:
            raise ValueError(f"points must be 2 or more, got {self.points}")
        sizes = np.linspace(0.0, 0.6, self.points)
        off = [self._one(examples.swamp(float(k), self.corridor, self.gamma)) for k in sizes]
        on = [self._one(examples.swamp(float(k), self.corridor, self.gamma, on_path=True)) for k in sizes]
        if self.png is not None:
            from pcpg.theory.pictures import draw_aggregation

            draw_aggregation(off, on, self.png)
        return finish({"gamma": self.gamma, "off_path": off, "on_path": on}, self.out)

    def _one(self, made: examples.Swamp) -> Result:
        mdp, phi = made.mdp, made.phi
        settings = Settings(N=12, T=60, eta=10.0, beta=beta_from_mass(0.01), M=2000, K=4000)
        found = tabular.run(mdp, phi, settings, self.mode, self.seed)
        fqi = fitted_q_iteration(mdp, phi, np.full(mdp.shape, 1.0 / mdp.r.size))
        lsvi = lsvi_ucb(mdp, phi, 200, self.corridor + 3, 1.0, self.seed, ridge=0.01)
        target, g = exact.value(mdp, made.comparator), 1.0 - mdp.gamma
        reached = {"PC-PG": exact.value(mdp, found.pi), "FQI": fqi.value, "LSVI-UCB": lsvi.value}
        eps = analysis.misspecification(mdp, made.labels)
        average = analysis.average_misspecification(mdp, made.labels, made.comparator)
        return {
            "eps_max": float(eps.max()),
            "eps_average": average,
            "gap": {name: target - value for name, value in reached.items()},
            "bound_average": 2.0 * average / g**3,
            "bound_max": float(eps.max()) / g**2,
            "comparator_value": target,
        }

    @staticmethod
    def render(result: Result) -> None:
        """Print losses and bounds as a table on standard error."""
        made = table(
            "loss against the comparator",
            "error",
            "eps max",
            "eps average",
            "PC-PG",
            "FQI",
            "LSVI-UCB",
            "bound (local)",
        )
        for where in ("off_path", "on_path"):
            for row in result[where]:
                gaps = [f"{row['gap'][name]:.3f}" for name in ("PC-PG", "FQI", "LSVI-UCB")]
                made.add_row(
                    where,
                    f"{row['eps_max']:.3f}",
                    f"{row['eps_average']:.3f}",
                    *gaps,
                    f"{row['bound_average']:.3g}",
                )
        show(made)


@dataclass(frozen=True, kw_only=True)
class KernelCommand(DrawnOutput):
    """An MDP that is linear in an infinite-dimensional RKHS: Algorithm 1 in the dual, against one-hot pairs."""

    states: int = 60
    """Grid points of the swimmer's position."""
    lengthscale: float = 0.06
    """Of the RBF kernel over positions."""
    N: int = 12
    """Rounds of Algorithm 1 after the first one."""
    mode: Mode = "exact"
    """exact: population quantities. sampled: only resets to s0."""

    def __call__(self) -> Result:
        """Values and information gains over rounds, with the kernel's features and with one-hot pairs."""
        made = kernel.swimmer(self.states, lengthscale=self.lengthscale)
        beta = beta_from_mass(0.02, ridge=0.01)
        settings = Settings(N=self.N, T=20, eta=3.0, ridge=0.01, beta=beta, W=200.0, M=4000, K=2000)
        runs = {
            "kernel": kernel.run_kernel(made, settings, self.mode, self.seed, dual=True),
            "one-hot": kernel.run_kernel(made, settings, self.mode, self.seed, dual=False),
        }
        values = {name: [exact.value(made.mdp, pi) for pi in run.cover.policies[1:]] for name, run in runs.items()}
        optimal = float(exact.optimal_policy(made.mdp).V[made.mdp.s0])
        if self.png is not None:
            from pcpg.theory.pictures import draw_kernel

            draw_kernel(made.points[::3, 0], runs, values, optimal, self.png)
        result: Result = {
            "optimal_value": optimal,
            "uniform_value": exact.value(made.mdp, uniform_policy(made.mdp)),
            "omega": made.omega,
            "xi_bound": made.xi,
            "mode": self.mode,
        }
        for name, run in runs.items():
            known = np.array(run.known) == made.mdp.r.size
            result[name] = {
                "value": exact.value(made.mdp, run.pi),
                "values": values[name],
                "escape": [one.escape for one in run.rounds],
                "information_gain": run.gains,
                "all_known_after": int(known.argmax()) + 1 if known.any() else None,
                "steps": run.steps,
            }
        return finish(result, self.out)

    @staticmethod
    def render(result: Result) -> None:
        """Print both runs as a table on standard error."""
        title = f"swimmer, optimal {result['optimal_value']:.3f}, uniform {result['uniform_value']:.3f}"
        made = table(title, "features", "value", "all known after", "information gain", "environment steps")
        for name in ("kernel", "one-hot"):
            row = result[name]
            cells = (
                f"{row['value']:.3f}",
                str(row["all_known_after"]),
                f"{row['information_gain'][-1]:.1f}",
                f"{row['steps']:,}",
            )
            made.add_row(name, *cells)
        show(made)
