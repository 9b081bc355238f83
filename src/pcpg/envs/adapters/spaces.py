"""Conversion of Gymnasium's spaces: observations become vectors or images, and actions elements of the space.

| observation                                  | what the networks see                                    |
|----------------------------------------------|----------------------------------------------------------|
| Box of bytes [h, w, 1 to 4], 16 x 16 or more | an image                                                 |
| any other Box                                | its entries as a vector; bytes divided by their bound    |
| Discrete, MultiDiscrete                      | one-hot, one after the other                             |
| MultiDiscrete [h, w, c], alike in each cell  | the same, known as a grid of cells                       |
| MultiBinary                                  | zeros and ones                                           |
| Dict, Tuple                                  | the vectors of their parts, in the order of the space    |
| Text in a Dict or Tuple                      | left out, with a notice                                  |
| a part without entries                       | left out                                                 |

An observation whose shape or codes do not fit its space is refused with a ValueError.
"""

import base64
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike

from pcpg.config import Json
from pcpg.envs.options import InvalidOption
from pcpg.envs.spaces import MOST_ENTRIES, Box, Cells, Discrete, Image, MultiDiscrete

OBSERVATIONS = "Box, Discrete, MultiDiscrete, MultiBinary, and Dict or Tuple of these"
ACTIONS = "Discrete, MultiDiscrete, and Box with finite bounds"
SMALLEST_IMAGE = 16
"""Least height and width of an image: in smaller boxes bytes are more likely codes, and convolutions see little."""
WHOLE = "the observation"
"""The name of an observation in messages; its parts append their key or index."""


class Observations(NamedTuple):
    """How an observation is converted for networks."""

    space: Box | Image
    encode: Callable[[Any], np.ndarray]  # one observation -> an element of the space
    notices: tuple[str, ...] = ()


class Actions(NamedTuple):
    """How an action of a policy is converted for the environment."""

    space: Discrete | MultiDiscrete | Box
    decode: Callable[[np.ndarray], Any]  # actions [n, ...] of the policy -> those of the environment, [n, ...]
    encode: Callable[[np.ndarray], np.ndarray]  # and back; what is outside the space stays outside


def observations_of(space: gymnasium.Space) -> Observations:
    """The conversion of observations in this space; refuses spaces without numbers."""
    if is_image(space):
        return Observations(Image(*(space.shape or ())), _image_encoder(space, WHOLE))
    whole = _part(space, WHOLE)
    if whole.size == 0:
        raise InvalidOption(f"observations of {space} contain no numbers; supported: {OBSERVATIONS}")

    def encode(value: object) -> np.ndarray:
        out = np.zeros(whole.size, np.float32)
        whole.write(value, out)
        return out

    box = whole.low, whole.high, (whole.size,)
    seen = Cells(*box, *whole.cells) if whole.is_binary and whole.cells is not None else Box(*box)
    return Observations(seen, encode, whole.notices)


def size_of(space: gymnasium.Space) -> int:
    """The entries that a part of an observation has in what networks see."""
    return _part(space, WHOLE).size


def actions_of(space: gymnasium.Space) -> Actions:
    """The conversion of actions to this space: integers unchanged, real numbers scaled from [-1, 1] to the bounds.

    In a Box of integers each value has an equal share of [-1, 1].
    """
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return Actions(Discrete(int(space.n)), lambda actions: actions.astype(np.int64) + start, lambda a: a - start)
    if isinstance(space, spaces.MultiDiscrete):
        start, shape, dtype = np.asarray(space.start).reshape(-1), space.shape, space.dtype
        sizes = tuple(int(n) for n in np.asarray(space.nvec).reshape(-1))
        return Actions(
            MultiDiscrete(sizes),
            lambda actions: (actions + start).reshape(-1, *shape).astype(dtype),
            lambda actions: _flat(actions, shape) - start,
        )
    if isinstance(space, spaces.Box) and np.isfinite(space.low).all() and np.isfinite(space.high).all():
        shape, dtype = space.shape, space.dtype
        if dtype is not None and dtype.kind in "iub":
            span = np.asarray(space.high, np.float64) - space.low + 1.0
            return Actions(
                Box(-1.0, 1.0, (math.prod(shape),)),
                _integer_decoder(space),
                lambda actions: _flat(2 * (np.asarray(actions, np.float64) - space.low + 0.5) / span - 1, shape),
            )
        low, high = (np.asarray(bound, np.float64).reshape(-1) for bound in (space.low, space.high))
        middle, half = (low + high) / 2, (high - low) / 2

        def decode(actions: np.ndarray) -> np.ndarray:
            return (middle + half * np.clip(actions, -1.0, 1.0)).reshape(-1, *shape).astype(dtype)

        def encode(actions: np.ndarray) -> np.ndarray:
            return (_flat(np.asarray(actions, np.float64), shape) - middle) / np.where(half > 0, half, 1.0)

        return Actions(Box(-1.0, 1.0, (math.prod(shape),)), decode, encode)
    raise InvalidOption(f"actions in {space} are not supported; supported: {ACTIONS}")


def _flat(actions: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Actions [n, *shape] as vectors."""
    if actions.shape[1:] != shape:
        raise ValueError(f"actions has rows of shape {actions.shape[1:]}, expected {shape}")
    return actions.reshape(len(actions), -1)


def _integer_decoder(space: spaces.Box) -> Callable[[np.ndarray], np.ndarray]:
    """From [-1, 1] to the integers of a Box, in equal bins."""
    low, high = (np.asarray(bound, np.float64) for bound in (space.low, space.high))
    span = high - low

    def decode(actions: np.ndarray) -> np.ndarray:
        shares = (np.clip(np.asarray(actions, np.float64), -1.0, 1.0).reshape(-1, *space.shape) + 1.0) / 2
        bins = np.floor(shares * (span + 1.0))
        last = bins >= span  # taken from the bound itself, which as a float may be beyond the type
        return np.where(last, space.high, (low + np.where(last, 0.0, bins)).astype(space.dtype))

    return decode


def is_image(space: gymnasium.Space) -> bool:
    """Whether elements are pictures: bytes by row, column and channel."""
    return (
        isinstance(space, spaces.Box)
        and space.dtype == np.uint8
        and len(space.shape) == 3
        and min(space.shape[:2]) >= SMALLEST_IMAGE
        and space.shape[2] <= 4
    )


def _is_text(space: gymnasium.Space) -> bool:
    """Whether elements are strings; MiniGrid's missions are no Text space."""
    return isinstance(space, spaces.Text) or (space.dtype is not None and space.dtype.kind == "U")


Writer = Callable[[Any, np.ndarray], None]  # element, the part of the vector it goes to


class _Part(NamedTuple):
    """How elements of a space are written into a vector."""

    size: int
    write: Writer
    low: float = 0.0  # the least and the largest entry; inf and -inf if there are none
    high: float = 1.0
    notices: tuple[str, ...] = ()
    is_binary: bool = False  # whether all entries are 0 or 1
    cells: tuple[int, int, int] | None = None  # where the cells of a grid begin, how many they are, entries of each


def _part(space: gymnasium.Space, name: str) -> _Part:
    """How an element, or a part that messages call by this name, is written."""
    if _is_text(space):
        return _Part(0, _write_nothing, np.inf, -np.inf, (f"ignoring {name}: it is text",))
    if isinstance(space, spaces.Dict):
        return _parts(space, name, list(space.spaces.items()))
    if isinstance(space, spaces.Tuple):
        return _parts(space, name, list(enumerate(space.spaces)))
    if isinstance(space, spaces.Discrete):
        writer = _one_hot_writer(space, name, [int(space.n)], [int(space.start)])
        return _Part(int(space.n), writer, is_binary=True)
    if 0 in (space.shape or ()):
        return _Part(0, _write_nothing, np.inf, -np.inf)
    if isinstance(space, spaces.MultiDiscrete):
        sizes, start = (np.asarray(part).reshape(-1) for part in (space.nvec, space.start))
        size, writer = int(sizes.sum()), _one_hot_writer(space, name, sizes, start)
        return _Part(size, writer, is_binary=True, cells=_cells(space, sizes))
    if isinstance(space, spaces.Box) and space.dtype != np.uint8:
        low, high = float(space.low.min()), float(space.high.max())
        return _Part(math.prod(space.shape), _plain_writer(space, name), low, high if low < high else low + 1.0)
    if isinstance(space, spaces.Box):
        scale = (1.0 / np.maximum(space.high, 1)).reshape(-1).astype(np.float32)
        return _Part(math.prod(space.shape), _plain_writer(space, name, scale))
    if isinstance(space, spaces.MultiBinary):
        return _Part(math.prod(space.shape), _plain_writer(space, name), is_binary=True)
    raise InvalidOption(f"{name} is {space}, which is not supported; supported: {OBSERVATIONS}")


def _cells(space: spaces.MultiDiscrete, sizes: np.ndarray) -> tuple[int, int, int] | None:
    """The cells of a grid [height, width, codes] whose codes have the same sizes in every cell; None: no grid."""
    if len(space.shape) != 3:
        return None
    each = sizes.reshape(-1, space.shape[-1])
    return (0, len(each), int(each[0].sum())) if bool(np.all(each == each[0])) else None


def _write_nothing(value: object, out: np.ndarray) -> None:
    """Ignores a part without numbers."""


def _parts(space: gymnasium.Space, name: str, parts: list[tuple[object, gymnasium.Space]]) -> _Part:
    """Writes the parts of a Dict or Tuple one after the other; parts without numbers are ignored."""
    found = [(key, _part(part, f"{name}[{key!r}]")) for key, part in parts]
    ends = np.cumsum([0, *(part.size for _, part in found)]).tolist()
    places = [(key, end, end + part.size, part.write) for (key, part), end in zip(found, ends, strict=False)]
    places = [place for place in places if place[2] > place[1]]

    def write_all(value: Any, out: np.ndarray) -> None:
        for key, first, last, write in places:
            try:
                part = value[key]
            except (KeyError, IndexError, TypeError):
                has = f"the keys {list(value)}" if isinstance(value, Mapping) else f"a {type(value).__name__}"
                raise ValueError(f"{name} has no {key!r}: got {has}, expected an element of {space}") from None
            write(part, out[first:last])

    low = min((part.low for _, part in found), default=np.inf)
    high = max((part.high for _, part in found), default=-np.inf)
    notices = tuple(text for _, part in found for text in part.notices)
    grids = [
        (start + part.cells[0], *part.cells[1:]) for (_, part), start in zip(found, ends, strict=False) if part.cells
    ]
    is_binary = all(part.is_binary for _, part in found if part.size)
    return _Part(ends[-1], write_all, low, high, notices, is_binary, grids[0] if len(grids) == 1 else None)


def _misshapen(name: str, array: np.ndarray, space: gymnasium.Space) -> ValueError:
    return ValueError(f"{name} has shape {array.shape}, expected shape {space.shape} of {space}")


def _fitting(value: object, space: gymnasium.Space, name: str) -> np.ndarray:
    """The value as an array of the space's shape, or an error."""
    array = np.asarray(value)
    if array.shape != space.shape:
        raise _misshapen(name, array, space)
    return array


def _image_encoder(space: gymnasium.Space, name: str) -> Callable[[Any], np.ndarray]:
    return lambda value: np.asarray(_fitting(value, space, name), np.uint8)


def _plain_writer(space: gymnasium.Space, name: str, scale: np.ndarray | None = None) -> Writer:
    """Writes the entries, scaled if needed."""

    def write(value: object, out: np.ndarray) -> None:
        array = _fitting(value, space, name).reshape(-1)
        if scale is None:
            out[:] = array
        else:
            np.multiply(array, scale, out=out)

    return write


def _one_hot_writer(space: gymnasium.Space, name: str, sizes: ArrayLike, start: ArrayLike) -> Writer:
    """Writes integers from `start` on, each one-hot; a single one may come as an array with one entry."""
    shape, sizes, start = space.shape, np.asarray(sizes, np.int64), np.asarray(start, np.int64)
    offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    first, end = (int(start[0]), int(start[0] + sizes[0])) if shape == () else (0, 0)

    def write(value: object, out: np.ndarray) -> None:
        if isinstance(value, int | np.integer) and first <= value < end:  # the usual case of Discrete, and fast
            out[int(value) - first] = 1.0
            return
        array = np.asarray(value)
        if array.shape != shape and (shape or array.size != 1):
            raise _misshapen(name, array, space)
        if array.dtype.kind not in "iub":
            raise ValueError(f"{name} is {value!r}, expected integers of {space}")
        codes = array.reshape(-1).astype(np.int64) - start
        wrong = (codes < 0) | (codes >= sizes)
        if wrong.any():
            at = int(wrong.argmax())
            where = f"entry {at} of {name}" if shape else name
            last = start[at] + sizes[at] - 1
            raise ValueError(f"{where} is {array.reshape(-1)[at]}, expected {start[at]} to {last}")
        out[offsets + codes] = 1.0

    return write


# Spaces in the files of a run.


def space_to_json(space: gymnasium.Space) -> Json:
    """A space as JSON values; of text only the fact that it is text."""
    if _is_text(space):
        return {"kind": "Text"}
    if isinstance(space, spaces.Dict):
        return {"kind": "Dict", "parts": [[key, space_to_json(part)] for key, part in space.spaces.items()]}
    if isinstance(space, spaces.Tuple):
        return {"kind": "Tuple", "parts": [space_to_json(part) for part in space.spaces]}
    if isinstance(space, spaces.Discrete):
        return {"kind": "Discrete", "n": int(space.n), "start": int(space.start)}
    arrays = {spaces.Box: ("low", "high"), spaces.MultiDiscrete: ("nvec", "start"), spaces.MultiBinary: ()}
    for kind, names in arrays.items():
        if isinstance(space, kind):
            found = {name: _array_to_json(np.asarray(getattr(space, name), space.dtype)) for name in names}
            return {"kind": kind.__name__, "shape": list(space.shape or ()), "dtype": str(space.dtype)} | found
    raise InvalidOption(f"{space} is not supported; supported: {OBSERVATIONS}")


def space_of_json(content: Json) -> gymnasium.Space:
    """The space that `space_to_json` recorded."""
    kind = content["kind"]
    if kind == "Text":
        return spaces.Text(1)
    if kind == "Dict":
        return spaces.Dict({str(key): space_of_json(part) for key, part in content["parts"]})
    if kind == "Tuple":
        return spaces.Tuple([space_of_json(part) for part in content["parts"]])
    if kind == "Discrete":
        return spaces.Discrete(int(content["n"]), start=int(content["start"]))
    shape, dtype = tuple(int(size) for size in content["shape"]), np.dtype(str(content["dtype"]))
    if dtype.kind not in "biuf" or math.prod(shape) > MOST_ENTRIES:
        raise ValueError(f"a space of {dtype} and shape {shape}")
    if kind == "MultiBinary":
        return spaces.MultiBinary(list(shape))
    names = {"Box": ("low", "high"), "MultiDiscrete": ("nvec", "start")}[kind]
    one, other = (_array_of_json(content[name], shape, dtype) for name in names)
    if kind == "Box":
        return spaces.Box(one, other, shape, dtype.type)
    return spaces.MultiDiscrete(one, dtype=dtype.type, start=other)


def _array_to_json(array: np.ndarray) -> str:
    """The bytes of an array, or of one number if all entries are equal."""
    first = array.reshape(-1)[:1]
    is_same = array.size > 0 and bool(np.all(array == first))
    return base64.b64encode((first if is_same else np.ascontiguousarray(array)).tobytes()).decode("ascii")


def _array_of_json(text: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    flat = np.frombuffer(base64.b64decode(text), dtype)
    return (np.broadcast_to(flat, shape) if flat.size == 1 else flat.reshape(shape)).copy()
