"""Compiled programs are cached between runs, in the user's cache folder."""

import importlib
import os
import time
import zlib
from pathlib import Path

import jax

GIVEN = "JAX_COMPILATION_CACHE_DIR"
CHECKED = ".checked"
"""A file whose modification time says up to when cache entries were checked."""


def own_folder() -> Path | None:
    """The user's cache folder for compiled programs, created if missing; None if it would not be private.

    It holds native code that later runs execute, so nobody else may write there.
    """
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pcpg" / "jax"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
        if status.st_uid != os.getuid():
            return None
        if status.st_mode & 0o077:
            folder.chmod(0o700)
    except (OSError, RuntimeError):  # no home, or no right to write there
        return None
    return folder


def enable_compile_cache() -> None:
    """Cache every compilation on disk; without a private folder, nothing is cached.

    A cache configured by the user or the program (JAX_COMPILATION_CACHE_DIR, jax.config) is used unchanged.
    """
    given = os.environ.get(GIVEN)
    if not given:
        if getattr(jax.config, "jax_compilation_cache_dir", None):
            return  # the program that uses this library has its own cache, or this was called before
        folder = own_folder()
        if folder is None:
            return
        given = str(folder)
    jax.config.update("jax_compilation_cache_dir", given)
    for name, value in (("min_compile_time_secs", 0.0), ("min_entry_size_bytes", 0)):
        if f"JAX_PERSISTENT_CACHE_{name.upper()}" not in os.environ:
            jax.config.update(f"jax_persistent_cache_{name}", value)
    drop_cut_entries(Path(given))


def drop_cut_entries(folder: Path) -> None:
    """Remove entries left half written by a killed process; each entry is checked once.

    JAX never rewrites an entry: a broken one would cost a compilation and a warning in every run.
    """
    if not folder.is_dir():
        return  # not made yet, or no local folder at all
    marker, now = folder / CHECKED, time.time_ns()
    try:
        since = marker.stat().st_mtime_ns if marker.exists() else now - 24 * 3600 * 10**9
        recent = [entry for entry in folder.glob("*-cache") if entry.stat().st_mtime_ns >= since]
        cut = [entry for entry in recent if _is_cut(entry)]
        if cut:
            time.sleep(0.05)  # one that another process is writing right now is whole by then
        for entry in cut:
            if _is_cut(entry):
                entry.unlink(missing_ok=True)
        marker.touch()
        os.utime(marker, ns=(now, now))
    except OSError:
        return  # nothing but time is lost


def _is_cut(entry: Path) -> bool:
    data = entry.read_bytes()
    try:
        if data.startswith(b"\x28\xb5\x2f\xfd"):  # zstd, which JAX takes where it is installed
            importlib.import_module("zstandard").ZstdDecompressor().decompress(data)
        else:
            zlib.decompress(data)
    except ImportError:
        return False  # compressed with what this process cannot read: not ours to judge
    except Exception:
        return True
    return False
