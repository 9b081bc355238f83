"""Reading a run folder never creates an external environment: the folder describes it.

Readers use `environment_of`. Code that plays on the environment itself, to resume or evaluate, calls `check_trust`
first: if only the folder names a module, importing it requires trust.
"""

import contextlib
import dataclasses

from pcpg.envs.adapters.names import Untrusted, is_adapted, is_own_function, knows_function, outside_module
from pcpg.envs.protocol import Environment
from pcpg.envs.recorded import describe, recorded
from pcpg.envs.registry import make
from pcpg.run_config import RunConfig
from pcpg.runs.disk import exists
from pcpg.runs.documents import read_json
from pcpg.runs.errors import DamagedFile
from pcpg.runs.folder import ENVIRONMENT, RunFolder


def check_trust(folder: RunFolder, trust: bool) -> None:
    """Refuse an environment from a module that the folder names, unless it is trusted; the module is named."""
    folder.check_entries()
    module = outside_module(folder.config["env"], folder.config.get("env_options", {}))
    if module is not None and not trust:
        raise Untrusted(
            f"{folder.path} was trained on {folder.config['env']!r}: creating that environment would import and run "
            f"{module}. If you trust this folder, add --trust (in Python, trust=True)"
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
            f"{folder.path} was written by an older version and does not describe its environment "
            f"{folder.config['env']!r}: `pcpg resume` (with --trust if it asks) adds the description"
        )
    try:
        return recorded(folder.config["env"], folder.read_json(ENVIRONMENT))
    except ValueError as error:
        raise DamagedFile(path, str(error)) from error


def record_environment(folder: RunFolder, config: RunConfig, env: Environment) -> RunFolder:
    """Write down what readers need to know of the environment, once; the folder, which no longer has an older seal."""
    manifest = folder.manifest
    if exists(folder.path / ENVIRONMENT):
        if manifest is not None and ENVIRONMENT in manifest.files:
            return folder
        with contextlib.suppress(DamagedFile):
            read_json(folder.path / ENVIRONMENT)
            return folder
    folder.write_json(ENVIRONMENT, describe(config.env, env, config.seed_list))
    if manifest is None:
        return folder
    files = {name: seal for name, seal in manifest.files.items() if name != ENVIRONMENT}
    return dataclasses.replace(folder, manifest=manifest._replace(files=files))
