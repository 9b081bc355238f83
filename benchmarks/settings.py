"""What is compared: PPO updates of the same sizes on the lock of the same horizon, ours and the peers'."""

from typing import NamedTuple

HORIZON = 10


class Setting(NamedTuple):
    """One size of update."""

    batch_size: int
    num_epochs: int

    @property
    def name(self) -> str:
        """How rows of the results are keyed."""
        return f"batch {self.batch_size}, {self.num_epochs} epochs"


SETTINGS = (Setting(128, 4), Setting(64, 10), Setting(512, 10))


class MountainCarSetting(NamedTuple):
    """One size of update on MountainCarContinuous."""

    num_envs: int
    num_steps: int
    num_epochs: int = 10
    num_minibatches: int = 32

    @property
    def name(self) -> str:
        """How rows of the results are keyed."""
        return f"{self.num_envs} x {self.num_steps} steps"


MOUNTAIN_CAR = (MountainCarSetting(8, 2048), MountainCarSetting(128, 128))

HOST_ENV = "MountainCarContinuous-v0"
HOST_ENVS, HOST_STEPS = 8, 256
HOST = (Setting(512, 10), Setting(64, 10))
"""Gymnasium's own environment, stepped on the host: environments, steps of each an update, and sizes of update."""
