"""The report: one self-contained HTML page about one or several runs."""

import os
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pcpg.reports.figures import Playing, drawing
from pcpg.reports.read import RunData, read_run
from pcpg.reports.sections import groups_of, section_of
from pcpg.reports.statistics import Interval, interval_of, solved_share
from pcpg.reports.text import NONE, duration, interval_text, listed, run_labels, seeds_text, span_text, steps_text
from pcpg.reports.verdict import met
from pcpg.runs.disk import check_output, make_folder, write_file

GENERATOR = b'<meta name="generator" content="pcpg">'
"""In the head of every page, and of no other file."""
FEW_SEEDS = 5
"""With fewer seeds, the page warns that bootstrap intervals are too narrow."""


def write_report(
    paths: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str] | None = None,
    playing: Sequence[Playing | None] = (),
) -> tuple[Path, list[RunData]]:
    """Write the report of one or more run folders; returns the path of the page and the data.

    `playing`: an episode of each run to show, or None.

    Without `out`, the report of one run goes into its folder, that of several to report.html in the current folder.
    """
    if not paths:
        raise ValueError("a report needs at least one run folder")
    target = Path(out) if out is not None else (Path(paths[0]) if len(paths) == 1 else Path()) / "report.html"
    check_output(target, GENERATOR)
    if target.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"a report is an .html file, got {str(target)!r}")
    runs = [read_run(Path(path)) for path in paths]
    page = render(runs, playing)
    make_folder(target.parent)
    write_file(target, page.encode("utf-8", "replace"))
    return target, runs


def render(runs: Sequence[RunData], playing: Sequence[Playing | None] = ()) -> str:
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
    named = list(enumerate(zip(runs, run_labels(runs), strict=True)))
    episodes = [*playing, *[None] * len(runs)]
    with drawing():
        context = {
            "title": title(runs),
            "lead": [lead(run) for run in runs],
            "has_one_seed": any(len(run.seeds) == 1 for run in runs),
            "overview": [overview_row(run, label, index) for index, (run, label) in named],
            "across": across(runs),
            "has_success": any(run.solved_return is not None for run in runs),
            "has_few_seeds": any(len(run.seeds) < FEW_SEEDS for run in runs),
            "groups": groups_of(runs),
            "runs": [section_of(run, label, index, episodes[index]) for index, (run, label) in named],
        }
    return environment.get_template("report.html.j2").render(context)


# results of the runs


def title(runs: list[RunData]) -> str:
    """The title of the page."""
    names = sorted({run.config["env"] for run in runs})
    algos = list(dict.fromkeys(run.algo for run in runs))
    return f"{listed(algos)} on {listed(names)}"


def lead(run: RunData) -> str:
    """The result of a run in one sentence."""
    solved, steps = solved_share(run), steps_text(run.steps_per_seed)
    if not run.final_returns:
        return f"{run.algo} on {run.env_key} has no results yet."
    many = seeds_text(len(run.seeds))
    if solved is None:
        coverage = [share for seed in run.seeds if (share := run.last(seed, "coverage")) is not None]
        seen = f"visited {np.mean(coverage):.0%} of the grid cells" if coverage else "earned no reward"
        is_paid = any(run.final_returns.values()) or (not run.is_reward_free and met(run).is_met)
        earned = f"reached a return of {interval_text(final_return(run))}" if is_paid else seen
        return f"{run.algo} {earned} on {run.env_key}, with {steps} environment steps per seed ({many})."
    return f"{run.algo} solved {run.env_key} in {run.solved} of {many}, with {steps} environment steps per seed."


def final_return(run: RunData) -> Interval | None:
    """Interquartile mean of the final return over seeds, or None if there is none yet."""
    returns = np.array(list(run.final_returns.values()))
    if not len(returns):
        return None
    return Interval(float(returns[0]), np.nan, np.nan) if len(returns) == 1 else interval_of([returns])


class Across(NamedTuple):
    """The results of an algorithm over several environments."""

    algo: str
    environments: int
    seeds: int
    score: str


def across(runs: list[RunData]) -> list[Across]:
    """Interquartile mean, over all seeds of several environments, of the final return as a share of the solved return.

    Seeds are resampled within each environment. Only for algorithms that ran on two or more environments
    whose solved return is positive.
    """
    rows = []
    for algo in dict.fromkeys(run.algo for run in runs):
        strata: dict[str, list[float]] = {}
        for run in runs:
            if run.algo == algo and run.solved_return is not None and run.solved_return > 0:
                shares = [value / run.solved_return for value in run.final_returns.values()]
                strata.setdefault(run.env_key, []).extend(shares)
        known = [np.array(shares) for shares in strata.values() if shares]
        if len(known) > 1:
            rows.append(Across(algo, len(known), sum(map(len, known)), interval_text(interval_of(known))))
    return rows


def overview_row(run: RunData, label: str, index: int) -> dict[str, object]:
    """The row of a run in the table of results."""
    solved = solved_share(run)
    returns = run.final_returns
    sizes = [len(cover.weights) for cover in run.covers.values()]
    return {
        "id": f"run-{index + 1}",
        "label": label,
        "env": run.env_key,
        "seeds": len(run.seeds),
        "solved": NONE if solved is None else f"{run.solved} of {len(returns)}",
        "solved_interval": "" if solved is None or len(returns) == 1 else f"[{solved.low:.2f}, {solved.high:.2f}]",
        "final": interval_text(final_return(run)),
        "steps": steps_text(run.steps_per_seed),
        "policies": span_text(sizes, str),
        "time": duration(run.seconds + run.compile_seconds),
        "is_finished": run.summary is not None,
        "failed": len(run.failed),
    }
