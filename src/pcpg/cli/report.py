"""`pcpg report`."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from pcpg.cli.flags import JsonFlag, Mistake
from pcpg.cli.output import answer, loading, print_json
from pcpg.runs.folder import RunFolder


@dataclasses.dataclass(frozen=True)
class Report:
    """Write one page about one run or several: curves, the cover and its certificate, visits, times, settings."""

    dirs: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="DIR [DIR ...]", help="Run folders.")]
    out: Annotated[str, tyro.conf.arg(metavar="FILE")] = ""
    """The page; by default report.html in the run folder, or here where there are several."""
    json: JsonFlag = False

    def __call__(self, console: Console) -> int:
        if not self.dirs:
            raise Mistake("name a run folder, as in `pcpg report runs/first`")
        for folder in self.dirs:
            RunFolder.open(folder)
        if self.out and not Path(self.out).resolve().parent.is_dir():
            raise Mistake(f"{self.out}: there is no folder {Path(self.out).parent} to put the page into")
        if self.out and Path(self.out).is_dir():
            raise Mistake(f"{self.out} is a folder: name the file of the page, as in {self.out}/report.html")
        with loading(console):
            from pcpg.reports.page import write_report
        path, runs = write_report(self.dirs, self.out or None)
        for run in runs:
            for note in run.notes:
                console.print(f"{run.path}: {note}", style="yellow", highlight=False, soft_wrap=True)
        answer(console, self.json).print(f"report: {path}", highlight=False, soft_wrap=True)
        notes = {str(run.path): list(run.notes) for run in runs}
        print_json({"report": str(path), "runs": [str(run.path) for run in runs], "notes": notes}, self.json)
        return 0
