"""Baselines on the same learning code: PPO, PPO with random network distillation, PPO with E3B's episodic bonus."""

import math

from pcpg.algorithm1 import Explored, task_round
from pcpg.envs.host import HostEnvironment
from pcpg.learning.e3b import init_e3b
from pcpg.learning.rnd import init_rnd
from pcpg.learning.update import init_adam
from pcpg.policies.networks import init_actor_critic
from pcpg.practice.agent import Agent, Assignment, Rounds, Turn, after_round, plain
from pcpg.practice.ppo import Learner, make_task
from pcpg.practice.rewards import Bonus, trained_part
from pcpg.state import DONE, EXPLOIT, Report, SeedState, int32, weights_rng


def begin(agent: Agent, seed: int) -> SeedState:
    """A seed before its first round: a random policy."""
    if agent.config.autoreset and isinstance(agent.env, HostEnvironment):
        raise ValueError("autoreset is for environments that are compiled, not for one stepped on the host")
    rng = weights_rng(seed, 0)
    ppo, space = agent.config.ppo, agent.env.observation_space
    policy = init_actor_critic(rng, space, agent.env.action_space, **ppo.network)
    rnd = None if agent.config.rnd is None else init_rnd(rng, space, ppo.hidden)
    novelty = init_e3b(rng, space, agent.env.action_space, ppo.hidden) if agent.config.e3b is not None else rnd
    adam = init_adam((policy, trained_part(novelty)))
    state = SeedState.start(seed, policy, adam, num_cells=agent.env.num_cells, rnd=novelty)
    return state._replace(phase=int32(EXPLOIT))


def turn(agent: Agent, state: SeedState) -> Turn:
    """One round of updates on the task, and an evaluation of where it led."""
    done = yield from task_round(Explored(state.policy, cover=None))
    state = state._replace(adam=done.improved.adam, rnd=done.improved.rnd)
    state, metrics = after_round(agent.env, state, done)
    cells = [int(count) for count in done.seen.cells]  # no cover keeps them
    rounds = agent.config.num_rounds
    if state.env_steps >= agent.config.budget or (rounds and state.round >= rounds):
        state = state._replace(phase=int32(DONE))
    return state, Report(plain(metrics) | ({"cells": cells} if cells else {}), None)


def assign(agent: Agent, state: SeedState) -> Assignment:
    """The reward, and the bonus for what is new where there is one, from the start state."""
    ppo = agent.config.ppo
    task = make_task(
        reward_coef=1.0,
        bonus_coef=bonus_coef(agent, state),
        start_share=1.0,
        epsilon=0.0,
        learning_rate=(ppo.learning_rate, ppo.learning_rate),
        entropy_coef=(ppo.entropy_coef, ppo.entropy_coef),
        advantage_floor=0.0,
    )
    return Assignment(task, state.adam)


def bonus_coef(agent: Agent, state: SeedState) -> float:
    """The weight of the bonus in the next round."""
    rnd, e3b = agent.config.rnd, agent.config.e3b
    if e3b is None:
        return 0.0 if rnd is None else rnd.coef
    spent = agent.budget.spent(state) if agent.budget.is_set else int(state.env_steps) / agent.config.budget
    return e3b.coef * (max(0.0, 1.0 - spent) if e3b.anneal else 1.0)


def learner(agent: Agent) -> Learner:
    """The constants of the updates."""
    bonus = Bonus(rnd=agent.config.rnd, e3b=agent.config.e3b)
    return Learner(agent.env, agent.config.ppo, bonus=bonus, autoreset=agent.config.autoreset)


def left(agent: Agent, state: SeedState) -> int:
    """About how many rounds a seed has before it: its budget is in steps."""
    if state.phase == DONE:
        return 0
    config = agent.config
    if state.round == 0:  # as many as there are if no episode ends early
        episodes = config.ppo.num_updates * config.ppo.num_episodes + config.visit_episodes
        rounds = math.ceil(config.budget / (episodes * agent.env.max_steps))
        return min(rounds, config.num_rounds or rounds)
    steps_per_round = int(state.env_steps) / int(state.round)
    rounds = max(1, math.ceil((config.budget - int(state.env_steps)) / steps_per_round))
    return min(rounds, config.num_rounds - int(state.round)) if config.num_rounds else rounds


def visit_episodes(agent: Agent) -> int:
    """Episodes for the evaluation after each round."""
    return agent.config.visit_episodes


BASELINE = Rounds(learner, visit_episodes, begin, turn, assign, left)
