"""Episodes of seeds that keep their data: of who explores and of the policy of a task, compiled or on the host."""

from typing import TYPE_CHECKING, Any

import numpy as np

from pcpg.cover.rollin import RollIn
from pcpg.envs.host import HostEnvironment, locating
from pcpg.policies.kernel import SURE, ExploringPolicy, GreedyPolicy, ListedPolicy
from pcpg.practice.episodes import play
from pcpg.practice.fitting import CollectInputs, Episodes, Model
from pcpg.practice.program import Programs
from pcpg.practice.replay_data import roll_in_of, task_roll_in, tried_in
from pcpg.practice.replay_state import ReplayState, kept_of
from pcpg.practice.visit import Visits

if TYPE_CHECKING:
    from pcpg.practice.replay import ReplayAgent


def tried_by(agent: "ReplayAgent", states: list[ReplayState], policies: list[GreedyPolicy]) -> list[Any]:
    """What each seed's policy of the task met, which is kept."""
    if not agent.config.exploit.visit_episodes:
        return [unvisited(agent.env.num_cells) for _ in states]
    sure, inputs = np.float32(SURE) * np.eye(len(agent.candidates), dtype=np.float32), []
    for state, policy in zip(states, policies, strict=True):
        own = GreedyPolicy(policy.landmarks, policy.w, sure)
        inputs.append(_episodes_of(agent, state, own, task_roll_in(agent, state, own)))
    found = []
    for state, given, played in zip(states, inputs, _played(agent, inputs, agent.try_out), strict=True):
        batch = kept_of(state).batch_of(played)
        found.append(tried_in(agent, state, played, batch, given.roll_in))
    return found


def explored_by(agent: "ReplayAgent", states: list[ReplayState], models: list[Model]) -> list[Episodes]:
    """The episodes of a round of each seed."""
    explore, found = agent.config.explore, []
    for state, model in zip(states, models, strict=True):
        sharpness, coef = np.asarray(explore.sharpness, np.float32), np.asarray(explore.bonus_coef, np.float32)
        listed = agent.listed(int(state.seed))
        policy = ExploringPolicy(model.landmarks, model.w, model.inverses, sharpness, coef)
        if listed is not None:
            policy = ListedPolicy(model.landmarks, model.w, model.bonus, sharpness, coef)
        found.append(_episodes_of(agent, state, policy, roll_in_of(agent, state, model)))
    return _played(agent, found, agent.collect)


def _episodes_of(agent: "ReplayAgent", state: ReplayState, policy: Any, roll_in: RollIn) -> CollectInputs:
    seed = int(state.seed)
    listed = agent.listed(seed)
    table = None if listed is None else listed.observations
    return CollectInputs(state.seed, state.round, agent.env.instance(seed), policy, roll_in, table)


def _played(agent: "ReplayAgent", inputs: list[CollectInputs], program: Programs) -> list[Episodes]:
    if isinstance(agent.env, HostEnvironment):
        return [_play_on_host(agent, one) for one in inputs]
    return [seen_through_table(one.table, own) for one, own in zip(inputs, program(inputs), strict=True)]


def _play_on_host(agent: "ReplayAgent", inputs: CollectInputs) -> Episodes:
    rng = np.random.default_rng([int(inputs.seed), int(inputs.round), 4])
    assert isinstance(agent.env, HostEnvironment)
    with locating(seed=int(inputs.seed), round=int(inputs.round)):
        played = play(
            agent.env,
            inputs.policy,
            rng,
            len(inputs.roll_in.length),
            roll_in=inputs.roll_in,
            epsilon=1.0,
            candidates=agent.candidates,
        )
    nowhere = np.full(played.alive.shape, -1, np.int32)
    arrays = played.observations, played.actions, played.rewards, played.terminated, played.truncated
    return Episodes(*arrays, played.alive, nowhere)


def unvisited(num_cells: int) -> Visits:
    """What is known of a policy that played no episode: nothing."""
    nothing = np.zeros(0, np.int32)
    return Visits(None, np.full(1, np.nan, np.float32), nothing, np.zeros(num_cells, np.int32), 0, True)


def seen_through_table(table: np.ndarray | None, episodes: Episodes) -> Episodes:
    """Episodes with observations in place of their numbers."""
    return episodes if table is None else episodes._replace(observations=table[np.asarray(episodes.observations)])
