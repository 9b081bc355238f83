"""The manifest of a run: every change in a sealed folder is told by whoever reads it, and what can be is repaired."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pcpg
from pcpg.reports.read import read_run
from pcpg.run_config import RunConfig
from pcpg.runs.documents import read_json, write_json
from pcpg.runs.errors import DamagedFile, RunError
from pcpg.runs.folder import RunFolder
from pcpg.runs.manifest import Manifest
from pcpg.runs.verify import DAMAGED, verify
from pcpg.training.going_on import go_on
from pcpg.training.loop import start_run, train_run

pytestmark = pytest.mark.usefixtures("compile_once")

Tiny = Callable[..., dict[str, Any]]
FILES = ("metrics.jsonl", "policy.safetensors", "summary.json", "cover/0001.safetensors")


def short(tiny: Tiny, **entries: Any) -> RunConfig:
    agent = tiny()["agent"] | {"exploit": {"num_rounds": 1}}
    agent["explore"] = agent["explore"] | {"max_policies": 2}
    return RunConfig.from_json(tiny(agent=agent, **entries))


class Enough(Exception):
    pass


def stop_at(step: int) -> Callable[[Any], None]:
    def observer(progress: Any) -> None:
        if progress.step == step:
            raise Enough

    return observer


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, tiny: Tiny) -> Path:
    folder = start_run(short(tiny), tmp_path_factory.mktemp("finished") / "run")
    assert train_run(folder).finished
    return folder.path


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory: pytest.TempPathFactory, tiny: Tiny) -> Path:
    folder = start_run(short(tiny), tmp_path_factory.mktemp("unfinished") / "run")
    with pytest.raises(Enough):
        train_run(folder, observer=stop_at(2))
    return folder.path


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return shutil.copytree(finished, tmp_path / "run")


@pytest.fixture
def half(unfinished: Path, tmp_path: Path) -> Path:
    return shutil.copytree(unfinished, tmp_path / "half")


def results(path: Path) -> dict[str, bytes]:
    return {name: (path / name).read_bytes() for name in FILES}


def change_a_byte(path: Path, at: int = -9) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_a_whole_run_is_whole_and_says_so(run: Path, cli: Any) -> None:
    assert {one.state for one in verify(RunFolder.open(run))} == {"whole"}
    answer = cli("verify", run, "--json").json
    assert answer["whole"] and answer["sealed"] and len(answer["files"]) >= 12


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("policy.safetensors", lambda path: pcpg.load(path).policy),
        ("summary.json", pcpg.load),
        ("cover/0001.safetensors", lambda path: pcpg.load(path).cover),
        ("manifest.json", pcpg.load),
    ],
)
def test_a_changed_byte_is_refused_by_whoever_reads_the_file(run: Path, name: str, read: Any, cli: Any) -> None:
    change_a_byte(run / name)
    with pytest.raises(DamagedFile, match=name):
        read(run)
    checked = cli("verify", run)
    assert checked.code == 1 and "damaged" in checked.out and Path(name).name in checked.out.replace("\n", "")


def test_a_file_of_another_run_is_refused_however_whole_it_is(run: Path, half: Path, tiny: Tiny) -> None:
    other = start_run(short(tiny, seed=7), half.parent / "other").path
    shutil.copy(other / "config.json", run / "config.json")
    with pytest.raises(DamagedFile, match=r"config\.json: (altered|cut short|too large)"):
        pcpg.load(run)
    with pytest.raises(DamagedFile, match=r"config\.json: (altered|cut short|too large)"):
        pcpg.resume(run)


def test_a_newer_checkpoint_of_a_run_with_another_config_is_not_taken_for_its_own(
    half: Path, finished: Path, tiny: Tiny
) -> None:
    agent = tiny()["agent"] | {"exploit": {"num_rounds": 1}}
    agent["explore"] = agent["explore"] | {"max_policies": 2, "bonus_coef": 3.0}
    other = start_run(RunConfig.from_json(tiny(agent=agent)), half.parent / "other").path
    with pytest.raises(Enough):
        train_run(RunFolder.open(other), observer=stop_at(3))
    for name in ("checkpoints/000003", "cover"):
        shutil.copytree(other / name, half / name, dirs_exist_ok=True)
    shutil.copy(other / "metrics.jsonl", half)
    said: list[str] = []
    assert train_run(RunFolder.open(half), notice=said.append).finished
    assert any("belongs to a run with another config" in text for text in said)
    assert results(half) == results(finished)


def test_the_cover_of_an_older_checkpoint_is_not_taken_for_that_of_the_end(run: Path) -> None:
    change_a_byte(run / "checkpoints" / "000003" / "arrays.safetensors")
    with pytest.raises(DamagedFile, match="an earlier cover than the final one"):
        pcpg.exploit(run)


def test_a_changed_report_is_noted_on_the_page_and_stops_resume(half: Path) -> None:
    text = (half / "metrics.jsonl").read_text()
    (half / "metrics.jsonl").write_text(text.replace('"env_steps": ', '"env_steps": 1', 1))
    assert any("metrics.jsonl: altered" in note for note in read_run(half).notes)
    with pytest.raises(DamagedFile, match=r"metrics\.jsonl: altered.*needs its first"):
        train_run(RunFolder.open(half))


def test_a_line_that_was_doubled_after_the_seal_is_dropped(half: Path, finished: Path) -> None:
    last = (half / "metrics.jsonl").read_bytes().splitlines(keepends=True)[-1]
    with (half / "metrics.jsonl").open("ab") as file:
        file.write(last)
    assert train_run(RunFolder.open(half)).finished
    assert results(half) == results(finished)


def test_a_run_without_its_reports_does_not_go_on_as_if_nothing_were(half: Path) -> None:
    (half / "metrics.jsonl").unlink()
    with pytest.raises(DamagedFile, match=r"metrics\.jsonl: missing"):
        train_run(RunFolder.open(half))


def test_a_lost_checkpoint_is_told_and_the_one_before_it_is_used(half: Path, finished: Path) -> None:
    shutil.rmtree(half / "checkpoints" / "000002")
    said: list[str] = []
    assert train_run(RunFolder.open(half), notice=said.append).finished
    assert any(
        "000002: missing, but listed in the manifest; falling back to the checkpoint of step 1" in s for s in said
    )
    assert results(half) == results(finished)


def test_show_says_that_it_shows_an_older_checkpoint(run: Path, cli: Any) -> None:
    change_a_byte(run / "checkpoints" / "000003" / "arrays.safetensors")
    shown = cli("show", run)
    assert shown.code == 0 and "000003/arrays.safetensors" in shown.err and "checkpoint of step 2" in shown.err


@pytest.mark.parametrize(
    ("name", "harm"),
    [("policy.safetensors", change_a_byte), ("summary.json", Path.unlink), ("manifest.json", Path.unlink)],
)
def test_resume_writes_anew_what_follows_from_the_newest_checkpoint(
    run: Path, finished: Path, name: str, harm: Callable[[Path], None]
) -> None:
    harm(run / name)
    said: list[str] = []
    assert train_run(RunFolder.open(run), notice=said.append).finished
    assert any(name in text for text in said)
    assert results(run) == results(finished)
    assert not [one for one in verify(RunFolder.open(run)) if one.state == DAMAGED]


def test_a_kill_between_checkpoint_and_manifest_loses_nothing(half: Path, finished: Path, monkeypatch: Any) -> None:
    write = RunFolder.write_manifest

    def killed(folder: RunFolder, manifest: Manifest, **how: Any) -> None:
        if manifest.step == 3:
            raise Enough
        write(folder, manifest, **how)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "write_manifest", killed)
        with pytest.raises(Enough):
            train_run(RunFolder.open(half))
    assert sorted(path.name for path in (half / "checkpoints").iterdir()) == ["000002", "000003"]
    assert not [one for one in verify(RunFolder.open(half)) if one.state == DAMAGED], "the manifest knows 1 and 2"
    said: list[str] = []
    assert train_run(RunFolder.open(half), notice=said.append).finished
    assert results(half) == results(finished) and said == []


def test_timings_are_for_information_and_their_damage_stops_nothing(half: Path, finished: Path) -> None:
    (half / "timings.jsonl").write_bytes(b'{"step": 1, "seconds": 0.1, "compile_seconds": 0}\n\xff\xfe{]\n')
    said: list[str] = []
    assert train_run(RunFolder.open(half), notice=said.append).finished
    assert any("for information only" in text for text in said)
    assert results(half) == results(finished)


def test_a_folder_of_an_older_version_is_read_with_a_notice_and_sealed_when_it_goes_on(
    half: Path, run: Path, finished: Path, unseal: Callable[[Path], None], cli: Any
) -> None:
    unseal(run)
    with pytest.warns(UserWarning, match="is unsealed"):
        assert pcpg.load(run).summary["rounds"] == 3
    assert "unsealed" in cli("verify", run).out and any("unsealed" in note for note in read_run(run).notes)
    unseal(half)
    with pytest.warns(UserWarning, match="is unsealed"):
        pcpg.resume(half)
    assert results(half) == results(finished)
    assert json.loads((half / "manifest.json").read_text())["content"]["finished"] and RunFolder.open(half).is_sealed


def test_a_file_that_grew_beyond_its_seal_is_not_even_read(run: Path) -> None:
    with (run / "policy.safetensors").open("r+b") as file:
        file.truncate(10 << 30)  # sparse: ten gigabytes
    with pytest.raises(RunError, match="too large: 10,737,418,240 bytes, expected at most"):
        _ = pcpg.load(run).policy


def test_an_altered_environment_of_an_unfinished_run_is_never_sealed_anew(half: Path, cli: Any) -> None:
    path = half / "environment.json"
    write_json(path, read_json(path).content | {"max_steps": 7})  # with a seal of its own that fits
    before = path.read_bytes()
    assert cli("verify", half).code == 1
    answer = cli("resume", half)
    assert answer.code == 0 and "environment.json: altered since it was sealed" in answer.err
    assert path.read_bytes() == before and cli("verify", half).code == 1


def test_new_limits_do_not_seal_an_altered_older_checkpoint(half: Path) -> None:
    path = half / "checkpoints" / "000001" / "state.json"
    content = read_json(path).content
    write_json(path, content | {"state": content["state"] | {"device": "other"}})
    go_on(RunFolder.open(half), steps="+1000")
    [found] = [one for one in verify(RunFolder.open(half)) if one.name == "checkpoints/000001/state.json"]
    assert found.state == DAMAGED


def test_an_altered_environment_of_a_finished_run_stays_damaged(run: Path, cli: Any) -> None:
    write_json(run / "environment.json", read_json(run / "environment.json").content | {"max_steps": 7})
    for _ in range(2):
        answer = cli("verify", run, "--json")
        assert answer.code == 1 and "environment.json" in answer.out
        assert cli("resume", run).code == 0


def test_a_lost_environment_file_is_written_anew_and_sealed(run: Path, cli: Any) -> None:
    before = (run / "environment.json").read_bytes()
    (run / "environment.json").unlink()
    assert cli("resume", run).code == 0 and cli("verify", run).code == 0
    assert (run / "environment.json").read_bytes() == before
