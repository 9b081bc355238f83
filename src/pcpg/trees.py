"""Trees as flat arrays by names and back, for the files of a run."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import numpy as np

from pcpg.runs.errors import BadValue, DoesNotFit

Tree = TypeVar("Tree")


def flatten(tree: Any) -> dict[str, np.ndarray]:
    """The leaves of `tree` as numpy arrays under the names of their places, such as `.layers[0].weight`."""
    arrays: dict[str, np.ndarray] = {}
    for name, leaf in _named_leaves(tree):
        if getattr(leaf, "weak_type", False):
            # Restored it would be strongly typed: other promotions, so another program and other results.
            raise BadValue(f"{name} is weakly typed: give it a dtype, as in jnp.asarray(x, jnp.float32)")
        arrays[name] = np.asarray(leaf)
    return arrays


def unflatten(like: Tree, arrays: Mapping[str, np.ndarray], *, any_shape: bool = False) -> Tree:
    """A tree built as `like` (arrays or shapes with dtypes), with the numpy arrays of `arrays` as leaves.

    With `any_shape` only names and dtypes must be those of `like`.
    """
    import jax.tree_util as jtu

    expected = dict(_named_leaves(like))
    _check_names(expected.keys(), arrays.keys())
    wrong = [
        f"{name or 'the array'}: found {_kind(arrays[name])}, expected {_kind(leaf)}"
        for name, leaf in expected.items()
        if (np.dtype(arrays[name].dtype) != np.dtype(leaf.dtype) if any_shape else _kind(arrays[name]) != _kind(leaf))
    ]
    if wrong:
        raise DoesNotFit("; ".join(wrong[:5]) + _and_more(len(wrong)))
    return jtu.tree_unflatten(jtu.tree_structure(like), [arrays[name] for name in expected])


def scalar(array: np.ndarray | None) -> int:
    """The number in an array of one; 0 where there is no such array, or another one."""
    return int(array.reshape(())) if array is not None and array.size == 1 and array.dtype.kind in "iu" else 0


def _named_leaves(tree: Any) -> list[tuple[str, Any]]:
    # Imported here, since readers of a run, such as reports, need not wait for JAX.
    import jax.tree_util as jtu

    leaves = [(jtu.keystr(path), leaf) for path, leaf in jtu.tree_flatten_with_path(tree)[0]]
    seen: set[str] = set()
    for name, leaf in leaves:
        if name in seen:
            raise BadValue(f"two entries are named {name}: every entry needs a unique name")
        seen.add(name)
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            raise BadValue(
                f"{name} is of type {type(leaf).__name__}, not an array: make it one with a dtype, "
                "or keep it out of the tree, as in equinox.filter(tree, equinox.is_array)"
            )
        # The dtypes of JAX that numpy does not know are those of typed keys.
        if not isinstance(leaf.dtype, np.dtype):
            raise BadValue(f"{name} is a typed random key ({leaf.dtype}): store the seed it comes from")
    return leaves


def _check_names(expected: Iterable[str], found: Iterable[str]) -> None:
    missing, extra = sorted(set(expected) - set(found)), sorted(set(found) - set(expected))
    problems = [
        f"{what}: {', '.join(names[:5])}{_and_more(len(names))}"
        for what, names in (("missing", missing), ("not expected", extra))
        if names
    ]
    near = difflib.get_close_matches(missing[0], extra, n=1) if missing else []
    if near:
        problems.append(f"{near[0]} was found where {missing[0]} was expected")
    if problems:
        raise DoesNotFit("; ".join(problems))


def _kind(array: Any) -> str:
    return f"{np.dtype(array.dtype).name}{list(array.shape)}"


def _and_more(count: int) -> str:
    return f" and {count - 5} more" if count > 5 else ""
