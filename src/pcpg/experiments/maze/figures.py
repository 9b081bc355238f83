"""The figures of the mazes: coverage against steps, and the cells that policies of a cover visit."""

from pathlib import Path

from pcpg.experiments.common import Record
from pcpg.experiments.common_figures import cover_pictures, curves
from pcpg.reports.figures import save


def draw_all(records: list[Record], out: Path) -> list[Path]:
    """Every figure for which there are records, a pair for each size; the files written."""
    paths = []
    for size in sorted({record["size"] for record in records}):
        same = [record for record in records if record["size"] == size]
        paths += save(curves(same, 2, "share of the open cells visited"), out / f"coverage-size{size}")
        for record in same:
            if "cover" in record:
                title = f"PC-PG's cover of a maze of size {size}, seed {record['seeds'][0]}"
                paths += save(cover_pictures(record, title), out / f"cover-size{size}")
    return paths
