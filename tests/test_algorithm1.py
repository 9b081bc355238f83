"""The page of Algorithm 1: what a round awaits and in which order, and seeds that advance together."""

import functools
from typing import Any

import pytest

from pcpg.algorithm1 import Explored, Parts, explore_round
from pcpg.engine.together import Shared, together
from pcpg.state import NonFinite


class Better(str):
    """An improvement: it is its own policy."""

    @property
    def policy(self):
        return str(self)


ONE = (("pi", "sigma of pi"),)
TWO = (*ONE, ("pi'", "sigma of pi'"))
START = Explored("pi", ())


class Driver:
    """Answers that say what they were made of, and the order in which they were asked for."""

    def __init__(self):
        self.calls = []
        self.improve = Shared(functools.partial(self.run, "improve", lambda now: Better(now.policy + "'")))
        self.visit = Shared(functools.partial(self.run, "visit", lambda policy: f"sigma of {policy}"))
        self.design = Shared(functools.partial(self.run, "design", lambda cover: f"design of {len(cover)}"))
        self.parts = Parts(
            improve=self.improve,
            visit=self.visit,
            extend=lambda cover, policy, seen: (*cover, (policy, seen)),
            design=self.design,
            bonus=lambda cover: f"bonus of {len(cover)}",
        )

    def run(self, name, answer, asked):
        self.calls.append((name, list(asked)))
        return [answer(one) for one in asked]

    def together(self, *rounds) -> list[Any]:
        return together(rounds, (self.improve, self.visit, self.design))

    def explore(self, now):
        return explore_round(now, self.parts)

    async def task(self, now):
        """A round of something else, by the same programs."""
        improved = await self.improve(now)
        return improved.policy, await self.visit(improved.policy)


@pytest.fixture
def first():
    driver = Driver()
    return driver.together(driver.explore(START))[0]


def test_the_first_round_visits_with_the_first_policy_and_improves_nothing():
    driver = Driver()
    (done,) = driver.together(driver.explore(START))
    assert driver.calls == [("visit", ["pi"]), ("design", [ONE])]
    assert done == Explored("pi", ONE, "design of 1", "bonus of 1", None, "sigma of pi")


def test_a_round_is_lines_7_4_5_6_of_the_paper_and_returns_all_that_it_was_answered(first):
    driver = Driver()
    (second,) = driver.together(driver.explore(first))
    assert [name for name, _ in driver.calls] == ["improve", "visit", "design"]
    assert second == Explored("pi'", TWO, "design of 2", "bonus of 2", Better("pi'"), "sigma of pi'")


def test_an_improvement_is_asked_for_with_the_cover_the_design_and_the_bonus_of_the_round_before(first):
    driver = Driver()
    driver.together(driver.explore(first))
    name, [now] = driver.calls[0]
    assert (name, now.cover, now.design, now.bonus) == ("improve", ONE, "design of 1", "bonus of 1")


def test_seeds_in_any_phase_share_the_calls_of_a_round(first):
    driver = Driver()
    results = driver.together(driver.explore(START), driver.explore(first), driver.task(first))
    assert driver.calls == [
        ("improve", [first, first]),
        ("visit", ["pi", "pi'", "pi'"]),
        ("design", [ONE, TWO]),
    ]
    assert [results[0].policy, results[1].policy, results[2][0]] == ["pi", "pi'", "pi'"]


def test_a_seed_with_a_number_that_is_not_finite_ends_alone(first):
    driver = Driver()

    async def failing():
        await driver.improve(first)
        raise NonFinite("seed 1: a reward")

    results = driver.together(driver.task(first), failing(), driver.task(first))
    assert isinstance(results[1], NonFinite) and str(results[1]) == "seed 1: a reward"
    assert [results[0], results[2]] == [("pi'", "sigma of pi'")] * 2
    assert driver.calls[1] == ("visit", ["pi'", "pi'"])


def test_no_rounds_ask_for_nothing():
    driver = Driver()
    assert driver.together() == [] and driver.calls == []
