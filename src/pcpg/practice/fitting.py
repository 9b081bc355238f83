"""The compiled parts of PC-PG that keeps its data: collect episodes, count pairs, fit values."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pcpg.cover.landmarks import Encoder, Landmarks, extend_landmarks, no_landmarks, spaced_landmarks, with_capacity
from pcpg.cover.pairs import Pairs, count, pair_bonuses
from pcpg.cover.rollin import RollIn
from pcpg.envs.protocol import Environment
from pcpg.learning.backups import Transitions, fit
from pcpg.policies.distributions import Distribution
from pcpg.policies.kernel import ExploringPolicy, ListedPolicy, optimistic, values_at
from pcpg.practice.rollout import rollout
from pcpg.practice.tabulated import LookedUp

NO_ROLL_IN = -1
LEAST = -5.0
"""Value of a task below which nothing is told apart. No return is below -1, but values of an averager are: who stands
far from what is good would find no way there if all of them were cut to the same."""
MOST_SHARES = 2**25
"""Observations times landmarks, above which observations are shared among their nearest landmarks alone."""


class Model(NamedTuple):
    """What a seed knows: landmarks, inverse covariances of pairs, and the values fitted last; room for M landmarks."""

    landmarks: Landmarks
    inverses: Any  # [A, M, M]
    w: Any  # [A, M]
    bonus: Any  # [S, A] at all observations, where they can be listed; else [0, A]


class CollectInputs(NamedTuple):
    """Everything the episodes of a round depend on."""

    seed: Any
    round: Any
    env_params: Any
    policy: ExploringPolicy | ListedPolicy
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
    """Pairs to count, and how often each observation was met; observations are rows of x."""

    model: Model
    x: Any  # [U, size]
    visits: Any  # [U]
    pairs: Pairs
    tol: Any


class CountOutputs(NamedTuple):
    """The model with the pairs counted."""

    met: Any  # [A, C, CHUNK]: the bonus of each pair before
    model: Model
    visits: Any  # [M]: shares of the visits


class PlaceInputs(NamedTuple):
    """Observations that landmarks are to explain."""

    landmarks: Landmarks
    x: Any  # [U, size]
    allowed: Any  # [U]
    tol: Any


class FitInputs(NamedTuple):
    """What a fit depends on; transitions are numbers of rows of x."""

    landmarks: Landmarks
    inverses: Any  # [A, M, M]; [A, 0, 0] for a task, which knows no bonus, and where `bonus` is given
    bonus: Any  # [U, A] at the rows of x, where it is known; else [0, A]
    x: Any  # [U, size]
    row: Any
    next_row: Any
    action: Any
    reward: Any
    live: Any
    weight: Any
    first_row: Any  # [F]: observations at which episodes begin
    bonus_coef: Any
    prior: Any  # value of a pair that was never met
    is_smooth: Any  # of a task: whether values are interpolated between spaced landmarks


class FitOutputs(NamedTuple):
    """Values, and what they say of the start."""

    w: Any
    change: Any
    value: Any


def no_model(
    inverse_scale: np.ndarray, num_actions: int, capacity: int, listed: int = 0, encoder: Encoder | None = None
) -> Model:
    """Nothing met yet: the bonus is 1 everywhere, at the listed observations too."""
    square = (num_actions, capacity, capacity)
    eye = np.broadcast_to(np.eye(capacity, dtype=np.float32), square).copy()
    w = np.zeros((num_actions, capacity), np.float32)
    marks, bonus = no_landmarks(inverse_scale, capacity, encoder), np.ones((listed, num_actions), np.float32)
    return Model(marks, eye, w, bonus)


def grown(model: Model, capacity: int) -> Model:
    """The same model with room for more landmarks."""
    old = model.landmarks.capacity
    if capacity == old:
        return model
    marks = model.landmarks
    larger = no_model(np.asarray(marks.inverse_scale), len(model.w), capacity, encoder=marks.encoder)
    larger.inverses[:, :old, :old] = model.inverses
    larger.w[:, :old] = model.w
    return larger._replace(landmarks=with_capacity(model.landmarks, capacity), bonus=model.bonus)


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


def count_pairs(inputs: CountInputs) -> CountOutputs:
    """The model after some pairs, with a landmark for every observation that the others leave unexplained."""
    model, x, visits = inputs.model, jnp.asarray(inputs.x), jnp.asarray(inputs.visits)
    landmarks = extend_landmarks(model.landmarks, x, visits > 0, inputs.tol)
    is_listed = len(model.bonus) > 0
    counted = count(landmarks.phi(x), model.inverses, inputs.pairs, everywhere=is_listed)
    bonus = jnp.clip(model.bonus - counted.fall, 0.0, 1.0) if is_listed else jnp.asarray(model.bonus)
    shares = visits @ landmarks.shares(x) / jnp.maximum(jnp.sum(visits), 1.0)
    return CountOutputs(counted.met, Model(landmarks, counted.inverses, jnp.asarray(model.w), bonus), shares)


def place_landmarks(inputs: PlaceInputs) -> Landmarks:
    """Landmarks alone."""
    return extend_landmarks(inputs.landmarks, inputs.x, inputs.allowed, inputs.tol)


def space_landmarks(inputs: PlaceInputs) -> Landmarks:
    """Landmarks for shares alone, where they are many."""
    return spaced_landmarks(inputs.landmarks, inputs.x, inputs.allowed, inputs.tol)


def has_all_shares(observations: int, landmarks: int) -> bool:
    """Whether a fit shares each observation among all landmarks: every backup goes through all shares."""
    return observations * landmarks <= MOST_SHARES


def fit_values(inputs: FitInputs, *, backups: int, gamma: float, smooth_gamma: float, explore: bool) -> FitOutputs:
    """Values from kept transitions: of the bonus still ahead, or of the task's reward, scaled to at most 1."""
    landmarks, x, num_actions = inputs.landmarks, jnp.asarray(inputs.x), len(inputs.inverses)
    shares = landmarks.shares(x) if has_all_shares(len(x), landmarks.capacity) else landmarks.nearest_shares(x)
    bonus = jnp.zeros((len(x), num_actions), jnp.float32)
    if explore:
        known = inputs.bonus if len(inputs.bonus) else pair_bonuses(landmarks.phi(x), inputs.inverses)
        bonus = jnp.asarray(known) * inputs.bonus_coef
    kept = Transitions(
        shares, bonus, inputs.row, inputs.next_row, inputs.action, inputs.reward, inputs.live, inputs.weight
    )
    limits = {"low": 0.0 if explore else LEAST, "high": 1.0}
    found = fit(
        kept,
        num_actions=num_actions,
        backups=backups,
        gamma=gamma if explore else jnp.where(inputs.is_smooth, smooth_gamma, gamma),
        explore=explore,
        prior=inputs.prior,
        is_trusting=~jnp.asarray(inputs.is_smooth),
        **limits,
    )
    first = inputs.first_row
    f = values_at(jax.tree.map(lambda leaf: leaf[first], shares), found.w, **limits)
    value = jnp.mean(jnp.max(optimistic(f, bonus[first]) if explore else f, axis=-1))
    return FitOutputs(found.played, found.change, value)
