"""What every algorithm of the table keeps to, compiled and on the host; a new row is tested by being there."""

import dataclasses
import functools
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pcpg
from pcpg.algorithms import ALGORITHMS, ENDS
from pcpg.budget import NO_LIMITS
from pcpg.envs import registry
from pcpg.run_config import RunConfig
from pcpg.runs.arrays import read_arrays
from pcpg.runs.folder import RunFolder
from pcpg.runs.metrics import read_metrics
from pcpg.training.loop import start_run, train_run
from tests.probes import OneStep, ProbeState
from tests.programs import shared_programs
from tests.small import small
from tests.test_algorithms import FRESH

FINAL = ("metrics.jsonl", "policy.safetensors", "summary.json")

# One's own is registered like those of the library.
ROWS = ALGORITHMS | {"pcpg-fresh": FRESH}
ENVIRONMENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "compiled": ("CombinationLock-v0", {"horizon": 2}),
    "host": ("gymnasium:FrozenLake-v1", {"is_slippery": False, "max_steps": 20}),
}


class Case(NamedTuple):
    """An algorithm on an environment."""

    algo: str
    where: str

    def config(self, **entries: Any) -> RunConfig:
        """A run of two seeds with small settings."""
        env, options = ENVIRONMENTS[self.where]
        agent = small(ROWS[self.algo].settings)
        given = {"env": env, "env_options": options, "algo": self.algo, "seeds": 2, "agent": agent}
        return RunConfig.from_json(given | entries)

    @property
    def leaves(self) -> str:
        return ROWS[self.algo].settings.leaves


CASES = [Case(algo, where) for algo in ROWS for where in ENVIRONMENTS]
every_case = pytest.mark.parametrize("case", CASES, ids="-".join)
every_algorithm = pytest.mark.parametrize("algo", ROWS)


@pytest.fixture(autouse=True)
def house(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The table with the variant; each program is compiled once."""
    monkeypatch.setitem(ALGORITHMS, "pcpg-fresh", FRESH)
    with shared_programs():
        yield


def trained(config: RunConfig, path: Path) -> RunFolder:
    folder = start_run(config, path)
    assert train_run(folder).finished
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Case], RunFolder]:
    """The run of a case that nothing interrupted."""

    @functools.cache
    def run(case: Case) -> RunFolder:
        return trained(case.config(), Path(tempfile.mkdtemp(dir=tmp_path_factory.getbasetemp())) / "run")

    return run


def results(folder: RunFolder) -> dict[str, bytes]:
    files = [*(folder.path / name for name in FINAL), *sorted(folder.cover.glob("*"))]
    return {path.relative_to(folder.path).as_posix(): path.read_bytes() for path in files}


def arrays_of(folder: RunFolder, seed: int) -> dict[str, list[bytes]]:
    """All arrays of a seed that the end of a run and the parts of its rounds hold, in the order of rounds."""
    found: dict[str, list[bytes]] = {}
    for path in [folder.policy, *sorted(folder.cover.glob("*"))]:
        for name, array in read_arrays(path).items():
            if name.startswith(f"{seed}/"):
                found.setdefault(name, []).append(array.tobytes())
    return found


# Settings.


@every_case
def test_settings_survive_json_and_are_worked_out_once(case: Case) -> None:
    config = case.config().resolved()
    text = json.dumps(config.to_json())
    again = RunConfig.from_json(json.loads(text))
    assert again == config and again.resolved() == config and json.dumps(again.to_json()) == text
    env = config.make_env()
    assert config.agent.sized(env, NO_LIMITS) == config.agent
    assert type(config.agent) is ROWS[case.algo].settings and type(ROWS[case.algo].presets.host) is type(config.agent)


@every_case
def test_the_cost_is_known_before_the_first_round(case: Case, whole: Callable[[Case], RunFolder]) -> None:
    config = case.config().resolved()
    cost = config.agent.cost(config.make_env(), config.limits)
    assert cost.words and 0 <= cost.round_steps <= cost.most_steps
    assert cost.networks >= 0 and cost.episodes >= 0
    used = whole(case).read_summary()["env_steps"]
    assert max(used) > 0 and (cost.is_estimate or max(used) <= cost.most_steps)


# Runs.


@every_case
def test_a_run_ends_and_is_loaded_played_and_evaluated(case: Case, whole: Callable[[Case], RunFolder]) -> None:
    run = pcpg.load(whole(case).path)
    assert run.is_finished and len(run.policies) == 2
    assert len(run.summary["ended"]) == 2 and set(run.summary["ended"]) <= ENDS.keys() - {"exploring"}
    assert all(np.isfinite(run.summary["final_return"])) and run.summary["rounds"] >= 3
    with run.playable() as env:
        space = env.observation_space
        observation = np.zeros(space.shape, space.dtype) if case.where == "compiled" else 0
        assert int(run.policy.act(observation, greedy=True)) in range(env.action_space.n)
    returns = run.evaluate(4).returns
    assert returns.shape == (2, 4)
    np.testing.assert_array_equal(returns, pcpg.load(run.path).evaluate(4).returns)
    assert run.keeps_data == (case.leaves == "data")


@every_case
def test_a_run_that_stops_after_every_round_ends_with_the_same_bytes(
    case: Case, whole: Callable[[Case], RunFolder], tmp_path: Path
) -> None:
    folder, stops = start_run(case.config(), tmp_path / "run"), 0
    while not train_run(folder, observer=lambda progress: progress.env_steps == 0).finished:
        stops += 1
    assert stops >= 2
    assert results(folder) == results(whole(case))


@every_case
def test_a_seed_ends_with_the_same_bits_alone_and_beside_others(
    case: Case, whole: Callable[[Case], RunFolder], tmp_path: Path
) -> None:
    alone = trained(case.config(seed=1, seeds=1), tmp_path / "alone")
    assert arrays_of(alone, 1) == arrays_of(whole(case), 1) != {}
    beside = [record for record in read_metrics(whole(case).metrics) if record["seed"] == 1]
    assert beside == read_metrics(alone.metrics)


@every_algorithm
def test_seeds_in_wide_programs_are_trained_too(algo: str, tmp_path: Path) -> None:
    summary = trained(Case(algo, "compiled").config(lanes=3), tmp_path / "run").read_summary()
    assert np.isfinite(summary["final_return"]).all() and min(summary["env_steps"]) > 0


@pytest.mark.parametrize("case", [case for case in CASES if case.leaves], ids="-".join)
def test_a_task_is_learned_on_what_a_run_leaves(case: Case, whole: Callable[[Case], RunFolder], tmp_path: Path) -> None:
    run = pcpg.exploit(whole(case).path, out=tmp_path / "task")
    assert run.is_finished and run.config.seed_list == [0, 1]
    assert {record["phase"] for record in read_metrics(run.folder.metrics)} == {"exploit"}
    assert run.evaluate(4).returns.shape == (2, 4)


# One seed's NaN.

BROKEN = {"is": False}


@dataclasses.dataclass(frozen=True)
class NaNInSeed1(OneStep):
    """One decision, of which seed 1 has a reward that is NaN while BROKEN says so."""

    def instance(self, seed: int) -> Any:
        return np.asarray(seed == 1 and BROKEN["is"])

    def reset(self, key: jax.Array, params: Any) -> Any:
        return super().reset(key, ())

    def transition(self, key: jax.Array, state: ProbeState, action: jax.Array, params: Any) -> Any:
        step = super().transition(key, state, action, ())
        return step._replace(reward=jnp.where(params, jnp.nan, step.reward))


@every_algorithm
def test_the_nan_of_one_seed_leaves_the_others_alone_and_the_seed_can_go_on(
    algo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry._ENTRIES, "NaNInSeed1-v0", registry.Entry(NaNInSeed1, "NaN in seed 1"))
    monkeypatch.setitem(BROKEN, "is", True)
    config = Case(algo, "compiled").config(env="NaNInSeed1-v0", env_options={}, seeds=3)
    broken = start_run(config, tmp_path / "broken")
    assert "non-finite" in train_run(broken).failed[1]
    summary = broken.read_summary()
    assert [value is None for value in summary["final_return"]] == [False, True, False]

    monkeypatch.setitem(BROKEN, "is", False)
    healthy = trained(config, tmp_path / "healthy")
    assert [arrays_of(broken, seed) == arrays_of(healthy, seed) for seed in (0, 1, 2)] == [True, False, True]
    assert train_run(broken, retry_failed=True).finished
    assert arrays_of(broken, 1) == arrays_of(healthy, 1)
    assert "failed" not in broken.read_summary()
