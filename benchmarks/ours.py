"""Our side: environment steps per second of PPO and PC-PG on the lock, updates included, compilation apart.

PPO has the peers' network (two layers of 64 ReLU units each for policy and value), batch (2,048 steps, as whole
episodes), epochs and minibatch; PC-PG has its own settings. One seed a core.
"""

import os
import resource
import tempfile
from typing import Any

from settings import HORIZON, SETTINGS, Setting

BATCH = 2048
SECONDS = 10.0


def measure(cores: int) -> dict[str, Any]:
    """Rates by setting, those of PC-PG, compile times cold and warm, and the peak memory."""
    with tempfile.TemporaryDirectory() as cache:
        # A cache of our own: the first compilation is cold whatever ran on this machine before.
        os.environ["JAX_COMPILATION_CACHE_DIR"] = cache
        results: dict[str, Any] = {setting.name: _rate(_ppo(setting), cores) for setting in SETTINGS}
        results["pcpg"] = _rate(_pcpg(), cores)
    results["peak_memory_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    return results


def _ppo(setting: Setting) -> tuple[str, dict[str, Any]]:
    config = {
        "num_episodes": BATCH // (HORIZON + 1),
        "num_updates": 20,
        "num_epochs": setting.num_epochs,
        "minibatch_size": setting.batch_size,
        "shared_body": False,
    }
    return "ppo", {"ppo": config, "budget": 2**40, "visit_episodes": 1}


def _pcpg() -> tuple[str, dict[str, Any]]:
    return "pcpg", {"explore": {"max_policies": 64, "patience": 64}}  # never at the end of exploration


def _rate(what: tuple[str, dict[str, Any]], cores: int) -> dict[str, Any]:
    import jax
    from rounds import compile_seconds, rate_of, step

    from pcpg.algorithms import ALGORITHMS
    from pcpg.config import from_plain
    from pcpg.run_config import RunConfig
    from pcpg.training.compile_cache import enable_compile_cache
    from pcpg.training.loop import build_agent

    enable_compile_cache()
    algo, overrides = what
    agent_config = from_plain(ALGORITHMS[algo].settings, overrides, "config", ALGORITHMS[algo].presets.compiled)
    config = RunConfig("CombinationLock-v0", algo, agent_config, {"horizon": HORIZON}, seeds=cores).resolved()
    agent = build_agent(config)
    states = [agent.init(seed) for seed in config.seed_list]
    for _ in range(2):  # PC-PG's first round has no updates
        states = step(agent, states)
    cold = compile_seconds(agent)
    jax.clear_caches()
    again = build_agent(config)
    fresh = [again.init(seed) for seed in config.seed_list]
    for _ in range(2):
        fresh = step(again, fresh)
    warm = compile_seconds(again)
    compiling = {"compile_seconds_cold": round(cold, 2), "compile_seconds_warm": round(warm, 2)}
    return rate_of(agent, states, SECONDS) | compiling | {"seeds": cores}
