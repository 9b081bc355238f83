"""The mutants of `python -m tests.mutants`: file, old text, new text, the tests that should kill it."""

from typing import NamedTuple


class Mutant(NamedTuple):
    """A change of one line, and the tests that should kill it."""

    name: str
    file: str  # below src
    old: str
    new: str
    tests: tuple[str, ...]  # below tests


GOLDEN = ("theory/test_golden.py",)
UPDATES = ("theory/test_learners_updates.py",)
SAMPLERS = ("theory/test_samplers.py",)
ALGORITHM = ("theory/test_algorithm.py::test_npg_starts_uniform_in_known_states_and_over_bonus_actions_elsewhere",)
TABULAR, NPG, CRITIC, EXACT = (
    "pcpg_theory/tabular.py",
    "pcpg_theory/npg.py",
    "pcpg_theory/critic.py",
    "pcpg_theory/exact.py",
)
ANALYSIS, PARAMETERS, SAMPLES = "pcpg_theory/analysis.py", "pcpg_theory/parameters.py", "pcpg_theory/samplers.py"
BLOCK, MODELS, Q_LEARNING = (
    "pcpg_theory/learners/pcpg.py",
    "pcpg_theory/learners/model_based.py",
    "pcpg_theory/learners/q_learning.py",
)
BONUS, DESIGN, PPO = "pcpg/cover/bonus.py", "pcpg/cover/design.py", "pcpg/learners/update.py"

# Those that once passed every test of the theory.
NAMED = (
    Mutant("exact critic fits Q", TABULAR, "return regress(Q - b)", "return regress(Q)", GOLDEN),
    Mutant("sampled critic fits Q", TABULAR, "start.a, q - b[start.s, start.a])", "start.a, q)", GOLDEN),
    Mutant(
        "NPG returns its last iterate",
        NPG,
        "chosen = np.asarray(np.argmax(values, axis=-1))",
        "chosen = np.asarray(np.argmax(0.0 * values + np.arange(T), axis=-1))",
        GOLDEN,
    ),
    Mutant(
        "Algorithm 1 returns its last policy",
        TABULAR,
        "int(np.argmax([exact.value(oracle.mdp, pi) for pi in policies]))",
        "len(policies) - 1",
        GOLDEN,
    ),
    Mutant(
        "Algorithm 1 returns its last policy, sampled",
        TABULAR,
        "return int(np.argmax(start_values(sim, policies, s.final_episodes, oracle.mdp.r, s.tail)))",
        "return len(start_values(sim, policies, s.final_episodes, oracle.mdp.r, s.tail)) - 1",
        GOLDEN,
    ),
    Mutant(
        "W ignored", TABULAR, "critic.regression(phi, labels, s.W)", "critic.regression(phi, labels, np.inf)", GOLDEN
    ),
    Mutant("W ignored by SGD", CRITIC, "theta *= np.minimum(1.0, W /", "theta *= np.minimum(1.0, 1e9 /", GOLDEN),
    Mutant("W ignored in Table 1", BLOCK, "self.labels, self.settings.W)", "self.labels, np.inf)", GOLDEN),
    Mutant("bound: regret", ANALYSIS, "npg=2.0 * W", "npg=0.02 * W", GOLDEN),
    Mutant("bound: ridge", ANALYSIS, "ridge=4.0 * np.sqrt", "ridge=0.04 * np.sqrt", GOLDEN),
    Mutant("bound: statistics", ANALYSIS, "statistics=2.0 * np.sqrt", "statistics=0.02 * np.sqrt", GOLDEN),
    Mutant("bound: potential", ANALYSIS, "potential=c * gain", "potential=0.01 * c * gain", GOLDEN),
    Mutant("bound: bias", ANALYSIS, "bias=2.0 * np.sqrt", "bias=0.02 * np.sqrt", GOLDEN),
    Mutant("aggregation bias", ANALYSIS, "(1.0 - mdp.gamma) ** 3", "(1.0 - mdp.gamma) ** 2", GOLDEN),
    Mutant("K of the paper", PARAMETERS, "32.0 * N**2 * math.log(N *", "32.0 * N * math.log(N *", GOLDEN),
    Mutant("K corrected", PARAMETERS, "32.0 * N**2 * math.log(8.0", "32.0 * N * math.log(8.0", GOLDEN),
    Mutant(
        "M corrected",
        PARAMETERS,
        "return (constant / (eps_stat / 2.0)) ** 2, H",
        "return (constant / (eps_stat / 2.0)) ** 2 / 1000.0, H",
        GOLDEN,
    ),
)

THEORY = (
    Mutant("bonus: strict threshold the wrong way", TABULAR, "(quadratic >= beta)", "(quadratic < beta)", GOLDEN),
    Mutant(
        "bonus: without 1/(1-gamma)",
        TABULAR,
        "(quadratic >= beta) / (1.0 - gamma)",
        "(quadratic >= beta) * 1.0",
        GOLDEN,
    ),
    Mutant("bonus: ridge left out", TABULAR, "total_visits) + ridge * np.eye", "total_visits) + 1e-9 * np.eye", GOLDEN),
    Mutant(
        "diagonal bonus: ridge left out",
        TABULAR,
        "(1.0 / (mass + ridge))",
        "(1.0 / (mass + 1e-9))",
        ("theory/test_algorithm.py::test_the_bonus_is_an_indicator_of_one_over_one_minus_gamma",),
    ),
    Mutant(
        "cover: mean in place of sum", TABULAR, "cover.visits.sum(0), labels", "cover.visits.mean(0), labels", GOLDEN
    ),
    Mutant(
        "rho: weights ignored", TABULAR, '"n,nsa->sa", weights, visits', '"n,nsa->sa", 0 * weights + 1, visits', GOLDEN
    ),
    Mutant(
        "exact critic of r",
        TABULAR,
        "V, Q = exact.evaluate(mdp, pi, mdp.r + b)",
        "V, Q = exact.evaluate(mdp, pi, mdp.r)",
        GOLDEN,
    ),
    Mutant("sampled critic of r", TABULAR, "reward = oracle.mdp.r + b", "reward = oracle.mdp.r", GOLDEN),
    Mutant("never stops", TABULAR, "if quiet == oracle.settings.patience:", "if quiet < 0:", GOLDEN),
    Mutant(
        "stops where everything is new",
        TABULAR,
        "visits[b > 0.0].sum()) <= settings.stop",
        "visits[b > 0.0].sum()) >= settings.stop",
        GOLDEN,
    ),
    Mutant(
        "escape of known pairs",
        TABULAR,
        "escape = float(d[bonus.b > 0.0].sum())",
        "escape = float(d[bonus.b == 0.0].sum())",
        (*GOLDEN, "theory/test_lemmas_values.py"),
    ),
    Mutant("NPG: eta ignored", NPG, "np.log(pi) + eta * scores", "np.log(pi) + scores", GOLDEN),
    Mutant("NPG: updates unknown states", NPG, "np.where(known[..., None], updated, pi)", "updated", GOLDEN),
    Mutant(
        "NPG: starts uniform everywhere",
        NPG,
        "np.where(unknown.any(-1, keepdims=True), unknown, available)",
        "np.where(unknown.any(-1, keepdims=True), available, available)",
        (*GOLDEN, *ALGORITHM),
    ),
    Mutant(
        "NPG: scores do not add up", NPG, "scores += b + score(thetas[-1])", "scores = b + score(thetas[-1])", GOLDEN
    ),
    Mutant(
        "NPG: iterates 1 to T",
        NPG,
        "        iterates.append(pi)\n",
        "        iterates.append(exponential_update(pi, b + np.arange(b.shape[-1]), eta, known))\n",
        GOLDEN,
    ),
    Mutant(
        "known states: all actions",
        NPG,
        "np.logical_not(((b > 0.0) & available).any(axis=-1))",
        "np.logical_not(((b > 0.0) & available).all(axis=-1))",
        (*GOLDEN, *ALGORITHM),
    ),
    Mutant(
        "least squares: unweighted",
        CRITIC,
        "moment = singular * (left.T @ (root * y))",
        "moment = singular * (left.T @ y)",
        GOLDEN,
    ),
    Mutant("least squares: partition unweighted", CRITIC, "weights=root**2 * y", "weights=root * y", GOLDEN),
    Mutant("least squares: not cut", CRITIC, "if norm(0.0) <= W:", "if norm(0.0) <= 1e9 * W:", GOLDEN),
    Mutant("samples: sums for means", CRITIC, "minlength=size) / np.maximum(counts, 1)", "minlength=size)", GOLDEN),
    Mutant("SGD: last iterate", CRITIC, "return total / N", "return theta", GOLDEN),
    Mutant(
        "SGD lemma: step", CRITIC, "return W / ((W + H) * np.sqrt(N))", "return W**2 / ((W + H) * np.sqrt(N))", GOLDEN
    ),
    Mutant("SGD lemma: excess", CRITIC, "(2.0 + 4.0 * np.sqrt(2.0 * np.log", "(2.0 + 4.0 * np.sqrt(np.log", GOLDEN),
    Mutant(
        "occupancy not normalised",
        EXACT,
        "d_states = (1.0 - gamma) * np.linalg.solve(system, start)",
        "d_states = np.linalg.solve(system, start)",
        GOLDEN,
    ),
    Mutant("occupancy: start twice", EXACT, "after = gamma * (nu", "after = (nu", GOLDEN),
    Mutant("Q without discount", EXACT, "Q = r + mdp.gamma * (mdp.P", "Q = r + (mdp.P", GOLDEN),
    Mutant("sum: geometric time off by one", SAMPLES, "size=count) - 1", "size=count)", (*GOLDEN, *SAMPLERS)),
    Mutant("sum: discounted twice", SAMPLES, "discount *= sim.gamma", "discount *= sim.gamma**2", GOLDEN),
    Mutant("sum: never cut", SAMPLES, "if discount <= tail:", "if discount <= 1e-9:", GOLDEN),
    Mutant(
        "steps of a sum not counted",
        SAMPLES,
        "    while True:\n        sim.play(s)\n",
        "    while True:\n        sim.play(s[:0])\n",
        GOLDEN,
    ),
    Mutant(
        "T of the theorem",
        PARAMETERS,
        "4.0 * W**2 * math.log(num_actions) / x**2",
        "4.0 * W * math.log(num_actions) / x**2",
        GOLDEN,
    ),
    Mutant("beta corrected", PARAMETERS, "x**2 / (32.0 * W**2)", "x**2 / (4.0 * W**2)", GOLDEN),
    Mutant(
        "N corrected", PARAMETERS, "128.0 * W**2 / (epsilon**3 * g**4)", "128.0 * W**2 / (epsilon**3 * g**3)", GOLDEN
    ),
    Mutant(
        "choice of iterates not counted",
        PARAMETERS,
        "episodes = N * T * inner + N * outer",
        "episodes = N * outer",
        GOLDEN,
    ),
    Mutant(
        "aggregation W",
        PARAMETERS,
        "math.sqrt(num_labels) / (1.0 - gamma) ** 2",
        "math.sqrt(num_labels) / (1.0 - gamma)",
        GOLDEN,
    ),
    Mutant("Table 1's PC-PG fits Q", BLOCK, "[..., 0] - b[self._lane[:, None], s, a]", "[..., 0]", GOLDEN),
    Mutant(
        "Table 1's PC-PG keeps the last policy",
        BLOCK,
        "better = found > self.value",
        "better = found > -np.inf",
        UPDATES,
    ),
    Mutant("UCBVI: no cut", MODELS, "return np.minimum(self.Q[:, here], new)", "return new", UPDATES),
    Mutant("UCB Q-learning: rate 1/t", Q_LEARNING, "return (horizon + 1.0) / (horizon + t)", "return 1.0 / t", UPDATES),
    Mutant("delayed Q-learning: eps_1", Q_LEARNING, "mean + self.eps_1", "mean", UPDATES),
)

DEEP = (
    Mutant(
        "covariance: sum",
        BONUS,
        "return total / jnp.maximum(jnp.sum(mask), 1)",
        "return total",
        ("cover/test_covariances.py", "cover/test_bonus.py"),
    ),
    Mutant(
        "whitening: no ridge",
        BONUS,
        "np.linalg.cholesky(sigma_sum + ridge * np.eye(dim))",
        "np.linalg.cholesky(sigma_sum + 1e-9 * np.eye(dim))",
        ("cover/test_bonus.py",),
    ),
    Mutant(
        "indicator the wrong way", BONUS, "jnp.where(form >= beta,", "jnp.where(form < beta,", ("cover/test_bonus.py",)
    ),
    Mutant(
        "design: gradient of the wrong matrix",
        DESIGN,
        'np.einsum("ijk,jk->i", problem.sigmas, inverse)',
        'np.einsum("ijk,jk->i", problem.sigmas, mixture)',
        ("cover/test_design.py",),
    ),
    Mutant(
        "design: gap too small",
        DESIGN,
        "gap = float(gradient.max() - weights @ gradient)",
        "gap = 0.01 * float(gradient.max() - weights @ gradient)",
        ("cover/test_design.py",),
    ),
    Mutant(
        "roll-in: mixture of one part",
        "pcpg/cover/cover.py",
        "jnp.logaddexp(jnp.log1p(-epsilon) + log_prob,",
        "jnp.logaddexp(log_prob,",
        ("cover/test_rollin.py",),
    ),
    Mutant(
        "cover: sum over capacity",
        "pcpg/cover/cover.py",
        "return self.used.sum(axis=0)",
        "return self.used.mean(axis=0)",
        ("cover/test_cover.py",),
    ),
    Mutant(
        "GAE: truncation as termination",
        PPO,
        "gamma * next_values * ~terminated - values",
        "gamma * next_values * ~(terminated | truncated) - values",
        ("learners/test_advantages.py",),
    ),
    Mutant(
        "GAE: lambda ignored", PPO, "keep = gamma * gae_lambda *", "keep = gamma *", ("learners/test_advantages.py",)
    ),
    Mutant(
        "PPO: clip ignored",
        PPO,
        "jnp.minimum(ratio * advantage, clipped * advantage)",
        "ratio * advantage",
        ("learners/test_losses.py",),
    ),
    Mutant(
        "PPO: entropy the wrong way",
        PPO,
        "- entropy_coef * mean_entropy",
        "+ entropy_coef * mean_entropy",
        ("learners/test_losses.py",),
    ),
    Mutant(
        "RND: target in training",
        "pcpg/bonuses/rnd.py",
        "goal = jax.lax.stop_gradient(target.linear(observations))",
        "goal = target.linear(observations)",
        ("bonuses/test_rnd.py",),
    ),
    Mutant(
        "backups: no bonus ahead",
        "pcpg/kernel/fitting.py",
        "optimistic(f, kept.bonus) if explore else f",
        "f",
        ("kernel/test_averager.py",),
    ),
    Mutant(
        "Adam: gradient not clipped",
        "pcpg/learners/update.py",
        "jnp.minimum(1.0, max_norm / jnp.maximum(norm, 1e-12))",
        "1.0",
        ("learners/test_update.py",),
    ),
)
MUTANTS = NAMED + THEORY + DEEP
