"""Claims that compare arms on worlds: a cell for each seed, so several processes can share them."""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from pcpg.api import Run
from pcpg.run_config import RunConfig
from pcpg_lab.claims import harness
from pcpg_lab.claims.harness import Cell, Claim, each
from pcpg_lab.claims.records import SEED, Record, joined, names_of, panels, refuse_unknown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class World(Protocol):
    """An environment, the steps of a run, and the number of seeds."""

    @property
    def env(self) -> str: ...
    @property
    def steps(self) -> int: ...
    @property
    def seeds(self) -> int: ...


class Arms(NamedTuple):
    """The worlds and the arms of a claim."""

    claim: str
    what: str  # a world is called in records; its flag has an s
    worlds: Mapping[str, World]
    arms: Collection[str]
    scales: Mapping[str, Sequence[str]]  # the worlds of each scale
    smoke_steps: int

    def made(
        self,
        flags: "type[Flags]",
        config: Callable[[str, str, int, int], RunConfig],
        draw: Callable[["Axes", str, list[Record]], None],
        axes: tuple[int, float],  # the most beside one another, and the width of each
        row: Callable[[Record], Record],
        **shown: Any,
    ) -> "Claim[Flags]":
        """The claim: `config` makes a run, `row` a line of the table, and `draw` a panel of the figure."""
        return Claim(
            flags=flags,
            cells=lambda asked, _: self.cells(asked, config),
            order=self.place,
            rows=lambda records: each(row)(self.merged(records)),
            figures=lambda records: self.drawn(records, draw, *axes),
            **shown,
        )

    def cells(self, flags: "Flags", config: Callable[[str, str, int, int], RunConfig]) -> Iterator[Cell]:
        """A run for each world, arm and seed; `config` is from their names, the steps and the seed."""
        is_smoke = flags.scale == "smoke"
        for name in flags.worlds_asked or self.scales[flags.scale]:
            world = self.worlds[name]
            steps = flags.steps or (self.smoke_steps if is_smoke else world.steps)
            for arm in flags.chosen(tuple(self.arms)):
                for seed in range(flags.seed, flags.seed + (flags.seeds or (1 if is_smoke else world.seeds))):
                    command = f"pcpg reproduce {self.claim} --{self.what}s {name} --algos {arm} --steps {steps}"
                    command += f" --seeds 1 --seed {seed}"
                    yield Cell(f"{name}-{arm}{SEED}{seed}", config(name, arm, steps, seed).resolved(), command)

    def facts_of(self, run: Run, episodes: int, metric: str, **entries: object) -> Record:
        """The entries of every record: fresh greedy episodes of the final policy, and one metric of each round."""
        world, arm = names_of(run.path.name, self.worlds)
        return harness.facts_of(
            run,
            name=run.path.name,
            **{self.what: world},
            arm=arm,
            env=run.config.env,
            steps=run.config.limits.steps,
            **entries,
            greedy_return=[float(value) for value in run.evaluate(episodes, greedy=True).mean_return],
            history=harness.histories(run, lambda metrics: [metrics[metric]]),
        )

    def merged(self, records: list[Record]) -> list[Record]:
        """The cells of one world and arm put together."""
        return joined(records, itemgetter(self.what, "arm", "steps"))

    def place(self, record: Record) -> tuple[int, int, int]:
        """The key by which records are sorted."""
        places = list(self.worlds).index(record[self.what]), list(self.arms).index(record["arm"])
        return *places, min(record["seeds"])

    def drawn(
        self, records: list[Record], draw: Callable[["Axes", str, list[Record]], None], most: int, width: float
    ) -> Iterator[tuple[str, "Figure"]]:
        """The figure of a claim, a panel for each world; `draw` draws the records of one."""
        groups = self.merged(records)
        names = [name for name in self.worlds if any(record[self.what] == name for record in groups)]
        if not names:
            return
        figure, axes = panels(names, most, width=width, height=width - 0.5)
        for name, axis in axes.items():
            draw(axis, name, [record for record in groups if record[self.what] == name])
            axis.set(title=name, xlabel="thousand steps")
        axes[names[0]].legend(fontsize=5.5, frameon=False)
        yield self.claim, figure


@dataclasses.dataclass(frozen=True)
class Flags(harness.Flags):
    """The flags of such a claim."""

    steps: int = 0
    """Environment steps per seed; 0: the world's own."""
    of: ClassVar[Arms]

    def __post_init__(self) -> None:
        refuse_unknown(self.of.what, self.worlds_asked, self.of.worlds)
        super().__post_init__()
        if self.steps < 0:
            raise ValueError(f"steps must be 0 (the world's own) or more, got {self.steps}")

    @property
    def known(self) -> Iterable[str]:
        """All arms: not all of them are the default."""
        return self.of.arms

    @property
    def worlds_asked(self) -> Sequence[str]:
        """The worlds that were named; none: those of the scale."""
        return getattr(self, f"{self.of.what}s")
