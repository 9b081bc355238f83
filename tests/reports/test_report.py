"""The report: what it says, that it stands alone, and that it says what is missing."""

import dataclasses
import html.parser
import itertools
import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pcpg.cli.train_flags import read_train_flags
from pcpg.cover.design import d_optimal
from pcpg.reports.page import across, render, write_report
from pcpg.reports.read import read_run
from pcpg.reports.statistics import certify, iqm_curve, success_curve
from pcpg.reports.text import repeat
from pcpg.reports.visits import Grid, grid_of
from pcpg.run_config import RunConfig
from pcpg.runs.errors import DamagedFile, NotARun
from pcpg.training.loop import start_run, train_run

VOID = {"meta", "link", "img", "br", "hr", "input"}


class Page(html.parser.HTMLParser):
    """What a page holds; refuses tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text = text
        self.feed(text)
        self.close()
        assert self.open == [], "tags left open"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> at {self.getpos()}"

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def ids(self) -> list[str]:
        return [attributes["id"] for _, attributes in self.tags if "id" in attributes]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, tiny: Callable[..., dict[str, Any]]) -> dict[str, Path]:
    """Finished runs of PC-PG and PPO on the same lock."""
    root = tmp_path_factory.mktemp("runs")
    for algo in ("pcpg", "ppo"):
        assert train_run(start_run(RunConfig.from_json(tiny(algo)), root / algo)).finished
    return {path.name: path for path in root.iterdir()}


@pytest.fixture(scope="module")
def page_file(runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The comparison of both runs."""
    return write_report([runs["pcpg"], runs["ppo"]], tmp_path_factory.mktemp("page") / "report.html")[0]


@pytest.fixture(scope="module")
def page(page_file: Path) -> Page:
    return Page(page_file.read_text(encoding="utf-8"))


@pytest.fixture
def copy(runs: dict[str, Path], tmp_path: Path) -> Path:
    """A run that may be damaged."""
    return Path(shutil.copytree(runs["pcpg"], tmp_path / "run"))


# The page.


def test_the_page_stands_alone(page: Page) -> None:
    references = [
        attributes[name] for _, attributes in page.tags for name in ("src", "href", "xlink:href") if name in attributes
    ]
    assert references and all(reference.startswith(("#", "data:")) for reference in references)
    assert not page.all("script") and not page.all("iframe") and "@import" not in page.text
    assert all(target.startswith(("#", "data:")) for target in re.findall(r"url\([\"']?([^)\"']+)", page.text))


def test_every_anchor_leads_somewhere_and_no_id_is_there_twice(page: Page) -> None:
    ids = page.ids
    assert len(ids) == len(set(ids))
    inside = [attributes["href"] for attributes in page.all("a") if attributes["href"].startswith("#")]
    used = [name for reference in re.findall(r'(?:url\(|xlink:href=")#([^)"]+)', page.text) for name in [reference]]
    assert len(inside) >= 4 and {anchor[1:] for anchor in inside} | set(used) <= set(ids)


def test_every_figure_has_a_text_and_a_caption(page: Page) -> None:
    charts = page.all("svg")
    # Return, success, coverage and bonus; weights, growth and map of PC-PG; map of PPO.
    assert len(charts) == len(page.all("figcaption")) == 4 + 3 + 1
    assert all(chart["role"] == "img" and len(chart["aria-label"]) > 30 for chart in charts)
    pictures = [image for image in page.all("img") if "alt" in image]
    assert len(pictures) == len(page.all("img")) == 8 + 1 + 8, "policies, the other seed's cover, rounds of PPO"
    assert all("cells visited" in image["alt"] for image in pictures)


def test_headings_go_down_one_level_at_a_time(page: Page) -> None:
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert ("html", {"lang": "en"}) in page.tags and page.all("main") and page.all("nav")


def test_the_page_says_what_was_run_and_what_came_out(page: Page, runs: dict[str, Path]) -> None:
    for part in (
        "PC-PG and PPO on CombinationLock-v0",
        "of 2 seeds",
        "Kiefer and Wolfowitz",
        "Steps per second",
        "jax",
    ):
        assert part in page.text
    assert f"pcpg train --config {runs['pcpg']}/config.json" in page.text
    final = json.loads((runs["ppo"] / "summary.json").read_text())["content"]["final_return"]
    assert f"{np.mean(final):.2f}"[1:].lstrip("0") in page.text.replace("\u2212", "-")


def test_the_same_runs_give_the_same_page(page_file: Path, runs: dict[str, Path], tmp_path: Path) -> None:
    again, _ = write_report([runs["pcpg"], runs["ppo"]], tmp_path / "again.html")
    assert again.read_bytes() == page_file.read_bytes()


def test_no_text_of_a_run_can_become_markup(copy: Path, tmp_path: Path) -> None:
    odd = Path(shutil.move(copy, tmp_path / "<b>&run"))
    path, _ = write_report([odd])
    assert path == odd / "report.html"
    text = path.read_text(encoding="utf-8")
    assert "<b>&run" not in text and "&lt;b&gt;&amp;run" in text


# What is read.


def test_the_certificate_agrees_with_the_solver(runs: dict[str, Path]) -> None:
    run = read_run(runs["pcpg"])
    cover = run.covers[1]
    certificate, ridge = certify(cover, run.ridge_of(cover)), run.ridge_of(cover)
    assert cover.sigmas is not None and certificate is not None
    solved = d_optimal(cover.sigmas, ridge=ridge)
    # Not closer: the solver leaves out what the rounding of float32 put into directions that have no features.
    assert certificate.log_det == pytest.approx(solved.log_det, abs=0.01)
    assert certificate.gap < 0.01
    worse = certify(cover._replace(weights=np.eye(len(cover.weights))[0]), ridge)
    assert worse is not None and worse.gap > 0.03
    assert worse.log_det + worse.gap >= certificate.log_det
    assert certify(cover._replace(sigmas=None), ridge) is None, "members that have data in place of covariances"


def test_curves_are_over_seeds_and_end_where_the_run_ends(runs: dict[str, Path]) -> None:
    run = read_run(runs["pcpg"])
    curve = iqm_curve(run, "return")
    assert curve is not None and curve.num_seeds == 2
    assert curve.steps[-1] == max(run.last(seed, "env_steps") for seed in run.seeds)
    assert curve.band.value[-1] == pytest.approx(np.mean(list(run.final_returns.values())))
    assert np.all(curve.band.low <= curve.band.value) and np.all(curve.band.value <= curve.band.high)
    success = success_curve(run, -10.0)
    assert (
        success is not None and success.band.value[-1] == 1.0 and success.band.low[-1] == pytest.approx(0.342, abs=0.01)
    )
    assert iqm_curve(run, "nothing") is None


@pytest.mark.parametrize("algo", ["pcpg", "ppo"])
def test_the_command_on_the_page_gives_the_same_configuration(runs: dict[str, Path], algo: str, page: Page) -> None:
    run = read_run(runs[algo])
    command = repeat(run)
    assert html.escape(command, quote=False) in page.text
    again, _ = read_train_flags(shlex.split(command)[2:], lambda text: None)
    assert json.loads(json.dumps(again.to_json())) == run.config


def test_a_picture_has_closed_cells_open_and_signed_rows_from_below(runs: dict[str, Path]) -> None:
    lock = grid_of(read_run(runs["pcpg"]), 0)
    assert lock is not None and lock.sheet(np.arange(12.0)).shape == (3, 5)
    assert np.isnan(lock.sheet(np.arange(12.0))[:, 2]).all(), "a gap between the two locks"
    cells = lock.cells._replace(panels=("p",), rows=("-1", "+1"), columns=("0", "1"))
    signed = Grid(cells, np.array([[[True, False], [True, True]]]))
    np.testing.assert_array_equal(signed.sheet(np.arange(4.0)), [[2, 3], [0, np.nan]])


def test_an_environment_that_cannot_be_made_here_still_has_its_report(runs: dict[str, Path]) -> None:
    run = read_run(runs["pcpg"])
    options = {"max_steps": 0, "num_envs": 32, "workers": 0, "slip": True}
    foreign = dataclasses.replace(run, config=run.config | {"env": "gymnasium:Nowhere-v0", "env_options": options})
    assert foreign.env is None and foreign.env_key == "gymnasium:Nowhere-v0 (slip True)"
    page = Page(render([foreign]))
    assert not page.all("img") and "Solved" not in page.text


def test_a_run_on_the_cover_of_another_says_whose(runs: dict[str, Path]) -> None:
    run = read_run(runs["pcpg"])
    given = dataclasses.replace(run, config=run.config | {"source": {"run": "runs/explored"}})
    page = Page(render([given]))
    assert "PC-PG (given cover) on CombinationLock-v0" in page.text and "Cover taken from" in page.text
    assert "pcpg exploit runs/explored --seed 0 --seeds 2" in page.text and "--config" not in page.text


def test_environments_are_put_together_by_shares_of_a_solved_return(runs: dict[str, Path]) -> None:
    run = dataclasses.replace(read_run(runs["pcpg"]), covers={}, records={})
    first, other = (
        dataclasses.replace(
            run,
            summary={"seeds": [0, 1], "final_return": returns},
            config=run.config | {"env_options": {"horizon": horizon}},
        )
        for horizon, returns in ((2, [0.0, 3.5]), (9, [3.5, 7.0]))  # solved is 3.5: shares 0, 1 and 1, 2
    )
    (row,) = across([first, other, read_run(runs["ppo"])])
    assert row[:3] == ("PC-PG", 2, 4) and row.score.startswith("1.00 [0.5")
    assert across([first]) == []
    assert "All environments together" in render([first, other])


# What is missing.


def test_an_unfinished_run_is_reported_as_far_as_it_is(
    copy: Path, cli: Callable[..., Any], unseal: Callable[[Path], None]
) -> None:
    unseal(copy)
    (copy / "summary.json").unlink()
    lines = (copy / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (copy / "metrics.jsonl").write_bytes(b"".join(lines[:6]) + b'{"step": 4, "se')
    answer = cli("report", copy, "--json").json
    assert answer["report"] == str(copy / "report.html")
    assert "unsealed" in answer["notes"][str(copy)][0] and "not finished" in answer["notes"][str(copy)][1]
    text = Page((copy / "report.html").read_text(encoding="utf-8")).text
    assert "Missing data" in text and f"pcpg resume {copy}" in text


def test_damage_is_named_and_the_rest_is_shown(copy: Path) -> None:
    lines = (copy / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (copy / "metrics.jsonl").write_bytes(b"".join([*lines[:10], b"{]\n", *lines[11:]]))
    member = copy / "cover" / "0007.safetensors"
    member.write_bytes(member.read_bytes()[:-3])
    (copy / "timings.jsonl").unlink()
    path, (run,) = write_report([copy])
    text = Page(path.read_text(encoding="utf-8")).text
    notes = " ".join(run.notes)
    assert "line 11 is damaged" in notes and "0007.safetensors" in notes and "timings.jsonl is missing" in notes
    assert all(html.escape(note, quote=False)[:20] in text for note in run.notes)
    assert len(run.records[0]) == 5 and run.covers == {}


def test_a_run_that_has_only_begun_has_a_page(tiny: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    folder = start_run(RunConfig.from_json(tiny()), tmp_path / "run")
    path, (run,) = write_report([folder.path])
    text = Page(path.read_text(encoding="utf-8")).text
    assert "has no results yet" in text and "Nothing to plot yet" in text
    assert any("No reports from seeds 0, 1" in note for note in run.notes)


def test_what_is_no_run_is_refused_and_nothing_is_written(
    copy: Path, tmp_path: Path, cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(NotARun, match=re.escape("is not a run folder: it holds no config.json")):
        write_report([copy, empty], tmp_path / "page.html")
    for arguments, message in (
        (("empty",), "empty is not a run folder"),
        (("absent",), "absent: no such folder"),
        ((), "name a run folder"),
        (("run", "--out", "absent/page.html"), "the folder absent does not exist"),
        (("run", "--out", "empty"), "empty is a folder: give a file"),
    ):
        answer = cli("report", *arguments)
        assert answer.code == 2 and message in answer.err
    (copy / "config.json").write_text("{}")
    with pytest.raises(DamagedFile, match=re.escape("config.json")):
        write_report([copy], tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists() and not (tmp_path / "report.html").exists()


# In a real browser.

CONTRAST = """
(() => {
  const rgb = text => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
  const light = text => {
    const [r, g, b] = rgb(text).map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  const style = name => getComputedStyle(document.querySelector(name));
  const probe = document.createElement('i');
  document.body.append(probe);
  const named = name => { probe.style.color = `var(--${name})`; return getComputedStyle(probe).color; };
  const card = style('.card').backgroundColor;
  return {
    text: Math.min(...['.lead', 'h1', 'nav a'].map(n => ratio(style(n).color, style('body').backgroundColor)),
                   ...['figcaption', 'dt', 'thead th', '.chart'].map(n => ratio(style(n).color, card))),
    lines: Math.min(...[0, 1, 2, 3, 4, 5].map(n => ratio(named(`series-${n}`), card))),
  };
})()
"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280], ids=["phone", "desktop"])
def test_a_browser_shows_all_of_it_at_any_width(browser: Any, page_file: Path, width: int, dark: bool) -> None:
    browser.open(page_file, width, dark=dark)
    assert browser.complaints == []
    assert browser.evaluate("document.documentElement.scrollWidth") == browser.evaluate("innerWidth") == width
    loaded = "[...document.images].every(image => image.complete && image.naturalWidth > 0)"
    assert browser.evaluate(loaded)
    sizes = browser.evaluate(
        "[...document.querySelectorAll('svg.chart')].map(chart => chart.getBoundingClientRect().width)"
    )
    assert len(sizes) == 8 and min(sizes) > 250
    contrast = browser.evaluate(CONTRAST)
    assert contrast["text"] >= 4.5 and contrast["lines"] >= 3.0


def test_a_run_on_functions_of_the_users_own_is_repeated_in_python(runs: dict[str, Path]) -> None:
    run = read_run(runs["pcpg"])
    own = dataclasses.replace(run, config=run.config | {"env": "python:walks.Walk#2", "env_options": {}})
    assert repeat(own) == "" and "call <code>pcpg.train</code> with your functions" in render([own])
