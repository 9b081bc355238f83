"""The documentation builds without a warning, its links lead somewhere, and what it shows works."""

import contextlib
import importlib.util
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import gymnasium
import numpy as np
import pytest
from rich.console import Console

import pcpg
from pcpg.cli.flags import parse
from pcpg.cli.main import COMMANDS, FreeCommand, Group, run_command
from pcpg.runs.folder import RunFolder
from pcpg_theory import own
from tests.kills import logged

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)]
NAMES = [str(path.relative_to(ROOT)) for path in PAGES]

DEEP = {"learn": {"hidden": [8], "batch": 8, "updates": 1.0}, "explore": {"num_features": 16, "updates": 1.0}}
SMALL = {"ppo": {"num_updates": 2, "num_episodes": 64}, "explore": {"max_policies": 3}, "exploit": {"num_rounds": 1}}
"""Settings of the library's environments where a page leaves them to the defaults, which take minutes.

As those that pages name: the same program is compiled once.
"""

TUTORIAL = "docs/tutorial.md"
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
SB3 = "docs/how-to/stable-baselines3.md"
# What a page expects to find, as its text says.
GIVEN: dict[str, Mapping[str, Any]] = {
    "docs/theory.md": {"P": np.array([[[0.5, 0.5], [1.0, 0.0]], [[0.0, 1.0]] * 2]), "r": np.eye(2)}
}


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    line: int
    text: str


def blocks_of(page: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.finditer(r"^```(\S*)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    return [Block(match[1], text.count("\n", 0, match.start()) + 2, match[2]) for match in found]


def commands_of(page: str) -> Iterator[list[str]]:
    """The command lines of a page, as words."""
    for block in blocks_of(page):
        if block.language in ("", "text", "bash", "sh"):
            lines = block.text.replace("\\\n", " ").splitlines()
            yield from (words for line in lines if (words := shlex.split(line, comments=True)))


WITH_COMMANDS = [page for page in NAMES if any(words[0] == "pcpg" for words in commands_of(page))]
WITH_PYTHON = [page for page in NAMES if any(block.language == "python" for block in blocks_of(page))]


# Building.


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built pages."""
    for package in ("sphinx", "myst_parser", "furo"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: pip install 'pcpg[docs]'")
    out = tmp_path_factory.mktemp("html")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-d", f"{out}-trees", DOCS, out]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return out


class Links(HTMLParser):
    """What a page of HTML refers to, and the places in it that can be referred to."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.places: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.add(value)
            elif name == "id" and value:
                self.places.add(value)


def test_tables_of_results_are_shown_as_they_are_kept():
    spec = importlib.util.spec_from_file_location("tables", DOCS / "tables.py")
    assert spec is not None and spec.loader is not None
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    shown = {path: path.read_text() for path in tables.PAGES}
    assert {path: tables.filled(text) for path, text in shown.items()} == shown, "run `python docs/tables.py`"
    assert sum(len(tables.BLOCK.findall(text)) for text in shown.values()) >= 2


def test_the_pages_build_without_a_warning_and_every_link_inside_leads_somewhere(built: Path) -> None:
    pages = {path: Links(path) for path in built.rglob("*.html")}
    assert len(pages) > 20
    broken = []
    for page, found in pages.items():
        for link in found.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            is_there = target.is_file() and (
                not parts.fragment or target not in pages or unquote(parts.fragment) in pages[target].places
            )
            if not is_there:
                broken.append(f"{page.name}: {link}")
    assert not broken


def test_the_reference_has_every_public_name(built: Path) -> None:
    places = Links(built / "api" / "pcpg.html").places
    names = {name for name in dir(pcpg) if name in pcpg.__all__ or isinstance(getattr(pcpg, name), type)}
    assert len(names) > len(pcpg.__all__) and {f"pcpg.{name}" for name in names} <= places


def test_the_built_pages_need_no_network(built: Path) -> None:
    for page in built.rglob("*.html"):
        loaded = re.findall(r'<(?:script|img|link)[^>]+(?:src|href)="(?:https?:)?//[^"]+"', page.read_text("utf-8"))
        assert not loaded, page


def test_links_of_the_readme_lead_to_files() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) if "://" not in link]
    assert len(links) > 5
    assert not [link for link in links if not (ROOT / link).exists()]


# Python.


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the runs that pages begin with."""
    folder = tmp_path_factory.mktemp("prepared")
    source = next(block.text for block in blocks_of(TUTORIAL) if "class KeyDoor" in block.text)
    (folder / "my_envs.py").write_text(source)
    pcpg.train("CombinationLock-v0", horizon=5, config=SMALL, out=folder / "runs/first")
    # A cover of one policy needs no updates, of which the program would take long to compile.
    pcpg.train("Maze-v0", size=10, config={"explore": {"max_policies": 1}}, out=folder / "runs/maze")
    few = {"config": DEEP, "steps": 20, "total_steps": 200}
    pcpg.train("PointMass-v0", "pcpg-deep", **few, reward=False, out=folder / "runs/box")
    pcpg.train("PointMass-v0", "pcpg-deep", **few, out=folder / "runs/car")
    logged(folder / "poor.npz")
    return folder


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in; environments of the library are trained with small settings where a page has none."""
    real = pcpg.train

    def small_train(env: Any, *arguments: Any, **options: Any) -> pcpg.Run:
        is_covered = isinstance(env, str) and "pcpg-replay" not in arguments
        return real(env, *arguments, **({"config": SMALL} if is_covered else {}) | options)

    monkeypatch.setattr(pcpg, "train", small_train)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def own_module(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The tutorial's environment in my_envs.py of the current folder, as the pages tell their readers."""
    source = next(block.text for block in blocks_of(TUTORIAL) if "class KeyDoor" in block.text)
    (place / "my_envs.py").write_text(source)
    monkeypatch.syspath_prepend(str(place))
    yield
    sys.modules.pop("my_envs", None)


def execute(page: str) -> dict[str, Any]:
    """Run the Python of a page from its top to its end, in one namespace; that namespace."""
    printed: dict[int, str] = {}

    def record(*values: Any) -> None:
        printed[sys._getframe(1).f_lineno] = " ".join(str(value) for value in values)

    space: dict[str, Any] = {"__name__": "page", "print": record} | dict(GIVEN.get(page, {}))
    for block in blocks_of(page):
        if block.language == "python":
            # Errors tell the line of the page.
            exec(compile("\n" * (block.line - 1) + block.text, page, "exec"), space)
    for line, text in printed.items():
        said = said_to_print(page, line)
        assert said is None or said == text, f"{page}, line {line}: it says {said} and prints {text}"
    return space


LITERALS = re.compile(r"(?:[\[\](),\s]|True|False|None|-?\d[\d_.e]*|'[^']*')+")


def said_to_print(page: str, line: int) -> str | None:
    """What a page says that its line prints: the comment behind it up to a colon, where that is a value."""
    comment = (ROOT / page).read_text(encoding="utf-8").splitlines()[line - 1].partition("  # ")[2]
    value = comment.partition(":")[0]
    return value if LITERALS.fullmatch(value) else None


APART = ("README.md", TUTORIAL, SB3)


@pytest.mark.parametrize("page", [page for page in WITH_PYTHON if page not in APART])
def test_the_python_of_a_page_runs_and_prints_what_the_page_says(page: str, place: Path) -> None:
    execute(page)
    for name in [*own.REFERENCES, *own.PROBLEMS]:  # what a page registered
        own.forget(name)


def test_a_value_behind_a_line_is_what_it_prints_and_words_are_not() -> None:
    found = {
        said_to_print(page, block.line + at)
        for page in NAMES
        for block in blocks_of(page)
        for at in range(block.text.count("\n"))
    }
    assert {"True 4", "(32, 2)", "[1.0]", "False 3 ['exploit']"} <= found - {None}
    assert not [value for value in found if value and "best" in value]


def test_the_python_of_the_page_for_users_of_sb3_runs_beside_it(place: Path) -> None:
    peers = next((ROOT / "benchmarks" / ".venv-peers").glob("lib/*/site-packages/stable_baselines3"), None)
    if peers is None:
        pytest.skip("Stable-Baselines3 is in the peers' environment, which is not there: make peers")
    blocks = [block.text for block in blocks_of(SB3) if block.language == "python"]
    if importlib.util.find_spec("moviepy") is None:
        blocks = blocks[:1]
    # Behind our own packages: of those that both have, ours are used.
    code = "\n".join(["import sys", f"sys.path.append({str(peers.parent)!r})", *blocks])
    own = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-W", "error:::__main__", "-c", code]
    done = subprocess.run(command, cwd=place, env=own, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    mean, deviation = map(float, done.stdout.split())
    assert 5 < mean <= 500 and deviation >= 0


def test_the_python_of_the_readme_runs(
    place: Path, prepared: Path, own_module: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(prepared / "runs", place / "runs")
    # Its exploitation of a maze is started, and not trained: to compile the program alone takes half a minute.
    started, train = [], pcpg.api._train

    def start_or_train(folder: RunFolder, *rest: Any, **options: Any) -> Any:
        if not folder.config["source"]:
            return train(folder, *rest, **options)
        started.append(folder.config)
        return None

    monkeypatch.setattr("pcpg.api._train", start_or_train)
    space = execute("README.md")
    assert len(started) == 1
    assert space["run"].evaluate(20).mean_return == [1.0] and (place / "door.gif").is_file()


def test_the_tutorial_ends_in_a_solved_filmed_task(place: Path, own_module: None) -> None:
    space = execute(TUTORIAL)
    assert isinstance(space["KeyDoor"].observation_space, gymnasium.spaces.Dict)
    # Nothing but the door pays, and random play opens it once in 20,000 episodes.
    assert space["earned"] == 1.0
    assert space["run"].summary["env_steps"][0] < 20_000  # "about 15,000"
    assert space["policy"].act({"place": 8, "has_key": 1}, greedy=True) == 3
    assert (place / "door.gif").read_bytes().startswith(b"GIF") and (place / "runs/door/report.html").is_file()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_cells_of_a_notebook_run_from_its_top_to_its_end(path: Path, place: Path) -> None:
    assert NOTEBOOKS
    space: dict[str, Any] = {"__name__": "notebook"}
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    assert not [cell for cell in cells if cell["outputs"]], "kept without outputs"
    for number, cell in enumerate(cells, start=1):
        exec(compile("".join(cell["source"]), f"{path.name}, cell {number}", "exec"), space)
    if path.stem == "own-environment":
        assert space["run"].evaluate(20).mean_return == [1.0]
    else:
        assert space["there"].evaluate(20).mean_return == [1.0]
        assert space["lazy"].evaluate(20).mean_return[0] > 100


def test_the_readme_is_short_and_its_example_is_ten_lines() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) <= 800
    example = next(block for block in blocks_of("README.md") if block.language == "python").text.splitlines()
    assert len([line for line in example if line]) <= 10


# Commands.


class Ready(Exception):
    """A command has read its arguments and would begin to work."""


@pytest.mark.parametrize("page", WITH_COMMANDS)
def test_the_commands_of_a_page_exist_with_their_flags(
    page: str, prepared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin(*arguments: object, **options: object) -> None:
        raise Ready

    monkeypatch.chdir(prepared)
    monkeypatch.syspath_prepend(str(prepared))
    monkeypatch.setattr("pcpg.training.loop.start_run", begin)
    monkeypatch.setattr("pcpg.cli.train.check_loggers", lambda names: None)  # their packages may be absent here
    absent = set()
    for _, name, *words in (words for words in commands_of(page) if words[0] == "pcpg"):
        command, program = COMMANDS[name], f"pcpg {name}"
        if isinstance(command, Group):
            parse(loaded(command.members[words[0]]), words[1:], f"{program} {words[0]}")
        elif not isinstance(command, FreeCommand):
            parse(loaded(command.home), words, program)
        elif package := missing_package(words[0]):
            absent.add(package)
        elif any(word.startswith("ray") for word in words):
            continue  # would start a cluster or ask for one; tests/lab/test_on_ray.py has one
        else:
            trains = pytest.raises(Ready) if name != "look" else contextlib.nullcontext()
            with trains:
                run_command([name, *words], Console(stderr=True, quiet=True))
    if absent:
        pytest.skip(f"all but the commands that need {', '.join(sorted(absent))}, which is not installed, are right")


def missing_package(env_id: str) -> str | None:
    """The package that an environment needs and that is not installed here."""
    needs = {"bsuite:": "bsuite", "gymnax:": "gymnax", "gymnasium:MiniGrid": "minigrid"}
    needs |= {"gymnasium:pcpg_lab.envs.levels:": "minigrid", "gymnasium:dm_control/": "shimmy"}
    needs |= {"gymnasium:Fetch": "gymnasium_robotics", "gymnasium:ALE/": "ale_py"}
    names = (package for start, package in needs.items() if env_id.startswith(start))
    return next((name for name in names if importlib.util.find_spec(name) is None), None)


def loaded(home: str) -> Any:
    module, _, name = home.partition(":")
    return getattr(importlib.import_module(module), name)


def test_targets_of_make_and_extras_that_pages_name_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    for page in NAMES:
        text = (ROOT / page).read_text(encoding="utf-8")
        named = re.findall(r"(?:pcpg|\.)\[([a-z,]+)\]'", text)
        wanted = set(itertools.chain.from_iterable(names.split(",") for names in named))
        assert wanted <= extras, page
        made = {words[1] for words in commands_of(page) if words[0] == "make"} | set(
            re.findall(r"`make ([a-z]+)`", text)
        )
        assert made <= targets, page
    hosted = (ROOT / ".github/workflows/ci.yml").read_text()
    called = set(re.findall(r"run: make ([a-z]+)", hosted))
    assert called <= targets and {"test", "docs", "wheel"} <= called


def test_the_citation_names_this_version() -> None:
    cited = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {pcpg.__version__}\n" in cited and "2007.08459" in cited
