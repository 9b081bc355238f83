"""Live progress of a run in a terminal; plain lines otherwise.

What needs JAX is imported for its types alone: this module loads at once.
"""

import contextlib
import functools
import logging
import select
import sys
import time
import typing
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pcpg.config import Json

if typing.TYPE_CHECKING:
    from pcpg.algorithms import Cost
    from pcpg.run_config import RunConfig
    from pcpg.training.loop import Progress

QUIET_SECONDS = 10.0
"""Shortest time between two lines if the output is not a terminal."""
LATE = 0.2
"""By this share of its estimated time a run may be late before the display says so."""
LOG = logging.getLogger("pcpg")
"""Messages of the library in Python: on stderr, unless the program has set up logging."""


class _Stderr(logging.StreamHandler[typing.TextIO]):
    """Writes to the current stderr, which notebooks and tests replace."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def tell(*lines: str) -> None:
    """Log lines from Python."""
    if not LOG.handlers and not logging.getLogger().handlers:
        LOG.addHandler(_Stderr())
        LOG.setLevel(logging.INFO)
    for line in lines:
        LOG.info(printable(line))


def say(console: Console, text: str, style: str | None = None) -> None:
    """Print a line without highlighting, wrapping or markup; a closed pipe is ignored."""
    try:
        console.print(printable(text), style=style, markup=False, emoji=False, highlight=False, soft_wrap=True)
    except (OSError, SystemExit):  # the second is Rich's way to tell of a closed pipe
        # Training continues without its screen: a closed pipe or a full disk behind it is no reason to stop.
        if not console.stderr and not reader_has_gone(console.file):
            raise


def printable(text: str) -> str:
    """A text without terminal control codes: names in a run folder are untrusted."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else _code_of(letter) for letter in text)


def one_line(text: str) -> str:
    """A text whose line breaks are shown as codes: what a stranger named begins no line."""
    return text.replace("\n", "\\n")


def _code_of(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")


def reader_has_gone(stream: IO[str]) -> bool:
    """Whether the reader of a stream is gone, as in `pcpg envs --json | head`."""
    if not hasattr(select, "poll"):
        return True
    poll = select.poll()
    poll.register(stream.fileno(), 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


class Display:
    """Live progress of a run, with its rounds and newest numbers; plain lines without a terminal."""

    def __init__(self, console: Console, title: str, line: Callable[[str], None] | None = None) -> None:
        self.console, self.title = console, printable(title)
        self.line = line or functools.partial(say, console)
        self.began = time.monotonic()
        self.progress: Progress | None = None
        self.end: float | None = None  # by which the run was said to end
        self.left = ""
        self.last_line: float | None = None
        # Redrawn four times a second, so the clock runs on between two rounds.
        self.live = Live(get_renderable=self._draw, console=console, refresh_per_second=4)

    @staticmethod
    @contextlib.contextmanager
    def of_python(title: str, wanted: bool | None, quiet: bool) -> Iterator["Display | None"]:
        """The progress of a run from Python: live in a terminal, otherwise as log lines, or on stderr if asked for."""
        if wanted is False or (quiet and wanted is None):
            yield None
            return
        lines = None if wanted else tell
        with Display(Console(stderr=True), title, lines) as display:
            yield display

    def __enter__(self) -> "Display":
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Leave the last state on the screen and restore the cursor."""
        if self.live.is_started:
            with contextlib.suppress(OSError, SystemExit):  # the terminal may be gone
                self.live.stop()

    def __call__(self, progress: "Progress") -> None:
        """Show the newest round."""
        self.progress = progress
        now = time.monotonic()
        self.left = self._time_left(progress, now)
        is_due = self.last_line is None or now - self.last_line > QUIET_SECONDS
        if not self.console.is_terminal and is_due and (progress.records or not progress.compiled):
            self.last_line = now
            self.line(f"{self.title}: {summary_line(progress, self.left, self.reward)}")

    def _time_left(self, progress: "Progress", now: float) -> str:
        """The time left, which never increases unsaid: a run that takes longer says so."""
        if progress.seconds_left is None:
            return status(progress)
        end = now + progress.seconds_left
        if self.end is not None and end > self.end + LATE * (self.end - self.began):
            self.end = end
            late = f"taking longer than estimated: about {duration(progress.seconds_left)} left"
            return late if progress.step < progress.max_steps else status(progress)
        self.end = end if self.end is None else min(end, self.end)
        return status(progress, max(0.0, self.end - now))

    @property
    def reward(self) -> str:
        """Whether the reward was met."""
        met = {} if self.progress is None else self.progress.met
        if not met:
            return ""
        steps = [at for at in met.values() if at is not None]
        if not steps:
            return "reward not met yet"
        many = f" by {len(steps)} of {len(met)} seeds" if len(met) > len(steps) else ""
        first = min(steps)
        return f"reward met{many}" + (f", first after {short(first)} steps" if first else "")  # 0: in the given data

    def _draw(self) -> RenderableType:
        progress = self.progress
        clock = Text(f"{clock_time(time.monotonic() - self.began)} elapsed", style="dim")
        top = Table.grid(padding=(0, 2))
        if progress is None:
            top.add_row(Text(self.title, style="bold"), "starting", clock)
            return top
        bar = ProgressBar(total=max(progress.max_steps, 1), completed=progress.step, width=24)
        top.add_row(Text(self.title, style="bold"), bar, round_text(progress))
        state = Text("; ".join(filter(None, [self.left, self.reward])), style="" if progress.compiled else "yellow")
        numbers = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        if progress.records:
            values = newest(progress)
            for name in values:
                numbers.add_column(name, no_wrap=True)
            numbers.add_row(*values.values())
        return Group(top, numbers, Text.assemble(clock, ", ", state))


def title_of(config: Json) -> str:
    """A short title of a run."""
    first, last = config["seed"], config["seed"] + config["seeds"] - 1
    seeds = f"seed {first}" if first == last else f"seeds {first} to {last}"
    return f"{config['algo']} on {config['env']}, {seeds}"


def round_text(progress: "Progress") -> str:
    """The number of finished rounds and the maximum."""
    return f"round {progress.step} of at most {progress.max_steps}"


def status(progress: "Progress", left: float | None = None) -> str:
    """The current activity or the remaining time."""
    if progress.step >= progress.max_steps:
        return "done"
    if not progress.compiled:
        return "compiling: once for these settings, then cached for later runs"
    if progress.seconds_left is None:
        return "time left: unknown until the first round finishes"
    return f"at most {duration(max(1.0, progress.seconds_left if left is None else left))} left"


def newest(progress: "Progress") -> dict[str, str]:
    """The numbers of the newest round of each seed, lowest to highest over the seeds."""
    records = progress.records
    speed = progress.env_steps / max(progress.seconds, 1e-9)
    values = {
        "phase": " and ".join(dict.fromkeys(str(record["phase"]) for record in records)) or "-",
        "policies": _span(records, "policies", "{:.0f}"),
        "steps per seed": _span(records, "env_steps", "{:,.0f}"),
        "steps/s": f"{speed:,.0f}" if progress.env_steps else "-",
        "bonus": _span(records, "train/bonus", "{:.3g}"),
        "return": _span(records, "return", "{:.2f}"),
        "coverage": _span(records, "coverage", "{:.0%}"),
    }
    # Baselines have no cover, and some environments no grid cells.
    absent = [name for name in ("policies", "coverage") if not any(name in record for record in records)]
    return {name: value for name, value in values.items() if name not in absent}


def summary_line(progress: "Progress", left: str, reward: str = "") -> str:
    """The newest round in one line."""
    values = newest(progress) if progress.records else {}
    numbers = ", ".join(f"{name} {value}" for name, value in values.items() if value != "-")
    return "; ".join(part for part in (round_text(progress), numbers, reward, left) if part)


def _span(records: Iterable[Json], name: str, form: str) -> str:
    """Lowest to highest over the seeds."""
    values = [record[name] for record in records if record.get(name) is not None]
    if not values:
        return "-"
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low} to {high}"


def duration(seconds: float) -> str:
    """A duration short enough for a line."""
    if seconds < 90:
        return f"{max(seconds, 0):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def clock_time(seconds: float) -> str:
    """A time in clock format, such as 1:02:03."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def plan(config: "RunConfig", path: Path) -> list[str]:
    """The environment if it is external, the result of the look, and the schedule with its cost."""
    from pcpg.envs.adapters.names import is_adapted

    env, lines = config.make_env(), []
    if is_adapted(config.env):
        given = {name: value for name, value in config.env_options.items() if name not in ("num_envs", "workers")}
        unset = ("max_steps", "step_timeout")
        options = ", ".join(f"{name} {value}" for name, value in given.items() if value or name not in unset)
        spaces = f"observations {env.observation_space}, actions {env.action_space}"
        said = f" ({options})" if options else ""
        lines.append(f"{config.env}{said}: {spaces}, up to {env.max_steps} steps per episode")
    lines += [*config.looked["saw"], *filter(None, [config.looked["chose"]])] if config.looked else []
    if data := config.data:
        lines.append(f"starts from {data['episodes']:,} logged episodes ({data['steps']:,} steps) of {data['from']}")
    features = f"features {config.features}, " if config.agent.takes_features else ""
    cost = config.agent.cost(env, config.limits)
    parts = [f"plan: {features}{cost.words}; {in_words(cost, config)}", f"all settings: {path / 'config.json'}"]
    return [*lines, "; ".join(parts)]


def in_words(cost: "Cost", config: "RunConfig") -> str:
    """The cost of a run as known before the first round."""
    from pcpg.budget import UNLIMITED

    limits, parts, env = config.limits, [], config.make_env()
    most = limits.steps or cost.most_steps
    if most < UNLIMITED:
        each = f" (a round: up to {short(cost.round_steps)})" if cost.round_steps else ""
        parts.append(f"{'about' if limits.steps or cost.is_estimate else 'at most'} {short(most)} steps per seed{each}")
    if limits.seconds:
        parts.append(f"{duration(limits.seconds)} in total")
    if limits.until is not None:
        parts.append(f"a seed stops at a return of {limits.until:g}")
    elif env.solved_return is None and not env.is_reward_free and not config.source:
        parts.append("--until RETURN (until=) ends it sooner")
    return ", ".join(parts)


def short(number: int) -> str:
    """A number of steps in short form: 950, 12k, 2.5M."""
    for unit, scale in (("B", 10**9), ("M", 10**6), ("k", 10**3)):
        if number >= scale:
            value = number / scale
            return f"{value:.1f}".rstrip("0").rstrip(".") + unit if value < 100 else f"{value:.0f}{unit}"
    return str(number)
