"""The sections of the page: one for each environment, which compares its runs, and one for each run."""

import base64
import json
import shlex
from typing import Any, NamedTuple

import numpy as np

from pcpg.algorithms import ALGORITHMS
from pcpg.envs.registry import UnknownEnvironment, spec
from pcpg.reports import visits
from pcpg.reports.figures import curve_chart, growth_chart, timing_chart, weights_chart
from pcpg.reports.read import RunData
from pcpg.reports.statistics import Curve, certify, iqm_curve, success_curve
from pcpg.reports.svg import Figure
from pcpg.reports.text import duration, in_python, number, with_config, with_flags, without_flags
from pcpg.reports.verdict import verdict

COLOURS = list(dict.fromkeys(algorithm.colour for algorithm in ALGORITHMS.values()))
LOOKS = {algo: COLOURS.index(algorithm.colour) for algo, algorithm in ALGORITHMS.items()}
"""The style of each algorithm by its number, as in the figures of the experiments."""


class Group(NamedTuple):
    """Runs on one environment, and the figures that compare them."""

    title: str
    summary: str
    figures: list[Figure]


def groups_of(runs: list[RunData]) -> list[Group]:
    """The runs by environment, in the order in which they were named."""
    keys = list(dict.fromkeys(run.env_key for run in runs))
    groups = []
    for place, key in enumerate(keys):
        members = [index for index, run in enumerate(runs) if run.env_key == key]
        groups.append(Group(key, _summary_of(runs[members[0]]), _comparisons(runs, members, f"env-{place + 1}")))
    return groups


def _summary_of(run: RunData) -> str:
    try:
        return spec(run.config["env"])[0].summary
    except UnknownEnvironment:
        return ""


def _comparisons(runs: list[RunData], members: list[int], name: str) -> list[Figure]:
    """The figures about one environment; a metric that no run has makes none."""
    figures: list[Figure] = []
    own = [runs[index] for index in members]
    looks = _looks([run.config["algo"] for run in own])

    def add(metric: str, curves: list[Curve | None], label: str, caption: str, limits: Any = None) -> None:
        shown = [(curve, look) for curve, look in zip(curves, looks, strict=True) if curve is not None]
        # A curve of returns that are all 0 says nothing; a share of 0 does.
        if shown and (limits is not None or any(np.any(curve.band.value) for curve, _ in shown)):
            there, styles = [curve for curve, _ in shown], [look for _, look in shown]
            figures.append(curve_chart(f"{name}-{metric}", there, styles, label, caption, limits=limits))

    bands = "Interquartile mean over seeds, with its 95% bootstrap interval"
    caption = f"{bands}. While PC-PG explores, the newest policy is a member of its cover and need not seek reward."
    add("return", [iqm_curve(run, "return") for run in own], "return of the newest policy", caption)
    threshold = own[0].solved_return
    if threshold is not None:
        solved = [success_curve(run, threshold) for run in own]
        caption = f"Share of seeds whose newest policy earns over {number(threshold)}, with its 95% Wilson interval."
        add("success", solved, "share of seeds solved", caption, (-0.04, 1.04))
    coverage = [iqm_curve(run, "coverage") for run in own]
    caption = f"Share of the grid cells visited so far in the episodes that measure each new policy. {bands}."
    add("coverage", coverage, "share of grid cells visited", caption, (0, 1.04))
    bonus = [iqm_curve(run, "train/bonus") if run.config["algo"] != "ppo" else None for run in own]
    caption = f"Mean exploration bonus of the state-action pairs seen in a round. {bands}."
    add("bonus", bonus, "mean bonus", caption)
    return figures


def _looks(algos: list[str]) -> list[int]:
    """The number of each run's style: an algorithm looks the same in all figures, unless it appears twice."""
    looks: list[int] = []
    for algo in algos:
        own = LOOKS.get(algo, 0)
        free = [look for look in range(len(algos) + len(LOOKS)) if look not in looks and look not in LOOKS.values()]
        looks.append(own if own not in looks else free[0])
    return looks


# runs


def section_of(run: RunData, label: str, index: int) -> dict[str, Any]:
    """Everything that the page says of one run."""
    name = f"run-{index + 1}"
    command = with_flags(run.config)
    config = json.dumps(run.config, indent=2)
    again = f"{run.path}-again"
    own = in_python(run.config, str(run.path), again)
    return {
        "id": name,
        "label": label,
        "env": run.env_key,
        "source": run.source,
        "notes": run.notes,
        "verdict": verdict(run),
        "facts": _facts(run),
        "seeds": [_seed_row(run, seed) for seed in run.seeds],
        "has_cover": bool(run.covers),
        "has_success": run.solved_return is not None,
        "has_cells": any(run.last(seed, "coverage") is not None for seed in run.seeds),
        "cover": _cover(run, name),
        "visits": _visits(run, name),
        "timing": [timing_chart(f"{name}-timing", run)] if run.timings else [],
        "times": _times(run),
        "config": config,
        "config_uri": "data:application/json;base64," + base64.b64encode(config.encode()).decode(),
        "command": own or with_config(run.config, str(run.path), again),
        "in_python": bool(own),
        "flags": shlex.join(command),
        "without_flags": ", ".join(f"{name} {value}" for name, value in without_flags(run.config).items()),
    }


def _facts(run: RunData) -> list[tuple[str, str]]:
    config, versions = run.config, run.versions
    first, last = run.seeds[0], run.seeds[-1]
    facts = [
        ("Folder", str(run.path)),
        ("Algorithm", run.algo),
        ("Environment", run.env_key),
        ("Seeds", str(first) if first == last else f"{first} to {last}"),
    ]
    if run.has_cover:
        options = ", ".join(f"{name} {value}" for name, value in config["feature_options"].items() if value is not None)
        facts.append(("Features", config["features"] + (f" ({options})" if options else "")))
    if run.source:
        facts.append(("Cover taken from", run.source))
    facts += [
        ("State", ("finished" if run.summary is not None else "not finished") + _failures(run)),
        ("Device", run.device or "unknown"),
        (
            "Versions",
            ", ".join(f"{name} {versions[name]}" for name in ("pcpg", "jax", "numpy", "python") if name in versions),
        ),
        ("Platform", versions.get("platform", "unknown")),
    ]
    return facts


def _failures(run: RunData) -> str:
    return f"; failed: {', '.join(f'seed {seed}' for seed in run.failed)}" if run.failed else ""


def _seed_row(run: RunData, seed: int) -> dict[str, Any]:
    final, cover = run.final_returns.get(seed), run.covers.get(seed)
    threshold = run.solved_return
    coverage = run.last(seed, "coverage")
    row = {
        "seed": seed,
        "steps": f"{run.last(seed, 'env_steps') or 0:,}",
        "final": "\u2013" if final is None else number(final),
        "solved": "\u2013" if final is None or threshold is None else "yes" if final > threshold else "no",
        "coverage": "\u2013" if coverage is None else f"{coverage:.0%}",
        "policies": "\u2013",
        "support": "\u2013",
        "log_det": "\u2013",
        "gap": "\u2013",
        "solver_gap": "\u2013",
    }
    if cover is not None:
        certificate = certify(cover, run.ridge_of(cover))
        row |= {
            "policies": str(len(cover.weights)),
            "support": str(np.count_nonzero(cover.weights)),
            "log_det": number(certificate.log_det),
            "gap": f"{certificate.gap:.1e}",
            "solver_gap": f"{run.last(seed, 'design_gap') or 0:.1e}",
        }
    return row


def _cover(run: RunData, name: str) -> dict[str, Any] | None:
    """The weights of the first seed's cover with their certificate."""
    if not run.covers:
        return None
    seed, cover = next(iter(run.covers.items()))
    certificate = certify(cover, run.ridge_of(cover))
    figures = [weights_chart(f"{name}-weights", certificate)]
    growth = growth_chart(f"{name}-growth", run)
    return {
        "seed": seed,
        "policies": len(cover.weights),
        "gap": f"{certificate.gap:.1e}",
        "log_det": number(certificate.log_det),
        "is_d_optimal": run.explore.get("weights") == "d-optimal",
        "figures": figures + ([growth] if growth else []),
    }


def _visits(run: RunData, name: str) -> dict[str, Any]:
    """Where the policies of the first seed went, and the weighted covers of all seeds."""
    seed = next(iter(run.covers), run.seeds[0])
    grid = visits.grid_of(run, seed)
    cover = run.covers.get(seed)
    found: dict[str, Any] = {
        "seed": seed,
        "figures": [],
        "tiles": [],
        "is_wide": False,
        "is_walled": False,
        "others": [],
    }
    if grid is None:
        if cover is not None:
            found["figures"] = [visits.projection_chart(f"{name}-plane", cover)]
        return found
    found |= {
        "is_wide": len(grid.cells.columns) >= visits.STACKED > len(grid.cells.rows),
        "is_walled": not grid.open.all(),
    }
    if cover is not None:
        what = f"the weighted cover of seed {seed}"
        found["figures"] = [
            visits.map_chart(f"{name}-map", visits.mixture_of(cover), grid, what),
            visits.projection_chart(f"{name}-plane", cover),
        ]
        found["tiles"] = visits.cover_tiles(cover, grid)
        for other in list(run.covers)[1:]:
            own = visits.grid_of(run, other)
            if own is not None:
                found["others"].append(visits.mixture_tile(run.covers[other], own, other))
        return found
    shares = visits.visits_of(run, seed)
    if shares is not None:
        what = f"all policies of seed {seed} together"
        found["figures"] = [visits.map_chart(f"{name}-map", shares, grid, what)]
        found["tiles"] = visits.baseline_tiles(run, seed, grid)
    return found


def _times(run: RunData) -> list[tuple[str, str]]:
    if not run.timings:
        return []
    speed = run.env_steps / run.seconds if run.seconds else 0.0
    return [
        ("Training", duration(run.seconds)),
        ("Compilation", duration(run.compile_seconds)),
        ("Rounds", str(len(run.timings))),
        ("Environment steps", f"{run.env_steps:,}"),
        ("Steps per second", f"{speed:,.0f}"),
    ]
