"""The verdict: sentences from measured numbers, and nothing where nothing is known."""

import ast
import dataclasses
import inspect
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pcpg
from pcpg.algorithms import ALGORITHMS, ENDS, Shown
from pcpg.algos.rounds import plain, usual_return
from pcpg.cli.flags import parse
from pcpg.cli.train import Resume
from pcpg.cli.train_flags import read_general
from pcpg.envs import make
from pcpg.reports.page import final_return, overview_row
from pcpg.reports.read import RunData, read_run
from pcpg.reports.verdict import met, verdict


def lines(run: RunData) -> list[str]:
    """The verdict as lines of a terminal."""
    return str(verdict(run)).splitlines()


def run_of(
    returns: list[list[float]],
    final: list[float],
    *,
    ended: str | None = "grown",
    algo: str = "pcpg",
    env: str = "CombinationLock-v0",
    options: dict[str, Any] | None = None,
    is_finished: bool = True,
) -> RunData:
    """A run of some seeds, all alike but for their final returns; `returns` are those of each member's episodes."""
    seeds = range(len(final))
    options = {"horizon": 2} if options is None else options
    config = {"env": env, "env_options": options, "algo": algo, "seed": 0, "seeds": len(final), "features": "identity"}
    rows: list[dict[str, Any]] = [
        {"phase": "explore", "env_steps": 100 * (at + 1), "return": float(np.mean(own)), "coverage": 0.5}
        | {"best_episode": float(np.max(own))}
        | ({} if at else plain({"usual_return": usual_return(np.array(own))}))
        for at, own in enumerate(returns)
    ]
    each, count = tuple(np.array(own) for own in returns), len(returns)
    cover = Shown(np.ones(count) / max(count, 1), np.zeros((count, 0)), each)
    summary = {"seeds": list(seeds), "final_return": final} | ({"ended": [ended] * len(final)} if ended else {})
    return RunData(
        path=Path("runs/mine"),
        config=config | {"feature_options": {}, "agent": {}},
        versions={},
        device=None,
        summary=summary if is_finished else None,
        records={seed: [*rows, {"phase": "exploit", "env_steps": 9000, "return": final[seed]}] for seed in seeds},
        timings=[],
        covers=dict.fromkeys(seeds, cover) if returns else {},
        notes=(),
    )


NOTHING, SOME = [[0.0, 0.0]] * 4, [[0.0, 0.0, 1.0]] * 5


def test_a_run_that_never_met_a_reward_says_so_and_what_to_try() -> None:
    assert lines(run_of(NOTHING, [0.0], ended="full")) == [
        "Solved in 0 of 1 seed: final return 0, solved above 3.50.",
        "Exploration never reached the reward (0 of 8 episodes).",
        "The cover (4 policies) visited 6 of 10 reachable grid cells.",
        "Exploration ended: the cover is full.",
        "Only one seed: results may vary. Rerun with --seeds 5 (about 9k steps each).",
        "Next: explore longer: pcpg resume runs/mine --steps +9k",
    ]
    other = verdict(run_of(NOTHING, [0.0]))
    assert other.advice == "try other features" and "--features random-mlp" in other.command
    unfit = verdict(run_of(NOTHING, [0.0], algo="pcpg-replay", ended="quiet"))
    assert unfit.advice == "try another explorer" and "--algo pcpg " in unfit.command, "it takes no features"


def test_a_solved_run_needs_nothing_more_and_no_line_says_otherwise() -> None:
    assert lines(run_of(NOTHING, [4.0, 4.0], ended="budget")) == [
        "Solved in 2 of 2 seeds: final return 4.00, solved above 3.50.",
        "Reward first met after 9k steps, while learning the task.",
        "The cover (4 policies) visited 6 of 10 reachable grid cells.",
        "Exploration ended: the budget was used up.",
        "With 2 seeds, the share of seeds that solve it lies between 34% and 100% (95% interval).",
    ]


def test_a_reward_that_was_met_and_not_learned_is_to_be_trained_longer_where_no_threshold_is_known() -> None:
    options: dict[str, Any] = {"env": "python:scripts.Door", "options": {}}
    lost = verdict(run_of(SOME, [1.0, 0.0], **options))
    assert lost.advice == "train longer" and 'total_steps="+9k"' in lost.command
    assert verdict(run_of(SOME, [1.0, 0.5], **options)).advice == ""


def test_the_mean_of_a_single_round_is_not_that_of_every_episode() -> None:
    options: dict[str, Any] = {"algo": "ppo", "env": "python:scripts.Door", "options": {}, "ended": ""}
    assert not any("Every episode" in line for line in lines(run_of([], [0.0625], **options)))
    assert "Every episode returned 0.5." in lines(run_of([[0.5]], [0.5], **options))


def test_a_return_above_nothing_is_never_called_unmet_where_no_threshold_is_known() -> None:
    run = run_of(NOTHING, [1.0], env="python:scripts.Door", options={}, ended="quiet")
    assert lines(run) == [
        "Final return: 1.00.",
        "Reward first met after 9k steps, while learning the task.",
        "The cover has 4 policies.",
        "Exploration ended: no reachable state promised anything new.",
        "Only one seed: results may vary. Rerun with seeds=5 (about 9k steps each).",
    ]


def test_episodes_with_a_reward_are_counted_and_the_first_is_dated() -> None:
    assert "Reward first met after 100 steps, in 5 of 15 episodes of exploration." in verdict(run_of(SOME, [1.0])).said
    late = run_of([[0.0, 0.0], [0.0, 0.0], [0.0, 1.0]], [1.0])
    assert "Reward first met after 300 steps, in 1 of 6 episodes of exploration." in verdict(late).said
    slow = run_of([[-200.0, -200.0], [-200.0, -150.0]], [-120.0], env="python:scripts.Hill", options={})
    assert "Reward first met after 200 steps, in 1 of 4 episodes of exploration." in verdict(slow).said
    always = run_of([np.linspace(-9, -3, 20).tolist()] * 2, [-1.0])
    assert "Returns during exploration: \u22129.00 to \u22123.00 (40 episodes)." in verdict(always).said


def test_seeds_that_never_met_the_reward_are_counted() -> None:
    run = run_of(NOTHING, [1.0, 0.0, 0.0])
    assert "Reward first met after 9k steps, while learning the task; 2 seeds never met it." in verdict(run).said


def test_a_baseline_that_met_its_reward_from_the_first_round_is_not_told_of_it() -> None:
    run = run_of([], [1.0], algo="ppo", env="python:scripts.Door", options={}, ended="")
    rows = [{"phase": "exploit", "env_steps": at, "return": 0.5 * at, "train/return": 0.0} for at in (1, 2)]
    assert not [line for line in lines(dataclasses.replace(run, records={0: rows})) if "eward" in line]


def test_a_finished_maze_needs_no_longer_exploration() -> None:
    run = run_of(NOTHING, [0.0], env="Maze-v0", options={"size": 4}, ended="budget")
    assert verdict(run).command == "pcpg resume runs/mine --steps +9k"
    for row in run.records[0]:
        row["coverage"] = 1.0
    assert verdict(run)[1:] == ("", "")


def test_a_reward_that_was_given_is_a_reward_and_another_run_s_cover_no_result() -> None:
    run = run_of([], [7.0], env="Maze-v0", options={"size": 4}, ended="")
    run.config["source"] = {"run": "runs/other", "reward": {"name": "still"}}
    assert lines(run) == [
        "Final return: 7.00.",
        "Only one seed: results may vary.",
    ]
    assert run.summary is not None
    unplayed = dataclasses.replace(run, summary=run.summary | {"final_return": [None]})
    assert lines(unplayed)[0] == "The task was learned from data alone and not played yet: pcpg evaluate plays it."


def test_the_command_names_what_it_needs_to_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(NOTHING, [0.0], env="gymnasium:my_module:Door-v0", options={}, ended="budget")
    assert verdict(run).command == "pcpg resume runs/mine --steps +9k --trust"
    (tmp_path / "made-here").write_text("by this user")
    mine = dataclasses.replace(run, path=tmp_path)
    monkeypatch.chdir(tmp_path.parent)
    assert verdict(mine).command == f"pcpg resume {tmp_path.name} --steps +9k"
    failed = dataclasses.replace(run_of(SOME, [0.0] * 2), failed={1: "its environment raised"})
    assert verdict(failed)[1:] == ("retry the failed seeds", "pcpg resume runs/mine --retry-failed")


def test_why_exploration_ended_is_told_in_the_words_of_the_run_and_never_guessed() -> None:
    def ends(run: RunData) -> list[str]:
        return [line for line in lines(run) if line.startswith("Exploration ended")]

    assert ends(run_of(SOME, [1.0], ended=None)) == [], "an old folder"
    assert ends(run_of(SOME, [1.0], ended="no word of ours")) == []
    assert ends(run_of(SOME, [1.0], ended="")) == [], "nothing was explored"
    run = run_of(SOME, [1.0] * 3)
    assert run.summary is not None
    mixed = dataclasses.replace(run, summary=run.summary | {"ended": ["full", "reward", "full"]})
    (said,) = ends(mixed)
    assert said == (f"Exploration ended: {ENDS['full']} (2 of 3 seeds); {ENDS['reward']} (1 of 3 seeds).")


def test_a_run_that_still_explores_is_not_judged() -> None:
    run = run_of(NOTHING, [0.0], is_finished=False)
    run = dataclasses.replace(run, records={0: run.records[0][:-1]})
    assert verdict(run).command == "pcpg resume runs/mine"
    assert not any(line.startswith(("Exploration ended", "Only one seed")) for line in lines(run))


def test_cells_that_no_policy_can_reach_are_not_counted() -> None:
    lock = make("CombinationLock-v0", horizon=2)
    assert lock.reachable_cells(lock.instance(0)).sum() - lock.possible_cells(lock.instance(0)).sum() == 2
    run = run_of(SOME, [1.0])
    for row in run.records[0]:
        row["coverage"] = 10 / 12
    assert "The cover (5 policies) visited 10 of 10 reachable grid cells." in verdict(run).said


def test_the_possible_cells_of_the_lock_are_those_that_its_model_reaches() -> None:
    lock = make("CombinationLock-v0", horizon=3)
    model = lock.tabular(lock.instance(0))
    reached = np.arange(len(model.transitions)) == model.start
    for _ in range(lock.max_steps):
        reached |= (model.transitions[reached].sum(axis=(0, 1))) > 0
    np.testing.assert_array_equal(lock.possible_cells(lock.instance(0)), reached[1:-1])


def test_one_seed_has_no_interval_and_is_said_to_be_one() -> None:
    run = run_of(SOME, [1.0])
    assert "Only one seed: results may vary. Rerun with --seeds 5 (about 9k steps each)." in verdict(run).said
    assert np.isnan(final_return(run).low) and overview_row(run, "mine", 0)["final"] == "1.00"
    assert overview_row(run, "mine", 0)["solved_interval"] == ""


def test_seeds_that_disagree_are_counted() -> None:
    run = run_of(SOME, [4.0, 4.0, -1.0])
    assert "Solved in 2 of 3 seeds: final return \u22121.00 to 4.00, solved above 3.50." in verdict(run).said
    assert verdict(run)[1:] == ("train longer", "pcpg resume runs/mine --steps +9k")


def test_a_baseline_is_told_to_explore() -> None:
    run = run_of([], [-0.33], algo="ppo", ended="")
    assert verdict(run).command == (
        "pcpg train CombinationLock-v0 --env.horizon 2 --algo pcpg --seeds 1 --steps 100k --out runs/mine-explore"
    )


def test_an_algorithm_that_is_not_in_the_table_has_a_verdict() -> None:
    assert "Solved in 1 of 1 seed" in lines(run_of([], [4.0], algo="mine", ended=None))[0]


def test_a_run_on_a_function_s_environment_is_told_in_python() -> None:
    run = run_of(NOTHING, [0.0], ended="full", env="python:scripts.Door", options={"max_steps": 8})
    assert verdict(run).command == 'pcpg.resume("runs/mine", env_fn=Door, total_steps="+9k")'
    again = verdict(run_of(NOTHING, [0.0], env="python:scripts.Door", options={"max_steps": 8})).command
    assert again == (
        'pcpg.train(Door, "pcpg", total_steps="9k", seeds=1, out="runs/mine-features", max_steps=8, '
        "features='random-mlp')"
    )


# Every algorithm and every outcome: no two sentences contradict, and the command that follows can be run.

WORDS = {
    "pcpg": ("grown", "full", "budget", "reward"),
    "pcpg-bonus": ("grown", "full", "budget"),
    "pcpg-replay": ("quiet", "found", "budget", "target"),
    "pcpg-deep": ("budget", "target"),
}
"""Why the exploration of an algorithm may end; that of the others never begins."""
OUTCOMES = {  # the returns of the rounds of each seed, the last that of its final policy
    "solved": [[0, 0, 4], [0, 4, 4]],
    "solved from the start": [[4, 4, 4]],
    "solved by a seed": [[0, 0, 4], [0, 0, 0], [0, 0, 1]],
    "met": [[0, 1, 1], [0, 0, 2]],
    "never met": [[0, 0, 0], [0, 0, 0]],
    "never met by one seed": [[0, 0, 0]],
    "paid": [[0, 0, 0]],
}
WORLDS = {
    "lock": ("CombinationLock-v0", {"horizon": 2}),
    "class": ("python:my_envs.Door", {"max_steps": 8}),
    "module": ("gymnasium:my_envs:Door-v0", {}),
    "maze": ("Maze-v0", {"size": 4}),
}
STORIES = [
    (algo, outcome, world, word, state)
    for algo in ALGORITHMS
    for outcome in OUTCOMES
    for world in WORLDS
    for word in WORDS.get(algo, ("",))
    for state in ("finished", "unfinished", "failed")
    if not (word == "found" and "never" in outcome) and (world == "maze") == (outcome == "paid")
]


def told(algo: str, outcome: str, world: str, word: str, state: str) -> RunData:
    """A run with this outcome, in the shape in which the algorithm leaves it."""
    env, options = WORLDS[world]
    seeds, explores = OUTCOMES[outcome], algo in WORDS and word != "reward"
    run = run_of([], [float(own[-1]) for own in seeds], ended=word, algo=algo, env=env, options=options)
    phases = ["explore" if explores else "exploit"] * 2 + ["exploit"]
    records = {
        seed: [
            {"phase": phase, "env_steps": 3000 * (at + 1), "return": float(own[at]), "coverage": 0.5}
            for at, phase in enumerate(phases)
        ]
        for seed, own in enumerate(seeds)
    }
    covers = {}
    if explores and algo != "pcpg-deep":
        none = np.zeros((2, 0))
        covers = {
            seed: Shown(np.ones(2) / 2, none, tuple(np.full(4, own[at]) for at in range(2)))
            for seed, own in enumerate(seeds)
        }
    summary = run.summary if state != "unfinished" else None
    failed = {0: "its environment raised"} if state == "failed" else {}
    return dataclasses.replace(run, records=records, covers=covers, summary=summary, failed=failed)


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_whatever_came_out_no_two_sentences_contradict_and_the_command_can_be_run(algo: str) -> None:
    stories = [story for story in STORIES if story[0] == algo]
    assert len(stories) >= 50
    for story in stories:
        _, outcome, world, word, state = story
        run = told(*story)
        found = verdict(run)
        said = " ".join(found.said)
        final = [own[-1] for own in OUTCOMES[outcome]]
        is_met, solved = max(map(max, OUTCOMES[outcome])) > 0, sum(value > 3.5 for value in final)
        never = [line for line in found.said if "never reached" in line]
        if world == "maze":
            assert "pays no reward" in said and not never and "first met" not in said, story
        else:
            assert bool(never) == (not is_met), (story, said)
        assert ("first met" in said or "Every episode returned" in said) <= is_met, (story, said)
        if world == "lock":
            assert f"Solved in {solved} of {len(final)} seed" in said, (story, said)
        explores = algo in WORDS
        assert ("xploration" in said) <= explores and (" cover" in said.lower()) <= bool(run.covers), (story, said)
        assert said.count("Exploration ended") <= 1 and str(found).count("Next: ") == bool(found.command), story
        if state == "unfinished":
            assert found.advice == "finish the run" and "ended" not in said, story
        elif state == "failed":
            assert found.advice == "retry the failed seeds", story
        elif world == "maze":
            assert found.advice == ("explore longer" if word in ("full", "budget") else ""), (story, found)
        elif (solved == len(final) if world == "lock" else is_met and min(final) > 0.0) or word == "target":
            assert not found.command, (story, found)
        else:
            assert found.command and ("longer" in found.advice) == (is_met or word in ("full", "budget")), (
                story,
                found,
            )
        if found.command:
            check_runs(found.command, run)


def check_runs(command: str, run: RunData) -> None:
    """Refuse a command or call that is not whole: it is read as the program would read it."""
    env, is_trusted = run.config["env"], not run.config["env"].startswith("gymnasium:")
    if env.startswith("python:"):
        [call] = [node for node in ast.walk(ast.parse(command)) if isinstance(node, ast.Call)]
        given = {str(word.arg): ast.unparse(word.value) for word in call.keywords}
        function = {"pcpg.train": pcpg.train, "pcpg.resume": pcpg.resume}[ast.unparse(call.func)]
        inspect.signature(function).bind(*call.args, **given)
        assert "Door" in (given.get("env_fn"), ast.unparse(call.args[0])) and "runs/mine" in command
        return
    program, name, *words = shlex.split(command)
    assert program == "pcpg"
    if name == "resume":
        asked = parse(Resume, words, "pcpg resume")
        assert asked.dir == "runs/mine" and asked.trust == (not is_trusted), command
        assert bool(asked.steps) == (run.summary is not None and not run.failed)
    else:
        general = read_general(words)
        assert name == "train" and general.flags.environment == env and general.flags.out.startswith("runs/mine-")
        assert general.flags.seeds == len(run.seeds) and general.flags.steps
        is_other = general.flags.algo != run.config["algo"] or general.features.features != run.config["features"]
        assert is_other and not any(word.startswith("-") for word in general.unknown), command


@pytest.mark.parametrize("met_at", [-1, 6840])
def test_a_learner_that_knows_whether_it_met_the_reward_is_believed(met_at: int) -> None:
    run = told("pcpg-deep", "never met" if met_at < 0 else "solved", "lock", "budget", "finished")
    for rows in run.records.values():
        for row in rows:
            row |= {"return": None, "met_at": -1}
        rows[-1] |= {"met_at": met_at}
    said = verdict(run).said[1]
    assert said == ("Exploration never reached the reward." if met_at < 0 else "Reward first met after 6.84k steps.")


@pytest.mark.parametrize(
    ("returns", "usual"),
    [
        ([0, 0, 0, 1], 0.0),
        ([-0.2, -0.4, -0.4, -0.6, 4], -0.2),  # a lock: each level costs, only its end pays
        ([-200] * 30 + [-150], -200.0),
        ([1, 1, 1], 1.0),
        ([0.1, 0.1, 10], 0.1),
        (list(range(20)), None),  # none is common
    ],
)
def test_a_first_episode_without_reward_returns_what_is_common(returns: list[float], usual: float | None) -> None:
    assert plain({"usual": usual_return(np.array(returns, float))})["usual"] == usual


@pytest.mark.parametrize("algo", ["pcpg", "pcpg-replay", "ppo"])
def test_progress_and_verdict_name_the_same_moment_of_the_first_reward(algo: str, tmp_path: Path) -> None:
    small: Any = {
        "pcpg": {"ppo": {"num_updates": 10, "num_episodes": 64}, "explore": {"max_policies": 3}},
        "pcpg-replay": {"explore": {"num_episodes": 8}, "replay": {"capacity": 400}},
        "ppo": {"ppo": {"num_updates": 10, "num_episodes": 64}, "budget": 4000, "visit_episodes": 16},
    }
    seen: list[pcpg.Progress] = []
    asked: Any = {"horizon": 2, "seeds": 2, "config": small[algo], "out": tmp_path / "run"}
    run = pcpg.train("CombinationLock-v0", algo, observer=seen.append, quiet=True, **asked)
    told = {seed: at for one in seen for seed, at in one.met.items() if at is not None}
    assert told and told == met(read_run(run.path)).at
    first = {seed: next(one.step for one in seen if one.met.get(seed) is not None) for seed in told}
    assert all(seen[step].met[seed] is not None for seed, step in first.items())
    for seed, at in told.items():
        rows = read_run(run.path).records[seed]
        paid = [row["env_steps"] for row in rows if row["best_episode"] > 0 or row.get("train/return", -1) > -0.5]
        assert at == paid[0], "an episode that opens no lock returns -0.5 or less"


def test_a_resumed_run_remembers_that_its_reward_was_met(tmp_path: Path) -> None:
    small: Any = {"ppo": {"num_updates": 10, "num_episodes": 64}, "budget": 4000, "visit_episodes": 16}
    run = pcpg.train("CombinationLock-v0", "ppo", horizon=2, config=small, out=tmp_path / "run", quiet=True)
    seen: list[pcpg.Progress] = []
    pcpg.resume(run, total_steps="+4k", observer=seen.append, quiet=True)
    assert seen[0].met == met(read_run(run.path)).at and seen[0].met[0] is not None


def test_progress_says_nothing_of_a_reward_that_is_never_paid(tmp_path: Path) -> None:
    small: Any = {"ppo": {"num_updates": 1, "num_episodes": 16}, "budget": 500, "visit_episodes": 16}
    seen: list[pcpg.Progress] = []
    pcpg.train("Maze-v0", "ppo", size=4, config=small, observer=seen.append, out=tmp_path / "run", quiet=True)
    assert [one.met for one in seen] == [{}] * len(seen)
