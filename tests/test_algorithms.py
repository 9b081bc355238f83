"""The table of algorithms: a variant is one file and one line, and every driver of PC-PG runs the page."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pcpg
from pcpg.algorithm1 import Explored, Parts
from pcpg.algorithms import ALGORITHMS, Presets, World, label
from pcpg.algos import pcpg as practice
from pcpg.algos.pcpg_settings import PCPGConfig
from pcpg.budget import NO_LIMITS
from pcpg.presets import preset
from pcpg.state import EXPLORE

pytestmark = pytest.mark.slow

Tiny = Callable[..., dict[str, Any]]


# The variant: all that it takes.


class FreshPCPG(practice.PCPG):
    async def step(self, state: practice.State) -> practice.Round:
        """A round of PC-PG that improves a fresh policy instead of the newest one."""
        if state.phase == EXPLORE:
            state = state._replace(policy=self.fresh_policy(state.seed, 100 + state.round))
        return await super().step(state)


@dataclasses.dataclass(frozen=True)
class FreshConfig(PCPGConfig):
    def agent(self, world: World) -> FreshPCPG:
        return FreshPCPG(self.sized(world.env, NO_LIMITS), world)


FRESH = ALGORITHMS["pcpg"]._replace(label="PC-PG (fresh)", home=Presets(FreshConfig(), FreshConfig()))


@pytest.fixture
def variant(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(ALGORITHMS, "pcpg-fresh", FRESH)
    return "pcpg-fresh"


def train(algo: str, tiny: Tiny, out: Path) -> pcpg.Run:
    return pcpg.train("CombinationLock-v0", algo, horizon=2, config=tiny("pcpg")["agent"], out=out)


def test_a_variant_of_one_file_is_trained_loaded_reported_and_offered(
    variant: str, tiny: Tiny, tmp_path: Path, cli: Callable[..., Any]
) -> None:
    own, plain = train(variant, tiny, tmp_path / "own"), train("pcpg", tiny, tmp_path / "plain")
    assert own.summary["policies"] == plain.summary["policies"] == [8]
    assert (own.path / "metrics.jsonl").read_bytes() != (plain.path / "metrics.jsonl").read_bytes()
    assert pcpg.load(own.path).evaluate(8).returns.shape == (1, 8)
    assert cli("report", own.path).code == 0
    assert "PC-PG (fresh)" in (own.path / "report.html").read_text()
    assert variant in cli("train", "CombinationLock-v0", "--help").out
    again = json.loads((own.path / "config.json").read_text())
    assert again["content"]["algo"] == variant


def test_the_policies_of_the_variant_are_fresh_ones(variant: str, tiny: Tiny, tmp_path: Path) -> None:
    config = tiny("pcpg", explore={})["agent"] | {"ppo": {"num_updates": 1, "num_episodes": 64, "learning_rate": 1e-9}}
    run = pcpg.train("CombinationLock-v0", variant, horizon=2, config=config, out=tmp_path / "run")
    first, second = run.cover.member(1), run.cover.member(2)
    assert abs(first.actor_head.weight - second.actor_head.weight).max() > 1e-3  # no update of such a rate moves so far


def test_an_algorithm_that_nobody_knows_is_called_by_its_id() -> None:
    assert (label("pcpg"), label("somebody's")) == ("PC-PG", "somebody's")


def test_every_algorithm_has_settings_for_both_kinds_of_environments() -> None:
    for algo, algorithm in ALGORITHMS.items():
        presets = algorithm.presets
        assert preset("CombinationLock-v0", algo) == presets.compiled
        assert preset("gymnasium:CartPole-v1", algo) == presets.host
        assert type(presets.compiled) is type(presets.host)


# The page.


@pytest.mark.parametrize("algo", ["pcpg", "pcpg-bonus"])
def test_practice_explores_by_the_page_once_for_every_member_of_the_cover(
    algo: str, tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    explore_round = practice.explore_round

    async def page(now: Explored, parts: Parts) -> Explored:
        def told(name: str) -> Any:
            part = getattr(parts, name)

            async def ask(given: Any) -> Any:
                asked.append(name[0])
                return await part(given)

            return ask

        done = await explore_round(now, parts._replace(**{name: told(name) for name in ("improve", "visit", "design")}))
        asked.append(".")
        return done

    monkeypatch.setattr(practice, "explore_round", page)
    run = train(algo, tiny, tmp_path / "run")
    (members,) = run.summary["policies"]
    assert "".join(asked) == "vd." + "ivd." * (members - 1)


def test_no_module_has_a_loop_of_algorithm_1_of_its_own() -> None:
    source = Path(pcpg.__file__).parents[1]
    users = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        if "explore_round(" in path.read_text(encoding="utf-8") and path.name != "algorithm1.py"
    }
    assert users == {
        "pcpg/algos/pcpg.py",
        "pcpg/algos/replay_explore.py",
        "pcpg_theory/tabular.py",
        "pcpg_theory/learners/pcpg.py",
    }


@pytest.mark.parametrize("algo", ["pcpg", "pcpg-bonus", "ppo", "ppo-rnd"])
def test_an_update_never_has_more_samples_than_can_be_put_in_order(algo: str) -> None:
    for env_id, options in (("MountainCarContinuous-v0", {}), ("Chain-v0", {"horizon": 1000}), ("Maze-v0", {})):
        env = pcpg.make(env_id, **options)
        config = preset(env_id, algo).sized(env, NO_LIMITS)
        assert config.ppo.num_episodes * env.max_steps <= 2**20
