"""PC-PG with kept data: Algorithm 1 with values fitted off-policy to all transitions so far.

    Visit     play episodes that choose by the larger of value and bonus, a part of them rolled in through the cover and
              then one random action; keep all transitions; count the pairs, with new landmarks where needed
    Improve   fit values to the kept data, the bonus outside of them: no step in the environment
    Design    D-optimal weights of the members, from the landmarks that each visits

Exploration ends once the optimistic value of the start has been small for some rounds: nothing reachable promises a
bonus any more. Exploitation is a fit to the task's reward without a bonus on the same data, and if its policy earns
less than its values predict, some more fits with the new data.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, Self

import numpy as np

from pcpg.algorithms import Arrays, Assets, Bound, Cost, Presets, Settings, Shown, World
from pcpg.algos.on_data import Recorder
from pcpg.algos.replay_explore import (
    NOT_OF_THE_COVER,
    Explorer,
    Own,
    ReplayExploreConfig,
    no_members,
    whole_groups,
)
from pcpg.algos.replay_task import ReplayExploitConfig, Task
from pcpg.algos.rounds import cover_weights
from pcpg.budget import NO_LIMITS, UNLIMITED, Limits, too_little
from pcpg.config import ConfigError
from pcpg.data import Batch, Kept, Sample
from pcpg.engine.together import Shared, together
from pcpg.envs.host import HostEnvironment
from pcpg.envs.protocol import Environment
from pcpg.envs.spaces import Discrete, flat_size
from pcpg.kernel.fitting import no_model
from pcpg.kernel.policies import MOST_ACTIONS, GreedyPolicy, candidate_actions
from pcpg.kernel.views import FIRST_LANDMARKS, WIDTHS, KeepConfig, Kernel, View, fresh_encoder
from pcpg.state import DONE, EXPLOIT, EXPLORE, Ledger, Report, SeedState

MOST_BYTES = 4_000_000_000
"""Default limit on the memory of a seed's data, assuming no observation repeats."""
MOST_OF_A_PAIR = 64
"""Transitions per pair used to learn a task on the data of another run."""
FEWEST_ROUNDS = 4
"""Of exploration, that a small budget holds: rounds and the evaluation get smaller."""
NEW_EPISODES = 16
"""Default number of episodes in a round of new steps."""


@dataclasses.dataclass(frozen=True)
class ReplayConfig(Settings):
    """PC-PG with kept data: explore, then exploit the data."""

    replay: KeepConfig = dataclasses.field(default_factory=KeepConfig)
    explore: ReplayExploreConfig = dataclasses.field(default_factory=ReplayExploreConfig)
    exploit: ReplayExploitConfig = dataclasses.field(default_factory=ReplayExploitConfig)

    leaves: ClassVar[Literal["", "cover", "data"]] = "data"
    weights = staticmethod(cover_weights)

    def sized(self, env: Environment, limits: Limits, used: int = 0) -> Self:
        """The settings with formulas resolved; a budget of steps sets the capacity, except for an evaluation."""
        last, steps = flat_size(env.observation_space) - 1, env.max_steps
        if self.replay.ignored and max(self.replay.ignored) > last:
            raise ConfigError(
                f"replay.ignored names entry {max(self.replay.ignored)}, but an observation's last entry is {last}"
            )
        actions = len(candidate_actions(env.action_space, self.replay.num_actions))
        most = min(max(40 * steps**2 * (actions + 10), 200_000), 40_000_000, MOST_BYTES // bytes_of_transition(env))
        capacity, episodes = self.replay.capacity or most, self.explore.num_episodes or (16 if steps > 128 else 32)
        visits = self.exploit.visit_episodes
        if limits.steps:
            room = (limits.steps - used) // steps  # in episodes
            if room < 2:
                raise too_little(limits.steps, used + 2 * steps)
            if room < visits + FEWEST_ROUNDS * episodes:
                visits = min(visits, whole_groups(room // FEWEST_ROUNDS))
                episodes = min(episodes, whole_groups((room - visits) // FEWEST_ROUNDS))
            capacity = limits.steps - used - visits * steps
        explore = {"backups": self.explore.backups or steps, "num_episodes": episodes}
        backups = 2 * steps if self.exploit.backups < 0 else self.exploit.backups
        return dataclasses.replace(
            self,
            replay=dataclasses.replace(self.replay, capacity=capacity),
            explore=dataclasses.replace(self.explore, **explore),
            exploit=dataclasses.replace(self.exploit, backups=backups, visit_episodes=visits),
        )

    def cost(self, env: Environment, limits: Limits) -> Cost:
        """The cost of the data and, on the host, of the episodes of a round."""
        episodes, space = self.explore.num_episodes, env.observation_space
        seen = (env.max_steps + 1) * episodes * math.prod(space.shape) * np.dtype(space.dtype).itemsize
        evaluation = self.exploit.visit_episodes * env.max_steps if self.has_task(env) else 0
        return Cost(
            words=f"rounds of {episodes} episodes until little is new, then the task from the data",
            most_steps=self.replay.capacity + evaluation,
            round_steps=0,
            is_estimate=limits.steps > 0,
            networks=bytes_of_model(env),
            episodes=seen if isinstance(env, HostEnvironment) else 0,
            data=self.replay.capacity * bytes_of_transition(env),
        )

    def extended(self, limits: Limits, before: Limits) -> Self:
        """Room for the steps of the new limits, and all of them allowed for the task."""
        # A capacity that came from a number of steps goes with it: it is by the formula again.
        capacity = 0 if before.steps and not limits.steps else max(self.replay.capacity, limits.steps)
        steps = self.exploit.steps if limits == before else limits.steps or UNLIMITED
        return dataclasses.replace(
            self,
            replay=dataclasses.replace(self.replay, capacity=capacity),
            exploit=dataclasses.replace(self.exploit, steps=steps),
        )

    def reopened(self, arrays: Arrays, env: Environment, limits: Limits) -> int:
        """The task, keeping its best policy, if exploration had finished; otherwise exploration."""
        if not self.has_task(env) or self.exploit.visit_episodes == 0:
            return EXPLORE
        left = self.replay.capacity - arrays[".explored"]
        has_room = left >= self.explore.num_episodes * env.max_steps
        is_found = arrays[".closer"] > 0 and has_room and not limits.seconds  # a closer look found the reward
        return EXPLOIT if is_found or arrays[".quiet"] >= self.explore.patience else EXPLORE

    def on_assets(self, new_steps: int, changes: Mapping[str, object]) -> Self:
        """From the data alone, without a step in the environment, if no new steps are granted."""
        alone = {"steps": 0, "visit_episodes": 0, "backups": self.exploit.backups or -1}
        more = {"steps": new_steps, "visit_episodes": self.exploit.visit_episodes or NEW_EPISODES}
        return dataclasses.replace(self, exploit=dataclasses.replace(self.exploit, **(more if new_steps else alone)))

    def check_on_assets(self, made: Self, env: Environment) -> Self:
        """These settings, if the granted steps leave something to learn."""
        steps, episodes = self.exploit.steps, self.exploit.visit_episodes
        if self.exploit.backups == 0:
            raise ConfigError("exploit.backups must be at least 1 here, got 0")
        if 0 < steps < episodes * env.max_steps:
            least = episodes * env.max_steps
            raise ConfigError(f"{steps:,} new steps are too few: {episodes} episodes need up to {least:,}")
        return self

    @staticmethod
    def shown(arrays: Arrays, parts: Sequence[Arrays]) -> Shown | None:
        """The members of the cover with their visits and returns."""
        weights = cover_weights(arrays)
        members = [part for part in parts if part[".features"] != NOT_OF_THE_COVER][: len(weights)]
        if not 0 < len(weights) == len(members):
            return None
        cells = np.stack([part[".cells"] for part in members])
        return Shown(weights, cells, tuple(np.asarray(part[".returns"], np.float64) for part in members))

    def has_task(self, env: Environment) -> bool:
        """Whether there is something to learn from the data."""
        return not env.is_reward_free and self.exploit.backups > 0

    def agent(self, world: World) -> "ReplayAgent":
        return ReplayAgent(self.sized(world.env, NO_LIMITS), world)


REPLAY = Presets(ReplayConfig(), ReplayConfig())


def bytes_of_transition(env: Environment) -> int:
    """The maximum memory of a kept transition."""
    space = env.observation_space
    return int(np.prod(space.shape, dtype=int)) * np.dtype(space.dtype).itemsize + 24


def bytes_of_model(env: Environment) -> int:
    """The memory of the model without data, and of what is computed from it."""
    space, room = env.action_space, FIRST_LANDMARKS
    actions = space.n if isinstance(space, Discrete) else MOST_ACTIONS
    return 8 * 4 * room * (actions * room + int(np.prod(env.observation_space.shape, dtype=int)))


class ReplayAgent(Bound[Own]):
    """The algorithm bound to a world: exploration, and the task on the data."""

    checkpoint_share = 0.1  # its covariances are large, and rounds are short
    grows = True

    def __init__(self, config: ReplayConfig, world: World) -> None:
        self.config, self.world, self.env = config, world, world.env
        self.candidates = candidate_actions(self.env.action_space, config.replay.num_actions)
        self.recorder = Recorder(self.env, self.candidates, config.replay.ignored, world.lanes)
        self.kernel = Kernel(config.replay, len(self.candidates), world.lanes)
        self.explorer = Explorer(config.explore, self.recorder, self.kernel)
        given = {"capacity": config.replay.capacity, "is_given": world.assets is not None}
        self.task = Task(config.exploit, self.explorer, world.budget.limits, **given)
        self._settled: dict[int, tuple[np.ndarray, View, tuple[np.ndarray, np.ndarray]]] = {}

    @property
    def programs(self) -> tuple[Shared, ...]:
        """In the order of a round: landmarks of a task, fits, episodes, counts, and features made anew."""
        explorer, task, kernel = self.explorer, self.task, self.kernel
        fits = kernel.place, kernel.space, explorer.improve, task.solve
        return *fits, explorer.collect, task.collect, kernel.count, kernel.learn, kernel.encode, explorer.design

    def template(self) -> GreedyPolicy:
        """A policy before any data, with the number of landmarks it needed."""
        return self._fresh(0).policy

    def init(self, seed: int) -> SeedState[Own]:
        """A seed before its first round: no data, or the data of another run under the current reward."""
        state = self._fresh(seed)
        return state if self.world.assets is None else self._with_data_of(state, self.env.dynamics_seed(seed))

    def _fresh(self, seed: int) -> SeedState[Own]:
        """No data, no landmark, and a policy that plays at random."""
        actions, room = len(self.candidates), FIRST_LANDMARKS
        size, encoder = int(np.prod(self.env.observation_space.shape, dtype=int)), None
        if self.config.replay.features != "observation":
            size, encoder = WIDTHS[-1], fresh_encoder(size, actions, seed)
        listed = self.recorder.listed(seed)
        number = 0 if listed is None else len(listed.x)
        model = no_model(np.ones(size, np.float32), actions, room, number, encoder)
        policy, zero, no = self.explorer.greedy(model.landmarks, model.w), np.zeros((), np.int32), np.zeros((), bool)
        own = Own(
            model=model,
            waiting=np.zeros(model.bonus.shape, np.float32),
            sample=Sample(np.zeros(0, np.int64), np.zeros(0, np.float32)),
            features=zero,
            scaled_at=zero.astype(np.int64),
            quiet=zero,
            closer=zero,
            tried_at=zero.astype(np.int64),
            tries=no,
            best_grain=zero,
            confirms=no,
            batches=zero,
            explored=zero.astype(np.int64),
            cover=no_members(actions, room),
            kept=self.recorder.kept_in([]),
        )
        return SeedState(Ledger.start(seed, self.env.num_cells), policy, policy, own)

    def _with_data_of(self, state: SeedState[Own], explored: int) -> SeedState[Own]:
        """The state with the data of a seed that explored."""
        assert self.world.assets is not None
        kept = self.world.assets[explored].data
        assert isinstance(kept, Kept)
        if explored not in self._settled:  # the same for every task on these data
            places = kept.of_every_pair(MOST_OF_A_PAIR)
            codes = np.unique(kept.column("code")[places])
            [view] = together([self.kernel.settled_view(kept, places, codes, explored)], self.programs)
            assert isinstance(view, View)
            self._settled[explored] = places, view, kept.kinds()
        places, view, (one, kind) = self._settled[explored]
        seen, chosen = kept.observations, self.candidates[kept.column("action")[one]]
        here, after = seen[kept.column("code")[one]], seen[kept.column("next_code")[one]]
        found = self.env.rewards_of(self.env.instance(state.seed), here, chosen, after)
        reward, ends = (kept.column("reward"), None) if found is None else (np.asarray(found[0])[kind], found[1])
        own = state.own._replace(
            kept=kept.relabelled(reward, None if ends is None else np.asarray(ends)[kind]),
            sample=Sample(places, np.ones(len(places), np.float32)),
            # No bonus is asked for.
            model=no_model(view.scale, len(self.candidates), FIRST_LANDMARKS, encoder=view.encoder),
        )
        return state._replace(own=own.noted(explored=kept.size)).noted(phase=EXPLOIT)

    async def step(self, state: SeedState[Own]) -> tuple[SeedState[Own], Report]:
        """One round in the seed's current phase."""
        if state.phase != EXPLORE:
            return await self.task.round(state)
        state, report = await self.explorer.round(state)
        return self._after_exploring(state), report

    def _after_exploring(self, state: SeedState[Own]) -> SeedState[Own]:
        """The phase after a round of exploration: continue, look closer, try the task, or end."""
        own, explore = state.own, self.config.explore
        has_task, why = self.config.has_task(self.env), self._why_over(own)
        if why == "quiet" and has_task and not own.kept.has_success:
            if own.closer < explore.closer_looks:
                return state._replace(own=own.noted(closer=own.closer + 1, quiet=0, scaled_at=0))
            if self.world.budget.limits.steps:  # nothing was found: the rest of the budget may still find it
                return state._replace(own=own.noted(quiet=0))
        if why:
            return state.noted(phase=EXPLOIT if has_task else DONE, phase_round=0)
        if has_task and self.task.is_due(state):
            return state._replace(own=own.noted(tries=True, tried_at=own.kept.size)).noted(phase=EXPLOIT)
        return state

    def _why_over(self, own: Own) -> str:
        """Why exploration ended, from the data kept at that point; "": it has not."""
        if int(own.explored) + self.explorer.round_steps > self.config.replay.capacity:
            return "budget" if self.world.budget.limits.steps else "full"
        if own.quiet >= self.config.explore.patience:
            return "quiet"
        return "found" if own.closer > 0 and own.kept.has_success else ""  # by a closer look

    def left(self, state: SeedState[Own]) -> int:
        """The maximum number of remaining rounds of a seed."""
        if state.phase != EXPLORE:
            return int(state.phase == EXPLOIT) + self.task.left(state)
        return (self.config.replay.capacity - int(state.ledger.env_steps)) // self.explorer.round_steps + 1

    def stopped(self, state: SeedState[Own], why: Literal["target", "time"]) -> SeedState[Own]:
        """A seed that explores has no policy for the task: it continues to learn one."""
        if state.phase == EXPLORE:
            return state.noted(phase=EXPLOIT, phase_round=0)
        return state.noted(phase=DONE)

    def ended(self, state: SeedState[Own]) -> str:
        limits = self.world.budget.limits
        if self.world.assets is not None:
            return ""
        if state.phase == EXPLORE or state.own.tries:
            return "exploring"
        is_reached = limits.until is not None and state.ledger.best_return >= limits.until
        return self._why_over(state.own) or ("budget" if limits.seconds and not is_reached else "target")

    def policies(self, state: SeedState[Own]) -> int:
        return int(state.own.cover.size)

    def moving(self, own: Own) -> Own:
        """All but the data and the members, which lie in the parts."""
        return own._replace(kept=None, cover=own.cover._replace(w=None, landmarks=None, visits=None))

    def restored(self, fresh: SeedState[Own], moving: SeedState[Own], parts: Sequence[Arrays]) -> SeedState[Own]:
        """The data of all rounds, and the members with current features."""
        own, kept = moving.own, fresh.own.kept
        cover = no_members(len(own.model.w), own.model.landmarks.capacity)
        for part in parts[: int(own.batches)]:
            kept.restore(Batch.of_part(part))
            if part[".features"] == own.features:
                cover = cover.joined(part[".w"], part[".landmarks"], part[".visits"])
        cover = cover._replace(weights=own.cover.weights, size=own.cover.size)
        return moving._replace(own=own._replace(cover=cover, kept=kept))

    def assets(self, weights: np.ndarray, parts: Sequence[Arrays]) -> Assets:
        return Assets(data=self.recorder.kept_in(parts), candidates=self.candidates) if parts else Assets()
