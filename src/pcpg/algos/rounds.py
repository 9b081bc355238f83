"""The end of a round of any algorithm: the updated ledger, common metrics, and checks; the weights of its cover."""

import numpy as np

from pcpg.algorithm1 import Explored
from pcpg.algorithms import Arrays
from pcpg.config import Json
from pcpg.engine.play import Visits
from pcpg.envs.protocol import Environment
from pcpg.state import PHASES, NonFinite, Own, SeedState
from pcpg.trees import scalar


def after_round(env: Environment, state: SeedState[Own], done: Explored) -> tuple[SeedState[Own], Json]:
    """The state with the round counted and its best policy kept, and the metrics that every round has."""
    visits, output, ledger = done.seen, done.improved, state.ledger
    reachable = env.reachable_cells(env.instance(state.seed))  # the grid cells of which `coverage` is a share
    mean_return = float(np.mean(visits.returns, dtype=np.float64))
    env_steps = ledger.env_steps + int(visits.env_steps) + (0 if output is None else int(output.env_steps))
    seen = ledger.seen | (np.asarray(visits.cells) > 0)
    metrics: Json = {
        "seed": state.seed,
        "round": state.round,
        "phase": PHASES[state.phase],
        "env_steps": int(env_steps),
        "return": mean_return,
    }
    if np.isfinite(visits.returns).any():
        most = visits.returns.max() if visits.most is None else visits.most
        metrics["best_episode"] = float(most)
        if state.round == 0:
            metrics["usual_return"] = usual_return(visits.returns)
    if reachable.any():
        metrics["coverage"] = float(np.mean(seen[reachable]))
    if output is not None:
        metrics |= {f"train/{name}": value for name, value in output.metrics.items()}
    state = state._replace(policy=done.policy)
    if mean_return > ledger.best_return:
        state = state._replace(best_policy=done.policy).noted(best_return=mean_return)
    state = state.noted(
        seen=seen,
        last_return=mean_return,
        env_steps=env_steps,
        round=state.round + 1,
        phase_round=int(ledger.phase_round) + 1,
    )
    return state, metrics


OFTEN = 0.1
"""A return more common than this share may be that of episodes without reward."""


def usual_return(returns: np.ndarray) -> float:
    """The return of a first episode that met no reward: the largest common one of at most 0, else the smallest common
    one; NaN if none is common."""
    values, counts = np.unique(np.asarray(returns, np.float64).round(9), return_counts=True)
    common = values[counts >= OFTEN * len(returns)]
    if not len(common):
        return np.nan
    return float(common[common <= 0].max() if common.min() <= 0 else common.min())


def plain(metrics: Json) -> Json:
    """Metrics as JSON values; a mean over nothing (no episode of that kind) is None."""
    out: Json = {}
    for name, value in metrics.items():
        value = value if isinstance(value, str | int) else float(value)
        out[name] = None if isinstance(value, float) and not np.isfinite(value) else value
    return out


def check_visits(state: SeedState[object], visits: Visits) -> None:
    """Raise if the visits of a policy hold a number that is not finite."""
    if not bool(visits.finite):
        raise NonFinite(
            f"seed {state.seed}: the visits of the newest policy contain a non-finite reward, observation or "
            f"covariance in round {state.round}, after {int(state.ledger.env_steps):,} environment steps; "
            "the last good checkpoint is kept"
        )


def cover_weights(arrays: Arrays) -> np.ndarray:
    """The weights of a cover's members in a checkpoint; that of a member in earlier features is 0."""
    return np.asarray(arrays[".cover.weights"][: scalar(arrays[".cover.size"])], float) if arrays else np.zeros(0)
