"""Arrays in an .npz file that somebody gives: read without pickle, and no larger than its bytes."""

import io
import math
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np

from pcpg.runs.disk import largest, read_file
from pcpg.runs.errors import DamagedFile

KINDS = "biuf"
"""Kinds of numbers that are read: truth values, integers and real numbers."""


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an .npz file by name; `DamagedFile` for anything else."""
    data, found = read_file(path), {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
            if size > largest(path):
                raise DamagedFile(path, f"too large: {size:,} bytes unpacked, expected at most {largest(path):,}")
            for entry in archive.infolist():
                if entry.filename.endswith(".npy"):
                    found[entry.filename.removesuffix(".npy")] = _array(archive.read(entry))
    except (zipfile.BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError, OSError) as error:
        raise DamagedFile(path, f"not an .npz file: {error}") from error
    except (ValueError, RuntimeError, SyntaxError, TypeError, OverflowError) as error:
        raise DamagedFile(path, f"not an .npz file of numbers: {error}") from error
    return found


def _array(data: bytes) -> np.ndarray:
    """The array in the bytes of an .npy file."""
    file = io.BytesIO(data)
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"version {version} of the .npy format")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, is_fortran, dtype = read(file)
    if dtype.kind not in KINDS:
        raise ValueError(f"an array of {dtype}, expected numbers")
    rest = data[file.tell() :]
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(rest):
        raise ValueError(f"an array of shape {shape} in {len(rest):,} bytes")
    return np.frombuffer(rest, dtype).reshape(shape, order="F" if is_fortran else "C")
