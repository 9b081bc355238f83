"""What every agent does in a round: improve and visit with all numbers checked, count, keep the best."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pcpg.envs.protocol import Environment
from pcpg.policies.networks import ActorCritic
from pcpg.practice.ppo import WATCHED, CoverArrays, ImproveInputs, ImproveOutputs, Task
from pcpg.practice.visit import VisitInputs, Visits
from pcpg.state import PHASES, NonFinite, SeedState, int32


def round_inputs(env: Environment, state: SeedState, task: Task, cover: CoverArrays | None = None) -> ImproveInputs:
    """What a round of a seed depends on: its task, and the cover through which it is rolled in."""
    params = env.instance(int(state.seed))
    return ImproveInputs(state.seed, state.round, params, state.policy, state.adam, task, cover, state.rnd)


def improve_all(
    improve: Callable[[list[ImproveInputs]], list[ImproveOutputs]],
    states: Sequence[SeedState],
    inputs: list[ImproveInputs],
) -> list[ImproveOutputs]:
    """The policy of each seed after a round of updates, or an error if a number was not finite."""
    outputs = improve(inputs)
    for state, output in zip(states, outputs, strict=True):
        check_updates(state, output)
    return outputs


def visit_all(
    visit: Callable[[list[VisitInputs]], list[Visits]],
    env: Environment,
    states: Sequence[SeedState],
    policies: Sequence[ActorCritic],
    phi: Any | None = None,
) -> list[Visits]:
    """What the policy of each seed saw and earned, or an error if a number was not finite."""
    visits = visit(
        [
            VisitInputs(state.seed, state.round, env.instance(int(state.seed)), policy, phi)
            for state, policy in zip(states, policies, strict=True)
        ]
    )
    for state, seen in zip(states, visits, strict=True):
        check_visits(state, seen)
    return visits


def check_updates(state: SeedState, outputs: ImproveOutputs) -> None:
    """Raise if a reward, observation, bonus or loss of the round was not finite."""
    finite = np.asarray(outputs.finite)
    if finite.all():
        return
    update = int(np.argmin(finite.all(axis=1)))
    what = WATCHED[int(np.argmin(finite[update]))]
    article = "an" if what == "observation" else "a"
    raise NonFinite(
        f"seed {int(state.seed)}: {article} {what} that is not finite appeared in update {update} of round "
        f"{int(state.round)}, after {int(state.env_steps):,} environment steps; the last good checkpoint stays"
    )


def check_visits(state: SeedState, visits: Visits) -> None:
    """Raise if the visits of a policy hold a number that is not finite."""
    if not bool(visits.finite):
        raise NonFinite(
            f"seed {int(state.seed)}: the visits of the newest policy hold a reward, observation or covariance "
            f"that is not finite, in round {int(state.round)}, after {int(state.env_steps):,} environment steps; "
            "the last good checkpoint stays"
        )


def plain(metrics: dict[str, Any]) -> dict[str, Any]:
    """Metrics as JSON values; a mean over nothing (no episode of that kind) is None."""
    out: dict[str, Any] = {}
    for name, value in metrics.items():
        value = value if isinstance(value, str | int) else float(value)
        out[name] = None if isinstance(value, float) and not np.isfinite(value) else value
    return out


def after_round(
    state: SeedState, visits: Visits, output: ImproveOutputs | None, env: Environment
) -> tuple[SeedState, dict[str, Any]]:
    """The state with the round counted and its best policy kept, and the metrics that every round has."""
    reachable = env.reachable_cells(env.instance(int(state.seed)))  # the cells of which `coverage` is a share
    mean_return = float(np.mean(visits.returns, dtype=np.float64))
    env_steps = state.env_steps + int(visits.env_steps) + (0 if output is None else int(output.env_steps))
    metrics = {
        "seed": int(state.seed),
        "round": int(state.round),
        "phase": PHASES[int(state.phase)],
        "env_steps": int(env_steps),
        "return": mean_return,
    }
    seen = state.seen | (np.asarray(visits.cells) > 0)
    if reachable.any():
        metrics["coverage"] = float(np.mean(seen[reachable]))
    if output is not None:
        metrics |= {f"train/{name}": value for name, value in output.metrics.items()}
    if mean_return > state.best_return:
        state = state._replace(best_policy=state.policy, best_return=np.asarray(mean_return))
    state = state._replace(
        seen=seen,
        last_return=np.asarray(mean_return),
        env_steps=np.asarray(env_steps, np.int64),
        round=int32(int(state.round) + 1),
        phase_round=int32(int(state.phase_round) + 1),
    )
    return state, metrics
