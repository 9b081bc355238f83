"""The provable half of the paper: Algorithms 1 and 2 with exact oracles, the theorem's numbers, lemmas that can be run.

Arrays in, arrays out, float64 NumPy. Start with `problems` (what to run on), `tabular.run` (what to run) and `exact`
(what is true); docs/theory.md says which function computes each symbol of the paper, and which test checks each lemma.
"""
