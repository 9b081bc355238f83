"""Engines by name: local, ray, ray://host:port."""

from pcpg.config import ConfigError
from pcpg.sweeps.local import Engine, LocalEngine
from pcpg.sweeps.plan import Plan

NAMES = "local, ray, or the address of a cluster as in ray://host:10001"


def check_name(name: str) -> None:
    """Refuse what names no engine."""
    if name not in ("local", "ray") and not name.startswith("ray://"):
        raise ConfigError(f"--on must be {NAMES}, got {name!r}")


def engine_of(name: str, plan: Plan, out: str, most: int = 0, storage: str = "auto") -> Engine:
    """The engine of this name, ready for the cells of a plan; one that cannot be reached is refused."""
    check_name(name)
    if name == "local":
        return LocalEngine(plan.cores, plan.gpus, most)
    from pcpg.sweeps.on_ray import RayEngine

    return RayEngine(name, out, plan.cores, plan.gpus, most, storage)
