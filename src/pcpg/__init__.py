"""Explore an environment with a policy cover, then solve any task in it.

    import pcpg

    run = pcpg.train(MyEnv)                # a Gymnasium environment: class, instance, function or id
    print(run.verdict)                     # the result, and what to try next
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
    from pcpg.api import Evaluation, Policy, Run, exploit, load, resume, train
    from pcpg.api import Progress as Progress
    from pcpg.api import Verdict as Verdict
    from pcpg.cover.cover import Cover as Cover
    from pcpg.cover.design import Design as Design
    from pcpg.cover.design import d_optimal as d_optimal
    from pcpg.envs import Environment as Environment
    from pcpg.envs import check_environment, make, register
    from pcpg.settings import Settings

__version__ = "0.1.0"

# What help(pcpg) explains; the other names of `_HOMES` are as public.
__all__ = [
    "Evaluation",
    "Policy",
    "Run",
    "Settings",
    "check_environment",
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
    "pcpg.settings": ("Settings",),
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

    raise missing("module 'pcpg'", name, LEARNERS, [*_HOME_OF, *_MODULES])


def __dir__() -> list[str]:
    return sorted([*_HOME_OF, "__version__", *_MODULES])
