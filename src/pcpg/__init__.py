"""PC-PG: explore an environment with a provable policy cover, then exploit it."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pcpg.api import Evaluation, Policy, Progress, Run, exploit, load, resume, train
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
    "pcpg.api": ("Evaluation", "Policy", "Progress", "Run", "exploit", "load", "resume", "train"),
    "pcpg.cover.cover": ("Cover",),
    "pcpg.cover.design": ("Design", "d_optimal"),
    "pcpg.envs": ("Environment", "check_environment", "make", "register"),
}
_MODULES = ("envs", "features", "theory", "api", "callbacks")
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        value = getattr(importlib.import_module(_HOME_OF[name]), name)
        globals()[name] = value
        return value
    if name in _MODULES:  # `import pcpg; pcpg.envs` works without a second import
        return importlib.import_module(f"pcpg.{name}")
    raise AttributeError(f"module 'pcpg' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
