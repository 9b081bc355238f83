"""Sealed JSON files: truncation and changes are detected, and each records the versions that wrote it."""

import functools
import hashlib
import importlib.metadata
import json
import math
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pcpg.config import Json
from pcpg.runs.disk import read_file, write_file
from pcpg.runs.errors import BadValue, DamagedFile, OtherVersion

FORMAT_VERSION = 1
"""Goes up when a run folder of the old kind can no longer be read; the seal must stay as it is, or an older
library takes a newer file for a damaged one."""


MOST_NESTED = 64
"""Most levels of nesting in a file; the library itself writes a handful."""


class Document(NamedTuple):
    """The content of a JSON file, and the versions that wrote it."""

    content: Json
    versions: dict[str, str]
    sealed: bool = False  # whether the folder has a manifest


def write_json(path: Path, content: Mapping[str, object], *, sealed: bool = False, settled: bool = True) -> None:
    """Write `content` to `path` with the format version, the library versions and a seal over all of it.

    With `sealed` the file records that its folder has a manifest; `settled` is passed to `write_file`.
    """
    body: dict[str, object] = {"format_version": FORMAT_VERSION, "content": plain(content, "content")}
    body |= {"versions": versions()} | ({"sealed": True} if sealed else {})
    write_file(path, _encode({**body, "sha256": _seal(body)}), settled=settled)


def read_json(path: Path) -> Document:
    """The document at `path`, or an error that names the file and what is wrong with it."""
    return read_document(path, read_file(path))


def read_document(path: Path, data: bytes) -> Document:
    """The document in the bytes of a file, or an error that names the file."""
    try:
        document = parse_object(data)
    except ValueError as error:
        raise DamagedFile(path, _why_unreadable(data, error)) from error
    body = {name: value for name, value in document.items() if name != "sha256"}
    version = document.get("format_version")
    if document.get("sha256") != _seal(body) or _encode(document) != data:
        other = "" if version == FORMAT_VERSION else f" (it says format version {version}, not {FORMAT_VERSION})"
        raise DamagedFile(path, f"altered since it was written: its sha256 does not match{other}")
    if version != FORMAT_VERSION:
        raise OtherVersion(path, version, FORMAT_VERSION)
    content, written_by = document.get("content"), document.get("versions")
    if not isinstance(content, dict) or not isinstance(written_by, dict):
        raise DamagedFile(path, "not a JSON file of a run: content or versions are missing")
    versions = {str(name): str(value) for name, value in written_by.items()}
    return Document(content, versions, bool(document.get("sealed")))


def read_object(path: Path, most: int | None = None) -> Json:
    """The JSON object in a file without a seal; raises `DamagedFile` if there is none."""
    try:
        return parse_object(read_file(path, most))
    except ValueError as error:
        raise DamagedFile(path, str(error)) from error


def plain(value: object, where: str) -> Any:
    """`value` in a form that JSON stores exactly; raises `BadValue` with the place of NaN or infinity."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise BadValue(f"{where} is {value}: only finite numbers can be stored")
        return float(value)
    if isinstance(value, list | tuple):
        return [plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str):
                raise BadValue(f"{where} has the key {name!r}: keys must be strings")
        return {name: plain(item, f"{where}.{name}") for name, item in value.items()}
    raise BadValue(
        f"{where} is of type {type(value).__name__}: expected None, bool, int, float, str, "
        "a list or a dict of them, or a numpy array"
    )


def parse_object(data: bytes) -> Json:
    """The JSON object in `data`; raises `ValueError` for anything else, including NaN and infinity."""
    try:
        value = json.loads(data.decode("ascii"), parse_constant=_refuse_constant, parse_float=_finite, parse_int=_whole)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(value, dict):
        raise ValueError(f"holds a {type(value).__name__}, not an object")
    refuse_nested(value)
    return value


@functools.cache
def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def versions() -> dict[str, str]:
    """The platform and the package versions that bit-equality depends on."""
    packages = ("pcpg", "jax", "jaxlib", "equinox", "optax", "numpy")
    return {
        "python": platform.python_version(),
        **{package: _version(package) for package in packages},
        "platform": f"{platform.system()}-{platform.machine()}",
    }


def _encode(document: Mapping[str, object]) -> bytes:
    return (json.dumps(document, indent=2, allow_nan=False) + "\n").encode("ascii")


def _seal(body: Mapping[str, object]) -> str:
    return hashlib.sha256(_encode(body)).hexdigest()


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is too large a number")
    return value


def _whole(text: str) -> int:
    _finite(text)  # a larger one would fail where it meets a float
    return int(text)


def refuse_nested(value: Mapping[str, object]) -> None:
    """Refuse nesting so deep that walking it would overflow Python's stack."""
    level: list[Any] = [value]
    for _ in range(MOST_NESTED):
        inside = [one for part in level for one in (part.values() if isinstance(part, dict) else part)]
        level = [one for one in inside if isinstance(one, dict | list)]
        if not level:
            return
    raise ValueError("nested too deeply")


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


def _why_unreadable(data: bytes, error: ValueError) -> str:
    if not data:
        return "empty"
    if data.startswith(b"{") and not data.endswith(b"}\n"):
        return f"cut short after {len(data)} bytes"
    return f"not a JSON file of a run: {error}"


NUMBER = (int, float, type(None))
SEEDS: dict[str, tuple[type, ...]] = {"seeds": (int,), "env_steps": (int,), "policies": (int,), "ended": (str,)}
SEEDS |= {"final_return": NUMBER, "best_return": NUMBER}
"""Entries of a summary with one value per seed, and the types of the values."""


def check_summary(path: Path, summary: Json, seeds: int) -> Json:
    """The summary, if its entries fit the number of seeds; otherwise raises `DamagedFile`."""
    for name, kinds in SEEDS.items():
        found = summary.get(name, [])
        if name in summary and not (is_list_of(found, *kinds) and len(found) == seeds):
            what = "words" if kinds == (str,) else "numbers"
            raise DamagedFile(path, f"{name} must be a list of {seeds} {what}, got {found!r:.60}")
    if type(summary.get("rounds", 0)) is not int:
        raise DamagedFile(path, f"rounds must be an integer, got {summary['rounds']!r:.60}")
    _check_failed(path, summary)
    return summary


def check_state(path: Path, state: Json) -> None:
    """Raise `DamagedFile` unless the state of a checkpoint is complete."""
    if not is_list_of(state.get("members", []), str):
        raise DamagedFile(path, "it does not list the members of the cover")
    lines = state.get("metrics")
    if lines is not None and not (
        is_list_of(lines, int, str) and [*map(type, lines)] == [int, str] and 0 <= lines[0] < 1 << 40
    ):
        raise DamagedFile(path, "it lacks the length and sha256 of the reports")
    for name in ("features", "device", "config"):
        if not isinstance(state.get(name), str | None):
            raise DamagedFile(path, f"{name} must be a string, got {state[name]!r:.60}")
    _check_failed(path, state)


def is_list_of(value: Any, *kinds: type) -> bool:
    """Whether a value is a list of exactly these types; True is not an integer."""
    return isinstance(value, list) and all(type(one) in kinds for one in value)


def _check_failed(path: Path, content: Json) -> None:
    failed = content.get("failed", {})
    if not isinstance(failed, dict) or not all(seed.isdecimal() and type(why) is str for seed, why in failed.items()):
        raise DamagedFile(path, f"failed must map each failed seed to a reason, got {failed!r:.60}")


def is_number(record: Json, name: str, kind: type) -> bool:
    """Whether an entry is a number; a return may be null if no episode ended."""
    value = record[name]
    return (value is None and name == "return") or (isinstance(value, kind | int) and not isinstance(value, bool))
