"""The figures of the lock: success against steps, growth with H, traces of the cover and of RND, frontier."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pcpg.reports.figures import new_figure
from pcpg.reports.statistics import value_at, wilson
from pcpg_lab.claims.records import Record, look_of, short_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def success_against_steps(records: list[Record], success: float) -> "Figure":
    """Share of the seeds whose newest policy has a return above `success`, with Wilson intervals, by horizon."""
    horizons = sorted({record["horizon"] for record in records})
    figure, axes = new_figure(1, len(horizons), width=2.6 * len(horizons), height=2.4, sharey=True)
    for axis, horizon in zip(axes[0], horizons, strict=True):
        for record in (record for record in records if record["horizon"] == horizon):
            _success_curve(axis, record, success)
        axis.set_xscale("log")
        axis.set_xlim(left=2e4)
        axis.set(title=f"H = {horizon}", xlabel="environment steps per seed")
    axes[0][0].set(ylabel="share of seeds solved", ylim=(-0.03, 1.03))
    axes[0][0].legend(frameon=False, fontsize=7, loc="center left")
    return figure


def _success_curve(axis: "Axes", record: Record, success: float) -> None:
    rows, look = list(record["history"].values()), look_of(record["algo"])
    grid = np.unique(np.concatenate([[row[0] for row in seed] for seed in rows]))
    solved = np.stack([value_at(seed, grid, 1) > success for seed in rows])
    shares = [wilson(int(count), len(rows)) for count in solved.sum(axis=0)]
    low, high = [s.low for s in shares], [s.high for s in shares]
    axis.step(
        grid,
        [s.value for s in shares],
        where="post",
        color=look.colour,
        ls=look.line,
        label=short_label(record["algo"]),
    )
    axis.fill_between(grid, low, high, step="post", color=look.colour, alpha=0.15, lw=0)


def growth_with_horizon(points: list[tuple[int, int]]) -> "Figure":
    """Steps until a seed stays solved against H, with a power law, beside the 10^H of chance."""
    horizons = sorted({h for h, _ in points})
    h, steps = np.array(points, float).T
    law = fit_power_law(h, steps)
    figure, axes = new_figure(1, 1, width=3.6, height=2.8)
    axis = axes[0][0]
    axis.scatter(h, steps, s=8, color=look_of("pcpg").colour, alpha=0.5, label="PC-PG, one seed")
    line = np.linspace(horizons[0], horizons[-1], 50)
    label = f"$H^{{{law.exponent:.1f}}}$  [{law.low:.1f}, {law.high:.1f}]"
    axis.plot(line, law.factor * line**law.exponent, color="black", lw=1, label=label)
    axis.plot(line, 10**line * line, color=look_of("ppo").colour, ls=":", label="chance, $10^H$ episodes")
    axis.set(xscale="log", yscale="log", ylim=(steps.min() / 3, steps.max() * 30))
    axis.set_xticks(horizons, [str(value) for value in horizons], minor=False)
    axis.minorticks_off()
    axis.set(xlabel="H", ylabel="environment steps until solved")
    axis.legend(frameon=False, fontsize=7, loc="upper left")
    return figure


def cover_traces(record: Record) -> "Figure":
    """Visits of the heaviest policies of one cover and of the weighted cover: locks x states x levels."""
    counts, weights = np.array(record["cover"]["counts"], float), np.array(record["cover"]["weights"])
    heavy = sorted(i for i in np.argsort(-weights, kind="stable")[:6].tolist() if weights[i] >= 0.005)
    shares = counts / np.maximum(counts.sum(axis=(1, 2, 3), keepdims=True), 1)
    pictures = [(f"policy {i}\nweight {weights[i]:.2f}", shares[i]) for i in heavy]
    pictures.append(("weighted\ncover", np.tensordot(weights, shares, 1)))
    return _traces(pictures, f"PC-PG's cover, H = {record['horizon']}, seed {record['seeds'][0]}")


def rnd_traces(record: Record) -> "Figure":
    """Visits of RND's policy in some rounds of one seed's training, one that failed if there is one."""
    traces = record["traces"]
    pictures = [
        (f"round {number}", np.array(counts, float) / max(np.sum(counts), 1))
        for number, counts in zip(traces["epochs"], traces["counts"], strict=True)
    ]
    return _traces(pictures, f"PPO+RND during training, H = {record['horizon']}, seed {traces['seed']}")


def _traces(pictures: list[tuple[str, np.ndarray]], title: str) -> "Figure":
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


def frontier(records: list[Record]) -> "Figure":
    """Deepest good level that PC-PG's cover has reached in either lock, against steps, a panel for each record."""
    locks = {min: ("slower lock", look_of("pcpg").colour, "-"), max: ("faster lock", "#e09f3e", "--")}
    figure, axes = new_figure(1, len(records), width=2.6 * len(records), height=2.4)
    for axis, record in zip(axes[0], records, strict=True):
        for rows in record["history"].values():
            steps = [row[0] for row in rows]
            for pick, (_, colour, line) in locks.items():
                axis.step(
                    steps, [pick(row[2:4]) for row in rows], where="post", color=colour, lw=0.7, alpha=0.6, ls=line
                )
        axis.axhline(record["horizon"], color="black", lw=0.6, ls=":")
        axis.set(title=f"H = {record['horizon']}", xlabel="environment steps")
    axes[0][0].set_ylabel("deepest good level")
    handles = [axes[0][0].plot([], [], color=colour, ls=line, label=name)[0] for name, colour, line in locks.values()]
    axes[0][0].legend(handles=handles, frameon=False, fontsize=7, loc="lower right")
    return figure


class PowerLaw(NamedTuple):
    """y = factor * x ** exponent, with a 95% interval of the exponent by the bootstrap over points."""

    factor: float
    exponent: float
    low: float
    high: float


def fit_power_law(x: np.ndarray, y: np.ndarray, *, samples: int = 2000, seed: int = 0) -> PowerLaw:
    """Least squares in the logarithms of positive points."""
    log_x, log_y = np.log(np.asarray(x, float)), np.log(np.asarray(y, float))
    if len(np.unique(log_x)) < 2:
        raise ValueError("a power law needs points at two places or more, got one")
    exponent, intercept = np.polyfit(log_x, log_y, 1)
    rng = np.random.default_rng(seed)
    exponents = []
    while len(exponents) < samples:
        pick = rng.integers(0, len(log_x), len(log_x))
        if len(np.unique(log_x[pick])) > 1:
            exponents.append(np.polyfit(log_x[pick], log_y[pick], 1)[0])
    low, high = np.quantile(exponents, [0.025, 0.975])
    return PowerLaw(float(np.exp(intercept)), float(exponent), float(low), float(high))
