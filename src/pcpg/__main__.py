"""Entry point of the command `pcpg` and of `python -m pcpg`."""

import contextlib
import os
import sys
from typing import NoReturn


def main() -> None:
    """Run the command line."""
    _open_what_is_closed()
    _refuse_a_deleted_folder()
    _take_this_folder_off_the_path()
    _announce_exits()
    # Before NumPy loads: seeds fill the cores, and on busy cores two BLAS threads make a small solve take a thousand
    # times as long as one.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    _read_no_settings_of_this_folder()
    from pcpg.cli.main import main as command_line

    command_line()


def _open_what_is_closed() -> None:
    """Where stdin, stdout or stderr is closed, the next file that is opened would take its place: nowhere does."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            with contextlib.suppress(OSError):
                os.open(os.devnull, os.O_RDWR)
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(descriptor, "w", encoding="utf-8", closefd=False))


def _refuse_a_deleted_folder() -> None:
    try:
        os.getcwd()
    except OSError:
        print("error: the current folder no longer exists; change to another one", file=sys.stderr)
        sys.exit(2)


def _take_this_folder_off_the_path() -> None:
    """What lies in the current folder is imported where it is named, and not where a library looks for a plugin."""
    here = os.getcwd()
    sys.path[:] = [place for place in sys.path if place not in ("", here)]


def _read_no_settings_of_this_folder() -> None:
    """A file of settings in the current folder, with which Matplotlib runs LaTeX, is read when that is imported."""
    if os.path.lexists("matplotlibrc"):
        with contextlib.chdir(os.sep), contextlib.suppress(ImportError):
            import matplotlib  # noqa: F401


def _announce_exits() -> None:
    """An environment in this process may call `os._exit`, after which nothing runs: who called is said first."""
    leave, here = os._exit, os.getpid()

    def announced(status: int) -> NoReturn:
        caller = str(sys._getframe(1).f_globals.get("__name__"))
        if os.getpid() == here and not caller.startswith("pcpg"):
            with contextlib.suppress(OSError):
                said = f"stopped: {caller} ended the process by os._exit({status}); what was saved is intact\n"
                os.write(2, said.encode())
        leave(status)

    os._exit = announced


if __name__ == "__main__":
    main()
