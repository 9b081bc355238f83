"""The command `pcpg look ENV`."""

import dataclasses
from typing import Annotated

import tyro
from rich.console import Console

from pcpg.cli.display import answer, loading, print_json
from pcpg.cli.flags import JsonFlag, Mistake, free_options, parse
from pcpg.training.display import say


@dataclasses.dataclass(frozen=True)
class LookFlags:
    """Play some episodes at random and say what the environment is like, and what `pcpg train ENV` would choose.

    The environment's options are --env.KEY VALUE, as in `pcpg look CombinationLock-v0 --env.horizon 5`.
    """

    environment: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="ENV", help="Environment id.")]
    seed: int = 0
    """Seed of the episodes, and of the instance where the environment has several."""
    json: JsonFlag = False


def look(arguments: list[str], console: Console) -> int:
    """Look at the environment that is named; the exit code."""
    options, words = free_options(arguments)
    flags = parse(LookFlags, words, "pcpg look")
    if flags.seed < 0:
        raise Mistake(f"seed must be at least 0, got {flags.seed}")
    with loading(console):
        from pcpg.envs.registry import complete_options
        from pcpg.practice.choice import chosen_line, look_and_choose
        from pcpg.practice.look import lines
        from pcpg.training.compile_cache import enable_compile_cache
    enable_compile_cache()
    options = complete_options(flags.environment, options)
    with loading(console, "playing at random ..."):
        found, choice, _, _, said = look_and_choose(flags.environment, options, seed=flags.seed)
    for line in [*lines(flags.environment, found), *said, *([chosen_line(choice)] if choice else [])]:
        say(answer(console, flags.json), line)
    chosen = {"chosen": choice._asdict()} if choice else {}
    print_json({"env": flags.environment} | found._asdict() | {"is_paid": found.is_paid} | chosen, flags.json)
    return 0
