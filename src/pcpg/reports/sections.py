"""What the page says of each run: facts, seeds, the cover, visits, times, settings and how to repeat it."""

import base64
import json
import shlex
from typing import Any

import numpy as np

from pcpg.reports import pictures
from pcpg.reports.certificate import certify
from pcpg.reports.charts import growth_chart, timing_chart, weights_chart
from pcpg.reports.reading import RunData
from pcpg.reports.repeat import in_python, with_config, with_flags, without_flags
from pcpg.reports.words import duration, number


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
        ("State", "finished" if run.summary is not None else "not finished"),
        ("Device", run.device or "unknown"),
        (
            "Versions",
            ", ".join(f"{name} {versions[name]}" for name in ("pcpg", "jax", "numpy", "python") if name in versions),
        ),
        ("Platform", versions.get("platform", "unknown")),
    ]
    return facts


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
        certificate = certify(cover, run.ridge)
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
    certificate = certify(cover, run.ridge)
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
    grid = pictures.grid_of(run, seed)
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
            found["figures"] = [pictures.projection_chart(f"{name}-plane", cover)]
        return found
    found |= {
        "is_wide": len(grid.cells.columns) >= pictures.STACKED > len(grid.cells.rows),
        "is_walled": not grid.open.all(),
    }
    if cover is not None:
        what = f"the weighted cover of seed {seed}"
        found["figures"] = [
            pictures.map_chart(f"{name}-map", pictures.mixture_of(cover), grid, what),
            pictures.projection_chart(f"{name}-plane", cover),
        ]
        found["tiles"] = pictures.cover_tiles(cover, grid)
        for other in list(run.covers)[1:]:
            own = pictures.grid_of(run, other)
            if own is not None:
                found["others"].append(pictures.mixture_tile(run.covers[other], own, other))
        return found
    shares = pictures.visits_of(run, seed)
    if shares is not None:
        what = f"all policies of seed {seed} together"
        found["figures"] = [pictures.map_chart(f"{name}-map", shares, grid, what)]
        found["tiles"] = pictures.baseline_tiles(run, seed, grid)
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
        ("Steps a second", f"{speed:,.0f}"),
    ]
