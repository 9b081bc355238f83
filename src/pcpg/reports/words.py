"""Numbers and names as the page says them."""

from pcpg.reports.reading import RunData
from pcpg.reports.statistics import Interval


def run_labels(runs: list[RunData]) -> list[str]:
    """A name for each run: the algorithm, and the folder where two runs share one."""
    names = [run.algo for run in runs]
    return [
        f"{name} ({run.path.name})" if names.count(name) > 1 else name for name, run in zip(names, runs, strict=True)
    ]


def number(value: float) -> str:
    """Three digits, with a true minus sign."""
    if value == 0:
        return "0"
    size = abs(value)
    text = f"{value:,.0f}" if size >= 1000 else f"{value:.3g}" if size < 1 else f"{value:.2f}"
    return text.replace("-", "\u2212")


def steps_text(steps: float) -> str:
    """A number of steps in thousands or millions."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(steps) >= size:
            return f"{steps / size:.3g}{letter}"
    return f"{steps:.0f}"


def interval_text(interval: Interval | None) -> str:
    """A value with its interval, as in 0.75 [0.53, 0.89]."""
    if interval is None:
        return "\u2013"
    return f"{number(interval.value)} [{number(interval.low)}, {number(interval.high)}]"


def range_text(values: list[int]) -> str:
    """The least and the largest of some counts, or the one that all are."""
    if not values:
        return "\u2013"
    return str(min(values)) if min(values) == max(values) else f"{min(values)} to {max(values)}"


def duration(seconds: float) -> str:
    """A time in words short enough for a table."""
    for size, unit in ((3600.0, "h"), (60.0, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def listed(words: list[str]) -> str:
    """Words as in a sentence: a, b and c."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
