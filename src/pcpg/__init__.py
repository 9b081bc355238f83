"""Explore an environment with a policy cover, then solve any task in it.

    import pcpg

    run = pcpg.train(MyEnv)                # a Gymnasium environment: class, instance, function or id
    print(run.verdict)                     # what came out, and what to try next
    run.evaluate(episodes=100).mean_return
    run.policy.act(observation)            # what the trained policy does
    run.report(), run.video(), run.save("runs/mine")

    run = pcpg.load("runs/mine")           # later; pcpg.resume goes on
    pcpg.exploit(run, reward=...)          # another task in the same environment

`help(pcpg.train)` explains every argument. The documentation is in docs/.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pcpg.api import Evaluation, Policy, Progress, Run, Verdict, exploit, load, resume, train
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
    "Progress",
    "Run",
    "Verdict",
    "check_environment",
    "d_optimal",
    "exploit",
    "load",
    "make",
    "register",
    "resume",
    "train",
]

# Loaded at their first use: JAX takes seconds to import, and `pcpg --help` or a typing error need none of it.
_HOMES = {
    "pcpg.api": ("Evaluation", "Policy", "Progress", "Run", "Verdict", "exploit", "load", "resume", "train"),
    "pcpg.cover.cover": ("Cover",),
    "pcpg.cover.design": ("Design", "d_optimal"),
    "pcpg.envs": ("Environment", "check_environment", "make", "register"),
}
_MODULES = ("envs", "features", "theory", "api", "callbacks", "hub")
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        value = getattr(importlib.import_module(_HOME_OF[name]), name)
        globals()[name] = value
        return value
    if name in _MODULES:  # `import pcpg; pcpg.envs` works without a second import
        return importlib.import_module(f"pcpg.{name}")
    from pcpg.elsewhere import LEARNERS, missing

    raise missing("module 'pcpg'", name, LEARNERS, __all__)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__", *_MODULES])
