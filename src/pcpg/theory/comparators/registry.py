"""Every comparator by name: its row of the paper's table, its source, and what the table claims of it."""

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

from pcpg.theory.comparators.aggregated_q import AggregatedQ
from pcpg.theory.comparators.delayed_q import DelayedQ
from pcpg.theory.comparators.e3 import E3
from pcpg.theory.comparators.layout import Learner
from pcpg.theory.comparators.md_mpi import MDMPI
from pcpg.theory.comparators.npg import NPG
from pcpg.theory.comparators.oppo import OPPO
from pcpg.theory.comparators.optimistic_psrl import OptimisticPSRL
from pcpg.theory.comparators.pomd import POMD
from pcpg.theory.comparators.psrl import PSRL
from pcpg.theory.comparators.q_learning import EpsilonGreedyQ
from pcpg.theory.comparators.r_max import RMax
from pcpg.theory.comparators.reinforce import Reinforce
from pcpg.theory.comparators.rlsvi import RLSVI
from pcpg.theory.comparators.ucb_q import UCBQ
from pcpg.theory.comparators.ucbvi import UCBVI
from pcpg.theory.comparators.ucrl2 import UCRL2

Row = Literal[
    "model-based",
    "Thompson sampling",
    "epsilon-greedy",
    "optimistic Q-learning",
    "policy optimisation",
    "optimistic policy optimisation",
]

POLYNOMIAL: tuple[Row, ...] = (
    "model-based",
    "Thompson sampling",
    "optimistic Q-learning",
    "optimistic policy optimisation",
)


class Comparator(NamedTuple):
    """A comparator: `make(layout, streams, scale=...)` returns its learner."""

    make: Callable[..., Learner]
    row: Row
    source: str

    @property
    def explores(self) -> bool:
        """Whether the table claims a polynomial number of samples for its row."""
        return self.row in POLYNOMIAL


COMPARATORS: dict[str, Comparator] = {
    "e3": Comparator(E3, "model-based", "Kearns and Singh 2002"),
    "r-max": Comparator(RMax, "model-based", "Brafman and Tennenholtz 2002"),
    "ucrl2": Comparator(UCRL2, "model-based", "Jaksch, Ortner and Auer 2010"),
    "ucbvi": Comparator(UCBVI, "model-based", "Azar, Osband and Munos 2017"),
    "ucbvi-bernstein": Comparator(partial(UCBVI, bonus="bernstein"), "model-based", "Azar, Osband and Munos 2017"),
    "psrl": Comparator(PSRL, "Thompson sampling", "Osband, Russo and Van Roy 2013"),
    "rlsvi": Comparator(RLSVI, "Thompson sampling", "Osband, Van Roy and Wen 2014; Russo 2019"),
    "optimistic-psrl": Comparator(OptimisticPSRL, "Thompson sampling", "Agrawal and Jia 2017"),
    "epsilon-greedy-q": Comparator(EpsilonGreedyQ, "epsilon-greedy", "Watkins 1989"),
    "delayed-q": Comparator(DelayedQ, "optimistic Q-learning", "Strehl et al. 2006"),
    "ucb-q": Comparator(UCBQ, "optimistic Q-learning", "Jin et al. 2018"),
    "ucb-q-bernstein": Comparator(partial(UCBQ, bonus="bernstein"), "optimistic Q-learning", "Jin et al. 2018"),
    "aggregated-q": Comparator(AggregatedQ, "optimistic Q-learning", "Dong, Van Roy and Zhou 2019"),
    "reinforce": Comparator(Reinforce, "policy optimisation", "Williams 1992"),
    "npg": Comparator(NPG, "policy optimisation", "Kakade 2001; Agarwal et al. 2019"),
    "md-mpi": Comparator(MDMPI, "policy optimisation", "Geist, Scherrer and Pietquin 2019"),
    "oppo": Comparator(OPPO, "optimistic policy optimisation", "Cai et al. 2019"),
    "pomd": Comparator(POMD, "optimistic policy optimisation", "Efroni et al. 2020"),
}
