"""`pcpg certify`: from a run's data alone, how much better than a seed's final policy any policy can be.

    V* - V^pi <= U - L      U: optimism over the kept transitions      L: fresh episodes of the final policy

Each holds with probability 1 - delta / 2, and all seeds of a run together with 1 - delta. Returns are undiscounted,
over at most as many steps as an evaluation has.
"""

import dataclasses
import math
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from pcpg.cli.display import tell
from pcpg.cli.flags import Arg, Folder, JsonFlag, TrustFlag
from pcpg.cli.inspect import run_to_play
from pcpg.config import ConfigError
from pcpg_theory.mdp import Index
from pcpg_theory.optimism import Data, Range, bernstein, data_of, optimism

if TYPE_CHECKING:
    from pcpg.run import KeptEpisode, Run

REPEATED = "observations hardly repeat ({:,} distinct in {:,} steps): a bound would be the trivial one"


class FromData(NamedTuple):
    """V* - V^pi is at most `bound`."""

    seed: int
    bound: float
    upper: float  # of V*
    lower: float  # of V^pi
    trivial: float  # the largest gap that the range of rewards allows
    largest: float  # the largest value that it allows
    mean_return: float  # of the fresh episodes
    episodes: int
    transitions: int
    states: int
    pairs: int  # that were tried


def certify_run(
    run: "Run", declared: Range, *, delta: float = 0.05, episodes: int = 1000, markov: bool = False
) -> list[FromData]:
    """The certificate of each seed that did not fail."""
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta must be a probability above 0 and below 1, got {delta}")
    if episodes < 2:
        raise ValueError(f"episodes must be at least 2, got {episodes}")
    steps, seeds = run.env.evaluation_env.max_steps, run.finished_seeds
    share = delta / (2 * len(seeds))
    uppers = [upper_of(run, seed, declared, share, steps, markov) for seed in seeds]
    played, least, largest = run.evaluate(episodes), declared.least(steps), declared.largest(steps)
    found = []
    for seed, (upper, data), returns in zip(seeds, uppers, played.returns.astype(np.float64), strict=True):
        declared.check_returns(returns, steps)
        lower = bernstein(returns, least, largest, share)
        tried = len(np.unique(data.state * data.num_actions + data.action))
        found.append(
            FromData(
                *(seed, max(upper - lower, 0.0), upper, lower, largest - least, largest, float(returns.mean())),
                *(episodes, int(data.met.sum()), data.num_states, tried),
            )
        )
    return found


def upper_of(run: "Run", seed: int, declared: Range, delta: float, steps: int, markov: bool) -> tuple[float, Data]:
    """The bound on V* from a seed's kept data, and the data."""
    if run.config.source:
        raise ConfigError(
            f"{run.path} was learned on the data of another run: certify that one, {run.config.source['run']}"
        )
    if not run.keeps_data:
        raise ConfigError(f"{run.path} holds no data: {run.config.algo} keeps none; train with --algo pcpg-replay")
    episodes = list(run.kept_episodes(seed))
    declared.check(np.concatenate([one.rewards for one in episodes]))
    declared.check_returns(np.concatenate([np.cumsum(one.rewards[::-1]) for one in episodes]), steps)
    data, listed = numbered(run, seed, episodes)
    if not (listed or markov):
        raise ConfigError(
            f"the observations of {run.config.env} may not be its whole state, and no bound holds then; if they are "
            "(the next observation and the reward depend on nothing else), add --markov"
        )
    return optimism(data, declared, delta, steps=steps).start, data


def numbered(run: "Run", seed: int, episodes: list["KeptEpisode"]) -> tuple[Data, bool]:
    """The transitions of episodes with numbered observations, and whether observations are known to be states."""
    seen = np.concatenate([one.observations for one in episodes])
    rows, code = np.unique(seen.reshape(len(seen), -1), axis=0, return_inverse=True)
    transitions = sum(len(one.rewards) for one in episodes)
    if len(rows) > 0.5 * transitions:
        raise ConfigError(REPEATED.format(len(rows), transitions))
    lengths = np.array([len(one.rewards) for one in episodes])
    last = np.cumsum(lengths + 1) - 1  # of each episode, among all observations
    is_step = np.ones(len(seen), bool)
    is_step[last] = False
    here = np.flatnonzero(is_step)
    terminated = np.concatenate([one.terminated for one in episodes])
    after, code = np.where(terminated, -1, code.reshape(-1)[here + 1]), code.reshape(-1)
    reward = np.concatenate([one.rewards for one in episodes]).astype(np.float64)
    actions, number = _actions(run, np.concatenate([one.actions for one in episodes]))
    data = data_of(code[here], actions, after, reward, code[last - lengths], number)
    is_one_hot = bool(np.isin(rows, (0, 1)).all() and (rows.sum(axis=1) == 1).all())
    return data, is_one_hot or run.env.state_observations(run.env.instance(seed)) is not None


def _actions(run: "Run", actions: np.ndarray) -> tuple[Index, int]:
    """Actions by number, and how many there are, tried or not."""
    from pcpg.envs.spaces import Discrete, MultiDiscrete

    space = run.env.action_space
    if isinstance(space, Discrete):
        return actions.astype(np.int64), space.n
    if isinstance(space, MultiDiscrete):
        columns = actions.reshape(len(actions), -1).astype(np.int64).T
        return np.ravel_multi_index(tuple(columns), space.sizes), math.prod(space.sizes)
    raise ConfigError("real actions cannot be certified: data of some actions say nothing about those between them")


@dataclasses.dataclass(frozen=True)
class Certify:
    """Bound how much better than a run's final policies any policy can be, from the run's data and fresh episodes.

    Needs kept data (pcpg-replay, pcpg-deep) and observations that are states.
    """

    dir: Folder
    r_min: float = 0.0
    """No reward is below this."""
    r_max: float = 1.0
    """No reward is above this. The bound is wrong if one can be, even if none was met."""
    most: Annotated[float | None, Arg("RETURN")] = None
    """No sum of rewards, from any step of an episode to its end, is above this; by default r_max at every step."""
    delta: float = 0.05
    """Probability that a bound fails."""
    episodes: int = 1000
    """Fresh episodes per seed."""
    markov: Annotated[bool, Arg(help="Observations are states, though the environment does not list them.")] = False
    trust: TrustFlag = False
    json: JsonFlag = False

    def __call__(self, console: Console) -> int:
        declared = Range(self.r_min, self.r_max, *(() if self.most is None else (self.most,))).check()
        run = run_to_play(self.dir, console, self.episodes, self.trust)
        found = certify_run(run, declared, delta=self.delta, episodes=self.episodes, markov=self.markov)
        title = (
            f"{run.folder.name}: V* - V is at most `bound` with probability {1 - self.delta:g}, if observations are "
            f"states and rewards lie in [{self.r_min:g}, {self.r_max:g}]"
        )
        table = Table(title=title, title_justify="left")
        columns = "seed", "bound", "trivial bound", "V* at most", "V at least", "return", "transitions", "states"
        for i, name in enumerate(columns):
            table.add_column(name, justify="right" if i else "left")
        for one in found:
            numbers = one.bound, one.trivial, one.upper, one.lower, one.mean_return
            table.add_row(str(one.seed), *(f"{x:.4g}" for x in numbers), f"{one.transitions:,}", f"{one.states:,}")
        result = {
            "run": run.folder.name,
            "env": run.config.env,
            "algo": run.config.algo,
            "delta": self.delta,
            "r_min": self.r_min,
            "r_max": self.r_max,
            "most": self.most,
            "seeds": [one._asdict() for one in found],
        }
        return tell(console, self.json, table, result)
