"""Every bonus of the table by the same tests, and how settings choose one."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pcpg
from pcpg.bonuses.e3b import E3B
from pcpg.bonuses.elliptical import Elliptical, Joined
from pcpg.bonuses.icm import ICM
from pcpg.bonuses.protocol import (
    BONUSES,
    NO_BONUS,
    At,
    Bonus,
    CoverArrays,
    Pointwise,
    Samples,
    bonus_class,
    bonus_from_plain,
    upgraded,
    upgraded_flag,
)
from pcpg.bonuses.rnd import RND
from pcpg.config import ConfigError, from_plain
from pcpg.engine.rollout import Rollout
from pcpg.engine.tabulated import Table
from pcpg.envs.spaces import Box, Discrete, MultiDiscrete, Space
from pcpg.learners.update import init_adam, minimise
from pcpg.policies.networks import init_actor_critic
from pcpg.run_config import RunConfig
from pcpg.trees import flatten, unflatten

STEPS, PLACES, WIDTH, HIDDEN = 5, 3, 4, (8, 8)
SEEN = Box(-3.0, 3.0, (WIDTH,))
ACTIONS: dict[str, Space] = {
    "discrete": Discrete(3),
    "several": MultiDiscrete((2, 3)),
    "continuous": Box(-1.0, 1.0, (2,)),
}
EVERY: dict[str, Bonus[Any]] = {name: bonus_class(name)() for name in BONUSES}
EVERY |= {"rnd, scaled": RND(normalise=True), "beside": Joined(), "times": Joined(is_product=True), "none": NO_BONUS}
cases = pytest.mark.parametrize("actions", ACTIONS)
every = pytest.mark.parametrize("name", EVERY)


class Entries:
    """The observation as features, whatever the action."""

    dim = WIDTH

    def batch(self, observations: jax.Array, actions: jax.Array) -> jax.Array:
        return jnp.asarray(observations)


def fresh(bonus: Bonus[Any], space: Space, seed: int = 0) -> Any:
    return bonus.init(np.random.default_rng(seed), SEEN, space, HIDDEN)


def at(space: Space) -> At:
    phi: Any = Entries()
    return At(space, 0.9, cover=CoverArrays(phi, np.eye(WIDTH, dtype=np.float32), None, np.ones(1, np.float32)))


def played(space: Space, seed: int = 0) -> Rollout:
    """Random steps; the last place ends early, and the first begins with a roll-in."""
    rng = np.random.default_rng(seed)
    shape = (STEPS, PLACES)
    observations = jnp.asarray(rng.standard_normal((STEPS + 1, PLACES, WIDTH)), jnp.float32)
    real = isinstance(space, Box)
    actions = jnp.asarray(rng.normal(size=(*shape, 2)), jnp.float32) if real else random_choices(rng, space, shape)
    nothing, never = jnp.zeros(shape, jnp.float32), jnp.zeros(shape, bool)
    alive = ~never.at[3:, 2].set(True)
    own = alive.at[0, 0].set(False)
    return Rollout(observations, actions, nothing, nothing, never, never, alive, own, jnp.full(shape, -1, jnp.int32))


def random_choices(rng: np.random.Generator, space: Any, shape: tuple[int, ...]) -> jax.Array:
    sizes = np.asarray(space.sizes if isinstance(space, MultiDiscrete) else space.n)
    return jnp.asarray(rng.integers(sizes, size=(*shape, *space.shape)), jnp.int32)


def samples_of(data: Rollout) -> Samples:
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (data.observations[:-1], data.actions, data.following))
    zeros = jnp.zeros(STEPS * PLACES)
    return Samples(flat[0], flat[1], zeros, zeros, zeros, data.own.reshape(-1), flat[2])


@every
@cases
def test_a_bonus_is_finite_and_0_or_more_and_one_for_each_step(name: str, actions: str) -> None:
    bonus, space = EVERY[name], ACTIONS[actions]
    paid, state = jax.jit(lambda state, data: bonus.pay(state, data, at(space)))(fresh(bonus, space), played(space))
    assert paid.shape == (STEPS, PLACES) and np.isfinite(paid).all() and (np.asarray(paid) >= 0).all()
    assert (np.asarray(paid)[1] > 0).all() is np.bool_(name != "none")
    again, _ = bonus.pay(state, played(space, 1), at(space))
    assert np.isfinite(again).all()


@every
@cases
def test_the_loss_has_a_gradient_for_all_that_is_trained_and_for_nothing_else(name: str, actions: str) -> None:
    bonus, space = EVERY[name], ACTIONS[actions]
    state, samples = fresh(bonus, space), samples_of(played(space))
    policy = init_actor_critic(np.random.default_rng(1), SEEN, space, hidden=HIDDEN, shared_body=True)

    def loss(trained: Any) -> tuple[jax.Array, Any]:
        return bonus.loss(policy, trained, state, samples, at(space))

    trained = bonus.trained(state)
    samples = samples._replace(beside=bonus.beside(state, jax.random.key(0), STEPS * PLACES))
    gradient, metrics = jax.jit(jax.grad(loss, has_aux=True))(trained)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((gradient, metrics)))
    assert any(np.any(leaf) for leaf in jax.tree.leaves(gradient)) is (trained is not None)
    assert bool(metrics) is (trained is not None or samples.beside is not None)
    other = jax.tree.map(lambda leaf: leaf + 1, trained)
    moved = bonus.with_trained(state, other)
    same = [np.array_equal(x, y) for x, y in zip(*map(jax.tree.leaves, (moved, state)), strict=True)]
    assert same.count(False) == len(jax.tree.leaves(trained)), "what is not trained stays"
    np.testing.assert_equal(jax.tree.leaves(bonus.trained(moved)), jax.tree.leaves(other))


@every
def test_a_bonus_has_the_same_bits_whatever_runs_beside_it(name: str) -> None:
    bonus, space = EVERY[name], ACTIONS["discrete"]
    states, data = [fresh(bonus, space, seed) for seed in range(2)], [played(space, seed) for seed in range(2)]

    def stack(trees: Any) -> Any:
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)

    lanes = jax.jit(jax.vmap(lambda state, data: bonus.pay(state, data, at(space))))
    both, alone = lanes(stack(states), stack(data)), lanes(stack(states[:1] * 2), stack(data[:1] * 2))
    for one, other in zip(jax.tree.leaves(both), jax.tree.leaves(alone), strict=True):
        np.testing.assert_array_equal(one[0], other[0])


@every
def test_a_state_goes_through_a_file_of_arrays(name: str) -> None:
    state = fresh(EVERY[name], ACTIONS["continuous"])
    arrays = flatten(state)
    back = unflatten(state, arrays)
    assert jax.tree.structure(back) == jax.tree.structure(state)
    np.testing.assert_equal(jax.tree.leaves(back), jax.tree.leaves(state))


def test_checkpoints_name_the_arrays_of_old_as_they_did() -> None:
    rnd, e3b = (flatten(fresh(bonus, Discrete(2))) for bonus in (RND(), E3B()))
    assert {name.split(".")[1] for name in rnd} == {"target", "predictor", "scale"}
    assert {".predictor.layers[0].weight", ".scale.total"} <= rnd.keys()
    assert {".model.encoder.layers[0].weight", ".model.head.bias", ".scale.variance"} <= e3b.keys()


@pytest.mark.parametrize("name", [name for name, bonus in EVERY.items() if isinstance(bonus, Pointwise)])
@cases
def test_kept_transitions_are_paid_what_they_were_paid_in_their_rollout(name: str, actions: str) -> None:
    bonus: Any = EVERY[name]
    bonus = dataclasses.replace(bonus, normalise=False) if name == "rnd, scaled" else bonus
    space = ACTIONS[actions]
    state, data = fresh(bonus, space), played(space)
    samples = samples_of(data)
    kept = bonus.of(state, samples.observations, samples.actions, samples.following, at(space))
    assert kept.shape == (STEPS * PLACES,)
    paid = Pointwise.pay(bonus, state, data, at(space))[0]
    np.testing.assert_allclose(kept * data.own.reshape(-1), paid.reshape(-1), rtol=1e-5, atol=1e-6)


@every
def test_numbers_in_a_table_are_paid_as_the_observations_that_they_stand_for(name: str) -> None:
    bonus, space = EVERY[name], Discrete(3)
    state, data = fresh(bonus, space), played(space)
    observations = np.asarray(data.observations).reshape(-1, WIDTH)
    numbers = jnp.arange(len(observations)).reshape(STEPS + 1, PLACES)
    numbered = data._replace(observations=numbers)
    paid, _ = bonus.pay(state, data, at(space))
    by_table, _ = bonus.pay(state, numbered, at(space)._replace(table=Table(observations, 3)))
    np.testing.assert_allclose(by_table, paid, rtol=1e-4, atol=1e-6)


@cases
def test_the_curiosity_of_icm_falls_on_what_it_was_trained_on(actions: str) -> None:
    bonus, space = ICM(), ACTIONS[actions]
    state, data, there = fresh(bonus, space), played(space), at(space)
    samples: Any = samples_of(data)
    policy = init_actor_critic(np.random.default_rng(1), SEEN, space, hidden=HIDDEN, shared_body=True)

    @jax.jit
    def train(models: Any) -> Any:
        def loss(models: Any, part: Any) -> tuple[jax.Array, Any]:
            return bonus.loss(policy, models, state, part, there)

        options = {"num_epochs": 300, "minibatch_size": 15, "max_grad_norm": 5.0}
        return minimise(loss, models, init_adam(models), samples, jax.random.key(0), 0.01, **options)

    models, _, metrics = train(state.model)
    assert np.isfinite([float(value) for value in metrics.values()]).all()
    own = np.asarray(samples.mask)
    args = samples.observations, samples.actions, samples.following, there
    before, after = (np.asarray(bonus.of(one, *args))[own] for one in (state, bonus.with_trained(state, models)))
    assert after.mean() < 0.3 * before.mean()


def test_the_weights_of_bonuses_over_the_budget() -> None:
    assert [RND(coef=5.0).weight(spent) for spent in (0.0, 0.5)] == [5.0, 5.0]
    assert [E3B(coef=0.5).weight(spent) for spent in (0.0, 0.5, 2.0)] == [0.5, 0.25, 0.0]
    assert E3B(anneal=False).weight(0.9) == 0.5 and NO_BONUS.weight(0.0) == 0.0


# From settings.


@dataclasses.dataclass(frozen=True)
class Settings:
    bonus: Bonus | None = None


@pytest.mark.parametrize(
    ("data", "default", "expected"),
    [
        ("icm", None, ICM()),
        ({"name": "rnd", "coef": 5}, None, RND(coef=5.0)),
        ({"coef": 5.0}, RND(normalise=True), RND(coef=5.0, normalise=True)),
        ({"name": "e3b"}, RND(), E3B()),
        (None, RND(), None),
    ],
)
def test_a_bonus_is_read_by_its_name_over_a_default(data: Any, default: Any, expected: Any) -> None:
    assert bonus_from_plain(data, "bonus", default) == expected
    assert from_plain(Settings, {"bonus": data}, "config", Settings(default)).bonus == expected


@pytest.mark.parametrize("name", BONUSES)
def test_a_bonus_comes_back_from_its_json(name: str) -> None:
    bonus = bonus_class(name)()
    data = dataclasses.asdict(bonus)
    assert data["name"] == name and bonus_from_plain(data) == bonus


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("rdn", "unknown bonus 'rdn'; did you mean 'rnd'"),
        ({"name": "rnd", "coeff": 1.0}, "unknown entry of bonus 'coeff'; did you mean 'coef'"),
        ({"name": "rnd", "coef": "many"}, "bonus.coef must be a number, got 'many'"),
        ({"coef": 1.0}, "bonus has no name; expected one of elliptical, rnd"),
        (7, "bonus must be a name or an object, got 7"),
    ],
)
def test_a_wrong_bonus_is_refused_with_the_nearest(data: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        bonus_from_plain(data)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"rnd": {"coef": 5.0}, "e3b": None}, {"bonus": {"name": "rnd", "coef": 5.0}}),
        ({"rnd": None, "e3b": {}}, {"bonus": {"name": "e3b"}}),
        ({"rnd": None, "e3b": None, "budget": 1}, {"budget": 1, "bonus": None}),
        ({"budget": 1}, {"budget": 1}),
        ({"bonus": "icm"}, {"bonus": "icm"}),
        ({"ppo": {"shards": 1, "gamma": 0.9}}, {"ppo": {"gamma": 0.9}}),
    ],
)
def test_settings_of_old_are_read_in_todays_form(old: Any, new: Any) -> None:
    assert upgraded(old) == new
    assert upgraded(new) == new


def test_flags_of_old_are_read_in_todays_form() -> None:
    words = ["--rnd.coef", "5", "--e3b.ridge=0.1", "--ppo.gamma", "rnd"]
    assert list(map(upgraded_flag, words)) == ["--bonus.coef", "5", "--bonus.ridge=0.1", "--ppo.gamma", "rnd"]


def test_elliptical_needs_a_cover() -> None:
    from pcpg.algos.ppo import BaselineConfig

    with pytest.raises(ValueError, match="the bonus elliptical needs a cover, which PPO lacks"):
        BaselineConfig(bonus=Elliptical())


# Trained by PPO.


@pytest.mark.parametrize(
    ("env", "options"), [("CombinationLock-v0", {"horizon": 2}), ("gymnasium:Pendulum-v1", {"max_steps": 8})]
)
def test_ppo_is_trained_with_icm_by_its_name_alone(env: str, options: dict[str, Any], tmp_path: Path) -> None:
    ppo = {"num_updates": 2, "num_episodes": 16, "minibatch_size": 16, "num_epochs": 2, "hidden": [8]}
    settings = {"ppo": ppo, "bonus": "icm", "visit_episodes": 8, "num_rounds": 3}
    run = pcpg.train(env, "ppo", config=settings, out=tmp_path / "run", progress=False, **options)
    rounds = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert len(rounds) == 3
    for name in ("train/bonus", "train/forward_loss", "train/inverse_loss"):
        assert all(np.isfinite(entry[name]) for entry in rounds)
    assert rounds[0]["train/forward_loss"] != rounds[-1]["train/forward_loss"]
    assert run.config.to_json()["agent"]["bonus"]["name"] == "icm"
    assert RunConfig.from_json(run.config.to_json()).agent.bonus == ICM()
