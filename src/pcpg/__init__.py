"""PC-PG: explore an environment with a provable policy cover, then exploit it."""

from pcpg.api import Evaluation, Policy, Run, load, resume, train
from pcpg.cover.cover import Cover
from pcpg.cover.design import Design, d_optimal
from pcpg.envs import Environment, check_environment, make, register

__version__ = "0.1.0"

__all__ = [
    "Cover",
    "Design",
    "Environment",
    "Evaluation",
    "Policy",
    "Run",
    "check_environment",
    "d_optimal",
    "load",
    "make",
    "register",
    "resume",
    "train",
]
