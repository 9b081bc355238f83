"""The policy playing on the page, and what a run gives of itself."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pcpg
from pcpg import play
from pcpg.reports.figures import Playing, drawing, playing_figure
from pcpg.runs.errors import NotARun

ROOT = Path(__file__).parents[2]
SMALL = {"ppo": {"num_updates": 1, "num_episodes": 32, "hidden": [8]}, "visit_episodes": 8, "budget": 400}


def episode(observations: np.ndarray, frames: int = 0, *, is_cut: bool = False) -> Playing:
    rewards = np.zeros(len(observations) - 1)
    rewards[-1] = 1.0
    return Playing(observations, rewards, is_cut, [np.full((8, 8, 3), 9 * at, np.uint8) for at in range(frames)])


def test_frames_are_a_film_and_numbers_a_path_through_the_entries_that_change_most() -> None:
    seen = np.stack([np.zeros(6), np.arange(6) % 3, np.arange(6) ** 2], axis=1).astype(np.float32)
    film = playing_figure("a", episode(seen, frames=6), 0)
    assert film is not None and "data:image/gif;base64," in film.markup and film.caption.endswith("return 1.00.")
    with drawing():
        path = playing_figure("a", episode(seen), 3)
        assert path is not None and "entry 2 of the observation" in path.markup and "entry 1" in path.markup
        assert path.caption.startswith("An episode of the policy of seed 3: 5 steps, return 1.00.")
        line = playing_figure("a", episode(seen[:, [0, 2]], is_cut=True), 0)
        assert line is not None and "step" in line.markup and "cut here" in line.caption
        assert playing_figure("a", episode(np.zeros((6, 3))), 0) is None, "nothing changes"
        assert playing_figure("a", episode(np.zeros((6, 4, 4, 3))), 0) is None and playing_figure("a", None, 0) is None


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> pcpg.Run:
    path = tmp_path_factory.mktemp("played") / "run"
    return pcpg.train("CombinationLock-v0", "ppo", horizon=2, config=SMALL, out=path, quiet=True)


def test_a_report_shows_the_policy_playing_and_is_the_same_every_time(run: pcpg.Run) -> None:
    page = run.report().read_text()
    assert "The policy playing" in page and 'class="film"' in page
    assert run.report().read_text() == page


def test_of_a_folder_that_somebody_else_made_no_outside_environment_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    cart = "gymnasium:CartPole-v1"
    folder = SimpleNamespace(path=Path("nowhere"), config={"env": cart, "env_options": {}})
    theirs: Any = SimpleNamespace(
        trust=False, folder=folder, config=SimpleNamespace(env=cart, seed=0), env=pcpg.make(cart)
    )
    built: list[object] = []
    monkeypatch.setattr(play, "playable_env", lambda *given, **_: built.append(given))
    assert play.portrait(theirs) is None and not built
    theirs.trust = True
    assert play.portrait(theirs) is None and built, "of a run of one's own it is"


def test_a_run_that_is_resumed_is_brought_up_to_date(run: pcpg.Run, tmp_path: Path) -> None:
    copy = pcpg.load(run.save(tmp_path / "copy"))
    before = copy.summary["env_steps"]
    more = pcpg.resume(copy, total_steps="+400", quiet=True)
    assert copy.summary == more.summary and copy.summary["env_steps"] > before
    assert copy.evaluate(4).returns.shape == (1, 4)


def test_a_run_that_keeps_data_has_the_weights_of_its_cover(tmp_path: Path) -> None:
    run = pcpg.train("CombinationLock-v0", "pcpg-replay", horizon=2, total_steps="1k", out=tmp_path / "r", quiet=True)
    assert run.cover.weights.sum() == pytest.approx(1.0)
    with pytest.raises(NotARun, match="no policies of a cover: pcpg-replay keeps data instead"):
        run.cover_policies()


def test_links_of_the_description_lead_somewhere_or_are_text() -> None:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None and spec.loader is not None
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    text = "![a](docs/a.gif) [page](docs/b.md) [paper](https://arxiv.org/abs/1)"
    assert build.described(text, "") == " page [paper](https://arxiv.org/abs/1)"
    there = build.described(text, "https://host/o/p")
    assert "(https://host/o/p/raw/main/docs/a.gif)" in there and "(https://host/o/p/blob/main/docs/b.md)" in there
    readme = build.described((ROOT / "README.md").read_text(), "")
    assert "](docs/" not in readme and "https://arxiv.org" in readme
