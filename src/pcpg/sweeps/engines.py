"""Engines by name: local, ray, ray://host:port."""

from pcpg.envs.adapters.places import LOCAL, check_place
from pcpg.sweeps.local import Engine, LocalEngine
from pcpg.sweeps.plan import Plan


def engine_of(name: str, plan: Plan, out: str, most: int = 0, storage: str = "auto") -> Engine:
    """The engine of this name, ready for the cells of a plan; one that cannot be reached is refused."""
    check_place(name)
    if name == LOCAL:
        return LocalEngine(plan.cores, plan.gpus, most)
    from pcpg.sweeps.on_ray import RayEngine

    return RayEngine(name, out, plan.cores, plan.gpus, most, storage)
