"""Algorithm 1's loop with parts that write down what they are called with, and the rule that ends it."""

import numpy as np
import pytest

from pcpg.algorithm1_old import Covered, Parts, cover_step, explore, explore_step
from pcpg.config import ExploreConfig
from pcpg.practice.pcpg import exploration_is_over


class Recorder:
    """Parts whose results say what they were made of."""

    def __init__(self):
        self.calls = []
        self.parts = Parts(
            covariance=lambda policy: self.note("covariance", policy, result=f"sigma({policy})"),
            extend=lambda cover, policy, sigma: self.note(
                "extend", cover, policy, sigma, result=(*cover, (policy, sigma))
            ),
            weights=lambda cover: self.note("weights", cover, result=f"weights of {len(cover)}"),
            bonus=lambda cover: self.note("bonus", cover, result=f"bonus of {len(cover)}"),
            improve=lambda *given: self.note("improve", *given, result=given[0] + "'"),
        )

    def note(self, part, *given, result):
        self.calls.append((part, *given))
        return result


ONE = (("pi", "sigma(pi)"),)
TWO = (*ONE, ("pi'", "sigma(pi')"))
THREE = (*TWO, ("pi''", "sigma(pi'')"))


def test_the_loop_calls_its_parts_in_the_order_of_the_paper_and_hands_on_what_they_give():
    recorder = Recorder()
    policy, covered = explore(recorder.parts, "pi", (), num_policies=2)
    assert recorder.calls == [
        ("covariance", "pi"),
        ("extend", (), "pi", "sigma(pi)"),
        ("weights", ONE),
        ("bonus", ONE),
        ("improve", "pi", ONE, "weights of 1", "bonus of 1"),
        ("covariance", "pi'"),
        ("extend", ONE, "pi'", "sigma(pi')"),
        ("weights", TWO),
        ("bonus", TWO),
        ("improve", "pi'", TWO, "weights of 2", "bonus of 2"),
        ("covariance", "pi''"),
        ("extend", TWO, "pi''", "sigma(pi'')"),
        ("weights", THREE),
        ("bonus", THREE),
    ]
    assert policy == "pi''"
    assert covered == Covered(THREE, "weights of 3", "bonus of 3")


def test_the_loop_is_its_steps_one_after_the_other():
    whole, steps = Recorder(), Recorder()
    expected = explore(whole.parts, "pi", (), num_policies=2)
    policy, covered = "pi", cover_step(steps.parts, "pi", ())
    for _ in range(2):
        policy, covered = explore_step(steps.parts, policy, covered)
    assert (policy, covered) == expected
    assert steps.calls == whole.calls


def test_without_further_policies_the_cover_is_that_of_the_first():
    recorder = Recorder()
    policy, covered = explore(recorder.parts, "pi", (), num_policies=0)
    assert (policy, covered.cover) == ("pi", ONE)
    assert "improve" not in [call[0] for call in recorder.calls]


def test_a_negative_number_of_policies_is_refused():
    with pytest.raises(ValueError, match="num_policies must be 0 or more, got -1"):
        explore(Recorder().parts, "pi", (), num_policies=-1)


RULE = ExploreConfig(min_growth=0.1, patience=2)


@pytest.mark.parametrize(
    ("log_dets", "capacity", "is_over"),
    [
        ([0.0], 9, False),  # nothing to compare with
        ([0.0, 0.0], 9, False),  # one policy more is not two
        ([0.0, 0.04, 0.08], 9, True),  # too little over two policies together
        ([0.0, 0.06, 0.12], 9, False),  # two small steps, but enough together
        ([0.0, 5.0, 5.04, 5.08], 9, True),  # whatever came before
        ([0.0, 0.0, 0.0, 1.0], 9, False),
        ([0.0, 1.0, 1.0], 9, False),  # the last grew nothing, the one before did
        ([0.0, -0.5, -1.0], 9, True),
        ([0.0, 1.0, 2.0], 3, True),  # full
        ([0.0, 1.0], 3, False),
        ([0.0], 1, True),
    ],
)
def test_exploration_ends_when_the_cover_is_full_or_has_grown_too_little(log_dets, capacity, is_over):
    assert exploration_is_over(np.array(log_dets), RULE, capacity) is is_over


def test_growth_of_exactly_the_least_is_growth():
    assert not exploration_is_over(np.array([0.0, 0.25, 0.5]), ExploreConfig(min_growth=0.5, patience=2), 9)
    assert exploration_is_over(np.array([0.0, 0.25, 0.5]), ExploreConfig(min_growth=0.5001, patience=2), 9)


def test_patience_counts_the_policies_over_which_growth_is_measured():
    flat = np.zeros(5)
    assert [exploration_is_over(flat, ExploreConfig(patience=patience), 9) for patience in (3, 4, 5)] == [
        True,
        True,
        False,
    ]
