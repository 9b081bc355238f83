"""What a run is about to do and what that will cost, in two or three lines before it starts."""

from pathlib import Path
from typing import Any

from pcpg.config import BaselineConfig, PCPGConfig, ReplayConfig
from pcpg.envs.adapters.names import is_adapted
from pcpg.practice.budget import EXPLORE_SHARE, UNLIMITED, most_steps, steps_of_round
from pcpg.run_config import RunConfig
from pcpg.training.display import duration


def plan(config: RunConfig, path: Path) -> list[str]:
    """The environment as it is seen, where it is somebody else's; the schedule and its cost; where all settings are."""
    env, lines = config.make_env(), []
    if is_adapted(config.env):
        given = {name: value for name, value in config.env_options.items() if name not in ("num_envs", "workers")}
        options = ", ".join(f"{name} {value}" for name, value in given.items() if value or name != "max_steps")
        spaces = f"observations {env.observation_space}, actions {env.action_space}"
        said = f" ({options})" if options else ""
        lines.append(f"{config.env}{said}: {spaces}, at most {env.max_steps} steps per episode")
    lines += [*config.looked["saw"], config.looked["chose"]] if config.looked else []
    return [*lines, f"plan: {schedule(config)}; {cost(config)}; all settings: {path / 'config.json'}"]


def schedule(config: RunConfig) -> str:
    """The rounds of a run, in words."""
    agent: Any = config.agent
    if isinstance(agent, ReplayConfig):
        return f"rounds of {agent.explore.num_episodes} episodes until little is new, then the task from the data"
    update = f"{agent.ppo.num_updates} updates of {agent.ppo.num_episodes} episodes"
    if isinstance(agent, BaselineConfig):
        return f"rounds of {update}"
    assert isinstance(agent, PCPGConfig)
    found = f"features {config.features}, up to {agent.explore.max_policies} policies of {update}"
    if agent.exploit.num_rounds == 0:
        return f"{found}, no exploitation"
    if config.limits.steps or config.limits.seconds:
        return f"{found} in up to {EXPLORE_SHARE:.0%} of the budget, the rest for the task"
    return f"{found}, then {agent.exploit.num_rounds} rounds for the task"


def cost(config: RunConfig) -> str:
    """What a run will cost, as far as that is known before its first round."""
    env, agent, limits = config.make_env(), config.agent, config.limits
    most = limits.steps or most_steps(agent, env)
    each = f" (a round: up to {short(steps_of_round(agent, env))})" if not isinstance(agent, ReplayConfig) else ""
    words = "about" if limits.steps or isinstance(agent, BaselineConfig) else "at most"
    parts = [f"{words} {short(most)} steps per seed{each}"] if most < UNLIMITED else []
    if limits.seconds:
        parts.append(f"{duration(limits.seconds)} in all")
    if limits.until is not None:
        parts.append(f"a seed ends at a return of {limits.until:g}")
    return ", ".join(parts)


def short(number: int) -> str:
    """A number of steps as people write it: 950, 12k, 2.5M."""
    for unit, scale in (("B", 10**9), ("M", 10**6), ("k", 10**3)):
        if number >= scale:
            value = number / scale
            return f"{value:.1f}".rstrip("0").rstrip(".") + unit if value < 100 else f"{value:.0f}{unit}"
    return str(number)
