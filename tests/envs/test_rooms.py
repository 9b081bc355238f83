"""Rooms in a chain: every level can be solved, the view is what the rules say, and levels come back where asked to."""

from collections import deque
from typing import Any

import jax
import numpy as np
import pytest

from pcpg.envs import InvalidOption, make, recorded
from pcpg.envs.rooms import (
    AHEAD,
    DOOR,
    EMPTY,
    FORWARD,
    GOAL,
    LEFT,
    OPEN,
    OPEN_DOOR,
    RIGHT,
    UNSEEN,
    WALL,
    Rooms,
    RoomsState,
)


def starts(env: Rooms, count: int, params: Any = None) -> tuple[np.ndarray, RoomsState]:
    params = env.instance(0) if params is None else params
    keys = jax.random.split(jax.random.key(0), count)
    return jax.device_get(jax.jit(jax.vmap(lambda key: env.reset(key, params)))(keys))


def one(states: RoomsState, index: int) -> RoomsState:
    return jax.tree.map(lambda leaf: leaf[index], states)


def way(state: RoomsState) -> list[int]:
    """A shortest way to the goal by search over places and directions; doors are opened before they are passed."""
    start = (int(state.place[0]), int(state.place[1]), int(state.facing))
    before: dict[Any, Any] = {start: None}
    queue = deque([start])
    while queue:
        row, column, facing = here = queue.popleft()
        if state.grid[row, column] == GOAL:
            actions: list[int] = []
            while before[here] is not None:
                here, step = before[here]
                actions = step + actions
            return actions
        ahead = row + int(AHEAD[facing][0]), column + int(AHEAD[facing][1])
        moves = [((row, column, (facing - 1) % 4), [LEFT]), ((row, column, (facing + 1) % 4), [RIGHT])]
        if state.grid[ahead] != WALL:
            moves.append(((*ahead, facing), [OPEN, FORWARD] if state.grid[ahead] == DOOR else [FORWARD]))
        for there, step in moves:
            if there not in before:
                before[there] = (here, step)
                queue.append(there)
    raise AssertionError("the goal cannot be reached")


@pytest.mark.parametrize(("rooms", "size"), [(2, 4), (7, 4), (12, 6)])
def test_every_level_is_a_chain_that_can_be_solved_in_time_and_pays_as_said(rooms: int, size: int) -> None:
    env = Rooms(rooms, size)
    _, states = starts(env, 30)
    move = jax.jit(lambda state, action: env.transition(jax.random.key(0), state, action, env.instance(0)))
    for index in range(30):
        state = one(states, index)
        assert (state.grid == DOOR).sum() == rooms - 1 and (state.grid == GOAL).sum() == 1
        actions = way(state)
        assert actions.count(OPEN) == rooms - 1, "each door of the chain is passed once"
        assert len(actions) < env.max_steps
        if index < 3:
            for number, action in enumerate(actions, start=1):
                state, reward, ended = (step := move(state, action)).state, float(step.reward), bool(step.terminated)
                assert ended == (number == len(actions))
                assert reward == (pytest.approx(1 - 0.9 * number / env.max_steps, rel=1e-6) if ended else 0)


def test_levels_differ_at_every_reset_or_take_turns() -> None:
    def levels(env: Rooms, seed: int = 0) -> set[bytes]:
        grids = starts(env, 40, env.instance(seed))[1].grid
        return {grid.tobytes() for grid in grids}

    assert len(levels(Rooms(4, 4))) > 35
    few = levels(Rooms(4, 4, levels=3))
    assert len(few) == 3 and not few & levels(Rooms(4, 4, levels=3), seed=1)


def codes(env: Rooms, state: RoomsState) -> np.ndarray:
    return np.asarray(env._observe(state)).reshape(7, 7, 6).argmax(axis=-1)


def test_the_view_ends_at_walls_and_closed_doors_and_turns_with_the_agent() -> None:
    env = Rooms(2, 5)
    _, states = starts(env, 1)
    grid = np.full((env.side, env.side), WALL, np.uint8)
    grid[1:4, 1:4], grid[1:4, 5:8] = EMPTY, EMPTY
    grid[2, 4], grid[3, 6] = DOOR, GOAL
    state = one(states, 0)._replace(grid=grid, place=np.array([2, 2], np.int32), facing=np.int32(0))
    view = codes(env, state)
    expected = np.full((7, 7), UNSEEN)
    expected[0:3, 1:6] = WALL
    expected[0:2, 2:5] = EMPTY
    expected[2, 3] = DOOR
    np.testing.assert_array_equal(view, expected)
    grid = grid.copy()
    grid[2, 4] = OPEN_DOOR
    through = codes(env, state._replace(grid=grid))
    assert through[2, 3] == OPEN_DOOR and (through == GOAL).sum() == 1
    assert through[4, 4] == GOAL, "two rows behind the door, one to the right"
    back = codes(env, state._replace(facing=np.int32(2)))
    assert (back == DOOR).sum() == 0 and (back[2, 1:6] == WALL).all()


def test_walls_and_closed_doors_stop_the_agent_and_time_ends_an_episode() -> None:
    env = Rooms(2, 4)
    state = one(starts(env, 1)[1], 0)
    move = jax.jit(lambda state, action: env.transition(jax.random.key(0), state, action, env.instance(0)))
    for _ in range(5):
        step = move(state, FORWARD)
        state = step.state
    assert state.grid[tuple(state.place)] in (EMPTY, GOAL)
    step = move(
        state._replace(time=np.int32(env.max_steps - 1), grid=np.where(state.grid == GOAL, EMPTY, state.grid)), LEFT
    )
    assert bool(step.truncated) and not bool(step.terminated) and float(step.reward) == 0


@pytest.mark.parametrize("options", [{"rooms": 1}, {"size": 3}, {"levels": -1}, {"rooms": 31}])
def test_options_out_of_range_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(InvalidOption, match=next(iter(options))):
        make("Rooms-v0", **options)


def test_the_space_goes_through_the_files_of_a_run() -> None:
    space = Rooms().observation_space
    assert recorded._space_of_json(recorded._space_to_json(space)) == space
