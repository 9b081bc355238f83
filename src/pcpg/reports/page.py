"""The report: one page of HTML that needs nothing but itself, about one run or several."""

import os
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from pcpg.reports.comparison import groups_of
from pcpg.reports.overview import across, lead, overview_row, title
from pcpg.reports.reading import RunData, read_run
from pcpg.reports.sections import section_of
from pcpg.reports.svg import drawing
from pcpg.reports.words import run_labels

FEW_SEEDS = 5
"""Below so many seeds the page says that bootstrap intervals are too narrow."""


def write_report(
    paths: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str] | None = None
) -> tuple[Path, list[RunData]]:
    """Write the report of one or more run folders; the file and what was read.

    Without `out` the report of one run lies in its folder, that of several in report.html here.
    """
    if not paths:
        raise ValueError("a report needs at least one run folder")
    runs = [read_run(Path(path)) for path in paths]
    target = Path(out) if out is not None else (runs[0].path if len(runs) == 1 else Path()) / "report.html"
    page = render(runs)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page, encoding="utf-8")
    return target, runs


def render(runs: Sequence[RunData]) -> str:
    """The page as text; the same runs give the same page."""
    import jinja2

    runs = list(runs)
    folder = resources.files("pcpg.reports") / "templates"
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: (folder / name).read_text(encoding="utf-8")),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    labels = run_labels(runs)
    with drawing():
        context = {
            "title": title(runs),
            "lead": [lead(run) for run in runs],
            "overview": [
                overview_row(run, label, index) for index, (run, label) in enumerate(zip(runs, labels, strict=True))
            ],
            "across": across(runs),
            "has_success": any(run.solved_return is not None for run in runs),
            "has_few_seeds": any(len(run.seeds) < FEW_SEEDS for run in runs),
            "groups": groups_of(runs),
            "runs": [
                section_of(run, label, index) for index, (run, label) in enumerate(zip(runs, labels, strict=True))
            ],
        }
    return environment.get_template("report.html.j2").render(context)
