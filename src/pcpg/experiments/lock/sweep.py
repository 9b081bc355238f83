"""What is run for the lock's table: constants alone.

The paper's table (its success is over 20 seeds):  PPO 1, 0, 0, 0; PPO+RND .75, .40, .50, .55; PC-PG 1, 1, 1, 1.

The recipe of PC-PG is that of the preset `pcpg`, the same at all horizons; what depends on H does so by the formulas
of `ExploreConfig.max_policies` (2 (H+1) + 8, a limit that no run has reached) and `ExploitConfig.num_rounds`
(H + 5). Exploration ends by the growth of the log-determinant of the cover's design. `tuning.md` says how it was
found, on seeds of 1000 and more; 0 to 19 are reported.
"""

import dataclasses
from typing import Literal, NamedTuple

from pcpg.algorithms import ALGORITHMS
from pcpg.config import AgentConfig, BaselineConfig, ExploitConfig, ExploreConfig, PCPGConfig, PPOConfig

Scale = Literal["smoke", "laptop", "paper"]

ALGOS = ("pcpg", "ppo-rnd", "ppo")
HORIZONS = (2, 5, 10, 15)
PAPER = {  # success rate in the paper's table, by horizon
    "ppo": {2: 1.0, 5: 0.0, 10: 0.0, 15: 0.0},
    "ppo-rnd": {2: 0.75, 5: 0.40, 10: 0.50, 15: 0.55},
    "pcpg": {2: 1.0, 5: 1.0, 10: 1.0, 15: 1.0},
}
RELEASED_STEPS = {2: 11.4e6, 5: 45.5e6, 10: 153e6, 15: 324e6}
"""Environment steps per seed of PC-PG in the released code."""
PAPER_EPISODES = 3_000_000
"""Episodes of the baselines in the released code, at every horizon."""
SUCCESS = 3.5
"""Mean return of the final policy over EVALUATION episodes from which on a seed counts as solved."""
EVALUATION = 100


class Cell(NamedTuple):
    """One entry of the table: an algorithm at a horizon."""

    algo: str
    horizon: int
    seeds: int
    first_seed: int
    budget: str  # own (PC-PG), equal (PC-PG's steps) or paper
    config: AgentConfig

    @property
    def name(self) -> str:
        return f"{self.algo}-H{self.horizon}-{self.budget}"

    def command(self, scale: Scale) -> str:
        """The command that makes this cell (and, for an equal budget, PC-PG's before it)."""
        algos = f"pcpg {self.algo}" if self.budget == "equal" else self.algo
        equal = " --baselines equal" if self.budget == "equal" else ""
        seeds = f"--seeds {self.seeds} --seed {self.first_seed}"
        return f"pcpg reproduce lock --scale {scale} --algos {algos} --horizons {self.horizon} {seeds}{equal}"


def paper_budget(horizon: int) -> int:
    """Environment steps of a baseline's seed in the released code."""
    return PAPER_EPISODES * (horizon + 1)


def cell_config(scale: Scale, algo: str, horizon: int, budget: int) -> AgentConfig:
    """The settings of one cell; `budget` is that of the baselines.

    A baseline that runs for the paper's budget gives the column of equal samples too, by its state when it had used
    as many steps as PC-PG: nothing in a baseline depends on its budget but when it stops.
    """
    preset = ALGORITHMS[algo].preset
    if isinstance(preset, BaselineConfig):
        return dataclasses.replace(preset, budget=budget)
    return released_budget(horizon) if scale == "paper" else preset


def released_budget(horizon: int) -> PCPGConfig:
    """PC-PG with the released code's budget: 3 (H+1) policies of 100 updates of 2,500 episodes, then as many rounds."""
    return PCPGConfig(
        ppo=PPOConfig(num_updates=100, num_episodes=2500, num_epochs=5, minibatch_size=160),
        explore=ExploreConfig(max_policies=2 * (horizon + 1), patience=10_000, num_groups=50, visit_episodes=2500),
        exploit=ExploitConfig(num_rounds=horizon + 1),
    )
