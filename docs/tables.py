"""Copies kept results into the pages that show them: python docs/tables.py.

A page says `<!-- table: FILE -->`, and `<!-- end of table -->` below; between them goes the first table of the file.
"""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
BLOCK = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def filled(text: str) -> str:
    """The text of a page with every table as it is in its file now."""
    return BLOCK.sub(lambda block: block[1] + first_table(ROOT / block[2]) + block[3], text)


def first_table(path: Path) -> str:
    """The first run of lines that begin with a bar."""
    found = re.search(r"(?:^\|.*\n)+", path.read_text(), re.MULTILINE)
    if found is None:
        raise ValueError(f"{path} has no table")
    return found[0]


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(filled(page.read_text()))
