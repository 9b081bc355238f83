"""Whether to believe a run: what its own numbers say, in sentences, and what to try next.

Everything here is read off the files of a run. Where nothing is known, nothing is said.
"""

import shlex
from typing import Any, NamedTuple

import numpy as np

from pcpg.envs.adapters.names import is_own_function
from pcpg.reports.read import RunData
from pcpg.reports.text import is_exploit, limit_flags, number, range_text, steps_text

FULL, DONE, CUT, EARLY, FOUND, REACHED, GOING = "full", "done", "cut", "early", "found", "reached", "going"


class Verdict(NamedTuple):
    """What is known, a sentence each, and a command or call to try next."""

    said: list[str]
    advice: str
    command: str


def verdict(run: RunData) -> Verdict:
    """What the files of a run say about it."""
    if not run.records:
        return Verdict([], "", "")
    parts = (_reward(run), _reach(run), _exploration(run), _improvement(run), _seeds(run))
    return Verdict([said for said in parts if said], *_next(run))


# Whether there was anything to learn from.


def counted_returns(run: RunData) -> np.ndarray:
    """The returns of all episodes that measured policies of a cover, and the mean of each round beside them."""
    each = [own for cover in run.covers.values() for own in cover.each]
    means = [record["return"] for rows in run.records.values() for record in rows if record.get("return") is not None]
    return np.concatenate([*each, np.array(means, float)])


def saw_reward(run: RunData) -> bool:
    """Whether returns ever differed from one another, or from zero."""
    returns = counted_returns(run)
    return bool(returns.size and (np.ptp(returns) > 1e-9 or (len(np.unique(returns)) == 1 and _trained_on_more(run))))


def _trained_on_more(run: RunData) -> bool:
    """Whether the episodes of updates, which roll in through the cover, had other returns than those that count."""
    rows = [record for records in run.records.values() for record in records]
    trained = [record["train/return"] for record in rows if record.get("train/return") is not None]
    return bool(trained) and bool(np.ptp([*trained, *counted_returns(run)]) > 1e-9)


def _reward(run: RunData) -> str:
    if run.env is not None and run.env.is_reward_free:
        return "Reward: this environment pays none, so the cover is the result."
    returns = counted_returns(run)
    if not returns.size:
        return ""
    episodes = np.concatenate([np.zeros(0), *(own for cover in run.covers.values() for own in cover.each)])
    what = f"{len(episodes):,} episodes that measured the cover" if len(episodes) else f"{len(returns)} rounds"
    if not saw_reward(run):
        value = number(float(returns[0]))
        least = "No reward was ever met" if returns[0] == 0 else "Nothing but the same return was ever met"
        return f"Reward: {least}: all {what} returned {value}. The policy cannot have learned the task."
    if not len(episodes):
        return f"Reward: met; the mean returns of {len(returns)} rounds go from {_span(returns)}."
    zero = np.abs(episodes) < 1e-9
    if zero.mean() > 0.1:
        paid = len(episodes) - int(zero.sum())
        return f"Reward: {paid:,} of the {what} returned something other than 0."
    return f"Reward: returns of the {what} go from {_span(episodes)}."


def _span(values: np.ndarray) -> str:
    low, high = number(float(values.min())), number(float(values.max()))
    return low if low == high else f"{low} to {high}"


# How far it came.


def _reach(run: RunData) -> str:
    said = []
    reached = [directions(cover.sigmas, run.ridge_of(cover)) for cover in run.covers.values() if cover.sigmas.size]
    if reached:
        size = next(iter(run.covers.values())).sigmas.shape[-1]
        more = "" if min(reached) == size else "; whether the others can be reached is not known"
        said.append(f"the cover's policies reach {range_text(reached)} of the {size} directions of its features{more}")
    known = [seed for seed in run.seeds if run.env is not None and run.last(seed, "coverage") is not None]
    if cells := [_cells(run, seed) for seed in known]:
        _, total, possible = cells[0]
        seen, least = range_text([own[0] for own in cells]), min(own[0] for own in cells)
        whole = " (all that can be reached)" if least == possible < total else ""
        closed = f", of which no policy can reach {total - possible}," if possible < total else ""
        said.append(f"{seen} of {total} grid cells{closed} were visited{whole}")
    return f"Reach: {'; '.join(said)}." if said else ""


def directions(sigmas: np.ndarray, ridge: float) -> int:
    """Directions of the features in which some policy of a cover goes: those where their covariance is not noise."""
    values = np.linalg.eigvalsh(sigmas.sum(axis=0))
    return int(np.count_nonzero(values > max(ridge, 1e-7 * float(values[-1]))))


def _cells(run: RunData, seed: int) -> tuple[int, int, int]:
    """Grid cells visited, counted for coverage, and possible at all."""
    assert run.env is not None
    params = run.env.instance(seed)
    total = int(run.env.reachable_cells(params).sum())
    return round(run.last(seed, "coverage") * total), total, int(run.env.possible_cells(params).sum())


# Why exploration ended.


def explored(run: RunData, seed: int) -> tuple[str, float | None]:
    """How the exploration of a seed ended, and by how much its last policy raised the log-determinant."""
    rows = [record for record in run.records.get(seed, []) if record["phase"] == "explore"]
    settings = run.explore
    if not rows or run.source:
        return "", None
    grown = [row["log_det"] for row in rows if row.get("log_det") is not None]
    last = grown[-1] - grown[-2] if len(grown) > 1 else None
    if run.summary is None and run.records[seed][-1]["phase"] == "explore":
        return GOING, last
    patience = settings["patience"]
    if "min_value" in settings:  # a run that keeps its data
        return _end_with_kept_data(run, seed, rows), None
    if len(grown) > patience and grown[-1] - grown[-1 - patience] < settings["min_growth"]:
        return DONE, last
    if last is not None and last < settings["min_growth"]:
        return EARLY, last
    return (FULL if len(rows) >= settings["max_policies"] else CUT), last


def _end_with_kept_data(run: RunData, seed: int, rows: list[dict[str, Any]]) -> str:
    patience, until = run.explore["patience"], run.config.get("limits", {}).get("until")
    quiet = [row["bonus_ahead"] < run.explore["min_value"] for row in rows[-patience:]]
    if len(quiet) == patience and all(quiet):
        return DONE
    if until is not None and _is_reached(run.records[seed], until):
        return REACHED
    kept = rows[-1]["env_steps"] - run.config.get("looked", {}).get("env_steps", 0)
    length = 0 if run.env is None else run.env.max_steps
    has_room = kept + run.explore["num_episodes"] * length <= run.config["agent"]["replay"]["capacity"]
    is_timed = run.config.get("limits", {}).get("seconds")
    return FOUND if rows[-1].get("closer_looks") and has_room and not is_timed else CUT


def _is_reached(rows: list[dict[str, Any]], until: float) -> bool:
    """Whether the last round of exploration reached the target, or the try of the task after it, before the task."""
    last = max(at for at, row in enumerate(rows) if row["phase"] == "explore")
    ends = rows[last : last + 2] if len(rows) > last + 2 else rows[last : last + 1]
    return any(row["return"] is not None and row["return"] >= until for row in ends)


def is_cut(run: RunData) -> list[int]:
    """The seeds whose exploration ended while it still grew."""
    return [seed for seed in run.seeds if explored(run, seed)[0] in (FULL, CUT)]


def _exploration(run: RunData) -> str:
    ends = {seed: explored(run, seed) for seed in run.seeds}
    known = {seed: end for seed, end in ends.items() if end[0]}
    if not known:
        return _reward_alone(run)
    many, said = len(known), []
    for kind, words in (
        (DONE, "was done: nothing new was found any more"),
        (FULL, f"was cut at {run.explore.get('max_policies')} policies while it still grew"),
        (CUT, "was cut by the budget while it still grew"),
        (EARLY, "ended before it was known to be done"),
        (FOUND, "ended when the task's reward had been found, before all was explored"),
        (REACHED, "ended when the target was reached"),
        (GOING, "is going on"),
    ):
        seeds = [seed for seed, end in known.items() if end[0] == kind]
        if seeds:
            rises = [rise for seed in seeds if (rise := known[seed][1]) is not None]
            by = f" (the last policy added {number(float(np.median(rises)))} nats)" if rises and kind != DONE else ""
            said.append(f"{words}{by}{f' in {len(seeds)} of {many} seeds' if many > 1 else ''}")
    return " ".join([f"Exploration {'; it '.join(said)}.", _reward_alone(run)]).strip()


def _reward_alone(run: RunData) -> str:
    """The seeds that began with the reward and had no reason to explore."""
    if not run.explore.get("reward_first"):
        return ""
    alone = [seed for seed in run.seeds if all(row["phase"] == "exploit" for row in run.records.get(seed, []))]
    where = f" in {len(alone)} of {len(run.seeds)} seeds" if len(alone) < len(run.seeds) else ""
    return f"Nothing was explored{where}: from the reward alone PPO did better than random play." if alone else ""


# Whether exploitation was worth it.


def _improvement(run: RunData) -> str:
    tried = [seed for seed in run.covers if any(row["phase"] == "exploit" for row in run.records.get(seed, []))]
    if not tried or run.source:
        return ""
    best = {seed: float(run.covers[seed].returns.max()) for seed in tried}
    final = {seed: run.final_returns[seed] for seed in tried if seed in run.final_returns}
    better = [seed for seed, value in final.items() if value > best[seed] + 1e-9]
    if not final:
        return ""
    own, found = (_span(np.array(list(values.values()))) for values in (final, best))
    numbers = f"{own}, the best policy of the cover {found}"
    how = "improved on the cover" if len(better) == len(final) else "did not improve on the cover"
    if 0 < len(better) < len(final):
        how = f"improved on the cover in {len(better)} of {len(final)} seeds"
    return f"Exploitation {how}: its policy returns {numbers}."


def _seeds(run: RunData) -> str:
    returns = np.array(list(run.final_returns.values()))
    if len(run.seeds) == 1:
        return "Seeds: one. Nothing is known about how another would come out."
    if len(returns) < 2:
        return ""
    said = f"Seeds: final returns go from {_span(returns)} over {len(returns)} seeds"
    if np.ptp(returns) < 1e-9:
        return f"Seeds: all {len(returns)} ended with the same return, {number(float(returns[0]))}."
    if run.solved_return is not None:
        said += f"; {int((returns > run.solved_return).sum())} of them are above {number(run.solved_return)}"
    return f"{said}."


# What to do.


def _next(run: RunData) -> tuple[str, str]:
    """What to try next, and how; empty where nothing follows from what is known."""
    returns = np.array(list(run.final_returns.values()))
    is_solved = run.solved_return is not None and bool(returns.size) and bool((returns > run.solved_return).all())
    used = max((run.last(seed, "env_steps") or 0 for seed in run.seeds), default=0)
    cut, is_free = is_cut(run), run.env is not None and run.env.is_reward_free
    if run.source or is_exploit(run.config):
        return "", ""
    if run.summary is None:
        return "finish it", _resume(run)
    if cut and not is_solved:
        return "explore longer", _again(run, "steps", 2 * used)
    if not is_free and not run.has_cover and not is_solved and (run.solved_return is not None or not saw_reward(run)):
        return "explore for it", _again(run, "algo", used)
    if not is_free and not saw_reward(run):
        return "other features may tell more apart", _again(run, "features", used)
    if not is_free and not is_solved and run.solved_return is not None:
        return "go on with the task", _resume(run, more=used)
    return ("see how other seeds come out", _again(run, "seeds", used)) if len(run.seeds) == 1 else ("", "")


def _again(run: RunData, change: str, steps: int) -> str:
    """The run once more with one thing changed."""
    config, folder = run.config, str(run.path)
    features = "random-mlp" if config["features"] != "random-mlp" else "fourier"
    flags: dict[str, list[str]] = {
        "steps": ["--steps", steps_text(steps)],
        "features": ["--features", features, *limit_flags(config)],
        "algo": ["--algo", "pcpg", "--steps", steps_text(steps)],
        "seeds": ["--seeds", "5", *limit_flags(config)],
    }
    options: dict[str, str] = {
        "steps": f'total_steps="{steps_text(steps)}"',
        "features": f'features="{features}"',
        "algo": f'total_steps="{steps_text(steps)}"',
        "seeds": "seeds=5",
    }
    if is_own_function(config["env"]):
        made = config["env"].partition(":")[2].rpartition(".")[2].partition("#")[0]
        algo = "pcpg" if change == "algo" else config["algo"]
        return f'pcpg.train({made}, "{algo}", {options[change]}, out="{folder}-{change}")'
    given = [word for name, value in config["env_options"].items() for word in _option(name, value)]
    algo = [] if change == "algo" or config["algo"] == "pcpg" else ["--algo", config["algo"]]
    return shlex.join(["pcpg", "train", config["env"], *given, *algo, *flags[change], "--out", f"{folder}-{change}"])


def _option(name: str, value: Any) -> list[str]:
    usual = {"num_envs": 32, "workers": 0, "max_steps": 0, "step_timeout": 0.0}
    return [] if value is None or usual.get(name, object()) == value else [f"--env.{name}", str(value)]


def _resume(run: RunData, more: int = 0) -> str:
    added = f"+{steps_text(more)}" if more else ""
    if is_own_function(run.config["env"]):
        steps = f', total_steps="{added}"' if added else ""
        return f'pcpg.resume("{run.path}", env_fn=...{steps})'
    return shlex.join(["pcpg", "resume", str(run.path), *(["--steps", added] if added else [])])


def lines(run: RunData) -> list[str]:
    """The verdict as lines of a terminal."""
    found = verdict(run)
    ahead = [f"Next: {found.advice}: {found.command}"] if found.command else []
    return [*found.said, *ahead]
