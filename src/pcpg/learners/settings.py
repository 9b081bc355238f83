"""The settings of PPO."""

import dataclasses

from pcpg.config import Json, positive, within


@dataclasses.dataclass(frozen=True)
class PPOConfig:
    """The learner inside every agent: what one call of `improve` does."""

    num_updates: int = 40
    """Policy updates per round; PC-PG adds a policy to its cover after each round of exploration."""
    num_episodes: int = 0
    """Episodes gathered per update; 0: 512 per 16 steps of an episode, rounded up."""
    num_epochs: int = 4
    """Passes over the samples of each update."""
    minibatch_size: int = 0
    """Samples per gradient step; 0: 64 per 16 steps of an episode, rounded up."""
    learning_rate: float = 1e-3
    """Adam learning rate."""
    gamma: float = 0.99
    """Discount factor."""
    gae_lambda: float = 0.95
    """Lambda of generalised advantage estimation."""
    clip_eps: float = 0.2
    """PPO clips the probability ratio to 1 +/- this."""
    entropy_coef: float = 0.05
    """Weight of the entropy in the loss."""
    value_coef: float = 0.5
    """Weight of the value loss."""
    max_grad_norm: float = 5.0
    """Gradients are clipped to this Euclidean norm over all parameters."""
    hidden: tuple[int, ...] = (64, 64)
    """Units of each fully connected layer."""
    shared_body: bool = True
    """Share one body between policy and value, as in the released code."""
    normalise_observations: bool = False
    """Normalise observations by their running mean and deviation; each policy stores its own."""
    normalise_rewards: bool = False
    """Divide rewards by the running deviation of discounted returns; the bonus is scaled separately."""
    square_code: int = 0
    """Learned numbers for each square of 8 x 8 pixels of an image of 32 x 32 or more; 0: convolutions instead."""
    body: str = ""
    """Name of a network passed in Python, in place of the hidden layers."""

    def __post_init__(self) -> None:
        positive(self, "num_updates", "num_epochs", "learning_rate", "clip_eps", "max_grad_norm")
        for name in ("num_episodes", "minibatch_size"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 (by the formula) or more, got {getattr(self, name)}")
        if self.square_code < 0:
            raise ValueError(f"square_code must be 0 (convolutions) or more, got {self.square_code}")
        within(self, "gamma", 0.0, 1.0)
        within(self, "gae_lambda", 0.0, 1.0)
        if not self.hidden or min(self.hidden) < 1:
            raise ValueError(f"hidden must name a layer or more, each of at least 1 unit, got {self.hidden}")

    @property
    def network(self) -> Json:
        """What the shape of a policy depends on, as `init_actor_critic` takes it."""
        names = ("hidden", "shared_body", "normalise_observations", "normalise_rewards", "square_code", "body")
        return {name: getattr(self, name) for name in names}
