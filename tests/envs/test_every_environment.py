"""Every registered environment keeps the contract."""

import pytest

from pcpg.envs import ContractError, check_environment, make, spec
from tests.probes import PROBES

IDS = dict.fromkeys([*(entry.id for entry in spec()), *PROBES])


@pytest.mark.parametrize("env_id", [env_id for env_id in IDS if env_id != "ProbeNonFinite-v0"])
def test_a_registered_environment_keeps_the_contract(env_id: str):
    check_environment(make(env_id), num_steps=40)


@pytest.mark.parametrize("where", ["reward", "observation"])
def test_the_probe_that_breaks_the_contract_on_purpose_is_caught(where: str):
    with pytest.raises(ContractError, match=f"NonFinite: step 5: the {where} is not finite"):
        check_environment(make("ProbeNonFinite-v0", where=where))


@pytest.mark.parametrize(("env_id", "options"), [("CombinationLock-v0", {"horizon": 1}), ("DeepSea-v0", {"size": 1})])
def test_the_smallest_sizes_keep_the_contract(env_id: str, options: dict):
    check_environment(make(env_id, **options), seed=3, num_steps=20)
