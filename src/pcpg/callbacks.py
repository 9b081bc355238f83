"""Callbacks for `pcpg.train(observer=...)`, one or several.

A callback is any function of a `Progress`. It is called before the first round and after each. If it returns False,
training stops after that round, and `pcpg.resume` continues the run. An error in a callback ends training with the last
checkpoint intact.
"""

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pcpg.elsewhere import missing
from pcpg.policy import Policy
from pcpg.training.loop import Progress

if TYPE_CHECKING:
    import gymnasium


_ELSEWHERE = {
    "EvalCallback": "pcpg.callbacks.Evaluate(make_env, every=10, episodes=5)",
    "StopTrainingOnRewardThreshold": "until=475.0 of pcpg.train, or pcpg.callbacks.Evaluate(make_env, until=475.0)",
    "StopTrainingOnNoModelImprovement": "pcpg.callbacks.StopWhenStuck(5)",
    "BaseCallback": "any function of a Progress, as observer=",
    "CheckpointCallback": "nothing: every round is saved in the run folder",
    "CallbackList": "observer=[one, another]",
}
"""Callbacks of Stable-Baselines3, and what does the same here."""


def __getattr__(name: str) -> object:
    raise missing("module 'pcpg.callbacks'", name, _ELSEWHERE, ["Evaluate", "StopWhenStuck"])


class Evaluated(NamedTuple):
    """The result of an evaluation."""

    round: int
    env_steps: int  # of all seeds together, in this process
    mean_return: dict[int, float]  # by seed


class Evaluate:
    """Play episodes on a separate environment every few rounds; `found` lists the results.

    Its episodes do not count among the run's steps and do not affect training.

    Args:
        env_fn: makes the Gymnasium environment on which policies are played.
        every: rounds between two evaluations.
        episodes: episodes of each seed's newest policy.
        until: stop training when every seed's mean return is at least this; None: never.
        greedy: take the likeliest action instead of sampling one.
    """

    def __init__(
        self,
        env_fn: Callable[[], "gymnasium.Env"],
        *,
        every: int = 1,
        episodes: int = 20,
        until: float | None = None,
        greedy: bool = False,
    ) -> None:
        if every < 1 or episodes < 1:
            raise ValueError(f"every and episodes must be at least 1, got {every} and {episodes}")
        self.env, self.every, self.episodes, self.until, self.greedy = env_fn(), every, episodes, until, greedy
        self.found: list[Evaluated] = []

    def __call__(self, progress: Progress) -> bool:
        """Evaluate if due; False: every seed has reached the target."""
        if progress.step == 0 or progress.step % self.every:
            return True
        means = {seed: self._mean_return(Policy(net, progress.env)) for seed, net in progress.policies.items()}
        self.found.append(Evaluated(progress.step, progress.env_steps, means))
        return self.until is None or min(means.values()) < self.until

    def _mean_return(self, policy: Policy) -> float:
        returns = [self._play(policy, seed) for seed in range(self.episodes)]
        return float(np.mean(returns))

    def _play(self, policy: Policy, seed: int) -> float:
        observation, _ = self.env.reset(seed=seed)
        earned = 0.0
        for _ in itertools.count():
            observation, reward, terminated, truncated, _ = self.env.step(policy.act(observation, greedy=self.greedy))
            earned += float(reward)
            if terminated or truncated:
                break
        return earned


class StopWhenStuck:
    """Stop training when no seed's return has improved for a number of rounds.

    Args:
        rounds: stop after this many rounds without a better return of any seed.
        by: minimum improvement that counts.
    """

    def __init__(self, rounds: int, *, by: float = 0.0) -> None:
        self.rounds, self.by = rounds, by
        self.best: dict[int, float] = {}
        self.since = 0

    def __call__(self, progress: Progress) -> bool:
        """False: nothing has improved for too long."""
        improved = False
        for record in progress.records:
            if record["phase"] == "explore" or record.get("return") is None:
                improved = True  # without the reward there is nothing to improve
            elif record["return"] > self.best.get(record["seed"], -np.inf) + self.by:
                self.best[record["seed"]], improved = record["return"], True
        self.since = 0 if improved else self.since + 1
        return self.since < self.rounds
