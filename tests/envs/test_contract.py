"""The contract check passes a good environment and names what is wrong with each bad one."""

import dataclasses
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcpg.envs import Box, CellGrid, ContractError, Discrete, Environment, Image, Step, check_environment


class Place(NamedTuple):
    time: Any


@dataclasses.dataclass(frozen=True)
class Good(Environment):
    """Three decisions; the observation is the time over three. Each test below breaks one part of it."""

    length: int = 3

    @property
    def observation_space(self):
        return Box(0.0, 1.0, (1,))

    @property
    def action_space(self):
        return Discrete(2)

    @property
    def max_steps(self):
        return self.length

    def instance(self, seed):
        return {"bonus": np.random.default_rng(seed).uniform(size=2).astype(np.float32)}

    def reset(self, key, params):
        state = Place(jnp.zeros((), jnp.int32))
        return self.observe(state), state

    def transition(self, key, state, action, params):
        state = Place(state.time + 1)
        reward = jnp.asarray(params["bonus"])[action]
        return Step(self.observe(state), state, reward, state.time >= self.length, jnp.array(False), {})

    def observe(self, state):
        return (state.time.astype(jnp.float32) / self.length)[None]

    @property
    def cells(self):
        return CellGrid(("only",), ("time",), tuple("0123"[: self.length]))

    def cell(self, state):
        return jnp.where(state.time < self.length, state.time, -1)


class Moves(Good):
    """Good, but for what `change` makes of a step of `transition`."""

    def transition(self, key, state, action, params):
        return self.change(super().transition(key, state, action, params))

    def change(self, moved: Step) -> Step:
        return moved


def broken(base: type = Good, **members: Any) -> Any:
    """A good environment with some members replaced."""
    return dataclasses.dataclass(frozen=True)(type("Broken", (base,), members))()


def changed(change) -> Any:
    return broken(Moves, change=lambda self, moved: change(moved))


def stepping(change) -> Any:
    """A good environment whose `step` is changed, `transition` not; `change` sees both results."""

    def step(self, key, state, action, params):
        moved = self.transition(jax.random.split(jax.random.clone(key))[0], state, action, params)
        return change(Good.step(self, key, state, action, params), moved)

    return broken(step=step)


def test_a_good_environment_passes():
    check_environment(Good())


def test_an_environment_may_keep_a_key_in_its_state():
    class Keyed(NamedTuple):
        time: Any
        key: Any

    def reset(self, key, params):
        state = Keyed(jnp.zeros((), jnp.int32), key)
        return self.observe(state), state

    def transition(self, key, state, action, params):
        key_draw, key_next = jax.random.split(state.key)
        moved = Good.transition(self, key, state, action, params)
        return moved._replace(state=Keyed(moved.state.time, key_next), reward=jax.random.uniform(key_draw))

    check_environment(broken(reset=reset, transition=transition), num_steps=12)


def refused(env: Any, message: str, **options: Any) -> None:
    with pytest.raises(ContractError, match=message):
        check_environment(env, **({"num_steps": 12} | options))


def test_the_message_names_the_environment():
    refused(broken(max_steps=0), "^Broken: max_steps must be an integer of at least 1, got 0$")


class Loose:
    """Not a dataclass at all."""


@dataclasses.dataclass(frozen=True)
class Listing(Good):
    options: list = dataclasses.field(default_factory=list)


class Plain(Good):
    """Without the line of a dataclass."""

    __dataclass_params__ = None


def test_what_is_no_environment_is_said_to_be_none():
    refused(Loose(), "expected a gymnasium.Env, its class, or a function that makes one, got <")


def test_options_that_can_change_are_caught():
    refused(Plain(), "must be a frozen dataclass")


def test_an_option_that_cannot_be_hashed_is_caught():
    refused(Listing(), r"must be hashable, with hashable options \(unhashable type: 'list'\)")


def test_copies_that_are_not_equal_are_caught():
    by_identity = broken(__eq__=object.__eq__, __hash__=object.__hash__)
    refused(by_identity, "two copies with the same options must be equal")


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"observation_space": (3,)}, r"observation_space must be Discrete, MultiDiscrete, Box or Image, got \(3,\)"),
        ({"action_space": 2}, "action_space must be Discrete, MultiDiscrete, Box or Image, got 2"),
        ({"action_space": Image(2, 2, 1)}, "action_space cannot be Image"),
        ({"max_steps": 2.0}, "max_steps must be an integer of at least 1, got 2.0"),
        ({"instance": lambda self, seed: {"bonus": 1.0}}, r"instance\(seed\) must contain only arrays, got 1.0"),
        ({"instance": lambda self, seed: {"bonus": np.float32([0, np.inf])}}, "a non-finite number"),
        ({"instance": lambda self, seed: np.random.uniform(size=2)}, "different results for the same seed"),
        (
            {"instance": lambda self, seed: np.ones(seed + 2)},
            "same structure, shapes and dtypes for every seed",
        ),
        ({"reset": lambda self, key, params: jnp.zeros(1)}, r"reset must return \(observation, state\)"),
        ({"observe": lambda self, state: jnp.zeros(2)}, r"observation must be float32\[1\], got .*\(2,\)"),
        (
            {"observe": lambda self, state: jnp.zeros(1, jnp.int32)},
            r"observation must be float32\[1\], got .*int32",
        ),
        ({"observe": lambda self, state: jnp.full(1, 0.5)}, "observation is weakly typed"),
        (
            {"observe": lambda self, state: jnp.full(1, 1.5, jnp.float32)},
            r"reset: the observation is not in Box",
        ),
        (
            {"observe": lambda self, state: jnp.where(state.time > 1, jnp.nan, jnp.zeros(1))},
            "step 1: .* not finite",
        ),
        (
            {"cell": lambda self, state: state.time.astype(jnp.float32)},
            "cell must return an int32 scalar, got .*float",
        ),
        ({"cell": lambda self, state: state.time}, "step 2: cell must be -1 or one of the 3 cells, got 3"),
        (
            {"cell": lambda self, state: state.time - 2},
            "reset: cell must be -1 or one of the 3 cells, got -2",
        ),
    ],
)
def test_a_broken_part_is_caught(members: dict, message: str):
    refused(broken(**members), message)


def test_a_reset_that_cannot_be_compiled_is_caught():
    def reset(self, key, params):
        return Good.reset(self, key, params) if params["bonus"][0] > 0 else (None, None)

    refused(broken(reset=reset), "reset cannot be compiled by jax.jit: Attempted boolean conversion")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda moved: tuple(moved), "transition must return a Step, got tuple"),
        (
            lambda moved: moved._replace(reward=moved.reward.astype(jnp.int32)),
            "reward must be a float32 scalar",
        ),
        (lambda moved: moved._replace(reward=moved.reward[None]), "reward must be a float32 scalar"),
        (lambda moved: moved._replace(terminated=jnp.float32(0)), "terminated must be a bool scalar"),
        (lambda moved: moved._replace(truncated=jnp.int32(0)), "truncated must be a bool scalar"),
        (lambda moved: moved._replace(info=[]), "info must be a dictionary"),
        (
            lambda moved: moved._replace(observation=moved.observation[:0]),
            r"transition: the observation must be",
        ),
        (
            lambda moved: moved._replace(state=Place(moved.state.time * 1.0)),
            r"int32\[\].* became .*float32\[\]",
        ),
        (
            lambda moved: moved._replace(state=Place(moved.state.time[None])),
            r"int32\[\].* became .*int32\[1\]",
        ),
        (lambda moved: moved._replace(state=Place(jnp.asarray(0))), r"int32\[\].* became .*int32\[\]\*"),
        (
            lambda moved: moved._replace(reward=float(moved.reward)),
            "transition cannot be compiled by jax.jit",
        ),
        (lambda moved: moved._replace(state=(moved.state.time,)), "the state changes its structure"),
        (
            lambda moved: moved._replace(reward=moved.reward / (2 - moved.state.time)),
            "step 1: the reward is not fin",
        ),
        (
            lambda moved: moved._replace(terminated=jnp.array(False)),
            "episode continues after max_steps=3 steps",
        ),
        (
            lambda moved: moved._replace(reward=moved.reward + np.random.uniform()),
            "transition gives different results",
        ),
    ],
)
def test_a_broken_transition_is_caught(change, message: str):
    refused(changed(change), message)


def test_a_weakly_typed_state_is_caught():
    def reset(self, key, params):
        return jnp.zeros(1, jnp.float32), Place(jnp.asarray(0))

    refused(broken(reset=reset), "reset: the state is weakly typed")


def test_a_reset_that_draws_outside_its_key_is_caught():
    def reset(self, key, params):
        return jnp.float32([np.random.uniform()]), Place(jnp.zeros((), jnp.int32))

    refused(broken(reset=reset), "reset gives different results for the same key")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda stepped, moved: moved,
            r'step must keep the true last observation in info\["final_observation"\]',
        ),
        (
            lambda stepped, moved: stepped._replace(info={"final_observation": stepped.observation}),
            r'step 2: info\["final_observation"\] of step is not the observation of transition',
        ),
        (
            lambda stepped, moved: stepped._replace(reward=stepped.reward * 2),
            "step 0: step and transition differ in reward, terminated or truncated",
        ),
        (
            lambda stepped, moved: stepped._replace(state=moved.state),
            "step 2: step must continue from reset after an episode ends",
        ),
        (
            lambda stepped, moved: stepped._replace(observation=moved.observation),
            "step 2: step must continue from reset after an episode ends",
        ),
    ],
)
def test_a_broken_step_is_caught(change, message: str):
    refused(stepping(change), message)


def test_a_transition_that_cannot_be_vectorised_is_caught():
    def host(moved: Step) -> Step:
        shape = jax.ShapeDtypeStruct((), jnp.float32)
        return moved._replace(reward=jax.pure_callback(lambda reward: reward, shape, moved.reward))

    refused(changed(host), "cannot be vectorised by jax.vmap")


def test_a_transition_that_changes_when_vectorised_is_caught():
    @jax.custom_batching.custom_vmap
    def reward_of(reward):
        return reward

    @reward_of.def_vmap
    def _(axis_size, in_batched, reward):
        return reward + 1, in_batched[0]

    different = changed(lambda moved: moved._replace(reward=reward_of(moved.reward)))
    refused(different, "transition gives different results under jax.vmap")


def test_a_whole_episode_is_played_where_it_is_longer_than_the_steps_asked_for():
    @dataclasses.dataclass(frozen=True)
    class Late(Good):
        length: int = 50

        def cell(self, state):
            return jnp.zeros((), jnp.int32)

        def observe(self, state):
            return jnp.where(state.time > 30, 2.0, jnp.zeros(1))

    refused(Late(), "step 30: the observation is not in Box", num_steps=5)


# Gymnasium's environments.


class Door(gymnasium.Env):
    observation_space = gymnasium.spaces.Discrete(3)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return int(self.np_random.integers(2)), {}

    def step(self, action):
        return int(action), 0.5, bool(action), False, {}


def changed_door(**changes: Any) -> gymnasium.Env:
    return type("Door", (Door,), changes)()


def test_a_gymnasium_environment_is_checked_as_instance_class_or_function():
    for door in (Door(), Door, lambda: gymnasium.wrappers.TimeLimit(Door(), 3)):
        check_environment(door)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"observation_space": None}, "observation_space must be a space of gymnasium.spaces, got None"),
        ({"action_space": gymnasium.spaces.Box(-np.inf, np.inf)}, "finite bounds|bounded"),
        ({"reset": lambda self, seed=None: 0}, r"reset\(seed=...\) must return \(observation, info\)"),
        ({"reset": lambda self, seed=None: (5, {})}, "reset: the observation is not in observation_space .*: 5"),
        ({"step": lambda self, action: (0, 0.0, True, {})}, "step.action. must return .observation, reward, term"),
        ({"step": lambda self, action: (0, np.nan, True, False, {})}, "step 0: the reward must be a finite number"),
        ({"step": lambda self, action: (0, 0.0, 1, False, {})}, "step 0: terminated must be True or False, got 1"),
    ],
)
def test_what_is_wrong_with_a_gymnasium_environment_is_said(changes: dict[str, Any], said: str):
    with pytest.raises(ContractError, match=f"^Door: .*{said}"):
        check_environment(changed_door(**changes))


def test_a_reset_that_ignores_its_seed_is_found():
    counted = iter([0, 1, 0])
    with pytest.raises(ContractError, match="two resets with the same seed must give the same observation"):
        check_environment(changed_door(reset=lambda self, seed=None: (next(counted), {})))


def test_what_is_no_environment_is_refused():
    with pytest.raises(ContractError, match=r"expected a gymnasium[.]Env, its class, or a function that makes one"):
        check_environment(7)
