"""Environments by class, instance, function, module and file; and runs that this user made, which need no trust."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium import spaces

import pcpg
from pcpg.envs import Environment
from pcpg.envs.adapters.from_module import sources
from pcpg.envs.adapters.names import is_adapted, outside_module
from pcpg.envs.options import InvalidOption
from pcpg.envs.registry import UnknownEnvironment

pytestmark = pytest.mark.usefixtures("compile_once")

CODE = """
import gymnasium, numpy as np
from gymnasium import spaces
import {neighbour}

class Door(gymnasium.Env):
    observation_space = spaces.Discrete(4)
    action_space = spaces.Discrete(2)
    max_steps = 3
    def __init__(self, bonus=0.0):
        self.bonus = bonus
    def reset(self, *, seed=None, options=None):
        self.at = 0
        return 0, {{}}
    def step(self, action):
        self.at += 1
        return self.at, float(action) + self.bonus, self.at == 3, False, {{}}

def make(bonus=0.5):
    return Door(bonus)

ready = Door(0.25)
class Doors:
    Inner = Door
"""
SMALL = {"ppo": {"num_updates": 1, "num_episodes": 8, "hidden": [8]}, "budget": 20, "visit_episodes": 4}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a module that has a neighbour, which is the current one as the command line sees it."""
    name = f"doors_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(CODE.format(neighbour=f"{name}_helper"))
    (tmp_path / f"{name}_helper.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    before = set(sys.modules)
    yield tmp_path / f"{name}.py"
    for module in set(sys.modules) - before:
        if module.startswith(name):
            del sys.modules[module]


@pytest.mark.parametrize(
    ("path", "bonus"), [("Door", 0.0), ("make", 0.5), ("ready", 0.25), ("Doors.Inner", 0.0), ("make(1)", None)]
)
@pytest.mark.parametrize("form", ["{stem}:{path}", "{stem}.py:{path}", "{folder}/{stem}.py:{path}"])
def test_a_class_a_function_or_an_environment_is_found_by_module_and_by_file(
    form: str, path: str, bonus: float | None, place: Path
) -> None:
    env_id = form.format(stem=place.stem, folder=place.parent, path=path)
    if bonus is None:
        with pytest.raises(UnknownEnvironment):
            pcpg.make(env_id)
        return
    env = pcpg.make(env_id, num_envs=2)
    assert env.make().bonus == bonus and env.max_steps == 3 and env.name == env_id
    if path != "ready":
        assert pcpg.make(env_id, num_envs=2, bonus=2.0).make().bonus == 2.0


def test_files_of_one_name_in_two_folders_are_two_modules(place: Path) -> None:
    (place.parent / "other").mkdir()
    other = place.parent / "other" / place.name
    other.write_text(place.read_text().replace("bonus=0.5", "bonus=7.0"))
    assert pcpg.make(f"{place}:make").make().bonus == 0.5
    assert pcpg.make(f"{other}:make").make().bonus == 7.0


@pytest.mark.parametrize(
    ("env_id", "options", "said"),
    [
        ("{stem}:Dor", {}, "has no 'Dor'; did you mean {stem}:Door?"),
        ("{stem}.py:mak", {}, "{stem}.py has no 'mak'; did you mean {stem}.py:make?"),
        ("no_such_module:Door", {}, "there is no module 'no_such_module', here or installed"),
        ("no_such_file.py:Door", {}, "there is no file"),
        ("{stem}:Door", {"bonos": 1}, "did you mean 'bonus'? its options: bonus"),
        ("{stem}:ready", {"bonus": 1}, "it has no options"),
        ("broken.py:Door", {}, "importing"),
        ("broken:Door", {}, "importing broken failed: ZeroDivisionError: division by zero"),
        ("{stem}:np", {}, "this module cannot be copied"),
        ("{stem}:Door-v0", {}, "did you mean 'gymnasium:{stem}:Door-v0'"),
    ],
)
def test_what_is_not_there_is_said_in_one_line(env_id: str, options: Any, said: str, place: Path, cli: Any) -> None:
    (place.parent / "broken.py").write_text("1 / 0")
    stem = place.stem
    words = [word for name, value in options.items() for word in (f"--env.{name}", value)]
    answer = cli("look", env_id.format(stem=stem), *words)
    assert answer.code == 2 and answer.err.count("\n") == 1 and said.format(stem=stem) in answer.err, answer


def test_the_command_finds_a_module_in_the_current_folder_but_none_that_shadows_an_installed_one(
    place: Path, start_pcpg: Any
) -> None:
    (place.parent / "jax.py").write_text("raise SystemExit('shadowed')")
    process = start_pcpg("look", f"{place.stem}:Door")
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0 and f"{place.stem}:Door: episodes of 3 steps" in out, err


class Cell(gymnasium.Env):
    observation_space = spaces.Discrete(4)
    action_space = spaces.Discrete(2)
    max_steps = 3

    def __init__(self, bonus: float = 0.0) -> None:
        self.bonus, self.at = bonus, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.at = 0
        return 0, {}

    def step(self, action: Any) -> Any:
        self.at += 1
        return self.at, float(action) + self.bonus, self.at == 3, False, {}


def test_an_instance_is_copied_for_every_episode_that_plays_in_parallel() -> None:
    cell = Cell(0.5)
    run = pcpg.train(cell, "ppo", config=SMALL)
    assert run.config.env.startswith("python:") and run.config.env.endswith(".Cell")
    assert cell.at == 0, "it was never played itself"
    assert run.evaluate(4).mean_return[0] >= 1.5
    assert pcpg.train(cell, "ppo", config=SMALL).config.env == run.config.env
    with pytest.raises(InvalidOption, match="it has no options"):
        pcpg.train(cell, "ppo", bonus=1.0)
    cell.lock = (step for step in ())  # type: ignore[attr-defined]
    with pytest.raises(InvalidOption, match=r"this Cell cannot be copied .*: pass its class"):
        pcpg.train(cell, "ppo")
    with pytest.raises(InvalidOption, match="did you mean 'bonus'"):
        pcpg.train(Cell, "ppo", bonos=1.0)


def test_an_environment_of_the_library_is_named_by_its_id() -> None:
    small = {"ppo": {"num_updates": 1, "num_episodes": 8, "hidden": [8]}, "budget": 20, "visit_episodes": 4}
    run = pcpg.train(pcpg.make("Chain-v0", length=4, horizon=5), "ppo", config=small)
    assert (run.config.env, run.config.env_options) == ("Chain-v0", {"length": 4, "horizon": 5})

    class Mine(Environment):
        pass

    with pytest.raises(UnknownEnvironment, match=r"Mine has no id.*pcpg\.register\('Mine-v0', Mine"):
        pcpg.train(Mine)


# Trust.


@pytest.fixture
def made(place: Path, cli: Any) -> Path:
    """A run on the module, made here."""
    flags = ("--ppo.num-updates", 1, "--ppo.num-episodes", 8, "--budget", 20, "--visit-episodes", 4)
    assert cli("train", f"{place.stem}:Door", "--algo", "ppo", *flags, "--out", "run").code == 0
    return Path("run").absolute()


def asked(answer: Any) -> bool:
    return answer.code == 2 and "--trust" in answer.err


PLAY = ("--episodes", 2)


def test_a_run_made_here_needs_no_trust_as_long_as_its_module_is_the_same(made: Path, place: Path, cli: Any) -> None:
    assert cli("evaluate", made, *PLAY).code == 0
    assert cli("verify", made).code == 0
    shutil.move(made, "moved")
    assert cli("evaluate", "moved", *PLAY).code == 0
    text = place.read_text()
    place.write_text(f"{text}\n# changed")
    assert asked(cli("evaluate", "moved", *PLAY)) and asked(cli("resume", "moved", "--steps", "+20"))
    assert f"the module '{place.stem}' has changed since" in cli("evaluate", "moved", *PLAY).err
    assert cli("evaluate", "moved", *PLAY, "--trust").code == 0
    assert asked(cli("evaluate", "moved", *PLAY)), "trust once is not trust for ever"
    place.write_text(text)
    assert cli("resume", "moved", "--steps", "+20").code == 0


def test_a_stranger_cannot_say_that_this_user_made_a_run(
    made: Path, place: Path, cli: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as as_another:
        as_another.setenv("XDG_STATE_HOME", str(tmp_path / "theirs"))
        assert asked(cli("evaluate", made, *PLAY)), "made by another user, or never"
        flags = ("--ppo.num-updates", 1, "--ppo.num-episodes", 8, "--budget", 20, "--visit-episodes", 4)
        assert cli("train", f"{place.stem}:Door", "--algo", "ppo", *flags, "--out", "theirs-run").code == 0
    assert asked(cli("evaluate", "theirs-run", *PLAY)), "with a note by another secret"
    shutil.copy(made / "made-here", "theirs-run/made-here")
    assert cli("evaluate", "theirs-run", *PLAY).code == 0, "the same module and options, made here"
    with monkeypatch.context() as elsewhere:  # the name of the module leads to another file
        (tmp_path / "evil").mkdir()
        evil = tmp_path / "evil" / place.name
        evil.write_text(place.read_text())
        elsewhere.syspath_prepend(tmp_path / "evil")
        elsewhere.delitem(sys.modules, place.stem)
        assert asked(cli("evaluate", made, *PLAY))
    note = made / "made-here"
    for data in (b"", b"0" * 64, note.read_bytes() + b" ", b"\xff" * 10_000):
        note.write_bytes(data)
        assert asked(cli("evaluate", made, *PLAY))
    note.unlink()
    note.symlink_to("/dev/zero")
    answer = cli("evaluate", made, *PLAY)
    assert answer.code == 2 and "made-here: is a link, not a plain file, and is not followed" in answer.err


@pytest.mark.parametrize("state", ["/dev/null", "here", ""])
def test_where_no_secret_can_be_kept_trust_is_asked_for(
    place: Path, cli: Any, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", state)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # a user without a home
    flags = ("--ppo.num-updates", 1, "--ppo.num-episodes", 8, "--budget", 20, "--visit-episodes", 4)
    assert cli("train", f"{place.stem}:Door", "--algo", "ppo", *flags, "--out", "run").code == 0
    assert asked(cli("evaluate", "run", *PLAY)) and not (Path("run") / "made-here").exists()
    assert not Path("here").exists() and not Path("~").exists()


def test_naming_a_module_imports_nothing(place: Path) -> None:
    for env_id in (f"{place.stem}:Door", f"{place}:Door"):
        assert is_adapted(env_id) and place.stem in str(outside_module(env_id, {}))
    assert place.stem not in sys.modules


def test_a_package_is_known_by_all_its_files_and_by_none_where_a_link_leads_out_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"package_{tmp_path.name}"
    package = tmp_path / name
    (package / "inner").mkdir(parents=True)
    for file in ("__init__.py", "inner/__init__.py", "inner/doors.py", "inner/fast.so", "readme.txt"):
        (package / file).touch()
    monkeypatch.syspath_prepend(tmp_path)
    named = [path.relative_to(package).as_posix() for path in sources(f"{name}.inner.doors")]
    assert named == ["__init__.py", "inner/__init__.py", "inner/doors.py", "inner/fast.so"]
    (tmp_path / "elsewhere").mkdir()
    (package / "more").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    assert sources(f"{name}.inner.doors") == []
