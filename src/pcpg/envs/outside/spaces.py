"""Gymnasium's spaces as ours: how an observation becomes a vector or an image, and an action what the space expects.

| observation                                  | what the networks see                                    |
|----------------------------------------------|----------------------------------------------------------|
| Box of bytes [h, w, 1 to 4], 16 x 16 or more | an image                                                 |
| any other Box                                | its entries as a vector; bytes divided by their bound    |
| Discrete, MultiDiscrete                      | one-hot, one after the other                             |
| MultiBinary                                  | zeros and ones                                           |
| Dict, Tuple                                  | the vectors of their parts, in the order of the space    |
| Text in a Dict or Tuple                      | left out, with a notice                                  |
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from pcpg.envs.options import InvalidOption
from pcpg.envs.spaces import Box, Discrete, Image, MultiDiscrete

OBSERVATIONS = "Box, Discrete, MultiDiscrete, MultiBinary, and Dict or Tuple of these"
ACTIONS = "Discrete, MultiDiscrete, and Box with finite bounds"
SMALLEST_IMAGE = 16
"""Least height and width of an image: below, bytes are rather codes than brightness, and convolutions see little."""


class Observations(NamedTuple):
    """How an observation is seen by networks."""

    space: Box | Image
    encode: Callable[[Any], np.ndarray]  # one observation -> an element of the space
    notices: tuple[str, ...] = ()


class Actions(NamedTuple):
    """How an action of a policy becomes one of the environment."""

    space: Discrete | MultiDiscrete | Box
    decode: Callable[[np.ndarray], Any]  # actions [n, ...] of the policy -> those of the environment, [n, ...]


def observations_of(space: gymnasium.Space[Any]) -> Observations:
    """What networks see of observations in this space; refuses what cannot be turned into numbers."""
    if is_image(space):
        return Observations(Image(*(space.shape or ())), lambda value: np.asarray(value, np.uint8))
    size, write, notices = _vector(space, "the observation")
    if size == 0:
        raise InvalidOption(f"observations of {space} hold no numbers; supported are {OBSERVATIONS}")
    low, high = _bounds(space)

    def encode(value: Any) -> np.ndarray:
        out = np.zeros(size, np.float32)
        write(value, out)
        return out

    return Observations(Box(low, high, (size,)), encode, notices)


def actions_of(space: gymnasium.Space[Any]) -> Actions:
    """How policies act in this space: integers as they are, real numbers from [-1, 1] to the bounds."""
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return Actions(Discrete(int(space.n)), lambda actions: actions.astype(np.int64) + start)
    if isinstance(space, spaces.MultiDiscrete):
        start, shape, dtype = np.asarray(space.start).reshape(-1), space.shape, space.dtype
        sizes = tuple(int(n) for n in np.asarray(space.nvec).reshape(-1))
        return Actions(MultiDiscrete(sizes), lambda actions: (actions + start).reshape(-1, *shape).astype(dtype))
    if isinstance(space, spaces.Box) and np.isfinite(space.low).all() and np.isfinite(space.high).all():
        shape, dtype = space.shape, space.dtype
        low, high = (np.asarray(bound, np.float64).reshape(-1) for bound in (space.low, space.high))
        middle, half = (low + high) / 2, (high - low) / 2

        def decode(actions: np.ndarray) -> np.ndarray:
            return (middle + half * np.clip(actions, -1.0, 1.0)).reshape(-1, *shape).astype(dtype)

        return Actions(Box(-1.0, 1.0, (math.prod(shape),)), decode)
    raise InvalidOption(f"actions in {space} are not supported; supported are {ACTIONS}")


def is_image(space: gymnasium.Space[Any]) -> bool:
    """Whether elements are pictures: bytes by row, column and channel."""
    return (
        isinstance(space, spaces.Box)
        and space.dtype == np.uint8
        and len(space.shape) == 3
        and min(space.shape[:2]) >= SMALLEST_IMAGE
        and space.shape[2] <= 4
    )


def _is_text(space: gymnasium.Space[Any]) -> bool:
    """Whether elements are strings; MiniGrid's missions are no Text space."""
    return isinstance(space, spaces.Text) or (space.dtype is not None and space.dtype.kind == "U")


Writer = Callable[[Any, np.ndarray], None]  # element, the part of the vector it goes to


def _vector(space: gymnasium.Space[Any], name: str) -> tuple[int, Writer, tuple[str, ...]]:
    """Entries an element takes in a vector, what writes it there, and notices."""
    if isinstance(space, spaces.Box):
        return math.prod(space.shape), _box_writer(space), ()
    if isinstance(space, spaces.MultiBinary):
        return math.prod(space.shape), _plain_writer, ()
    if isinstance(space, spaces.Discrete):
        return int(space.n), _one_hot_writer(np.asarray([int(space.n)]), np.asarray([int(space.start)])), ()
    if isinstance(space, spaces.MultiDiscrete):
        sizes = np.asarray(space.nvec).reshape(-1)
        return int(sizes.sum()), _one_hot_writer(sizes, np.asarray(space.start).reshape(-1)), ()
    if _is_text(space):
        return 0, lambda value, out: None, (f"{name} is text and is left out",)
    if isinstance(space, spaces.Dict):
        return _parts([(key, part, f"{name}[{key!r}]") for key, part in space.spaces.items()])
    if isinstance(space, spaces.Tuple):
        return _parts([(index, part, f"{name}[{index}]") for index, part in enumerate(space.spaces)])
    raise InvalidOption(f"{name} is {space}, which is not supported; supported are {OBSERVATIONS}")


def _parts(named: list[tuple[Any, gymnasium.Space[Any], str]]) -> tuple[int, Writer, tuple[str, ...]]:
    places, notices, end = [], (), 0
    for key, part, name in named:
        size, write, said = _vector(part, name)
        places.append((key, end, end + size, write))
        notices += said
        end += size

    def write_all(value: Any, out: np.ndarray) -> None:
        for key, first, last, write in places:
            write(value[key], out[first:last])

    return end, write_all, notices


def _plain_writer(value: Any, out: np.ndarray) -> None:
    out[:] = np.asarray(value).reshape(-1)


def _box_writer(space: spaces.Box) -> Writer:
    if space.dtype != np.uint8:
        return _plain_writer
    scale = (1.0 / np.maximum(space.high, 1)).reshape(-1).astype(np.float32)

    def write(value: Any, out: np.ndarray) -> None:
        np.multiply(np.asarray(value).reshape(-1), scale, out=out)

    return write


def _one_hot_writer(sizes: np.ndarray, start: np.ndarray) -> Writer:
    offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]]) - start

    def write(value: Any, out: np.ndarray) -> None:
        out[offsets + np.asarray(value).reshape(-1)] = 1.0

    return write


def _bounds(space: gymnasium.Space[Any]) -> tuple[float, float]:
    """The least and the largest entry that a vector can hold."""
    if isinstance(space, spaces.Box) and space.dtype != np.uint8:
        low, high = float(space.low.min(initial=np.inf)), float(space.high.max(initial=-np.inf))
        return (low, high) if low < high else (low, low + 1.0)
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        bounds = [_bounds(part) for part in parts if not _is_text(part)]
        return min(low for low, _ in bounds), max(high for _, high in bounds)
    return 0.0, 1.0
