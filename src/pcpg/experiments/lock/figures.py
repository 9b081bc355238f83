"""The figures of the lock: traces of RND and of the cover, success against steps, growth with H, frontier."""

from pathlib import Path
from typing import Any

import numpy as np

from pcpg.experiments.lock.analysis import steps_to_solve
from pcpg.experiments.lock.sweep import ALGOS, SUCCESS
from pcpg.reports.figures import new_figure, save
from pcpg.reports.statistics import fit_power_law, wilson

Record = dict[str, Any]

NAMES = {"pcpg": "PC-PG", "ppo-rnd": "PPO+RND", "ppo": "PPO"}
STYLES = {"pcpg": ("#1b6ca8", "-"), "ppo-rnd": ("#d1495b", "--"), "ppo": ("#5f6b6d", ":")}


def draw_all(records: list[Record], out: Path) -> list[Path]:
    """Every figure for which there are records; the files written."""
    paths = []
    for draw, name in (
        (success_against_steps, "success"),
        (growth_with_horizon, "growth"),
        (cover_traces, "cover"),
        (rnd_traces, "rnd"),
        (frontier, "frontier"),
    ):
        figure = draw(records)
        if figure is not None:
            paths += save(figure, out / name)
    return paths


def success_against_steps(records: list[Record]) -> Any:
    """Share of the seeds whose newest policy solves the task, with Wilson intervals, a panel a horizon."""
    horizons = sorted({record["horizon"] for record in records})
    figure, axes = new_figure(1, len(horizons), width=2.6 * len(horizons), height=2.4, sharey=True)
    for axis, horizon in zip(axes[0], horizons, strict=True):
        for algo in ALGOS:
            for record in records:
                if (record["algo"], record["horizon"]) == (algo, horizon):
                    _success_curve(axis, record)
        axis.set_xscale("log")
        axis.set_xlim(left=2e4)
        axis.set_title(f"H = {horizon}")
        axis.set_xlabel("environment steps a seed")
    axes[0][0].set_ylabel("share of seeds solved")
    axes[0][0].set_ylim(-0.03, 1.03)
    axes[0][0].legend(frameon=False, fontsize=7, loc="center left")
    return figure


def _success_curve(axis: Any, record: Record) -> None:
    rows = list(record["history"].values())
    grid = np.unique(np.concatenate([[row[0] for row in seed] for seed in rows]))
    solved = np.stack([_value_at(seed, grid) > SUCCESS for seed in rows])
    shares = [wilson(int(count), len(rows)) for count in solved.sum(axis=0)]
    colour, style = STYLES[record["algo"]]
    axis.step(grid, [s.value for s in shares], where="post", color=colour, ls=style, label=NAMES[record["algo"]])
    axis.fill_between(
        grid, [s.low for s in shares], [s.high for s in shares], step="post", color=colour, alpha=0.15, lw=0
    )


def _value_at(rows: list[list[float]], grid: np.ndarray) -> np.ndarray:
    steps, values = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    index = np.searchsorted(steps, grid, side="right") - 1
    return np.where(index < 0, -np.inf, values[np.maximum(index, 0)])


def growth_with_horizon(records: list[Record]) -> Any:
    """Steps until a seed stays solved against H, with a power law, beside the 10^H of chance."""
    points = steps_to_solve(records)
    horizons = sorted({h for h, _ in points})
    if len(horizons) < 2:
        return None
    h, steps = np.array(points, float).T
    law = fit_power_law(h, steps)
    figure, axes = new_figure(1, 1, width=3.6, height=2.8)
    axis = axes[0][0]
    axis.scatter(h, steps, s=8, color=STYLES["pcpg"][0], alpha=0.5, label="PC-PG, a seed")
    line = np.linspace(horizons[0], horizons[-1], 50)
    label = f"$H^{{{law.exponent:.1f}}}$  [{law.low:.1f}, {law.high:.1f}]"
    axis.plot(line, law.factor * line**law.exponent, color="black", lw=1, label=label)
    axis.plot(line, 10**line * line, color=STYLES["ppo"][0], ls=":", label="chance, $10^H$ episodes")
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_ylim(steps.min() / 3, steps.max() * 30)
    axis.set_xticks(horizons, [str(value) for value in horizons], minor=False)
    axis.minorticks_off()
    axis.set_xlabel("H")
    axis.set_ylabel("environment steps until solved")
    axis.legend(frameon=False, fontsize=7, loc="upper left")
    return figure


def cover_traces(records: list[Record]) -> Any:
    """Visits of the heaviest policies of one cover and of the weighted cover: locks x states x levels."""
    record = max((r for r in records if "cover" in r), key=lambda r: (r["horizon"] == 15, r["horizon"]), default=None)
    if record is None:
        return None
    counts, weights = np.array(record["cover"]["counts"], float), np.array(record["cover"]["weights"])
    heavy = sorted(i for i in np.argsort(-weights, kind="stable")[:6].tolist() if weights[i] >= 0.005)
    shares = counts / np.maximum(counts.sum(axis=(1, 2, 3), keepdims=True), 1)
    pictures = [(f"policy {i}\nweight {weights[i]:.2f}", shares[i]) for i in heavy]
    pictures.append(("weighted\ncover", np.tensordot(weights, shares, 1)))
    return _traces(pictures, f"PC-PG's cover, H = {record['horizon']}, seed {record['seeds'][0]}")


def rnd_traces(records: list[Record]) -> Any:
    """Visits of RND's policy during training, some epochs of one seed that ended in the lesser lock if there is one."""
    record = max(
        (r for r in records if r["algo"] == "ppo-rnd" and "traces" in r), key=lambda r: r["horizon"], default=None
    )
    if record is None:
        return None
    traces = record["traces"]
    pictures = [
        (f"epoch {epoch}", np.array(counts, float) / max(np.sum(counts), 1))
        for epoch, counts in zip(traces["epochs"], traces["counts"], strict=True)
    ]
    return _traces(pictures, f"PPO+RND during training, H = {record['horizon']}, seed {traces['seed']}")


def _traces(pictures: list[tuple[str, np.ndarray]], title: str) -> Any:
    figure, axes = new_figure(len(pictures), 2, width=6.4, height=0.62 * len(pictures) + 0.6)
    for line, (name, share) in zip(axes, pictures, strict=True):
        for lock, axis in enumerate(line):
            axis.imshow(np.sqrt(share[lock]), cmap="viridis", vmin=0, vmax=np.sqrt(share.max()), aspect="auto")
            axis.set_xticks([])
            axis.set_yticks(range(3), ["good 1", "good 2", "dead"] if lock == 0 else [""] * 3, fontsize=5)
            axis.tick_params(length=0)
        line[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=7, labelpad=24)
    for lock in (0, 1):
        axes[0][lock].set_title(f"lock {lock}", fontsize=8)
        axes[-1][lock].set_xlabel(f"level 1 to {pictures[0][1].shape[-1]}", fontsize=7)
    figure.suptitle(f"{title} (colour: square root of the share of visits)", fontsize=8)
    return figure


def frontier(records: list[Record]) -> Any:
    """Deepest good level that PC-PG's cover has reached, in the lock it reached it later, against steps."""
    chosen = [record for record in records if record["algo"] == "pcpg" and record["horizon"] >= 10]
    if not chosen:
        return None
    chosen.sort(key=lambda record: record["horizon"])
    figure, axes = new_figure(1, len(chosen), width=2.6 * len(chosen), height=2.4)
    for axis, record in zip(axes[0], chosen, strict=True):
        for rows in record["history"].values():
            steps = [row[0] for row in rows]
            axis.step(steps, [min(row[2:4]) for row in rows], where="post", color=STYLES["pcpg"][0], lw=0.7, alpha=0.6)
            axis.step(steps, [max(row[2:4]) for row in rows], where="post", color="#e09f3e", lw=0.7, alpha=0.6, ls="--")
        axis.axhline(record["horizon"], color="black", lw=0.6, ls=":")
        axis.set_title(f"H = {record['horizon']}")
        axis.set_xlabel("environment steps")
    axes[0][0].set_ylabel("deepest good level")
    handles = [
        axes[0][0].plot([], [], color=STYLES["pcpg"][0], label="slower lock")[0],
        axes[0][0].plot([], [], color="#e09f3e", ls="--", label="faster lock")[0],
    ]
    axes[0][0].legend(handles=handles, frameon=False, fontsize=7, loc="lower right")
    return figure
