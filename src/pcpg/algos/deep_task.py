"""What the data of a seed say about its task: what a success is, how far targets look, which episodes are the best."""

from typing import NamedTuple

import numpy as np

from pcpg.algos.look import BY_ACTION, MANY, by_action
from pcpg.envs.protocol import Goals
from pcpg.learners.hindsight import Rule
from pcpg.learners.transitions import CHANCE, Transitions

LONG_TARGETS, SHORT_TARGETS = 10, 3
"""Steps of a target where a success ends the episode and few are known, and where reward pays at every step."""
FEW = 16
"""Successes from which on targets get shorter, down to one step: what follows a step was no longer the best to do."""
EXAMPLES, FIRST = 5_000, 1_000
"""Rewards that are looked at, and those that count as usual where nothing was played at random."""
PLAIN = 0.95
"""Share of the rewards, the smallest ones, among which a cost of acting is looked for."""
STARTS = 16
"""Episodes from which on a return is compared with what its start promises."""
FEWEST_BEST = 1_000
"""Steps up to which episodes that are no better than others fill the best ones."""


class Task(NamedTuple):
    """The task as far as the data show it."""

    success: np.ndarray  # [episodes] bool: it met something good
    ends: bool  # a success ends the episode
    is_dense: bool  # rewards tell something everywhere
    reward: np.ndarray  # [transitions] float32, as it is learned from
    scale: float  # the largest size of a reward; rewards are divided by it
    low: float  # bounds of the values of what is learned from
    high: float
    by_end: bool = False  # what is learned from is 1 at an end, and 0 elsewhere
    goals: Goals | None = None  # those that observations name

    @property
    def is_met(self) -> bool:
        return self.is_dense or bool(self.success.any())

    @property
    def known(self) -> int:
        """How many successes there are."""
        return int(np.count_nonzero(self.success))

    @property
    def has_floor(self) -> bool:
        """Whether what was earned once is promised again: with the first successes, if each is nearly all there is."""
        return self.ends and 0 < self.known <= FEW and self.low >= 0

    def steps_ahead(self, given: int) -> int:
        """Steps of the targets; 0: by the rule."""
        known = max(self.known, FEW)
        is_long = self.ends and self.goals is None  # an episode was played for its own goal, not for that of hindsight
        return given or (max(1, LONG_TARGETS * FEW // known) if is_long else SHORT_TARGETS)


def task_of(kept: Transitions, gamma: float, goals: Goals | None = None) -> Task:
    """What rewards and ends show.

    | rewards                                    | an episode met something good if                      |
    |--------------------------------------------|-------------------------------------------------------|
    | one cost, the same or less at every end    | it terminated                                         |
    | never differ, above 0                      | it lasted longer than the shortest                    |
    | of many values that actions do not explain | always                                                |
    | of few values that actions do not explain  | it earned, at a step, more than most often            |
    | others                                     | it earned, at a step, more than 0 and than most often |

    In the first case what is learned from is 1 at such an end and 0 elsewhere: with a discount, that is the same task.
    """
    reward, lengths = kept.column("reward"), kept.each("lengths")
    scale = float(np.max(np.abs(reward), initial=0.0)) or 1.0
    terminated = kept.by_episode(kept.column("terminated"), np.maximum) > 0
    success, is_dense, learned = np.zeros(kept.count, bool), False, reward / np.float32(scale)
    by_end = _is_time(reward, kept.column("terminated")) and (goals is None or bool(terminated.any()))
    if by_end:
        success, scale = terminated, 1.0
        learned = kept.column("terminated").astype(np.float32)
    elif kept.count and np.ptp(reward) < 1e-9:
        success = lengths > lengths.min() if reward[0] > 0 else success
    elif kept.count:
        some = slice(None, None, max(1, kept.size // EXAMPLES))
        values = np.unique(np.round(reward[some].astype(np.float64), 9))
        # A cost of acting is no word about the task, nor is it with the few rewards that an explorer has met.
        is_few, usual = len(values) <= MANY, _usual(kept)
        plain = reward[some] <= (np.inf if is_few else np.quantile(reward[some], PLAIN))
        is_by_state = by_action(kept.column("action")[some][plain], reward[some][plain]) < BY_ACTION
        is_dense, usual = is_by_state and not is_few, usual if is_by_state and is_few else max(0.0, usual)
        best = kept.by_episode(reward, np.maximum)
        success = np.ones(kept.count, bool) if is_dense else best > usual + 1e-6
    ends = bool(success.any()) and not is_dense and bool(np.mean(terminated[success]) > 0.5)
    ends = ends if goals is None or goals.ends is None else goals.ends
    low, high = float(learned.min(initial=0.0)), float(learned.max(initial=0.0))
    if goals is not None and not by_end:
        best = Rule(goals, ends, by_end, scale).best / scale
        low, high = min(low, best), max(high, best)
    low, high = low / (1 - gamma), high if ends else high / (1 - gamma)
    return Task(success, ends, is_dense, learned, scale, low, high, by_end, goals)


def _usual(kept: Transitions) -> float:
    """The commonest reward of random play, or of the first data where nothing was played at random.

    Once the task is learned, a success is what is common.
    """
    is_first = np.repeat(kept.each("players") == CHANCE, kept.each("lengths"))
    reward = kept.column("reward")
    rewards = reward[is_first] if is_first.any() else reward[:FIRST]
    values, counts = np.unique(np.round(rewards.astype(np.float64), 9), return_counts=True)
    return float(values[np.argmax(counts)])


def _is_time(reward: np.ndarray, terminated: np.ndarray) -> bool:
    """Whether reward is nothing but a cost of every step, which an end may spare."""
    going, ends = reward[~terminated.astype(bool)], reward[terminated.astype(bool)]
    if not going.size or going[0] >= 0 or np.ptp(going) > 1e-9:
        return False
    return not ends.size or bool(np.ptp(ends) < 1e-9 and going[0] <= ends[0] <= 0)


def scores(kept: Transitions, reward: np.ndarray, gamma: float, whitened: np.ndarray) -> np.ndarray:
    """The discounted return of each episode beyond what its start promises: a ridge regression on [x, x^2]."""
    found = kept.discounted(reward, gamma)
    found -= found.mean()
    if kept.count < STARTS or whitened.std(axis=0).max(initial=0.0) < 1e-3:
        return found
    centred = np.concatenate([whitened, whitened**2], axis=1).astype(np.float64)
    centred -= centred.mean(axis=0)
    gram = centred.T @ centred + np.eye(centred.shape[1])
    return found - centred @ np.linalg.solve(gram, centred.T @ found)


def best_places(kept: Transitions, score: np.ndarray, most: int) -> np.ndarray:
    """The transitions of the best episodes, about `most` of them: those above average, and others if they are few."""
    order, lengths = np.argsort(-score, kind="stable"), kept.each("lengths")
    before = np.cumsum(lengths[order]) - lengths[order]
    limit = np.where(score[order] > 0, most, min(most, FEWEST_BEST))
    chosen = order[before < limit]
    starts = kept.each("start")
    which = zip(starts[chosen].tolist(), lengths[chosen].tolist(), strict=True)
    return np.concatenate([np.arange(start, start + length) for start, length in which] or [np.zeros(0, int)])
