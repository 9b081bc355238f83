"""Pytrees of arrays on the host: what they are made of, and whether two agree."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

WEAK = "*"  # marks a weakly typed leaf


def types_of(tree: Any) -> str:
    """Structure, shapes and dtypes of a pytree as text; a weak dtype is marked."""

    def text(leaf: Any) -> str:
        return f"{leaf.dtype}{list(leaf.shape)}{WEAK if getattr(leaf, 'weak_type', False) else ''}"

    return str(jax.tree.map(text, tree))


def is_key(leaf: Any) -> bool:
    """Whether a leaf is an array of typed keys."""
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def unused(tree: Any) -> Any:
    """The pytree with its keys marked as not yet used, for a program that means to use them twice."""
    return jax.tree.map(lambda leaf: jax.random.clone(leaf) if is_key(leaf) else leaf, tree)


def _numbers(leaf: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf)


def stacked(*leaves: Any) -> Any:
    """The leaves as rows of one array; keys stay keys."""
    rows = np.stack([_numbers(leaf) for leaf in leaves])
    return jax.random.wrap_key_data(jnp.asarray(rows)) if is_key(leaves[0]) else rows


def same(left: Any, right: Any) -> bool:
    """Whether two pytrees agree; in real numbers up to rounding, which differs between programs."""

    def agree(a: Any, b: Any) -> bool:
        a, b = _numbers(a), _numbers(b)
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        return np.allclose(a, b, 1e-4, 1e-6, True) if a.dtype.kind == "f" else np.array_equal(a, b)

    same_structure = jax.tree.structure(left) == jax.tree.structure(right)
    return same_structure and jax.tree.all(jax.tree.map(agree, left, right))
