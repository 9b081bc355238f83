"""A run's policies as a folder for a model hub, and back.

    pcpg.hub.export(run, "my-model")             # safetensors, settings, and a card as README.md
    pcpg.hub.load("my-model").policy.act(observation)

Nothing is sent or fetched: upload the folder with the hub's own tool. Loading runs no code of the folder, and creates
no environment but the library's own.
"""

import hashlib
from pathlib import Path
from typing import NamedTuple

from pcpg.config import ConfigError, Json
from pcpg.envs.options import load as at_home
from pcpg.envs.protocol import Environment
from pcpg.envs.recorded import describe, recorded
from pcpg.envs.registry import make
from pcpg.policy import Policy
from pcpg.reports.read import read_run
from pcpg.reports.text import number, repeat
from pcpg.reports.verdict import verdict
from pcpg.run import Run
from pcpg.run_config import RunConfig
from pcpg.runs.arrays import encode_arrays, read_arrays
from pcpg.runs.disk import exists, make_folder, write_file
from pcpg.runs.documents import NUMBER, is_list_of, read_json, write_json
from pcpg.runs.errors import FolderTaken, understood
from pcpg.training.storage import check_networks, policies_of
from pcpg.trees import flatten

MODEL, ARRAYS, CARD, VIDEO = "pcpg.json", "policy.safetensors", "README.md", "video.gif"


class Model(NamedTuple):
    """What a folder for a hub holds."""

    policies: list[Policy]  # the final one of each seed
    config: Json  # every setting of the run
    returns: list[float | None]  # the mean return of each seed at the end

    @property
    def policy(self) -> Policy:
        """The policy with the best return."""
        known = [-float("inf") if value is None else value for value in self.returns]
        return self.policies[known.index(max(known))]


def export(run: Run, folder: str | Path, *, video: bool = False) -> Path:
    """Write the final policies of a run, its settings and a card into a new folder; the folder.

    With `video` an episode of the first seed's policy is played and filmed for the card.
    """
    target = Path(folder).absolute()
    if exists(target):
        raise FolderTaken(f"{target} is there already; choose another name")
    config = run.config.to_json()
    if config["agent"].get("ppo", {}).get("body"):
        raise ConfigError("networks of your own need their code: save the run folder with run.save instead")
    if not run.is_finished:
        raise ConfigError(f"{run.path} is not finished: pcpg.resume({str(run.path)!r})")
    arrays = encode_arrays(
        {
            f"{at}/final{name}": leaf
            for at, one in enumerate(run.policies)
            for name, leaf in flatten(one.network).items()
        }
    )
    make_folder(target)
    if video:
        run.video(target / VIDEO)
    write_file(target / ARRAYS, arrays)
    about = {
        "config": config,
        "environment": describe(run.config.env, run.env, run.config.seed_list),
        "returns": run.summary["final_return"],
        "sha256": hashlib.sha256(arrays).hexdigest(),
    }
    write_json(target / MODEL, about)
    write_file(target / CARD, _card(run, video).encode("utf-8", "replace"))
    return target


def load(folder: str | Path) -> Model:
    """The policies in a folder that `export` wrote; a file that was altered is refused."""
    path = Path(folder).absolute()
    about = read_json(path / MODEL).content
    with understood(path / MODEL):
        config, env = about["config"], _environment(about)
        read = RunConfig.from_json(config, env)
        returns = about["returns"]
        if not is_list_of(returns, *NUMBER) or len(returns) != len(read.seed_list):
            raise ValueError(f"expected the returns of {len(read.seed_list):,} seeds, got {returns!r:.60}")
        sha256 = str(about["sha256"])
    arrays = read_arrays(path / ARRAYS, sha256)
    check_networks(path / ARRAYS, [arrays], read, env)
    with understood(path / ARRAYS):
        networks = policies_of(arrays, read, env, "final", range(len(returns)))
    return Model([Policy(network, env) for network in networks], config, returns)


def _environment(about: Json) -> Environment:
    """The library's own environment by its options, or what is recorded of another."""
    config = about["config"]
    own = not at_home("pcpg.envs.adapters.names:is_adapted")(config["env"])
    return make(config["env"], **config["env_options"]) if own else recorded(config["env"], about["environment"])


def _card(run: Run, video: bool) -> str:
    """The model card."""
    data = read_run(run.path)
    rows = [f"| {seed} | {number(value)} |" for seed, value in data.final_returns.items()]
    command = repeat(data)
    return "\n".join(
        [
            *("---", "library_name: pcpg", "tags:", "- reinforcement-learning", f"- {run.config.algo}", "---", ""),
            *(f"# {data.algo} on {data.env_key}", ""),
            *([f"![An episode of the policy]({VIDEO})", ""] if video else []),
            *(f"- {said}" for said in verdict(data).said),
            *("", "| seed | final return |", "|---|---|", *rows, ""),
            *(f"Environment steps per seed: {data.steps_per_seed:,}. Made with pcpg {data.versions.get('pcpg')}.", ""),
            *("```python", "import pcpg", "", 'policy = pcpg.hub.load("THIS FOLDER").policy'),
            *("action = policy.act(observation, greedy=True)", "```", ""),
            *(
                ["Every setting is in `pcpg.json`. Made again from the run folder:", "", f"    {command}", ""]
                * bool(command)
            ),
        ]
    )
