"""The feature map of a run, saved with it: drawn once and the same from then on, on any machine."""

import dataclasses
import hashlib

from pcpg.features.base import FeatureMap
from pcpg.practice.build import Agent
from pcpg.practice.pcpg import PCPG
from pcpg.runs.arrays import encode_arrays, flatten, read_arrays, unflatten, write_arrays
from pcpg.runs.errors import DamagedFile, DoesNotFit
from pcpg.runs.folder import RunFolder


def with_saved_features(folder: RunFolder, agent: Agent) -> tuple[Agent, str | None]:
    """The agent with the feature map that lies in the folder, put there at the first start, and the file's sha256.

    An agent without a feature map, or with one that holds no arrays, has no such file.
    """
    if not isinstance(agent, PCPG) or not (arrays := flatten(agent.phi)):
        return agent, None
    if not folder.features.exists():
        return agent, write_arrays(folder.features, arrays)
    phi = read_features(folder, agent.phi)
    data = encode_arrays(flatten(phi))
    if data != encode_arrays(arrays):
        agent = dataclasses.replace(agent, phi=phi)
    return agent, hashlib.sha256(data).hexdigest()


def read_features(folder: RunFolder, drawn: FeatureMap) -> FeatureMap:
    """The feature map as it was saved; `drawn` is one of the same shape, and the answer where none was saved."""
    if not folder.features.exists():
        return drawn
    try:
        return unflatten(drawn, read_arrays(folder.features))
    except DoesNotFit as error:
        raise DamagedFile(folder.features, f"not the feature map of this run: {error}") from error


def check_features(folder: RunFolder, sha256: str | None, expected: str | None) -> None:
    """Raise if the feature map is not the one with which a checkpoint was made; `expected` is None in older ones."""
    if expected is not None and sha256 != expected:
        raise DamagedFile(folder.features, f"altered: its sha256 is {sha256}, the checkpoint expects {expected}")
