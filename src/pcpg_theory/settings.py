"""Parameters of Algorithms 1 and 2, checked before any work, and practical presets.

| symbol  | name              | meaning                                                                  |
|---------|-------------------|--------------------------------------------------------------------------|
| N       | N                 | rounds after the first one: policies added to the cover                  |
| T, eta  | T, eta            | iterations and learning rate of NPG                                      |
| M       | M                 | pairs drawn for each critic (sampled mode)                               |
| K       | K                 | pairs drawn for each covariance (sampled mode)                           |
| lambda  | ridge             | ridge of Sigma_mix                                                       |
| beta    | beta              | threshold of phi' Sigma_mix^-1 phi: known below, unknown from it on      |
| W       | W                 | bound on the norm of the critic                                          |

For one-hot features phi' Sigma_mix^-1 phi = 1 / (mass + lambda), so beta = 1 / (m + lambda) says that a pair is known
when the occupancies of the cover's policies sum to more than m on it: `beta_from_mass`.
"""

from dataclasses import dataclass, fields
from typing import Literal

import numpy as np

from pcpg_theory.mdp import Array, check_gamma


def beta_from_mass(mass: float, ridge: float = 1.0) -> float:
    """The threshold beta for which a one-hot pair becomes known above this total occupancy."""
    if not (mass > 0.0 and ridge > 0.0):
        raise ValueError(f"known mass and ridge must be positive, got {mass} and {ridge}")
    return 1.0 / (mass + ridge)


@dataclass(frozen=True)
class Settings:
    """Parameters of Algorithms 1 and 2; `M`, `K` and the episode counts are used in sampled mode only."""

    N: int = 30
    T: int = 20
    eta: float = 5.0
    beta: float = beta_from_mass(0.01)
    ridge: float = 1.0
    W: float = np.inf
    M: int = 250
    K: int = 1000
    select_episodes: int = 20
    """episodes for each iterate of NPG, to choose the best by value under r + b"""
    final_episodes: int = 500
    """episodes for each policy of the cover, to choose the best by value under r"""
    estimate: Literal["geometric", "discounted"] = "geometric"
    """of Q: the paper's sum of rewards up to a geometric time, or a discounted sum cut where gamma^t <= `tail`"""
    tail: float = 0.01
    stop: float | None = None
    """end before N rounds when the newest policy meets unknown pairs with at most this probability, by its visits"""
    patience: int = 1
    """in how many rounds in a row"""
    critic: Literal["least_squares", "sgd"] = "least_squares"
    sgd_step: float = 0.5
    """step of the SGD critic; the lemma's own step is far too small for a run"""
    weights: Literal["uniform", "d-optimal"] = "uniform"
    """how policies of the cover are weighted in rho_mix (the paper's theory: uniform)"""

    def __post_init__(self) -> None:
        if self.weights == "d_optimal":  # the old spelling
            object.__setattr__(self, "weights", "d-optimal")
        for name in ("N", "T", "M", "K", "select_episodes", "final_episodes", "patience"):
            if not (isinstance(getattr(self, name), int) and getattr(self, name) >= 1):
                raise ValueError(f"{name} must be a whole number of at least one, got {getattr(self, name)}")
        for name in ("eta", "beta", "ridge", "W", "sgd_step"):
            value = getattr(self, name)
            if not value > 0.0:
                raise ValueError(f"{name} must be positive, got {value}")
        if not 0.0 < self.tail < 1.0:
            raise ValueError(f"tail must be a share above 0 and below 1, got {self.tail}")
        if self.stop is not None and not 0.0 <= self.stop < 1.0:
            raise ValueError(f"stop must be a probability below 1, or None, got {self.stop}")
        choices = {
            "critic": ("least_squares", "sgd"),
            "weights": ("uniform", "d-optimal"),
            "estimate": ("geometric", "discounted"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")

    def check(self, phi: Array, gamma: float) -> None:
        """Raise a ValueError if with these features nothing would ever be unknown, or W cannot be met by SGD."""
        check_gamma(gamma)
        largest = float(np.einsum("sad,sad->sa", phi, phi).max()) / self.ridge
        if self.beta >= largest:
            raise ValueError(
                f"beta must be below max norm(phi)^2 / ridge = {largest:.6g}, got {self.beta:.6g}: phi' Sigma^-1 phi "
                "is never larger, so every pair would count as known from the start; choose a smaller beta"
            )
        if self.critic == "sgd" and not np.isfinite(self.W):
            raise ValueError("W must be finite for the SGD critic, which projects onto norm(theta) <= W, got inf")

    def as_dict(self) -> dict[str, object]:
        """The parameters as a dictionary that JSON can hold (an infinite W as None)."""
        found = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: None if value == np.inf else value for name, value in found.items()}
