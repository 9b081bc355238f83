"""The pictures of the documentation: `python docs/pictures.py [explore | algorithm]`, about two minutes of one core.

`explore`, the first picture of README: where PC-PG and PPO have been on MountainCarContinuous, round by round.

`algorithm`, of the page about the algorithm: PC-PG explores the Deep Sea of size 20, reward-free and with one seed.
Its features are the one-hot cells, so that both the bonus and the visits can be drawn over the grid.
"""

import io
import sys
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

import pcpg
from pcpg.cover.bonus import whitening
from pcpg.play import write_video
from pcpg.reports.read import RunData, read_run
from pcpg.reports.text import steps_text
from pcpg.reports.visits import CoverVisits, Grid, grid_of, read_visits

matplotlib.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent / "pictures"
SIZE = 20
SHOWN = (0, 2, 4, 6)
"""Policies of the cover that have a panel."""
RIDGE = 1e-6
CONFIG: pcpg.Settings = {
    "ppo": {"num_updates": 20, "num_episodes": 256},
    "explore": {"max_policies": 12, "patience": 12, "ridge": RIDGE},
    "exploit": {"num_rounds": 0},
}
GOAL = (0.45 + 1.2) / (0.6 + 1.2)
"""Where the goal lies between the least position and the largest."""
STYLE: Any = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "savefig.dpi": 160}


def main() -> None:
    """Draw what is asked for, or everything."""
    HERE.mkdir(exist_ok=True)
    for name in sys.argv[1:] or DRAWN:
        DRAWN[name]()


def draw_explore() -> None:
    """Film where both have been after each round: a panel each, the position to the right and the velocity upwards."""
    explored = read_run(pcpg.train("MountainCarContinuous-v0", "pcpg-bonus").path)
    budget = explored.steps_per_seed
    plain = read_run(pcpg.train("MountainCarContinuous-v0", "ppo", total_steps=budget).path)
    sides = (("PPO", visited(plain)), ("pcpg", visited(explored)))
    frames = []
    with plt.rc_context(STYLE | {"savefig.dpi": 100}):
        for _, until, _ in sides[1][1]:
            figure, axes = plt.subplots(1, 2, figsize=(6.4, 2.9), layout="constrained")
            for axis, (name, rows) in zip(axes, sides, strict=True):
                draw_reach(axis, name, grid_of(explored, 0), [row for row in rows if row[1] <= until] or rows[:1])
            frames.append(pixels(figure))
    write_video([*frames, frames[-1], frames[-1]], HERE / "explore.gif", fps=1)


def visited(run: RunData) -> list[tuple[np.ndarray, int, float]]:
    """After each round that counts its visits: the visits by cell, the steps so far and the policy's return."""
    rows = run.records[0]
    if run.covers:
        cells = run.covers[0].cells
        return [(cells[row["policies"] - 1], row["env_steps"], row["return"]) for row in rows if row.get("policies")]
    return [(np.array(row["cells"]), row["env_steps"], row["return"]) for row in rows if row.get("cells")]


def draw_reach(axis: Axes, name: str, grid: Grid | None, rows: list[tuple[np.ndarray, int, float]]) -> None:
    """The cells that some policy visited so far, and the goal."""
    assert grid is not None, "the car's plane has cells"
    sheet = grid.sheet(np.sum([cells / cells.sum() for cells, _, _ in rows], axis=0))
    _, steps, earned = rows[-1]
    share = np.mean(sheet > 0)
    axis.imshow(np.where(sheet > 0, np.sqrt(sheet), np.nan), cmap="viridis", vmin=0, vmax=0.15, aspect="auto")
    axis.axvline(sheet.shape[1] * GOAL - 0.5, color="#d1495b", lw=1.5)
    axis.text(sheet.shape[1] * GOAL - 0.9, 0.2, "goal", color="#d1495b", ha="right", va="top")
    axis.set(
        title=f"{name}: {share:.0%} visited, return {round(earned) + 0}", xticks=[], yticks=[], facecolor="#f2f2f0"
    )
    axis.set(xlabel=f"position, after {steps_text(steps)} steps", ylabel="velocity")
    axis.spines[:].set_visible(True)


def pixels(figure: Figure) -> np.ndarray:
    """The figure as an image."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="raw")
    plt.close(figure)
    width, height = (int(side * 100) for side in figure.get_size_inches())
    return np.frombuffer(buffer.getvalue(), np.uint8).reshape(height, width, 4)[..., :3]


def draw_algorithm() -> None:
    """Train on the Deep Sea, then draw."""
    run = pcpg.train("DeepSea-v0", size=SIZE, config=CONFIG)
    visits = read_visits(run.folder, run.config.seed)
    with plt.rc_context(STYLE):
        draw_growth(visits)
        draw_bonus(run)
        draw_weights(run)


def draw_growth(visits: CoverVisits) -> None:
    """Where some policies of the cover went, and below each where the cover has been with it."""
    counts = visits.counts[:, 0]
    figure, axes = plt.subplots(2, len(SHOWN), figsize=(6.8, 3.8), layout="constrained")
    for index, (above, below) in zip(SHOWN, axes.T, strict=True):
        draw_share(above, counts[index] / counts[index].sum())
        above.set_title(f"policy {index}")
        until = counts[: index + 1].sum(axis=0)
        draw_share(below, until / until.sum())
        below.set_title(f"cover of {index + 1}: {np.mean(until[on_board()] > 0):.0%}")
    save(figure, "growth")


def draw_share(axis: Axes, share: np.ndarray) -> None:
    """Shares of the visits over the grid; white where nobody was, grey where nobody can be."""
    axis.imshow(np.where(on_board(), np.nan, 1.0), cmap="Greys", vmin=0, vmax=3)
    axis.imshow(np.where(share > 0, np.sqrt(share), np.nan), cmap="viridis", vmin=0, vmax=np.sqrt(1 / SIZE))
    axis.set(xticks=[], yticks=[])


def draw_bonus(run: pcpg.Run) -> None:
    """The bonus of each cell, as the cover grows, on one scale."""
    sigmas = run.cover.used
    sizes = (1, 4, len(sigmas))
    figure, axes = plt.subplots(1, 3, figsize=(6.8, 2.6), layout="constrained")
    for axis, size in zip(axes, sizes, strict=True):
        whiten = whitening(sigmas[:size].sum(axis=0), RIDGE)
        bonus = np.sqrt(np.sum(whiten**2, axis=1)).reshape(SIZE, SIZE)  # phi of a cell is its unit vector
        scale = LogNorm(0.5, RIDGE**-0.5)  # from well known to never seen
        axis.imshow(np.where(on_board(), bonus, np.nan), cmap="magma", norm=scale)
        axis.set(title=f"cover of {size} polic{'y' if size == 1 else 'ies'}", xticks=[], yticks=[])
    figure.colorbar(axes[-1].images[0], ax=axes, label="bonus", shrink=0.8)
    save(figure, "bonus")


def draw_weights(run: pcpg.Run) -> None:
    """The D-optimal weights of the policies with what each could still add, and the growth of the cover."""
    design, sigmas = run.design, run.cover.used
    mixture = np.tensordot(design.weights, sigmas, 1) + RIDGE * np.eye(sigmas.shape[1])
    gains = np.einsum("ij,nji->n", np.linalg.inv(mixture), sigmas)
    largest = [pcpg.d_optimal(sigmas[: size + 1], ridge=RIDGE).log_det for size in range(len(sigmas))]
    figure, (left, right) = plt.subplots(1, 2, figsize=(6.8, 2.7), layout="constrained")
    left.bar(range(len(sigmas)), design.weights, color="#4477aa")
    left.set(xlabel="policy", xticks=range(0, len(sigmas), 2), ylabel="weight", title="D-optimal weights")
    beside = left.twinx()
    beside.plot(gains, "o", color="#222222", markersize=3)
    beside.set(ylabel="gradient (dots)", ylim=(0, 1.15 * gains.max()))
    beside.spines["right"].set_visible(True)
    right.plot(largest, "o-", color="#4477aa", markersize=3)
    right.set(
        xlabel="newest policy", xticks=range(0, len(sigmas), 2), ylabel="largest log det", title="Growth of the cover"
    )
    save(figure, "weights")


def on_board() -> np.ndarray:
    """The cells that can be reached: a column for each step taken to the right."""
    return np.tri(SIZE, dtype=bool)


def save(figure: Figure, name: str) -> None:
    """Write a picture without a date, so that the same run gives the same file."""
    figure.savefig(HERE / f"{name}.png", metadata={"Software": None})
    plt.close(figure)


DRAWN = {"explore": draw_explore, "algorithm": draw_algorithm}

if __name__ == "__main__":
    main()
