"""Greedy policies for other programs: a file of arrays for NumPy alone, and an ONNX graph."""

import importlib
import io
import itertools
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from pcpg.config import ConfigError
from pcpg.envs.host import HostEnvironment
from pcpg.envs.spaces import Box, Discrete, Image, MultiDiscrete
from pcpg.policy import Policy
from pcpg.runs.disk import check_output, write_file
from pcpg.runs.errors import MissingExtra


def arrays_of(policy: Policy) -> dict[str, np.ndarray]:
    """All that a greedy action follows from: `w0`, `b0`, ... of layers, or `places` and `w` of a kernel."""
    space = policy.env.action_space
    try:
        arrays = dict(policy.network.portable())
    except ValueError as error:
        raise ConfigError(f"{error}: use pcpg.load(folder).policy, or pickle it") from error
    if isinstance(policy.env.observation_space, Image):
        arrays["scale"] = arrays["scale"] / 255.0
    arrays["base"] = _sent(policy, 0)
    if isinstance(space, Box):
        arrays |= {"low": np.float32(space.low), "high": np.float32(space.high)}
        arrays["span"] = _sent(policy, 1) - arrays["base"]
        if "choices" in arrays:  # behind the action stands how sure it is
            arrays["choices"] = arrays["choices"][:, : space.shape[0]]
    elif isinstance(space, MultiDiscrete):
        arrays["sizes"] = np.array(space.sizes)
    return {name: np.asarray(array) for name, array in arrays.items()}


def _sent(policy: Policy, value: int) -> np.ndarray:
    """What the environment gets for an action whose parts have this value; from 0 and 1 all others follow."""
    action = np.full(policy.env.action_space.shape, value, policy.env.action_space.dtype)
    sent = policy.env.decode(action) if isinstance(policy.env, HostEnvironment) else action
    if isinstance(sent, dict | tuple):
        raise ConfigError("actions that are a Dict or Tuple cannot be written for other programs yet")
    return np.asarray(sent).reshape(action.shape)


def write_numpy(policy: Policy, path: Path) -> Path:
    """Write a policy's arrays to an .npz file."""
    arrays, buffer = arrays_of(policy), io.BytesIO()
    _check(path, ".npz", b"PK")
    np.savez(buffer, allow_pickle=False, **arrays)
    write_file(path, buffer.getvalue())
    return path


def act(arrays: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """The greedy action for one encoded observation; a program elsewhere needs no more than this function."""
    if "places" in arrays:  # a mean over landmarks, weighted by their distance
        distance = ((arrays["places"] - x.reshape(-1) * arrays["scale"]) ** 2).sum(1)
        near = np.exp(-arrays["sharpness"] * (distance - distance.min()))
        x = arrays["choices"][np.argmax(arrays["w"] @ near)]
    else:
        x = np.clip((x - arrays["mean"]) * arrays["scale"], -10, 10) if "mean" in arrays else x
        x = x.reshape(1, 1, -1) if "norm" in arrays else x  # [networks, 1, size]: their outputs are averaged
        for layer in range(int(arrays["layers"])):
            if layer and "norm" in arrays:
                x = x - x.mean(-1, keepdims=True)
                x = x / np.sqrt((x**2).mean(-1, keepdims=True) + arrays["norm"])
            x = (np.maximum(x, 0) if layer else x) @ arrays[f"w{layer}"] + arrays[f"b{layer}"]
        x = x.mean(0)[0] if "norm" in arrays else x
    if "low" in arrays:
        low, high = arrays["low"], arrays["high"]
        x = (low + high) / 2 + (high - low) / 2 * np.tanh(x) if "norm" in arrays else x
        return arrays["base"] + arrays["span"] * np.clip(x, low, high)
    parts = np.split(x, np.cumsum(arrays["sizes"])[:-1]) if "sizes" in arrays else [x]
    chosen = [int(np.argmax(part)) for part in parts]
    return arrays["base"] + (chosen if "sizes" in arrays else chosen[0])


class _Graph:
    """The nodes and constants of an ONNX graph."""

    def __init__(self) -> None:
        self.helper = importlib.import_module("onnx.helper")
        self.from_array = importlib.import_module("onnx.numpy_helper").from_array
        self.nodes, self.held = [], []

    def hold(self, value: object, kind: DTypeLike = np.float32) -> str:
        """A constant."""
        self.held.append(self.from_array(np.asarray(value, kind), f"c{len(self.held)}"))
        return f"c{len(self.held) - 1}"

    def __call__(self, kind: str, *inputs: str, **attributes: int) -> str:
        """A node."""
        self.nodes.append(self.helper.make_node(kind, inputs, [f"x{len(self.nodes)}"], **attributes))
        return f"x{len(self.nodes) - 1}"

    def mean(self, x: str, axis: int, keepdims: int = 1) -> str:
        return self("ReduceMean", x, self.hold([axis], np.int64), keepdims=keepdims)


def _kernel(node: _Graph, arrays: dict[str, np.ndarray], x: str) -> str:
    """The choice of a mean over landmarks."""
    scaled = node("Mul", x, node.hold(arrays["scale"]))
    far = node("Sub", node("Unsqueeze", scaled, node.hold([1], np.int64)), node.hold(arrays["places"]))
    distance = node("ReduceSumSquare", far, node.hold([2], np.int64), keepdims=0)
    near = node("Softmax", node("Mul", distance, node.hold(-arrays["sharpness"])), axis=1)
    best = node("ArgMax", node("MatMul", near, node.hold(arrays["w"].T)), axis=1, keepdims=0)
    return node("Gather", node.hold(arrays["choices"]), best, axis=0)


def _layers(node: _Graph, arrays: dict[str, np.ndarray], x: str) -> str:
    """The outputs of layers; where they have a norm, [networks, n, size] until the end."""
    if "mean" in arrays:
        x = node("Mul", node("Sub", x, node.hold(arrays["mean"])), node.hold(arrays["scale"]))
        x = node("Clip", x, node.hold(-10.0), node.hold(10.0))
    x = node("Unsqueeze", x, node.hold([0], np.int64)) if "norm" in arrays else x
    for layer in range(int(arrays["layers"])):
        if layer and "norm" in arrays:
            x = node("Sub", x, node.mean(x, -1))
            power = node("Add", node.mean(node("Mul", x, x), -1), node.hold(arrays["norm"]))
            x = node("Div", x, node("Sqrt", power))
        x = node("Relu", x) if layer else x
        x = node("Add", node("MatMul", x, node.hold(arrays[f"w{layer}"])), node.hold(arrays[f"b{layer}"]))
    return node.mean(x, 0, keepdims=0) if "norm" in arrays else x


def write_onnx(policy: Policy, path: Path) -> Path:
    """Write a policy as an ONNX graph: `observation` [n, size] to `action`, [n], or [n, parts]."""
    try:
        onnx: Any = importlib.import_module("onnx")
    except ImportError as error:
        raise MissingExtra("onnx", "an ONNX graph") from error
    arrays, space, node = arrays_of(policy), policy.env.action_space, _Graph()
    _check(path, ".onnx", b"pcpg")
    x = (_kernel if "places" in arrays else _layers)(node, arrays, "observation")
    if isinstance(space, Box):
        low, high = arrays["low"], arrays["high"]
        if "norm" in arrays:
            x = node("Add", node("Mul", node("Tanh", x), node.hold((high - low) / 2)), node.hold((low + high) / 2))
        x = node("Clip", x, node.hold(low), node.hold(high))
        x = node("Add", node("Mul", x, node.hold(arrays["span"])), node.hold(arrays["base"]))
    elif isinstance(space, Discrete):
        x = node("ArgMax", x, axis=1, keepdims=0)
    elif isinstance(space, MultiDiscrete):
        ends = np.cumsum([0, *space.sizes])
        parts = [
            node("ArgMax", node("Slice", x, *(node.hold([at], np.int64) for at in (low, high, 1))), axis=1, keepdims=1)
            for low, high in itertools.pairwise(ends)
        ]
        x = node("Concat", *parts, axis=1)
    if not isinstance(space, Box):
        x = node("Add", x, node.hold(arrays["base"], np.int64))
    node.nodes.append(node.helper.make_node("Identity", [x], ["action"]))
    number, size = onnx.TensorProto, int(np.prod(policy.env.observation_space.shape))
    kind, shape = (number.FLOAT, ["n", space.shape[0]]) if isinstance(space, Box) else (number.INT64, ["n"])
    shape = ["n", len(space.sizes)] if isinstance(space, MultiDiscrete) else shape
    given = [node.helper.make_tensor_value_info("observation", number.FLOAT, ["n", size])]
    made = [node.helper.make_tensor_value_info("action", kind, shape)]
    graph = node.helper.make_graph(node.nodes, "policy", given, made, node.held)
    opset = [node.helper.make_opsetid("", 18)]
    model = node.helper.make_model(graph, producer_name="pcpg", opset_imports=opset, ir_version=9)
    onnx.checker.check_model(model)
    write_file(path, model.SerializeToString())
    return path


def _check(path: Path, suffix: str, mark: bytes) -> None:
    if path.suffix != suffix:
        raise ConfigError(f"the file must end in {suffix}, got {path.name!r}")
    check_output(path, mark)
