"""Runs on one environment in the same figures."""

from typing import Any, NamedTuple

import numpy as np

from pcpg.envs.registry import UnknownEnvironment, spec
from pcpg.reports.charts import curve_chart
from pcpg.reports.curves import Curve, iqm_curve, success_curve
from pcpg.reports.reading import RunData
from pcpg.reports.svg import Figure
from pcpg.reports.words import number

LOOKS = {"pcpg": 0, "pcpg-bonus": 0, "ppo-rnd": 1, "ppo": 2}
"""Numbers of the styles of the algorithms, as in the figures of the experiments."""


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
        # Where no reward was ever seen a picture of it says nothing; a share of 0 does.
        if shown and (limits is not None or any(np.any(curve.band.value) for curve, _ in shown)):
            there, styles = [curve for curve, _ in shown], [look for _, look in shown]
            figures.append(curve_chart(f"{name}-{metric}", there, styles, label, caption, limits=limits))

    bands = "Interquartile mean over seeds, with its 95% bootstrap interval"
    add(
        "return",
        [iqm_curve(run, "return") for run in own],
        "return of the newest policy",
        f"{bands}. While PC-PG explores, the newest policy is one of its cover and need not seek the reward.",
    )
    threshold = own[0].solved_return
    if threshold is not None:
        add(
            "success",
            [success_curve(run, threshold) for run in own],
            "share of seeds solved",
            f"Share of seeds whose newest policy earns more than {number(threshold)}, with its Wilson 95% interval.",
            (-0.04, 1.04),
        )
    coverage = "Share of the cells that some policy has visited so far, from the episodes played to measure it."
    add(
        "coverage",
        [iqm_curve(run, "coverage") for run in own],
        "share of cells visited",
        f"{coverage} {bands}.",
        (0, 1.04),
    )
    add(
        "bonus",
        [iqm_curve(run, "train/bonus") if run.config["algo"] != "ppo" else None for run in own],
        "mean bonus",
        f"Mean exploration bonus of the pairs seen in a round. {bands}.",
    )
    return figures


def _looks(algos: list[str]) -> list[int]:
    """The number of a style for each run: an algorithm looks the same in all figures, unless it is there twice."""
    looks: list[int] = []
    for algo in algos:
        own = LOOKS.get(algo, 0)
        free = [look for look in range(len(algos) + len(LOOKS)) if look not in looks and look not in LOOKS.values()]
        looks.append(own if own not in looks else free[0])
    return looks
