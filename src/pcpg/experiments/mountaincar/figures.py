"""The figures of MountainCar: return against steps, and where the policies of a cover went."""

from pathlib import Path

from pcpg.experiments.common import Record
from pcpg.experiments.common_figures import cover_pictures, curves
from pcpg.reports.figures import save


def draw_all(records: list[Record], out: Path) -> list[Path]:
    """Every figure for which there are records; the files written."""
    paths = save(curves(records, 1, "mean return of the newest policy,\n200-step episodes"), out / "return")
    for record in records:
        if "cover" in record:
            title = f"PC-PG's cover, seed {record['seeds'][0]}: position to the right, velocity upwards"
            paths += save(cover_pictures(record, title), out / "cover")
    return paths
