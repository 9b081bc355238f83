"""Spaces: what an observation or an action looks like."""

import dataclasses
import math
from typing import ClassVar

import numpy as np


@dataclasses.dataclass(frozen=True)
class Discrete:
    """The integers 0 .. n-1, as int32 scalars."""

    n: int
    shape: ClassVar[tuple[int, ...]] = ()
    dtype: ClassVar[np.dtype] = np.dtype(np.int32)

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ValueError(f"Discrete space needs at least one element, got n={self.n}")

    def contains(self, value: object) -> bool:
        """Whether `value` is one of the integers of the space."""
        array = np.asarray(value)
        return array.shape == () and array.dtype.kind in "iu" and 0 <= int(array) < self.n


@dataclasses.dataclass(frozen=True)
class MultiDiscrete:
    """Several integers at once, as an int32 vector: entry i is one of 0 .. sizes[i]-1."""

    sizes: tuple[int, ...]
    dtype: ClassVar[np.dtype] = np.dtype(np.int32)

    def __post_init__(self) -> None:
        if not self.sizes or min(self.sizes) < 1:
            raise ValueError(f"MultiDiscrete space needs sizes of at least one element each, got {self.sizes}")

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.sizes),)

    def contains(self, value: object) -> bool:
        """Whether `value` is a vector of integers of the space."""
        array = np.asarray(value)
        if array.shape != self.shape or array.dtype.kind not in "iu":
            return False
        return bool(np.all((array >= 0) & (array < self.sizes)))


@dataclasses.dataclass(frozen=True)
class Box:
    """Float32 arrays of one shape, every entry between `low` and `high`."""

    low: float
    high: float
    shape: tuple[int, ...]
    dtype: ClassVar[np.dtype] = np.dtype(np.float32)

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ValueError(f"Box space needs low < high, got low={self.low}, high={self.high}")

    def contains(self, value: object) -> bool:
        """Whether `value` has the shape of the space and lies within its bounds."""
        array = np.asarray(value)
        return (
            array.shape == self.shape
            and array.dtype.kind == "f"
            and bool(np.all((array >= self.low) & (array <= self.high)))
        )


@dataclasses.dataclass(frozen=True)
class Cells(Box):
    """A Box of zeros and ones of which a part is a grid: `count` cells of `width` entries each, from `start` on."""

    start: int
    count: int
    width: int


@dataclasses.dataclass(frozen=True)
class Image:
    """Unsigned bytes of shape (height, width, channels)."""

    height: int
    width: int
    channels: int
    dtype: ClassVar[np.dtype] = np.dtype(np.uint8)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.height, self.width, self.channels)

    def contains(self, value: object) -> bool:
        """Whether `value` is a byte image of the size of the space."""
        array = np.asarray(value)
        return array.shape == self.shape and array.dtype == np.uint8


Space = Discrete | MultiDiscrete | Box | Image


MOST_ENTRIES = 10_000_000
"""Limit for one observation or action: beyond it, even a network's first layer is unreasonable."""


def flat_size(space: Space) -> int:
    """Number of entries of one element; each discrete part counts as its one-hot vector."""
    if isinstance(space, Discrete):
        return space.n
    return sum(space.sizes) if isinstance(space, MultiDiscrete) else math.prod(space.shape)
