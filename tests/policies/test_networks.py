"""Networks against plain NumPy, and what stacking, initialisation and images must give."""

import jax
import numpy as np
import pytest
from scipy import special

from pcpg.envs.maze import Maze
from pcpg.envs.spaces import Box, Discrete, Image
from pcpg.policies.networks import Conv, Linear, init_actor_critic, init_body, orthogonal

VECTOR = Box(-1.0, 1.0, (6,))
OBSERVATIONS = np.random.default_rng(1).normal(size=(5, 6)).astype(np.float32)


def network(observations=VECTOR, actions=Discrete(4), *, seed=0, hidden=(16, 8), shared_body=True, square_code=0):  # noqa: B008
    rng = np.random.default_rng(seed)
    shape = {"hidden": hidden, "shared_body": shared_body, "square_code": square_code}
    return init_actor_critic(rng, observations, actions, **shape)


def relu(x):
    return np.maximum(x, 0.0)


@jax.jit
def run(policy, observations):
    return policy.outputs_and_value(observations), policy.outputs(observations), policy.value(observations)


@jax.jit
def run_body(body, observations):
    return body(observations)


@pytest.mark.parametrize("shape", [(9, 4), (4, 9), (6, 6), (3, 3, 2, 8), (3, 3, 3, 32)])
@pytest.mark.parametrize("gain", [0.01, 1.0, np.sqrt(2)])
def test_initial_weights_are_orthogonal_with_their_gain(shape, gain):
    weight = orthogonal(np.random.default_rng(0), shape, gain)
    assert weight.shape == shape
    assert weight.dtype == np.float32
    matrix = weight.reshape(-1, shape[-1]).astype(np.float64)
    small = matrix.T @ matrix if matrix.shape[0] >= matrix.shape[1] else matrix @ matrix.T
    np.testing.assert_allclose(small, gain**2 * np.eye(len(small)), atol=1e-6 * gain**2)


def test_initial_weights_point_everywhere():
    # Without the sign convention the first entry of a QR factor has one sign always.
    firsts = [orthogonal(np.random.default_rng(seed), (3, 3), 1.0)[0, 0] for seed in range(60)]
    assert 15 <= np.sum(np.array(firsts) > 0) <= 45


def test_a_network_is_float32_arrays_and_nothing_else_and_follows_from_its_seed():
    leaves = jax.tree.leaves(network(shared_body=False))
    assert all(isinstance(leaf, np.ndarray) and leaf.dtype == np.float32 for leaf in leaves)
    for leaf, same in zip(leaves, jax.tree.leaves(network(shared_body=False)), strict=True):
        np.testing.assert_array_equal(leaf, same)
    assert (network(seed=1).actor_head.weight != network(seed=0).actor_head.weight).any()


def test_the_two_bodies_of_a_network_start_apart():
    policy = network(shared_body=False)
    assert policy.critic_body is not None
    assert (policy.critic_body.layers[0].weight != policy.actor_body.layers[0].weight).any()


def test_the_first_policy_is_nearly_uniform():
    outputs = np.asarray(run(network(actions=Discrete(10), hidden=(64, 64)), 5 * OBSERVATIONS)[1])
    probabilities = special.softmax(outputs, axis=-1)
    assert np.abs(probabilities - 0.1).max() < 0.01
    assert np.ptp(outputs) > 0  # but its head is not zero, or the body would not learn at first


def test_the_first_gaussian_policy_has_unit_deviation_and_a_mean_near_zero():
    outputs = np.asarray(run(network(actions=Box(-1.0, 1.0, (3,))), OBSERVATIONS)[1])
    assert outputs.shape == (5, 6)
    assert np.abs(outputs[:, :3]).max() < 0.1
    np.testing.assert_array_equal(outputs[:, 3:], 0.0)


@pytest.mark.parametrize("shared_body", [True, False])
def test_a_vector_network_computes_two_relu_layers_and_two_heads(shared_body):
    policy = network(shared_body=shared_body)
    policy = jax.tree.map(lambda leaf: leaf + np.float32(0.1), policy)  # so that the biases count

    def hidden(body):
        x = OBSERVATIONS.astype(np.float64)
        for layer in body.layers:
            x = relu(x @ layer.weight + layer.bias)
        return x

    critic_body = policy.actor_body if shared_body else policy.critic_body
    outputs = hidden(policy.actor_body) @ policy.actor_head.weight + policy.actor_head.bias
    value = (hidden(critic_body) @ policy.critic_head.weight + policy.critic_head.bias)[:, 0]
    (both_outputs, both_value), only_outputs, only_value = run(policy, OBSERVATIONS)
    for computed in (only_outputs, both_outputs):
        np.testing.assert_allclose(computed, outputs, rtol=1e-4, atol=1e-5)
    for computed in (only_value, both_value):
        np.testing.assert_allclose(computed, value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_the_batch_axes_of_observations_are_kept(batch):
    outputs, value = jax.eval_shape(network().outputs_and_value, np.zeros((*batch, 6), np.float32))
    assert outputs.shape == (*batch, 4)
    assert value.shape == batch


@pytest.mark.parametrize(("height", "width"), [(4, 4), (5, 8), (7, 7), (20, 20)])
def test_the_batch_axes_of_images_are_kept_at_every_size(height, width):
    policy = network(Image(height, width, 3), hidden=(16,))
    shapes = jax.eval_shape(policy.outputs_and_value, np.zeros((2, 3, height, width, 3), np.uint8))
    assert [shape.shape for shape in shapes] == [(2, 3, 4), (2, 3)]
    assert jax.eval_shape(policy.value, np.zeros((height, width, 3), np.uint8)).shape == ()


def strided_convolution(x, weight, bias):
    """A 3 x 3 convolution with stride 2 by its definition; zeros around, the odd one at the far end."""
    height, width = x.shape[:2]
    rows, columns = -(-height // 2), -(-width // 2)
    out = np.zeros((rows, columns, weight.shape[-1]))
    before = [max(2 * (short - 1) + 3 - long, 0) // 2 for short, long in ((rows, height), (columns, width))]
    for i, j in np.ndindex(rows, columns):
        for di, dj in np.ndindex(3, 3):
            row, column = 2 * i + di - before[0], 2 * j + dj - before[1]
            if 0 <= row < height and 0 <= column < width:
                out[i, j] += x[row, column] @ weight[di, dj]
    return out + bias


def test_an_image_network_computes_two_strided_convolutions_and_a_layer():
    size = (5, 8)  # an odd and an even side, for the padding
    body = init_body(np.random.default_rng(0), Image(*size, 2), (16,))
    image = np.random.default_rng(1).integers(256, size=(*size, 2), dtype=np.uint8)
    x = image / 255.0
    for layer in body.layers[:2]:
        x = relu(strided_convolution(x, layer.weight.astype(np.float64), layer.bias))
    dense = body.layers[2]
    expected = relu(x.reshape(-1) @ dense.weight + dense.bias)
    np.testing.assert_allclose(run_body(body, image), expected, rtol=1e-4, atol=1e-5)


def test_every_pixel_of_an_image_is_seen_the_border_included():
    height, width = 6, 7
    body = init_body(np.random.default_rng(0), Image(height, width, 1), (32,))
    images = np.full((height * width + 1, height * width), 128, np.uint8)
    np.fill_diagonal(images[1:], 255)
    hidden = np.asarray(run_body(body, images.reshape(-1, height, width, 1)))
    assert np.all(np.abs(hidden[1:] - hidden[0]).max(axis=-1) > 1e-4)


def test_the_agent_at_every_open_cell_of_a_maze_looks_different_inside():
    maze = Maze(size=8)
    params = maze.instance(0)
    is_open = maze.open_cells(params)
    images = maze.tabular(params).observations[is_open].reshape(-1, 8, 8, 3).astype(np.uint8)
    body = init_body(np.random.default_rng(0), maze.observation_space, (64,))
    hidden = np.asarray(run_body(body, images))
    distance = np.linalg.norm(hidden[:, None] - hidden[None], axis=-1)
    assert len(images) > 10
    assert distance[~np.eye(len(images), dtype=bool)].min() > 0.01


@pytest.mark.parametrize("shared_body", [True, False])
def test_the_value_reaches_the_body_of_the_policy_only_where_they_share_it(shared_body):
    policy = network(shared_body=shared_body)
    gradient = jax.device_get(jax.jit(jax.grad(lambda policy: policy.value(OBSERVATIONS).sum()))(policy))
    assert (policy.critic_body is None) == shared_body
    assert bool(np.any(gradient.actor_body.layers[0].weight != 0)) == shared_body
    assert not np.any(gradient.actor_head.weight != 0)


@pytest.mark.parametrize(
    ("observations", "actions"),
    [(VECTOR, Discrete(4)), (VECTOR, Box(-1.0, 1.0, (2,))), (Image(5, 5, 3), Discrete(4))],
    ids=["vector", "gaussian", "image"],
)
def test_a_stack_of_networks_computes_what_each_of_them_does(observations, actions):
    each = [network(observations, actions, seed=seed, hidden=(16,)) for seed in range(3)]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *each)
    x = np.random.default_rng(0).uniform(0, 9, (4, *observations.shape)).astype(observations.dtype)
    outputs, values = jax.device_get(
        jax.jit(jax.vmap(lambda policy, x: policy.outputs_and_value(x), (0, None)))(stacked, x)
    )
    for policy, policy_outputs, policy_values in zip(each, outputs, values, strict=True):
        _, alone_outputs, alone_values = run(policy, x)
        np.testing.assert_allclose(policy_outputs, alone_outputs, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(policy_values, alone_values, rtol=1e-4, atol=1e-5)


def test_observations_that_a_network_cannot_read_are_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="discrete observations must be one-hot encoded"):
        init_body(rng, Discrete(4), (16,))
    with pytest.raises(ValueError, match=r"observations must be vectors or images, got shape \(2, 3\)"):
        init_body(rng, Box(0.0, 1.0, (2, 3)), (16,))


@pytest.mark.parametrize("sides", [(40, 33), (64, 64)])
def test_large_images_are_seen_by_squares_of_eight_pixels_in_numpy_as_compiled(sides):
    body = init_body(np.random.default_rng(0), Image(sides[0], sides[1], 3), (16,), square_code=2)
    squares, dense = body.layers
    image = np.random.default_rng(1).integers(256, size=(*sides, 3), dtype=np.uint8)
    rows, columns = -(-sides[0] // 8), -(-sides[1] // 8)
    padded = np.zeros((8 * rows, 8 * columns, 3))
    padded[: sides[0], : sides[1]] = image / 255.0
    cut = [padded[8 * i : 8 * i + 8, 8 * j : 8 * j + 8].reshape(-1) for i in range(rows) for j in range(columns)]
    coded = relu(np.array(cut) @ squares.weight.astype(np.float64) + squares.bias).reshape(-1)
    np.testing.assert_allclose(squares(np.stack([image, image]))[1], coded, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(run_body(body, image), relu(coded @ dense.weight + dense.bias), rtol=1e-3, atol=1e-3)


def test_small_images_keep_their_convolutions_whatever_the_code():
    layers = init_body(np.random.default_rng(0), Image(20, 40, 3), (16,), square_code=2).layers
    assert [type(layer) for layer in layers] == [Conv, Conv, Linear]
