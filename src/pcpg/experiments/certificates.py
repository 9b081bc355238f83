"""`pcpg reproduce certificates`: how often the bounds of `pcpg theory certify` hold, and how near they are.

Each case is certified on many runs; what is kept of it grows as runs are done, so it can be stopped and resumed.
"""

import dataclasses
import datetime
import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.markdown import Markdown

from pcpg.experiments.harness import STOPPED, Record, Scale, commit
from pcpg.reports.statistics import wilson
from pcpg.runs.disk import write_file
from pcpg.theory import certificate

NUMBERS = ("bound", "gap", "trivial", "optimal")


class Case(NamedTuple):
    """An MDP, and the changes to its preset."""

    name: str
    mdp: str
    horizon: int | None
    runs: int
    options: dict[str, Any] = {}  # noqa: RUF012  # a default of a tuple's field, which nobody changes


CLOSE = {"M": 5000, "estimate": "discounted"}
CASES = (
    Case("lock-4", "lock", 4, 1000),
    Case("lock-6", "lock", 6, 200),
    Case("lock-8", "lock", 8, 200),
    Case("lock-4-close", "lock", 4, 200, CLOSE),
    Case("lock-6-close", "lock", 6, 200, CLOSE),
    Case("lock-8-close", "lock", 8, 200, CLOSE),
    Case("linear", "linear", None, 200),
    Case("aggregated", "aggregated", None, 1000),
)
SMOKE = (Case("linear", "linear", None, 2, {"M": 50}),)


@dataclasses.dataclass(frozen=True)
class ReproduceCertificates:
    """How often bounds that are certified for a run hold, and how near they are."""

    scale: Scale = "laptop"
    """smoke: two short runs; laptop and paper: 200 runs of each case, 1,000 of the cheap ones."""
    cases: tuple[str, ...] = ()
    """Which cases; by default all."""
    delta: float = 0.05
    """A bound may fail with this probability."""
    out: str = "results/certificates"
    """Folder of the results; runs that are kept there are not made again."""
    jobs: int = 0
    """How many processes; by default one per core."""
    json: bool = False
    """One JSON object on stdout, everything else on stderr."""

    def __post_init__(self) -> None:
        valid = [case.name for case in self._all]
        unknown = [name for name in self.cases if name not in valid]
        if unknown:
            raise ValueError(f"unknown case {unknown[0]!r}; valid: {', '.join(valid)}")
        if self.jobs < 0:
            raise ValueError(f"jobs must be 0 (one per core) or more, got {self.jobs}")
        if not 0.0 < self.delta < 1.0:
            raise ValueError(f"delta must be a probability, above 0 and below 1, got {self.delta}")

    def __call__(self, console: Console) -> int:
        out, jobs = Path(self.out), self.jobs or os.cpu_count() or 1
        pool: Any = ProcessPoolExecutor(jobs, get_context("spawn")) if jobs > 1 else nullcontext()
        try:
            with pool as workers:
                for case in self._all:
                    if not self.cases or case.name in self.cases:
                        run_case(case, self.delta, out, jobs, workers.map if workers else map, self._command)
                        console.print(f"{case.name}: done", highlight=False)
        except KeyboardInterrupt:
            console.print("stopped; run the same command again to resume", highlight=False)
            return STOPPED
        summary = write_results(out)
        console.print(Markdown(table(summary)))
        console.print(f"written to {out}", highlight=False)
        if self.json:
            print(json.dumps(summary, allow_nan=False))
        return 0

    @property
    def _all(self) -> tuple[Case, ...]:
        return SMOKE if self.scale == "smoke" else CASES

    @property
    def _command(self) -> str:
        delta = f" --delta {self.delta:g}" if self.delta != type(self).delta else ""
        return f"pcpg reproduce certificates --scale {self.scale}{delta}"


def run_case(
    case: Case, delta: float, out: Path, jobs: int, map_runs: Callable[..., Any], command: str, chunk: int = 4
) -> Record:
    """The record of a case with all its runs, those that are missing made now, a few for each process at a time."""
    path = out / "cases" / f"{case.name}.json"
    arguments = {"mdp": case.mdp, "horizon": case.horizon, "options": dict(case.options), "delta": delta}
    record: Record = {"name": case.name, "arguments": arguments, "seconds": 0.0, "runs": []}
    if path.exists():
        record = json.loads(path.read_text())
        if record["arguments"] != arguments:
            raise ValueError(f"{path} was made with other settings: choose another --out")
    while (done := len(record["runs"])) < case.runs:
        seeds = range(done, min(done + chunk * jobs, case.runs))
        found = list(map_runs(partial(_timed, case, delta), seeds))
        record["runs"] += [run for run, _ in found]
        record["seconds"] = round(record["seconds"] + sum(seconds for _, seconds in found), 1)
        record |= {"command": command, "commit": commit(), "device": "cpu"}
        record["time"] = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, json.dumps(record, allow_nan=False).encode())
    return record


def _timed(case: Case, delta: float, seed: int) -> tuple[Record, float]:
    started = time.process_time()
    made, mdp, _ = certificate.certified_run(case.mdp, case.horizon, "sampled", seed, delta, **case.options)
    numbers = {key: round(float(getattr(made, key)), 6) for key in NUMBERS}
    terms = {key: round(float(value), 6) for key, value in made.measured._asdict().items()}
    run = {"seed": seed, "mdp": mdp, "holds": bool(made.holds), **numbers, "terms": terms}
    return run, time.process_time() - started


def summarise(record: Record) -> Record:
    """Medians of a case and the share of its bounds that hold, with its 95% interval."""
    runs = record["runs"]
    held = sum(run["holds"] for run in runs)
    _, low, high = wilson(held, len(runs))
    return {
        "name": record["name"],
        "mdp": runs[0]["mdp"],
        "options": record["arguments"]["options"],
        "delta": record["arguments"]["delta"],
        "runs": len(runs),
        "hold": held,
        "share": [low, high],
        "below_trivial": sum(run["bound"] < run["trivial"] for run in runs),
        "below_optimal": sum(run["bound"] < run["optimal"] for run in runs),
        **{key: float(np.median([run[key] for run in runs])) for key in NUMBERS},
        "terms": {key: float(np.median([run["terms"][key] for run in runs])) for key in runs[0]["terms"]},
        **{key: record[key] for key in ("seconds", "command", "commit", "device", "time")},
    }


def table(summary: Record) -> str:
    """The summary as Markdown."""
    head = ["MDP", "critic", "bound", "in truth", "1/(1-gamma)", "V*", *certificate.Terms._fields]
    lines = ["| " + " | ".join([*head, "below V*", "hold"]) + " |", "|" + "---|" * (len(head) + 2)]
    for case in summary["cases"]:
        critic = f"{case['options']['M']} pairs" if "M" in case["options"] else "preset"
        numbers = [f"{case[key]:.3g}" for key in NUMBERS] + [f"{value:.2g}" for value in case["terms"].values()]
        shares = [f"{case['below_optimal']}/{case['runs']}", f"{case['hold']}/{case['runs']}"]
        lines.append("| " + " | ".join([case["mdp"], critic, *numbers, *shares]) + " |")
    made = [
        f"- {case['mdp']}: `{case['command']}`, {_seconds(case)}commit {str(case['commit'])[:7]}, {case['device']}, "
        f"{case['time'][:10]}"
        for case in summary["cases"]
    ]
    said = [
        "",
        "V* - V of the returned policy is at most `bound` with probability 1 - delta over fresh episodes that compare",
        "policies; medians over runs with seeds from 0 on. V* is the largest gap there can be, since rewards are not",
        "negative: a bound below it says something.",
        "",
        *made,
        "",
    ]
    return "\n".join([*lines, *said])


def _seconds(case: Record) -> str:
    return "" if case["seconds"] is None else f"{case['seconds']:.0f} core-seconds, "


def write_results(out: Path) -> Record:
    """Write summary.json and table.md from the cases that are kept; the summary."""
    order = [case.name for case in (*CASES, *SMOKE)]
    records = [json.loads(path.read_text()) for path in (out / "cases").glob("*.json")]
    summary = {"cases": [summarise(record) for record in sorted(records, key=lambda r: order.index(r["name"]))]}
    write_file(out / "summary.json", (json.dumps(summary, indent=1, allow_nan=False) + "\n").encode())
    write_file(out / "table.md", ("# Certificates\n\n" + table(summary)).encode())
    return summary
