"""Reports are stored exactly, and a resumed run ends with the file of one that was never stopped."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pcpg.runs.errors import BadValue, DamagedFile, DiskFull
from pcpg.runs.metrics import JsonLines, Logger, read_metrics

REPORTS = [{"step": n // 2, "seed": n % 2, "return": n / 3, "name": "a\nü"} for n in range(12)]


def write_all(path: Path, records: list[dict[str, Any]]) -> bytes:
    logger: Logger = JsonLines(path)
    for record in records:
        logger.write(record)
    return path.read_bytes()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.dictionaries(
            st.text().filter(lambda name: name != "step"),
            st.floats(allow_nan=False, allow_infinity=False) | st.integers() | st.text() | st.none() | st.booleans(),
            max_size=4,
        ),
        max_size=4,
    )
)
def test_reports_come_back_exactly(records: list[dict[str, Any]]) -> None:
    records = [{"step": step, **record} for step, record in enumerate(records)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "metrics.jsonl"
        write_all(path, records)
        assert repr(read_metrics(path)) == repr(records)


def test_numpy_numbers_are_stored_as_the_exact_value_they_have(tmp_path: Path) -> None:
    record = {"step": np.int64(3), "x": np.float32(0.1), "y": np.array([1.5, 2.5]), "z": np.bool_(True)}
    write_all(tmp_path / "metrics.jsonl", [record])
    (back,) = read_metrics(tmp_path / "metrics.jsonl")
    assert back == {"step": 3, "x": 0.10000000149011612, "y": [1.5, 2.5], "z": True}
    assert np.float32(back["x"]) == np.float32(0.1)


@settings(max_examples=40, deadline=None)
@given(st.integers(-1, 5), st.data())
def test_a_run_killed_anywhere_and_resumed_gives_the_same_bytes(step: int, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "metrics.jsonl"
        uninterrupted = write_all(path, REPORTS)
        saved = [json.dumps(record) + "\n" for record in REPORTS if record["step"] <= step]
        killed_at = data.draw(st.integers(len("".join(saved)), len(uninterrupted)))
        path.write_bytes(uninterrupted[:killed_at])
        logger = JsonLines(path)
        logger.truncate_to(step)
        assert path.read_bytes() == "".join(saved).encode()
        for record in REPORTS:
            if record["step"] > step:
                logger.write(record)
        logger.sync()
        assert path.read_bytes() == uninterrupted


def test_the_half_of_a_line_is_not_read_and_not_built_upon(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    uninterrupted = write_all(path, REPORTS)
    path.write_bytes(uninterrupted[:-5])
    assert read_metrics(path) == REPORTS[:-1]
    assert path.read_bytes() == uninterrupted[:-5], "reading changes nothing: the run may be alive"
    assert write_all(path, REPORTS[-1:]) == uninterrupted


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"step": 1, "loss": float("nan")}, r"record\.loss is nan: only finite numbers can be stored"),
        ({"step": 1, "a": {"b": [0.0, np.float32("inf")]}}, r"record\.a\.b\[1\] is inf"),
        ({"step": 1, "a": object()}, r"record\.a is of type object"),
        ({"step": 1, "a": np.longdouble(1)}, r"record\.a is of type longdouble"),
        ({"step": 1, "a": 1j}, r"record\.a is of type complex"),
        ({"step": 1, "a": {1: 2}}, r"record\.a has the key 1: keys must be strings"),
        ({"loss": 1.0}, "must be an integer of at least 0, got None"),
        ({"step": 1.0}, r"must be an integer of at least 0, got 1\.0"),
        ({"step": -1}, "must be an integer of at least 0, got -1"),
        ({"step": 0}, "a report of step 0 cannot follow one of step 1"),
    ],
)
def test_a_report_that_cannot_be_stored_is_refused_and_leaves_the_file(
    tmp_path: Path, record: dict[Any, Any], message: str
) -> None:
    path = tmp_path / "metrics.jsonl"
    before = write_all(path, [{"step": 1}])
    with pytest.raises(BadValue, match=message):
        JsonLines(path).write(record)
    assert path.read_bytes() == before


@pytest.mark.parametrize("line", [b'{"step": 1, "a":', b"[1]", b'{"step": NaN}', b'{"a": 1}', b'{"step": 0}', b"\xff"])
def test_a_damaged_line_is_named_by_its_number(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n' + line + b'\n{"step": 2}\n')
    for use in (read_metrics, JsonLines):
        with pytest.raises(DamagedFile, match=r"metrics\.jsonl: line 2 is damaged"):
            use(path)


def test_a_missing_file_is_called_missing(tmp_path: Path) -> None:
    with pytest.raises(DamagedFile, match=r"metrics\.jsonl: missing"):
        read_metrics(tmp_path / "metrics.jsonl")


def test_a_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "metrics.jsonl"
    before = write_all(path, REPORTS[:1])
    logger, write, calls = JsonLines(path), os.write, []

    def half_then_full(descriptor: int, data: memoryview) -> int:
        calls.append(len(data))
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        return write(descriptor, data[: len(data) // 2])

    monkeypatch.setattr(os, "write", half_then_full)
    with pytest.raises(DiskFull, match=r"metrics\.jsonl"):
        logger.write(REPORTS[1])
    monkeypatch.undo()
    assert len(calls) == 2 and path.read_bytes() == before
    logger.write(REPORTS[1])
    assert read_metrics(path) == REPORTS[:2]
