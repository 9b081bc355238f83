"""Shapes in signatures are checked in the tests: a wrong one fails where it is given, compiled or not."""

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from pcpg.cover.bonus import covariance
from pcpg.envs import CombinationLock
from pcpg.features import make_features
from pcpg.learners.update import gae
from pcpg.policies.networks import Linear

ZEROS, NEVER = np.zeros(4, np.float32), np.zeros(4, bool)
PHI = make_features("identity", CombinationLock(3), 0)

WRONG = {
    "learning": lambda: gae(ZEROS, ZEROS, ZEROS[:3], NEVER, NEVER, gamma=0.9, gae_lambda=0.9),
    "cover": lambda: covariance(jnp.zeros((4, 2)), jnp.ones(3, bool)),
    "policies": lambda: Linear(np.zeros((3, 2), np.float32), np.zeros(3, np.float32)),
    "features": lambda: PHI.batch(jnp.zeros((4, 8)), jnp.zeros(3, jnp.int32)),
}


@pytest.mark.parametrize("part", WRONG)
@pytest.mark.parametrize("how", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_a_wrong_shape_is_refused_where_it_is_given(part, how):
    with pytest.raises(jaxtyping.TypeCheckError):
        how(WRONG[part])()


def test_a_check_leaves_the_compiled_program_as_it_is(monkeypatch):
    def program(phi, mask):
        return covariance(phi, mask)

    arguments = jnp.zeros((4, 2)), jnp.ones(4, bool)
    checked = jax.jit(program).lower(*arguments).as_text()
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    jax.clear_caches()
    assert jax.jit(program).lower(*arguments).as_text() == checked
