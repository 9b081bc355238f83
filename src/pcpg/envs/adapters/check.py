"""What `check_environment` asks of a Gymnasium environment: spaces to learn on, and Gymnasium's interface."""

from typing import Any, NoReturn

import gymnasium
import numpy as np

from pcpg.envs.adapters.spaces import actions_of, observations_of
from pcpg.envs.contract import ContractError


def check_gymnasium(made: Any, seed: int, num_steps: int) -> None:
    """Play at random and raise a ContractError at the first thing that would go wrong in training."""
    name = getattr(made, "__name__", type(made).__name__)

    def refuse(what: str) -> NoReturn:
        raise ContractError(f"{name}: {what}")

    env = made if isinstance(made, gymnasium.Env) else made() if callable(made) else None
    if not isinstance(env, gymnasium.Env):
        refuse(f"expected a gymnasium.Env, its class, or a function that makes one, got {env or made!r}")
    for side, coder in (("observation_space", observations_of), ("action_space", actions_of)):
        space = getattr(env, side, None)
        if not isinstance(space, gymnasium.Space):
            refuse(f"{side} must be a space of gymnasium.spaces, got {space!r}")
        try:
            coder(space)
        except ValueError as error:
            refuse(str(error))
    if not np.array_equal(_flat(env, _reset(env, seed, refuse)), _flat(env, _reset(env, seed, refuse))):
        refuse("two resets with the same seed must give the same observation: draw from self.np_random")
    env.action_space.seed(seed)
    is_over = False
    for at in range(num_steps):
        if is_over:
            _reset(env, None, refuse)
        is_over = _step(env, at, refuse)


def _reset(env: gymnasium.Env, seed: int | None, refuse: Any) -> Any:
    found: Any = env.reset(seed=seed)
    if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], dict)):
        refuse("reset(seed=...) must return (observation, info), with a dict for info")
    _check_observation(env, found[0], "reset", refuse)
    return found[0]


def _step(env: gymnasium.Env, at: int, refuse: Any) -> bool:
    found: Any = env.step(env.action_space.sample())
    if not (isinstance(found, tuple) and len(found) == 5):
        refuse("step(action) must return (observation, reward, terminated, truncated, info)")
    observation, reward, terminated, truncated, _ = found
    _check_observation(env, observation, f"step {at}", refuse)
    if not (np.ndim(reward) == 0 and np.isreal(reward) and np.isfinite(reward)):
        refuse(f"step {at}: the reward must be a finite number, got {reward!r}")
    for side, value in (("terminated", terminated), ("truncated", truncated)):
        if not isinstance(value, bool | np.bool_):
            refuse(f"step {at}: {side} must be True or False, got {value!r}")
    return bool(terminated or truncated)


def _check_observation(env: gymnasium.Env, observation: Any, when: str, refuse: Any) -> None:
    if not env.observation_space.contains(observation):
        refuse(f"{when}: the observation is not in observation_space {env.observation_space}: {observation!r}")


def _flat(env: gymnasium.Env, observation: Any) -> np.ndarray:
    return observations_of(env.observation_space).encode(observation)
