"""MiniGrid's partial view in one pass over its cells: most of the time of a step of MiniGrid is spent on that view.

MiniGrid cuts the part out of its grid, turns it up to four times, finds what can be seen, and encodes it. Here each
cell of the view is looked up once, where it lies in the grid. The observation is the same.
"""

import functools
import importlib
from typing import Any

import numpy as np

constants: Any = importlib.import_module("minigrid.core.constants")
MiniGridEnv: Any = importlib.import_module("minigrid.minigrid_env").MiniGridEnv
OUTSIDE: Any = importlib.import_module("minigrid.core.world_object").Wall()
AHEAD = [(int(x), int(y)) for x, y in constants.DIR_TO_VEC]
EMPTY = constants.OBJECT_TO_IDX["empty"], 0, 0
OWN = ("gen_obs", "gen_obs_grid", "get_view_exts")


def hasten(env: Any) -> None:
    """Let an environment take its views in one pass, unless it has a view of its own."""
    if not env.see_through_walls and all(getattr(type(env), name) is getattr(MiniGridEnv, name) for name in OWN):
        vars(env)["gen_obs"] = functools.partial(observed, env)


def observed(env: Any) -> dict[str, Any]:
    """What `MiniGridEnv.gen_obs` gives."""
    size, grid, width, height = env.agent_view_size, env.grid.grid, env.grid.width, env.grid.height
    ahead_x, ahead_y = AHEAD[env.agent_dir]
    place_x, place_y = map(int, env.agent_pos)
    middle, codes = size // 2, [0] * (3 * size * size)
    row = [column == middle for column in range(size)]  # which cells of a row are seen, the agent's first
    for depth in range(size):
        x, y = place_x + depth * ahead_x + middle * ahead_y, place_y + depth * ahead_y - middle * ahead_x
        cells: list[Any] = []
        for _ in range(size):
            cells.append(grid[y * width + x] if 0 <= x < width and 0 <= y < height else OUTSIDE)
            x, y = x - ahead_y, y + ahead_x
        seen, row = _seen(cells, row)
        if depth == 0:
            cells[middle] = env.carrying
        at = 3 * (size - 1 - depth)
        for column in range(size):
            if seen[column]:
                cell = cells[column]
                codes[at : at + 3] = EMPTY if cell is None else cell.encode()
            at += 3 * size
    image = np.array(codes, np.uint8).reshape(size, size, 3)
    return {"image": image, "direction": env.agent_dir, "mission": env.mission}


def _seen(cells: list[Any], seen: list[bool]) -> tuple[list[bool], list[bool]]:
    """Which cells of a row are seen, from those that the row before it showed, and what it shows of the next."""
    size = len(cells)
    ahead, last = [False] * size, size - 1
    is_clear = [cell is None or cell.see_behind() for cell in cells]
    for column in range(last):
        if seen[column] and is_clear[column]:
            seen[column + 1] = ahead[column] = ahead[column + 1] = True
    for column in range(last, 0, -1):
        if seen[column] and is_clear[column]:
            seen[column - 1] = ahead[column] = ahead[column - 1] = True
    return seen, ahead
