"""Copies kept results into the pages that show them: python docs/tables.py.

A page says `<!-- table: FILE -->`, and `<!-- end of table -->` below; between them goes the first table of the file, or
with `<!-- table: FILE 2 -->` the second.
"""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
BLOCK = re.compile(r"(<!-- table: (\S+)(?: (\d))? -->\n).*?(<!-- end of table -->)", re.DOTALL)


def filled(text: str) -> str:
    """The text of a page with every table as it is in its file now."""
    return BLOCK.sub(lambda block: block[1] + table_of(ROOT / block[2], int(block[3] or 1)) + block[4], text)


def table_of(path: Path, number: int) -> str:
    """One of the runs of lines that begin with a bar."""
    found = re.findall(r"(?:^\|.*\n)+", path.read_text(), re.MULTILINE)
    if len(found) < number:
        raise ValueError(f"{path} has no table {number}")
    return found[number - 1]


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(filled(page.read_text()))
