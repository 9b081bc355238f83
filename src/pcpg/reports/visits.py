"""Visits of policies by grid cell, as numbers and pictures."""

import base64
import dataclasses
import io
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pcpg.algorithms import Shown, settings_of
from pcpg.envs.protocol import CellGrid
from pcpg.reports.figures import WIDTH, Figure, new_chart, new_figure, to_svg, write_figure
from pcpg.reports.read import RunData, cover_of, known_env
from pcpg.reports.text import number
from pcpg.runs.disk import exists
from pcpg.runs.errors import NotARun, understood
from pcpg.runs.folder import ENVIRONMENT, Notice, RunFolder

COLOURS = "viridis"  # lightness grows with the value: readable without colour
STACKED = 12
"""From this number of columns on, panels are stacked vertically."""


class Tile(NamedTuple):
    """A small picture with its title and a line below."""

    source: str  # data URI
    width: int
    height: int
    title: str
    detail: str
    alt: str


class Grid(NamedTuple):
    """The cells of an environment as one sheet: panels next to or below each other, signed rows from below."""

    cells: CellGrid
    open: np.ndarray  # bool [panels, rows, columns]

    @property
    def is_stacked(self) -> bool:
        return len(self.cells.columns) >= STACKED

    @property
    def is_upside_down(self) -> bool:
        """Rows of a signed quantity, such as a velocity, have the smallest value at the bottom."""
        return self.cells.rows[0].startswith("-")

    def sheet(self, values: np.ndarray) -> np.ndarray:
        """Values [cells] as a picture; NaN if nothing can be visited."""
        panels = np.where(self.open, values.reshape(self.cells.shape), np.nan)
        if self.is_upside_down:
            panels = panels[:, ::-1]
        axis = 0 if self.is_stacked else 1
        gap = np.full((1, panels.shape[2]) if self.is_stacked else (panels.shape[1], 1), np.nan)
        parts = [part for panel in panels for part in (gap, panel)][1:]
        return np.concatenate(parts, axis=axis)


def grid_of(run: RunData, seed: int) -> Grid | None:
    """The layout of the visits of a seed; None if the environment has no grid cells."""
    env = run.env
    if env is None or env.cells is None:
        return None
    return Grid(env.cells, env.reachable_cells(env.instance(seed)).reshape(env.cells.shape))


def cover_tiles(cover: Shown, grid: Grid) -> list[Tile]:
    """The visits of each policy of a cover."""
    return [
        _tile(_shares(cells), grid, f"policy {index}", f"weight {weight:.2f}, return {number(returns.mean())}")
        for index, (weight, cells, returns) in enumerate(zip(cover.weights, cover.cells, cover.returns, strict=True))
    ]


def baseline_tiles(run: RunData, seed: int, grid: Grid, most: int = 8) -> list[Tile]:
    """The visits of the newest policy after some evenly spaced rounds of a run without a cover."""
    rounds = [record for record in run.records.get(seed, []) if record.get("cells")]
    picked = np.unique(np.linspace(0, len(rounds) - 1, min(most, len(rounds))).round().astype(int)) if rounds else []
    return [
        _tile(_shares(np.array(row["cells"])), grid, f"round {row['round']}", f"return {number(row['return'])}")
        for row in (rounds[index] for index in picked)
    ]


def mixture_tile(cover: Shown, grid: Grid, seed: int) -> Tile:
    """The visits of the weighted cover of a seed."""
    return _tile(mixture_of(cover), grid, f"seed {seed}", f"{len(cover.weights)} policies")


def mixture_of(cover: Shown) -> np.ndarray:
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
    figure, axis = new_chart(min(4.2, max(1.5, (WIDTH - 1.2) * rows / columns + 0.7)))
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


def _shares(cells: np.ndarray) -> np.ndarray:
    return cells / max(cells.sum(), 1)


def _tile(shares: np.ndarray, grid: Grid, title: str, detail: str) -> Tile:
    sheet = grid.sheet(shares)
    return Tile(_png(sheet), sheet.shape[1], sheet.shape[0], title, detail, _said(shares, grid, title))


def _said(shares: np.ndarray, grid: Grid, what: str) -> str:
    """The text alternative: how much was visited, and where most."""
    panels, rows, columns = grid.cells
    reachable = max(int(grid.open.sum()), 1)
    visited = int(np.count_nonzero(shares))
    panel, row, column = np.unravel_index(int(shares.argmax()), grid.cells.shape)
    where = f"row {rows[row]}, column {columns[column]}" + (f" of {panels[panel]}" if len(panels) > 1 else "")
    seen = f"{visited} of {reachable} grid cells visited, most ({shares.max():.0%}) at {where}"
    return f"Map of the visits of {what}: {seen}."


def _png(sheet: np.ndarray) -> str:
    """One pixel per cell; closed cells are transparent."""
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
    """Label rows and columns if the names fit, and panels if there are several."""
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
    """Positions for at most so many labels."""
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
        """Share of all grid cells visited by any member; 0 without cells."""
        return float(np.mean(self.counts.sum(axis=0) > 0)) if self.grid.size else 0.0


def read_visits(folder: RunFolder, seed: int, notice: Notice = lambda text: None) -> CoverVisits:
    """The visits of one seed's cover, from the member files of a run; an empty grid without grid cells.

    Creates no external environment. Calls `notice` if the newest checkpoint cannot be used.
    """
    folder.check_entries()
    is_there = exists(folder.path / ENVIRONMENT) or folder.seal(ENVIRONMENT) is not None
    described = folder.read_json(ENVIRONMENT) if is_there else None
    env = known_env(folder.config, described)
    grid = (None if env is None else env.cells) or CellGrid((), (), ())
    checkpoint, cover = folder.newest_checkpoint(notice), None
    if checkpoint is not None:
        parts = [folder.read_member(index, sha256) for index, sha256 in enumerate(checkpoint.state.get("members", []))]
        cover = cover_of(folder, checkpoint.arrays, parts, seed, env)
    if cover is None:
        settings = settings_of(folder.config)
        if settings is None or not settings.leaves:
            raise NotARun(f"{folder.path} holds no cover: {folder.config['algo']} does not build one")
        if folder.is_finished:
            raise NotARun(f"{folder.path} holds no cover: with its settings {folder.config['algo']} keeps none")
        raise NotARun(f"{folder.path}: the cover of seed {seed} is still empty")
    with understood(folder.cover):
        counts = (
            cover.cells.reshape(len(cover.cells), *grid.shape) if grid.size else np.zeros((len(cover.cells), 0, 0, 0))
        )
    returns = np.array([own.mean() for own in cover.returns])
    return CoverVisits(seed, grid, counts, cover.weights, returns)


def draw_visits(visits: CoverVisits, path: Path, max_policies: int = 11) -> None:
    """A picture of the visits of the heaviest members and of the weighted cover, written to `path`."""
    if not visits.grid.size:
        raise NotARun("the environment has no grid cells to draw")

    order = sorted(np.argsort(-visits.weights, kind="stable")[:max_policies].tolist())
    pictures = [(f"policy {i}\nweight {visits.weights[i]:.2f}", _shares(visits.counts[i])) for i in order]
    pictures.append(("weighted cover", visits.mixture))
    grid = Grid(visits.grid, np.ones(visits.grid.shape, bool))
    rows, columns = grid.sheet(visits.mixture).shape
    size = {"width": 1.8 + max(2.4, 0.22 * columns), "height": 0.7 + len(pictures) * max(0.7, 0.22 * rows + 0.18)}
    figure, axes = new_figure(len(pictures), 1, **size)
    for (axis,), (name, shares) in zip(axes, pictures, strict=True):
        axis.imshow(np.sqrt(grid.sheet(shares)), cmap=COLOURS, aspect="auto")
        axis.set(xticks=[], yticks=[])
        axis.set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8, labelpad=4)
    panels = ", ".join(visits.grid.panels)
    figure.suptitle(f"Visits of the cover, seed {visits.seed}: {panels} (square-root scale)", fontsize=9)
    write_figure(figure, path, dpi=160)
