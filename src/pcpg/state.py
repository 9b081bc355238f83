"""The state of one seed between two rounds, all of it on the host."""

from typing import Any, NamedTuple

import numpy as np

from pcpg.cover.cover import Cover
from pcpg.learning.e3b import E3B
from pcpg.learning.rnd import RND
from pcpg.learning.update import Adam
from pcpg.policies.networks import ActorCritic

EXPLORE, EXPLOIT, DONE = 0, 1, 2
PHASES = ("explore", "exploit", "done")


class SeedState(NamedTuple):
    """Everything that moves in the training of one seed."""

    seed: np.ndarray  # uint32
    round: np.ndarray  # int32, rounds done
    phase: np.ndarray  # int32, index into PHASES
    phase_round: np.ndarray  # int32, rounds done in this phase
    env_steps: np.ndarray  # int64: roll-ins, covariances and selection all counted
    policy: ActorCritic
    adam: Adam
    rnd: RND | E3B | None  # networks that are trained beside the policy and pay for what is new to them
    cover: Cover | None
    last_return: np.ndarray  # float64: mean return of `policy` over its counted episodes
    best_policy: ActorCritic  # by mean return over counted episodes
    best_return: np.ndarray  # float64, -inf before the first evaluation
    log_dets: np.ndarray  # [capacity] float64: log det of the cover's design, by number of members - 1
    seen: np.ndarray  # bool [cells]: visited by a policy of some round so far; for reports alone

    @classmethod
    def start(
        cls,
        seed: int,
        policy: ActorCritic,
        adam: Adam,
        *,
        num_cells: int,
        cover: Cover | None = None,
        rnd: RND | E3B | None = None,
    ) -> "SeedState":
        """A seed before its first round."""
        return cls(
            seed=np.asarray(seed, np.uint32),
            round=int32(0),
            phase=int32(EXPLORE),
            phase_round=int32(0),
            env_steps=np.asarray(0, np.int64),
            policy=policy,
            adam=adam,
            rnd=rnd,
            cover=cover,
            last_return=np.asarray(-np.inf),
            best_policy=policy,
            best_return=np.asarray(-np.inf),
            log_dets=np.zeros(0 if cover is None else cover.capacity),
            seen=np.zeros(num_cells, bool),
        )


def int32(value: int) -> np.ndarray:
    """A count as the programs take it."""
    return np.asarray(value, np.int32)


def weights_rng(seed: int, stream: int) -> np.random.Generator:
    """Draws initial weights: a stream apart from that of `env.instance(seed)`, which is `default_rng(seed)`."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(stream,)))


class Member(NamedTuple):
    """What is kept of a policy that entered the cover; never changes again."""

    policy: ActorCritic
    sigma: np.ndarray  # [d, d]
    cells: np.ndarray  # visits by cell, over the episodes of its covariance
    returns: np.ndarray  # [episodes]


class Report(NamedTuple):
    """What one round of one seed has to say."""

    metrics: dict[str, Any]  # reproducible
    member: Any | None  # what is kept of the policy that entered the cover in this round, such as a `Member`


class NonFinite(RuntimeError):
    """A number that is not finite appeared in training."""
