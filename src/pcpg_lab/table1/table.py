"""The table as Markdown: the paper's rows, two measured columns beside the theorems, and the numbers behind them."""

from pcpg_lab.claims.records import Record, markdown
from pcpg_lab.table1.measures import METHODS
from pcpg_lab.table1.problems import MISSPECIFIED
from pcpg_lab.table1.settings import BARE, FAMILIES, NOISY

Lines = list[str]

POLYNOMIAL = "polynomial"
ERRORS: dict[str, str] = {
    "model-based": "l-infinity",
    "Thompson sampling": "l-infinity",
    "epsilon-greedy": "l-infinity",
    "optimistic Q-learning": "l-infinity of Q*",
    "policy optimisation": "open",
    "optimistic policy optimisation": "l-infinity",
    "PC-PG": "local: averaged over the optimal path",
    "linear": "l-infinity",
    "policy search with restarts": "averaged over the restarts",
    "own": "not stated",
}
"""Which error of an aggregation each row of the paper tolerates, by its theorem."""
PAPER: dict[str, str] = {"epsilon-greedy": "A^H at least", "policy optimisation": "A^H at least", "own": "-"}
RESTARTS = "polynomial if restarts cover the states"


def name_of(algo: str, found: Record) -> str:
    """The name of an algorithm, marked where its paper's restarts are replaced by s0."""
    return found["label"] + (" (s0)" if found["assumes_restarts"] else "")


def short(samples: float) -> str:
    """A number of samples in three digits."""
    for limit, unit in ((1e6, "M"), (1e3, "k")):
        if samples >= limit:
            return f"{samples / limit:.3g}{unit}"
    return f"{samples:.0f}"


def tables(summary: Record) -> str:
    """Everything as one page; the first table is the short one, for the README."""
    parts = [
        short_table(summary),
        main_table(summary),
        _accuracies(summary),
        _samples(summary),
        _own_problems(summary),
        _losses(summary),
        _trees(summary),
        _provenance(summary),
    ]
    return "\n".join(part for part in parts if part)


def short_table(summary: Record) -> str:
    """A line for each row of the paper: how many comparisons came out how."""
    rows = []
    for row in dict.fromkeys(found["row"] for found in summary["algos"].values()):
        mine = {algo: found for algo, found in summary["algos"].items() if found["row"] == row}
        extra = ", beside the table" if any(found["extra"] for found in mine.values()) else ""
        names = ", ".join(name_of(algo, found) for algo, found in mine.items())
        theorem = RESTARTS if "restarts" in row else PAPER.get(row, POLYNOMIAL)
        errors = [found["verdict"]["error"] for found in mine.values()]
        off = sum(bool(error["off_path"]) for error in errors)
        judged = sum(error["measured"] is not None for error in errors)
        error = f"{ERRORS[row]}; {off} of {judged} lose by errors off the path" if judged else ERRORS[row]
        rows.append([row + extra, names, theorem, _counted(mine, "exploration"), _counted(mine, "gaps"), error])
    head = ["row of the paper", "algorithms", "samples, theorem", "growth with size", "growth with 1/gap", "error"]
    return "\n".join(["# Table 1, measured", "", markdown(head, rows), *_notes(summary), ""])


def _counted(mine: Record, what: str) -> str:
    counts: dict[str, int] = {}
    for found in mine.values():
        for verdict, number in found["verdict"]["samples"][what].items():
            counts[verdict] = counts.get(verdict, 0) + number
    return ", ".join(f"{number} {verdict}" for verdict, number in counts.items() if number) or "-"


def main_table(summary: Record) -> str:
    """A line an algorithm: its theorem, its growth on each problem beside the theorem's, and its errors."""
    rows = []
    for algo, found in summary["algos"].items():
        cells = [_growth(found["exploration"].get(family)) for family in FAMILIES]
        error = _error(found, found["verdict"]["error"])
        rows.append([name_of(algo, found), found["theorem"], *cells, ERRORS[found["row"]], error])
    head = ["algorithm", "theorem: samples", *FAMILIES, "error, theorem", "error, measured"]
    text = [
        "## Growth with the size, beside the theorem's",
        "",
        "`x21 of x358 (2 to 6)`: median samples grew 21 times from size 2 to size 6, the theorem's polynomial at these",
        "(S, A, L, eps, delta) 358 times. `x12 with a factor each`: from the first size to the last that was run, with",
        "the factor that suits each of the two, where a seed failed. In brackets the share of seeds that got",
        "there at each size, where not all did.",
        "S: states, S_L: states with their time, W: most states at one time, L: decisions, eps: accuracy (see docs).",
        "",
    ]
    return "\n".join([*text, markdown(head, rows), *_controls(summary)])


def _controls(summary: Record) -> Lines:
    """The control rows: which share of their seeds got there, and from where on all of them fail."""
    sizes, rows = summary["protocol"]["sizes"], []
    for budget, found in summary.get("controls", {}).items():
        for name in dict.fromkeys(name for each in found.values() for name in each["reached"]):
            shares = (_shares(found.get(f), name, sizes[f]) for f in FAMILIES)
            rows.append([f"{summary['algos'][name]['label']}, {short(int(budget))}", *shares])
        places = [f"**{found[f]['from'] or 'never'}**" if f in found else "-" for f in FAMILIES]
        rows += [[f"all fail at {short(int(budget))} from", *places]] if found else []
    if not rows:
        return []
    head = ["without exploration", *(f"{f}: {', '.join(map(str, sizes[f]))}" for f in FAMILIES)]
    said = [
        "",
        "Controls: the share of seeds that got there at each size, within the budget of A and within the longer one",
        "that PC-PG and the controls have. Growth that ends before the first size from which on fewer than half of the",
        "seeds of every control do, within the same budget, says nothing: `no power`. `(0.9 / 0.02 / 0.01)`: a table",
        "drawn from the theorem's polynomial has this verdict with chance 0.9, one in which samples grow as those of",
        "uniform play with chance 0.02, and in 0.01 of the latter they grow as little as measured; all from the first",
        "measured median on, with the measured scatter of seeds.",
        "",
    ]
    return [*said, markdown(head, rows)]


def _shares(found: Record | None, name: str, sizes: list[int]) -> str:
    """The shares of a control at each size; what was not run had no seed at a smaller one."""
    reached = {} if found is None else found["reached"].get(name, {})
    return " ".join(f"{reached.get(str(size), 0.0):.1g}" for size in sizes) if reached else "-"


def _growth(part: Record | None) -> str:
    if part is None:
        return "-"
    growth = part["growth"]
    shares = "" if min(growth["shares"]) == 1.0 else f" [{' '.join(f'{share:.1g}' for share in growth['shares'])}]"
    if growth["measured"] is None:
        return f"**{growth['verdict']}**: not at {growth['first']:g}{shares}"
    proved = "" if growth["theorem"] is None else f" of x{_times(growth['theorem'])}"
    over = "" if growth["budget_over_first"] is None else f", then > x{_times(growth['budget_over_first'])}"
    spread = f"x{_times(growth['measured'])}{proved} ({growth['first']:g} to {growth['last']:g}{over})"
    own = f"; x{_times(part['own_growth'])} with a factor each" if part.get("own_growth") else ""
    said = part.get("chances")
    chances = "" if said is None else f" ({' / '.join(f'{chance:.2g}' for chance in said.values())})"
    return f"**{growth['verdict']}**{chances}: {spread}{own}{shares}"


def _times(factor: float) -> str:
    return f"{factor:.2g}" if factor < 10.0 or factor >= 1e9 else short(factor)


def _accuracies(summary: Record) -> str:
    """Growth with 1/epsilon, on trees whose gap shrinks with it and on one problem."""
    families = [family for family in FAMILIES if any(family in f["accuracy"] for f in summary["algos"].values())]
    gaps = any(found["gaps"] for found in summary["algos"].values())
    if not families and not gaps:
        return ""
    rows = [
        [
            name_of(algo, found),
            *([_growth(found["gaps"]), _medians(found["gaps"])] if gaps else []),
            *(_growth(found["accuracy"].get(family)) for family in families),
        ]
        for algo, found in summary["algos"].items()
        if found["accuracy"] or found["gaps"]
    ]
    text = [
        "## Growth with 1/epsilon, beside the theorem's",
        "",
        "Trees of one size whose good leaf pays (1 + gap) / 2 and the others (1 - gap) / 2, epsilon a tenth of the",
        "gap: nobody can tell the leaves apart in fewer than order 1/gap^2 visits, so samples have to grow about 16",
        "times from 0.4 to 0.1. One factor for all gaps, the best of four on other seeds, and",
        f"{short(summary['protocol']['gap_budget'])} samples a seed. Then one problem at the size of the tuning, with",
        "epsilon from 0.4 of the gap between the optimal return and that of uniform play to 0.05: it has gaps of",
        "its own, below which a smaller epsilon costs nothing, so there the theorems' 1/eps^2 cannot be tight.",
        "",
    ]
    head = [*(["gap: growth", "gap: samples, factor"] if gaps else []), *(f"{family}, epsilon" for family in families)]
    return "\n".join([*text, markdown(["algorithm", *head], rows)])


def _medians(part: Record | None) -> str:
    """Median samples at each point, and the factor."""
    if part is None:
        return "-"
    shown = ["-" if value is None else short(value) for value in part["medians"].values()]
    return f"{', '.join(shown)} at {part['factor']:.1g}"


def _error(found: Record, verdict: Record) -> str:
    if verdict["measured"] is None:
        return verdict["says"]
    theorem = ERRORS[found["row"]]
    if verdict["measured"] == "l-infinity":
        note = ": **disagrees**" if theorem.startswith("local") else ""
        return f"{verdict['measured']}, {verdict['says']}{note}"
    note = ": **agrees**" if theorem.startswith("local") else ", better than proved" if "l-inf" in theorem else ""
    return f"{verdict['measured']}{note}"


def _notes(summary: Record) -> Lines:
    protocol = summary["protocol"]
    longer = f" (PC-PG and controls: {short(protocol['long_budget'])})" if "long_budget" in protocol else ""
    tuned = ", ".join(f"{family} {size}" for family, size in protocol["tuning_sizes"].items())
    return [
        "Growth: median samples to an epsilon-optimal policy, at the largest size (or smallest gap) that half of the",
        "seeds reached over that at the first, beside the growth of the algorithm's own theorem, a polynomial in",
        "S, A, L, 1/eps and ln 1/delta, between the same two. `within`: at every size the measured factor is at most",
        "the theorem's (of a lower bound: at least). `exceeds`: more, by its 95% interval. `stuck`: at some size fewer",
        "than half of the seeds got there, though at a larger one they did. `open`: neither can be said, too few sizes",
        f"were reached within {short(protocol['budget'])} samples a seed{longer}, or chance may explain it.",
        "`no claim`: the theorem is not about this problem. Each algorithm has one factor of its own constants, tuned",
        f"on other seeds at one size of each problem ({tuned}). A theorem holds for its own constants, not for a tuned",
        "factor: `exceeds` and `stuck` say that one factor does not suit all sizes, or that sizes are too small for",
        "the leading term, and `within` that nothing was seen against the theorem, not that it is tight.",
        "",
        "Error: a learner loses by errors off the optimal path, or by those on it alone; a theorem on errors is an",
        "upper bound, which losing less does not contradict. (s0): its paper restarts from a distribution that covers",
        "the states; here it gets s0 alone.",
    ]


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
            cells = [_point(points.get(size), size in part["beyond"], part["own"].get(str(size))) for size in sizes]
            bare = {int(size): one for size, one in part["bare"].items()}
            without = ", ".join(f"{bare[size]['reached']}/{bare[size]['seeds']}" for size in sorted(bare)) or "-"
            last = [without, _constants(found["theory"].get(family))]
            rows.append([name_of(algo, found), f"{found['factor']:.3g}", *cells, *last])
        if rows:
            bare_at = "no bonus, at each size" if family in NOISY else f"no bonus, at {sizes[-1]}"
            head = ["algorithm", "factor", *(f"{size}" for size in sizes), bare_at, f"papers' constants, at {sizes[0]}"]
            lines += [f"### {family}", "", markdown(head, rows)]
    if not lines:
        return ""
    head = [
        "## Samples to an epsilon-optimal policy",
        "",
        f"Median over seeds with the tuned factor; epsilon is {summary['protocol']['epsilon']}.",
        "`n/N`: seeds that got there, where not all did; `>`: the median lies beyond the budget. Sizes beyond one",
        "where no seed got there are not run. `{n at f}`: n samples with the factor f that suits the size, at the",
        "first and at the last that was run, where a seed failed and it was better on other seeds. 20 is the first",
        "point of the grid: who is there may be there by chance.",
        f"`no bonus`: seeds that got there with a factor of {BARE:g} within",
        f"{short(summary['protocol']['bare_budget'])} samples.",
        "",
    ]
    return "\n".join([*head, *lines])


def _own_problems(summary: Record) -> str:
    """The samples on the user's problems, if any."""
    names = list(dict.fromkeys(name for found in summary["algos"].values() for name in found["problems"]))
    if not names:
        return ""
    rows = []
    for algo, found in summary["algos"].items():
        parts = [found["problems"].get(name) for name in names]
        shown = [f"{_point(part, False, None)} at {part['factor']:.1g}" if part else "-" for part in parts]
        rows.append([name_of(algo, found), *shown])
    text = ["## Problems of your own", "", "Median samples to epsilon, at the factor that suited, on other seeds.", ""]
    return "\n".join([*text, markdown(["algorithm", *names], rows)])


def _point(point: Record | None, beyond: bool, own: Record | None) -> str:
    if point is None:
        return "not run" if beyond else "-"
    share = "" if point["reached"] == point["seeds"] else f" ({point['reached']}/{point['seeds']})"
    better = ""
    if own is not None and not own["same"] and own["median"] is not None:
        better = f" {{{short(own['median'])} at {own['factor']:.1g}}}"
    return (f"> {short(point['budget'])}" if point["median"] is None else short(point["median"])) + share + better


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
    more = {algo: times for algo, times in summary["protocol"]["patient"].items() if algo in summary["algos"]}
    patient = "".join(f"; {name_of(a, summary['algos'][a])}: {times} times as many" for a, times in more.items())
    text = [
        "## Loss by misspecified aggregation",
        "",
        "Mean final loss (the optimal return is 1) against the error kappa, with the best of the factors tried. `mix`",
        "and `wait` have their error off the optimal path, where who is deluded loses kappa/3 and kappa/2; `local` has",
        "it on the path, where everybody loses kappa/2 at least.",
        f"{short(summary['protocol']['error_budget'])} samples per seed{patient}.",
        "",
    ]
    return "\n".join([*text, markdown(head, rows)])


def _trees(summary: Record) -> str:
    """The values on the trees."""
    if not summary["trees"]:
        return ""
    rows = [
        [
            row["features"],
            str(row["depth"]),
            *(f"{row['value'][name]:.3f} ({row['least'][name]:.3f})" for name in METHODS),
            short(row["steps"]["LSVI-UCB"]),
            short(row["steps"]["PC-PG"]),
        ]
        for row in summary["trees"]
    ]
    text = [
        "## The binary tree",
        "",
        "Discounted value reached, mean over trees (least); going left is worth 0.5 and is optimal. Fitted Q",
        "iteration has the model; LSVI-UCB got as many samples as PC-PG took: the most that were used are in the last",
        "two columns.",
        "",
    ]
    return "\n".join([*text, markdown(["features", "depth", *METHODS, "samples: LSVI-UCB", "PC-PG"], rows)])


def _provenance(summary: Record) -> str:
    commands = "; ".join(f"`{command}`" for command in summary["commands"])
    commits = ", ".join(commit[:7] for commit in summary["commits"])
    return (
        f"Made by {commands} on {', '.join(summary['devices'])} in {summary['core_minutes']:.0f} core-minutes, the "
        f"first cell written at {summary['from']}, the last at {summary['to']}, commit {commits}.\n"
    )
