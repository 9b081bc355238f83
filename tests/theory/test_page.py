"""Every driver of the theory runs the page: Algorithm 1's coroutine for a round, and Algorithm 2's for its line 7."""

import numpy as np
import pytest

from pcpg.algorithm1 import Explored, Parts, explore_round
from pcpg_theory import kernel, npg, problems, tabular
from pcpg_theory.learners import pcpg, problem, runner
from pcpg_theory.learners.layout import Ask, Waiting
from pcpg_theory.settings import Settings, beta_from_mass

FIRST, LATER = ["visit", "design"], ["improve", "visit", "design"]
SMALL = Settings(N=2, T=3, eta=1.0, M=20, K=20, select_episodes=2, final_episodes=2, beta=beta_from_mass(0.01))
ASKED_BY_NPG = ["fit"] * SMALL.T + ["select"]


class Witness:
    """Stands in for a coroutine and writes down which parts each of its runs awaited, without changing anything."""

    def __init__(self, coroutine):
        self.coroutine, self.asked = coroutine, []

    def begin(self):
        self.asked.append([])
        return self.asked[-1]

    @staticmethod
    def heard(name, part, names):
        async def answer(*given):
            names.append(name)
            return await part(*given)

        return answer


class Page(Witness):
    def __call__(self, now, parts):
        names = self.begin()
        heard = {name: self.heard(name, getattr(parts, name), names) for name in LATER}
        return self.coroutine(now, parts._replace(**heard))


class Algorithm2(Witness):
    def __call__(self, b, available, score, fit, select, **numbers):
        names = self.begin()
        return self.coroutine(
            b, available, score, self.heard("fit", fit, names), self.heard("select", select, names), **numbers
        )


@pytest.fixture
def witnesses(monkeypatch):
    """The two coroutines, listened to in every place where the theory uses them."""
    page, algorithm2 = Page(tabular.explore_round), Algorithm2(npg.algorithm2)
    for module in (tabular, pcpg):
        monkeypatch.setattr(module, "explore_round", page)
    monkeypatch.setattr(npg, "algorithm2", algorithm2)
    return page, algorithm2


@pytest.mark.parametrize("mode", ["exact", "sampled"])
@pytest.mark.parametrize("features", ["primal", "dual"])
def test_each_round_of_the_exact_the_sampled_and_the_kernel_mode_is_the_pages(witnesses, mode, features):
    page, algorithm2 = witnesses
    if features == "primal":
        lock = problems.lock(2)
        found = tabular.run(lock.mdp, lock.phi, SMALL, mode)
    else:
        found = kernel.run_kernel(kernel.swimmer(12), SMALL, mode)
    assert len(found.cover.policies) == SMALL.N + 1
    assert page.asked == [FIRST] + [LATER] * SMALL.N
    assert algorithm2.asked == [ASKED_BY_NPG] * SMALL.N


def test_each_round_of_table_1s_pc_pg_is_the_pages_for_a_block_of_seeds(witnesses):
    page, algorithm2 = witnesses
    lock = problem.lock(2, [0, 1])

    def make(layout, streams):
        made = pcpg.PCPG(layout, streams, settings=SMALL)
        makers.append(made)
        return made

    makers = []
    runner.run(lock, make, [0, 1], 1500, 5)
    [learner] = makers
    whole = learner.now.cover.policies.shape[1]  # the last round is cut where the samples end
    assert whole >= 3 and page.asked[:whole] == [FIRST] + [LATER] * (whole - 1)
    assert algorithm2.asked[: whole - 1] == [ASKED_BY_NPG] * (whole - 1)


def test_algorithm_2_is_the_same_for_one_seed_and_for_a_block_of_them():
    """A block whose seeds are asked different things gives each what it would get alone."""
    rng = np.random.default_rng(0)
    phi, b = rng.normal(size=(4, 3, 5)), np.where(rng.random((2, 4, 3)) < 0.2, 2.0, 0.0)
    thetas, values = rng.normal(size=(2, 6, 5)), rng.normal(size=(2, 6))
    everywhere = np.ones((4, 3), bool)
    alone = [
        npg.npg_update(phi, b[i], everywhere, lambda pi, t, i=i: thetas[i, t], lambda _, i=i: values[i], T=6, eta=0.7)
        for i in range(2)
    ]

    async def fit(_, t):
        return thetas[:, t]

    async def select(_):
        return values

    def score(theta):
        return np.einsum("sad,nd->nsa", phi, theta)

    block = npg.at_once(npg.algorithm2(b, everywhere, score, fit, select, T=6, eta=0.7))
    for i, one in enumerate(alone):
        assert block.chosen[i] == one.chosen
        np.testing.assert_allclose(block.policy[i], one.policy, rtol=1e-12)
        np.testing.assert_allclose(block.iterates[i], one.iterates, rtol=1e-12)


def test_parts_that_wait_for_episodes_hand_their_waiting_to_the_runner():
    async def seen(policy):
        assert await Ask(policy, 3) == "played"
        return f"sigma of {policy}"

    async def design(cover):
        assert await Ask("uniform", len(cover)) == "played"
        return f"design of {len(cover)}"

    async def rounds():
        parts = Parts(None, seen, lambda cover, policy, seen: (*cover, (policy, seen)), design, "bonus of {}".format)
        learner.done = await explore_round(Explored("pi", ()), parts)
        await Ask("the next round", 1)

    learner = Waiting()
    learner.begin(rounds())
    asked = [(learner.behaviour(), learner.batch)]
    for _ in range(2):
        learner.learn("played")
        asked.append((learner.behaviour(), learner.batch))
    assert asked == [("pi", 3), ("uniform", 1), ("the next round", 1)]
    cover = (("pi", "sigma of pi"),)
    assert learner.done == Explored("pi", cover, "design of 1", f"bonus of {cover}", None, "sigma of pi")


def test_a_coroutine_that_waits_is_refused_where_nobody_plays_episodes():
    async def waits():
        await Ask("pi", 1)

    with pytest.raises(RuntimeError, match="awaits episodes"):
        npg.at_once(waits())
