"""Compiled programs are kept between runs, in the user's cache folder."""

import os
import stat
from pathlib import Path

import jax


def cache_folder() -> Path:
    """Where compiled programs are kept: JAX_COMPILATION_CACHE_DIR, or a folder of the user's cache."""
    given = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pcpg" / "jax"


def enable_compile_cache() -> None:
    """Keep every compilation on disk; without a folder that is ours alone, compile anew each time.

    The cache holds native code that later runs execute, so nobody else may write there.
    """
    if getattr(jax.config, "jax_compilation_cache_dir", None) and not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return  # the program that uses this library has its own cache
    folder = cache_folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
        if status.st_uid != os.getuid():
            return
        if stat.S_IMODE(status.st_mode) & 0o077:
            folder.chmod(0o700)
    except OSError:
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
