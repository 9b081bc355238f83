"""The PPO loss by hand."""

import functools

import jax
import numpy as np
import pytest

from pcpg.learners.update import ppo_loss

# Ratio 1.5 or 0.5 with an advantage of 2 or -2: the smaller of r A and clip(r) A is 2.4, 1, -3 and -1.6.
RATIO = np.float32([1.5, 0.5, 1.5, 0.5])
BATCH = {
    "behaviour_log_prob": np.float32([-1, -2, -0.5, -3]),
    "advantage": np.float32([2, 2, -2, -2]),
    "target": np.float32([0, 0, 4, 2]),
    "mask": np.ones(4, bool),
}
LOG_PROB = BATCH["behaviour_log_prob"] + np.log(RATIO)
ENTROPY, VALUE = np.float32([1, 2, 3, 2]), np.float32([1, 0, 2, 1])
loss_of = functools.partial(ppo_loss, clip_eps=0.2, entropy_coef=0.1, value_coef=0.5)
both_ways = pytest.mark.parametrize("how", [lambda f: f, jax.jit], ids=["eager", "jit"])
compiled = jax.jit(loss_of)


def gradients(**changes):
    """Gradients of the loss by log-probability, entropy and value."""
    batch = BATCH | changes
    return jax.jit(jax.grad(lambda *three: loss_of(*three, **batch)[0], argnums=(0, 1, 2)))(LOG_PROB, ENTROPY, VALUE)


@both_ways
def test_the_loss_and_its_metrics_are_those_computed_by_hand(how):
    loss, metrics = how(loss_of)(LOG_PROB, ENTROPY, VALUE, **BATCH)
    expected = {
        "policy_loss": -(2.4 + 1.0 - 3.0 - 1.6) / 4,  # 0.3
        "value_loss": 0.5 * (1 + 0 + 4 + 1) / 4,  # 0.75
        "entropy": 2.0,
        "approx_kl": (2 * (0.5 - np.log(1.5)) + 2 * (-0.5 - np.log(0.5))) / 4,
        "clip_fraction": 1.0,
    }
    assert set(metrics) == set(expected)
    for name, number in expected.items():
        np.testing.assert_allclose(metrics[name], number, rtol=1e-5, err_msg=name)
    np.testing.assert_allclose(loss, 0.3 + 0.5 * 0.75 - 0.1 * 2.0, rtol=1e-5)


@both_ways
def test_samples_outside_the_mask_do_not_count(how):
    mask = np.array([True, False, False, True])
    loss, metrics = how(loss_of)(LOG_PROB, ENTROPY, VALUE, **BATCH | {"mask": mask})
    np.testing.assert_allclose(metrics["policy_loss"], -(2.4 - 1.6) / 2, rtol=1e-5)
    np.testing.assert_allclose(metrics["value_loss"], 0.5 * (1 + 1) / 2, rtol=1e-5)
    np.testing.assert_allclose(metrics["entropy"], 1.5, rtol=1e-5)
    np.testing.assert_allclose(metrics["approx_kl"], (-np.log(1.5) - np.log(0.5)) / 2, rtol=1e-4)
    np.testing.assert_allclose(loss, -0.4 + 0.5 * 0.5 - 0.1 * 1.5, rtol=1e-4)
    for gradient in gradients(mask=mask):
        np.testing.assert_array_equal(np.asarray(gradient)[~mask], 0.0)


def test_an_empty_mask_gives_a_loss_of_zero():
    loss, metrics = compiled(LOG_PROB, ENTROPY, VALUE, **BATCH | {"mask": np.zeros(4, bool)})
    assert float(loss) == 0.0
    assert all(float(value) == 0.0 for value in metrics.values())


def test_the_policy_gradient_vanishes_where_the_clip_binds_and_is_the_ratio_times_the_advantage_elsewhere():
    by_log_prob, by_entropy, by_value = gradients()
    # Clipped: ratio 1.5 with a positive, ratio 0.5 with a negative advantage. The others: -ratio A / 4.
    np.testing.assert_allclose(by_log_prob, [0.0, -0.25, 0.75, 0.0], rtol=1e-5)
    np.testing.assert_allclose(by_entropy, [-0.1 / 4] * 4, rtol=1e-5)
    np.testing.assert_allclose(by_value, 0.5 * (VALUE - BATCH["target"]) / 4, rtol=1e-5)


def test_at_the_behaviour_policy_the_gradient_is_the_plain_policy_gradient_and_nothing_is_clipped():
    by_log_prob, _, _ = gradients(behaviour_log_prob=LOG_PROB)
    np.testing.assert_allclose(by_log_prob, -BATCH["advantage"] / 4, rtol=1e-5)
    _, metrics = compiled(LOG_PROB, ENTROPY, VALUE, **BATCH | {"behaviour_log_prob": LOG_PROB})
    assert float(metrics["clip_fraction"]) == 0.0
    assert float(metrics["approx_kl"]) == 0.0


def test_the_clipped_share_counts_the_samples_beyond_the_clip():
    behaviour = LOG_PROB - np.log(np.float32([1.19, 1.21, 0.81, 0.79]))
    _, metrics = compiled(LOG_PROB, ENTROPY, VALUE, **BATCH | {"behaviour_log_prob": behaviour})
    assert float(metrics["clip_fraction"]) == 0.5


@pytest.mark.parametrize("log_prob", [100.0, -100.0, np.inf])
def test_the_ratio_of_a_sample_that_does_not_count_may_overflow_and_changes_no_bit(log_prob):
    mask = np.array([True, False, True, True])
    wild = np.where(mask, LOG_PROB, np.float32(log_prob))
    gradient_of = jax.jit(
        jax.grad(lambda first: loss_of(first, ENTROPY, VALUE, **BATCH | {"mask": mask}), has_aux=True)
    )
    (gradient, metrics), (same, same_metrics) = gradient_of(wild), gradient_of(LOG_PROB)
    np.testing.assert_array_equal(gradient, same)
    assert np.isfinite(gradient).all()
    assert {name: float(value) for name, value in metrics.items()} == {n: float(v) for n, v in same_metrics.items()}
