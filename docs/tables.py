"""Copies kept results into the pages that show them: python docs/tables.py.

A page says `<!-- table: FILE -->`, and `<!-- end of table -->` below; between them goes the first table of the file, or
with `<!-- table: FILE 2 -->` the second. `rows 1 4 columns 1 3` behind that picks some of each, counted from 1.
"""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
BLOCK = re.compile(
    r"(<!-- table: (\S+)(?: (\d))?(?: rows ([\d ]+?))?(?: columns ([\d ]+?))? -->\n).*?(<!-- end of table -->)",
    re.DOTALL,
)


def filled(text: str) -> str:
    """The text of a page with every table as it is in its file now."""

    def table(block: re.Match[str]) -> str:
        head, name, number, rows, columns, end = block.groups()
        return head + picked(table_of(ROOT / name, int(number or 1)), rows, columns) + end

    return BLOCK.sub(table, text)


def table_of(path: Path, number: int) -> str:
    """One of the runs of lines that begin with a bar."""
    found = re.findall(r"(?:^\|.*\n)+", path.read_text(), re.MULTILINE)
    if len(found) < number:
        raise ValueError(f"{path} has no table {number}")
    return found[number - 1]


def picked(table: str, rows: str | None, columns: str | None) -> str:
    """Some rows and columns of a table, or all."""
    head, line, *body = table.splitlines()
    kept = [head, line, *([body[int(row) - 1] for row in rows.split()] if rows else body)]
    if columns:
        cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in kept]
        kept = ["| " + " | ".join(row[int(place) - 1] for place in columns.split()) + " |" for row in cells]
        kept[1] = kept[1].replace(" ", "")
    return "".join(f"{row}\n" for row in kept)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(filled(page.read_text()))
