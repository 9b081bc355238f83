"""From kept data to the inputs of the kernel's programs."""

from typing import Any, NamedTuple

import numpy as np

from pcpg.data import Draws, Kept, Listed, Sample, Stream, rows_of
from pcpg.kernel.fitting import MOST_SHARES, FitInputs, Model
from pcpg.kernel.pairs import Pairs, pairs_of

MOST_FITTED = 65_536
"""Transitions in the fit of a task, if observations rarely repeat and not all shares are kept."""
WAITS = 0.1
"""Visits of a pair are counted when they are this share of those counted before."""


def explore_inputs(
    kept: Kept, sample: Sample, model: Model, listed: Listed | None, draws: Draws, *, most: int, bonus_coef: float
) -> FitInputs:
    """What values of the bonus still ahead are fitted to: at most so many transitions of the sample."""
    index = some_of(sample.places, most, draws, Stream.POOL)
    # Where a time limit cut an episode values go on, but not into an observation in which nobody ever acted: its bonus
    # would never fall.
    cut = kept.column("truncated")[index] & ~kept.is_acted_in[kept.column("next_code")[index]]
    ended = kept.column("terminated")[index] | cut
    return FitInputs(
        landmarks=model.landmarks,
        known=model.known,
        **transitions(kept, index, len(model.w), ended, listed=listed),
        bonus_coef=np.float32(bonus_coef),
        prior=np.float32(0.0),
        is_smooth=np.asarray(False),
    )


def thinned(kept: Kept, index: np.ndarray, landmarks: int, draws: Draws) -> np.ndarray:
    """Those of the transitions of a task that there is room for, by how many observations are in them."""
    most = max(MOST_SHARES // (2 * landmarks), MOST_FITTED)
    if len(np.unique(kept.column("code")[index])) <= most:
        return index
    ended = kept.column("terminated")[index]
    ends = index[ended] if np.count_nonzero(ended) <= most // 2 else index[:0]  # what is rare is kept
    rest = index if not len(ends) else index[~ended]
    return np.sort(np.concatenate([ends, some_of(rest, most - len(ends), draws, Stream.THINNED)]))


def some_of(index: np.ndarray, most: int, draws: Draws, stream: Stream) -> np.ndarray:
    """Those of some transitions that there is room for, at random."""
    return index if len(index) <= most else np.sort(draws.of(stream).choice(index, most, replace=False))


def transitions(
    kept: Kept,
    index: np.ndarray,
    num_actions: int,
    ended: np.ndarray,
    *,
    reward: np.ndarray | None = None,
    listed: Listed | None = None,
) -> dict[str, Any]:
    """The distinct ones of some transitions with their numbers, padded to a power of two, and the first observations.

    Without a reward, transitions that differ in nothing else are the same.
    """
    code, next_code, first = kept.column("code")[index], kept.column("next_code")[index], kept.first_codes(64)
    x, rows = rows_of(kept, np.concatenate([code, next_code, first]), listed)
    row, next_row, first_row = np.split(rows, [len(index), 2 * len(index)])
    action, live = kept.column("action")[index], ~ended
    key = (row * num_actions + action).astype(np.int64) * (int(next_row.max(initial=0)) + 1) + next_row
    key = key * 2 + live
    if reward is not None:
        _, kind = np.unique(reward, return_inverse=True)
        key = key * (int(kind.max(initial=0)) + 1) + kind
    _, chosen, number = np.unique(key, return_index=True, return_counts=True)
    room = max(1024, 1 << (len(chosen) - 1).bit_length())

    def fill(values: np.ndarray, kind: type[np.generic]) -> np.ndarray:
        return np.concatenate([values.astype(kind), np.zeros(room - len(chosen), kind)])

    return {
        "x": x,
        "row": fill(row[chosen], np.int32),
        "next_row": fill(next_row[chosen], np.int32),
        "action": fill(action[chosen], np.int32),
        "reward": fill(np.zeros(len(chosen)) if reward is None else reward[chosen], np.float32),
        "live": fill(live[chosen], np.float32),
        "weight": fill(number, np.float32),
        "first_row": first_row.astype(np.int32),
    }


class Met(NamedTuple):
    """The pairs of some transitions."""

    x: np.ndarray  # [U, size]
    visits: np.ndarray  # [U]
    pairs: Pairs
    place: np.ndarray | None  # [3, k]: where each transition finds its pair; None where the bonus of all is known ...
    bonus: np.ndarray  # [k]: ... and this is that of each transition; else [0]
    waiting: np.ndarray  # [S, A] visits that are not counted yet


def met_in(
    kept: Kept,
    listed: Listed | None,
    model: Model,
    waiting: np.ndarray,
    code: np.ndarray,
    action: np.ndarray,
    weight: np.ndarray | None = None,
) -> Met:
    """The pairs (code, action), each counted as often as it is there or by its weight.

    Where the bonus of all observations is known, visits of a pair wait until they change its bonus by a tenth: pairs
    known well are counted ever more rarely, and a round costs as much as the new pairs in it.
    """
    x, rows = rows_of(kept, code, listed)
    number, bonus = len(model.w), np.asarray(model.bonus)
    visits = np.bincount(rows, weight, minlength=len(x)).astype(np.float32)
    distinct, inverse = np.unique(rows.astype(np.int64) * number + action, return_inverse=True)
    row, act, count = distinct // number, distinct % number, np.bincount(inverse, weight)
    if not len(bonus) or weight is not None:
        pairs, place = pairs_of(row, act, count, number)
        return Met(x, visits, pairs, place[:, inverse], np.zeros(0), np.zeros_like(waiting))
    total = waiting[row, act] + count
    enters = total * bonus[row, act] >= WAITS
    waiting = waiting.copy()
    waiting[row, act] = np.where(enters, 0.0, total)
    pairs, _ = pairs_of(row[enters], act[enters], total[enters], number)
    return Met(x, visits, pairs, None, bonus[row, act][inverse], waiting)
