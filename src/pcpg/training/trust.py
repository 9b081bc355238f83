"""Reading a run folder never makes an outside environment: what is known of it lies in the folder.

`environment_of` is what readers use. Whoever is to play on the environment itself, to go on training or to evaluate,
asks `check_trust` first: an environment from a module that only the folder names is made for those who trust it.
"""

from pcpg.envs.adapters.names import Untrusted, is_adapted, is_own_function, knows_function, outside_module
from pcpg.envs.protocol import Environment
from pcpg.envs.recorded import describe, recorded
from pcpg.envs.registry import make
from pcpg.run_config import RunConfig
from pcpg.runs.disk import exists
from pcpg.runs.errors import DamagedFile
from pcpg.runs.folder import ENVIRONMENT, RunFolder


def check_trust(folder: RunFolder, trust: bool) -> None:
    """Refuse an environment from a module that the folder names, unless it is trusted; the module is named."""
    folder.check_entries()
    module = outside_module(folder.config["env"], folder.config.get("env_options", {}))
    if module is not None and not trust:
        raise Untrusted(
            f"{folder.path} was trained on {folder.config['env']!r}: making that environment would import {module}, "
            "and with it run code. If you know where this folder comes from, add --trust (in Python trust=True)"
        )


def environment_of(folder: RunFolder) -> Environment:
    """The environment of a run, for its spaces and what can be said of it: the library's own, or as it was recorded."""
    folder.check_entries()
    env_id, options = folder.config["env"], folder.config["env_options"]
    is_given = is_own_function(env_id) and knows_function(env_id) and not exists(folder.path / ENVIRONMENT)
    return make(env_id, **options) if not is_adapted(env_id) or is_given else recorded_environment(folder)


def recorded_environment(folder: RunFolder) -> Environment:
    """The environment as the folder describes it."""
    path = folder.path / ENVIRONMENT
    if not exists(path) and folder.seal(ENVIRONMENT) is None:
        raise Untrusted(
            f"{folder.path} says nothing of its environment {folder.config['env']!r}, since an older version of the "
            "library wrote it, and nothing is imported for reading: `pcpg resume` (with --trust where it asks) adds it"
        )
    try:
        return recorded(folder.config["env"], folder.read_json(ENVIRONMENT))
    except ValueError as error:
        raise DamagedFile(path, str(error)) from error


def record_environment(folder: RunFolder, config: RunConfig, env: Environment) -> None:
    """Write down what readers need to know of the environment, once."""
    if not exists(folder.path / ENVIRONMENT):
        folder.write_json(ENVIRONMENT, describe(config.env, env, config.seed_list))
