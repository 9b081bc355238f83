"""The examples in docstrings give what they say."""

import doctest
import importlib

import pytest

from pcpg.envs import registry

pytestmark = pytest.mark.slow

MODULES = [
    "pcpg.api",
    "pcpg.bonuses.protocol",
    "pcpg.cover.bonus",
    "pcpg.cover.cover",
    "pcpg.cover.design",
    "pcpg.envs.contract",
    "pcpg.envs.registry",
    "pcpg.features",
    "pcpg.learners.update",
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_give_what_they_say(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))  # what an example registers goes with it
    failed, tried = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert tried > 0, f"{name} has no examples"
    assert failed == 0
