"""Every comparator by name: its label, its row of the paper's table, its source, and the table's claim about it."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from pcpg_theory.learners.homer import HOMER
from pcpg_theory.learners.kwik import KWIK
from pcpg_theory.learners.layout import EpisodicLearner, Layout, Streams
from pcpg_theory.learners.linear import LSVIUCB, RewardFreeLSVI
from pcpg_theory.learners.model_based import E3, UCBVI, UCRL2, RMax
from pcpg_theory.learners.optimistic_policy import OPPO, POMD
from pcpg_theory.learners.pcpg import PCPG, theorem_settings
from pcpg_theory.learners.policy_optimisation import CPI, MDMPI, NPG, PSDP, Reinforce
from pcpg_theory.learners.q_learning import UCBQ, AggregatedQ, DelayedQ, EpsilonGreedyQ
from pcpg_theory.learners.reward_free import Curious, RFExpress
from pcpg_theory.learners.thompson import PSRL, RLSVI, OptimisticPSRL

POLYNOMIAL = (
    "model-based",
    "Thompson sampling",
    "optimistic Q-learning",
    "optimistic policy optimisation",
    "PC-PG",
    "linear",
)
EXTRAS = ("linear", "policy search with restarts", "own")  # beside the table; "own" are registered by users
ROWS = (*POLYNOMIAL, "epsilon-greedy", "policy optimisation", *EXTRAS[1:])


class Comparator(NamedTuple):
    """A comparator: `make(layout, streams, scale=...)` returns its learner."""

    label: str
    make: Callable[..., EpisodicLearner]
    row: str  # one of ROWS
    source: str
    theory: Callable[..., EpisodicLearner] | None = None  # with the constants of its theorem; None: it states none
    assumes_restarts: bool = False  # its paper restarts from a distribution that covers the states; here it gets s0

    @property
    def explores(self) -> bool:
        """Whether the table, or its own paper, claims a polynomial number of samples from s0 for its row."""
        return self.row in POLYNOMIAL

    @property
    def extra(self) -> bool:
        """Whether it is outside the paper's table."""
        return self.row in EXTRAS


OPSRL_BY_PAPER = partial(OptimisticPSRL, psi=None, eta=None)


def _pcpg_by_theorem(layout: Layout, streams: Streams) -> EpisodicLearner:
    dim = layout.num_states * layout.num_actions
    return PCPG(layout, streams, settings=theorem_settings(layout, dim))


UCBVI_BERNSTEIN, UCBQ_BERNSTEIN = partial(UCBVI, bonus="bernstein"), partial(UCBQ, bonus="bernstein")
COMPARATORS: dict[str, Comparator] = {
    "e3": Comparator("E3", E3, "model-based", "Kearns and Singh 2002", E3),
    "r-max": Comparator("R-max", RMax, "model-based", "Brafman and Tennenholtz 2002", RMax),
    "ucrl2": Comparator("UCRL2", UCRL2, "model-based", "Jaksch, Ortner and Auer 2010", UCRL2),
    "ucbvi": Comparator("UCBVI, Hoeffding", UCBVI, "model-based", "Azar, Osband and Munos 2017", UCBVI),
    "ucbvi-bernstein": Comparator(
        "UCBVI, Bernstein", UCBVI_BERNSTEIN, "model-based", "Azar, Osband and Munos 2017", UCBVI_BERNSTEIN
    ),
    "psrl": Comparator("PSRL", PSRL, "Thompson sampling", "Osband, Russo and Van Roy 2013", PSRL),
    "rlsvi": Comparator("RLSVI", RLSVI, "Thompson sampling", "Osband, Van Roy and Wen 2014; Russo 2019", RLSVI),
    "optimistic-psrl": Comparator(
        "optimistic posterior sampling", OptimisticPSRL, "Thompson sampling", "Agrawal and Jia 2017", OPSRL_BY_PAPER
    ),
    "epsilon-greedy-q": Comparator("Q-learning, epsilon-greedy", EpsilonGreedyQ, "epsilon-greedy", "Watkins 1989"),
    "delayed-q": Comparator("delayed Q-learning", DelayedQ, "optimistic Q-learning", "Strehl et al. 2006", DelayedQ),
    "ucb-q": Comparator("UCB Q-learning, Hoeffding", UCBQ, "optimistic Q-learning", "Jin et al. 2018", UCBQ),
    "ucb-q-bernstein": Comparator(
        "UCB Q-learning, Bernstein", UCBQ_BERNSTEIN, "optimistic Q-learning", "Jin et al. 2018", UCBQ_BERNSTEIN
    ),
    "aggregated-q": Comparator(
        "aggregated Q-learning", AggregatedQ, "optimistic Q-learning", "Dong, Van Roy and Zhou 2019", AggregatedQ
    ),
    "kwik": Comparator("KWIK linear regression", KWIK, "optimistic Q-learning", "Li, Littman and Walsh 2009", KWIK),
    "reinforce": Comparator("REINFORCE", Reinforce, "policy optimisation", "Williams 1992"),
    "npg": Comparator("NPG", NPG, "policy optimisation", "Kakade 2001; Agarwal et al. 2019"),
    "md-mpi": Comparator("MD-MPI", MDMPI, "policy optimisation", "Geist, Scherrer and Pietquin 2019"),
    "oppo": Comparator("OPPO", OPPO, "optimistic policy optimisation", "Cai et al. 2019", OPPO),
    "pomd": Comparator("POMD", POMD, "optimistic policy optimisation", "Efroni et al. 2020", POMD),
    "pcpg": Comparator("PC-PG", PCPG, "PC-PG", "Agarwal, Henaff, Kakade and Sun 2020", _pcpg_by_theorem),
    "lsvi-ucb": Comparator("LSVI-UCB", LSVIUCB, "linear", "Jin, Yang, Wang and Jordan 2019", LSVIUCB),
    "cpi": Comparator("CPI", CPI, "policy search with restarts", "Kakade and Langford 2002", CPI, True),
    "psdp": Comparator("PSDP", PSDP, "policy search with restarts", "Bagnell et al. 2003", PSDP, True),
}
OLD_NAMES = {"pc-pg": "pcpg"}
BESIDE: dict[str, Comparator] = {
    "count": Comparator("count bonus", partial(Curious, kind="count"), "own", "Bellemare et al. 2016"),
    "icm": Comparator("ICM's prediction error", partial(Curious, kind="icm"), "own", "Pathak et al. 2017"),
    "rnd": Comparator("RND's prediction error", partial(Curious, kind="rnd"), "own", "Burda et al. 2018"),
    "homer": Comparator("HOMER", HOMER, "own", "Misra, Henaff, Krishnamurthy and Langford 2020"),
    "rf-express": Comparator("RF-Express", RFExpress, "own", "Menard et al. 2021", RFExpress),
    "rf-lsvi": Comparator(
        "reward-free LSVI-UCB", RewardFreeLSVI, "own", "Wang et al. 2020; Qiu et al. 2021", RewardFreeLSVI
    ),
}
"""Bonuses without a guarantee, HOMER, of block MDPs, and exploration without reward: `pcpg theory compare` runs them
too, the table does not."""


def current_name(name: str) -> str:
    """The name by which a comparator goes now, for one that may be spelled as it was."""
    return OLD_NAMES.get(name, name)


def chosen(names: Sequence[str]) -> tuple[str, ...]:
    """The current names of comparators, in the order given; a ValueError for one that there is not."""
    found = tuple(map(current_name, names))
    unknown = [name for name in found if name not in COMPARATORS]
    if unknown:
        raise ValueError(f"unknown algorithm {unknown[0]!r}; valid: {', '.join(COMPARATORS)}")
    return found
