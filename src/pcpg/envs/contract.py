"""The contract of an environment, as a check for your own environments.

    from pcpg.envs import check_environment
    check_environment(MyEnvironment())

It plays random actions and raises ContractError for the first problem that would break a compiled program or go
unnoticed: a state that changes its type, a result that depends on more than its arguments, an episode that never
ends, a final observation that is lost.
"""

import dataclasses
import typing
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pcpg.envs.options import load
from pcpg.envs.protocol import Environment, Step
from pcpg.envs.spaces import Box, Discrete, Image, MultiDiscrete, Space

AnyEnvironment = Environment
GYMNASIUM = "pcpg.envs.adapters.from_gymnasium:check_gymnasium"
REPEATED = 20  # decisions that are played again, in parallel


class ContractError(AssertionError):
    """An environment violates the protocol."""


class _Keys(NamedTuple):
    """The data of a key and its two halves as plain numbers, since each key is reused on purpose."""

    whole: np.ndarray
    move: np.ndarray
    reset: np.ndarray


class _Single(NamedTuple):
    """The results of `transition` and `reset` with the two halves of a key."""

    moved: Step
    restarted: tuple[jax.Array, object]


class _Round(NamedTuple):
    """The same decision by `transition` and by `step`, and the resulting cell."""

    single: _Single
    stepped: Step
    cell: jax.Array


def check_environment(env: Any, *, seed: int = 0, num_steps: int = 200) -> None:
    """Check by random play that an environment can be trained on.

    Args:
        env: A Gymnasium environment, its class or a function that makes one; or an `Environment`.
        seed: Seed of the instance and of the play.
        num_steps: Decisions to play; at least one whole episode.

    Raises:
        ContractError: At the first violation, which the message describes.

    >>> from pcpg.envs import make
    >>> check_environment(make("Chain-v0"))
    """
    if not isinstance(env, Environment):
        load(GYMNASIUM)(env, seed, num_steps)
        return
    try:
        _check_definition(env)
        params = _check_instance(env, seed)
        _check_types(env, params, seed)
        _check_rounds(env, params, seed, max(num_steps, env.max_steps))
    except ContractError as error:
        raise ContractError(f"{type(env).__name__}: {error}") from error.__cause__


def _require(condition: object, message: str) -> None:
    if not condition:
        raise ContractError(message)


def _check_definition(env: AnyEnvironment) -> None:
    """Options are constants of a compiled program, so they must be frozen and hashable."""
    settings = getattr(env, "__dataclass_params__", None)
    frozen = settings is not None and settings.frozen
    _require(frozen, "must be a frozen dataclass: add @dataclasses.dataclass(frozen=True)")
    try:
        hash(env)
    except TypeError as error:
        raise ContractError(f"must be hashable, with hashable options ({error})") from error
    twin = dataclasses.replace(typing.cast(Any, env))
    _require(env == twin and hash(env) == hash(twin), "two copies with the same options must be equal")
    for name in ("observation_space", "action_space"):
        space = getattr(env, name)
        _require(isinstance(space, Space), f"{name} must be Discrete, MultiDiscrete, Box or Image, got {space!r}")
    _require(not isinstance(env.action_space, Image), "action_space cannot be Image")
    steps = env.max_steps
    whole = isinstance(steps, int) and not isinstance(steps, bool) and steps >= 1
    _require(whole, f"max_steps must be an integer of at least 1, got {steps!r}")


def _check_instance(env: AnyEnvironment, seed: int) -> object:
    """Parameters move between host, programs and files, and are stacked over seeds along a leading axis."""
    params, again, other = env.instance(seed), env.instance(seed), env.instance(seed + 1)
    for leaf in jax.tree.leaves(params):
        array = isinstance(leaf, (np.ndarray, np.generic, jax.Array))
        _require(array, f"instance(seed) must contain only arrays, got {leaf!r} ({type(leaf).__name__})")
        finite = not np.issubdtype(leaf.dtype, np.floating) or bool(np.all(np.isfinite(leaf)))
        _require(finite, "instance(seed) contains a non-finite number")
    same_types = types_of(params) == types_of(other)
    _require(same_types, "instance(seed) must have the same structure, shapes and dtypes for every seed")
    _require(
        same(params, again), "instance(seed) gives different results for the same seed: draw from default_rng(seed)"
    )
    return params


def _check_types(env: AnyEnvironment, params: object, seed: int) -> None:
    """A trace fixes structures, shapes and dtypes, so one trace checks every step."""
    key, action = jax.random.key(seed), _sample(env.action_space, np.random.default_rng(seed))
    started = _traced("reset", env.reset, key, params)
    _require(isinstance(started, tuple) and len(started) == 2, "reset must return (observation, state)")
    observation, state = started
    _check_observation_type(env.observation_space, observation, "reset")
    _require(WEAK not in types_of(state), "reset: the state is weakly typed: set explicit dtypes when creating it")
    for name, function in (("transition", env.transition), ("step", env.step)):
        moved = _traced(name, function, key, state, action, params)
        _require(isinstance(moved, Step), f"{name} must return a Step, got {type(moved).__name__}")
        _check_observation_type(env.observation_space, moved.observation, name)
        before, after = types_of(state), types_of(moved.state)
        changed = f"the state changes its structure, shapes or dtypes in {name}: {before} became {after}"
        _require(before == after, changed)
        for field, dtype in (("reward", np.float32), ("terminated", np.bool_), ("truncated", np.bool_)):
            value = getattr(moved, field)
            right = getattr(value, "shape", None) == () and value.dtype == dtype
            _require(right, f"{name}: {field} must be a {np.dtype(dtype)} scalar, got {value}")
        _require(isinstance(moved.info, dict), f"{name}: info must be a dictionary, got {moved.info!r}")
        kept = name == "transition" or "final_observation" in moved.info
        _require(kept, 'step must keep the true last observation in info["final_observation"]')
    if env.cells is not None:
        cell = _traced("cell", env.cell, state)
        integer = getattr(cell, "shape", None) == () and cell.dtype == np.int32
        _require(integer, f"cell must return an int32 scalar, got {cell}")


def _check_observation_type(space: Space, observation: Any, source: str) -> None:
    right = getattr(observation, "shape", None) == space.shape and observation.dtype == space.dtype
    _require(right, f"{source}: the observation must be {space.dtype}{list(space.shape)}, got {observation}")
    # Weak types are lost on saving and loading, which costs a second compilation.
    weak = getattr(observation, "weak_type", False)
    _require(not weak, f"{source}: the observation is weakly typed: set an explicit dtype when creating it")


def _check_rounds(env: AnyEnvironment, params: object, seed: int, num_steps: int) -> None:
    """Play `num_steps` random decisions, the first ones again in parallel, and check the results."""
    rng = np.random.default_rng(seed)
    keys = _keys(seed, num_steps + 1)
    start, play = jax.jit(_starter(env)), jax.jit(_player(env))
    observation, state, cell = start(keys[-1].whole, params)
    inputs, rounds = [], []
    for key in keys[:-1]:
        inputs.append((key, state, _sample(env.action_space, rng)))
        rounds.append(play(*inputs[-1], params))
        state = rounds[-1].stepped.state
    _check_repeated(env, params, inputs[:REPEATED], [result.single for result in rounds[:REPEATED]])
    _check_place(env, observation, cell, "reset")
    age = 0
    for number, result in enumerate(rounds):
        ended = bool(result.single.moved.terminated) or bool(result.single.moved.truncated)
        _check_round(env, result, ended, f"step {number}")
        age = 0 if ended else age + 1
        _require(age < env.max_steps, f"the episode continues after max_steps={env.max_steps} steps")


def _keys(seed: int, number: int) -> list[_Keys]:
    whole = jax.random.split(jax.random.key(seed), number)
    halves = jax.vmap(jax.random.split)(jax.random.clone(whole))
    whole, halves = np.asarray(jax.random.key_data(whole)), np.asarray(jax.random.key_data(halves))
    return [_Keys(*row) for row in zip(whole, halves[:, 0], halves[:, 1], strict=True)]


def _starter(env: AnyEnvironment) -> Callable[..., tuple[jax.Array, object, jax.Array]]:
    def start(data: jax.Array, params: object) -> tuple[jax.Array, object, jax.Array]:
        observation, state = env.reset(jax.random.wrap_key_data(data), params)
        return observation, state, _cell(env, state)

    return start


def _single_player(env: AnyEnvironment) -> Callable[..., _Single]:
    """`transition` and `reset` as new functions, so JAX traces them again."""

    def play(keys: Any, state: object, action: jax.Array, params: object) -> _Single:
        key_move, key_reset = jax.random.wrap_key_data(keys.move), jax.random.wrap_key_data(keys.reset)
        return _Single(env.transition(key_move, unused(state), action, params), env.reset(key_reset, params))

    return play


def _player(env: AnyEnvironment) -> Callable[..., _Round]:
    single_player = _single_player(env)

    def play(keys: Any, state: object, action: jax.Array, params: object) -> _Round:
        single = single_player(keys, state, action, params)
        stepped = env.step(jax.random.wrap_key_data(keys.whole), unused(state), action, params)
        return _Round(single, stepped, _cell(env, single.moved.state))

    return play


def _cell(env: AnyEnvironment, state: object) -> jax.Array:
    return jnp.array(-1) if env.cells is None else env.cell(state)


def _check_repeated(env: AnyEnvironment, params: object, inputs: list[tuple], results: list[_Single]) -> None:
    """Parallel environments must give the same results as single ones.

    A second trace also detects values frozen by the first one: a NumPy draw, a clock, a counter. If the results differ,
    a third trace tells the two causes apart.
    """
    alone = jax.tree.map(stacked, *results)
    try:
        many = jax.jit(jax.vmap(_single_player(env), (0, 0, 0, None)))
        together = many(*jax.tree.map(stacked, *inputs), params)
    except Exception as error:
        raise ContractError(f"cannot be vectorised by jax.vmap: {error}") from error
    for name, field in (("reset", "restarted"), ("transition", "moved")):
        if not same(getattr(alone, field), getattr(together, field)):
            play = jax.jit(_single_player(env))
            again = jax.tree.map(stacked, *[play(*given, params) for given in inputs])
            pure = same(getattr(alone, field), getattr(again, field))
            _require(pure, f"{name} gives different results for the same key and arguments")
            raise ContractError(f"{name} gives different results under jax.vmap")


def _check_round(env: AnyEnvironment, result: _Round, ended: bool, at: str) -> None:
    (moved, restarted), stepped, cell = result
    _check_place(env, moved.observation, cell, at)
    _require(np.isfinite(moved.reward), f"{at}: the reward is not finite: {moved.reward}")
    kept = same(stepped.info["final_observation"], moved.observation)
    _require(kept, f'{at}: info["final_observation"] of step is not the observation of transition')
    agree = same(stepped[2:5], moved[2:5])
    _require(agree, f"{at}: step and transition differ in reward, terminated or truncated")
    expected = restarted if ended else (moved.observation, moved.state)
    continued = same((stepped.observation, stepped.state), expected)
    _require(continued, f"{at}: step must continue from reset after an episode ends, and from transition otherwise")


def _check_place(env: AnyEnvironment, observation: jax.Array, cell: jax.Array, at: str) -> None:
    values, space = np.asarray(observation), env.observation_space
    finite = values.dtype.kind != "f" or bool(np.all(np.isfinite(values)))
    _require(finite, f"{at}: the observation is not finite: {values}")
    _require(space.contains(values), f"{at}: the observation is not in {space}: {values}")
    if env.cells is not None:
        size = env.cells.size
        _require(-1 <= int(cell) < size, f"{at}: cell must be -1 or one of the {size} cells, got {cell}")


def _traced(name: str, function: Callable[..., object], *arguments: object) -> Any:
    """The types of the results of a function; raises if it cannot be traced and so not compiled."""
    try:
        return jax.eval_shape(lambda *values: function(*values), *arguments)
    except Exception as error:
        raise ContractError(f"{name} cannot be compiled by jax.jit: {error}") from error


def _sample(space: Space, rng: np.random.Generator) -> np.ndarray:
    """A random element of an action space."""
    if isinstance(space, Discrete):
        return np.asarray(rng.integers(space.n), np.int32)
    if isinstance(space, MultiDiscrete):
        return rng.integers(space.sizes, dtype=np.int32)
    assert isinstance(space, Box)
    bounded = np.isfinite(space.low) and np.isfinite(space.high)
    values = rng.uniform(space.low, space.high, space.shape) if bounded else rng.normal(size=space.shape)
    return np.clip(values, space.low, space.high).astype(np.float32)


WEAK = "*"  # marks a weakly typed leaf


def types_of(tree: Any) -> str:
    """Structure, shapes and dtypes of a pytree as text; a weak dtype is marked."""

    def text(leaf: Any) -> str:
        return f"{leaf.dtype}{list(leaf.shape)}{WEAK if getattr(leaf, 'weak_type', False) else ''}"

    return str(jax.tree.map(text, tree))


def is_key(leaf: Any) -> bool:
    """Whether a leaf is an array of typed keys."""
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def unused(tree: Any) -> Any:
    """The pytree with its keys marked as unused, for a program that reuses them on purpose."""
    return jax.tree.map(lambda leaf: jax.random.clone(leaf) if is_key(leaf) else leaf, tree)


def _numbers(leaf: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf)


def stacked(*leaves: Any) -> Any:
    """The leaves as rows of one array; keys stay keys."""
    rows = np.stack([_numbers(leaf) for leaf in leaves])
    return jax.random.wrap_key_data(jnp.asarray(rows)) if is_key(leaves[0]) else rows


def same(left: Any, right: Any) -> bool:
    """Whether two pytrees agree, up to rounding, which differs between programs."""

    def agree(a: Any, b: Any) -> bool:
        a, b = _numbers(a), _numbers(b)
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        return np.allclose(a, b, 1e-4, 1e-6, True) if a.dtype.kind == "f" else np.array_equal(a, b)

    same_structure = jax.tree.structure(left) == jax.tree.structure(right)
    return same_structure and jax.tree.all(jax.tree.map(agree, left, right))
