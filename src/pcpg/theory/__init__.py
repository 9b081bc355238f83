"""The provable half of the paper: Algorithms 1 and 2 with exact oracles, the theorem's numbers, lemmas that can be run.

Arrays in, arrays out, float64 NumPy. Start with `problems` (what to run on), `tabular.run` (what to run) and `exact`
(what is true); docs/theory.md says which function computes each symbol of the paper, and which test checks each lemma.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    """`learner`, `problem` and `theorem` register one's own (`pcpg.theory.own`); imported when they are asked for."""
    if name in ("learner", "problem", "theorem"):
        from pcpg.theory import own

        return getattr(own, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
