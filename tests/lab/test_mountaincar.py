"""MountainCar at smoke scale: the command from end to end, the presets, and what the kept results say."""

import pytest

from pcpg.algorithms import ALGORITHMS
from pcpg.algos.pcpg_settings import PCPGConfig
from pcpg.envs.mountain_car import MountainCarContinuous
from pcpg.presets import preset
from pcpg.run_config import RunConfig
from pcpg_lab.claims.harness import read_records, reproduce
from pcpg_lab.claims.mountaincar import ALGOS, CLAIM, ENV, Flags
from tests.lab.conftest import check_written

pytestmark = pytest.mark.slow


def test_the_command_leaves_a_summary_a_table_and_figures_as_png_and_svg(smoke):
    check_written(CLAIM, smoke, ALGOS, ("return", "cover"))


def test_the_baselines_have_at_least_as_many_steps_as_pcpg(smoke):
    ours, *others = read_records(CLAIM, smoke)
    assert all(min(other["env_steps"]) >= max(ours["env_steps"]) for other in others)


def test_a_curve_that_is_done_is_not_run_again_and_other_seeds_need_another_folder(smoke):
    before = [record["time"] for record in read_records(CLAIM, smoke)]
    assert reproduce(CLAIM, Flags(scale="smoke", out=str(smoke)))
    assert [record["time"] for record in read_records(CLAIM, smoke)] == before
    with pytest.raises(ValueError, match="choose another --out"):
        reproduce(CLAIM, Flags(scale="smoke", seeds=3, out=str(smoke)))


def test_an_unknown_algorithm_is_refused():
    with pytest.raises(ValueError, match="valid: pcpg-bonus"):
        Flags(algos=("pcpg",))


def test_the_preset_uses_at_most_3_million_steps_a_seed():
    config = preset(ENV, "pcpg-bonus")
    assert isinstance(config, PCPGConfig)
    policies, rounds = config.explore.max_policies, config.exploit.num_rounds
    episodes = (policies - 1 + rounds) * config.ppo.num_updates * config.ppo.num_episodes
    episodes += (policies + rounds) * config.explore.visit_episodes
    assert episodes * MountainCarContinuous().max_steps <= 3_000_000


def test_presets_and_features_are_chosen_by_the_environment_and_written_out():
    config = RunConfig.from_json({"env": ENV, "algo": "pcpg-bonus"}).resolved()
    assert config.agent == preset(ENV, "pcpg-bonus")
    assert (config.features, config.feature_options["num_features"]) == ("fourier", 32)
    assert (
        RunConfig.from_json({"env": "CombinationLock-v0", "env_options": {"horizon": 3}}).agent
        == ALGORITHMS["pcpg"].presets.compiled
    )


def test_a_policy_is_evaluated_over_gymnasiums_999_steps_and_solves_above_90():
    env = MountainCarContinuous(steps=200)
    assert (env.max_steps, env.evaluation_env.max_steps, env.solved_return) == (200, 999, 90.0)
