"""A checkpoint is whole or not there, whatever happens to the process or the disk."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pcpg.runs import checkpoints, documents
from pcpg.runs.errors import BadValue, DamagedFile, OtherVersion


def arrays_of(step: int, size: int = 40) -> dict[str, np.ndarray]:
    return {"w": np.arange(size, dtype=np.float32) + step, "step": np.array(step, np.int64)}


def save(root: Path, *steps: int, keep: int = 2) -> None:
    for step in steps:
        checkpoints.save(root, step, arrays_of(step), {"note": f"at {step}"}, keep)


def is_whole(checkpoint: checkpoints.Checkpoint | None) -> bool:
    if checkpoint is None or checkpoint.state != {"note": f"at {checkpoint.step}"}:
        return False
    expected = arrays_of(checkpoint.step, checkpoint.arrays["w"].size)
    return all(np.array_equal(checkpoint.arrays[name], expected[name]) for name in expected)


def leftovers(root: Path) -> list[str]:
    return [path.name for path in root.rglob(".tmp-*")]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**7), st.dictionaries(st.text(), json_values, max_size=4))
def test_a_checkpoint_comes_back_as_it_was_saved(step: int, state: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as root:
        folder = checkpoints.save(root, step, arrays_of(step), state)
        for checkpoint in (checkpoints.load(root, step), checkpoints.load_latest(root)):
            assert checkpoint is not None and checkpoint.skipped == ()
            assert repr((checkpoint.step, checkpoint.state)) == repr((step, state))
            assert all(np.array_equal(checkpoint.arrays[name], array) for name, array in arrays_of(step).items())
            assert checkpoint.versions["numpy"] == np.__version__
        assert sorted(os.listdir(folder)) == ["arrays.safetensors", "state.json"]


def test_where_nothing_was_saved_there_is_no_checkpoint(tmp_path: Path) -> None:
    assert checkpoints.load_latest(tmp_path / "nowhere") is None
    with pytest.raises(DamagedFile, match="no checkpoint of step 3; available: none"):
        checkpoints.load(tmp_path, 3)


def test_the_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "other"):
        save(tmp_path / name, 5)
    for file in ("arrays.safetensors", "state.json"):
        assert len({(tmp_path / name / "000005" / file).read_bytes() for name in ("one", "other")}) == 1


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_the_last_few_are_kept_in_order_of_step_not_of_name(tmp_path: Path, keep: int) -> None:
    save(tmp_path, 0, 8, 999_999, 1_000_000, 1_000_001, keep=keep)
    assert checkpoints.steps(tmp_path) == [8, 999_999, 1_000_000, 1_000_001][-keep:]
    assert not leftovers(tmp_path)


def test_a_run_that_went_back_leaves_the_later_checkpoints_behind(tmp_path: Path) -> None:
    save(tmp_path, 10, 11, 12, keep=3)
    save(tmp_path, 11, keep=1)
    assert checkpoints.steps(tmp_path) == [11]
    assert is_whole(checkpoints.load_latest(tmp_path))


def test_saving_a_step_again_replaces_it(tmp_path: Path) -> None:
    save(tmp_path, 1, 2)
    inode = (tmp_path / "000002" / "state.json").stat().st_ino
    save(tmp_path, 2)
    assert (tmp_path / "000002" / "state.json").stat().st_ino == inode, "the same content needs no second write"
    checkpoints.save(tmp_path, 2, arrays_of(7), {"note": "other"})
    assert checkpoints.load(tmp_path, 2).state == {"note": "other"}
    assert checkpoints.steps(tmp_path) == [1, 2] and not leftovers(tmp_path)


def cut(path: Path, at: float) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * at)])


def flip(path: Path, at: float, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[int(len(data) * at)] ^= 1 << bit
    path.write_bytes(data)


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from([cut, flip]),
    st.sampled_from(["arrays.safetensors", "state.json"]),
    st.floats(0, 1, exclude_max=True),
)
def test_a_damaged_checkpoint_is_passed_over_and_named(damage: Callable[..., None], file: str, at: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        save(root, 1, 2)
        damage(root / "000002" / file, at)
        latest = checkpoints.load_latest(root)
        assert latest is not None and latest.step == 1 and is_whole(latest)
        assert [step for step, _ in latest.skipped] == [2]
        assert f"000002/{file}: " in latest.skipped[0].reason
        with pytest.raises(DamagedFile, match=file):
            checkpoints.load(root, 2)


def test_a_flipped_bit_anywhere_in_the_state_is_noticed(tmp_path: Path) -> None:
    save(tmp_path, 2)
    path = tmp_path / "000002" / "state.json"
    data = path.read_bytes()
    for position in range(0, len(data), 3):
        flip(path, (position + 0.5) / len(data), bit=position % 8)
        with pytest.raises(DamagedFile, match=r"state\.json"):
            checkpoints.load(tmp_path, 2)
        path.write_bytes(data)


@pytest.mark.parametrize("file", ["arrays.safetensors", "state.json"])
def test_a_missing_file_is_damage(tmp_path: Path, file: str) -> None:
    save(tmp_path, 1, 2)
    (tmp_path / "000002" / file).unlink()
    latest = checkpoints.load_latest(tmp_path)
    assert latest is not None and latest.step == 1
    assert latest.skipped[0].reason.endswith(f"{file}: missing")


def test_a_checkpoint_under_the_name_of_another_step_is_damage(tmp_path: Path) -> None:
    save(tmp_path, 1)
    (tmp_path / "000001").rename(tmp_path / "000009")
    with pytest.raises(DamagedFile, match="belongs to step 1, not to 9"):
        checkpoints.load(tmp_path, 9)


def test_a_run_that_passed_over_a_damaged_checkpoint_writes_it_again(tmp_path: Path) -> None:
    save(tmp_path, 1, 2, 3)
    cut(tmp_path / "000003" / "arrays.safetensors", 0.5)
    save(tmp_path, 3, keep=1)
    latest = checkpoints.load_latest(tmp_path)
    assert is_whole(latest) and latest is not None and latest.step == 3 and not latest.skipped


def test_where_all_are_damaged_nothing_starts_again_silently(tmp_path: Path) -> None:
    save(tmp_path, 1, 2)
    for step in (1, 2):
        cut(tmp_path / f"{step:06d}" / "state.json", 0.5)
    with pytest.raises(DamagedFile, match=r"no intact checkpoint .*000002.*cut short.*000001.*cut short"):
        checkpoints.load_latest(tmp_path)


def test_another_format_version_is_an_error_and_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 1)
    monkeypatch.setattr(documents, "FORMAT_VERSION", 7)
    save(tmp_path, 2)
    monkeypatch.undo()
    with pytest.raises(OtherVersion, match=r"000002/state\.json: .* version 7, .* reads format version 1"):
        checkpoints.load_latest(tmp_path)


def test_what_cannot_be_stored_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match=r"state\.loss is nan: only finite numbers"):
        checkpoints.save(tmp_path / "c", 1, arrays_of(1), {"loss": float("nan")})
    with pytest.raises(BadValue, match="w has dtype object"):
        checkpoints.save(tmp_path / "c", 1, {"w": np.array([None])}, {})
    with pytest.raises(BadValue, match="the step of a checkpoint must be an integer of at least 0, got -1"):
        checkpoints.save(tmp_path / "c", -1, {}, {})
    with pytest.raises(BadValue, match="keep must be at least 1, got 0"):
        checkpoints.save(tmp_path / "c", 1, {}, {}, keep=0)
    assert not list(tmp_path.iterdir())


def test_what_killed_writers_left_is_ignored_and_removed_at_the_next_save(tmp_path: Path) -> None:
    save(tmp_path, 1)
    shutil.copytree(tmp_path / "000001", tmp_path / ".tmp-000002-77")
    assert is_whole(checkpoints.load_latest(tmp_path))
    save(tmp_path, 2)
    assert not leftovers(tmp_path)
