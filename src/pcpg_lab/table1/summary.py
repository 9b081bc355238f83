"""From the records of the cells to the summary: growth by family, losses by error, and how they compare with theory."""

from collections.abc import Sequence
from typing import get_args

import numpy as np

from pcpg_lab.claims.records import Record
from pcpg_lab.table1 import growth
from pcpg_lab.table1.growth import Verdict, compare, finite, median
from pcpg_lab.table1.measures import choose_own
from pcpg_lab.table1.plan import CellKind, reached
from pcpg_lab.table1.problems import MISSPECIFIED, make, size_of
from pcpg_lab.table1.settings import (
    CHAIN_DECISIONS,
    CONTROLS,
    EPSILON,
    FAMILIES,
    LOSS,
    NOISY,
    ONE_PATH,
    PATIENT,
    SETTLE,
    Family,
    Table1Settings,
    budget_of,
)
from pcpg_theory.learners.registry import COMPARATORS
from pcpg_theory.mdp import Array
from pcpg_theory.theorems import NONE, THEOREMS, Size

DELUDED = {"mix": 1.0 / 3.0, "wait": 0.5}
"""Loss of a learner that is deluded off the path, in units of kappa."""
SHARE = 0.25
"""The share of that loss from which on an algorithm counts as degraded by the error."""


def summarise(records: list[Record], settings: Table1Settings) -> Record:
    """The summary of all records; it can be made again from them alone."""
    algos = [name for name in COMPARATORS if any(r["arguments"].get("algo") == name for r in records)]
    trees = [_tree_row(record) for record in records if record["kind"] == "C"]
    against: dict[int, dict[Family, Record]] = {
        budget: {family: _power(family, records, settings, budget) for family in FAMILIES}
        for budget in (settings.budget, settings.long_budget)
    }
    return {
        "protocol": {
            "epsilon": f"{EPSILON:g} of the gap between the optimal return and that of uniform play",
            "budget": settings.budget,
            "long_budget": settings.long_budget,
            "theory_budget": settings.theory_budget,
            "error_budget": settings.error_budget,
            "tuning_budget": settings.tuning_budget,
            "bare_budget": settings.bare_budget,
            "gap_budget": settings.gap_budget,
            "settle": SETTLE,
            "chain_decisions": CHAIN_DECISIONS,
            "tuning_sizes": dict(settings.tuning_sizes),
            "patient": PATIENT,
            "sizes": {family: list(sizes) for family, sizes in settings.sizes.items()},
        },
        "controls": {
            str(budget): {family: found for family, found in families.items() if found["reached"]}
            for budget, families in against.items()
        },
        "algos": {
            name: _algo(
                *(name, [r for r in records if r["arguments"].get("algo") == name], settings),
                against[budget_of(settings, name)],
            )
            for name in algos
        },
        "trees": sorted(trees, key=lambda row: (row["features"], row["depth"])),
        "core_minutes": round(sum(record["seconds"] for record in records) / 60.0, 1),
        "commands": sorted({record["command"] for record in records}),
        "commits": sorted({record["commit"] for record in records if record["commit"]}),
        "devices": sorted({record["device"] for record in records}),
        "from": min((record["time"] for record in records), default=None),
        "to": max((record["time"] for record in records), default=None),
    }


def _power(family: Family, records: list[Record], settings: Table1Settings, budget: int) -> Record:
    """The shares of seeds of the controls that got there, and the first size from which on all of them fail."""
    reached, sizes = growth.controls_of(records, budget).get(family, {}), settings.sizes[family]
    uniform = growth.uniform_growth({size: make(family, size, [0, 1, 2]) for size in sizes})
    return {
        "reached": {name: {str(size): share for size, share in sorted(each.items())} for name, each in reached.items()},
        "from": growth.fails(reached, sizes),
        "uniform_growth": {str(size): factor for size, factor in uniform.items()},
    }


def _algo(name: str, records: list[Record], settings: Table1Settings, families: dict[Family, Record]) -> Record:
    entry = COMPARATORS[name]
    kinds = {kind: [r for r in records if r["kind"] == kind] for kind in get_args(CellKind)}
    tuned = next((r["factor"] for r in records if r["kind"] == "tuning"), None)
    found = {
        "row": entry.row,
        "source": entry.source,
        "assumes_restarts": entry.assumes_restarts,
        "extra": entry.extra,
        "factor": tuned,
        "core_seconds": round(sum(record["seconds"] for record in records), 1),
        "label": entry.label,
        "theorem": THEOREMS.get(name, NONE).text,
        "exploration": {f: _family(f, kinds, name, settings, families[f]) for f in FAMILIES if _of(f, kinds["A"])},
        "accuracy": {f: _accuracy(_of(f, kinds["eps"])[0], name, settings) for f in NOISY if _of(f, kinds["eps"])},
        "gaps": _accuracy(kinds["gap"][0], name, settings) if kinds["gap"] else None,
        "problems": {_name_of_problem(record): _own_problem(record) for record in kinds["problem"]},
        "theory": {f: _theory(_of(f, kinds["theory"])[0]) for f in FAMILIES if _of(f, kinds["theory"])},
        "misspecification": {
            problem: _losses(record)
            for problem in MISSPECIFIED
            for record in kinds["B"]
            if record["arguments"]["problem"] == problem
        },
    }
    return found | {"verdict": {"samples": _verdicts(found), "error": _error_verdict(found)}}


def _of(family: Family, records: list[Record]) -> list[Record]:
    return [record for record in records if record["arguments"]["family"] == family]


def _family(
    family: Family, kinds: dict[str, list[Record]], name: str, settings: Table1Settings, against: Record
) -> Record:
    mine = sorted(_of(family, kinds["A"]), key=lambda record: record["arguments"]["size"])
    budget, samples = mine[0]["arguments"]["budget"], samples_of(mine)
    points = [_point(size, found, budget) for size, found in samples.items()]
    sizes: dict[float, Size] = {record["arguments"]["size"]: Size(**record["size"]) for record in mine}
    theorem = THEOREMS.get(name, NONE)
    claims = not theorem.lower or family in ONE_PATH
    # Larger sizes are beyond reach where no seed got to the last one; else they have only not been measured yet.
    larger = [size for size in settings.sizes[family] if size > max(samples)]
    missing = [] if reached(mine[-1]) else larger
    never = {size: np.full(len(samples[max(samples)]), np.inf) for size in missing}
    every: dict[float, Array] = {**samples, **never}
    found = compare(every, sizes, theorem, budget, settings.bootstrap, claims)
    if len(larger) > len(missing) and found.verdict == "within":
        found = found._replace(verdict="open")
    chances = None
    if name not in CONTROLS and found.verdict != "no claim":
        made: dict[float, Size] = {size: size_of(make(family, int(size), [0])) for size in every}
        uniform: dict[float, float] = {int(size): factor for size, factor in against["uniform_growth"].items()}
        chances = growth.chances(every, made, theorem, budget, uniform, found, settings.chances)
    found = growth.judged(found, against["from"], bool(against["reached"]) and name not in CONTROLS)
    own = {str(record["arguments"]["size"]): _own_factor(record) for record in _of(family, kinds["own"])}
    ends = [_best_median(own.get(str(size)), samples[size]) for size in sorted({min(samples), max(samples)})]
    medians = [end for end in ends if end]
    own_growth = medians[1] / medians[0] if own and len(medians) == 2 else None
    bare = {
        str(r["arguments"]["size"]): {"reached": reached(r), "seeds": len(r["samples"])}
        for r in _of(family, kinds["bare"])
    }
    largest = max((r for r in mine if reached(r)), key=lambda r: r["arguments"]["size"], default=mine[0])
    return {
        "points": points,
        "growth": found.as_record(),
        "chances": None if chances is None else chances._asdict(),
        "beyond": missing,
        "own": own,
        "own_growth": own_growth,
        "bare": bare,
        "regret": largest["regret"] | {"size": largest["arguments"]["size"]},
    }


def _own_factor(record: Record) -> Record:
    one = record["arguments"]["factor"]
    factor = choose_own(record["trials"], one)
    median = _median(record["samples"]) if record["samples"] else None
    return {"factor": factor, "median": median, "same": factor == one}


def _best_median(own: Record | None, one_factor: Array) -> float | None:
    """The median samples at a size with the factor that suits it; None if fewer than half succeeded."""
    return finite(median(one_factor)) if own is None or own["same"] else own["median"]


def _accuracy(record: Record, name: str, settings: Table1Settings) -> Record:
    """Growth with 1/epsilon of one family."""
    shares = sorted((float(share) for share in record["samples"]), reverse=True)
    samples = {share: _seeds(record["samples"][f"{share:g}"]) for share in shares}
    sizes = {share: Size(**record["sizes"][f"{share:g}"]) for share in shares}
    theorem = THEOREMS.get(name, NONE)
    found = compare(samples, sizes, theorem, record["arguments"]["budget"], settings.bootstrap, not theorem.lower)
    medians = {f"{share:g}": _median(record["samples"][f"{share:g}"]) for share in shares}
    factor = record.get("best", record["arguments"]["factor"])
    return {"growth": found.as_record(), "medians": medians, "factor": factor}


def samples_of(records: list[Record]) -> dict[int, Array]:
    """Samples by size, inf where censored, of records of one algorithm and family."""
    return dict(sorted((record["arguments"]["size"], _seeds(record["samples"])) for record in records))


def _point(size: int, samples: Array, budget: int) -> Record:
    bounds = dict(zip(("low", "median", "high"), np.quantile(samples, [0.1, 0.5, 0.9], method="lower"), strict=True))
    return {
        "size": size,
        "reached": int(np.isfinite(samples).sum()),
        "seeds": len(samples),
        **{key: finite(value) for key, value in bounds.items()},
        "budget": budget,
    }


def _name_of_problem(record: Record) -> str:
    return record["arguments"]["reference"].rpartition(":")[2]


def _own_problem(record: Record) -> Record:
    return _point(0, _seeds(record["samples"]), record["arguments"]["budget"]) | {"factor": record["best"]}


def _theory(record: Record) -> Record:
    return {
        "size": record["arguments"]["size"],
        "budget": record["arguments"]["budget"],
        "reached": reached(record),
        "seeds": len(record["samples"]),
        "median": _median(record["samples"]),
    }


def _median(samples: Sequence[float | None]) -> float | None:
    return finite(median(_seeds(samples)))


def _seeds(samples: Sequence[float | None]) -> Array:
    """The samples of each seed, infinite if it did not succeed."""
    return np.array([np.inf if value is None else value for value in samples], float)


def _losses(record: Record) -> list[Record]:
    rows = []
    for row in record["rows"]:
        loss = np.array(row["loss"])
        rows.append(
            {key: row[key] for key in ("kappa", "on_path", "anywhere", "factor", "mean_loss_by_factor")}
            | {"loss": float(loss.mean()), "error": float(loss.std() / np.sqrt(len(loss)))}
        )
    return rows


def _verdicts(found: Record) -> Record:
    """How many of the comparisons over sizes, over gaps and over epsilon came out how."""
    counts = {}
    gaps = {} if found["gaps"] is None else {"tree": found["gaps"]}
    for what, parts in (("exploration", found["exploration"]), ("gaps", gaps), ("accuracy", found["accuracy"])):
        said = [part["growth"]["verdict"] for part in parts.values()]
        counts[what] = {verdict: said.count(verdict) for verdict in get_args(Verdict)}
    return counts


def _error_verdict(found: Record) -> Record:
    """The errors that made an algorithm lose in B: off the path, or only on it."""
    parts: dict[str, list[Record]] = found["misspecification"]
    if not parts:
        return {"measured": None, "off_path": [], "says": "not measured"}
    unlearnt = [name for name, rows in parts.items() if rows[0]["loss"] > LOSS]
    off_path = [
        name for name, rows in parts.items() if name in DELUDED and name not in unlearnt and degraded(name, rows)
    ]
    if off_path:
        worst = max(parts[name][-1]["loss"] - parts[name][0]["loss"] for name in off_path)
        says = f"{worst:.2f} on {' and '.join(off_path)}"
        return {"measured": "l-infinity", "off_path": off_path, "unlearnt": unlearnt, "says": says}
    if unlearnt:
        says = f"not judged: loses without any error on {_and(unlearnt)}"
        return {"measured": None, "off_path": [], "unlearnt": unlearnt, "says": says}
    return {"measured": "local", "off_path": [], "unlearnt": [], "says": "loses by errors on the path alone"}


def degraded(problem: str, rows: list[Record]) -> bool:
    """Whether the loss grew with the error by a share of the misled learners' loss, and by more than chance."""
    last, first = rows[-1], rows[0]
    grown = last["loss"] - first["loss"]
    return grown > SHARE * DELUDED[problem] * last["kappa"] and grown > 2.0 * float(
        np.hypot(last["error"], first["error"])
    )


def _tree_row(record: Record) -> dict[str, object]:
    made = record["arguments"]
    return {
        "features": made["features"],
        "depth": made["depth"],
        "seeds": len(made["seeds"]),
        "optimal": float(np.mean(record["optimal"])),
        "value": {name: float(np.mean(values)) for name, values in record["value"].items()},
        "least": {name: float(np.min(values)) for name, values in record["value"].items()},
        "steps": {name: int(np.max(steps)) for name, steps in record["steps"].items()},
    }


def _and(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1])] * (len(names) > 1) + [names[-1]])
