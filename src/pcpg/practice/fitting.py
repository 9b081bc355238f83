"""The compiled parts of PC-PG that keeps its data: collect episodes, count pairs, fit values."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pcpg.cover.landmarks import Landmarks, extend_landmarks, no_landmarks, with_capacity
from pcpg.cover.pairs import pair_bonuses, pair_covariances, pair_roots
from pcpg.cover.rollin import RollIn
from pcpg.envs.protocol import Environment
from pcpg.learning.backups import Transitions, fit
from pcpg.policies.distributions import Distribution
from pcpg.policies.kernel import ExploringPolicy, optimistic, values_at
from pcpg.practice.rollout import rollout
from pcpg.practice.tabulated import LookedUp

FLOOR = 1e-3
"""A pair whose bonus is below this is counted no more: float32 would lose the ridge beside it."""
NO_ROLL_IN = -1


class Model(NamedTuple):
    """What a seed knows: landmarks, covariances of pairs, and the values fitted last; room for M landmarks."""

    landmarks: Landmarks
    sigmas: Any  # [A, M, M]
    roots: Any  # [A, M, M]
    w: Any  # [A, M]


class CollectInputs(NamedTuple):
    """Everything the episodes of a round depend on."""

    seed: Any
    round: Any
    env_params: Any
    policy: ExploringPolicy
    roll_in: RollIn  # members by group, and a length for each episode; NO_ROLL_IN: none
    table: Any | None  # [S, ...] the observations of all states, where they can be listed


class Episodes(NamedTuple):
    """The episodes of a round, [T, E, ...]."""

    observations: Any  # [T + 1, E, ...]; with a table, numbers of its rows
    actions: Any  # numbers of candidates
    rewards: Any
    terminated: Any
    truncated: Any
    alive: Any
    cells: Any  # -1 for nowhere


class CountInputs(NamedTuple):
    """Pairs to count: how often each action was taken at each of some observations."""

    model: Model
    x: Any  # [U, size]
    counts: Any  # [A, U]
    tol: Any


class Counted(NamedTuple):
    """The model with the pairs counted."""

    met: Any  # [U, A]: the bonus of each pair before
    model: Model
    visits: Any  # [M]: shares of the visits


class FitInputs(NamedTuple):
    """What a fit depends on; transitions are numbers of rows of x."""

    landmarks: Landmarks
    roots: Any  # [A, M, M]; [A, 0, 0] for a task, which knows no bonus
    x: Any  # [U, size]
    row: Any
    next_row: Any
    action: Any
    reward: Any
    live: Any
    weight: Any
    first_row: Any  # [F]: observations at which episodes begin
    bonus_coef: Any


class FitOutputs(NamedTuple):
    """Values, and what they say of the start."""

    w: Any
    change: Any
    value: Any


def no_model(inverse_scale: np.ndarray, num_actions: int, capacity: int) -> Model:
    """Nothing met yet: the bonus is 1 everywhere."""
    square = (num_actions, capacity, capacity)
    eye = np.broadcast_to(np.eye(capacity, dtype=np.float32), square).copy()
    w = np.zeros((num_actions, capacity), np.float32)
    return Model(no_landmarks(inverse_scale, capacity), np.zeros(square, np.float32), eye, w)


def grown(model: Model, capacity: int) -> Model:
    """The same model with room for more landmarks."""
    old = model.landmarks.capacity
    if capacity == old:
        return model
    larger = no_model(np.asarray(model.landmarks.inverse_scale), len(model.w), capacity)
    larger.sigmas[:, :old, :old] = model.sigmas
    larger.roots[:, :old, :old] = model.roots
    larger.w[:, :old] = model.w
    return larger._replace(landmarks=with_capacity(model.landmarks, capacity))


def collect_episodes(
    inputs: CollectInputs, env: Environment, distribution: Distribution, num_episodes: int
) -> Episodes:
    """Episodes of the exploring policy; after a roll-in the first action is random."""
    key = jax.random.fold_in(jax.random.key(inputs.seed), inputs.round)
    policy, roll_in, table = inputs.policy, inputs.roll_in, inputs.table
    if table is not None:  # every policy is asked once for each observation there is
        nothing = jnp.zeros(len(table), jnp.float32)
        members = jax.vmap(lambda member: LookedUp(member.outputs(table), nothing))(roll_in.policies)
        policy, roll_in = LookedUp(policy.outputs(table), nothing), roll_in._replace(policies=members)
    data = rollout(
        env,
        inputs.env_params,
        policy,  # pyright: ignore[reportArgumentType]
        distribution,
        key,
        num_episodes=num_episodes,
        roll_in=roll_in,
        epsilon=1.0,
        numbered=table is not None,
    )
    return Episodes(
        data.observations, data.actions, data.rewards, data.terminated, data.truncated, data.alive, data.cells
    )


def count_pairs(inputs: CountInputs) -> Counted:
    """The model after some pairs, with a landmark for every observation that the others leave unexplained."""
    model, x = inputs.model, jnp.asarray(inputs.x)
    met = pair_bonuses(model.landmarks.phi(x), model.roots)
    visits = jnp.sum(inputs.counts, axis=0)
    landmarks = extend_landmarks(model.landmarks, x, visits > 0, inputs.tol)
    counted = jnp.where(met.T > FLOOR, inputs.counts, 0.0)
    sigmas = model.sigmas + pair_covariances(landmarks.phi(x), counted)
    shares = visits @ landmarks.shares(x) / jnp.maximum(jnp.sum(visits), 1.0)
    return Counted(met, Model(landmarks, sigmas, pair_roots(sigmas), jnp.asarray(model.w)), shares)


def place_landmarks(inputs: CountInputs) -> Landmarks:
    """Landmarks alone, for the observations that were met."""
    return extend_landmarks(inputs.model.landmarks, inputs.x, jnp.sum(inputs.counts, axis=0) > 0, inputs.tol)


def fit_values(inputs: FitInputs, *, backups: int, gamma: float, explore: bool) -> FitOutputs:
    """Values from kept transitions: of the bonus still ahead, or of the task's reward, scaled to at most 1."""
    landmarks, x, num_actions = inputs.landmarks, jnp.asarray(inputs.x), len(inputs.roots)
    shares = landmarks.shares(x)
    bonus = jnp.zeros((len(x), num_actions), jnp.float32)
    if explore:
        bonus = pair_bonuses(landmarks.phi(x), inputs.roots) * inputs.bonus_coef
    kept = Transitions(
        shares, bonus, inputs.row, inputs.next_row, inputs.action, inputs.reward, inputs.live, inputs.weight
    )
    limits = {"low": 0.0 if explore else -1.0, "high": 1.0}
    found = fit(kept, num_actions=num_actions, backups=backups, gamma=gamma, explore=explore, **limits)
    first = inputs.first_row
    f = values_at(shares[first], found.w, **limits)
    value = jnp.mean(jnp.max(optimistic(f, bonus[first]) if explore else f, axis=-1))
    return FitOutputs(found.w, found.change, value)
