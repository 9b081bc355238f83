"""Environments: the protocol, the built-in environments, and their names and checks.

Gymnasium is not imported here; `pcpg.envs.gymnasium_bridge` connects to it.
"""

from pcpg.envs.chain import Chain
from pcpg.envs.contract import ContractError, check_environment
from pcpg.envs.deep_sea import DeepSea
from pcpg.envs.lock import CombinationLock
from pcpg.envs.options import InvalidOption
from pcpg.envs.protocol import CellGrid, Environment, Step, Tabular, TabularModel
from pcpg.envs.registry import EnvironmentSpec, UnknownEnvironment, make, register, spec
from pcpg.envs.spaces import Box, Discrete, Image, MultiDiscrete, Space, flat_size

__all__ = [
    "Box",
    "CellGrid",
    "Chain",
    "CombinationLock",
    "ContractError",
    "DeepSea",
    "Discrete",
    "Environment",
    "EnvironmentSpec",
    "Image",
    "InvalidOption",
    "MultiDiscrete",
    "Space",
    "Step",
    "Tabular",
    "TabularModel",
    "UnknownEnvironment",
    "check_environment",
    "flat_size",
    "make",
    "register",
    "spec",
]
