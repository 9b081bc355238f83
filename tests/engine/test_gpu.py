"""A GPU and the CPU agree: short runs within tolerances that are stated, what must be exact to full precision.

    python -m pytest -m gpu tests/engine/test_gpu.py

Networks may use the GPU's reduced precision (TF32) and a policy in training amplifies any difference, so a round is
kept to two updates. Covariance, features and bonus must have full precision on every device: they are compared with
float64 on the host, to errors that TF32 (10 bits, relative error 1e-3) cannot meet.
"""

from typing import Any

import jax
import numpy as np
import pytest

from pcpg.cover.bonus import covariance, quadratic_form, whitening
from pcpg.engine.together import stepped
from pcpg.run_config import RunConfig
from pcpg.training.loop import build_agent

pytestmark = pytest.mark.gpu

PPO = {"num_updates": 2, "num_episodes": 64, "num_epochs": 1, "minibatch_size": 256, "learning_rate": 1e-3}
AGENT = {"ppo": PPO, "explore": {"visit_episodes": 64, "num_groups": 16, "max_policies": 4}}
RUNS = {
    "lock": {"env": "CombinationLock-v0", "env_options": {"horizon": 5}, "agent": AGENT},
    "maze": {
        "env": "Maze-v0",
        "env_options": {"size": 8, "steps": 60},
        "agent": AGENT | {"ppo": PPO | {"hidden": [64]}},
        "feature_options": {"num_features": 64, "num_kernels": [8, 16]},
    },
}


@pytest.fixture(scope="module")
def devices() -> tuple[Any, Any]:
    """The CPU and an accelerator."""
    if jax.default_backend() == "cpu":
        pytest.skip("no accelerator is here")
    return jax.devices("cpu")[0], jax.devices()[0]


def on(device: Any, function: Any, *arguments: Any) -> Any:
    """What a compiled function gives on a device, as NumPy arrays."""
    with jax.default_device(device):
        return jax.device_get(jax.jit(function)(*jax.device_put(arguments, device)))


def rounds_on(device: Any, name: str) -> Any:
    """The states after the first policy and after one round of updates, computed on one device."""
    with jax.default_device(device):
        agent = build_agent(RunConfig.from_json(RUNS[name] | {"lanes": 1}).resolved())
        states, out = [agent.init(3)], []
        for _ in range(2):
            (after,) = stepped(agent, states)
            states = [after[0]]
            out.append(after)
    return out


def vector(policy: Any) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(policy)])


@pytest.mark.parametrize("name", list(RUNS))
def test_a_round_of_updates_and_its_visits_agree(devices: tuple[Any, Any], name: str) -> None:
    (first, (ours, report)), (first_there, (there, report_there)) = (rounds_on(device, name) for device in devices)
    # The first policy is drawn on the host: what it visits differs only where a sample lies on the edge.
    here, other = (np.asarray(member.cells, float) for member in (first[1].member, first_there[1].member))
    assert np.abs(here - other).sum() <= 0.01 * here.sum()
    np.testing.assert_allclose(first[1].member.sigma, first_there[1].member.sigma, atol=2e-3)
    start = vector(first[0].policy)
    np.testing.assert_array_equal(start, vector(first_there[0].policy))
    # Adam's step has the size of the learning rate whatever the gradient's: the direction of the whole is compared.
    moved, moved_there = vector(ours.policy) - start, vector(there.policy) - start
    cosine = moved @ moved_there / (np.linalg.norm(moved) * np.linalg.norm(moved_there))
    assert cosine > 0.97, cosine
    assert abs(np.linalg.norm(moved) / np.linalg.norm(moved_there) - 1) < 0.03
    for metric in ("env_steps", "policies", "round"):
        assert report.metrics[metric] == report_there.metrics[metric]
    for metric, tolerance in (("train/bonus", 0.02), ("train/entropy", 0.02), ("log_det", 0.1)):
        assert report.metrics[metric] == pytest.approx(report_there.metrics[metric], rel=tolerance, abs=tolerance), (
            metric
        )


@pytest.mark.parametrize("name", list(RUNS))
def test_features_covariance_and_bonus_have_full_precision_on_every_device(devices: tuple[Any, Any], name: str) -> None:
    config = RunConfig.from_json(RUNS[name]).resolved()
    env = config.make_env()
    phi = config.make_features(env)
    rng, space = np.random.default_rng(0), env.observation_space
    observations = rng.integers(0, 2, (2048, *space.shape)).astype(space.dtype) * (
        255 if space.dtype == np.uint8 else 1
    )
    actions = rng.integers(0, env.action_space.n, 2048).astype(np.int32)
    features = [on(device, lambda *pairs: phi.batch(*pairs), observations, actions) for device in devices]
    np.testing.assert_allclose(features[1], features[0], rtol=0, atol=2e-6)

    exact = features[0].astype(np.float64)
    mask = np.ones(len(exact), bool)
    sigma = exact.T @ exact / len(exact)
    for device in devices:
        np.testing.assert_allclose(on(device, covariance, features[0], mask), sigma, rtol=0, atol=1e-6)
    whiten = whitening(sigma, 1e-4)
    form = ((exact @ whiten.astype(np.float32).astype(np.float64)) ** 2).sum(axis=1)
    for device in devices:
        found = on(device, quadratic_form, features[0], whiten.astype(np.float32))
        np.testing.assert_allclose(found, form, rtol=2e-5)
