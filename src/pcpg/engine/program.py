"""One compiled program for many seeds, such that a seed's result does not depend on its neighbours.

On a CPU the program is that of ONE seed, called for several seeds at once from threads: the same machine code
whatever else runs. On an accelerator it is a `vmap` of a fixed width, padded with copies: there a lane does
not depend on its place or its neighbours, but another width is another program with other rounding. Where there are
several devices, batches of seeds take turns on them: the same program on each.
"""

import contextlib
import contextvars
import operator
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

import jax
import numpy as np

from pcpg.config import ConfigError
from pcpg.machine import available_cores

Inputs = TypeVar("Inputs")
Outputs = TypeVar("Outputs")
Item = TypeVar("Item")
Made = TypeVar("Made")

ACCELERATOR_LANES = 32
"""Width of the program on an accelerator: an update of 20 seeds there costs hardly more than one of a single seed."""


def default_lanes() -> int:
    """1 on a CPU (threads over seeds), the fixed width of the vmap elsewhere."""
    return 1 if jax.default_backend() == "cpu" else ACCELERATOR_LANES


_DEVICES = contextvars.ContextVar("pcpg-devices", default=0)


@contextlib.contextmanager
def on_devices(count: int) -> Iterator[None]:
    """In here seeds are spread over the first so many devices; 0: over all."""
    there = len(jax.devices())
    if not 0 <= count <= there:
        raise ConfigError(f"devices must be 0 (all) or at most the {there} that JAX sees here, got {count}")
    token = _DEVICES.set(count)
    try:
        yield
    finally:
        _DEVICES.reset(token)


def devices() -> list[Any]:
    """Those that seeds are spread over: of one kind, since another kind computes other bits."""
    found = [device for device in jax.devices() if device.device_kind == jax.devices()[0].device_kind]
    return found[: _DEVICES.get() or None]


def in_threads(function: Callable[[Item], Made], items: Iterable[Item]) -> list[Made]:
    """What a function makes of each item, on all cores: for work of NumPy and LAPACK that holds no lock."""
    with ThreadPoolExecutor(len(available_cores())) as pool:
        return list(pool.map(function, items))


def compiler_options() -> dict[str, bool]:
    """One XLA thread a seed: the cores are filled with seeds, and no result depends on their number."""
    return {"xla_cpu_multi_thread_eigen": False} if jax.default_backend() == "cpu" else {}


class Program(Generic[Inputs, Outputs]):
    """A pure function of one seed's inputs, compiled at its first use and never again."""

    def __init__(self, function: Callable[[Inputs], Outputs], lanes: int, axes: object = 0) -> None:
        """`axes` are those of `jax.vmap`: None for a part of the inputs that is the same for all seeds."""
        self.lanes, self.axes = lanes, axes
        self.compile_seconds = 0.0
        self.compilations = 0
        mapped = function if lanes == 1 else jax.vmap(function, in_axes=(axes,))
        self._jitted = jax.jit(mapped, compiler_options=compiler_options())
        self._compiled: dict[Any, Callable[[Any], Any]] = {}  # by device

    @property
    def programs(self) -> "tuple[Program[Inputs, Outputs], ...]":
        return (self,)

    def __call__(self, inputs: Sequence[Inputs]) -> list[Outputs]:
        """The outputs for each seed's inputs, as NumPy arrays."""
        if not inputs:
            return []
        batches = [inputs[i : i + self.lanes] for i in range(0, len(inputs), self.lanes)]
        packed = [_pack(batch, self.lanes, self.axes) for batch in batches]
        places = devices()
        compiled = [self._compile(packed[0], device) for device in places[: len(packed)]]
        turns = [compiled[number % len(compiled)] for number in range(len(packed))]
        with ThreadPoolExecutor(max_workers=len(available_cores()) if self.lanes == 1 else len(compiled)) as pool:
            outputs = list(pool.map(lambda run, arguments: jax.device_get(run(arguments)), turns, packed))
        return [
            lane
            for batch, output in zip(batches, outputs, strict=True)
            for lane in _unpack(output, len(batch), self.lanes)
        ]

    def _compile(self, arguments: object, device: object) -> Callable[[Any], Any]:
        if device not in self._compiled:
            start = time.perf_counter()
            with jax.default_device(device) if device != jax.devices()[0] else contextlib.nullcontext():
                self._compiled[device] = self._jitted.lower(arguments).compile()
            self.compile_seconds += time.perf_counter() - start
            self.compilations += 1
        return self._compiled[device]


class Programs(Generic[Inputs, Outputs]):
    """A program for each shape of inputs: seeds of one shape run together, so none depends on the others' shapes."""

    def __init__(self, function: Callable[[Inputs], Outputs], lanes: int) -> None:
        self.function, self.lanes = function, lanes
        self._by_shape: dict[tuple[object, ...], Program[Inputs, Outputs]] = {}

    @property
    def programs(self) -> "tuple[Program[Inputs, Outputs], ...]":
        return tuple(self._by_shape.values())

    def __call__(self, inputs: Sequence[Inputs]) -> list[Outputs]:
        """The outputs for each seed's inputs, as NumPy arrays."""
        shapes = [tuple((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(one)) for one in inputs]
        outputs: dict[int, Outputs] = {}
        for shape in dict.fromkeys(shapes):
            which = [number for number, own in enumerate(shapes) if own == shape]
            program = self._by_shape.setdefault(shape, Program(self.function, self.lanes))
            outputs |= dict(zip(which, program([inputs[number] for number in which]), strict=True))
        return [outputs[number] for number in range(len(inputs))]


def _pack(batch: Sequence[Inputs], lanes: int, axes: object) -> Any:
    if lanes == 1:
        return batch[0]
    padded = list(batch) + [batch[0]] * (lanes - len(batch))

    def join(axis: int | None, *parts: object) -> Any:
        if axis is None:
            return parts[0]
        stacked = jax.tree.map(lambda leaf: np.empty((lanes, *np.shape(leaf)), np.asarray(leaf).dtype), parts[0])

        def put(lane: int) -> None:
            jax.tree.map(lambda out, leaf: np.copyto(out[lane, ...], leaf), stacked, parts[lane])

        in_threads(put, range(lanes))  # covers of images take a gigabyte
        return stacked

    return jax.tree.map(join, axes, *padded, is_leaf=lambda axis: axis is None)


def _unpack(output: object, count: int, lanes: int) -> list[Any]:
    if lanes == 1:
        return [output]
    return [jax.tree.map(operator.itemgetter(lane), output) for lane in range(count)]
