"""`pcpg reproduce certificates`: how often the bounds of `pcpg theory certify` and `pcpg certify` hold, and how near
they are.

Each case is certified on many runs; its record grows with them, so it can be stopped and resumed.
"""

import dataclasses
import functools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console

from pcpg.reports.statistics import wilson
from pcpg.runs.disk import exists, refuse_strange
from pcpg.runs.documents import NUMBER, is_list_of, read_object
from pcpg.runs.errors import understood
from pcpg_lab.claims.data_certificates import DATA_CASES, DATA_NUMBERS, DATA_SMOKE, DataCase, certified
from pcpg_lab.claims.records import (
    PARTS,
    Columns,
    Record,
    Scale,
    origin,
    refuse_unknown,
    table_of,
    write_record,
    write_results,
)
from pcpg_lab.cli import say_stopped, show
from pcpg_lab.sweeps.crew import DONE, Boss, Job, Outcome, Task, map_tasks
from pcpg_lab.sweeps.local import engine_for_calls
from pcpg_theory import certificate

NUMBERS = ("bound", "gap", "trivial", "optimal")


class Case(NamedTuple):
    """An MDP, and the changes to its preset."""

    name: str
    mdp: str
    horizon: int | None
    runs: int
    options: dict[str, object] = {}  # noqa: RUF012  # a default of a tuple's field, which nobody changes


SAID = (
    "From data alone: optimism over all moves of a run, and 2,000 fresh episodes of the policy that is best in the",
    "empirical model. A run plays whole episodes by the upper bounds so far, side by side, and trains nothing. V*, V",
    "and the gap in truth are exact and only check the bounds, of which at most 5% may fail.",
)
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
    """How often the certified bounds of a run hold, and how tight they are."""

    scale: Scale = "laptop"
    """smoke: two short runs; laptop and paper: 200 runs of each case, 1,000 of the cheap ones."""
    cases: tuple[str, ...] = ()
    """Which cases; by default all."""
    delta: float = 0.05
    """A bound may fail with this probability."""
    out: str = "results/certificates"
    """Folder of the results; runs found there are reused."""
    jobs: int = 0
    """Number of processes; by default one per core."""
    json: bool = False
    """Print one JSON object to stdout and everything else to stderr."""

    def __post_init__(self) -> None:
        refuse_unknown("case", self.cases, [case.name for case in self._all])
        if self.jobs < 0:
            raise ValueError(f"jobs must be 0 (one per core) or more, got {self.jobs}")
        if not 0.0 < self.delta < 1.0:
            raise ValueError(f"delta must be a probability, above 0 and below 1, got {self.delta}")

    def __call__(self, console: Console) -> int:
        out = Path(self.out)
        refuse_strange(out, PARTS)
        try:
            for case in self._all:
                if not self.cases or case.name in self.cases:
                    run_case(case, self.delta, out, self.jobs, self._command)
                    console.print(f"{case.name}: done", highlight=False)
        except KeyboardInterrupt:
            return say_stopped(console)
        summary = write_all(out)
        return show(console, summary, table(summary), out, self.json)

    @property
    def _all(self) -> tuple[Case | DataCase, ...]:
        return (*SMOKE, *DATA_SMOKE) if self.scale == "smoke" else (*CASES, *DATA_CASES)

    @property
    def _command(self) -> str:
        delta = f" --delta {self.delta:g}" if self.delta != type(self).delta else ""
        return f"pcpg reproduce certificates --scale {self.scale}{delta}"


def run_case(case: Case | DataCase, delta: float, out: Path, jobs: int, command: str) -> Record:
    """The record of a case with all its runs; missing ones are made now, and kept in the order of their seeds."""
    path = out / "cases" / f"{case.name}.json"
    arguments: Record = {name: value for name, value in case._asdict().items() if name not in ("name", "runs")}
    arguments = arguments | {"delta": delta}
    record: Record = {"name": case.name, "arguments": arguments, "seconds": 0.0, "runs": []}
    if exists(path):
        record = read_case(path)
        if record["arguments"] != arguments:
            raise ValueError(f"{path} was made with other settings: choose another --out")
    found: dict[int, Outcome] = {}

    def done(task: Task, outcome: Outcome) -> tuple[()]:
        found[task.job["seed"]] = outcome
        while (ready := found.pop(len(record["runs"]), None)) is not None:
            record["runs"].append(ready["run"])
            record["seconds"] = round(record["seconds"] + ready["core_seconds"], 1)
            write_record(path, record | origin("cpu", command))
        return ()

    missing = range(len(record["runs"]), case.runs)
    job = {"does": f"{__name__}:certify", "case": case, "delta": delta, "of_data": isinstance(case, DataCase)}
    map_tasks(engine_for_calls(jobs, out), [Task(f"{case.name}, seed {s}", job | {"seed": s}) for s in missing], done)
    return record


def read_case(path: Path) -> Record:
    """The record of a case in a folder that may be anybody's."""
    record = read_object(path)
    with understood(path):
        if not isinstance(record["arguments"], dict) or not isinstance(record["name"], str):
            raise TypeError("it has no arguments or no name")
        if not (is_list_of(record["runs"], dict) and is_list_of([record["seconds"]], *NUMBER)):
            raise TypeError("it has no runs or no seconds")
    return record


def certify(job: Job, boss: Boss) -> Outcome:
    """One run of a case and its certificate."""
    started = time.process_time()
    seed, delta = job["seed"], job["delta"]
    run = (
        run_of_data(DataCase(*job["case"]), seed, delta) if job["of_data"] else run_of(Case(*job["case"]), seed, delta)
    )
    return {"state": DONE, "run": run, "core_seconds": time.process_time() - started}


def run_of(case: Case, seed: int, delta: float) -> Record:
    """One run of a case, with the terms of its bound."""
    found = certificate.certified_run(case.mdp, case.horizon, "sampled", seed, delta, **case.options)
    made, mdp = found.by_terms, found.mdp
    numbers = {key: round(float(getattr(made, key)), 6) for key in NUMBERS}
    terms = {key: round(float(value), 6) for key, value in made.measured._asdict().items()}
    return {"seed": seed, "mdp": mdp, "holds": bool(made.holds), **numbers, "terms": terms}


def run_of_data(case: DataCase, seed: int, delta: float) -> Record:
    """One run of a case, with whether its bounds hold."""
    found = certified(case, seed, delta)
    holds = found["upper"] >= found["optimal"] - 1e-9 and found["lower"] <= found["value"] + 1e-9
    return {"seed": seed, "holds": bool(holds)} | {key: round(value, 6) for key, value in found.items()}


def summarise(record: Record) -> Record:
    """Medians of a case and the share of its bounds that hold, with its 95% interval."""
    runs, held = record["runs"], sum(run["holds"] for run in record["runs"])
    _, low, high = wilson(held, len(runs))
    return {
        "name": record["name"],
        "mdp": runs[0]["mdp"],
        "options": record["arguments"]["options"],
        "delta": record["arguments"]["delta"],
        "share": [low, high],
        "below_optimal": sum(run["bound"] < run["optimal"] for run in runs),
        "terms": {key: float(np.median([run["terms"][key] for run in runs])) for key in runs[0]["terms"]},
        **_medians(record, NUMBERS),
    }


def _medians(record: Record, numbers: Sequence[str]) -> Record:
    runs = record["runs"]
    return {
        "runs": len(runs),
        "hold": sum(run["holds"] for run in runs),
        "below_trivial": sum(run["bound"] < run["trivial"] for run in runs),
        **{key: float(np.median([run[key] for run in runs])) for key in numbers},
        **{key: record[key] for key in ("seconds", "command", "commit", "device", "time")},
    }


def _shown(columns: dict[str, str]) -> Columns:
    """Columns from formats, in the names of a case's entries."""
    return {title: functools.partial(str.format_map, form) for title, form in columns.items()}


COLUMNS: Columns = {
    "MDP": lambda case: case["mdp"],
    "critic": lambda case: f"{case['options']['M']} pairs" if "M" in case["options"] else "preset",
    **_shown({"bound": "{bound:.3g}", "in truth": "{gap:.3g}", "1/(1-gamma)": "{trivial:.3g}", "V*": "{optimal:.3g}"}),
    **_shown({name: f"{{terms[{name}]:.2g}}" for name in certificate.Terms._fields}),
    **_shown({"below V*": "{below_optimal}/{runs}", "hold": "{hold}/{runs}"}),
}
DATA_COLUMNS: Columns = {
    "problem": lambda case: case["problem"],
    "declared": lambda case: "r in [0, 1]" + ("" if case["most"] is None else f", return up to {case['most']:g}"),
    **_shown({"transitions": "{transitions:,.0f}", "bound": "{bound:.3g}", "in truth": "{gap:.2g}"}),
    **_shown({"trivial": "{trivial:g}", "V* at most": "{upper:.3g}", "V*": "{optimal:.3g}"}),
    **_shown({"V at least": "{lower:.3g}", "below trivial": "{below_trivial}/{runs}", "hold": "{hold}/{runs}"}),
}


def table(summary: Record) -> str:
    """The summary as Markdown."""
    lines = table_of(COLUMNS, {"cells": summary["cases"]})
    made = [
        f"- {case['mdp']}: `{case['command']}`, {_seconds(case)}commit {str(case['commit'])[:7]}, {case['device']}, "
        f"{case['time'][:10]}"
        for case in summary["cases"]
    ]
    alone = [table_of(DATA_COLUMNS, {"cells": summary["from_data"]}), *SAID, ""] if summary["from_data"] else []
    said = [
        "V* - V of the returned policy is at most `bound` with probability 1 - delta over fresh episodes that compare",
        "policies; medians over runs with seeds from 0 on. V* is the largest gap there can be, since rewards are not",
        "negative: a bound below it says something.",
        "",
        *made,
        "",
    ]
    return "\n".join([lines, *said, *alone])


def _seconds(case: Record) -> str:
    return "" if case["seconds"] is None else f"{case['seconds']:.0f} core-seconds, "


def write_all(out: Path) -> Record:
    """Write summary.json and table.md from the cases that are kept; the summary."""
    order = [case.name for case in (*CASES, *SMOKE, *DATA_CASES)]
    records = list(map(read_case, sorted((out / "cases").glob("*.json"))))
    with understood(out / "cases"):
        records.sort(key=lambda record: order.index(record["name"]))
        of_data = [record for record in records if "problem" in record["arguments"]]
        summary = {
            "cases": [summarise(record) for record in records if record not in of_data],
            "from_data": [
                {"name": one["name"], **one["arguments"], **_medians(one, (*DATA_NUMBERS, "transitions"))}
                for one in of_data
            ],
        }
        text = table(summary)
    write_results(out, summary, "# Certificates\n\n" + text)
    return summary
