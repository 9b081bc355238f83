"""Minibatch descent: clipping, Adam against Optax on the tree, and which samples are used."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

from pcpg.learners.update import adam_step, clip_by_norm, init_adam, minimise, random_order

PARAMS = {"a": np.float32([[1, -2], [3, 0.5]]), "b": np.float32([4, -1, 2])}
HUGE = 1e9


def quadratic(params, part):
    """Distance to the samples, scaled so that the leaves have gradients of different sizes."""
    loss = jnp.mean(jnp.sum((params["b"] - part) ** 2, axis=-1)) + 10 * jnp.sum((params["a"] - 1) ** 2)
    return loss, {"loss": loss}


def test_a_long_gradient_is_cut_to_the_norm_and_keeps_its_direction():
    np.testing.assert_allclose(clip_by_norm(jnp.float32([3, 4]), 1.0), [0.6, 0.8], rtol=1e-6)
    gradient = np.random.default_rng(0).normal(size=50).astype(np.float32)
    cut = np.asarray(clip_by_norm(jnp.asarray(gradient), 2.0), np.float64)
    assert np.linalg.norm(gradient) > 2
    np.testing.assert_allclose(np.linalg.norm(cut), 2.0, rtol=1e-5)
    np.testing.assert_allclose(cut / np.linalg.norm(cut), gradient / np.linalg.norm(gradient), rtol=1e-4)


@pytest.mark.parametrize("gradient", [[0.3, -0.4], [0.0, 0.0], [3.0, 4.0]])
def test_a_gradient_within_the_norm_is_left_as_it_is(gradient):
    np.testing.assert_array_equal(clip_by_norm(jnp.float32(gradient), 5.0), np.float32(gradient))


def test_the_moments_start_at_zero_with_a_place_for_each_parameter():
    adam = init_adam(PARAMS)
    assert adam.mu.shape == adam.nu.shape == (7,)
    assert not adam.mu.any() and not adam.nu.any() and adam.steps == 0


def test_the_first_step_of_adam_is_the_learning_rate_against_the_sign_of_the_gradient():
    gradient = np.float32([1e-2, -3, 0])
    adam = init_adam(gradient)
    step, adam = jax.jit(lambda *args: adam_step(*args, max_grad_norm=HUGE))(gradient, adam, 0.1)
    np.testing.assert_allclose(step, [-0.1, 0.1, 0], rtol=2e-3)  # eps is 1e-5
    assert int(adam.steps) == 1
    np.testing.assert_allclose(adam.mu, 0.1 * gradient, rtol=1e-5)
    np.testing.assert_allclose(adam.nu, 0.001 * gradient**2, rtol=1e-4)


@pytest.mark.parametrize("max_norm", [1.0, HUGE], ids=["clipped", "free"])
def test_steps_agree_with_optax_on_the_tree_clipped_by_the_norm_of_all_leaves_together(max_norm):
    batch = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
    optimiser = optax.chain(optax.clip_by_global_norm(max_norm), optax.adam(0.05, eps=1e-5))

    @jax.jit
    def theirs(params):
        def step(carry, _):
            params, state = carry
            updates, state = optimiser.update(jax.grad(lambda p: quadratic(p, batch)[0])(params), state)
            return (optax.apply_updates(params, updates), state), None

        return jax.lax.scan(step, (params, optimiser.init(params)), length=20)[0][0]

    @jax.jit
    def ours(params, batch):
        options = {"num_epochs": 20, "minibatch_size": 8, "max_grad_norm": max_norm}
        return minimise(quadratic, params, init_adam(PARAMS), batch, jax.random.key(0), jnp.float32(0.05), **options)

    params, adam, _ = ours(PARAMS, batch)
    expected = theirs(PARAMS)
    assert int(adam.steps) == 20
    for name, leaf in expected.items():
        np.testing.assert_allclose(params[name], leaf, rtol=1e-4, atol=1e-5)
        assert params[name].dtype == np.float32


def test_descent_converges_to_the_mean_of_the_samples():
    batch = np.random.default_rng(0).normal(size=(32, 3)).astype(np.float32)

    @jax.jit
    def fit(params, batch, key):
        options = {"num_epochs": 400, "minibatch_size": 32, "max_grad_norm": 5.0}
        return minimise(quadratic, params, init_adam(PARAMS), batch, key, jnp.float32(0.05), **options)

    params, _, _ = fit(PARAMS, batch, jax.random.key(0))
    np.testing.assert_allclose(params["b"], batch.mean(axis=0), atol=1e-3)
    np.testing.assert_allclose(params["a"], 1.0, atol=1e-3)


def uses(size, minibatch_size, num_epochs, seeds=200):
    """How often each sample is used, [seeds, size], and the steps taken."""

    def loss(params, part):
        # Digit i to base 8 of the sum counts sample i; float32 holds it exactly up to 8 samples.
        return jnp.sum(params * 0.0), {"used": jnp.sum(8.0**part), "sum": jnp.sum(part)}

    def run(key):
        params, samples = jnp.zeros(1), jnp.arange(size, dtype=jnp.float32)
        options = {"num_epochs": num_epochs, "minibatch_size": minibatch_size, "max_grad_norm": 1.0}
        return minimise(loss, params, init_adam(np.zeros(1)), samples, key, jnp.float32(0.1), **options)

    _, adam, metrics = jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(3), seeds))
    steps = int(adam.steps[0])
    total = np.rint(np.asarray(metrics["used"], np.float64) * steps).astype(np.int64)
    return total[:, None] // 8 ** np.arange(size) % 8, steps


def test_each_sample_is_used_once_a_pass_but_for_the_leftovers():
    used, steps = uses(7, 2, 1)
    assert steps == 3
    assert used.max() == 1
    np.testing.assert_array_equal(used.sum(axis=1), 6)
    # The sample that is left out is drawn anew: each of the seven alike.
    assert stats.chisquare((used == 0).sum(axis=0)).pvalue > 0.01


def test_each_pass_is_shuffled_anew():
    used, steps = uses(7, 4, 3)
    assert steps == 3
    np.testing.assert_array_equal(used.sum(axis=1), 12)
    assert used.max() == 3
    # If all passes had one order, a sample would be used three times or never.
    assert set(np.unique(used)) == {0, 1, 2, 3}


def test_a_minibatch_larger_than_the_batch_is_the_batch():
    used, steps = uses(5, 64, 2)
    assert steps == 2
    np.testing.assert_array_equal(used, 2)


def test_metrics_are_means_over_all_steps():
    def loss(params, part):
        return jnp.sum(params**2), {"mean": jnp.mean(part), "params": jnp.sum(params)}

    @jax.jit
    def run(params, samples, key):
        options = {"num_epochs": 3, "minibatch_size": 2, "max_grad_norm": 1.0}
        return minimise(loss, params, init_adam(np.zeros(1)), samples, key, jnp.float32(0.0), **options)

    samples = np.float32([1, 2, 3, 10])
    params, _, metrics = run(np.float32([7]), samples, jax.random.key(0))
    np.testing.assert_allclose(metrics["mean"], 4.0, rtol=1e-6)
    np.testing.assert_allclose(metrics["params"], 7.0, rtol=1e-6)
    np.testing.assert_array_equal(params, [7.0])  # a learning rate of zero moves nothing


def test_a_random_order_holds_every_index_once_and_the_marked_ones_last():
    last = np.arange(37) % 3 == 0

    @jax.jit
    @jax.vmap
    def orders(key):
        return random_order(key, 37), random_order(key, 37, last=jnp.asarray(last))

    plain, sorted_apart = jax.device_get(orders(jax.random.split(jax.random.key(0), 400)))
    for order in (plain, sorted_apart):
        np.testing.assert_array_equal(np.sort(order, axis=1), np.broadcast_to(np.arange(37), (400, 37)))
    np.testing.assert_array_equal(last[sorted_apart], np.broadcast_to(np.sort(last), (400, 37)))
    # Every place goes to every index alike: 400 draws over 37, then over the 24 that are not marked.
    assert stats.chisquare(np.bincount(plain[:, 5], minlength=37)).pvalue > 0.01
    assert stats.chisquare(np.bincount(sorted_apart[:, 0], minlength=37)[~last]).pvalue > 0.01


def test_more_samples_than_an_order_can_hold_are_refused():
    with pytest.raises(ValueError, match=r"at most 2\^20 samples can be put in order, got 1048577"):
        random_order(jax.random.key(0), 2**20 + 1)
