"""`pcpg envs`."""

import dataclasses

from rich.console import Console

from pcpg.cli.flags import Flag, JsonFlag
from pcpg.cli.output import answer, loading, print_json


@dataclasses.dataclass(frozen=True)
class Envs:
    """List the environments that can be trained on, with their options."""

    all: Flag = False
    """The probes that tests use as well."""
    json: JsonFlag = False

    def __call__(self, console: Console) -> int:
        with loading(console):
            from pcpg.cli.display import envs_table
            from pcpg.envs.registry import spec
        entries = [entry for entry in spec() if self.all or not entry.hidden]
        answer(console, self.json).print(envs_table(entries))
        listing = [
            {
                "id": entry.id,
                "summary": entry.summary,
                "options": {option.name: None if option.required else option.default for option in entry.options},
                "observation_space": entry.observation_space,
                "action_space": entry.action_space,
                "max_steps": entry.max_steps,
            }
            for entry in entries
        ]
        print_json({"envs": listing}, self.json)
        return 0
