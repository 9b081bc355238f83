"""How finely the values of a task are told apart: the landmarks over which they are fitted, and in which order."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pcpg.cover.landmarks import Encoder, Landmarks, as_wide_as_apart, no_landmarks
from pcpg.practice.fitting import PlaceInputs
from pcpg.practice.replay_state import ReplayState, kept_of, table_of_rows

if TYPE_CHECKING:
    from pcpg.practice.replay import ReplayAgent

FIRST_LANDMARKS = 64
MANY_LANDMARKS, MOST_PLACED = 1024, 2**35
"""So many landmarks, or more, are taken from some of the rows: as many as there are of these over landmarks squared,
which is the time, but four for each landmark."""
COARSE = 0.25
"""Tolerance of the landmarks of a task: values need fewer of them than covariances, for so narrow a kernel."""


class Grain(NamedTuple):
    """How finely the values of a task are told apart."""

    finer: float = 1.0  # how much narrower the kernel is than `exploit.refine` makes it
    spaced: int = 0  # landmarks, evenly spaced, with shares as wide as they lie apart; 0: those that the kernel needs


GRAINS = (Grain(), Grain(4.0), Grain(16.0))
"""Where a policy does not earn what its values promise, they may have been too coarse: a task is tried with the first,
then with the second and so on, and after that with the best of them and the others in turns. The best policy is kept.
"""
SMOOTH_GRAINS = (Grain(spaced=512), Grain(spaced=2048), Grain(), Grain(4.0))
"""The same where observations are short and hardly come again: values between evenly spaced ones are interpolated."""
SHORT, NEW_ONES = 16, 0.5
"""Entries of such an observation at most, and how many different ones there are at least, as a share of all steps."""


def grains_for(state: ReplayState) -> tuple[Grain, ...]:
    """The grains with which a task is tried, by what observations were met."""
    seen, steps = kept_of(state).observations, kept_of(state).size
    is_smooth = np.prod(seen.shape[1:]) <= SHORT and len(seen) > max(SMOOTH_GRAINS[0].spaced, NEW_ONES * steps)
    return SMOOTH_GRAINS if is_smooth else GRAINS


def grain_of(state: ReplayState) -> int:
    """The number of the grain with which a task is tried next."""
    grains, turn = len(grains_for(state)), 0 if state.tries else int(state.phase_round)
    if turn < grains:
        return turn
    return min(int(state.best_grain), grains - 1) if (turn - grains) % 2 == 0 else (turn - grains) // 2 % grains


def refined_landmarks(agent: "ReplayAgent", state: ReplayState, index: np.ndarray) -> Landmarks:
    """Landmarks for the values of a task, of a narrower kernel than the cover's."""
    kept, grain, most = kept_of(state), grains_for(state)[grain_of(state)], agent.config.replay.max_landmarks
    codes = np.unique(kept.column("code")[index])
    scale = np.asarray(state.model.landmarks.inverse_scale) * np.float32(agent.config.exploit.refine * grain.finer)
    x = table_of_rows(kept.observations[codes])
    wanted = min(grain.spaced or most, most)
    encoder = state.model.landmarks.encoder
    if len(codes) > wanted:
        given = no_landmarks(scale, wanted, encoder), x, np.arange(len(x)) < len(codes)
        (spaced,) = agent.space([PlaceInputs(*given, np.float32(0.0 if grain.spaced else COARSE))])
        if grain.spaced:
            return as_wide_as_apart(spaced)
        if int(spaced.count) == most:  # so many that it does not matter how well they are chosen
            return spaced
    return placed(agent, View(scale, encoder), x, len(codes), COARSE)


class View(NamedTuple):
    """How the kernel sees observations."""

    scale: np.ndarray  # inverse
    encoder: Encoder | None = None


def placed(agent: "ReplayAgent", view: View, x: np.ndarray, number: int, tol: float) -> Landmarks:
    """Landmarks for the first rows of x, with as much room as they need; many of them are taken from some rows."""
    allowed, room = np.arange(len(x)) < number, FIRST_LANDMARKS
    while True:
        room = 2 * room
        most = max(MOST_PLACED // room**2, 4 * room)
        if room >= MANY_LANDMARKS and number > most:
            some = np.random.default_rng(number).choice(number, most, replace=False)
            x, allowed, number = x[some], np.ones(most, bool), most
        empty = no_landmarks(view.scale, room, view.encoder)
        (found,) = agent.refine([PlaceInputs(empty, x, allowed, np.float32(tol))])
        if int(found.count) < room or room >= agent.config.replay.max_landmarks:
            return found
