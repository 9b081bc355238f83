"""Engines by name: local, ray, ray://host:port."""

from pcpg.config import ConfigError
from pcpg.envs.adapters.places import LOCAL, check_place
from pcpg.sweeps.local import Engine, LocalEngine
from pcpg.sweeps.plan import Plan


def engine_of(name: str, plan: Plan, out: str, most: int = 0, storage: str = "auto") -> Engine:
    """The engine of this name, ready for the cells of a plan; one that cannot be reached is refused."""
    check_place(name)
    if most < 0:
        raise ConfigError(f"slots must be 0 (as many as fit) or more, got {most}")
    if name == LOCAL:
        return LocalEngine(plan.cores, plan.gpus, most)
    from pcpg.sweeps.on_ray import RayEngine

    return RayEngine(name, out, plan.cores, plan.gpus, most, storage)
