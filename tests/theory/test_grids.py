"""The paper's grids: the counts of its tables, choices among what was tried, and settings that there are."""

import dataclasses
import functools

import pytest

from pcpg.presets import preset
from pcpg_theory.grids import considered, final, grid

TABLES = [(algo, task) for algo in ("pcpg", "ppo-rnd") for task in ("lock", "mountaincar", "maze")]


@pytest.mark.parametrize(("algo", "task"), TABLES)
def test_what_was_chosen_was_among_the_values_considered(algo, task):
    chosen = final(algo, task)
    assert all(chosen[name] in tried.values for name, tried in considered(algo, task).items())
    assert chosen in list(grid(algo, task))


def test_the_grids_are_as_large_as_the_papers_tables():
    """Rates, and for RND two ways to normalise and six or five coefficients, for PC-PG three or one epsilon."""
    sizes = {table: len(list(grid(*table))) for table in TABLES}
    rnd = {("ppo-rnd", "lock"): 36, ("ppo-rnd", "mountaincar"): 36, ("ppo-rnd", "maze"): 30}
    assert sizes == rnd | {("pcpg", "lock"): 9, ("pcpg", "mountaincar"): 9, ("pcpg", "maze"): 3}


@pytest.mark.parametrize(("algo", "task"), TABLES)
def test_every_setting_is_one_of_ours(algo, task):
    env = {"lock": "CombinationLock-v0", "mountaincar": "MountainCarContinuous-v0", "maze": "Maze-v0"}[task]
    settings = preset(env, algo)
    for name, value in final(algo, task).items():
        *parts, last = name.split(".")
        home = functools.reduce(getattr, parts, settings)
        assert last in {field.name for field in dataclasses.fields(home)}
        assert type(getattr(home, last)) is type(value)


def test_our_settings_for_mountaincar_are_those_that_the_paper_chose():
    ours, chosen = preset("MountainCarContinuous-v0", "pcpg-bonus").ppo, final("pcpg", "mountaincar")
    for name in ("learning_rate", "gae_lambda", "entropy_coef", "clip_eps", "minibatch_size", "num_epochs", "hidden"):
        assert getattr(ours, name) == chosen[f"ppo.{name}"], name


def test_a_table_that_the_paper_lacks_is_an_error():
    with pytest.raises(ValueError, match="not of ppo on lock"):
        considered("ppo", "lock")
