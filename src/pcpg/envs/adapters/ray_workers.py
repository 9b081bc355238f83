"""Environments as Ray actors on any node of a cluster; they play the episodes that processes of this machine would."""

import contextlib
from typing import Any

from pcpg.envs.adapters.cluster import connect, imported
from pcpg.envs.adapters.workers import START, Beat, Player, Stage, WorkerEnded, WorkerPlayers, said
from pcpg.envs.host import EnvironmentFailed

SHARE = 0.9
"""Of the cores of a cluster, for environments where there are more of these than cores."""


def ray_players(on: str, stage: Stage, count: int, timeout: float, steps: int) -> WorkerPlayers:
    """So many environments on a cluster."""
    connect(on)
    ray = imported()
    cores = min(1.0, round(SHARE * ray.cluster_resources().get("CPU", 1.0) / count, 4))
    actor = ray.remote(num_cpus=cores, max_restarts=0, scheduling_strategy="SPREAD")(Simulator)

    def hire(stage: Stage, number: int) -> "RayEnvWorker":
        return RayEnvWorker(ray, actor.remote(stage), timeout * (steps + 1))

    def ready(workers: list[RayEnvWorker], patience: float | None) -> list[RayEnvWorker]:
        by_ref = {worker.asked[0]: worker for worker in workers}
        found, _ = ray.wait(list(by_ref), num_returns=1, timeout=patience)
        return [by_ref[ref] for ref in found]

    return WorkerPlayers(stage, count, 0.0, hire, ready)


class Simulator:
    """The actor."""

    def __init__(self, stage: Stage) -> None:
        try:
            self.player, self.wrong = Player(stage), ""
        except Exception as error:
            self.wrong = said(error)

    def do(self, what: str, value: Any) -> tuple[bool, Any, dict[str, int]]:
        """Answer as the process of a worker does."""
        if self.wrong:
            return False, self.wrong, {}
        return (True, Beat(0), {}) if what == "start" else self.player.answer(what, value)

    def close(self) -> None:
        """Close the environment."""
        if not self.wrong:
            self.player.close()


class RayEnvWorker:
    """An environment on some node, and what it was asked."""

    def __init__(self, ray: Any, actor: Any, limit: float) -> None:
        self.ray, self.actor, self.limit, self.is_hung = ray, actor, limit, False
        self.asked: list[Any] = [actor.do.remote("start", None)]
        self._is_ready = False

    def send(self, what: str, value: Any) -> None:
        self.asked.append(self.actor.do.remote(what, value))

    def is_started(self) -> bool:
        return self._is_ready

    def receive(self, timeout: float) -> Any:
        del timeout  # a step cannot be watched from here: the episode has the time of all its steps
        try:
            limit = (self.limit or None) if self._is_ready else START
            is_fine, answer, where = self.ray.get(self.asked[0], timeout=limit)
        except self.ray.exceptions.GetTimeoutError as error:
            self.is_hung = True
            self.kill()
            raise EnvironmentFailed(f"it did not answer within {self.limit:g} s, and was ended") from error
        except self.ray.exceptions.RayActorError as error:
            raise WorkerEnded from error
        del self.asked[0]
        if not is_fine:
            raise EnvironmentFailed(answer, where)
        self._is_ready = True
        return answer

    def ask_to_close(self) -> None:
        with contextlib.suppress(Exception):  # it may be gone, and its cluster too
            self.asked.append(self.actor.close.remote())

    def end(self, patience: float) -> str:
        with contextlib.suppress(Exception):
            self.ray.get(self.asked[-1], timeout=patience)
        self.kill()
        return "its actor is gone"

    def kill(self) -> None:
        with contextlib.suppress(Exception):
            self.ray.kill(self.actor)
