"""PC-PG in practice: the paper's reward-free and reward-bonus versions, and exploitation of a finished cover.

A seed may begin with the reward alone (`explore.reward_first`): while PPO improves on random play nothing is explored.
Else it explores: each round improves its newest policy on the bonus (plus the reward, in the reward-bonus version) and
adds it to its cover. When the cover stops growing it exploits: a policy is trained on the reward, with restarts
rolled in through the finished cover. `EXPLOIT` does the second half alone, on the covers of another run: explore once,
then solve any reward; several tasks may share a cover, such as the goals of one maze.
"""

import dataclasses
from functools import partial

import numpy as np

from pcpg.algorithm1 import Explored, Parts, Visit, explore_round, task_round
from pcpg.config import ExploreConfig
from pcpg.cover.bonus import ridge_of, whitening
from pcpg.cover.cover import Cover, add_member, empty_cover, with_weights
from pcpg.learning.e3b import E3B, E3BConfig, init_e3b
from pcpg.learning.update import Adam, init_adam
from pcpg.policies.networks import ActorCritic
from pcpg.practice.agent import Agent, Assignment, Rounds, Turn, after_round, plain
from pcpg.practice.ppo import Learner, make_task
from pcpg.practice.rewards import Bonus, trained_part
from pcpg.practice.visit import Visits
from pcpg.state import DONE, EXPLOIT, EXPLORE, Member, Report, SeedState, int32, weights_rng

FRESH = 1
"""Stream of the initial weights of a policy that exploits; exploration begins with stream 0."""
STEADY, LEAST_LEFT = 0.7, 0.05
"""Where the reward alone is learned from: the share of the budget up to which learning rate and entropy coefficient
stay as they are, and what is left of them when it is used up."""
EXPLORER = 2
"""Stream of one that explores after the reward alone had led nowhere."""
EPISODIC = 3
"""Stream of the networks for what is new within an episode."""


def begin(agent: Agent, seed: int) -> SeedState:
    """A seed before its first round: a random policy and an empty cover."""
    assert agent.phi is not None
    policy, explore = agent.fresh_policy(seed, 0), agent.config.explore
    cover = empty_cover(policy, agent.phi.dim, explore.max_policies)
    e3b = None if explore.episodic == "off" else fresh_e3b(agent, seed)
    adam = init_adam((policy, trained_part(e3b)))
    state = SeedState.start(seed, policy, adam, num_cells=agent.env.num_cells, cover=cover, rnd=e3b)
    return state._replace(phase=int32(EXPLOIT)) if explore.reward_first else state


def fresh_e3b(agent: Agent, seed: int) -> E3B:
    """Networks with random weights for what is new within an episode."""
    spaces = agent.env.observation_space, agent.env.action_space
    return init_e3b(weights_rng(seed, EPISODIC), *spaces, agent.config.ppo.hidden)


def fresh_adam(state: SeedState) -> Adam:
    """An optimiser at its beginning, for all that is trained."""
    return init_adam((state.policy, trained_part(state.rnd)))


def turn(agent: Agent, state: SeedState) -> Turn:
    """One round of a seed, in the phase it is in."""
    if state.phase == EXPLORE:
        return (yield from explore(agent, state))
    if agent.config.exploit.keep_best and task_is_over(agent, state):
        return (yield from keep_best(agent, state))
    return (yield from reward_first(agent, state) if has_no_cover(state) else exploit(agent, state))


def explore(agent: Agent, state: SeedState) -> Turn:
    """A round of Algorithm 1, and whether it was the last."""
    done = yield from explore_round(standing(agent, state), parts(agent.config.explore))
    size = int(done.cover.size)
    log_dets = state.log_dets.copy()
    log_dets[size - 1] = done.design.log_det
    member = Member(done.policy, done.seen.sigma, done.seen.cells, done.seen.returns)
    state = state._replace(cover=with_weights(done.cover, done.design.weights), log_dets=log_dets)
    if done.improved is not None:
        state = state._replace(rnd=done.improved.rnd)
    state, metrics = after_round(agent.env, state, done)
    metrics |= {
        "policies": size,
        "policies_with_weight": int(np.count_nonzero(done.design.weights)),
        "log_det": done.design.log_det,
        "design_gap": done.design.gap,
    }
    has_task = agent.config.exploit.num_rounds > 0
    over = agent.budget.ends_exploration(state, has_task=has_task, begun=agent.config.explore.reward_first)
    if over or exploration_is_over(log_dets[:size], agent.config.explore):
        state = begin_exploiting(agent, state)
    return state, Report(plain(metrics), member)


def exploit(agent: Agent, state: SeedState) -> Turn:
    """A round of learning the task on the finished cover."""
    done = yield from task_round(standing(agent, state))
    state = state._replace(adam=done.improved.adam, rnd=done.improved.rnd)
    state, metrics = after_round(agent.env, state, done)
    return ended(agent, state), Report(plain(metrics), None)


def reward_first(agent: Agent, state: SeedState) -> Turn:
    """A round of PPO from the start state, before there is a cover; if it does not improve, exploration is next."""
    cover, explore = state.cover, agent.config.explore
    assert cover is not None
    weights = np.eye(1, cover.capacity)[0]  # of a roll-in that has no steps
    nothing = partial(np.zeros, cover.sigma_sum.shape, np.float32)  # the bonus where nothing is known
    done = yield from task_round(Explored(state.policy, dataclasses.replace(cover, weights=weights), weights, nothing))
    state = state._replace(adam=done.improved.adam, rnd=done.improved.rnd)
    state, metrics = after_round(agent.env, state, done)
    is_better = explore.random_return is None or state.best_return > explore.random_return
    if agent.budget.spent(state) >= explore.reward_first < 1 and not is_better:
        policy = agent.fresh_policy(int(state.seed), EXPLORER)
        state = state._replace(policy=policy, phase=int32(EXPLORE), phase_round=int32(0))
        state = state._replace(adam=fresh_adam(state))
        return state, Report(plain(metrics), None)
    return ended(agent, state), Report(plain(metrics), None)


def keep_best(agent: Agent, state: SeedState) -> Turn:
    """The newest policy and the best so far in the same fresh episodes; the better one is handed back."""
    newest = yield Visit(state.policy)
    best = yield Visit(state.best_policy)
    is_newest = newest.returns.mean() >= best.returns.mean()
    policy, seen, other = (state.policy, newest, best) if is_newest else (state.best_policy, best, newest)
    state = state._replace(env_steps=state.env_steps + int(other.env_steps))
    state, metrics = after_round(agent.env, state, Explored(policy, state.cover, seen=seen))
    return state._replace(phase=int32(DONE)), Report(plain(metrics), None)


def has_no_cover(state: SeedState) -> bool:
    """Whether a seed has not begun to explore."""
    return state.cover is not None and int(state.cover.size) == 0


def task_is_over(agent: Agent, state: SeedState) -> bool:
    """Whether the task has had its rounds or its budget."""
    if agent.budget.is_set:
        return agent.budget.is_over(state)
    return rounds_of_task(agent, state) <= int(state.phase_round)


def ended(agent: Agent, state: SeedState) -> SeedState:
    """The state after a round of the task: done where that was the last, unless the best policy is still to be told."""
    is_last = task_is_over(agent, state) and not agent.config.exploit.keep_best
    return state._replace(phase=int32(DONE)) if is_last else state


def standing(agent: Agent, state: SeedState) -> Explored:
    """Where a seed stands, as the page has it: the bonus is made where and when an improvement needs it."""
    cover = state.cover
    assert cover is not None
    if cover.size == 0:
        return Explored(state.policy, cover)
    bonus = None if agent.covers is not None else partial(scaled_whitening, cover, agent.config.explore)
    return Explored(state.policy, cover, cover.weights, bonus)


def parts(config: ExploreConfig) -> Parts:
    """The cover with a member more, and its bonus as a whitening that is made when it is needed."""

    def extend(cover: Cover, policy: ActorCritic, seen: Visits) -> Cover:
        return add_member(cover, policy, seen.sigma)

    return Parts(extend, lambda cover: partial(scaled_whitening, cover, config))


def begin_exploiting(agent: Agent, state: SeedState) -> SeedState:
    """The state at the end of exploration: with the policy that exploitation starts from, or done."""
    config = agent.config.exploit
    if config.warm_start:
        state = state._replace(policy=state.best_policy, last_return=state.best_return)
    if config.num_rounds == 0:
        return state._replace(phase=int32(DONE))
    if not config.warm_start:
        fresh = agent.fresh_policy(int(state.seed), FRESH)
        fresh = dataclasses.replace(fresh, normaliser=state.policy.normaliser)
        state = state._replace(policy=fresh)
        if not config.keep_best:
            state = state._replace(best_policy=fresh, best_return=np.asarray(-np.inf))
    return state._replace(phase=int32(EXPLOIT), phase_round=int32(0), adam=fresh_adam(state))


def begin_on_cover(agent: Agent, seed: int) -> SeedState:
    """A seed that explores no more: a random policy and a finished cover."""
    assert agent.covers is not None
    cover = agent.covers[agent.env.dynamics_seed(seed)]
    newest = cover.member(int(cover.size) - 1)
    policy = dataclasses.replace(agent.fresh_policy(seed, FRESH), normaliser=newest.normaliser)
    state = SeedState.start(seed, policy, init_adam(policy), num_cells=agent.env.num_cells, cover=cover)
    return state._replace(phase=int32(EXPLOIT))


def assign(agent: Agent, state: SeedState) -> Assignment:
    """The task of a round: the bonus while exploring, the reward after it, annealed over the phase."""
    ppo, explore, exploit = agent.config.ppo, agent.config.explore, agent.config.exploit
    if state.phase == EXPLORE:
        task = make_task(
            reward_coef=explore.reward_coef,
            bonus_coef=explore.bonus_coef,
            start_share=explore.start_share,
            epsilon=explore.epsilon,
            learning_rate=(ppo.learning_rate, ppo.learning_rate * explore.anneal_to),
            entropy_coef=(ppo.entropy_coef, ppo.entropy_coef * explore.anneal_to),
            advantage_floor=explore.advantage_floor,
        )
        return Assignment(task, fresh_adam(state))
    if has_no_cover(state):
        left = min(max(1 - agent.budget.spent(state), LEAST_LEFT) / (1 - STEADY), 1.0) if exploit.anneal else 1.0
        task = make_task(
            reward_coef=1.0,
            bonus_coef=0.0,
            start_share=1.0,
            epsilon=0.0,
            learning_rate=(ppo.learning_rate * left, ppo.learning_rate * left),
            entropy_coef=(ppo.entropy_coef * left, ppo.entropy_coef * left),
            advantage_floor=0.0,
        )
        return Assignment(task, state.adam)
    round_ = int(state.phase_round)
    rounds = rounds_of_task(agent, state)
    left, then = (1 - (round_ + ahead) / rounds if exploit.anneal else 1.0 for ahead in (0, 1))
    task = make_task(
        reward_coef=1.0,
        bonus_coef=0.0,
        start_share=exploit.start_share,
        epsilon=exploit.epsilon,
        learning_rate=(ppo.learning_rate * left, ppo.learning_rate * then),
        entropy_coef=(ppo.entropy_coef * left, ppo.entropy_coef * then),
        advantage_floor=exploit.advantage_floor,
    )
    return Assignment(task, state.adam)


def rounds_of_task(agent: Agent, state: SeedState) -> int:
    """Rounds of exploitation, all together: those of the settings, or about as many as the budget holds."""
    ahead = agent.budget.rounds_left(state) if agent.budget.is_set else 0
    return int(state.phase_round) + ahead if ahead else agent.config.exploit.num_rounds


def learner(agent: Agent) -> Learner:
    """The constants of the updates; the batch is sized for the phase with more roll-ins."""
    ppo, explore, exploit = agent.config.ppo, agent.config.explore, agent.config.exploit
    if agent.covers is not None:
        return Learner(agent.env, ppo, num_groups=explore.num_groups, sample_share=exploit.start_share)
    return Learner(
        agent.env,
        ppo,
        num_groups=explore.num_groups,
        bonus=Bonus(
            explore.bonus_form,
            explore.beta,
            explore.bonus_limit,
            e3b=None if explore.episodic == "off" else E3BConfig(coef=explore.episodic_coef),
            is_product=explore.episodic == "times",
        ),
        sample_share=min(explore.start_share, exploit.start_share),
    )


def left(agent: Agent, state: SeedState) -> int:
    """The most rounds that a seed has before it."""
    rounds = agent.config.exploit.num_rounds
    if state.phase == DONE:
        return 0
    if state.phase == EXPLORE and state.cover is not None:
        return agent.config.explore.max_policies - int(state.cover.size) + rounds
    return rounds - int(state.phase_round)


def scaled_whitening(cover: Cover, config: ExploreConfig) -> np.ndarray:
    """W of cover/bonus.py as float32; scaled by the cover, such that the form has mean 1 over its policies."""
    whiten = whitening(cover.sigma_sum, ridge_of(cover.used, config.ridge_scale, config.ridge))
    if config.bonus_scale == "cover":
        # E[phi' S^-1 phi] = tr(W' E[phi phi'] W) under the uniform mixture of the members.
        mean = np.einsum("ij,ik,kj->", whiten, cover.sigma_sum, whiten) / int(cover.size)
        whiten = whiten / np.sqrt(max(mean, 1e-30))
    return whiten.astype(np.float32)


def exploration_is_over(log_dets: np.ndarray, config: ExploreConfig) -> bool:
    """Whether the cover is full, or its log-determinant grew too little for too long.

    The rule sees features alone, nothing of the environment's internals. With D-optimal weights `log_dets[i]` is the
    largest log det of a mixture of the first i + 1 covariances, which a policy that reaches nothing new cannot raise
    and no policy can lower. With uniform weights it is that of their plain mean: a policy may lower it, and one that
    only repeats what the rarer members reach may raise it, so the rule is then no more than a sign.
    """
    if len(log_dets) >= config.max_policies:
        return True
    if len(log_dets) <= config.patience:
        return False
    return bool(log_dets[-1] - log_dets[-1 - config.patience] < config.min_growth)


def visit_episodes(agent: Agent) -> int:
    """Episodes for the covariance of a new policy, and for the evaluation of one that exploits."""
    return agent.config.explore.visit_episodes


PCPG = Rounds(learner, visit_episodes, begin, turn, assign, left)
EXPLOIT_COVER = PCPG._replace(begin=begin_on_cover)
