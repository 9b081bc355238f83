"""Mutants of kept data, the look, budgets, bonuses and off-policy learning, for `python -m tests.mutants`."""

from tests.mutants_table import Mutant

EXPLORE, TASK, INPUTS = "pcpg/algos/replay_explore.py", "pcpg/algos/replay_task.py", "pcpg/kernel/inputs.py"
PAIRS, DATA, MARKS, FITTING = (
    "pcpg/kernel/pairs.py",
    "pcpg/data.py",
    "pcpg/kernel/landmarks.py",
    "pcpg/kernel/fitting.py",
)
LEARNED, LOOK, BUDGET = "pcpg/kernel/views.py", "pcpg/algos/look.py", "pcpg/budget.py"
E3B, RANKED = "pcpg/bonuses/e3b.py", "pcpg/bonuses/ranked.py"
TRANSITIONS, OFF_POLICY, NOVELTY, DEEP_TASK = (
    "pcpg/learners/transitions.py",
    "pcpg/learners/off_policy.py",
    "pcpg/learners/novelty.py",
    "pcpg/algos/deep_learn.py",
)
RF_EXPRESS = "pcpg_theory/learners/reward_free.py"
ROUNDS, REPLAY = ("algos/test_replay_data.py",), ("algos/test_replay.py",)
SEEN, MINIBATCH, UPDATE = (
    ("algos/test_look.py",),
    ("learners/test_off_policy.py", "learners/test_transitions.py"),
    ("learners/test_targets.py", "learners/test_off_policy.py"),
)
RANDOM_FEATURES, OF_TASK, OF_PAIRS = (
    ("learners/test_random_features.py",),
    ("algos/test_deep.py",),
    ("kernel/test_pairs.py",),
)
REWARD_FREE, EPISODIC, BEST = ("theory/test_reward_free.py",), ("bonuses/test_e3b.py",), ("bonuses/test_ranked.py",)
LIMITS = tuple(
    f"training/test_budgets.py::{name}"
    for name in (
        "test_no_round_is_begun_that_would_likely_end_after_the_time",
        "test_a_target_ends_a_seed_in_any_phase",
        "test_what_was_spent_before_anything_was_explored_is_no_part_of_its_share",
    )
)

# Those that once passed every test of kept data.
EIGHT = (
    Mutant(
        "time limits are terminations to who explores",
        INPUTS,
        'kept.column("terminated")[index] | cut',
        'kept.column("terminated")[index] | kept.column("truncated")[index]',
        ROUNDS,
    ),
    Mutant(
        "time limits are terminations to a task",
        TASK,
        'ended, reward = kept.column("terminated")[index],',
        'ended, reward = (kept.column("terminated") | kept.column("truncated"))[index],',
        ROUNDS,
    ),
    Mutant(
        "the bonus is kept beyond the time limit",
        INPUTS,
        'kept.column("terminated")[index] | cut',
        'kept.column("terminated")[index]',
        ROUNDS,
    ),
    Mutant("nobody rolls in", EXPLORE, "self.settings.roll_in_share if len(cover.w) else 0.0", "0.0", ROUNDS),
    Mutant("roll-in: weights ignored", EXPLORE, ", p=weights / weights.sum())", ")", ROUNDS),
    Mutant("quiet although new pairs were met", EXPLORE, " and seen.largest < NEW else 0", " else 0", ROUNDS),
    Mutant(
        "a pair that was never met is worth 0",
        TASK,
        "prior=np.float32(kept.returns_to_go().min() / scale)",
        "prior=np.float32(0.0)",
        ROUNDS,
    ),
    Mutant("diagonal design: half the gap", PAIRS, "max(gap, 0.0), used", "0.5 * max(gap, 0.0), used", OF_PAIRS),
    Mutant(
        "certificate: norm by the largest eigenvalue",
        "pcpg_theory/certificate.py",
        "((right @ v) ** 2 / square).sum()",
        "((right @ v) ** 2 / square.max()).sum()",
        ("theory/test_certificate.py",),
    ),
)

KEPT = (
    Mutant("sample: no inverse weight", EXPLORE, "1.0 / chance[chosen])", "0.0 * chance[chosen] + 1)", ROUNDS),
    Mutant("waiting visits are forgotten", INPUTS, "total = waiting[row, act] + count", "total = count", ROUNDS),
    Mutant(
        "the bonus falls by half of the fall",
        FITTING,
        "model.bonus - counted.fall,",
        "model.bonus - counted.fall / 2,",
        ROUNDS,
    ),
    Mutant("equal transitions count once", INPUTS, "fill(number, np.float32)", "fill(number > 0, np.float32)", ROUNDS),
    Mutant("ends are merged with steps that live on", INPUTS, "key = key * 2 + live", "key = key * 2", ROUNDS),
    Mutant("returns go on behind an end", DATA, " * ~terminated[block][goes_on]", "", ROUNDS),
    Mutant(
        "ends of another reward are ignored",
        DATA,
        'ends = self.column("terminated") if terminated is None else terminated',
        'ends = self.column("terminated")',
        ROUNDS,
    ),
    Mutant("acted in: where steps led", DATA, 'acted[self.column("code")]', 'acted[self.column("next_code")]', ROUNDS),
    Mutant(
        "first observations: the oldest",
        DATA,
        '[self.column("first")][-number:]',
        '[self.column("first")][:number]',
        ROUNDS,
    ),
    Mutant(
        "kinds: whatever they led to",
        DATA,
        'len(self._numbers), 1) + self.column("next_code")',
        "len(self._numbers), 1)",
        ROUNDS,
    ),
    Mutant(
        "one reward is a success",
        DATA,
        "np.count_nonzero(rewards > 0)) >= ENOUGH",
        "np.count_nonzero(rewards > 0)) >= 1",
        ROUNDS,
    ),
    Mutant(
        "tries: the data need not grow",
        TASK,
        "kept.size >= factor * int(state.own.tried_at)",
        "kept.size >= int(state.own.tried_at)",
        ROUNDS,
    ),
    Mutant("luck: half the error", TASK, "- CHANCE * error <", "- 0.5 * CHANCE * error <", ROUNDS),
    Mutant(
        "luck: confirmed by what was said",
        TASK,
        "best_return=state.ledger.last_return, phase_round",
        "best_return=state.ledger.best_return, phase_round",
        REPLAY,
    ),
    Mutant("grains: never the best one again", TASK, "(turn - grains) % 2 == 0", "(turn - grains) % 2 == 2", REPLAY),
    Mutant(
        "shares as wide as the kernel",
        MARKS,
        "-0.5 * SHARP**2 * _distances",
        "-0.5 * _distances",
        ("kernel/test_landmarks.py",),
    ),
    Mutant(
        "interpolating: actions where they were taken",
        "pcpg/kernel/fitting.py",
        "jnp.asarray(w) - ((begun",
        "jnp.asarray(w) - 0 * ((begun",
        ("kernel/test_averager.py",),
    ),
    Mutant(
        "learned features: ignored entries are seen",
        LEARNED,
        "ranges[list(kept.ignored)] = np.inf",
        "ranges[list(kept.ignored)] *= 1",
        ("kernel/test_learned.py",),
    ),
    Mutant(
        "learned features: nothing is learned",
        LEARNED,
        "found = inverse_loss(",
        "found = 0 * inverse_loss(",
        ("kernel/test_learned.py",),
    ),
)

AROUND = (
    Mutant("look: noise at half the jump", LOOK, "jumps > JUMP * 2 * flat", "jumps > JUMP * flat", SEEN),
    Mutant("look: few values are noise", LOOK, "np.flatnonzero(many & (jumps", "np.flatnonzero((jumps", SEEN),
    Mutant(
        "look: what is usual is good", LOOK, "usual = max(0.0, float(values[np.argmax(counts)]))", "usual = 0.0", SEEN
    ),
    Mutant(
        "look: an end at the limit is good",
        LOOK,
        "terminated.any(axis=0) & (lengths < len(alive))",
        "terminated.any(axis=0)",
        SEEN,
    ),
    Mutant("look: parabola without its square", LOOK, "clipped, clipped**2], axis=1)", "clipped], axis=1)", SEEN),
    Mutant(
        "budget: a round may end late",
        BUDGET,
        "elapsed * (1 + 1 / max(int(ledger.round), 1)) > seconds",
        "elapsed > seconds",
        LIMITS,
    ),
    Mutant(
        "budget: what was spent before counts", BUDGET, "begun + (1 - begun) * EXPLORE_SHARE", "EXPLORE_SHARE", LIMITS
    ),
    Mutant(
        "budget: the target of the best round",
        BUDGET,
        "ledger.last_return >= self.limits.until",
        "ledger.last_return > 2 * self.limits.until",
        LIMITS,
    ),
    Mutant(
        "E3B: episodes run into each other",
        E3B,
        "first = first.at[1:].set(ends[:-1])",
        "first = first.at[1:].set(ends[1:])",
        EPISODIC,
    ),
    Mutant(
        "E3B: nothing gets old", E3B, "solved[:, None, :] / (1 + form)", "solved[:, None, :] * 0 / (1 + form)", EPISODIC
    ),
    Mutant(
        "E3B: the weight of the first state",
        E3B,
        "jnp.where(is_first[:, None, None], started, inverse)",
        "jnp.where(is_first[:, None, None], fresh, inverse)",
        EPISODIC,
    ),
    Mutant(
        "ranked: volume by the longest episode",
        RANKED,
        "length = jnp.maximum(jnp.sum(alive, axis=0), 1)\n",
        "length = len(alive)\n",
        BEST,
    ),
    Mutant(
        "ranked: views that come again count",
        RANKED,
        "phi = jnp.where(is_new[..., None], phi, 0.0)",
        "phi = jnp.where(alive[..., None], phi, 0.0)",
        BEST,
    ),
    Mutant(
        "ranked: a level may have it all", RANKED, "within >= self.level_share * size", "within >= size + 10**6", BEST
    ),
    Mutant(
        "ranked: as much as ever is kept",
        RANKED,
        "jnp.clip(successes, min(self.keep, capacity), capacity)",
        "min(self.keep, capacity) + 0 * successes",
        BEST,
    ),
)

DEEP = (
    Mutant("n steps: always the last discount", TRANSITIONS, "(gamma**ahead * live)", "(gamma**n * live)", MINIBATCH),
    Mutant(
        "n steps: a time limit is an end",
        TRANSITIONS,
        'live = ~self.column("terminated")[last]',
        "live = ahead == n",
        MINIBATCH,
    ),
    Mutant(
        "n steps: across the end of an episode",
        TRANSITIONS,
        'np.minimum(n, self.column("end")[places] - places)',
        "np.minimum(n, self.size - places)",
        MINIBATCH,
    ),
    Mutant(
        "n steps: rewards are not discounted",
        TRANSITIONS,
        "np.float32(gamma**k) * reward[step]",
        "reward[step]",
        MINIBATCH,
    ),
    Mutant(
        "n steps: one observation early", TRANSITIONS, "seen[last + episode + 1]", "seen[last + episode]", MINIBATCH
    ),
    Mutant(
        "returns of episodes are not discounted",
        TRANSITIONS,
        "self.by_episode(reward * powers[ahead], np.add)",
        "self.by_episode(reward * powers[0 * ahead], np.add)",
        MINIBATCH,
    ),
    Mutant(
        "actions in their own units",
        TRANSITIONS,
        "(self.space.high - self.space.low) / 2",
        "(self.space.high - self.space.low)",
        MINIBATCH,
    ),
    Mutant(
        "targets: the larger critic",
        OFF_POLICY,
        "ahead = jnp.min(all_values(target.critics, later), axis=0)",
        "ahead = jnp.max(all_values(target.critics, later), axis=0)",
        UPDATE,
    ),
    Mutant(
        "targets: the action that the target prefers",
        OFF_POLICY,
        "in_parts(ahead_own, parts)]",
        "in_parts(ahead, parts)]",
        UPDATE,
    ),
    Mutant("targets: without entropy", OFF_POLICY, "axis=0) - alpha * after_log_prob", "axis=0)", UPDATE),
    Mutant(
        "targets: without bounds",
        OFF_POLICY,
        "jnp.clip(batch.returns + batch.discounts * ahead, rates.low, rates.high)",
        "batch.returns + batch.discounts * ahead",
        UPDATE,
    ),
    Mutant(
        "tanh: density before it", OFF_POLICY, "jnp.sum(density - slope, axis=-1)", "jnp.sum(density, axis=-1)", UPDATE
    ),
    Mutant(
        "the target is the newest",
        OFF_POLICY,
        "rates.tau * (params - learner.target)",
        "(params - learner.target)",
        UPDATE,
    ),
    Mutant(
        "new scale: the target keeps its values",
        OFF_POLICY,
        '("params", "target", "average")}',
        '("params", "average")}',
        UPDATE,
    ),
    Mutant("novelty: the form for its root", NOVELTY, "** np.float32(power)", "** np.float32(1.0)", RANDOM_FEATURES),
    Mutant(
        "novelty: only the newest data", NOVELTY, "sigma = self.sigma.copy()", "sigma = 0 * self.sigma", RANDOM_FEATURES
    ),
    Mutant(
        "novelty: width of one dimension",
        NOVELTY,
        "max(dimensions / PER_DIMENSION, NARROWEST)",
        "max(1 / PER_DIMENSION, NARROWEST)",
        RANDOM_FEATURES,
    ),
    Mutant(
        "novelty: entries as they are",
        NOVELTY,
        "projection = np.diag(inverse) if",
        "projection = np.eye(len(mean)) if",
        RANDOM_FEATURES,
    ),
    Mutant(
        "best episodes: as they came", DEEP_TASK, 'np.argsort(-score, kind="stable")', "np.arange(len(score))", OF_TASK
    ),
    Mutant(
        "best episodes: others fill them",
        DEEP_TASK,
        "np.where(score[order] > 0, most, min(most, FEWEST_BEST))",
        "most",
        OF_TASK,
    ),
    Mutant(
        "scores: whatever the start promises",
        DEEP_TASK,
        "return found - centred @",
        "return found - 0 * centred @",
        OF_TASK,
    ),
    Mutant(
        "task: a cost is learned at every step",
        DEEP_TASK,
        'learned = kept.column("terminated").astype(np.float32)',
        "learned = reward",
        OF_TASK,
    ),
    Mutant(
        "task: a success goes on for ever", DEEP_TASK, "high if ends else high * forever", "high * forever", OF_TASK
    ),
    Mutant("task: what is usual is a success", DEEP_TASK, "best > usual + 1e-6", "best > 1e-6", OF_TASK),
    Mutant(
        "task: costs of actions are dense",
        DEEP_TASK,
        "reward[some][plain]) < BY_ACTION",
        "reward[some][plain]) < 9",
        OF_TASK,
    ),
)

THEORY = (
    Mutant(
        "RF-Express: a bonus of order one over the root",
        RF_EXPRESS,
        "self.delta) / np.maximum(N, 1.0)",
        "self.delta) / np.sqrt(np.maximum(N, 1.0))",
        REWARD_FREE,
    ),
    Mutant("RF-Express: no growth per step", RF_EXPRESS, "(1.0 + 1.0 / L) * P, finish", "P, finish", REWARD_FREE),
    Mutant("RF-Express: cut by 1", RF_EXPRESS, "np.minimum(W, self.top[here])", "np.minimum(W, 1.0)", REWARD_FREE),
    Mutant(
        "RF-Express: the bound without its root",
        RF_EXPRESS,
        "3.0 * np.e * np.sqrt(w) + w",
        "3.0 * np.e * w + w",
        REWARD_FREE,
    ),
    Mutant(
        "RF-Express: states of one step in the log", RF_EXPRESS, "layout.width * np.log(8.0", "np.log(8.0", REWARD_FREE
    ),
    Mutant(
        "RF-Express: plays the best policy",
        RF_EXPRESS,
        "self.play = tables.greedy(self.W)",
        "self.play = tables.greedy(0 * self.W)",
        REWARD_FREE,
    ),
)
OPTIMISM, FROM_DATA, OF_RUN = "pcpg_theory/optimism.py", "pcpg_theory/certificate.py", "pcpg_theory/cli/certify.py"
BOUNDS, CERTIFIED = ("theory/test_optimism.py",), ("theory/test_from_data.py",)
CERTIFICATES = (
    Mutant("data: a bound of the mean alone", OPTIMISM, ".sum(-1) - c)", ".sum(-1))", BOUNDS),
    Mutant("data: no union over steps", OPTIMISM, "* (steps or 1) / delta)", "/ delta)", BOUNDS),
    Mutant(
        "data: shares of states that sum to more than one",
        OPTIMISM,
        "data.num_actions + 2.0",
        "data.num_actions + 1.0",
        BOUNDS,
    ),
    Mutant(
        "data: not at every time",
        OPTIMISM,
        "threshold = table.slack + np.log(2.0 * np.sqrt(",
        "threshold = table.slack + np.log(1.0 + 0 * np.sqrt(",
        BOUNDS,
    ),
    Mutant(
        "data: what was never tried is worth nothing",
        OPTIMISM,
        "Q = np.full(data.num_states * data.num_actions, top)",
        "Q = np.zeros(data.num_states * data.num_actions)",
        BOUNDS,
    ),
    Mutant("data: ends go on", OPTIMISM, "np.where(table.after < 0, 0.0, V[table.after])", "V[table.after]", BOUNDS),
    Mutant("data: the last values of all", OPTIMISM, "np.stack(found[::-1])", "np.stack(found)", BOUNDS),
    Mutant(
        "data: largest reward for the largest value",
        OPTIMISM,
        "max(self.high * weight, 0.0), self.most",
        "self.high, self.most",
        BOUNDS,
    ),
    Mutant(
        "data: starts as if all were known", OPTIMISM, "* 2.0 / delta)\n    start", "* 1e-9 / delta)\n    start", BOUNDS
    ),
    Mutant("Bernstein: without its range", OPTIMISM, "7.0 * (largest - least) * log", "7.0 * log", BOUNDS),
    Mutant(
        "Bernstein: variance unscaled",
        OPTIMISM,
        "values.var(ddof=1) * log / n)",
        "values.var(ddof=1) * log) / n",
        BOUNDS,
    ),
    Mutant("moves: behind an end", FROM_DATA, "~self._terminal[s]\n", "s >= 0\n", CERTIFIED),
    Mutant(
        "moves: states by their names",
        FROM_DATA,
        "number[self.order] = np.arange(len(self.order))",
        "number[np.sort(self.order)] = np.arange(len(self.order))",
        CERTIFIED,
    ),
    Mutant("a run: no share for the second bound", OF_RUN, "delta / (2 * len(seeds))", "delta / len(seeds)", CERTIFIED),
    Mutant(
        "a run: a cut is an end",
        OF_RUN,
        "one.terminated for one in episodes",
        "one.terminated | one.truncated for one in episodes",
        CERTIFIED,
    ),
    Mutant(
        "a run: r_max is not checked",
        OF_RUN,
        "declared.check(np.concatenate([one.rewards",
        "declared.check(0 * np.concatenate([one.rewards",
        CERTIFIED,
    ),
    Mutant(
        "a run: actions that were tried alone",
        OF_RUN,
        "actions.astype(np.int64), space.n",
        "actions.astype(np.int64), int(actions.max()) + 1",
        CERTIFIED,
    ),
)
MUTANTS = EIGHT + KEPT + AROUND + DEEP + THEORY + CERTIFICATES
