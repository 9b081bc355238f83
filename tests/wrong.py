"""Wrong commands and wrong calls by the hundred: `python -m tests.wrong --commands 200 --calls 60`.

Commands come from the table of commands and the flags of each, so a new flag gets its wrong values by itself; calls
come from the signatures of the public functions. A mistake is refused in one line and leaves nothing behind: a
traceback, an abort, a second line, a file, or a wrong value that is taken is a defect.
"""

import argparse
import contextlib
import functools
import inspect
import io
import os
import random
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple, get_args, get_type_hints

import pcpg
from pcpg.algorithms import ALGORITHMS
from pcpg.cli.flags import Flag, Part
from pcpg.cli.main import COMMANDS, FreeCommand, Group, main
from pcpg.cli.train_flags import FeatureFlags, TrainFlags
from pcpg.config import allows, alternatives
from pcpg.presets import preset
from pcpg.runs.errors import RunError

LOCK = "CombinationLock-v0"
TINY = {"ppo": {"num_updates": 1, "num_episodes": 16, "hidden": [8]}}
PCPG = TINY | {"explore": {"max_policies": 2, "visit_episodes": 16, "num_groups": 4}, "exploit": {"num_rounds": 1}}
SECONDS = 20

NUMBERS = {
    int: ("x", "", "1.5", "nan", "１", "0x10", "1" + "0" * 30, "-" + "9" * 30, "1_0_", "None "),
    float: ("x", "", "nan", "inf", "1e999", "１.0", "1,5", "--1"),
}
PATHS = ("a\0b", "/dev/null", "/dev/full", "/dev/null/x", "x" * 300)
UNKNOWN = ("--", "--=", "--nope", "---", "-x", "--json=maybe", "stray", "１", "\udcff", "\0")


class Outcome(NamedTuple):
    """How a mistake ended: refused, or what was wrong with the answer."""

    how: str
    said: str


# Commands.


def kinds_of(flag: Flag) -> tuple[Any, ...]:
    return tuple(inner for kind in flag.kinds for inner in (get_args(kind) if get_args(kind) else (kind,)))


def wrong_values(flag: Flag) -> Iterator[list[str]]:
    """Words that are no value of a flag."""
    kinds = kinds_of(flag)
    if flag.is_switch:
        yield [f"{flag.name}=maybe"]
        return
    if not flag.arg.positional:
        yield [flag.name + "x", "1"]
        if not flag.takes_many:
            yield [flag.name]
    values: list[str] = []
    if int in kinds or float in kinds:
        values += NUMBERS[float if float in kinds else int] if str not in kinds else ()
    elif Path in kinds or flag.arg.metavar in ("DIR", "FILE") or flag.name == "--out":
        values += PATHS
    elif all(isinstance(kind, str) for kind in kinds if kind not in (NoneType, ...)):
        values += ("nope", "", "１")
    else:
        values += ("a\0b", "\udcff")
    yield from ([value] if flag.arg.positional else [f"{flag.name}={value}"] for value in values)


def commands(run: Path, config: Path) -> Iterator[list[str]]:
    """Every wrong command line."""
    yield from ([word] for word in ("trian", "", "--nope", "-x", "\0", "\udcff", "help me", "train "))
    for name, command in COMMANDS.items():
        if isinstance(command, Group):
            yield from ([name, word] for word in ("nope", "", "--nope", "\udcff"))
            for member, home in command.members.items():
                module, _, kind = home.partition(":")
                found: Any = getattr(__import__(module, fromlist=[kind]), kind)
                kind = found if isinstance(found, type) else found.flags  # of a claim
                yield from wrong([name, member], Part(kind).sections()[0].flags, [])
        elif not isinstance(command, FreeCommand):
            module, _, kind = command.home.partition(":")
            flags = Part(getattr(__import__(module, fromlist=[kind]), kind)).sections()[0].flags
            yield from wrong([name], flags, [str(run)] if any(flag.arg.positional for flag in flags) else [])
    start = ["train", LOCK, "--config", str(config)]
    for part in (Part(TrainFlags), Part(FeatureFlags), Part(type(pcpg.make(LOCK)), pcpg.make(LOCK), "env")):
        yield from (words for section in part.sections() for words in wrong(start, section.flags, []))
    for algo in ALGORITHMS:
        settings = preset(LOCK, algo)
        for section in Part(type(settings), settings).sections():
            yield from wrong(["train", LOCK, "--algo", algo, "--steps", "1M"], section.flags, [])
    logged = (*PATHS, str(config), "minari:", "minari:nope/nope-v0")
    yield from (["train", LOCK, "--algo", "sac", "--steps", "1M", "--data", value] for value in logged)
    yield from wrong(["exploit", str(run)], [], [])
    yield from wrong(["look", LOCK], Part(type(pcpg.make(LOCK)), pcpg.make(LOCK), "env").sections()[0].flags, [])


def wrong(start: list[str], flags: Sequence[Flag], rest: list[str]) -> Iterator[list[str]]:
    """A command with each of its flags wrong, one at a time."""
    for flag in flags:
        for words in wrong_values(flag):
            yield [*start, *([] if flag.arg.positional else rest), *words]
    yield from ([*start, *rest, word] for word in UNKNOWN)


def answer_of(words: list[str]) -> Outcome:
    """How a command line ends, in this process."""
    code, out, err = -1, io.StringIO(), io.StringIO()
    before = left()
    try:
        with at_most(SECONDS), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main(words)
    except SystemExit as done:
        code = int(done.code or 0)
    except Hang:
        return Outcome("taken: it runs", "")
    except BaseException:
        return Outcome("traceback", traceback.format_exc()[-1500:])
    said = err.getvalue()
    if (more := left() - before) and code:
        return Outcome("leaves something behind", f"{sorted(more)} {said}")
    if code == 0:
        return Outcome("taken", said[-200:])
    if "Traceback" in said:
        return Outcome("traceback", said[-1500:])
    if code != 2 or said.count("\n") != 1:
        return Outcome(f"code {code}, {said.count(chr(10))} lines", said[-600:])
    return Outcome("refused", said.strip())


def left() -> set[str]:
    """What lies in the current folder."""
    return {str(path) for path in Path().rglob("*")}


class Hang(BaseException):
    """Something took longer than it may."""


@contextlib.contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """Raise Hang inside after so many seconds."""

    def expire(*_: Any) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, expire)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


# Calls.

LONG = "x" * 300
VALUES: tuple[Any, ...] = (-1, 1.5, 10**30, float("nan"), float("-inf"), "", "a\0b", LONG, b"x", {}, [1], object())
USED = {"ppo": {"num_updates": 1, "num_episodes": 16, "hidden": [8]}, "budget": 100, "visit_episodes": 16}


def calls(run: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Every wrong call of a public function, with its words."""
    made = pcpg.load(run)
    whole: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
        "train": (pcpg.train, {"env": LOCK, "algo": "ppo", "horizon": 2, "config": USED, "out": "made"}),
        "exploit": (pcpg.exploit, {"run": run, "out": "made", "config": {"exploit": {"num_rounds": 1}}}),
        "resume": (pcpg.resume, {"path": run}),
        "load": (pcpg.load, {"path": run}),
        "make": (pcpg.make, {"env_id": LOCK}),
        "evaluate": (made.evaluate, {"episodes": 2}),
        "act": (made.policy.act, {"observation": made.env.observation_space.low * 0}),
        "cover_policies": (made.cover_policies, {}),
    }
    for name, (function, given) in whole.items():
        parameters = inspect.signature(function).parameters
        for parameter in parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                yield f"{name}(horizonn=3)", lambda f=function, g=given: f(**g, horizonn=3)
                continue
            for value in filter(functools.partial(is_wrong, function, parameter), VALUES):
                words = f"{name}({parameter.name}={value!r:.40})"
                yield words, lambda f=function, g=given, p=parameter.name, v=value: f(**(g | {p: v}))


def is_wrong(function: Callable[..., Any], parameter: inspect.Parameter, value: Any) -> bool:
    """Whether no function can mean a value: of another kind, out of every range, or a path that there cannot be."""
    kinds = alternatives(get_type_hints(function)[parameter.name])
    if Any in kinds or object in kinds:
        return False
    return (
        not any(allows(kind, value) for kind in kinds) or (int in kinds and value == 10**30) or value in ("a\0b", LONG)
    )


def answer_of_call(call: Callable[[], Any]) -> Outcome:
    """How a call ends."""
    before = left()
    try:
        with at_most(SECONDS), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call()
    except Hang:
        return Outcome("taken: it runs", "")
    except (ValueError, TypeError, RunError, OSError, KeyError) as error:
        frames = traceback.extract_tb(error.__traceback__)
        ours = [Path(frame.filename) for frame in frames if "pcpg" in Path(frame.filename).parts]
        last, said = Path(frames[-1].filename), str(error)
        if not ours or last != ours[-1] or "\n" in said or isinstance(error, KeyError | OSError):
            return Outcome("traceback", "".join(traceback.format_exception(error))[-1500:])
        if more := left() - before:
            return Outcome("leaves something behind", f"{sorted(more)} {said}")
        return Outcome("refused", f"{type(error).__name__}: {said}")
    except BaseException:
        return Outcome("traceback", traceback.format_exc()[-1500:])
    return Outcome("taken", "")


def tried(commands_: int, calls_: int, seed: int, say: Callable[[str], None] = print) -> list[str]:
    """Try so many wrong commands and calls, drawn at random; those that were not refused in one line."""
    rng, bad = random.Random(seed), []
    with tempfile.TemporaryDirectory(prefix="pcpg-wrong-") as folder, contextlib.chdir(folder):
        os.environ["COLUMNS"] = "100"
        run = pcpg.train(LOCK, "pcpg", horizon=2, config=PCPG, out="run").path.rename("kept").absolute()
        config = Path("tiny.json").absolute()
        config.write_text('{"algo": "ppo", "env_options": {"horizon": 2}, "agent": {"budget": 100}}')
        Path("here").mkdir()
        os.chdir("here")
        lines, wrong_calls = list(commands(run, config)), list(calls(run))
        many = [(" ".join(map(repr, words)), lambda words=words: answer_of(words)) for words in lines]
        more = [(words, lambda call=call: answer_of_call(call)) for words, call in wrong_calls]
        chosen = [*rng.sample(many, min(commands_, len(many))), *rng.sample(more, min(calls_, len(more)))]
        say(f"{len(many)} wrong commands and {len(more)} wrong calls, of which {len(chosen)} are tried")
        for words, ask in chosen:
            outcome = ask()
            os.chdir(Path(folder) / "here")
            for path in Path().iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            if outcome.how != "refused":
                bad.append(f"{outcome.how}: {words}\n    {outcome.said}")
                say(bad[-1])
    return bad


def main_() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--commands", type=int, default=200)
    parser.add_argument("--calls", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    flags = parser.parse_args()
    bad = tried(flags.commands, flags.calls, flags.seed)
    print(f"{len(bad)} were not refused in one line")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main_())
