"""From a seed's kept data to the inputs of the programs, and from their outputs to what a round has seen."""

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from pcpg.cover.landmarks import Landmarks, inverse_scale_of
from pcpg.cover.pairs import Pairs, pairs_of
from pcpg.cover.rollin import RollIn
from pcpg.policies.kernel import GreedyPolicy, MemberPolicy
from pcpg.practice.fitting import (
    MOST_SHARES,
    NO_ROLL_IN,
    CountInputs,
    CountOutputs,
    Episodes,
    FitInputs,
    Model,
    grown,
    no_model,
)
from pcpg.practice.grains import SMOOTH_GRAINS, View, grains_for, placed, refined_landmarks
from pcpg.practice.kept import Batch, Kept
from pcpg.practice.learned import learned_encoder
from pcpg.practice.replay_state import ReplayState, Sample, Seen, kept_of, table_of_rows
from pcpg.state import EXPLORE

if TYPE_CHECKING:
    from pcpg.practice.replay import ReplayAgent

GROUPS = 8
"""Groups of episodes that share a member for their roll-in."""
ROLLED_IN = 0.25
"""Share of the episodes of a task that are rolled in, once it has been evaluated."""
RESCALED = 0.2
"""Features are made anew where the scale of some entry has changed by more than this, as a logarithm."""
MOST_RECOUNTED = 16_384
MOST_FITTED = 65_536
"""Transitions in the fit of a task, where observations hardly come again and not all shares are kept."""
MOST_SEARCHED = 2**21
"""Transitions up to which those of a fit are taken from all, instead of the sample."""
WAITS = 0.1
"""Visits of a pair are counted when they are this share of those counted before."""


def fit_inputs(agent: "ReplayAgent", state: ReplayState) -> FitInputs:
    kept, exploring = kept_of(state), state.phase == EXPLORE
    pairs = len(agent.candidates) * state.model.landmarks.capacity
    room = (agent.config.replay.pool or min(max(8 * pairs, 4096), 65_536)) * (1 if exploring else 4)
    is_smooth = not exploring and grains_for(state) == SMOOTH_GRAINS
    # The sample is of what was new when it came; the values of a task are told apart by all that was done at a place.
    takes_all = is_smooth and kept.size <= MOST_SEARCHED
    index = np.arange(kept.size) if takes_all else _some(state, state.sample.places, room, 1)
    marks = state.model.landmarks if exploring else refined_landmarks(agent, state, index)
    most = max(MOST_SHARES // (2 * marks.capacity), MOST_FITTED)
    if not exploring and len(np.unique(kept.column("code")[index])) > most:
        ended = kept.column("terminated")[index]
        ends = index[ended] if np.count_nonzero(ended) <= most // 2 else index[:0]  # what is rare is kept
        rest = index if not len(ends) else index[~ended]
        index = np.sort(np.concatenate([ends, _some(state, rest, most - len(ends), 4)]))
    next_code, first = kept.column("next_code")[index], kept.first_codes(64)
    x, rows = rows_of(agent, state, np.concatenate([kept.column("code")[index], next_code, first]), listed=exploring)
    k, rewards = len(index), kept.column("reward")[index] / value_scale(agent, kept)
    # Where a time limit cut an episode values go on, but for who explores not into what nobody can act in: its bonus
    # would never fall.
    cut = kept.column("truncated")[index] & ~kept.is_acted_in[next_code] & exploring
    ended = kept.column("terminated")[index] | cut
    actions = kept.column("action")[index]
    pair, paid = rows[:k] * len(agent.candidates) + actions, False if exploring else rewards
    chosen, weight = _distinct(pair, rows[k : 2 * k], ~ended, paid)
    row, next_row, action, live = rows[:k][chosen], rows[k : 2 * k][chosen], actions[chosen], ~ended[chosen]
    reward = np.zeros(len(row)) if exploring else rewards[chosen]
    room = max(1024, 1 << (len(row) - 1).bit_length())

    def fill(values: np.ndarray, kind: Any) -> np.ndarray:
        return np.concatenate([values.astype(kind), np.zeros(room - len(row), kind)])

    nothing, model = np.zeros((len(agent.candidates), 0, 0), np.float32), state.model
    return FitInputs(
        landmarks=marks,
        inverses=model.inverses if exploring and not len(model.bonus) else nothing,
        bonus=model.bonus if exploring else nothing[0].T,
        x=x,
        row=fill(row, np.int32),
        next_row=fill(next_row, np.int32),
        action=fill(action, np.int32),
        reward=fill(reward, np.float32),
        live=fill(live, np.float32),
        weight=fill(weight, np.float32),
        first_row=rows[2 * k :].astype(np.int32),
        bonus_coef=np.float32(agent.config.explore.bonus_coef),
        prior=np.float32(0.0 if exploring else kept.returns_to_go().min() / value_scale(agent, kept)),
        is_smooth=np.asarray(is_smooth),
    )


def _some(state: ReplayState, index: np.ndarray, most: int, purpose: int) -> np.ndarray:
    """Those of some transitions that there is room for, at random."""
    if len(index) <= most:
        return index
    rng = np.random.default_rng([int(state.seed), int(state.round), purpose])
    return np.sort(rng.choice(index, most, replace=False))


def _distinct(
    pair: np.ndarray, next_row: np.ndarray, live: np.ndarray, reward: np.ndarray | bool
) -> tuple[np.ndarray, np.ndarray]:
    """One of each kind of transition by its place, and how many there are of it; False: rewards do not count."""
    key = (pair.astype(np.int64) * (int(next_row.max(initial=0)) + 1) + next_row) * 2 + live
    if reward is not False:
        _, kind = np.unique(reward, return_inverse=True)
        key = key * (int(kind.max(initial=0)) + 1) + kind
    _, chosen, number = np.unique(key, return_index=True, return_counts=True)
    return chosen, number


def rows_of(
    agent: "ReplayAgent", state: ReplayState, codes: np.ndarray, *, listed: bool
) -> tuple[np.ndarray, np.ndarray]:
    """A table of observations, and the row of each code: all there are where they are listed, else those asked for."""
    kept, table = kept_of(state), agent.listed(int(state.seed)) if listed else None
    if table is None:
        distinct, rows = np.unique(codes, return_inverse=True)
        return table_of_rows(kept.observations[distinct]), rows
    return table.x, table.rows(kept)[codes]


def value_scale(agent: "ReplayAgent", kept: Kept) -> float:
    """What no return of a task can exceed: the largest reward met, at every step; 1 where there was none."""
    return float(np.max(np.abs(kept.column("reward")), initial=0.0)) * agent.env.max_steps or 1.0


def roll_in_of(agent: "ReplayAgent", state: ReplayState, model: Model) -> RollIn:
    """Members drawn by their weights, and uniform lengths for a share of the episodes."""
    cover, marks, (rng, length) = state.cover, model.landmarks, explore_lengths(agent, state)
    weights = cover.weights[len(cover.weights) - len(cover.w) :]
    which = rng.choice(len(cover.w), GROUPS, p=weights / weights.sum()) if len(cover.w) else np.zeros(GROUPS, int)
    scale, places, room = np.asarray(marks.inverse_scale), np.asarray(marks.places), np.shape(model.w)[-1]
    if len(cover.w):
        w = np.pad(cover.w[which], ((0, 0), (0, 0), (0, room - cover.w.shape[-1])))
        counts = cover.landmarks[which].astype(np.int32)
    else:
        w, counts = np.zeros((GROUPS, *np.shape(model.w)), np.float32), np.zeros(GROUPS, np.int32)
    members = [
        MemberPolicy(scale, places, np.asarray(n), np.asarray(own), marks.encoder)
        for n, own in zip(counts, w, strict=True)
    ]
    return RollIn(jax.tree.map(lambda *leaves: np.stack(leaves), *members), length)


def explore_lengths(agent: "ReplayAgent", state: ReplayState) -> tuple[np.random.Generator, np.ndarray]:
    """Lengths of the roll-ins of a round that explores."""
    explore = agent.config.explore
    return _lengths(agent, state, explore.num_episodes, explore.roll_in_share if len(state.cover.w) else 0.0)


def _lengths(
    agent: "ReplayAgent", state: ReplayState, number: int, share: float
) -> tuple[np.random.Generator, np.ndarray]:
    """Uniform lengths for a share of the episodes, and who drew them."""
    rng = np.random.default_rng([int(state.seed), int(state.round), 3])
    chance, steps = rng.random(number), rng.integers(agent.env.max_steps, size=number)
    return rng, np.where(chance < share, steps, NO_ROLL_IN).astype(np.int32)


def task_roll_in(agent: "ReplayAgent", state: ReplayState, policy: GreedyPolicy) -> RollIn:
    """None where the task is evaluated: in its first round, in a try, and where a policy is played again.

    Else a quarter of the episodes, by the cover. Where the cover's policies are not at hand, in a run on the data of
    another, the policy itself rolls in.
    """
    share = ROLLED_IN if state.phase_round > 0 and not (state.tries or state.confirms) else 0.0
    _, length = _lengths(agent, state, agent.config.exploit.visit_episodes, share)
    if len(state.cover.w):
        return roll_in_of(agent, state, state.model)._replace(length=length)
    return RollIn(jax.tree.map(lambda leaf: np.stack([np.asarray(leaf)] * GROUPS), policy), length)


def tried_in(agent: "ReplayAgent", state: ReplayState, played: Episodes, batch: Batch, roll_in: RollIn) -> Seen:
    """What the episodes of a task showed: all of it is kept, and the episodes from the start are its evaluation."""
    kept = kept_of(state)
    places = np.concatenate([state.sample.places, kept.size + np.arange(len(batch.code))])
    weight = np.concatenate([state.sample.weight, np.ones(len(batch.code), np.float32)])
    kept.add(batch)
    same = {"features": int(state.features), "scaled_at": int(state.scaled_at), "waiting": state.waiting}
    return Seen(
        returns=_returns_of(played, np.asarray(roll_in.length)),
        cells=_cells_of(agent, played),
        env_steps=len(batch.code),
        finite=_is_finite(batch),
        batch=batch,
        model=state.model,
        sample=Sample(places, weight),
        visits=np.zeros(0, np.float32),
        largest=0.0,
        **same,
    )


def _returns_of(played: Episodes, length: np.ndarray) -> np.ndarray:
    """Of the episodes from the start; of all where each was rolled in."""
    returns, own = np.where(played.alive, played.rewards, 0.0).sum(axis=0), length == NO_ROLL_IN
    return returns[own] if own.any() else returns


def _cells_of(agent: "ReplayAgent", played: Episodes) -> np.ndarray:
    return np.bincount(played.cells[played.cells >= 0], minlength=agent.env.num_cells).astype(np.int32)


def _is_finite(batch: Batch) -> bool:
    return bool(np.isfinite(batch.reward).all() and np.isfinite(batch.observations.astype(np.float32)).all())


def with_room(agent: "ReplayAgent", model: Model) -> Model:
    """The model with room for more landmarks where it is nearly full."""
    room, most = model.landmarks.capacity, agent.config.replay.max_landmarks
    if len(model.bonus):  # as many as there are observations suffice
        most = min(most, -(-len(model.bonus) // 64) * 64)
    more = 2 * room if room < 512 else room + 256
    return grown(model, max(min(more, most), room)) if int(model.landmarks.count) > 0.7 * room else model


class Met(NamedTuple):
    """The pairs of some transitions."""

    x: np.ndarray  # [U, size]
    visits: np.ndarray  # [U]
    pairs: Pairs
    place: np.ndarray | None  # [3, k]: where each transition finds its pair; None where the bonus of all is known ...
    bonus: np.ndarray | None  # [k]: ... and this is that of each transition
    waiting: np.ndarray  # [S, A] visits that are not counted yet


def met_in(
    agent: "ReplayAgent", state: ReplayState, code: np.ndarray, action: np.ndarray, weight: np.ndarray | None = None
) -> Met:
    """The pairs (code, action), each counted as often as it is there or by its weight.

    Where the bonus of all observations is known, visits of a pair wait until they change its bonus by a tenth: what is
    known well is counted ever more rarely, and a round costs as much as it met that is new.
    """
    x, rows = rows_of(agent, state, code, listed=True)
    number, bonus, waiting = len(agent.candidates), np.asarray(state.model.bonus), state.waiting
    visits = np.bincount(rows, weight, minlength=len(x)).astype(np.float32)
    distinct, inverse = np.unique(rows.astype(np.int64) * number + action, return_inverse=True)
    row, act, count = distinct // number, distinct % number, np.bincount(inverse, weight)
    if not len(bonus) or weight is not None:
        pairs, place = pairs_of(row, act, count, number)
        return Met(x, visits, pairs, place[:, inverse], None, np.zeros_like(waiting))
    total = waiting[row, act] + count
    enters = total * bonus[row, act] >= WAITS
    waiting = waiting.copy()
    waiting[row, act] = np.where(enters, 0.0, total)
    pairs, _ = pairs_of(row[enters], act[enters], total[enters], number)
    return Met(x, visits, pairs, None, bonus[row, act][inverse], waiting)


def seen_in(
    agent: "ReplayAgent", state: ReplayState, played: Episodes, batch: Batch, own_met: Met, counted: CountOutputs
) -> Seen:
    """The batch kept, a part of it in the sample, and features made anew where their scale has changed."""
    kept = kept_of(state)
    met = own_met.bonus if own_met.place is None else np.asarray(counted.met)[tuple(own_met.place)]
    assert met is not None
    chance = np.minimum(1.0, agent.config.replay.sample_rate * met)
    rng = np.random.default_rng([int(state.seed), int(state.round), 2])
    chosen = np.flatnonzero(rng.random(len(met)) < chance)
    index = np.concatenate([state.sample.places, kept.size + chosen])
    weight = np.concatenate([state.sample.weight, (1.0 / chance[chosen]).astype(np.float32)])
    kept.add(batch)
    sample, model, waiting = Sample(index, weight), counted.model, own_met.waiting
    features, scaled_at = int(state.features), int(state.scaled_at)
    if kept.size >= 2 * scaled_at:
        scaled_at, marks = kept.size, None if features == 0 else model.landmarks
        view = view_of(agent, state, sample, marks)
        if marks is None or view.encoder is not None or _has_changed(view.scale, np.asarray(marks.inverse_scale)):
            features, model = features + 1, recounted(agent, state, sample, view, model)
            waiting = np.zeros_like(waiting)
    return Seen(
        returns=_returns_of(played, explore_lengths(agent, state)[1]),
        cells=_cells_of(agent, played),
        env_steps=len(batch.code),
        finite=_is_finite(batch),
        batch=batch,
        model=model,
        sample=sample,
        features=features,
        scaled_at=scaled_at,
        visits=np.asarray(counted.visits),
        waiting=waiting,
        largest=float(met.max()),
    )


def _has_changed(scale: np.ndarray, old: np.ndarray) -> bool:
    """Whether some entry that is looked at has another scale now."""
    seen = scale > 0
    return bool(np.max(np.abs(np.log(scale[seen] / old[seen])), initial=0.0) > RESCALED)


def view_of(agent: "ReplayAgent", state: ReplayState, sample: Sample, landmarks: Landmarks | None) -> View:
    """How the kernel is to see observations, by the data so far."""
    kept, closer = kept_of(state), int(state.closer)
    if agent.config.replay.features == "observation":
        return View(scale_of(agent, kept, landmarks, closer))
    codes = np.unique(kept.column("code")[sample.places])
    return settled_view(agent, kept, sample.places, codes, int(state.seed), closer)


def scale_of(agent: "ReplayAgent", kept: Kept, landmarks: Landmarks | None, closer: int = 0) -> np.ndarray:
    """The scale of features by the data so far; landmarks, once there are any, stand for distinct places.

    The kernel is half as wide for every closer look.
    """
    x, ratio = kept.some_vectors(), agent.config.replay.bandwidth * 0.5**closer
    if agent.config.replay.bandwidth_scale == "raw":
        scale = np.full(x.shape[1], 1 / ratio, np.float32)
    elif landmarks is None:
        scale = inverse_scale_of(x, x, ratio)
    else:
        scaled, by = np.asarray(landmarks.places)[: int(landmarks.count)], np.asarray(landmarks.inverse_scale)
        scale = inverse_scale_of(x, scaled / np.where(by > 0, by, 1), ratio)
    scale[list(kept.ignored)] = 0  # whatever they are, the distance is the same
    return scale


def settled_view(
    agent: "ReplayAgent", kept: Kept, places: np.ndarray, codes: np.ndarray, seed: int, closer: int = 0
) -> View:
    """The same from all data at once: landmarks in one scale tell the next, as they did round by round.

    Args:
        agent: Whose settings and programs are used.
        kept: The data.
        places: Transitions that features are learned from, where they are.
        codes: Observations among which landmarks are placed.
        seed: Whose features they are.
        closer: How often the kernel was made narrower.
    """
    rng = np.random.default_rng(len(codes))
    codes = rng.choice(codes, MOST_RECOUNTED, replace=False) if len(codes) > MOST_RECOUNTED else codes
    x, tol = table_of_rows(kept.observations[codes]), agent.config.replay.tolerance
    if agent.config.replay.features == "observation":
        view = View(scale_of(agent, kept, None, closer))
        for _ in range(3):
            view = View(scale_of(agent, kept, placed(agent, view, x, len(codes), tol), closer))
        return view
    encoder, ratio = learned_encoder(agent, kept, places, seed), agent.config.replay.bandwidth * 0.5**closer
    u = np.asarray(agent.encode([(encoder, x)])[0])[: len(codes)]
    view = View(inverse_scale_of(u, u, ratio, by_entry=False), encoder)
    for _ in range(3):
        marks = placed(agent, view, x, len(codes), tol)
        apart = np.asarray(marks.places)[: int(marks.count)] / view.scale
        view = View(inverse_scale_of(u, apart, ratio, by_entry=False), encoder)
    return view


def recounted(agent: "ReplayAgent", state: ReplayState, sample: Sample, view: View, old: Model) -> Model:
    """The model in features of another scale, from the sample: its weighted sums stand for those over all data."""
    index, weight = sample
    if len(index) > MOST_RECOUNTED:
        some = np.random.default_rng(len(index)).choice(len(index), MOST_RECOUNTED, replace=False)
        index, weight = index[some], weight[some] * (len(index) / MOST_RECOUNTED)
    kept, number, tol = kept_of(state), len(agent.candidates), np.float32(agent.config.replay.tolerance)
    met = met_in(agent, state, kept.column("code")[index], kept.column("action")[index], weight)
    model = no_model(view.scale, number, old.landmarks.capacity, len(old.bonus), view.encoder)
    while True:  # as much room as the new features need
        (counted,) = agent.count([CountInputs(model, met.x, met.visits, met.pairs, tol)])
        full = int(counted.model.landmarks.count) == model.landmarks.capacity
        if not full or model.landmarks.capacity >= agent.config.replay.max_landmarks:
            return counted.model
        model = no_model(view.scale, number, 2 * model.landmarks.capacity, len(old.bonus), view.encoder)
