"""Arrays in one safetensors file, bit for bit."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from pcpg.runs.disk import largest, read_file, read_head, write_file
from pcpg.runs.errors import BadValue, DamagedFile

# bfloat16 is left out on purpose: safetensors writes it from numpy but cannot read it back into numpy.
DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)

MOST_HEADER = 1 << 24
"""Bytes of the longest header: names, kinds and shapes of a hundred thousand arrays."""


def write_arrays(path: Path | str, arrays: Mapping[str, np.ndarray]) -> str:
    """Write `arrays` to `path` atomically; returns the sha256 of the file."""
    data = encode_arrays(arrays)
    write_file(Path(path), data)
    return hashlib.sha256(data).hexdigest()


def read_arrays(path: Path | str, sha256: "str | tuple[int, str] | None" = None) -> dict[str, np.ndarray]:
    """The arrays at `path` in order of name; with `sha256`, only if not one byte has changed.

    If a length in bytes is given too, a longer file is not even read.
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


def encode_arrays(arrays: Mapping[str, np.ndarray]) -> bytes:
    """The bytes of the file of `arrays`, the same for the same content in any order."""
    # No metadata: with it, the same content gives different bytes from one call to the next.
    return save({name: _storable(name, array) for name, array in arrays.items()})


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
    """The length that a file claims, if it exceeds that of a file without a header; None: short enough."""
    head, size = read_head(path, 8)
    if size <= MOST_HEADER:
        return None
    start = 8 + int.from_bytes(head, "little")
    # With a longer header, or one that nobody can read, it is no array file.
    said = None if start > 8 + MOST_HEADER else _said_length(read_head(path, start)[0])
    return MOST_HEADER if said is None else min(said, largest(path))


def _why_cut(data: bytes) -> str | None:
    """A message that `data` ends before its own header says it should, or None."""
    if len(data) < 8:
        return f"cut short: {len(data)} bytes" if data else "empty"
    start = 8 + int.from_bytes(data[:8], "little")
    if start > len(data):
        # No more than a guess, but other files do not start with a small number and a brace.
        return f"cut short: {len(data)} bytes, inside its header" if data[8:9] in (b"{", b"") else None
    length = _said_length(data[:start])
    return f"cut short: {len(data)} of {length} bytes" if length is not None and len(data) < length else None


def _said_length(head: bytes) -> int | None:
    """The length of a file according to its header, or None if the header does not say."""
    try:
        entries = json.loads(head[8:]).items()
        return len(head) + max(
            (entry["data_offsets"][1] for name, entry in entries if name != "__metadata__"), default=0
        )
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        return None
