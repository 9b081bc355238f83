"""Parameters of Algorithms 1 and 2, checked before any work, and practical presets.

| symbol  | name              | meaning                                                                  |
|---------|-------------------|--------------------------------------------------------------------------|
| N       | N                 | episodes of the outer loop: policies added to the cover                  |
| T, eta  | T, eta            | iterations and learning rate of NPG                                      |
| M       | M                 | pairs drawn for each critic (sampled mode)                               |
| K       | K                 | pairs drawn for each covariance (sampled mode)                           |
| lambda  | lam               | ridge of Sigma_mix                                                       |
| beta    | beta              | threshold of phi' Sigma_mix^-1 phi: known below, unknown from it on      |
| W       | W                 | bound on the norm of the critic                                          |

For one-hot features phi' Sigma_mix^-1 phi = 1 / (mass + lambda), so beta = 1 / (m + lambda) says that a pair is known
when the occupancies of the cover's policies sum to more than m on it: `beta_from_mass`.
"""

from dataclasses import dataclass, fields
from typing import Literal

import numpy as np

from pcpg.theory.mdp import Array, check_gamma


def beta_from_mass(mass: float, lam: float = 1.0) -> float:
    """Return the threshold beta for which a one-hot pair becomes known above this total occupancy."""
    if not (mass > 0.0 and lam > 0.0):
        raise ValueError(f"known mass is {mass}, lambda is {lam}; both must be positive")
    return 1.0 / (mass + lam)


@dataclass(frozen=True)
class Settings:
    """Parameters of Algorithms 1 and 2; `M`, `K` and the episode counts are used in sampled mode only."""

    N: int = 30
    T: int = 20
    eta: float = 5.0
    beta: float = beta_from_mass(0.01)
    lam: float = 1.0
    W: float = np.inf
    M: int = 250
    K: int = 1000
    select_episodes: int = 20
    """episodes for each iterate of NPG, to choose the best by value under r + b"""
    final_episodes: int = 500
    """episodes for each policy of the cover, to choose the best by value under r"""
    critic: Literal["least_squares", "sgd"] = "least_squares"
    sgd_step: float = 0.5
    """step of the SGD critic; the lemma's own step is far too small for a run"""
    weights: Literal["uniform", "d_optimal"] = "uniform"
    """how policies of the cover are weighted in rho_mix (the paper's theory: uniform)"""

    def __post_init__(self) -> None:
        for name in ("N", "T", "M", "K", "select_episodes", "final_episodes"):
            if not (isinstance(getattr(self, name), int) and getattr(self, name) >= 1):
                raise ValueError(f"{name} is {getattr(self, name)}; expected a whole number of at least one")
        for name in ("eta", "beta", "lam", "W", "sgd_step"):
            value = getattr(self, name)
            if not value > 0.0:
                raise ValueError(f"{name} is {value}; expected a positive number")
        choices = {"critic": ("least_squares", "sgd"), "weights": ("uniform", "d_optimal")}
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is {getattr(self, name)!r}; expected one of {allowed}")

    def check(self, phi: Array, gamma: float) -> None:
        """Raise a ValueError if with these features nothing would ever be unknown, or W cannot be met by SGD."""
        check_gamma(gamma)
        largest = float(np.einsum("sad,sad->sa", phi, phi).max()) / self.lam
        if self.beta >= largest:
            raise ValueError(
                f"beta is {self.beta:.6g}, but phi' Sigma^-1 phi is at most max norm(phi)^2 / lambda = {largest:.6g}: "
                "every pair would count as known from the start; choose a smaller beta"
            )
        if self.critic == "sgd" and not np.isfinite(self.W):
            raise ValueError("the SGD critic projects onto norm(theta) <= W: W must be finite")

    def as_dict(self) -> dict[str, object]:
        """Return the parameters as a dictionary that JSON can hold (an infinite W as None)."""
        found = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: None if value == np.inf else value for name, value in found.items()}
