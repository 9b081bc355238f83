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
