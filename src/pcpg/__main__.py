"""Where the command `pcpg` and `python -m pcpg` begin."""

import contextlib
import os
import sys


def main() -> None:
    """Run the command line."""
    _open_what_is_closed()
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


def _put_this_folder_last() -> None:
    """`python -m` looks for modules in the folder it is started in first: there, a file may have any name.

    Whoever looks at a run inside its folder must not import what lies there in place of an installed package.
    """
    if sys.path and sys.path[0] in ("", os.getcwd()):
        sys.path.append(sys.path.pop(0))


if __name__ == "__main__":
    main()
