"""Arrays in one safetensors file, bit for bit, and trees as flat names and back."""

import difflib
import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from pcpg.runs.disk import largest, read_file, read_head, write_file
from pcpg.runs.errors import BadValue, DamagedFile, DoesNotFit

Tree = TypeVar("Tree")

# bfloat16 is left out on purpose: safetensors writes it from numpy but cannot read it back into numpy.
DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)

MOST_HEADER = 1 << 24
"""Bytes of the longest header: names, kinds and shapes of a hundred thousand arrays."""


def write_arrays(path: Path | str, arrays: Mapping[str, np.ndarray]) -> str:
    """Write `arrays` to `path`, whole or not at all; the sha256 of the file."""
    data = encode_arrays(arrays)
    write_file(Path(path), data)
    return hashlib.sha256(data).hexdigest()


def read_arrays(path: Path | str, sha256: "str | tuple[int, str] | None" = None) -> dict[str, np.ndarray]:
    """The arrays at `path` in order of name; with `sha256`, only if not one byte has changed.

    With the length in bytes before the sha256, a longer file is not even read.
    """
    path = Path(path)
    size, sha256 = (None, sha256) if sha256 is None or isinstance(sha256, str) else sha256
    data = read_file(path, _declared_length(path) if size is None else size)
    found = hashlib.sha256(data).hexdigest()
    if sha256 is not None and found != sha256:
        cause = _why_cut(data) or f"altered: its sha256 is {found}, expected {sha256}"
        raise DamagedFile(path, cause)
    header = int.from_bytes(data[:8], "little")
    if MOST_HEADER < header <= len(data):
        raise DamagedFile(path, f"its header has {header:,} bytes, expected at most {MOST_HEADER:,}")
    try:
        return dict(sorted(load(data).items()))
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise DamagedFile(path, _why_cut(data) or f"not a safetensors file of numpy arrays: {error}") from error


def scalar(array: np.ndarray | None) -> int:
    """The number in an array of one; 0 where there is no such array, or another one."""
    return int(array.reshape(())) if array is not None and array.size == 1 and array.dtype.kind in "iu" else 0


def encode_arrays(arrays: Mapping[str, np.ndarray]) -> bytes:
    """The bytes of the file of `arrays`, the same for the same content in any order."""
    # No metadata: with it, the same content gives different bytes from one call to the next.
    return save({name: _storable(name, array) for name, array in arrays.items()})


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


def _named_leaves(tree: Any) -> list[tuple[str, Any]]:
    # Here and not above: whoever only reads the files of a run, such as a report, need not wait for JAX.
    import jax.tree_util as jtu

    leaves = [(jtu.keystr(path), leaf) for path, leaf in jtu.tree_flatten_with_path(tree)[0]]
    seen: set[str] = set()
    for name, leaf in leaves:
        if name in seen:
            raise BadValue(f"{name} names two entries: every entry needs a name of its own")
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


def _storable(name: str, value: Any) -> np.ndarray:
    if not isinstance(name, str) or name == "__metadata__":
        raise BadValue(f"{name!r} cannot be the name of an array")
    if not isinstance(value, np.ndarray | np.generic) or isinstance(value, np.ma.MaskedArray):
        raise BadValue(f"{name} is of type {type(value).__name__}, expected a numpy array")
    if value.dtype.name not in DTYPES:
        raise BadValue(f"{name} has dtype {value.dtype}, expected one of {', '.join(DTYPES)}")
    # safetensors reads the memory of an array without a look at its strides. Not ascontiguousarray: it turns
    # shape () into (1,).
    return np.asarray(value, dtype=value.dtype.newbyteorder("<"), order="C")


def _declared_length(path: Path) -> int | None:
    """How long a file says that it is, where it is longer than a file without a header could be; None: short enough."""
    head, size = read_head(path, 8)
    if size <= MOST_HEADER:
        return None
    start = 8 + int.from_bytes(head, "little")
    if start > 8 + MOST_HEADER:
        return MOST_HEADER  # whatever it is, it is no array file
    try:
        header = json.loads(read_head(path, start)[0][8:])
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        return min(start + max(ends, default=0), largest(path))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        return MOST_HEADER


def _why_cut(data: bytes) -> str | None:
    """A message that `data` ends before its own header says it should, or None."""
    if len(data) < 8:
        return f"cut short: {len(data)} bytes" if data else "empty"
    start = 8 + int.from_bytes(data[:8], "little")
    if start > len(data):
        # No more than a guess, but other files do not start with a small number and a brace.
        return f"cut short: {len(data)} bytes, inside its header" if data[8:9] in (b"{", b"") else None
    try:
        header = json.loads(data[8:start])
        length = start + max((entry["data_offsets"][1] for entry in header.values()), default=0)
        return f"cut short: {len(data)} of {length} bytes" if len(data) < length else None
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        return None


def _check_names(expected: Iterable[str], found: Iterable[str]) -> None:
    missing, extra = sorted(set(expected) - set(found)), sorted(set(found) - set(expected))
    problems = []
    if missing:
        problems.append(f"missing: {', '.join(missing[:5])}{_and_more(len(missing))}")
    if extra:
        problems.append(f"not expected: {', '.join(extra[:5])}{_and_more(len(extra))}")
    near = difflib.get_close_matches(missing[0], extra, n=1) if missing else []
    if near:
        problems.append(f"{near[0]} was found where {missing[0]} was expected")
    if problems:
        raise DoesNotFit("; ".join(problems))


def _kind(array: Any) -> str:
    return f"{np.dtype(array.dtype).name}{list(array.shape)}"


def _and_more(count: int) -> str:
    return f" and {count - 5} more" if count > 5 else ""
