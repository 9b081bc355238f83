"""Damage to run folders, by chance and by hand: what `python -m tests.fuzz` does to them.

A file is changed, or files of two runs are mixed. Whoever forges knows how folders are sealed: a value or an array is
another one and all hashes fit, so that the answer may be another one, but in words, in time and in little memory.
"""

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from pcpg.runs.documents import read_json, write_json
from pcpg.runs.manifest import MANIFEST, Seal, read_manifest, write_manifest


def flip(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes() or b"\0")
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def cut(path: Path, rng: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data) + 1)])


def drop(path: Path, rng: random.Random) -> None:
    path.unlink()


def zero(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    start = rng.randrange(len(data) + 1)
    end = min(len(data), start + rng.randrange(1, 4096))
    data[start:end] = bytes(end - start)
    path.write_bytes(data)


def digit(path: Path, rng: random.Random) -> None:
    """Another digit in a text; what it says stays well-formed."""
    data = bytearray(path.read_bytes())
    places = [i for i, byte in enumerate(data) if chr(byte).isdigit()]
    if places:
        data[rng.choice(places)] = ord(rng.choice("0123456789"))
    path.write_bytes(data)


def lines(path: Path, rng: random.Random) -> None:
    """A line is lost, doubled, or changes places with another."""
    parts = path.read_bytes().splitlines(keepends=True) or [b"\n"]
    place, way = rng.randrange(len(parts)), rng.randrange(3)
    if way == 0:
        del parts[place]
    elif way == 1:
        parts.insert(place, parts[place])
    else:
        other = rng.randrange(len(parts))
        parts[place], parts[other] = parts[other], parts[place]
    path.write_bytes(b"".join(parts))


def grow(path: Path, rng: random.Random) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + rng.choice([1, 100, 1 << 20, 10 << 30]))


def link(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.symlink_to(rng.choice(["/dev/zero", "/etc/hostname", "/nowhere"]))


def pipe(path: Path, rng: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


def folder(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.mkdir()


def noise(path: Path, rng: random.Random) -> None:
    path.write_bytes(rng.randbytes(rng.choice([0, 1, 8, 1000])))


WAYS = (flip, flip, flip, cut, cut, drop, zero, digit, digit, lines, grow, link, pipe, folder, noise)


def swap(path: Path, others: list[Path], run: Path, rng: random.Random) -> None:
    """A file of the same name from another run, or another file of the same kind from this one."""
    name = path.relative_to(run)
    same = [other / name for other in others if (other / name).is_file()]
    same += [one for one in run.rglob(f"*{path.suffix}") if one != path and one.is_file()]
    if same:
        shutil.copy(rng.choice(same), path)


def mix(run: Path, others: list[Path], rng: random.Random) -> None:
    """Files of two runs, or of two moments of one: each of them from the one or the other."""
    other = rng.choice(others)
    for path in sorted(other.rglob("*")):
        target = run / path.relative_to(other)
        if path.is_file() and path.name != ".lock" and rng.random() < 0.5:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)


ADDED = (
    *("checkpoints/000099", "cover/0099.safetensors", "policy.safetensors", "summary.json", "wandb.json"),
    *("\u202egnp.exe", "a\nb\x1b[31m$x$", "checkpoints/0000\u0663", ".tmp-x", "cover/.tmp-y", "x" * 255),
)


def add(run: Path, rng: random.Random) -> str:
    """Something that nobody put there; its name."""
    name = rng.choice(
        ["checkpoints/000099", "cover/0099.safetensors", "policy.safetensors", "summary.json", "wandb.json"]
    )
    name = rng.choice(
        [name, "\u202egnp.exe", "a\nb\x1b[31m$x$", "checkpoints/0000\u0663", ".tmp-x", "cover/.tmp-y", "x" * 255]
    )
    target = run / name
    if target.exists() or target.is_symlink():
        return name
    target.parent.mkdir(exist_ok=True)
    there = [path for path in run.rglob(f"*{target.suffix}") if path.is_file() and path.name != ".lock"]
    kind = rng.randrange(3)
    if kind == 0 or not there:
        target.symlink_to(rng.choice(["/dev/zero", "/etc", "/nowhere"]))
    elif kind == 1 and target.suffix:
        shutil.copy(rng.choice(there), target)
    else:
        shutil.copytree(rng.choice([path.parent for path in there]), target, ignore=lambda *_: [target.name, "cover"])
    return name


# By hand: everything is sealed anew.

VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 7, 2**31, 10**30, 0.5, -1e308, 1e308, "", "\x1b[2J<script>$x$", "\u202e", "../../etc/passwd"),
    *([], {}, [[]], {"": {}}, ["a"] * 3, "x" * 100_000),
)


def nested(depth: int = 300) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def forge(run: Path, rng: random.Random) -> str:
    """Another value or array in a file that stays whole in itself, and sealed; its name."""
    files = [path for path in sorted(run.rglob("*")) if path.suffix in (".json", ".jsonl", ".safetensors")]
    path = rng.choice(files)
    way = {".json": _forge_json, ".jsonl": _forge_lines, ".safetensors": _forge_arrays}[path.suffix]
    way(path, rng)
    if path.name == "arrays.safetensors":  # its seal is in the state beside it
        seal, path = Seal.of(path.read_bytes()), path.with_name("state.json")
        write_json(path, read_json(path).content | {"arrays_sha256": seal.sha256, "arrays_bytes": seal.length})
    name = path.relative_to(run).as_posix()
    if name != MANIFEST:
        seal_anew(run, name)
    return name


def forge_plain(folder: Path, rng: random.Random) -> str:
    """Another value in a JSON file that has no seal, such as those of a sweep; its name."""
    files = sorted(path for path in folder.glob("*.json")) + sorted(folder.glob("failed/*.json"))
    path = rng.choice(files)
    path.write_text(json.dumps(_changed(json.loads(path.read_text()), rng)))
    return path.relative_to(folder).as_posix()


def seal_anew(run: Path, name: str) -> None:
    """The seals of a file that was changed, as its author would write them: in the manifest and in all checkpoints."""
    seal, changed = Seal.of((run / name).read_bytes()), {}
    if name == "config.json":
        for path in sorted(run.glob("checkpoints/*/state.json")):
            content = read_json(path).content
            write_json(path, content | {"state": content["state"] | {"config": seal.sha256}})
            changed[path.relative_to(run).as_posix()] = Seal.of(path.read_bytes())
    manifest = read_manifest(run)
    if name in manifest.lines:
        manifest = manifest._replace(lines=manifest.lines | {name: seal})
    else:
        manifest = manifest._replace(files=manifest.files | changed | {name: seal})
    write_manifest(run, manifest)


def _forge_json(path: Path, rng: random.Random) -> None:
    document = read_json(path)
    write_json(path, _changed(document.content, rng), sealed=document.sealed)


def _forge_lines(path: Path, rng: random.Random) -> None:
    lines = path.read_bytes().splitlines()
    if lines:
        place = rng.randrange(len(lines))
        lines[place] = json.dumps(_changed(json.loads(lines[place]), rng)).encode()
    path.write_bytes(b"".join(line + b"\n" for line in lines))


def _changed(content: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """The same with one value lost, renamed or another one, at any depth."""
    places: list[tuple[Any, Any]] = []

    def walk(value: Any) -> None:
        keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
        for key in keys:
            places.append((value, key))
            walk(value[key])

    walk(content)
    if not places:
        return content
    value, key = rng.choice(places)
    way = rng.randrange(10)
    if way == 0:
        del value[key]
    elif way == 1 and isinstance(value, dict):
        value[rng.choice(["", "x", "\x1b[31m", "__class__"])] = value.pop(key)
    else:
        value[key] = nested() if way == 2 else rng.choice(VALUES)
    return content


def _forge_arrays(path: Path, rng: random.Random) -> None:
    arrays = load(path.read_bytes())
    if not arrays:
        return
    name, way = rng.choice(sorted(arrays)), rng.randrange(6)
    array = arrays[name]
    if way == 0:
        del arrays[name]
    elif way == 1:
        arrays[name] = array.astype(np.float64 if array.dtype != np.float64 else np.float32)
    elif way == 2:
        arrays[name] = array.reshape(-1)[: max(array.size - 1, 0)]
    elif way == 3:
        arrays[name] = np.full_like(array, rng.choice([np.nan, np.inf]) if array.dtype.kind == "f" else 100)
    elif way == 4:
        arrays[name] = np.zeros((0, *array.shape), array.dtype)
    else:
        arrays[name] = np.full_like(array, -1 if array.dtype.kind in "if" else 1)
    path.write_bytes(save(arrays))
