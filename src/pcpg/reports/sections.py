"""The sections of the page: one for each environment, which compares its runs, and one for each run."""

import base64
import json
from typing import NamedTuple

import numpy as np

from pcpg.algorithms import ALGORITHMS, settings_of
from pcpg.envs.registry import UnknownEnvironment, spec
from pcpg.reports import visits
from pcpg.reports.figures import Figure, Playing, Range, curve_chart, growth_chart, playing_figure, weights_chart
from pcpg.reports.read import RunData
from pcpg.reports.statistics import Curve, certify, iqm_curve, success_curve
from pcpg.reports.text import NONE, duration, number, repeat
from pcpg.reports.verdict import cells_of, first_met, verdict

COLOURS = list(dict.fromkeys(algorithm.colour for algorithm in ALGORITHMS.values()))
LOOKS = {algo: COLOURS.index(algorithm.colour) for algo, algorithm in ALGORITHMS.items()}
"""The style of each algorithm by its number, as in the figures of the experiments."""


VERSIONS = ("pcpg", "jax", "numpy", "python")


class Group(NamedTuple):
    """Runs on one environment, and the figures that compare them."""

    title: str
    summary: str
    figures: list[Figure]


def groups_of(runs: list[RunData]) -> list[Group]:
    """The runs by environment, in the order in which they were named."""
    groups: dict[str, list[RunData]] = {}
    for run in runs:
        groups.setdefault(run.env_key, []).append(run)
    return [
        Group(key, _summary_of(own[0]), _comparisons(own, f"env-{place}"))
        for place, (key, own) in enumerate(groups.items(), start=1)
    ]


def _summary_of(run: RunData) -> str:
    try:
        return spec(run.config["env"])[0].summary
    except UnknownEnvironment:
        return ""


def _comparisons(own: list[RunData], name: str) -> list[Figure]:
    """The figures about one environment; a metric that no run has makes none."""
    figures: list[Figure] = []
    looks = _looks([run.config["algo"] for run in own])

    def add(metric: str, curves: list[Curve | None], label: str, caption: str, limits: Range = None) -> None:
        there = [(curve, look) for curve, look in zip(curves, looks, strict=True) if curve is not None]
        if there:
            found, styles = map(list, zip(*there, strict=True))
            first = [first_met(curve.run) for curve in found] if metric == "return" else []
            figures.append(curve_chart(f"{name}-{metric}", found, styles, label, caption, limits=limits, met=first))

    bands = "Interquartile mean over seeds, with its 95% bootstrap interval"
    explorers = " During exploration the newest policy is a cover member and need not seek reward."
    caption = f"{bands}.{explorers if any(run.covers for run in own) else ''}"
    returns = [None if run.is_reward_free else iqm_curve(run, "return") for run in own]
    add("return", returns, "return of the newest policy", caption)
    threshold = own[0].solved_return
    if threshold is not None:
        solved = [success_curve(run, threshold) for run in own]
        caption = f"Share of seeds whose newest policy earns over {number(threshold)}, with its 95% Wilson interval."
        add("success", solved, "share of seeds solved", caption, (-0.04, 1.04))
    caption = f"Share of grid cells visited so far by the episodes that measure each new policy. {bands}."
    add("coverage", [iqm_curve(run, "coverage") for run in own], "share of grid cells visited", caption, (0, 1.04))
    caption = f"Mean exploration bonus of the state-action pairs seen in a round. {bands}."
    bonuses = [iqm_curve(run, "train/bonus") for run in own]  # 0 if there is no bonus
    add("bonus", [one if one and np.any(one.band.value) else None for one in bonuses], "mean bonus", caption)
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


def section_of(run: RunData, label: str, index: int, playing: Playing | None = None) -> dict[str, object]:
    """Everything that the page says of one run."""
    name, config = f"run-{index + 1}", json.dumps(run.config, indent=2)
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
        "has_cells": any(cells_of(run, seed) for seed in run.seeds),
        "playing": playing_figure(f"{name}-playing", playing, run.seeds[0]),
        "cover": _cover(run, name),
        "visits": _visits(run, name),
        "times": _times(run),
        "config": config,
        "config_uri": "data:application/json;base64," + base64.b64encode(config.encode()).decode(),
        "command": repeat(run),
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
    settings = settings_of(config)
    if settings is not None and settings.takes_features:
        options = ", ".join(f"{name} {value}" for name, value in config["feature_options"].items() if value is not None)
        facts.append(("Features", config["features"] + (f" ({options})" if options else "")))
    if run.source:
        facts.append(("Cover taken from", run.source))
    failed = f"; failed: {', '.join(f'seed {seed}' for seed in run.failed)}" if run.failed else ""
    facts += [
        ("State", ("finished" if run.summary is not None else "not finished") + failed),
        ("Device", run.device or "unknown"),
        ("Versions", ", ".join(f"{name} {versions[name]}" for name in VERSIONS if name in versions)),
        ("Platform", versions.get("platform", "unknown")),
    ]
    return facts


def _seed_row(run: RunData, seed: int) -> dict[str, str]:
    final, cover, threshold = run.final_returns.get(seed), run.covers.get(seed), run.solved_return
    row = dict.fromkeys(("final", "solved", "coverage", "policies", "support", "log_det", "gap", "solver_gap"), NONE)
    row |= {"seed": str(seed), "steps": f"{run.last(seed, 'env_steps') or 0:,}", "final": number(final)}
    if final is not None and threshold is not None:
        row["solved"] = "yes" if final > threshold else "no"
    if cells := cells_of(run, seed):
        row["coverage"] = f"{cells.seen} of {cells.possible}"
    if cover is not None:
        row |= {"policies": str(len(cover.weights)), "support": str(np.count_nonzero(cover.weights))}
        if certificate := certify(cover, run.ridge_of(cover)):
            row |= {"log_det": number(certificate.log_det), "gap": f"{certificate.gap:.1e}"}
            row["solver_gap"] = f"{run.last(seed, 'design_gap') or 0:.1e}"
    return row


def _cover(run: RunData, name: str) -> dict[str, object] | None:
    """The weights of the first seed's cover with their certificate."""
    seed, cover = next(iter(run.covers.items()), (0, None))
    certificate = None if cover is None else certify(cover, run.ridge_of(cover))
    if certificate is None:
        return None
    growth = growth_chart(f"{name}-growth", run)
    return {
        "seed": seed,
        "policies": len(certificate.weights),
        "gap": f"{certificate.gap:.1e}",
        "log_det": number(certificate.log_det),
        "is_d_optimal": run.explore.get("weights") == "d-optimal",
        "figures": [weights_chart(f"{name}-weights", certificate), *([growth] if growth else [])],
    }


def _visits(run: RunData, name: str) -> dict[str, object]:
    """Where the policies of the first seed went, and the weighted covers of all seeds."""
    seed = next(iter(run.covers), run.seeds[0])
    grid, cover = visits.grid_of(run, seed), run.covers.get(seed)
    found: dict[str, object] = {"seed": seed, "figures": [], "tiles": [], "others": []}
    shares = visits.visits_of(run, seed) if cover is None else visits.mixture_of(cover)
    if grid is None or shares is None:
        return found
    what = f"all policies of seed {seed} together" if cover is None else f"the weighted cover of seed {seed}"
    tiles = visits.baseline_tiles(run, seed, grid) if cover is None else visits.cover_tiles(cover, grid)
    others = [(other, run.covers[other], visits.grid_of(run, other)) for other in list(run.covers)[1:]]
    return found | {
        "is_wide": len(grid.cells.columns) >= visits.STACKED > len(grid.cells.rows),
        "is_walled": not grid.open.all(),
        "figures": [visits.map_chart(f"{name}-map", shares, grid, what)],
        "tiles": tiles,
        "others": [visits.mixture_tile(cover, own, other) for other, cover, own in others if own is not None],
    }


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
