"""The mechanical worlds: random play meets no reward, a controller written by hand does, and data can be relabelled."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcpg.envs import check_environment, make
from pcpg.envs.mechanics import CORNER, DRAG, GAP, LINKS, PUSH, Moving, PointMass, SwingUp

Control = Callable[[np.ndarray], Any]


def around_the_wall(seen: np.ndarray) -> Any:
    """Up, across above the wall, down."""
    side, height = seen[0], seen[1]
    return jnp.array([1.0, 0.0]) if height > GAP and side < 0.5 else jnp.array([0.0, 1.0 if side < 0.3 else -1.0])


def swing(seen: np.ndarray) -> Any:
    """Pump energy into the pole; near the top balance it, and the cart with it."""
    place, cosine, sine, speed, spin = seen
    energy = spin**2 / 6 + 4.9 * (cosine - 1)
    balance = np.dot([0.1, 0.2, 3.0, 0.6], [place, speed, np.arctan2(sine, cosine), spin])
    pump = 0.5 * np.sign(energy * spin * cosine) - 0.3 * place - 0.1 * speed
    return jnp.array([balance if cosine > 0.9 else pump])


def bend(seen: np.ndarray) -> Any:
    """Turn each joint to where the tip is at the target."""
    wanted = np.array([2.0, 0.57, 0.57, 0.57, 0.57])
    return jnp.asarray(5 * (wanted - np.arctan2(seen[LINKS : 2 * LINKS], seen[:LINKS])) - 1.5 * seen[2 * LINKS :])


CONTROLS: dict[str, tuple[Control, float]] = {
    "PointMass-v0": (around_the_wall, 1.0),
    "Arm-v0": (bend, 1.0),
    "SwingUp-v0": (swing, 200.0),
}


def played(env: Any, control: Control, seed: int = 0) -> tuple[float, list[np.ndarray], Any]:
    """The return of an episode, what was seen, and its last step."""
    params, transition = env.instance(seed), jax.jit(env.transition)
    seen, state = env.reset(jax.random.key(seed), params)
    earned, all_seen = 0.0, [np.asarray(seen)]
    for _ in range(env.max_steps):
        step = transition(jax.random.key(0), state, jnp.asarray(control(all_seen[-1]), jnp.float32), params)
        state, earned = step.state, earned + float(step.reward)
        all_seen.append(np.asarray(step.observation))
        if step.terminated or step.truncated:
            return earned, all_seen, step
    raise AssertionError("an episode ends by its limit at the latest")


@pytest.mark.parametrize("name", CONTROLS)
def test_a_controller_written_by_hand_is_paid(name: str):
    control, least = CONTROLS[name]
    earned, _, last = played(make(name), control)
    assert earned >= least
    assert bool(last.terminated) is (name != "SwingUp-v0") and bool(last.truncated) is (name == "SwingUp-v0")


@pytest.mark.parametrize(("name", "options"), [("PointMass-v0", {}), ("PointMass-v0", {"axes": 4}), ("SwingUp-v0", {})])
def test_random_play_meets_no_reward(name: str, options: dict[str, Any]):
    env = make(name, **options)
    params, (count,) = env.instance(0), env.action_space.shape

    def episode(key: jax.Array) -> jax.Array:
        _, first = env.reset(key, params)

        def step(state: Moving, key: jax.Array) -> tuple[Moving, jax.Array]:
            moved = env.transition(key, state, jax.random.uniform(key, (count,), minval=-1, maxval=1), params)
            return moved.state, moved.reward

        return jax.lax.scan(step, first, jax.random.split(key, env.max_steps))[1].sum()

    earned = jax.jit(jax.vmap(episode))(jax.random.split(jax.random.key(0), 20_000 // env.max_steps))
    assert not np.asarray(earned).any()


def test_the_wall_is_passed_above_alone_and_the_box_is_never_left():
    env, (count, steps) = PointMass(), (256, 400)
    rng = np.random.default_rng(0)
    state = Moving(
        jnp.asarray(rng.uniform(-1, 1, (count, 2)), jnp.float32), jnp.zeros((count, 2)), jnp.zeros(count, jnp.int32)
    )
    move = jax.jit(jax.vmap(lambda state, push: env.move(state.position, state.velocity, push)))
    push = np.sign(rng.normal(size=(count, 2)))
    crossed = 0
    for _ in range(steps):
        push = np.where(rng.uniform(size=push.shape) < 0.05, -push, push)
        position, velocity = move(state, jnp.asarray(push, jnp.float32))
        was, now = np.asarray(state.position), np.asarray(position)
        over = (was[:, 0] < 0) != (now[:, 0] < 0)
        assert (was[over, 1] >= GAP).all() and np.abs(now).max() <= 1
        assert np.abs(np.asarray(velocity)).max() <= PUSH / (1 - DRAG) + 1e-6
        state, crossed = Moving(position, velocity, state.time), crossed + int(over.sum())
    assert crossed > 20


def test_a_cart_without_a_push_keeps_its_energy_while_it_swings():
    env = SwingUp(steps=200)
    heights, position, velocity, move = [], jnp.array([0.0, 2.0]), jnp.zeros(2), jax.jit(env.move)
    for _ in range(200):
        position, velocity = move(position, velocity, jnp.zeros(1))
        heights.append(float(jnp.cos(position[1])))
    assert max(heights) == pytest.approx(np.cos(2.0), abs=0.05) and min(heights) < -0.98


@pytest.mark.parametrize("name", CONTROLS)
def test_rewards_follow_from_what_is_seen(name: str):
    env, (control, _) = make(name), CONTROLS[name]
    _, seen, _ = played(env, control)
    here, after = np.stack(seen[:-1]), np.stack(seen[1:])
    found = env.rewards_of(env.instance(0), here, np.zeros((len(here), 1)), after)
    assert found is not None
    earned, _, _ = played(env, control)
    assert found[0].sum() == earned and found[1][-1] == (name != "SwingUp-v0")


def test_goals_are_tasks_of_one_box_and_differ():
    explored, env = make("PointMass-v0", reward=False), make("PointMass-v0", goals=20)
    assert explored == env and explored.is_reward_free and not env.is_reward_free and env.tasks == 20
    places = np.stack([env.instance(seed).place for seed in range(20)])
    assert len(np.unique(places, axis=0)) == 20 and (np.abs(places + CORNER).max(axis=1) > 0.5).all()
    assert (places[:, 0] > 0).sum() > 3 and env.dynamics_seed(39) == 1
    assert not np.allclose(places, [env.instance(20 + seed).place for seed in range(20)])


def test_a_picture_shows_the_mass_now_and_before_and_the_wall():
    env = make("PointMass-v0", picture=True)
    check_environment(env, num_steps=20)
    state = Moving(jnp.array([0.5, -0.5]), jnp.array([0.04, 0.0]), jnp.int32(0))
    now, before, wall = (np.asarray(env.observe(state))[..., channel].astype(float) for channel in range(3))
    rows, columns = np.mgrid[:48, :48]

    def middle(disc: np.ndarray) -> tuple[float, float]:
        return float((columns * disc).sum() / disc.sum()), float((rows * disc).sum() / disc.sum())

    assert middle(now) == pytest.approx((0.75 * 47, 0.75 * 47), abs=0.2)
    assert middle(now)[0] - middle(before)[0] == pytest.approx(0.04 * 47 / 2, abs=0.2)
    assert wall[20, 23] == 255 and wall[2, 23] == 0 and env.rewards_of(env.instance(0), now, now, now) is None


@pytest.mark.parametrize(
    ("options", "said"),
    [({"axes": 1}, "axes must be at least 2"), ({"axes": 3, "picture": True}, "a picture shows 2 axes")],
)
def test_a_box_that_is_none_is_refused(options: dict[str, Any], said: str):
    with pytest.raises(ValueError, match=said):
        make("PointMass-v0", **options)
