"""Feature maps phi(s, a), by name: `make_features("fourier", env, seed, num_features=32)`."""

import inspect
from collections.abc import Callable, Collection

import numpy as np

from pcpg.config import nearest
from pcpg.envs.options import InvalidOption, load
from pcpg.envs.protocol import Environment
from pcpg.features.base import FeatureMap, is_own_features, own_features

# A new feature map is a file and a line here.
HOMES = {
    "identity": "pcpg.features.base:identity",
    "one-hot": "pcpg.features.tabular:one_hot",
    "aggregation": "pcpg.features.tabular:aggregation",
    "fourier": "pcpg.features.fourier:fourier",
    "random-conv": "pcpg.features.random_network:random_conv",
    "random-mlp": "pcpg.features.random_network:random_mlp",
}
FEATURES: dict[str, Callable[..., FeatureMap]] = {name: load(home) for name, home in HOMES.items()}
"""By name, what draws a feature map for an environment."""

__all__ = ["FEATURES", "FeatureMap", "make_features"]


def make_features(name: str, env: Environment, seed: int, **options: object) -> FeatureMap:
    """The feature map of this name for an environment.

    Args:
        name: One of `FEATURES`, or the name of a user's function.
        env: The environment whose pairs of observation and action it maps.
        seed: The same seed and options give the same map.
        **options: Of the map, such as `num_features`.

    Returns:
        A map with `dim` features, of one pair by a call and of many by `batch`.

    >>> from pcpg.envs import make
    >>> phi = make_features("fourier", make("Chain-v0"), seed=0, num_features=16)
    >>> phi.batch(np.eye(8, dtype=np.float32), np.ones(8, np.int32)).shape, phi.dim
    ((8, 16), 16)
    """
    if is_own_features(name):
        return own_features(name, env)
    _check("features", name, FEATURES)
    build = FEATURES[name]
    known = [p.name for p in inspect.signature(build).parameters.values() if p.kind is p.KEYWORD_ONLY]
    for option in options:
        _check(f"option of {name} features", option, known)
    return build(env, np.random.default_rng(seed), **options)


def _check(what: str, name: str, known: Collection[str]) -> None:
    if name not in known:
        hint = nearest(name, known)
        listing = f"did you mean {hint!r}? Valid are: {', '.join(known)}" if hint else "there are none"
        raise InvalidOption(f"unknown {what} {name!r}; {listing}")
