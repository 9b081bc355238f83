"""Off-policy learning on all kept data: an explorer that finds the reward, and a policy that learns the task from it.

A round, for one seed:

    Play     whole episodes with fixed policies: the explorer's, and mostly the task's once a reward was met
    Learn    the explorer on the bonus of all data, as it is now, plus the reward: 1-step targets
             the task policy on the reward alone: n-step targets, partly from the best episodes
    Judge    the task's episodes without noise evaluate its averaged policy; the best one is kept, and played again in
             fresh episodes before a run stops at a target; the last of a budget are all without noise

Nothing of a simulator lives longer than a round, so a resumed run is exact, and it does not matter who plays.
"""

from typing import Any, Literal, NamedTuple

import numpy as np

from pcpg.algorithm1 import Explored
from pcpg.algorithms import Assets, Bound, World
from pcpg.algos.deep_confirm import FEWEST, MOST, STEPS, is_enough, is_reached
from pcpg.algos.deep_learn import Learning, OfAgent
from pcpg.algos.deep_play import Members, Playing, measured, no_members
from pcpg.algos.deep_settings import DeepConfig
from pcpg.algos.deep_task import Task
from pcpg.algos.on_data import unvisited
from pcpg.algos.rounds import after_round, check_visits, plain
from pcpg.config import Json
from pcpg.data import Draws, Stream
from pcpg.engine.together import Shared
from pcpg.learners.novelty import Novelty, no_novelty
from pcpg.learners.transitions import CHANCE, EXPLORER, SURE, TASK, Episodes, Transitions
from pcpg.policies.off_policy import DeepPolicy, Scale
from pcpg.state import DONE, EXPLOIT, EXPLORE, Ledger, Report, SeedState


class Own(NamedTuple):
    """State of a seed in addition to the ledger; the data lie in the parts of its rounds."""

    task: OfAgent
    explorer: OfAgent | None
    scale: Scale  # of observations
    novelty: Novelty | None
    members: Members | None  # the cover
    scaled_at: np.ndarray  # int64, transitions there were when observations were last scaled
    counted: np.ndarray  # int64, transitions that the bonus knows
    reward_scale: np.ndarray  # float64, the largest size of a reward that the learners know of
    met: np.ndarray  # int32, episodes that met a reward
    met_at: np.ndarray  # int64, steps at which the first one ended; -1: none has
    confirmed: np.ndarray  # [2] float64: sum and number of the fresh returns of the best policy
    confirms: np.ndarray  # bool: the next round plays the best policy
    tries: np.ndarray  # int32, how often a best policy was played again
    given: np.ndarray  # int64, transitions of another run
    batches: np.ndarray  # int32, rounds whose data were written in this run
    kept: Transitions | None  # None inside a checkpoint

    @property
    def data(self) -> Transitions:
        assert self.kept is not None, "a state that is not inside a checkpoint has its data"
        return self.kept


class DeepPart(NamedTuple):
    """The output of a round, written once."""

    episodes: Episodes


State = SeedState[Own]


class DeepAgent(Bound[Own]):
    """The algorithm bound to a world."""

    checkpoint_share = 0.1

    def __init__(self, config: DeepConfig, world: World) -> None:
        self.config, self.world, self.env = config, world, world.env
        self.learning = Learning(config, world)
        self.playing = Playing(world, config.num_episodes)
        limits = world.budget.limits
        self.target = self.env.solved_return if limits.until is None else limits.until

    @property
    def programs(self) -> tuple[Shared, ...]:
        return self.playing.begin, self.playing.collect, self.learning.learn, self.playing.end

    def template(self) -> DeepPolicy:
        """A policy of the kind that a run returns."""
        return self.learning.policy(self.learning.fresh(0, 0), self.learning.no_scale()).final()

    def init(self, seed: int) -> State:
        """A seed before its first round: random networks, and no data or those of another run."""
        learning, explore = self.learning, self.config.explore
        zero, none = np.zeros((), np.int32), np.zeros((), np.int64)
        has_explorer = explore.updates > 0 and self.world.assets is None
        size = int(np.prod(self.env.observation_space.shape, dtype=int))
        own = Own(
            task=learning.fresh(seed, 0),
            explorer=learning.explorer(seed) if has_explorer else None,
            scale=learning.no_scale(),
            novelty=no_novelty(size, explore.num_features) if has_explorer else None,
            members=self._no_members() if has_explorer else None,
            scaled_at=none,
            counted=none,
            reward_scale=np.ones(()),
            met=zero,
            met_at=none - 1,
            confirmed=np.zeros(2),
            confirms=np.zeros((), bool),
            tries=zero,
            given=none,
            batches=zero,
            kept=Transitions(self.env.observation_space, self.env.action_space),
        )
        if self.world.given is not None:
            own.data.add(Episodes.of_part(self.world.given))
            own = own._replace(given=np.asarray(own.data.size, np.int64))
        policy = learning.policy(own.task, own.scale).final()
        state = SeedState(Ledger.start(seed, self.env.num_cells), policy, policy, own)
        if self.world.assets is not None:
            return self._with_data_of(state, self.env.dynamics_seed(seed))
        return state if has_explorer else state.noted(phase=EXPLOIT)

    def _with_data_of(self, state: State, explored: int) -> State:
        """The state with the data of a seed that explored, under the reward of now."""
        assert self.world.assets is not None
        kept = self.world.assets[explored].data
        assert isinstance(kept, Transitions)
        rows = np.arange(kept.size) + kept.column("episode")
        here, after = kept.observations[rows], kept.observations[rows + 1]
        found = self.env.rewards_of(self.env.instance(state.seed), here, kept.column("action"), after)
        kept = kept.relabelled(*((kept.column("reward"), None) if found is None else found))
        own = state.own._replace(kept=kept, given=np.asarray(kept.size, np.int64))
        return state._replace(own=own).noted(phase=EXPLOIT)

    # A round.

    async def step(self, state: State) -> tuple[State, Report]:
        """Play, learn, judge."""
        own, kept = state.own, state.own.data
        is_offline = int(own.given) > 0 and state.round == 0
        if is_offline and self.config.offline_updates:
            return await self._offline(state)
        players = self._players(state)
        policies, before = self._policies(state), kept.size
        inputs = self.playing.inputs(state, policies, players, own.members)
        metrics: Json = {}
        if self.config.learn.while_playing:
            playing = await self.playing.begin(inputs)
            state, metrics = await self._learned(state)
            played = await self.playing.end(playing)
        else:
            played = await self.playing.collect(inputs)
        seen = measured(self.env, played, players)
        check_visits(state, seen)
        episodes = Episodes.of(played, players)
        kept.add(episodes)
        state = state._replace(own=state.own._replace(batches=own.batches + np.int32(1)))
        if self.config.learn.while_playing:
            state = self._noted(state, self.learning.task(kept))
        else:
            state, metrics = await self._learned(state)
        state = self._covered(state, policies[EXPLORER], players, before)
        state, more = self._judged(state, seen, players)
        return state, Report(plain(more | metrics | self._met(state)), DeepPart(episodes))

    async def _learned(self, state: State) -> tuple[State, Json]:
        """The state after the updates that the newest round of the data is worth."""
        kept = state.own.data
        if not state.own.batches:
            return state, {}
        task = self.learning.task(kept)
        new = int(kept.each("lengths")[-self.config.num_episodes :].sum())
        return await self.learning.round(self._noted(state, task), task, new)

    def _met(self, state: State) -> Json:
        return {"met": int(state.own.met), "met_at": int(state.own.met_at)}

    async def _offline(self, state: State) -> tuple[State, Report]:
        """A round without a step: the task from given data."""
        state = self._noted(state, task := self.learning.task(state.own.data))
        updates = self.config.offline_updates / self.config.learn.updates
        state, metrics = await self.learning.round(state, task, updates)
        policy = self.learning.policy(state.own.task, state.own.scale).final()
        state, more = after_round(self.env, state, Explored(policy, None, seen=unvisited(self.env.num_cells)))
        is_over = self.config.budget <= self.env.max_steps
        state = state._replace(best_policy=policy)
        return state.noted(phase=DONE) if is_over else state, Report(plain(more | metrics | self._met(state)))

    def _no_members(self) -> Members | None:
        capacity, learning = self.config.explore.cover, self.learning
        return no_members(learning.policy(learning.fresh(0, 1), learning.no_scale()), capacity) if capacity else None

    def _covered(self, state: State, explorer: DeepPolicy, players: np.ndarray, before: int) -> State:
        """The state whose cover has the explorer that played."""
        own, kept = state.own, state.own.data
        if own.members is None or own.novelty is None or not (players == EXPLORER).any():
            return state
        members = own.members.with_member(explorer, before, kept.size, kept, own.novelty)
        return state._replace(own=own._replace(members=members))

    def _players(self, state: State) -> np.ndarray:
        """Who plays each episode of this round."""
        number, own = self.config.num_episodes, state.own
        if own.confirms:
            return np.full(number, SURE)
        if own.data.size == 0:
            return np.full(number, CHANCE)
        rng = Draws(state.seed, state.round).of(Stream.ROLL_IN)
        share = self.config.explore.task_share
        if own.explorer is not None and not own.met:  # goals can be tried before one was met
            share = 0.0 if self.learning.goals(own.data) is None else 1.0 - share
        is_task = (rng.random(number) < share) | (own.explorer is None)
        is_sure = (rng.random(number) < self.config.sure_share) & (int(own.met) > 0)
        if own.met and self._is_last(state):
            return np.full(number, SURE)
        return np.where(is_task, np.where(is_sure, SURE, TASK), EXPLORER)

    def _policies(self, state: State) -> dict[int, DeepPolicy]:
        """The policy of each kind of player."""
        own, learning = state.own, self.learning
        task = learning.policy(own.task, own.scale)
        explorer = task if own.explorer is None else learning.policy(own.explorer, own.scale, newest=True)
        newest = learning.policy(own.task, own.scale, newest=True)
        sure = state.best_policy if own.confirms else task.final()
        chance = newest.at_random()
        return {CHANCE: chance, EXPLORER: explorer, TASK: newest, SURE: sure.in_training()}

    def _noted(self, state: State, task: Task) -> State:
        """The state with what the data say of the task."""
        own, met = state.own, int(np.count_nonzero(task.success))
        met_at = own.data.size - int(own.given) if met and own.met_at < 0 else int(own.met_at)
        own = own._replace(met=np.asarray(met, np.int32), met_at=np.asarray(met_at, np.int64))
        phase = EXPLOIT if task.is_met or own.explorer is None else EXPLORE
        return state._replace(own=own).noted(phase=phase)

    def _judged(self, state: State, seen: Any, players: np.ndarray) -> tuple[State, Json]:
        """The state after a round: the best policy, and whether the run is over."""
        own, ledger, sure = state.own, state.ledger, players == SURE
        was_confirming = bool(own.confirms)
        is_judged = bool(sure.any())
        judged = state.best_policy if was_confirming else state.policy  # the one that played
        best = float(ledger.best_return)
        counted = seen._replace(returns=seen.returns[sure] if is_judged else np.full(1, np.nan))
        state, metrics = after_round(self.env, state, Explored(judged, None, seen=counted))
        if was_confirming:
            total, number = (own.confirmed + np.array([counted.returns.sum(), sure.sum()])).tolist()
            mean, is_over = total / number, self._is_sure(state, int(number)) or self._is_spent(state)
            state = state.noted(last_return=mean, best_return=mean if is_over else best)
            state = state._replace(own=own._replace(confirmed=np.array([total, number])))
            if is_over:
                return self._confirmed(state, int(number)), metrics
            if self.target is not None and mean < self.target and number >= 3:
                return self._resumed(state.noted(best_return=mean)), metrics
            return state, metrics
        if not is_judged:
            state = state.noted(last_return=ledger.last_return, best_return=best)
        elif state.ledger.last_return >= state.ledger.best_return:  # of equals the newest
            state = state._replace(best_policy=judged)
        newest = self.learning.policy(state.own.task, state.own.scale).final()
        reached = self.target is not None and is_judged and state.ledger.last_return >= self.target
        if reached and not self._is_spent(state):
            tries = own.tries + np.int32(1)
            confirms = own._replace(confirms=np.ones((), bool), confirmed=np.zeros(2), tries=tries)
            return state._replace(own=confirms, policy=newest), metrics
        return self._over(state._replace(policy=newest)) if self._is_spent(state) else state._replace(
            policy=newest
        ), metrics

    def _confirmed(self, state: State, number: int) -> State:
        """After enough fresh episodes of the best policy: the end, or more learning."""
        returns = state.own.data.by_episode(state.own.data.column("reward"), np.add)[-number:]
        reached = self.target is not None and is_reached(returns, self.target, int(state.own.tries))
        return self._over(state) if reached or self._is_spent(state) else self._resumed(state)

    def _over(self, state: State) -> State:
        """The end, with the best policy; with the newest where a reward was met and none was judged."""
        if not np.isfinite(state.ledger.best_return):
            returns = state.own.data.by_episode(state.own.data.column("reward"), np.add)
            mean = float(returns[-self.config.num_episodes :].mean())
            best = state.policy if state.own.met else state.best_policy
            state = state._replace(best_policy=best).noted(best_return=mean)
        return state._replace(policy=state.best_policy).noted(phase=DONE, last_return=state.ledger.best_return)

    def _resumed(self, state: State) -> State:
        """Learning goes on."""
        newest = self.learning.policy(state.own.task, state.own.scale).final()
        return state._replace(policy=newest, own=state.own._replace(confirms=np.zeros((), bool)))

    def _is_last(self, state: State) -> bool:
        """Whether what is left of the budget is for judging the newest policies."""
        longest = self._longest(state)
        confirm = self.config.confirm_episodes or min(max(STEPS // longest, FEWEST), MOST)
        reserve = min(confirm * longest, self.config.budget // 10)
        return int(state.ledger.env_steps) + reserve + self._round_steps(state) > self.config.budget

    def _is_sure(self, state: State, number: int) -> bool:
        """Whether so many fresh episodes, the newest, say enough of a policy."""
        if self.config.confirm_episodes:
            return number >= self.config.confirm_episodes
        return is_enough(state.own.data.each("lengths")[-number:], int(state.own.tries))

    def _is_spent(self, state: State) -> bool:
        return int(state.ledger.env_steps) + self._round_steps(state) > self.config.budget

    def _round_steps(self, state: State) -> int:
        return self.config.num_episodes * self._longest(state)

    def _longest(self, state: State) -> int:
        """Steps of a long episode, of the newest ones."""
        lengths = state.own.data.each("lengths")[-50:]
        return min(int(lengths.max(initial=1)), self.env.max_steps) if len(lengths) else self.env.max_steps

    # What the loop asks.

    def left(self, state: State) -> int:
        """The approximate number of remaining rounds."""
        if state.is_done:
            return 0
        used, budget = int(state.ledger.env_steps), self.config.budget
        each = used / state.round if used and state.round else self.config.num_episodes * self.env.max_steps
        return max(1, int((budget - used) / each))

    def stopped(self, state: State, why: Literal["target", "time"]) -> State:
        """At the time limit the run is over; a target has to be confirmed."""
        return self._over(state) if why == "time" else state

    def ended(self, state: State) -> str:
        if state.own.explorer is None:
            return ""
        if not state.is_done:
            return "exploring"
        is_reached = self.target is not None and state.ledger.best_return >= self.target
        return "target" if is_reached else "budget"

    def moving(self, own: Own) -> Own:
        """All but the data, which lie in the parts."""
        return own._replace(kept=None)

    def restored(self, fresh: State, moving: State, parts: Any) -> State:
        kept = fresh.own.data
        for part in parts[: int(moving.own.batches)]:
            kept.add(Episodes.of_part(part))
        return moving._replace(own=moving.own._replace(kept=kept))

    def assets(self, weights: np.ndarray, parts: Any) -> Assets:
        kept = Transitions(self.env.observation_space, self.env.action_space)
        for part in parts:
            kept.add(Episodes.of_part(part))
        return Assets(data=kept) if kept.size else Assets()
