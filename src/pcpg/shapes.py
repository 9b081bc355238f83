"""Arrays in signatures: `Float[Array, "n d"]` is an array of real numbers with two axes, on the host or in a program.

The tests check these annotations at every call (tests/conftest.py); outside of them nothing is checked and nothing
costs time. Axes of one name have one length within a call; `*batch` is any number of axes, `...` any at all.
"""

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, Key, Shaped

Array = jax.Array | np.ndarray
"""Arrays are NumPy's between rounds and traced ones inside a program."""
Scalar = float | np.floating | Float[Array, ""]
"""A real number, or an array of one: the latter can change without another compilation."""

__all__ = ["Array", "Bool", "Float", "Int", "Key", "Scalar", "Shaped"]
