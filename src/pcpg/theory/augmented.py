"""The augmented MDP M^n of the analysis: bonus added, and an extra action a_dagger outside the known set.

| symbol       | function              | meaning                                                                  |
|--------------|-----------------------|--------------------------------------------------------------------------|
| M^n          | `augmented_mdp`       | reward r + b^n; a_dagger (index A) in unknown states: stays, reward 1    |
| pi_tilde^n   | `augmented_comparator`| the comparator in known states, a_dagger elsewhere                       |

No algorithm runs on it. It exists so that the lemmas about it can be checked on numbers.
"""

import numpy as np

from pcpg.theory.mdp import Array, TabularMDP, check_policy
from pcpg.theory.npg import known_states


def augmented_mdp(mdp: TabularMDP, b: Array) -> TabularMDP:
    """Return M^n: rewards r + b, and action A available only in states outside K^n, where it stays and pays 1."""
    S, A = mdp.shape
    unknown = ~known_states(b, mdp.available)
    P, r = np.zeros((S, A + 1, S)), np.zeros((S, A + 1))
    P[:, :A], r[:, :A] = mdp.P, mdp.r + b
    P[np.arange(S), A, np.arange(S)], r[:, A] = 1.0, 1.0
    available = np.concatenate([mdp.available, unknown[:, None]], axis=1)
    r_max = max(1.0, (2.0 - mdp.gamma) / (1.0 - mdp.gamma) * mdp.r_max)
    return TabularMDP(P, np.where(available, r, 0.0), mdp.gamma, mdp.s0, r_max, available)


def augmented_comparator(mdp: TabularMDP, b: Array, comparator: Array) -> Array:
    """Return pi_tilde^n[s, A + 1]: the comparator where all actions are known, a_dagger elsewhere."""
    known = known_states(b, mdp.available)
    plain = check_policy(mdp, comparator) * known[:, None]
    return np.concatenate([plain, (~known)[:, None].astype(np.float64)], axis=1)


def extend_policy(pi: Array) -> Array:
    """Return the policy on M^n that never takes a_dagger."""
    return np.concatenate([pi, np.zeros((len(pi), 1))], axis=1)
