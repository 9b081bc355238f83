"""The functional environments as Gymnasium environments, for plain Python loops.

    import gymnasium
    import pcpg.envs.gymnasium_bridge  # registers "pcpg/CombinationLock-v0" and the others

    env = gymnasium.make("pcpg/CombinationLock-v0", horizon=5, instance_seed=3)

Since Gymnasium 1.0 there are no plug-in entry points: a package registers its environments on import.
Without the import, name the module in the id: "pcpg.envs.gymnasium_bridge:pcpg/CombinationLock-v0".
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from pcpg.envs import registry
from pcpg.envs.protocol import Environment
from pcpg.envs.spaces import Box, Discrete, MultiDiscrete, Space

NAMESPACE = "pcpg"
AnyEnvironment = Environment


class _Moved(NamedTuple):
    """The result of a compiled step: few arrays, since returning one costs as much as the step."""

    key: jax.Array  # key data of the next key, so that no key is split or wrapped in Python
    state: object
    observation: jax.Array
    outcome: jax.Array  # float32[3]: reward, terminated, truncated
    info: dict[str, jax.Array]


class _Programs(NamedTuple):
    """The compiled reset and step of an environment."""

    reset: Callable[[jax.Array, object], tuple[jax.Array, object, jax.Array]]
    step: Callable[[jax.Array, object, object, object], _Moved]


@functools.lru_cache(maxsize=256)
def _programs(env: AnyEnvironment) -> _Programs:
    """The compiled reset and step, shared by all instances with the same options."""

    def reset(data: jax.Array, params: object) -> tuple[jax.Array, object, jax.Array]:
        key, key_reset = jax.random.split(jax.random.wrap_key_data(data))
        observation, state = env.reset(key_reset, params)
        return jax.random.key_data(key), state, observation

    def step(data: jax.Array, state: object, action: jax.Array, params: object) -> _Moved:
        key, key_move = jax.random.split(jax.random.wrap_key_data(data))
        moved = env.transition(key_move, state, action, params)
        outcome = jnp.stack([moved.reward, moved.terminated, moved.truncated]).astype(jnp.float32)
        return _Moved(jax.random.key_data(key), moved.state, moved.observation, outcome, moved.info)

    return _Programs(jax.jit(reset), jax.jit(step))


def _host() -> Any:
    """The device to step on: single small steps are faster on the CPU than on any accelerator."""
    try:
        return jax.devices("cpu")[0]
    except RuntimeError:  # JAX was told to use an accelerator and nothing else
        return jax.devices()[0]


class FunctionalEnv(gymnasium.Env):
    """A functional environment behind the interface of Gymnasium: NumPy in, NumPy out, state inside.

    `reset(seed=s)` sets the key to `jax.random.key(s)`. Every reset and every step replaces the key by the
    first half of its split and uses the second, so an episode can be repeated with the functional one.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (declared so by Gymnasium)

    def __init__(self, env: AnyEnvironment, *, instance_seed: int = 0, render_mode: str | None = None) -> None:
        modes = ["rgb_array"] if env.can_render else []
        if render_mode not in (None, *modes):
            raise ValueError(f"render_mode must be one of {[None, *modes]}, got {render_mode!r}")
        self.metadata = {"render_modes": modes, "render_fps": 10}
        self.functional = env
        self.render_mode = render_mode
        self.observation_space = to_gymnasium_space(env.observation_space)
        self.action_space = to_gymnasium_space(env.action_space)
        self._programs = _programs(env)
        self._device = _host()
        self._params = jax.device_put(env.instance(instance_seed), self._device)
        self._key: jax.Array | None = None  # key data
        self._state: object = None
        self._shown: object = None  # the newest state, the last one of an episode included

    @property
    def params(self) -> object:
        """The arrays of the instance."""
        return self._params

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[Any, dict[str, object]]:
        """Start an episode; returns the first observation and an empty info."""
        super().reset(seed=seed)
        del options
        key = self._key
        if seed is not None or key is None:
            value = self.np_random.integers(2**31) if seed is None else seed
            key = jax.device_put(jax.random.key_data(jax.random.key(int(value) % 2**32)), self._device)
        self._key, self._state, observation = self._programs.reset(key, self._params)
        self._shown = self._state
        return self._to_host(observation), {}

    def step(self, action: object) -> tuple[Any, float, bool, bool, dict[str, object]]:
        """Take one step; after the end of an episode, call reset first."""
        if self._state is None or self._key is None:
            raise gymnasium.error.ResetNeeded("call reset() before step(), at the start and after every episode")
        moved = self._programs.step(self._key, self._state, self._checked(action), self._params)
        reward, terminated, truncated = np.asarray(moved.outcome).tolist()
        self._key, self._state = moved.key, None if terminated or truncated else moved.state
        self._shown = moved.state
        info = jax.tree.map(np.array, moved.info) if moved.info else {}
        return self._to_host(moved.observation), reward, bool(terminated), bool(truncated), info

    def render(self) -> np.ndarray | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """A picture of the newest state, uint8 [height, width, 3]; None without a render mode."""
        if self.render_mode is None:
            return None
        if self._shown is None:
            raise gymnasium.error.ResetNeeded("call reset() before render()")
        return self.functional.render(self._params, self._shown)

    def _checked(self, action: object) -> np.ndarray:
        """The action as an array of the space; real actions may lie out of bounds, as is usual in Gymnasium."""
        space = self.functional.action_space
        value = np.asarray(action)
        if isinstance(space, Discrete | MultiDiscrete):
            if not space.contains(value):
                one = isinstance(space, Discrete)
                expected = f"an integer from 0 to {space.n - 1}" if one else f"integers from 0, below {space.sizes}"
                raise ValueError(f"action must be {expected}, got {action!r}")
            return value.astype(np.int32)
        if value.shape != space.shape:
            raise ValueError(f"action must have shape {space.shape}, got {value.shape}")
        return value.astype(np.float32)

    def _to_host(self, observation: jax.Array) -> object:
        """A writable copy, since JAX's view is read-only."""
        if isinstance(self.functional.observation_space, Discrete):
            return np.int64(observation)
        return np.array(observation)


def to_gymnasium_space(space: Space) -> gymnasium.Space:
    """The Gymnasium space with the same elements."""
    if isinstance(space, Discrete):
        return gymnasium.spaces.Discrete(space.n)
    if isinstance(space, MultiDiscrete):
        return gymnasium.spaces.MultiDiscrete(list(space.sizes), dtype=np.int32)
    if isinstance(space, Box):
        return gymnasium.spaces.Box(space.low, space.high, space.shape, np.float32)
    return gymnasium.spaces.Box(0, 255, space.shape, np.uint8)


def make_functional(
    env_id: str, *, instance_seed: int = 0, render_mode: str | None = None, **options: object
) -> FunctionalEnv:
    """The entry point of a registered environment for `gymnasium.make`."""
    return FunctionalEnv(registry.make(env_id, **options), instance_seed=instance_seed, render_mode=render_mode)


def register_all() -> None:
    """Register every environment of the registry with Gymnasium, as "pcpg/<id>", unless already registered."""
    for spec in registry.spec():
        name = f"{NAMESPACE}/{spec.id}"
        if name not in gymnasium.registry:
            gymnasium.register(name, f"{__name__}:{make_functional.__name__}", kwargs={"env_id": spec.id})


register_all()
