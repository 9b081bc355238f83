"""Where policies went: visits by grid cell, as numbers and pictures; and, for any environment, a plane of features."""

import base64
import dataclasses
import io
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pcpg.envs.protocol import CellGrid
from pcpg.reports.read import CoverData, RunData, cover_data, known_env, members_of
from pcpg.reports.svg import STYLES, WIDTH, Figure, new_chart, to_svg
from pcpg.reports.text import number
from pcpg.runs.arrays import scalar
from pcpg.runs.disk import exists
from pcpg.runs.errors import DamagedFile, NotARun, understood
from pcpg.runs.folder import ENVIRONMENT, Notice, RunFolder

COLOURS = "viridis"  # lightness grows with the value: readable without colour
STACKED = 12
"""Columns from which on the panels of a picture lie one below the other."""


class Tile(NamedTuple):
    """A small picture with its title and a line below."""

    source: str  # data URI
    width: int
    height: int
    title: str
    detail: str
    alt: str


class Grid(NamedTuple):
    """The cells of an environment as one sheet: panels beside or below each other, signed rows from below."""

    cells: CellGrid
    open: np.ndarray  # bool [panels, rows, columns]

    @property
    def is_stacked(self) -> bool:
        return len(self.cells.columns) >= STACKED

    @property
    def is_upside_down(self) -> bool:
        """Rows of a signed quantity, as a velocity, have the least value at the bottom."""
        return self.cells.rows[0].startswith("-")

    def sheet(self, values: np.ndarray) -> np.ndarray:
        """Values [cells] as a picture; NaN where nothing can be visited."""
        panels = np.where(self.open, values.reshape(self.cells.shape), np.nan)
        if self.is_upside_down:
            panels = panels[:, ::-1]
        axis = 0 if self.is_stacked else 1
        gap = np.full((1, panels.shape[2]) if self.is_stacked else (panels.shape[1], 1), np.nan)
        parts = [part for panel in panels for part in (gap, panel)][1:]
        return np.concatenate(parts, axis=axis)


def grid_of(run: RunData, seed: int) -> Grid | None:
    """How the visits of a seed are laid out; None where the environment has no grid cells."""
    env = run.env
    if env is None or env.cells is None:
        return None
    return Grid(env.cells, env.reachable_cells(env.instance(seed)).reshape(env.cells.shape))


def cover_tiles(cover: CoverData, grid: Grid) -> list[Tile]:
    """The visits of each policy of a cover."""
    tiles = []
    for index, (cells, weight, mean) in enumerate(zip(cover.cells, cover.weights, cover.returns, strict=True)):
        title = f"policy {index}"
        tiles.append(_tile(_shares(cells), grid, title, f"weight {weight:.2f}, return {short(mean)}"))
    return tiles


def baseline_tiles(run: RunData, seed: int, grid: Grid, most: int = 8) -> list[Tile]:
    """The visits of the newest policy after some of the rounds of a run without a cover, evenly chosen."""
    rounds = [record for record in run.records.get(seed, []) if record.get("cells")]
    picked = np.unique(np.linspace(0, len(rounds) - 1, min(most, len(rounds))).round().astype(int)) if rounds else []
    tiles = []
    for index in picked:
        record = rounds[index]
        cells, mean = np.array(record["cells"]), record["return"]
        tiles.append(_tile(_shares(cells), grid, f"round {record['round']}", f"return {short(mean)}"))
    return tiles


def mixture_tile(cover: CoverData, grid: Grid, seed: int) -> Tile:
    """The visits of the weighted cover of a seed."""
    return _tile(mixture_of(cover), grid, f"seed {seed}", f"{len(cover.weights)} policies")


def mixture_of(cover: CoverData) -> np.ndarray:
    """Shares of the visits of the weighted cover, [cells]."""
    return cover.weights @ np.stack([_shares(cells) for cells in cover.cells])


def visits_of(run: RunData, seed: int) -> np.ndarray | None:
    """Shares of all visits of a run without a cover, [cells]."""
    rounds = [record["cells"] for record in run.records.get(seed, []) if record.get("cells")]
    return _shares(np.sum(rounds, axis=0)) if rounds else None


def map_chart(name: str, shares: np.ndarray, grid: Grid, what: str) -> Figure:
    """A large picture of visits with the names of rows and columns and a scale."""
    from matplotlib.colors import PowerNorm

    sheet = grid.sheet(shares)
    rows, columns = sheet.shape
    width = WIDTH
    height = min(4.2, max(1.5, (width - 1.2) * rows / columns + 0.7))
    figure, axis = new_chart(width, height)
    axis.grid(visible=False)
    axis.set_facecolor("none")
    top = max(float(np.nanmax(sheet)), 1e-12)
    image = axis.imshow(
        sheet, cmap=COLOURS, norm=PowerNorm(0.5, 0, top), interpolation="none", aspect="equal" if rows > 4 else "auto"
    )
    for spine in axis.spines.values():
        spine.set_visible(False)
    _label(axis, grid)
    bar = figure.colorbar(image, ax=axis, shrink=0.9, fraction=0.06)
    bar.set_label("share of visits")
    bar.outline.set_visible(False)
    return Figure(
        to_svg(figure, name, _said(shares, grid, what)),
        f"Visits of {what}, as shares of all visits (square-root scale).",
    )


def projection_chart(name: str, cover: CoverData, most: int = 6) -> Figure:
    """The covariances of the heaviest policies in the plane of feature space in which the policies differ most.

    A policy is drawn as the ellipse whose extent in every direction is the root mean square of its features there.
    """
    plane = plane_of(cover)
    figure, axis = new_chart(height=2.6)
    turn = np.linspace(0, 2 * np.pi, 121)
    circle = np.stack([np.cos(turn), np.sin(turn)])
    most = min(most, max(1, int(np.count_nonzero(cover.weights))))
    heavy = sorted(np.argsort(-cover.weights, kind="stable")[:most].tolist())
    shapes = [(f"policy {i}, weight {cover.weights[i]:.2f}", cover.sigmas[i]) for i in heavy]
    for index, (label, sigma) in enumerate(shapes):
        style = STYLES[index % len(STYLES)]
        x, y = _root(plane.T @ sigma @ plane) @ circle
        axis.plot(x, y, color=style.colour, ls=style.dashes, lw=1.2, label=label)
        tip = (index * 37) % 120
        axis.plot(x[tip], y[tip], marker=style.marker, ms=4, color=style.colour, ls="")
    axis.set_aspect("equal", adjustable="datalim")
    axis.locator_params(nbins=5)
    axis.set_xlabel("first direction")
    axis.set_ylabel("second direction")
    figure.legend(loc="outside right upper", fontsize=6.5)
    spans = [f"{label}: {number(np.sqrt(np.trace(plane.T @ sigma @ plane)))}" for label, sigma in shapes]
    alt = f"Ellipses of the feature covariances of the heaviest policies, with their extents: {'; '.join(spans)}."
    caption = (
        "Features of the policies with the most weight, in the two directions in which the cover's policies differ "
        "most. An ellipse extends in each direction by the root mean square of its policy's features there."
    )
    return Figure(to_svg(figure, name, alt), caption)


def plane_of(cover: CoverData) -> np.ndarray:
    """Two orthonormal directions [d, 2] along which the covariances differ most from the weighted one."""
    differences = cover.sigmas - np.tensordot(cover.weights, cover.sigmas, 1)
    spread = np.einsum("iab,ibc->ac", differences, differences)
    vectors = np.linalg.eigh(spread if spread.any() else cover.sigmas[0])[1][:, ::-1][:, :2]
    if vectors.shape[1] < 2:  # features of one dimension
        vectors = np.concatenate([vectors, np.zeros((len(vectors), 1))], axis=1)
    signs = np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(2)])
    return vectors * np.where(signs == 0, 1.0, signs)


def short(value: float) -> str:
    """A return in the little room below a picture."""
    return f"{value:.2f}".replace("-", "\u2212")


def _root(matrix: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(matrix)
    return vectors * np.sqrt(np.maximum(values, 0)) @ vectors.T


def _shares(cells: np.ndarray) -> np.ndarray:
    return cells / max(cells.sum(), 1)


def _tile(shares: np.ndarray, grid: Grid, title: str, detail: str) -> Tile:
    sheet = grid.sheet(shares)
    return Tile(_png(sheet), sheet.shape[1], sheet.shape[0], title, detail, _said(shares, grid, title))


def _said(shares: np.ndarray, grid: Grid, what: str) -> str:
    """What can be seen: how much was visited, and where most."""
    panels, rows, columns = grid.cells
    reachable = max(int(grid.open.sum()), 1)
    visited = int(np.count_nonzero(shares))
    panel, row, column = np.unravel_index(int(shares.argmax()), grid.cells.shape)
    where = f"row {rows[row]}, column {columns[column]}" + (f" of {panels[panel]}" if len(panels) > 1 else "")
    seen = f"{visited} of {reachable} grid cells visited, most ({shares.max():.0%}) at {where}"
    return f"Map of the visits of {what}: {seen}."


def _png(sheet: np.ndarray) -> str:
    """A pixel a cell; closed cells are transparent, so that the page shows through."""
    import matplotlib
    from PIL import Image

    shade = np.sqrt(sheet / max(float(np.nanmax(sheet)), 1e-12))
    pixels = (matplotlib.colormaps[COLOURS](np.nan_to_num(shade)) * 255).astype(np.uint8)
    pixels[..., 3] = np.where(np.isnan(sheet), 0, 255)
    pixels[np.isnan(sheet)] = 0
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def _label(axis: Any, grid: Grid) -> None:
    """Names of rows and columns where they fit, and of panels where there are several."""
    panels, rows, columns = grid.cells
    step_y, step_x = len(rows) + 1, len(columns) + 1
    row_names = rows[::-1] if grid.is_upside_down else rows
    shown_rows = _some(len(rows), 6)
    shown_columns = _some(len(columns), 12 if len(columns[0]) < 3 else 6)
    across = 1 if grid.is_stacked else len(panels)
    down = len(panels) if grid.is_stacked else 1
    axis.set_yticks(
        [panel * step_y + i for panel in range(down) for i in shown_rows],
        [row_names[i] for _ in range(down) for i in shown_rows],
    )
    axis.set_xticks(
        [panel * step_x + i for panel in range(across) for i in shown_columns],
        [columns[i] for _ in range(across) for i in shown_columns],
    )
    axis.tick_params(length=0)
    if len(panels) > 1:
        for index, name in enumerate(panels):
            x = (len(columns) - 1) / 2 + (0 if grid.is_stacked else index * step_x)
            y = -0.65 + (index * step_y if grid.is_stacked else 0)
            axis.text(x, y, name, ha="center", va="bottom", fontsize=7.5)
    else:
        axis.set_title(", ".join(panels), fontsize=7.5)


def _some(count: int, most: int) -> list[int]:
    """Places for at most so many labels."""
    return list(range(0, count, -(-count // most)))


# of a run folder, without its report


@dataclasses.dataclass(frozen=True)
class CoverVisits:
    """Visits of each member of one seed's cover, with its weight and mean return."""

    seed: int
    grid: CellGrid
    counts: np.ndarray  # [members, panels, rows, columns]
    weights: np.ndarray  # [members]
    returns: np.ndarray  # [members]

    @property
    def mixture(self) -> np.ndarray:
        """Shares of the visits of the weighted cover, [panels, rows, columns]."""
        return np.tensordot(self.weights, np.stack([_shares(counts) for counts in self.counts]), 1)

    @property
    def covered(self) -> float:
        """Share of all grid cells that some member visited; 0 where there are none."""
        return float(np.mean(self.counts.sum(axis=0) > 0)) if self.grid.size else 0.0


def read_visits(folder: RunFolder, seed: int, notice: Notice = lambda text: None) -> CoverVisits:
    """The visits of one seed's cover, from the member files of a run; an empty grid where no grid cells are counted.

    No outside environment is made. `notice` is told where the newest checkpoint cannot be used.
    """
    folder.check_entries()
    is_there = exists(folder.path / ENVIRONMENT) or folder.seal(ENVIRONMENT) is not None
    described = folder.read_json(ENVIRONMENT) if is_there else None
    env = known_env(folder.config, described)
    grid = (None if env is None else env.cells) or CellGrid((), (), ())
    checkpoint = folder.newest_checkpoint(notice)
    size_name = f"{seed}/.cover.size"
    if checkpoint is not None and size_name not in checkpoint.arrays:
        raise NotARun(f"{folder.path} holds no cover: {folder.config['algo']} keeps none")
    size = 0 if checkpoint is None else scalar(checkpoint.arrays[size_name])
    if checkpoint is None or size == 0:
        raise NotARun(f"{folder.path}: the cover of seed {seed} has no member: nothing was explored so far")
    explored = seed if env is None else env.dynamics_seed(seed)
    found = [folder.read_member(index, sha256) for index, sha256 in enumerate(checkpoint.state["members"])]
    members = members_of(found, explored)[:size]
    if len(members) < size:
        raise DamagedFile(folder.cover, f"has {len(members)} members of seed {explored}, the checkpoint says {size}")
    with understood(folder.cover):
        cover = cover_data(members, explored, checkpoint.arrays[f"{seed}/.cover.weights"][:size])
        cells = cover.cells.reshape(size, *grid.shape) if grid.size else np.zeros((size, 0, 0, 0))
    return CoverVisits(seed, grid, cells, cover.weights, cover.returns)


def draw_visits(visits: CoverVisits, path: Path, max_policies: int = 11) -> None:
    """A picture of the visits of the heaviest members and of the weighted cover, written to `path`."""
    if not visits.grid.size:
        raise NotARun("the environment has no grid cells to draw; `pcpg report` draws its features instead")
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    order = sorted(np.argsort(-visits.weights, kind="stable")[:max_policies].tolist())
    pictures = [(f"policy {i}\nweight {visits.weights[i]:.2f}", visits.counts[i]) for i in order]
    pictures.append(("weighted cover", visits.mixture))
    panels, rows, columns = visits.grid.shape
    width = max(1.2, 0.22 * columns)
    height = max(0.5, 0.22 * rows)
    figure, axes = plt.subplots(
        len(pictures),
        panels,
        figsize=(1.6 + panels * (width + 0.2), 0.7 + len(pictures) * (height + 0.18)),
        squeeze=False,
        layout="constrained",
    )
    for line, (name, counts) in zip(axes, pictures, strict=True):
        share = counts / max(counts.sum(), 1e-12)
        for panel, axis in enumerate(line):
            axis.imshow(np.sqrt(share[panel]), cmap="viridis", vmin=0, vmax=np.sqrt(share.max()), aspect="auto")
            axis.set_xticks([])
            axis.set_yticks(range(rows) if rows <= 4 and panel == 0 else [])
            if rows <= 4 and panel == 0:
                axis.set_yticklabels(visits.grid.rows, fontsize=6)
        line[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8, labelpad=30 if rows <= 4 else 4)
    for panel, name in enumerate(visits.grid.panels):
        axes[0][panel].set_title(name, fontsize=9)
    figure.suptitle(f"Visits of the cover, seed {visits.seed} (square-root scale)", fontsize=9)
    figure.savefig(path, dpi=160)
    plt.close(figure)
