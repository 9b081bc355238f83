"""Greedy policies for other programs: a file of arrays for NumPy alone, and an ONNX graph."""

import importlib
import io
import itertools
from pathlib import Path
from typing import Any

import numpy as np

from pcpg.config import ConfigError
from pcpg.envs.host import HostEnvironment
from pcpg.envs.spaces import Box, Discrete, Image, MultiDiscrete
from pcpg.policy import Policy
from pcpg.runs.disk import check_output, write_file
from pcpg.runs.errors import MissingExtra


def arrays_of(policy: Policy) -> dict[str, np.ndarray]:
    """All that a greedy action follows from: `w0`, `b0`, ... of layers, or `places` and `w` of a kernel."""
    if not hasattr(policy.network, "portable"):
        kind = type(policy.network).__name__
        raise ConfigError(f"a {kind} has no arrays for other programs yet: use pcpg.load(folder).policy, or pickle it")
    space, arrays = policy.env.action_space, dict(policy.network.portable())
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
        for layer in range(int(arrays["layers"])):
            x = (np.maximum(x, 0) if layer else x) @ arrays[f"w{layer}"] + arrays[f"b{layer}"]
    if "low" in arrays:
        return arrays["base"] + arrays["span"] * np.clip(x, arrays["low"], arrays["high"])
    parts = np.split(x, np.cumsum(arrays["sizes"])[:-1]) if "sizes" in arrays else [x]
    chosen = [int(np.argmax(part)) for part in parts]
    return arrays["base"] + (chosen if "sizes" in arrays else chosen[0])


def write_onnx(policy: Policy, path: Path) -> Path:
    """Write a policy as an ONNX graph: `observation` [n, size] to `action`, [n], or [n, parts]."""
    try:
        onnx: Any = importlib.import_module("onnx")
        helper, numpy_helper = importlib.import_module("onnx.helper"), importlib.import_module("onnx.numpy_helper")
    except ImportError as error:
        raise MissingExtra("onnx", "an ONNX graph") from error
    arrays, space = arrays_of(policy), policy.env.action_space
    _check(path, ".onnx", b"pcpg")
    nodes: list[Any] = []
    held: list[Any] = []

    def hold(value: Any, kind: Any = np.float32) -> str:
        held.append(numpy_helper.from_array(np.asarray(value, kind), f"c{len(held)}"))
        return f"c{len(held) - 1}"

    def node(kind: str, *inputs: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, inputs, [f"x{len(nodes)}"], **attributes))
        return f"x{len(nodes) - 1}"

    x = "observation"
    if "places" in arrays:
        scaled = node("Mul", x, hold(arrays["scale"]))
        far = node("Sub", node("Unsqueeze", scaled, hold([1], np.int64)), hold(arrays["places"]))
        distance = node("ReduceSumSquare", far, hold([2], np.int64), keepdims=0)
        near = node("Softmax", node("Mul", distance, hold(-arrays["sharpness"])), axis=1)
        best = node("ArgMax", node("MatMul", near, hold(arrays["w"].T)), axis=1, keepdims=0)
        x = node("Gather", hold(arrays["choices"]), best, axis=0)
    else:
        if "mean" in arrays:
            x = node("Mul", node("Sub", x, hold(arrays["mean"])), hold(arrays["scale"]))
            x = node("Clip", x, hold(-10.0), hold(10.0))
        for layer in range(int(arrays["layers"])):
            x = node("Relu", x) if layer else x
            x = node("Add", node("MatMul", x, hold(arrays[f"w{layer}"])), hold(arrays[f"b{layer}"]))
    if isinstance(space, Box):
        x = node("Clip", x, hold(space.low), hold(space.high))
        x = node("Add", node("Mul", x, hold(arrays["span"])), hold(arrays["base"]))
    elif isinstance(space, Discrete):
        x = node("ArgMax", x, axis=1, keepdims=0)
    elif isinstance(space, MultiDiscrete):
        ends = np.cumsum([0, *space.sizes])
        parts = [
            node("ArgMax", node("Slice", x, *(hold([at], np.int64) for at in (low, high, 1))), axis=1, keepdims=1)
            for low, high in itertools.pairwise(ends)
        ]
        x = node("Concat", *parts, axis=1)
    if not isinstance(space, Box):
        x = node("Add", x, hold(arrays["base"], np.int64))
    nodes.append(helper.make_node("Identity", [x], ["action"]))
    number, size = onnx.TensorProto, int(np.prod(policy.env.observation_space.shape))
    kind, shape = (number.FLOAT, ["n", space.shape[0]]) if isinstance(space, Box) else (number.INT64, ["n"])
    shape = ["n", len(space.sizes)] if isinstance(space, MultiDiscrete) else shape
    given = [helper.make_tensor_value_info("observation", number.FLOAT, ["n", size])]
    made = [helper.make_tensor_value_info("action", kind, shape)]
    graph = helper.make_graph(nodes, "policy", given, made, held)
    model = helper.make_model(graph, producer_name="pcpg", opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(model)
    write_file(path, model.SerializeToString())
    return path


def _check(path: Path, suffix: str, mark: bytes) -> None:
    if path.suffix != suffix:
        raise ConfigError(f"the file must end in {suffix}, got {path.name!r}")
    check_output(path, mark)
