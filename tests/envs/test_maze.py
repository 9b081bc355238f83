"""The maze against an independent statement of the paper's rules, read off its image."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcpg.envs.contract import check_environment
from pcpg.envs.given_reward import GivenReward
from pcpg.envs.maze import Maze, MazeState
from tests.values import optimal_value

UP, DOWN, LEFT, RIGHT, STAY = range(5)
FOUR = ((-1, 0), (1, 0), (0, -1), (0, 1))
SEEDS = range(30)

GOLDEN = """\
##########
#        #
# ### ## #
#   # #  #
### #  # #
#   # #  #
# ### ## #
#   # S# #
# # # #  #
##########"""


def image_of(env, seed):
    return np.asarray(env.reset(jax.random.key(0), env.instance(seed))[0])


def tree_of(image):
    """Open cells, start, and the parent of each open cell on its way to the start, searched in the image."""
    open_cells = {(int(r), int(c)) for r, c in np.argwhere(image[..., 0] == 0)}
    ((row, column),) = np.argwhere(image[..., 1] == 255)
    start = (int(row), int(column))
    parent, frontier = {start: None}, [start]
    for r, c in frontier:
        for i, j in FOUR:
            cell = (r + i, c + j)
            if cell in open_cells and cell not in parent:
                parent[cell] = (r, c)
                frontier.append(cell)
    return open_cells, start, parent


def direction(a, b):
    return b[0] - a[0], b[1] - a[1]


def ways_allowed(cell, parent):
    """The directions in which carving may have gone on from a cell: straight on after a turn, else any."""
    before = parent[cell]
    if before is None or parent[before] is None:
        return set(FOUR)
    last, second_last = direction(before, cell), direction(parent[before], before)
    return set(FOUR) if last == second_last else {last}


@pytest.mark.parametrize("size", [4, 5, 10, 20])
def test_the_border_is_wall_and_the_open_cells_form_one_tree_around_the_start(size):
    for seed in SEEDS:
        image = image_of(Maze(size), seed)
        open_cells, start, parent = tree_of(image)
        assert all(0 < r < size - 1 and 0 < c < size - 1 for r, c in open_cells)
        assert start in open_cells
        assert set(parent) == open_cells, "every open cell is reachable from the start"
        edges = sum((r + i, c + j) in open_cells for r, c in open_cells for i, j in ((1, 0), (0, 1)))
        assert edges == len(open_cells) - 1, "connected with one edge less than cells: a tree"


@pytest.mark.parametrize("size", [5, 10, 20])
def test_a_corridor_goes_straight_on_after_a_turn(size):
    turns = 0
    for seed in SEEDS:
        _, _, parent = tree_of(image_of(Maze(size), seed))
        for cell, before in parent.items():
            if before is not None:
                assert direction(before, cell) in ways_allowed(before, parent)
                turns += len(ways_allowed(before, parent)) == 1
    assert turns > 0


@pytest.mark.parametrize("size", [5, 10, 20])
def test_carving_stops_only_where_no_allowed_cell_is_left(size):
    for seed in SEEDS:
        open_cells, _, parent = tree_of(image_of(Maze(size), seed))
        for r, c in open_cells:
            for i, j in ways_allowed((r, c), parent):
                row, column = r + i, c + j
                inside = 0 < row < size - 1 and 0 < column < size - 1
                if inside and (row, column) not in open_cells:
                    assert sum((row + k, column + m) in open_cells for k, m in FOUR) >= 2


def test_the_maze_of_a_seed_is_the_known_one_and_another_seed_gives_another():
    image = image_of(Maze(10), 0)
    rows = [
        "".join("S" if agent else "#" if wall else " " for wall, agent in row)
        for row in np.stack([image[..., 0] > 0, image[..., 1] > 0], axis=-1)
    ]
    assert "\n".join(rows) == GOLDEN
    assert not np.array_equal(image_of(Maze(10), 1)[..., 0], image[..., 0])


def test_the_paper_s_size_has_about_190_open_cells_all_within_an_episode_of_the_start():
    env = Maze()
    for seed in SEEDS:
        params = env.instance(seed)
        assert 180 <= env.open_cells(params).sum() <= 200
        distances = env.distances(params)
        assert np.array_equal(distances >= 0, env.open_cells(params))
        assert distances[params.start] == 0 and 70 < distances.max() < env.steps


def test_image_channels_are_walls_agent_and_zero():
    env = Maze(12)
    params = env.instance(3)
    image = image_of(env, 3)
    assert image.dtype == np.uint8 and env.observation_space.contains(image)
    assert set(np.unique(image[..., 0])) == {0, 255}
    assert np.array_equal(image[..., 0].reshape(-1) == 0, env.open_cells(params))
    assert image[..., 1].sum() == 255 and image[..., 1].reshape(-1)[int(params.start)] == 255
    assert not image[..., 2].any()


def test_moves_go_one_cell_and_walls_stop_them():
    env = Maze(10)
    params = env.instance(0)
    walls = image_of(env, 0)[..., 0] == 255
    cells = np.flatnonzero(~walls.reshape(-1))
    move = jax.jit(jax.vmap(lambda c, a: env.transition(jax.random.key(0), MazeState(c, jnp.int32(0)), a, params)))
    for action, (i, j) in enumerate((*FOUR, (0, 0))):
        step = move(jnp.asarray(cells, jnp.int32), jnp.full(len(cells), action))
        rows, columns = np.divmod(cells, 10)
        to = np.where(walls[rows + i, columns + j], cells, (rows + i) * 10 + columns + j)
        assert np.array_equal(step.state.cell, to)
        assert np.array_equal(np.asarray(step.observation)[..., 1].reshape(len(cells), -1).argmax(1), to)
        assert not step.reward.any() and not step.terminated.any() and not step.truncated.any()
        assert np.array_equal(jax.vmap(env.cell)(step.state), to)


def test_the_time_limit_truncates_and_starts_anew_at_the_same_cell():
    env = Maze(8, steps=3)
    params = env.instance(1)
    step = jax.jit(env.step)
    first, state = env.reset(jax.random.key(0), params)
    for time_left in (2, 1, 0):
        moved = step(jax.random.key(1), state, jnp.int32(STAY), params)
        state = moved.state
        assert bool(moved.truncated) == (time_left == 0) and not moved.terminated
    assert int(state.time) == 0 and int(state.cell) == params.start
    assert np.array_equal(moved.observation, first)


def test_arriving_at_the_goal_gives_one_and_terminates_even_at_the_time_limit():
    params = Maze(8).instance(1)
    goal = int(np.flatnonzero(Maze(8).distances(params) == 1)[0])
    env = Maze(8, steps=1, goal=divmod(goal, 8))
    params = env.instance(1)
    _, state = env.reset(jax.random.key(0), params)
    action = int(np.flatnonzero(np.asarray(params.next_cell)[params.start] == goal)[0])
    moved = env.transition(jax.random.key(0), state, jnp.int32(action), params)
    assert moved.reward == 1 and moved.terminated and not moved.truncated
    stayed = env.transition(jax.random.key(0), state, jnp.int32(STAY), params)
    assert stayed.reward == 0 and not stayed.terminated and stayed.truncated


def test_a_new_goal_compiles_nothing_anew():
    traces = []

    @jax.jit
    def goal_reached(params, cell):
        traces.append(None)
        env = Maze(8)
        return env.transition(jax.random.key(0), MazeState(cell, jnp.int32(0)), jnp.int32(STAY), params).reward

    env = Maze(8)
    params = env.instance(1)
    for cell in np.flatnonzero(env.distances(params) > 0)[:4]:
        goal = (int(cell) // 8, int(cell) % 8)
        assert Maze(8, goal=goal) == env and hash(Maze(8, goal=goal)) == hash(env)
        assert goal_reached(Maze(8, goal=goal).instance(1), jnp.int32(cell)) == 1
        assert goal_reached(env.with_goal(params, None), jnp.int32(cell)) == 0
    assert len(traces) == 1


@pytest.mark.parametrize("goal, why", [((0, 3), "a wall"), ((3, 40), "outside the 10 x 10 maze")])
def test_a_goal_that_is_no_open_cell_is_refused_with_the_nearest_that_is(goal, why):
    with pytest.raises(ValueError, match=rf"goal \({goal[0]}, {goal[1]}\) is {why}; the nearest open cell is \("):
        Maze(10, goal=goal).instance(0)


def test_the_start_as_goal_and_wrong_sizes_are_refused():
    with pytest.raises(ValueError, match="is the start"):
        Maze(10, goal=(7, 6)).instance(0)
    with pytest.raises(ValueError, match="size must be at least 4, got 3"):
        Maze(3)
    with pytest.raises(ValueError, match="steps must be at least 1, got 0"):
        Maze(steps=0)
    for wrong in ("3", "3,7,9", (3,), 7):
        with pytest.raises(ValueError, match=r"goal must be a row and a column such as 3,7, got "):
            Maze(goal=wrong)
    with pytest.raises(ValueError, match="row of goal must be an integer, got 'a'"):
        Maze(goal="a,7")
    with pytest.raises(ValueError, match="column of goal must be at least 0, got -1"):
        Maze(goal=(3, -1))


def test_a_goal_may_be_written_as_a_pair_as_text_or_as_the_list_of_a_json_file():
    assert Maze(goal="3,7").goal == Maze(goal="3, 7").goal == Maze(goal=[3, 7]).goal == Maze(goal=(3, 7)).goal == (3, 7)
    assert Maze(10, goal=np.array([3, 7])).goal == Maze(10, goal=(np.int64(3), np.int64(7))).goal == (3, 7)
    with pytest.raises(ValueError, match="row of goal must be at least 0, got -1"):
        Maze(10, goal="-1,2")


def test_goals_of_a_maze_are_different_open_cells_from_near_to_far_and_the_maze_is_the_same():
    plain, env = Maze(10), Maze(10, goals=5)
    assert env == plain and hash(env) == hash(plain)
    for maze in (0, 3):
        params = plain.instance(maze)
        instances = [env.instance(5 * maze + task) for task in range(5)]
        assert {env.dynamics_seed(5 * maze + task) for task in range(5)} == {maze}
        for other in instances:
            np.testing.assert_array_equal(other.background, params.background)
            np.testing.assert_array_equal(other.next_cell, params.next_cell)
        distances = plain.distances(params)
        reached = np.array([distances[other.goal] for other in instances])
        assert len({int(other.goal) for other in instances}) == 5
        assert (reached > 0).all() and (np.diff(reached) >= 0).all()
        ranks = np.sort(distances[distances > 0])
        assert reached[-1] >= ranks[-len(ranks) // 5], "one is among the farthest fifth"
        assert reached[0] <= ranks[-(-len(ranks) // 5)], "one is among the nearest fifth"
        again = [int(env.instance(5 * maze + task).goal) for task in range(5)]
        assert again == [int(other.goal) for other in instances]


def test_one_goal_and_a_number_of_goals_and_more_goals_than_cells_are_refused():
    with pytest.raises(ValueError, match="set one goal or a number of goals, not both"):
        Maze(10, goal=(1, 1), goals=3)
    with pytest.raises(ValueError, match="goals must be at least 0, got -1"):
        Maze(goals=-1)
    most = int(Maze(5).open_cells(Maze(5).instance(0)).sum()) - 1
    Maze(5, goals=most).instance(most - 1)
    with pytest.raises(ValueError, match=f"goals must be at most {most}, "):
        Maze(5, goals=most + 1).instance(0)


def test_a_maze_with_a_goal_keeps_the_contract_of_environments():
    check_environment(Maze(8, steps=30, goal=(1, 1)), seed=1, num_steps=60)
    check_environment(Maze(8, steps=30, goals=4), seed=1, num_steps=60)


def test_the_exact_model_is_the_environment_and_its_value_is_one_within_reach():
    env = Maze(7, goal=None)
    params = env.instance(2)
    goal = int(env.distances(params).argmax())
    params = env.with_goal(params, divmod(goal, 7))
    model = env.tabular(params)
    states = env.all_states()
    assert np.array_equal(jax.vmap(env.state_index)(states), np.arange(49))
    images = np.asarray(jax.vmap(lambda s: env.observe(params, s))(states))
    assert np.array_equal(model.observations, images.reshape(49, -1))
    move = jax.jit(jax.vmap(env.transition, (None, 0, None, None)))
    for action in range(5):
        step = move(jax.random.key(0), states, jnp.int32(action), params)
        inner = ~model.terminal
        assert np.array_equal(model.transitions[:, action].argmax(1)[inner], step.state.cell[inner])
        assert np.array_equal(model.rewards[inner, action], step.reward[inner])
    far = int(env.distances(params)[goal])
    assert optimal_value(model, far) == 1 and optimal_value(model, far - 1) == 0


def test_the_picture_shows_agent_and_goal_at_scale():
    env = Maze(10, goal=(1, 1))
    params = env.instance(0)
    picture = env.render(params, env.reset(jax.random.key(0), params)[1], scale=3)
    assert picture.shape == (30, 30, 3) and picture.dtype == np.uint8
    colours = {tuple(c) for c in picture.reshape(-1, 3).tolist()}
    assert len(colours) == 4
    assert (picture[3:6, 3:6] == (200, 30, 30)).all() and (picture[21:24, 18:21] == (30, 150, 60)).all()


def test_stepping_with_images_has_no_scatter_and_no_callback():
    """Either would take its speed, above a million steps a second on one core, by a factor of ten or more."""
    env = Maze()
    params = env.instance(0)
    keys = jax.random.split(jax.random.key(0), 128)
    _, states = jax.vmap(env.reset, (0, None))(keys, params)
    moves = jax.vmap(env.step, (0, 0, 0, None))
    program = jax.jit(moves).lower(keys, states, jnp.zeros(128, jnp.int32), params).as_text()
    assert not re.findall(r"stablehlo\.(?:scatter|custom_call)|callback", program)


def test_a_maze_with_a_reward_of_the_user_s_keeps_the_contract_and_all_but_the_reward():
    def to_the_right(observation, action, following):
        del observation, action
        return jnp.argmax(following[..., 1].max(axis=0)).astype(jnp.float32)

    inner = Maze(8, steps=30)
    env = GivenReward(inner, to_the_right)
    check_environment(env, seed=1, num_steps=60)
    params = env.instance(1)
    _, state = env.reset(jax.random.key(0), params)
    for action in (0, 1, 2, 3, 3, 4):
        before = state.inner
        moved = env.transition(jax.random.key(0), state, jnp.int32(action), params)
        same = inner.transition(jax.random.key(0), before, jnp.int32(action), params)
        assert moved.reward == int(same.state.cell) % 8
        np.testing.assert_array_equal(moved.observation, same.observation)
        assert int(env.cell(moved.state)) == int(same.state.cell)
        state = moved.state
    np.testing.assert_array_equal(env.reachable_cells(params), inner.reachable_cells(params))
