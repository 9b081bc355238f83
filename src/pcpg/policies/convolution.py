"""The 3 x 3 convolution with stride 2 of the paper's networks, as one matrix product.

XLA's own convolution falls back to a plain loop on a CPU once it stands inside a `scan` (15 times slower, measured
at 10 x 10 and 20 x 20 pixels), and under `vmap` with a kernel for each seed it becomes a grouped convolution on a GPU.
"""

import jax
import jax.numpy as jnp


def convolve(images: jax.Array, kernel: jax.Array, precision: jax.lax.Precision | None = None) -> jax.Array:
    """[batch, height, width, in] with a kernel [3, 3, in, out] to [batch, ceil(height / 2), ceil(width / 2), out].

    Padded with zeros as "SAME" pads: without padding a stride of 2 leaves the last rows and columns of some sizes
    unseen (of a 10 x 10 image, rows 7 to 9), and states that differ there alone would look equal.
    """
    batch, height, width, channels = images.shape
    rows, columns = -(-height // 2), -(-width // 2)
    below, right = 2 * rows + 1 - height, 2 * columns + 1 - width  # 1 or 2 in all, the smaller half in front
    pads = ((0, 0), (below // 2, below - below // 2), (right // 2, right - right // 2), (0, 0))
    padded = jnp.pad(images, pads)
    shifted = [padded[:, i : i + 2 * rows - 1 : 2, j : j + 2 * columns - 1 : 2] for i in range(3) for j in range(3)]
    patches = jnp.concatenate(shifted, axis=-1).reshape(-1, 9 * channels)
    out = jnp.matmul(patches, kernel.reshape(9 * channels, -1), precision=precision)
    return out.reshape(batch, rows, columns, -1)
