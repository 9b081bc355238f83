"""Where compiled programs are kept, and which entries are trusted."""

import os
import stat
import zlib
from pathlib import Path
from typing import Any

import jax
import pytest

from pcpg.training.compile_cache import CHECKED, drop_cut_entries, enable_compile_cache, own_folder


@pytest.fixture
def updates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What was set in JAX's configuration, which stays as it is; a user without any cache."""
    made: dict[str, Any] = {}
    monkeypatch.setattr(jax.config, "update", made.__setitem__)
    monkeypatch.setattr(type(jax.config), "jax_compilation_cache_dir", None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in list(os.environ):
        if name.startswith(("JAX_COMPILATION_CACHE", "JAX_PERSISTENT_CACHE")):
            monkeypatch.delenv(name)
    return made


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_programs_are_kept_in_a_folder_that_only_the_user_can_touch(tmp_path: Path, updates: dict[str, Any]) -> None:
    enable_compile_cache()
    folder = tmp_path / "cache" / "pcpg" / "jax"
    assert mode(folder) == 0o700
    assert updates == {
        "jax_compilation_cache_dir": str(folder),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": 0,
    }
    folder.chmod(0o777)
    assert own_folder() == folder and mode(folder) == 0o700


def test_a_folder_of_somebody_else_is_not_used(
    tmp_path: Path, updates: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache" / "pcpg" / "jax").mkdir(parents=True)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    enable_compile_cache()
    assert updates == {}


def test_without_a_place_to_write_everything_works_without_a_cache(
    tmp_path: Path, updates: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    enable_compile_cache()
    assert updates == {}


def test_a_folder_that_the_user_names_is_used_as_it_is(
    tmp_path: Path, updates: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o775)
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(shared))
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "5")
    enable_compile_cache()
    assert mode(shared) == 0o775
    assert updates == {"jax_compilation_cache_dir": str(shared), "jax_persistent_cache_min_entry_size_bytes": 0}


def test_a_cache_that_the_program_set_up_is_left_alone(
    updates: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(jax.config), "jax_compilation_cache_dir", "/somewhere")
    enable_compile_cache()
    assert updates == {}


def test_cut_entries_go_whole_ones_and_other_files_stay(tmp_path: Path) -> None:
    whole = zlib.compress(b"a program" * 1000)
    entries = {
        "whole-cache": whole,
        "cut-cache": whole[:-9],
        "empty-cache": b"",
        "zstd-cache": b"\x28\xb5\x2f\xfd...",  # unreadable where zstandard is not installed
        "notes.txt": b"",
    }
    for name, data in entries.items():
        (tmp_path / name).write_bytes(data)
    drop_cut_entries(tmp_path)
    left = {path.name for path in tmp_path.iterdir()}
    assert {"whole-cache", "notes.txt", CHECKED} <= left and not {"cut-cache", "empty-cache"} & left


def test_an_entry_is_looked_at_once(tmp_path: Path) -> None:
    old, new = tmp_path / "old-cache", tmp_path / "new-cache"
    drop_cut_entries(tmp_path)
    for path in (old, new):
        path.write_bytes(b"cut")
    looked = (tmp_path / CHECKED).stat().st_mtime_ns  # the clock of a file system may lag behind
    os.utime(old, ns=(looked - 1, looked - 1))
    os.utime(new, ns=(looked, looked))
    drop_cut_entries(tmp_path)
    assert old.exists() and not new.exists()


def test_a_folder_that_is_not_there_is_no_error(tmp_path: Path) -> None:
    drop_cut_entries(tmp_path / "absent")
    assert not (tmp_path / "absent").exists()
