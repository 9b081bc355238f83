"""Reports of a run, one JSON object per line, in the order of their steps (a step here counts rounds)."""

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from pcpg.config import Json
from pcpg.runs.disk import append, read_file, sync_file, sync_folder, truncate
from pcpg.runs.documents import parse_object, plain
from pcpg.runs.errors import BadValue, DamagedFile
from pcpg.runs.manifest import Seal, check_bytes


class Logger(Protocol):
    """A receiver of reports."""

    def write(self, record: Mapping[str, object]) -> None:
        """Log one report."""
        ...


class JsonLines:
    """Appends reports to a file; the `step` of each, as in checkpoints, never decreases."""

    def __init__(self, path: Path | str) -> None:
        """Open or create the file; half a line left by a killed writer is dropped."""
        self.path = Path(path)
        append(self.path, b"")
        sync_folder(self.path.parent)
        data = read_file(self.path)
        self._last_step = 0
        for _, record in _whole_lines(self.path, data):
            self._last_step = record["step"]
        self._begin(data[: data.rfind(b"\n") + 1])
        if self._bytes < len(data):
            truncate(self.path, self._bytes)

    @property
    def seal(self) -> Seal:
        """The length and sha256 of the file, updated as lines are written."""
        return Seal(self._bytes, self._sha256.hexdigest())

    def write(self, record: Mapping[str, object]) -> None:
        """Append one line. Numbers are stored exactly; NaN and infinity are refused."""
        line = plain(record, "record")
        step = line.get("step")
        if not _is_step(step):
            raise BadValue(f"{self.path}: the step of a report must be an integer of at least 0, got {step!r}")
        if step < self._last_step:
            raise BadValue(f"{self.path}: a report of step {step} cannot follow one of step {self._last_step}")
        data = json.dumps(line, allow_nan=False).encode("ascii") + b"\n"
        append(self.path, data)
        self._sha256.update(data)
        self._bytes += len(data)
        self._last_step = step

    def sync(self) -> None:
        """Sync all lines to disk; call it before the checkpoint of the same step."""
        sync_file(self.path)

    def truncate_to(self, step: int) -> None:
        """Drop the reports after `step` (-1: all); a resumed run writes them again."""
        length, last, data = 0, 0, read_file(self.path)
        for end, record in _whole_lines(self.path, data):
            if record["step"] > step:
                break
            length, last = end, record["step"]
        truncate(self.path, length)
        self._last_step = last
        self._begin(data[:length])

    def _begin(self, data: bytes) -> None:
        self._bytes, self._sha256 = len(data), hashlib.sha256(data)


def repaired(path: Path | str) -> str | None:
    """Truncate informational reports before the first damaged line; returns the problem."""
    path, length = Path(path), 0
    try:
        for end, _ in _whole_lines(path, read_file(path)):
            length = end
    except DamagedFile as error:
        if error.cause == "missing":
            return None
        truncate(path, length)
        return str(error)
    return None


def read_metrics(path: Path | str) -> list[Json]:
    """The reports in `path`, without a last line still being written."""
    path = Path(path)
    return [record for _, record in _whole_lines(path, read_file(path))]


def read_whole_metrics(
    path: Path | str, seal: Seal | None = None, *, finished: bool = False
) -> tuple[list[Json], DamagedFile | None]:
    """The reports before the first damaged line, and its problem; None if all are intact.

    With a seal, only the sealed lines: later ones may still be rewritten. A finished run has no later ones.
    """
    path, records = Path(path), []
    try:
        data = read_file(path)
        for _, record in _whole_lines(path, data if seal is None else data[: seal.length]):
            records.append(record)
        if seal is not None:
            check_bytes(path, data if finished else data[: seal.length], seal)
    except DamagedFile as error:
        return records, error
    return records, None


SAME = 1e-6
"""Returns that differ by less, relative to their size where it is above 1, are equal: some are means of float32."""
EARNED = ("best_episode", "return", "train/return")
"""What a report says that episodes earned."""


def above(usual: float) -> float:
    """What an episode with reward returns at least, where one without returns `usual`."""
    return usual + SAME * max(1.0, abs(usual))


def numbers_of(record: Json) -> Json:
    """A report without entries that are neither a number nor known: no reader can draw or compare them."""
    known = ("phase", "cells")
    return {name: value for name, value in record.items() if name in known or isinstance(value, int | float | None)}


@dataclasses.dataclass
class FirstReward:
    """When a seed first met its reward, from its reports in their order."""

    is_told: bool = False  # whether any report said what episodes earned
    usual: float | None = None  # the return of an episode without reward; None: no return is usual
    at: int | None = None  # steps after the first round that met it; None: none has
    last: Json = dataclasses.field(default_factory=dict)  # the newest report

    def note(self, record: Json) -> "FirstReward":
        """Take the next report into account."""
        self.last = record = numbers_of(record)
        if (met_at := record.get("met_at")) is not None:  # the learner knows it
            self.is_told, self.usual = True, 0.0
            self.at = met_at if met_at >= 0 else None
            return self
        earned = [record[name] for name in EARNED if record.get(name) is not None]
        if earned and not self.is_told:
            self.is_told, self.usual = True, record.get("usual_return", min(earned))
        if earned and self.at is None and (self.usual is None or max(earned) > above(self.usual)):
            self.at = record.get("env_steps")
        return self


def first_reward(records: Iterable[Json]) -> FirstReward:
    """When a seed first met its reward, from all its reports."""
    found = FirstReward()
    for record in records:
        found.note(record)
    return found


def spent(timings: Sequence[Json]) -> tuple[float, float]:
    """Seconds of all rounds, and of compilation in all processes that worked on the run; each counts from zero."""
    compiled = [row["compile_seconds"] for row in timings]
    # It only decreases when another process takes over.
    ends = (now for now, after in itertools.pairwise([*compiled, -1.0]) if after < now)
    return sum(row["seconds"] for row in timings), sum(ends)


def _whole_lines(path: Path, data: bytes) -> Iterator[tuple[int, Json]]:
    """Each report with the position after its line."""
    end, last = 0, 0
    for number, line in enumerate(data.split(b"\n")[:-1], start=1):
        end += len(line) + 1
        try:
            record = parse_object(line)
        except ValueError as error:
            raise DamagedFile(path, f"line {number} is damaged: {error}") from error
        step: Any = record.get("step")
        if not _is_step(step) or step < last:
            raise DamagedFile(path, f"line {number} is damaged: its step is {step!r}, after step {last}")
        last = step
        yield end, record


def _is_step(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
