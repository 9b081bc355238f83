"""Every driver of the theory runs the page: Algorithm 1's coroutine for a round, and Algorithm 2's for its line 7."""

import numpy as np
import pytest

from pcpg.algorithm1 import Design, Improve, Visit
from pcpg.theory import kernel, npg, problems, tabular
from pcpg.theory.learners import pcpg, problem, runner
from pcpg.theory.settings import Settings, beta_from_mass

FIRST, LATER = [Visit, Design], [Improve, Visit, Design]
SMALL = Settings(N=2, T=3, eta=1.0, M=20, K=20, select_episodes=2, final_episodes=2, beta=beta_from_mass(0.01))
ASKED_BY_NPG = [npg.Critic] * SMALL.T + [npg.Values]


class Witness:
    """Stands in for a coroutine and writes down what each of its runs asked for, without changing anything."""

    def __init__(self, coroutine):
        self.coroutine, self.asked = coroutine, []

    def __call__(self, *given, **named):
        kinds = []
        self.asked.append(kinds)
        return self.listen(self.coroutine(*given, **named), kinds)

    def listen(self, running, kinds):
        answer = None
        while True:
            try:
                request = running.send(answer)
            except StopIteration as end:
                return end.value
            kinds.append(type(request))
            answer = yield request


@pytest.fixture
def witnesses(monkeypatch):
    """The two coroutines, listened to in every place where the theory uses them."""
    page, algorithm2 = Witness(tabular.explore_round), Witness(npg.algorithm2)
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
    steps = npg.algorithm2(b, everywhere, lambda theta: np.einsum("sad,nd->nsa", phi, theta), T=6, eta=0.7)
    request = next(steps)
    with pytest.raises(StopIteration) as end:
        while True:
            request = steps.send(thetas[:, request.t] if isinstance(request, npg.Critic) else values)
    block = end.value.value
    for i, one in enumerate(alone):
        assert block.chosen[i] == one.chosen
        np.testing.assert_allclose(block.policy[i], one.policy, rtol=1e-12)
        np.testing.assert_allclose(block.iterates[i], one.iterates, rtol=1e-12)
