"""Where the command `pcpg` and `python -m pcpg` begin."""

import os


def main() -> None:
    """Run the command line."""
    # Before NumPy loads: seeds fill the cores, and on busy cores two BLAS threads make a small solve take a thousand
    # times as long as one.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from pcpg.cli.main import main as command_line

    command_line()


if __name__ == "__main__":
    main()
