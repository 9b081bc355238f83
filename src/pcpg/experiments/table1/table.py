"""The table as Markdown: the paper's rows, two measured columns beside the theorems, and the numbers behind them."""

from typing import NamedTuple

from pcpg.experiments.harness import Record
from pcpg.experiments.table1.measures import METHODS
from pcpg.experiments.table1.problems import MISSPECIFIED
from pcpg.experiments.table1.settings import FAMILIES
from pcpg.theory.learners.registry import COMPARATORS, Row

Lines = list[str]


class Theorem(NamedTuple):
    """What is proved of a row: samples to an epsilon-optimal policy from s0, and what error it tolerates."""

    samples: str
    error: str


POLYNOMIAL = "polynomial in S, A, H, 1/eps"
THEOREMS: dict[Row, Theorem] = {
    "model-based": Theorem(POLYNOMIAL, "l-infinity"),
    "Thompson sampling": Theorem(POLYNOMIAL, "l-infinity"),
    "epsilon-greedy": Theorem("A^H at least", "l-infinity"),
    "optimistic Q-learning": Theorem(POLYNOMIAL, "l-infinity of Q*"),
    "policy optimisation": Theorem("A^H at least", "open"),
    "optimistic policy optimisation": Theorem(POLYNOMIAL, "l-infinity"),
    "PC-PG": Theorem(POLYNOMIAL, "local: averaged over the optimal path"),
    "linear": Theorem("polynomial in d, H, 1/eps", "l-infinity"),
    "policy search with restarts": Theorem(
        "polynomial only if restarts cover the states", "averaged over the restarts"
    ),
}


def name_of(algo: str, found: Record) -> str:
    """The name of an algorithm, marked where its paper's restarts are replaced by s0."""
    return COMPARATORS[algo].label + (" (s0)" if found["assumes_restarts"] else "")


def short(samples: float) -> str:
    """A number of samples in three digits."""
    for limit, unit in ((1e6, "M"), (1e3, "k")):
        if samples >= limit:
            return f"{samples / limit:.3g}{unit}"
    return f"{samples:.0f}"


def _grid(head: list[str], rows: list[list[str]]) -> Lines:
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(row) + " |" for row in rows)]


def tables(summary: Record) -> str:
    """Everything as one page."""
    parts = [
        main_table(summary),
        _fits(summary),
        _samples(summary),
        _losses(summary),
        _trees(summary),
        _provenance(summary),
    ]
    return "\n".join(part for part in parts if part)


def main_table(summary: Record) -> str:
    """The paper's table, a line an algorithm: what is proved, and what was measured."""
    rows, last = [], None
    for algo, found in summary["algos"].items():
        theorem = THEOREMS[found["row"]]
        row = "" if found["row"] == last else found["row"] + (", beside the table" if found["extra"] else "")
        last = found["row"]
        samples, error = found["verdict"]["samples"], found["verdict"]["error"]
        rows.append(
            [row, name_of(algo, found), theorem.samples, _growths(found, samples), theorem.error, _error(found, error)]
        )
    head = [
        "row of the paper",
        "algorithm",
        "samples, theorem",
        "samples, measured",
        "error, theorem",
        "error, measured",
    ]
    return "\n".join(["# Table 1, measured", "", *_grid(head, rows), "", *_notes(summary), ""])


def _growths(found: Record, verdict: Record) -> str:
    laws = [f"{family} {_growth(part)}" for family, part in found["exploration"].items()]
    return "; ".join(laws) + f": **{verdict['says']}**" if laws else "-"


def _growth(part: Record, *, intervals: bool = False) -> str:
    growth, points = part["growth"], part["points"]
    if not any(point["reached"] for point in points):
        return f"> {short(points[0]['budget'])} from the start"
    limit = f", > {short(points[-1]['budget'])} at {points[-1]['size']}" if not points[-1]["reached"] else ""
    if growth is None:
        return f"{short(points[0]['median'] or points[0]['low'])} at {points[0]['size']}{limit}"
    if growth["law"] == "exponential":
        interval = f" [{growth['base_low']:.2g}, {growth['base_high']:.2g}]" if intervals else ""
        return f"{growth['base']:.2g}^H{interval}{limit}"
    mark = "" if growth["law"] == "polynomial" else "?"
    interval = f" [{growth['exponent_low']:.1f}, {growth['exponent_high']:.1f}]" if intervals else ""
    return f"H^{growth['exponent']:.1f}{mark}{interval}{limit}"


def _error(found: Record, verdict: Record) -> str:
    if verdict["measured"] is None:
        return verdict["says"]
    theorem = THEOREMS[found["row"]].error
    if verdict["measured"] == "l-infinity":
        note = ": **disagrees**" if theorem.startswith("local") else ""
        return f"{verdict['measured']}, {verdict['says']}{note}"
    note = ": **agrees**" if theorem.startswith("local") else ", better than proved" if "l-inf" in theorem else ""
    return f"{verdict['measured']}{note}"


def _notes(summary: Record) -> Lines:
    protocol = summary["protocol"]
    tuned = ", ".join(f"{family} {size}" for family, size in protocol["tuning_sizes"].items())
    return [
        "Samples, measured: growth with the size H of the lock (horizon), the chain (length) and Deep Sea (size), by",
        f"maximum likelihood with censored runs (budget {short(protocol['budget'])} samples per seed). `H^b` is a",
        "power law, `c^H` an exponential one, whichever fits better by AIC; `?`: neither is preferred. Each algorithm",
        f"has one factor of its own constants, tuned on other seeds at one size of each problem ({tuned}),",
        "far below its theorem's where it has any: with the theorem's own few finish within their budget (last column",
        "of the samples below). A theorem does not cover the tuned factor: where the measurement **disagrees**,",
        "the factor of one size may not suit another. Epsilon is a share of what is to be gained, which shrinks with",
        f"the size{_shrinks(summary)}: an exponential no steeper than 1/epsilon^2 agrees with a",
        "theorem that is polynomial in 1/epsilon.",
        "",
        "Error, measured: `local` lost by errors on the optimal path alone, `l-infinity` by errors off it too, the",
        "largest loss beside it. A theorem on errors is an upper bound, which losing less does not contradict; one",
        "problem where an algorithm keeps its path does not prove that it always does.",
        "",
        "(s0): its paper restarts from a distribution that covers the states, or queries a model; here it gets s0",
        "alone. NPG and MD-MPI are proved under such distributions too. PC-PG's claim is polynomial and robust, not",
        f"fastest: it is expected to need more samples than UCBVI or PSRL on tabular problems.{_slower(summary)}",
    ]


def _fits(summary: Record) -> str:
    """The fitted growth on each problem, with its interval."""
    rows = [
        [name_of(algo, found), *(_growth(part, intervals=True) for part in found["exploration"].values())]
        for algo, found in summary["algos"].items()
        if set(found["exploration"]) == set(FAMILIES)
    ]
    if not rows:
        return ""
    text = ["## Growth of the samples with the size", "", "95% bootstrap intervals over seeds.", ""]
    return "\n".join([*text, *_grid(["algorithm", *FAMILIES], rows), ""])


def _shrinks(summary: Record) -> str:
    """By which base 1/epsilon^2 grows on each problem, from the algorithm that was run at most sizes."""
    bases = []
    for family in FAMILIES:
        parts = [found["exploration"][family] for found in summary["algos"].values() if family in found["exploration"]]
        longest = max(parts, key=lambda part: len(part["points"]), default=None)
        bases += [f"{family} {longest['precision_base']:.2f}^H"] if longest else []
    return f" (1/epsilon^2 grows as {', '.join(bases)})" if bases else ""


def _slower(summary: Record) -> str:
    """How many times the samples of the faster of UCBVI and PSRL PC-PG took, where all got there."""
    algos = summary["algos"]
    ratios = []
    for family in FAMILIES:
        ours = _medians(algos.get("pcpg"), family)
        theirs = [_medians(algos.get(name), family) for name in ("ucbvi", "ucbvi-bernstein", "psrl")]
        for size, samples in ours.items():
            found = [medians[size] for medians in theirs if size in medians]
            ratios += [samples / min(found)] if found else []
    if not ratios:
        return ""
    return f" Measured: {short(min(ratios))} to {short(max(ratios))} times the faster of theirs."


def _medians(found: Record | None, family: str) -> dict[int, float]:
    part = found["exploration"].get(family) if found else None
    return {point["size"]: point["median"] for point in part["points"] if point["median"]} if part else {}


def _samples(summary: Record) -> str:
    """The samples to epsilon at each size, and with the constants of the papers."""
    lines = []
    for family in FAMILIES:
        sizes = summary["protocol"]["sizes"][family]
        rows = []
        for algo, found in summary["algos"].items():
            part = found["exploration"].get(family)
            if part is None:
                continue
            points = {point["size"]: point for point in part["points"]}
            cells = [_point(points.get(size), size in part["beyond"]) for size in sizes]
            rows.append(
                [name_of(algo, found), f"{found['factor']:.3g}", *cells, _constants(found["theory"].get(family))]
            )
        if rows:
            head = ["algorithm", "factor", *(f"{size}" for size in sizes), f"papers' constants, at {sizes[0]}"]
            lines += ["", f"### {family}", "", *_grid(head, rows)]
    if not lines:
        return ""
    head = [
        "## Samples to an epsilon-optimal policy",
        "",
        f"Median over seeds with the tuned factor; epsilon is {summary['protocol']['epsilon']}.",
        "`n/N`: seeds that got there, where not all did; `>`: the median lies beyond the budget. Sizes beyond one",
        "where no seed got there are not run.",
    ]
    return "\n".join([*head, *lines, ""])


def _point(point: Record | None, beyond: bool) -> str:
    if point is None:
        return "not run" if beyond else "-"
    share = "" if point["reached"] == point["seeds"] else f" ({point['reached']}/{point['seeds']})"
    return (f"> {short(point['budget'])}" if point["median"] is None else short(point["median"])) + share


def _constants(part: Record | None) -> str:
    if part is None:
        return "states none"
    return f"> {short(part['budget'])}" if part["median"] is None else short(part["median"])


def _losses(summary: Record) -> str:
    """The losses of B by problem and error."""
    some = next((found["misspecification"] for found in summary["algos"].values() if found["misspecification"]), None)
    if some is None:
        return ""
    head, rows = ["algorithm"], []
    for problem in MISSPECIFIED:
        head += [f"{problem} {row['kappa']:g}" for row in some[problem]]
    for algo, found in summary["algos"].items():
        parts = found["misspecification"]
        if set(parts) == set(MISSPECIFIED):
            rows.append(
                [name_of(algo, found), *(f"{row['loss']:.3f}" for problem in MISSPECIFIED for row in parts[problem])]
            )
    text = [
        "## Loss by misspecified aggregation",
        "",
        "Mean final loss (the optimal return is 1) against the error kappa, with the best of the factors tried. `mix`",
        "and `wait` have their error off the optimal path, where who is deluded loses kappa/3 and kappa/2; `local` has",
        "it on the path, where everybody loses kappa/2 at least.",
        f"{short(summary['protocol']['error_budget'])} samples per seed.",
        "",
    ]
    return "\n".join([*text, *_grid(head, rows), ""])


def _trees(summary: Record) -> str:
    """The values on the trees."""
    if not summary["trees"]:
        return ""
    rows = [
        [
            row["features"],
            str(row["depth"]),
            *(f"{row['value'][name]:.3f} ({row['least'][name]:.3f})" for name in METHODS),
        ]
        for row in summary["trees"]
    ]
    text = [
        "## The binary tree",
        "",
        "Discounted value reached, mean over trees (least); going left is worth 0.5 and is optimal.",
        "",
    ]
    return "\n".join([*text, *_grid(["features", "depth", *METHODS], rows), ""])


def _provenance(summary: Record) -> str:
    commands = "; ".join(f"`{command}`" for command in summary["commands"])
    commits = ", ".join(commit[:7] for commit in summary["commits"])
    return (
        f"Made by {commands} on {', '.join(summary['devices'])} in {summary['core_minutes']:.0f} core-minutes, the "
        f"first cell written at {summary['from']}, the last at {summary['to']}, commit {commits}.\n"
    )
