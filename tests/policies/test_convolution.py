"""The convolution as a matrix product against XLA's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcpg.policies.networks import convolve


@pytest.mark.parametrize("size", [(1, 1), (4, 4), (5, 8), (10, 10), (20, 20), (7, 13)])
def test_it_equals_the_convolution_of_xla_with_same_padding_at_every_size(size: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    images = jnp.asarray(rng.normal(size=(3, *size, 4)), jnp.float32)
    kernel = jnp.asarray(rng.normal(size=(3, 3, 4, 5)), jnp.float32)
    expected = jax.lax.conv_general_dilated(
        images, kernel, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), precision="highest"
    )
    np.testing.assert_allclose(convolve(images, kernel, jax.lax.Precision.HIGHEST), expected, rtol=1e-5, atol=1e-5)


def test_its_gradients_equal_those_of_the_convolution_of_xla() -> None:
    rng = np.random.default_rng(1)
    images = jnp.asarray(rng.normal(size=(2, 9, 10, 3)), jnp.float32)
    kernel = jnp.asarray(rng.normal(size=(3, 3, 3, 6)), jnp.float32)
    weights = jnp.asarray(rng.normal(size=(2, 5, 5, 6)), jnp.float32)

    def reference(images: jax.Array, kernel: jax.Array) -> jax.Array:
        layout = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(images, kernel, (2, 2), "SAME", dimension_numbers=layout)

    ours = jax.grad(lambda *arrays: jnp.sum(weights * convolve(*arrays)), (0, 1))(images, kernel)
    theirs = jax.grad(lambda *arrays: jnp.sum(weights * reference(*arrays)), (0, 1))(images, kernel)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
