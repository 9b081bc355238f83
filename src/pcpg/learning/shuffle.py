"""Random orders of many indices."""

import jax
import jax.numpy as jnp


def random_order(key: jax.Array, size: int, last: jax.Array | None = None) -> jax.Array:
    """The indices 0 .. size-1 in random order, int32 [size]; those marked in `last` come after all others.

    Index and chance are packed into one integer, so that a plain sort does: on a CPU it takes a fifth of the time of
    `argsort`. Equal chances (one pair in 2^(31 - bits of size)) stay in their order.
    """
    bits = max(1, (size - 1).bit_length())
    if bits > 20:
        raise ValueError(f"at most 2^20 samples can be put in order, got {size}")
    low = jnp.uint32((1 << bits) - 1)
    chance = (jax.random.bits(key, (size,), jnp.uint32) >> 1) & ~low
    packed = chance | jnp.arange(size, dtype=jnp.uint32)
    if last is not None:
        packed |= last.astype(jnp.uint32) << 31
    return (jnp.sort(packed) & low).astype(jnp.int32)
