"""`python -m pcpg` is `pcpg`."""

from pcpg.cli import main

main()
