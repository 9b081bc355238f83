"""Pictures of states, drawn with Pillow: the cells of a grid, and helpers for custom drawings."""

from typing import Any

import numpy as np

from pcpg.envs.protocol import CellGrid

Colour = tuple[int, int, int]

WHITE: Colour = (255, 255, 255)
INK: Colour = (40, 44, 48)
PAPER: Colour = (238, 240, 242)
WALL: Colour = (66, 72, 78)
AGENT: Colour = (210, 90, 20)
STACKED = 12
"""From this number of columns on, the panels of a grid are stacked vertically."""


def canvas(width: int, height: int) -> tuple[Any, Any]:
    """A white picture and the pen that draws on it."""
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (width, height), WHITE)
    return image, ImageDraw.Draw(image)


def font(size: int) -> Any:
    """Pillow's built-in font."""
    from PIL import ImageFont

    return ImageFont.load_default(size)


def draw_cells(
    grid: CellGrid, open_cells: np.ndarray, cell: int, *, tints: tuple[Colour, ...] = (PAPER,), note: str = ""
) -> np.ndarray:
    """The cells of a grid with a disc on one of them (none for -1), uint8 [height, width, 3].

    `tints` colour the rows in turn; cells that cannot be entered are dark; `note` stands below.
    """
    panels, rows, columns = grid.shape
    across, down = (1, panels) if columns >= STACKED else (panels, 1)
    side = max(6, min(40, 440 // (across * columns)))
    label, head, foot, gap = 8, 20, 22, 14
    left = label + max(int(font(11).getlength(name)) for name in grid.rows) + 8 if rows <= 8 else label
    width = left + across * columns * side + (across - 1) * gap + label
    height = down * (head + rows * side) + (down - 1) * gap + foot
    image, pen = canvas(width, height)
    for index in range(panels * rows * columns):
        panel, row, column = np.unravel_index(index, grid.shape)
        x = left + (panel if across > 1 else 0) * (columns * side + gap) + column * side
        y = head + (panel if down > 1 else 0) * (rows * side + gap + head) + row * side
        colour = tints[row % len(tints)] if open_cells[index] else WALL
        pen.rectangle((x + 1, y + 1, x + side - 1, y + side - 1), fill=colour)
        if index == cell:
            pen.ellipse((x + side * 0.2, y + side * 0.2, x + side * 0.8, y + side * 0.8), fill=AGENT)
        if row == 0 and column == 0:
            pen.text((x, y - 17), grid.panels[panel], fill=INK, font=font(12))
        if column == 0 and rows <= 8 and (panel == 0 or down > 1):
            pen.text((label, y + side / 2 - 7), grid.rows[row], fill=INK, font=font(11))
    pen.text((label, height - foot + 4), note, fill=INK, font=font(12))
    return np.asarray(image)
