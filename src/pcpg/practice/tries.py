"""When kept data try a task, when its policy need not be learned further, and how often it may be."""

from typing import TYPE_CHECKING

import numpy as np

from pcpg.algorithm1 import Explored
from pcpg.practice.grains import SMOOTH_GRAINS, grains_for
from pcpg.practice.replay_state import Improved, ReplayState, kept_of

if TYPE_CHECKING:
    from pcpg.practice.replay import ReplayAgent

MOST_TRIED = 300_000
"""Steps that a task may take where there is no budget, while no policy earns what the environment calls solved."""
CHANCE = 2.0
"""Standard errors by which the best of some tries is better than it is, about: the largest of ten or twenty draws."""
SAME = 1e-3
"""Returns that differ by less than this share of the range of those met are the same."""


def tries_task(agent: "ReplayAgent", state: ReplayState) -> bool:
    """Whether the task is tried before exploration goes on: where it is known what is enough."""
    kept, factor, exploit = kept_of(state), agent.config.explore.attempts, agent.config.exploit
    has_room = kept.size + exploit.visit_episodes * agent.env.max_steps <= agent.config.replay.capacity
    asked = agent.until is not None and factor > 0 and exploit.visit_episodes > 0
    return asked and has_room and kept.size >= factor * int(state.tried_at) and kept.has_success


def is_fine(agent: "ReplayAgent", state: ReplayState, done: Explored) -> bool:
    """Whether the policy of a task need not be learned further: it earns what is known to be possible.

    That is what its values promise and what the environment calls solved; and where a policy earns the same in every
    episode, what the best episode in the data did. Without a word of the environment, values between spaced landmarks
    are heard when each grain was tried: those that promise little are easily kept.
    """
    kept, returns = kept_of(state), np.asarray(done.seen.returns)
    found = kept.returns_to_go()
    scope, best = found.max() - found.min(), found[kept.column("first")].max()
    is_beaten = np.ptp(returns) <= SAME * scope and best > returns.max() + SAME * scope
    falls_short = done.improved.value - float(state.last_return) > agent.config.exploit.tolerance * scope
    if is_beaten or falls_short:
        return False
    if agent.env.solved_return is not None:
        return is_solved(agent, state)
    is_smooth = grains_for(state) is SMOOTH_GRAINS and agent.covers is None
    return not is_smooth or int(state.phase_round) >= len(SMOOTH_GRAINS)


def is_by_chance(agent: "ReplayAgent", state: ReplayState, returns: np.ndarray) -> bool:
    """Whether the best mean return is enough, but may be so by chance: its policy is then played again.

    The best of many tries is the luckiest of them too.
    """
    if agent.env.solved_return is None:
        return False
    if state.last_return < state.best_return:  # of an earlier round, whose episodes are not at hand
        return True
    error = float(np.std(returns)) / np.sqrt(len(returns))
    return bool(float(state.best_return) - CHANCE * error < agent.env.solved_return)


def is_solved(agent: "ReplayAgent", state: ReplayState) -> bool:
    """Whether the best policy earns what the environment calls solved."""
    return agent.env.solved_return is not None and bool(state.best_return >= agent.env.solved_return)


def confirming(state: ReplayState) -> Improved:
    """The best policy once more, in the place of a fit."""
    value = float(state.best_return)
    return Improved(state.best_policy, value, 0, {"change": 0.0, "value": value})


def tries_left(agent: "ReplayAgent", state: ReplayState) -> int:
    """How often the policy of a task may still be played and learned from, with whole episodes.

    Where nothing is said of it: with a quarter of the steps that exploration took, at least once with each grain; with
    all of a budget, or MOST_TRIED, where it is known what return is enough and none was, or has to be confirmed.
    """
    exploit, size = agent.config.exploit, kept_of(state).size
    evaluation = exploit.visit_episodes * agent.env.max_steps
    each_grain = (len(grains_for(state)) - 1) * evaluation
    steps = exploit.steps if exploit.steps >= 0 else max(int(state.explored) // 4, each_grain)
    is_open = agent.env.solved_return is not None and (state.confirms or not is_solved(agent, state))
    if exploit.steps < 0 and is_open:
        steps = max(steps, agent.config.replay.capacity if agent.has_budget else MOST_TRIED)
    # Where it was explored too, the first evaluation is none of the steps that learning is allowed.
    free = evaluation if agent.covers is None else 0
    spent, room = max(size - int(state.explored) - free, 0), agent.config.replay.capacity + free - size
    room = room if agent.covers is None else steps
    return max(0, min(steps - spent, room) // evaluation) if evaluation else 0
