"""What a seed that keeps its data carries from round to round, and what a round of it writes."""

from typing import Any, NamedTuple

import numpy as np

from pcpg.policies.kernel import GreedyPolicy
from pcpg.practice.fitting import Model
from pcpg.practice.kept import Batch, Kept
from pcpg.state import int32


class Sample(NamedTuple):
    """Transitions that fits draw from, by their place among the kept ones, and the inverse of their chance."""

    places: np.ndarray  # int64 [k]
    weight: np.ndarray  # float32 [k]


class Members(NamedTuple):
    """The cover. Those of earlier features lie on disk and have weight 0: they are rolled in no more."""

    w: np.ndarray  # [n, A, M] values of the members in the features of now
    landmarks: np.ndarray  # [n] int32: how many there were
    visits: np.ndarray  # [n, M] shares of the landmarks that each visited
    weights: np.ndarray  # [all members] float64
    size: np.ndarray  # int32: all members


class ReplayMember(NamedTuple):
    """What is written of a round, once: the policy that played it, and all that it met."""

    w: np.ndarray
    landmarks: np.ndarray  # int32
    features: np.ndarray  # int32: number of the features in which w is
    visits: np.ndarray  # [M]
    cells: np.ndarray
    returns: np.ndarray
    batch: Batch


class ReplayState(NamedTuple):
    """Everything that moves in the training of one seed; data and members lie in the files of the rounds."""

    seed: np.ndarray
    round: np.ndarray
    phase: np.ndarray
    phase_round: np.ndarray
    env_steps: np.ndarray
    policy: GreedyPolicy
    last_return: np.ndarray
    best_policy: GreedyPolicy
    best_return: np.ndarray
    seen: np.ndarray
    model: Model
    waiting: np.ndarray  # [S, A] visits of listed pairs that are not counted yet
    sample: Sample
    features: np.ndarray  # int32: how often the features were made anew
    scaled_at: np.ndarray  # int64: transitions there were when their scale was last looked at
    quiet: np.ndarray  # int32: rounds in a row in which the start promised little
    closer: np.ndarray  # int32: how often the kernel was made narrower because nothing good had been met
    tried_at: np.ndarray  # int64: transitions there were when the task was last tried
    tries: np.ndarray  # bool: the next round tries the task, and exploration goes on after it
    best_grain: np.ndarray  # int32: that of the task's best policy (`grains_for`)
    confirms: np.ndarray  # bool: the next round plays the task's best policy again, in fresh episodes
    batches: np.ndarray  # int32: rounds whose data were written in this run
    explored: np.ndarray  # int64: transitions there were when exploration ended
    cover: Members
    kept: Kept | None  # None inside a checkpoint


def kept_of(state: ReplayState) -> Kept:
    """The data of a seed; a checkpoint alone has none."""
    assert state.kept is not None
    return state.kept


NOT_OF_THE_COVER = -1
"""Number of features of what was played for a task."""


class Improved(NamedTuple):
    """A fit, in the shape of an improvement."""

    policy: Any  # the model with its new values; the policy of the task
    value: float  # of the first observations
    env_steps: int
    metrics: dict[str, Any]


class Seen(NamedTuple):
    """What the episodes of a round showed, in the shape of visits."""

    returns: np.ndarray  # of the episodes without roll-in
    cells: np.ndarray
    env_steps: int
    finite: bool
    batch: Batch
    model: Model
    sample: Sample
    features: int
    scaled_at: int
    visits: np.ndarray  # [M]
    waiting: np.ndarray  # [S, A]
    largest: float  # bonus met


def no_members(num_actions: int, room: int) -> Members:
    """An empty cover."""
    w, visits = np.zeros((0, num_actions, room), np.float32), np.zeros((0, room), np.float32)
    return Members(w, np.zeros(0, np.int32), visits, np.zeros(0), int32(0))


class Listed:
    """All observations of an instance, where they can be listed, as vectors; an observation is found by its bytes."""

    def __init__(self, observations: np.ndarray) -> None:
        self.observations = observations
        self.x = vectors_of(observations)
        self._row: dict[bytes, int] = {}
        for row, observation in enumerate(observations):
            self._row.setdefault(observation.tobytes(), row)

    def rows(self, kept: Kept) -> np.ndarray:
        """The row of each kept observation; those known from before are not looked up again."""
        new = kept.observations[len(kept.listed) :]
        if len(new):
            rows = [self._row[observation.tobytes()] for observation in new]
            kept.listed = np.concatenate([kept.listed, np.array(rows, np.int64)])
        return kept.listed


def vectors_of(observations: np.ndarray) -> np.ndarray:
    """Observations as vectors [U, size]; pictures in [0, 1]."""
    size = int(np.prod(observations.shape[1:], dtype=int))
    x = observations.reshape(len(observations), size).astype(np.float32)
    return x / np.float32(255.0) if observations.dtype == np.uint8 else x


def table_of_rows(observations: np.ndarray) -> np.ndarray:
    """Observations as vectors [U, size], with rows of zeros up to a power of two: few programs are compiled."""
    x = vectors_of(observations)
    room = max(64, 1 << max(len(x) - 1, 0).bit_length())
    return np.concatenate([x, np.zeros((room - len(x), x.shape[1]), np.float32)])
