"""Random networks as kernels: their layers, their norm, and that they tell states apart."""

import hashlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcpg.envs.maze import Maze
from pcpg.envs.mountain_car import MountainCarContinuous
from pcpg.features import make_features
from pcpg.features.random_network import GAIN
from pcpg.policies.networks import orthogonal

CAR = MountainCarContinuous()


@jax.jit
def features_of(phi, observations, actions):
    return phi.batch(observations, actions)


def images_of_all_open_cells(env, params):
    cells = np.flatnonzero(env.open_cells(params))
    states = jax.tree.map(lambda leaf: leaf[cells], env.all_states())
    return jax.jit(jax.vmap(env.observe, (None, 0)))(params, states)


def convolve(x, kernel):
    """A 3 x 3 convolution with stride 2 of one image, padded as TensorFlow's SAME, by loops."""
    height, width = -(-x.shape[0] // 2), -(-x.shape[1] // 2)
    pads = [max((out - 1) * 2 + 3 - size, 0) for out, size in zip((height, width), x.shape[:2], strict=True)]
    x = np.pad(x, [(p // 2, p - p // 2) for p in pads] + [(0, 0)])
    out = np.zeros((height, width, kernel.shape[-1]))
    for r in range(height):
        for c in range(width):
            out[r, c] = np.einsum("ijk,ijkl->l", x[2 * r : 2 * r + 3, 2 * c : 2 * c + 3], kernel)
    return out


@pytest.mark.parametrize("size", [7, 10])
def test_the_convolutional_network_is_two_convolutions_and_a_linear_layer_normalised(size):
    env = Maze(size)
    phi = make_features("random-conv", env, 0, num_features=20, num_kernels=(4, 6))
    images = np.asarray(images_of_all_open_cells(env, env.instance(0)))[:5]
    features = np.asarray(features_of(phi, images, np.zeros(5, np.int32)))
    for image, row in zip(images, features, strict=True):
        x = image / 255.0
        for kernel in phi.kernels:
            x = np.maximum(convolve(x, np.asarray(kernel, np.float64)), 0)
        out = x.reshape(-1) @ phi.dense
        np.testing.assert_allclose(row, out / np.linalg.norm(out), atol=1e-6)


def test_the_paper_s_network_has_32_and_64_kernels_and_512_outputs():
    phi = make_features("random-conv", Maze(20), 0)
    assert [kernel.shape for kernel in phi.kernels] == [(3, 3, 3, 32), (3, 3, 32, 64)]
    assert phi.dense.shape == (5 * 5 * 64, 512) and phi.dim == 512


@pytest.mark.parametrize("size", [7, 8, 9, 10, 11, 12])
def test_no_two_open_cells_of_a_maze_have_equal_features_whatever_its_size(size):
    env = Maze(size)
    phi = make_features("random-conv", env, 0, num_features=64)
    images = images_of_all_open_cells(env, env.instance(0))
    features = np.asarray(features_of(phi, images, np.zeros(len(images), np.int32)))
    gaps = np.linalg.norm(features[:, None] - features[None], axis=-1) + 9 * np.eye(len(features))
    assert gaps.min() > 0.01


def test_features_have_norm_one_or_one_over_the_divisor():
    env = Maze(8)
    images = images_of_all_open_cells(env, env.instance(0))
    for divisor in (1.0, 4.0):
        phi = make_features("random-conv", env, 0, num_features=64, divisor=divisor)
        norms = np.linalg.norm(features_of(phi, images, np.zeros(len(images))), axis=1)
        np.testing.assert_allclose(norms, 1 / divisor, rtol=1e-5)
    observations, actions = CAR.examples(np.random.default_rng(0), 50)
    mlp = make_features("random-mlp", CAR, 0)
    np.testing.assert_allclose(np.linalg.norm(features_of(mlp, observations, actions), axis=1), 1, rtol=1e-5)
    black = np.zeros((1, 8, 8, 3), np.uint8)
    assert not features_of(phi, black, np.zeros(1)).any()  # and no division by zero


def test_the_small_network_is_layers_with_relu_between():
    phi = make_features("random-mlp", CAR, 0, num_features=8, hidden=(16, 12))
    observations, actions = CAR.examples(np.random.default_rng(0), 20)
    x = (np.hstack([observations, actions]) - phi.inputs.mean) / phi.inputs.std
    for layer, (weight, bias) in enumerate(zip(phi.weights, phi.biases, strict=True)):
        x = (np.maximum(x, 0) if layer else x) @ weight + bias
    expected = x / np.linalg.norm(x, axis=1, keepdims=True)
    np.testing.assert_allclose(features_of(phi, observations, actions), expected, atol=1e-5)


def test_the_small_network_tells_a_state_from_its_double():
    phi = make_features("random-mlp", CAR, 0, with_actions=False)
    mean, std = phi.inputs.mean, phi.inputs.std
    one, two = (phi(jnp.asarray(mean + k * std), jnp.zeros(1)) for k in (0.5, 1.0))
    assert np.linalg.norm(np.asarray(one) - np.asarray(two)) > 0.05


@pytest.mark.parametrize("shape", [(3, 3, 3, 32), (3, 3, 32, 64), (100, 20)])
def test_weights_are_orthogonal_with_gain_root_two(shape):
    matrix = orthogonal(np.random.default_rng(0), shape, GAIN).reshape(-1, shape[-1]).astype(np.float64)
    gram = matrix.T @ matrix if matrix.shape[0] >= matrix.shape[1] else matrix @ matrix.T
    np.testing.assert_allclose(gram, 2 * np.eye(len(gram)), atol=1e-5)


def test_the_weights_of_a_seed_are_the_known_ones():
    phi = make_features("random-conv", Maze(20), 0)
    # Rounded: the last bits of a QR factorisation are the linear algebra library's own.
    digest = hashlib.sha256(np.round(phi.kernels[0], 3).tobytes()).hexdigest()
    assert digest[:16] == "ccb5eece528335ab"


def test_a_convolutional_network_refuses_vectors():
    with pytest.raises(ValueError, match="need image observations, got Box"):
        make_features("random-conv", CAR, 0)
