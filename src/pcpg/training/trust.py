"""Reading a run folder never creates an external environment: the folder describes it.

Readers use `environment_of`. Code that plays on the environment itself, to resume or evaluate, calls `check_trust`
first: if only the folder names a module, importing it requires trust. Runs created by this user need none while the
module is unchanged: a note in the folder, which nobody else can forge, proves it.
"""

import contextlib
import dataclasses
import hashlib
import hmac
import json
import os
import secrets
from pathlib import Path

from pcpg.envs.adapters.names import (
    Untrusted,
    is_adapted,
    is_own_function,
    knows_function,
    outside_module,
    sources_of,
)
from pcpg.envs.protocol import Environment
from pcpg.envs.recorded import describe, recorded
from pcpg.envs.registry import make
from pcpg.run_config import RunConfig
from pcpg.runs.disk import exists, make_folder, read_file, write_file
from pcpg.runs.documents import read_json
from pcpg.runs.errors import DamagedFile, RunError
from pcpg.runs.folder import ENVIRONMENT, MADE_HERE, RunFolder


def check_trust(folder: RunFolder, trust: bool) -> None:
    """Refuse, unless trusted, an environment from a module that the folder names; the error names the module."""
    folder.check_entries()
    module = None if trust else asks_for(folder)
    if module is not None and exists(folder.path / MADE_HERE):
        raise Untrusted(
            f"{module} has changed since {folder.path} was made, or another user made it. "
            "To import the module anyway, add --trust (in Python, trust=True)"
        )
    if module is not None:
        raise Untrusted(
            f"{folder.path} was trained on {folder.config['env']!r}: creating that environment would import and run "
            f"{module}. If you trust this folder, add --trust (in Python, trust=True)"
        )


def asks_for(folder: RunFolder) -> str | None:
    """What this run needs trust for before it can play, or None."""
    module = outside_module(folder.config["env"], folder.config.get("env_options", {}))
    return None if module is None or made_here(folder) else module


def vouched(folder: RunFolder) -> RunFolder:
    """Note in the folder that this user created the run: while its module is unchanged, it needs no trust here."""
    with contextlib.suppress(RunError, OSError):  # without the note, trust is required
        if is_adapted(folder.config["env"]) and (note := _note(folder, _secret(make=True))):
            write_file(folder.path / MADE_HERE, note)
    return folder


def made_here(folder: RunFolder) -> bool:
    """Whether the note in a folder is this user's, and valid for this environment and the current module."""
    with contextlib.suppress(RunError, OSError):
        note = _note(folder, _secret(make=False))
        return bool(note) and hmac.compare_digest(read_file(folder.path / MADE_HERE, most=1000), note)
    return False


def _note(folder: RunFolder, secret: bytes) -> bytes:
    """A code that only this user can write; empty if the module is unknown. Nothing else in the folder is trusted."""
    env, options = folder.config["env"], folder.config.get("env_options", {})
    files = sources_of(env)
    if len(files) > 1000 or is_own_function(env) or (not files and outside_module(env, options) is not None):
        return b""
    hashes = {str(path): hashlib.sha256(read_file(path)).hexdigest() for path in files}
    what = [env, options, hashes]
    return hmac.digest(secret, json.dumps(what, sort_keys=True).encode(), "sha256").hex().encode()


def _secret(*, make: bool) -> bytes:
    """Random bytes that only this user can read, created at first use."""
    path = Path(os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")) / "pcpg" / "made-here.key"
    if not path.is_absolute():
        raise RunError("this user has no home")  # as in some containers; the folder could be anybody's
    if make and not exists(path):
        make_folder(path.parent)
        path.parent.chmod(0o700)
        write_file(path, secrets.token_bytes(32))
        path.chmod(0o600)
    return read_file(path, most=1000)


def environment_of(folder: RunFolder) -> Environment:
    """The environment of a run, for its spaces and facts: the library's own, or as recorded in the folder."""
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
    """Record once what readers need to know of the environment; returns the folder without its older seal."""
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
