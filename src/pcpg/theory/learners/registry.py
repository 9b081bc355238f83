"""Every comparator by name: its row of the paper's table, its source, and what the table claims of it."""

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

from pcpg.theory.learners.aggregated_q import AggregatedQ
from pcpg.theory.learners.cpi import CPI
from pcpg.theory.learners.delayed_q import DelayedQ
from pcpg.theory.learners.e3 import E3
from pcpg.theory.learners.layout import Layout, Learner, Streams
from pcpg.theory.learners.lsvi_ucb import LSVIUCB
from pcpg.theory.learners.md_mpi import MDMPI
from pcpg.theory.learners.npg import NPG
from pcpg.theory.learners.oppo import OPPO
from pcpg.theory.learners.optimistic_psrl import OptimisticPSRL
from pcpg.theory.learners.pcpg import PCPG, theorem_settings
from pcpg.theory.learners.pomd import POMD
from pcpg.theory.learners.psdp import PSDP
from pcpg.theory.learners.psrl import PSRL
from pcpg.theory.learners.q_learning import EpsilonGreedyQ
from pcpg.theory.learners.r_max import RMax
from pcpg.theory.learners.reinforce import Reinforce
from pcpg.theory.learners.rlsvi import RLSVI
from pcpg.theory.learners.ucb_q import UCBQ
from pcpg.theory.learners.ucbvi import UCBVI
from pcpg.theory.learners.ucrl2 import UCRL2

Row = Literal[
    "model-based",
    "Thompson sampling",
    "epsilon-greedy",
    "optimistic Q-learning",
    "policy optimisation",
    "optimistic policy optimisation",
    "PC-PG",
    "linear",  # this one and the next stand beside the table
    "policy search with restarts",
]

POLYNOMIAL: tuple[Row, ...] = (
    "model-based",
    "Thompson sampling",
    "optimistic Q-learning",
    "optimistic policy optimisation",
    "PC-PG",
    "linear",
)

EXTRAS: tuple[Row, ...] = ("linear", "policy search with restarts")


class Comparator(NamedTuple):
    """A comparator: `make(layout, streams, scale=...)` returns its learner."""

    make: Callable[..., Learner]
    row: Row
    source: str
    theory: Callable[..., Learner] | None = None  # with the constants of its theorem; None: it states none
    assumes_restarts: bool = False  # its paper restarts from a distribution that covers the states; here it gets s0

    @property
    def explores(self) -> bool:
        """Whether the table, or its own paper, claims a polynomial number of samples from s0 for its row."""
        return self.row in POLYNOMIAL

    @property
    def extra(self) -> bool:
        """Whether it stands beside the paper's table."""
        return self.row in EXTRAS


OPSRL_BY_PAPER = partial(OptimisticPSRL, psi=None, eta=None)


def _pcpg_by_theorem(layout: Layout, streams: Streams) -> Learner:
    dim = layout.num_states * layout.num_actions
    return PCPG(layout, streams, settings=theorem_settings(layout, dim))


COMPARATORS: dict[str, Comparator] = {
    "e3": Comparator(E3, "model-based", "Kearns and Singh 2002", E3),
    "r-max": Comparator(RMax, "model-based", "Brafman and Tennenholtz 2002", RMax),
    "ucrl2": Comparator(UCRL2, "model-based", "Jaksch, Ortner and Auer 2010", UCRL2),
    "ucbvi": Comparator(UCBVI, "model-based", "Azar, Osband and Munos 2017", UCBVI),
    "ucbvi-bernstein": Comparator(
        partial(UCBVI, bonus="bernstein"),
        "model-based",
        "Azar, Osband and Munos 2017",
        partial(UCBVI, bonus="bernstein"),
    ),
    "psrl": Comparator(PSRL, "Thompson sampling", "Osband, Russo and Van Roy 2013", PSRL),
    "rlsvi": Comparator(RLSVI, "Thompson sampling", "Osband, Van Roy and Wen 2014; Russo 2019", RLSVI),
    "optimistic-psrl": Comparator(OptimisticPSRL, "Thompson sampling", "Agrawal and Jia 2017", OPSRL_BY_PAPER),
    "epsilon-greedy-q": Comparator(EpsilonGreedyQ, "epsilon-greedy", "Watkins 1989"),
    "delayed-q": Comparator(DelayedQ, "optimistic Q-learning", "Strehl et al. 2006", DelayedQ),
    "ucb-q": Comparator(UCBQ, "optimistic Q-learning", "Jin et al. 2018", UCBQ),
    "ucb-q-bernstein": Comparator(
        partial(UCBQ, bonus="bernstein"), "optimistic Q-learning", "Jin et al. 2018", partial(UCBQ, bonus="bernstein")
    ),
    "aggregated-q": Comparator(AggregatedQ, "optimistic Q-learning", "Dong, Van Roy and Zhou 2019", AggregatedQ),
    "reinforce": Comparator(Reinforce, "policy optimisation", "Williams 1992"),
    "npg": Comparator(NPG, "policy optimisation", "Kakade 2001; Agarwal et al. 2019"),
    "md-mpi": Comparator(MDMPI, "policy optimisation", "Geist, Scherrer and Pietquin 2019"),
    "oppo": Comparator(OPPO, "optimistic policy optimisation", "Cai et al. 2019", OPPO),
    "pomd": Comparator(POMD, "optimistic policy optimisation", "Efroni et al. 2020", POMD),
    "pc-pg": Comparator(PCPG, "PC-PG", "Agarwal, Henaff, Kakade and Sun 2020", _pcpg_by_theorem),
    "lsvi-ucb": Comparator(LSVIUCB, "linear", "Jin, Yang, Wang and Jordan 2019", LSVIUCB),
    "cpi": Comparator(CPI, "policy search with restarts", "Kakade and Langford 2002", CPI, True),
    "psdp": Comparator(PSDP, "policy search with restarts", "Bagnell et al. 2003", PSDP, True),
}
