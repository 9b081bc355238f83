"""The provable half of the paper: Algorithms 1 and 2 with exact oracles, the theorem's numbers, lemmas that can be run.

Arrays in, arrays out, float64 NumPy. Start with `problems` (MDPs), `tabular.run` (the algorithm) and `exact` (ground
truth); docs/theory.md lists the function that computes each symbol of the paper, and the test that checks each lemma.
"""

import importlib
import importlib.util
from typing import Any


def __getattr__(name: str) -> Any:
    """`learner`, `problem` and `theorem` register your own (`pcpg_theory.own`); modules are imported when used."""
    if name in ("learner", "problem", "theorem"):
        return getattr(importlib.import_module("pcpg_theory.own"), name)
    if not name.startswith("_") and importlib.util.find_spec(f"{__name__}.{name}"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
