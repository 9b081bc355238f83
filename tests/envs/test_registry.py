"""Environments by name: what is wrong in a request is named, with the nearest valid choice."""

import dataclasses
from collections.abc import Iterator
from typing import Literal

import pytest

from pcpg.envs import CombinationLock, InvalidOption, UnknownEnvironment, make, register, registry, spec
from tests.probes import OneStep


@pytest.fixture
def scratch_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A copy of the registry that is thrown away after the test."""
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))
    yield


@dataclasses.dataclass(frozen=True)
class Tunable(OneStep):
    size: int
    rate: float = 0.5
    mode: Literal["fast", "slow"] = "fast"
    limit: int | None = None
    noisy: bool = False


def test_make_passes_the_options_on():
    assert make("CombinationLock-v0") == CombinationLock(horizon=10)
    assert make("CombinationLock-v0", horizon=3) == CombinationLock(horizon=3)


@pytest.mark.parametrize(
    ("env_id", "nearest"),
    [
        ("CombinatonLock-v0", "CombinationLock-v0"),
        ("combinationlock", "CombinationLock-v0"),
        ("LOCK", "CombinationLock-v0"),
        ("deepsea-v1", "DeepSea-v0"),
        ("pcpg/Chain-v0", "Chain-v0"),
        ("CartPole-v1", "gymnasium:CartPole-v1"),
        ("gym:CartPole-v1", "gymnasium:CartPole-v1"),
        ("cartpole-v1", "gymnasium:CartPole-v1"),
        ("Taxi-v3", "gymnasium:Taxi-v4"),
        ("ALE/Pong-v5", "gymnasium:ALE/Pong-v5"),
        ("MiniGrid-DoorKey-6x6-v0", "gymnasium:MiniGrid-DoorKey-6x6-v0"),
    ],
)
def test_an_unknown_id_names_itself_the_nearest_and_all_valid_ones(env_id: str, nearest: str):
    with pytest.raises(UnknownEnvironment) as raised:
        make(env_id)
    message = str(raised.value)
    assert message.startswith(f"unknown environment {env_id!r}; did you mean {nearest!r}? Your own are FILE.py:NAME ")
    assert all(entry.id in message for entry in spec())


def test_an_unknown_option_names_itself_the_nearest_and_the_valid_ones_with_their_defaults():
    with pytest.raises(InvalidOption) as raised:
        make("Chain-v0", horzon=5)
    assert str(raised.value) == (
        "Chain-v0 has no option 'horzon'; did you mean 'horizon'? Valid options: length=8, horizon=16"
    )


def test_an_environment_without_options_says_so():
    with pytest.raises(InvalidOption, match=r"^ProbeOneStep-v0 has no option 'size'; it has no options$"):
        make("ProbeOneStep-v0", size=3)


@pytest.mark.parametrize("horizon", ["5", 2.5, True, None])
def test_an_option_of_the_wrong_type_is_named_with_its_value(horizon):
    with pytest.raises(InvalidOption) as raised:
        make("CombinationLock-v0", horizon=horizon)
    assert str(raised.value) == (
        f"CombinationLock-v0: option 'horizon' must be an integer, got {horizon!r}. Valid options: horizon=10"
    )


def test_an_option_out_of_range_is_named_with_its_value():
    with pytest.raises(InvalidOption) as raised:
        make("CombinationLock-v0", horizon=0)
    assert str(raised.value) == ("CombinationLock-v0: horizon must be at least 1, got 0. Valid options: horizon=10")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"^Tunable-v0 needs option 'size'. Valid options: size \(required\), rate=0.5, mode='fast'"),
        ({"size": 1, "mode": "quick"}, "unknown value of option 'mode' 'quick'; did you mean 'slow'"),
        ({"size": 1, "rate": "high"}, "option 'rate' must be a number, got 'high'"),
        ({"size": 1, "limit": 2.5}, r"option 'limit' must be an integer, got 2.5"),
        ({"size": 1, "noisy": 1}, "option 'noisy' must be true or false, got 1"),
    ],
)
def test_options_of_every_kind_are_checked(scratch_registry, options: dict, message: str):
    register("Tunable-v0", Tunable, "for this test")
    with pytest.raises(InvalidOption, match=message):
        make("Tunable-v0", **options)


def test_values_of_the_right_kind_are_taken(scratch_registry):
    register("Tunable-v0", Tunable, "for this test")
    env = make("Tunable-v0", size=1, rate=1, mode="slow", limit=None, noisy=True)
    assert env == Tunable(size=1, rate=1, mode="slow", limit=None, noisy=True)


def test_a_registered_environment_can_be_made_and_is_listed(scratch_registry):
    register("Mine-v3", lambda horizon=2: CombinationLock(horizon), "a lock of mine")
    assert make("Mine-v3", horizon=4) == CombinationLock(4)
    (listed,) = spec("Mine-v3")
    assert (listed.id, listed.summary, listed.max_steps) == ("Mine-v3", "a lock of mine", 3)


def test_a_taken_id_is_refused_unless_it_is_to_be_replaced(scratch_registry):
    with pytest.raises(ValueError, match="Chain-v0 is already registered; pass overwrite=True"):
        register("Chain-v0", OneStep, "not a chain")
    register("Chain-v0", OneStep, "not a chain", overwrite=True)
    assert make("Chain-v0") == OneStep()


@pytest.mark.parametrize("env_id", ["Mine", "mine v0", "space/Mine-v0", "-v0", ""])
def test_an_id_without_name_and_version_is_refused(scratch_registry, env_id: str):
    with pytest.raises(ValueError, match="a name and a version such as 'MyMaze-v0', got"):
        register(env_id, OneStep, "no")


def test_a_constructor_that_cannot_be_called_is_refused(scratch_registry):
    with pytest.raises(TypeError, match="the constructor of Mine-v0 must be callable"):
        register("Mine-v0", OneStep(), "no")


def test_the_listing_tells_options_spaces_and_length():
    (lock,) = spec("CombinationLock-v0")
    assert [str(option) for option in lock.options] == ["horizon=10"]
    assert lock.observation_space == "Box(low=0.0, high=1.0, shape=(15,))"
    assert lock.action_space == "Discrete(n=10)"
    assert lock.max_steps == 11


def test_an_environment_with_required_options_is_listed_without_being_made(scratch_registry):
    register("Tunable-v0", Tunable, "for this test")
    (listed,) = spec("Tunable-v0")
    assert (listed.observation_space, listed.max_steps) == ("depends on the options", None)
