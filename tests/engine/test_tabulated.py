"""A table of observations changes the speed, not the result."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcpg.bonuses.elliptical import Elliptical
from pcpg.bonuses.protocol import CoverArrays
from pcpg.bonuses.rnd import RND
from pcpg.engine.play import VisitInputs, Visitor
from pcpg.envs.maze import Maze, MazeParams
from pcpg.features import make_features
from pcpg.learners.ppo import ImproveInputs, ImproveOutputs, Learner, make_task
from pcpg.learners.settings import PPOConfig
from pcpg.learners.update import init_adam
from pcpg.policies.networks import init_actor_critic
from pcpg.state import weights_rng

pytestmark = pytest.mark.slow

SEED = np.uint32(3)
CONFIG = PPOConfig(num_updates=1, num_episodes=8, num_epochs=2, minibatch_size=32, hidden=(16,))


@dataclasses.dataclass(frozen=True)
class MazeWithoutTable(Maze):
    def observation_table(self, params: MazeParams) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        del params


def network(stream: int, env: Maze):
    spaces = env.observation_space, env.action_space
    return init_actor_critic(weights_rng(0, stream), *spaces, hidden=CONFIG.hidden, shared_body=True)


def inputs_for(env: Maze, with_rnd: bool) -> ImproveInputs:
    members = jax.tree.map(lambda *leaves: np.stack(leaves), *(network(stream, env) for stream in (1, 2, 3)))
    phi = make_features("random-conv", env, 0, num_features=24)
    whiten = np.random.default_rng(0).normal(size=(24, 24)).astype(np.float32)
    cover = CoverArrays(phi, whiten, members, np.asarray([0.2, 0.3, 0.5], np.float32))
    rnd = RND().init(weights_rng(0, 9), env.observation_space, env.action_space, CONFIG.hidden)
    task = make_task(
        reward_coef=0.0,
        bonus_coef=1.0,
        start_share=0.2,
        epsilon=0.05,
        learning_rate=(1e-3, 1e-3),
        entropy_coef=(0.01, 0.01),
    )
    policy = network(0, env)
    moving = (policy, rnd.predictor) if with_rnd else (policy, None)
    adam = init_adam(moving)
    params = env.instance(1)
    chosen = (None, rnd) if with_rnd else (cover, None)
    return ImproveInputs(SEED, np.int32(0), params, policy, adam, task, *chosen)


@pytest.mark.parametrize(
    "with_rnd", [False, True], ids=["elliptical bonus with roll-in", "random network distillation"]
)
def test_an_update_by_the_table_equals_one_by_the_images(with_rnd: bool) -> None:
    results = []
    for kind in (Maze, MazeWithoutTable):
        env = kind(size=7, steps=20)
        bonus = RND(normalise=True) if with_rnd else Elliptical()
        learner = Learner(env, CONFIG, num_groups=4, sample_share=1.0 if with_rnd else 0.2, bonus=bonus)
        results.append(jax.jit(learner.improve)(inputs_for(env, with_rnd)))
    assert_equal(*results)


def assert_equal(by_table: ImproveOutputs, by_images: ImproveOutputs) -> None:
    assert by_table.env_steps == by_images.env_steps
    for name, value in by_images.metrics.items():
        np.testing.assert_allclose(by_table.metrics[name], value, rtol=1e-3, atol=1e-4, err_msg=name)
    for one, other in zip(jax.tree.leaves(by_table.policy), jax.tree.leaves(by_images.policy), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-4)


def test_with_autoreset_an_update_by_the_table_equals_one_by_the_images() -> None:
    results = []
    for kind in (Maze, MazeWithoutTable):
        env = kind(size=7, steps=20)
        inputs = inputs_for(env, with_rnd=True)
        beside_start = int(inputs.env_params.next_cell[inputs.env_params.start].max())
        inputs = inputs._replace(env_params=inputs.env_params._replace(goal=np.int32(beside_start)))
        learner = Learner(env, CONFIG, bonus=RND(normalise=True), autoreset=True)
        data = learner.gather(inputs.common, inputs.policy, jax.random.key(0))
        assert np.asarray(data.terminated)[:-1].any(axis=0).all()  # the goal is reached in every place
        results.append(jax.jit(learner.improve)(inputs))
    assert_equal(*results)
    assert results[0].env_steps == 8 * 20


def test_the_covariance_by_the_table_equals_that_by_the_images() -> None:
    seen = []
    for kind in (Maze, MazeWithoutTable):
        env = kind(size=7, steps=30)
        phi = make_features("random-conv", env, 0, num_features=24)
        inputs = VisitInputs(SEED, np.int32(0), env.instance(1), network(0, env), phi)
        seen.append(jax.jit(Visitor(env, 16).visit)(inputs))
    np.testing.assert_array_equal(seen[0].cells, seen[1].cells)
    np.testing.assert_allclose(seen[0].sigma, seen[1].sigma, atol=1e-6)


def test_the_table_of_a_maze_holds_the_image_of_every_cell() -> None:
    env = Maze(size=6)
    params = env.instance(0)
    table = env.observation_table(params)
    for index, state in enumerate(np.arange(36)):
        image = np.asarray(table[index])
        assert image[state // 6, state % 6, 1] == 255
        assert image[..., 1].sum() == 255
        np.testing.assert_array_equal(image[..., 0], jnp.asarray(params.background).reshape(6, 6, 3)[..., 0])
