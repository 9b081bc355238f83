"""Entry point of the command `pcpg` and of `python -m pcpg`."""

import contextlib
import os
import sys


def main() -> None:
    """Run the command line."""
    _open_what_is_closed()
    _refuse_a_deleted_folder()
    _put_this_folder_last()
    # Before NumPy loads: seeds fill the cores, and on busy cores two BLAS threads make a small solve take a thousand
    # times as long as one.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
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


def _put_this_folder_last() -> None:
    """`python -m` looks for modules in the folder it is started in first: there, a file may have any name.

    Inside a run folder, its files must not shadow installed packages.
    """
    if sys.path and sys.path[0] in ("", os.getcwd()):
        sys.path.append(sys.path.pop(0))


if __name__ == "__main__":
    main()
