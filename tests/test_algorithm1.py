"""The page of Algorithm 1: what a round asks for and in which order, and seeds that advance together."""

import pytest

from pcpg.algorithm1 import Design, Explored, Improve, Parts, Visit, drive, explore_round, lockstep, task_round


class Better(str):
    """An answer to Improve: it is its own policy."""

    @property
    def policy(self):
        return str(self)


PARTS = Parts(
    extend=lambda cover, policy, seen: (*cover, (policy, seen)),
    bonus=lambda cover: f"bonus of {len(cover)}",
)
ONE = (("pi", "sigma of pi"),)
TWO = (*ONE, ("pi'", "sigma of pi'"))


class Driver:
    """Answers that say what they were made of, and the order in which they were asked for."""

    def __init__(self):
        self.calls = []

    def __call__(self, kind, asked):
        self.calls.append((kind, [number for number, _ in asked]))
        return [self.answer(request) for _, request in asked]

    def answer(self, request):
        if isinstance(request, Improve):
            return Better(request.now.policy + "'")
        if isinstance(request, Visit):
            return f"sigma of {request.policy}"
        return f"design of {len(request.cover)}"


START = Explored("pi", ())


def test_the_first_round_visits_with_the_first_policy_and_improves_nothing():
    driver = Driver()
    (done,) = lockstep([explore_round(START, PARTS)], driver)
    assert driver.calls == [(Visit, [0]), (Design, [0])]
    assert done == Explored("pi", ONE, "design of 1", "bonus of 1", None, "sigma of pi")


def test_a_round_is_lines_7_4_5_6_of_the_paper_and_returns_all_that_it_was_answered():
    driver = Driver()
    (first,) = lockstep([explore_round(START, PARTS)], driver)
    (second,) = lockstep([explore_round(first, PARTS)], driver)
    assert [kind for kind, _ in driver.calls[2:]] == [Improve, Visit, Design]
    assert second == Explored("pi'", TWO, "design of 2", "bonus of 2", Better("pi'"), "sigma of pi'")


def test_an_improvement_is_asked_for_with_the_cover_the_design_and_the_bonus_of_the_round_before():
    (first,) = lockstep([explore_round(START, PARTS)], Driver())
    request = next(explore_round(first, PARTS))
    assert isinstance(request, Improve)
    assert (request.now.cover, request.now.design, request.now.bonus) == (ONE, "design of 1", "bonus of 1")


def test_a_round_of_a_task_leaves_the_cover_as_it_was():
    (first,) = lockstep([explore_round(START, PARTS)], Driver())
    driver = Driver()
    (done,) = lockstep([task_round(first)], driver)
    assert [kind for kind, _ in driver.calls] == [Improve, Visit]
    assert (done.policy, done.cover, done.seen) == ("pi'", ONE, "sigma of pi'")


def test_seeds_in_any_phase_share_the_calls_of_a_round():
    (first,) = lockstep([explore_round(START, PARTS)], Driver())
    rounds = [explore_round(START, PARTS), explore_round(first, PARTS), task_round(first)]
    driver = Driver()
    results = lockstep(rounds, driver)
    assert driver.calls == [(Improve, [1, 2]), (Visit, [0, 1, 2]), (Design, [0, 1])]
    assert [done.policy for done in results] == ["pi", "pi'", "pi'"]


def test_no_rounds_ask_for_nothing():
    driver = Driver()
    assert lockstep([], driver) == [] and driver.calls == []


def test_answers_that_have_to_wait_hand_their_waiting_on():
    driver = Driver()

    def answer(request):
        episodes = yield f"episodes for {type(request).__name__}"
        assert episodes == "played"
        return driver.answer(request)

    waiting = drive(explore_round(START, PARTS), answer)
    asked = [next(waiting), waiting.send("played")]
    with pytest.raises(StopIteration) as end:
        waiting.send("played")
    assert asked == ["episodes for Visit", "episodes for Design"]
    assert end.value.value == Explored("pi", ONE, "design of 1", "bonus of 1", None, "sigma of pi")
