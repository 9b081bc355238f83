"""Folders of sweeps and searches that a stranger made: they neither choose what is imported nor what is trained."""

import importlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pcpg.config import ConfigError
from pcpg.reports.figures import new_figure
from pcpg.run_config import RunConfig
from pcpg.runs.documents import read_json, write_json
from pcpg.runs.errors import DamagedFile, FolderTaken
from pcpg.runs.folder import RunFolder
from pcpg.runs.lock import LOCK, hold_lock
from pcpg.training.loop import start_run
from pcpg_lab.claims import EXPERIMENTS, certificates
from pcpg_lab.claims.certificates import SMOKE, run_case
from pcpg_lab.claims.harness import reproduce, summarised
from pcpg_lab.claims.records import save
from pcpg_lab.sweeps import crew
from pcpg_lab.sweeps.crew import Boss, perform, pin
from pcpg_lab.sweeps.plan import Cell, Plan, plan_of, read_plan
from pcpg_lab.sweeps.status import SweepFolder
from pcpg_lab.sweeps.sweep import job_of, run_sweep
from pcpg_lab.table1.command import Store

PAYLOAD = """
import os, pathlib
pathlib.Path(os.environ["MARK"]).write_text("the payload ran")
"""
HOSTILE = "gymnasium:payload:Harmful-v0"


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the payload writes when it is imported, which it can be."""
    (tmp_path / "payload.py").write_text(PAYLOAD)
    monkeypatch.setenv("MARK", str(tmp_path / "mark"))
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path / "mark"


@pytest.fixture
def sweep(tmp_path: Path, tiny: Callable[..., Any]) -> tuple[Path, Plan]:
    """A sweep of one cell that has begun, and its file beside it."""
    entries = {"base": tiny("pcpg", seeds=1)}
    plan = plan_of(entries)
    (tmp_path / "sweep.py").write_text(f"SWEEP = {entries!r}")
    SweepFolder(tmp_path / "out").write_plan(plan)
    start_run(RunConfig.from_json(plan.cells[0].config), tmp_path / "out" / "cells" / plan.cells[0].id)
    return tmp_path / "out", plan


def forge(out: Path, cell: Cell, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the config of a cell as somebody would who knows how folders are sealed."""
    path = out / "cells" / cell.id / "config.json"
    content = json.loads(json.dumps(read_json(path).content))
    change(content)
    write_json(path, content, sealed=True)


def test_a_cell_does_not_import_what_its_folder_names(sweep: tuple[Path, Plan], mark: Path, cli: Any):
    out, plan = sweep
    forge(out, plan.cells[0], lambda config: config.update(env=HOSTILE, env_options={}))
    answer = cli("sweep", out.parent / "sweep.py", "--out", out)
    assert answer.code == 2 and "config is not the plan's" in answer.err, answer.err
    assert "env is 'gymnasium:payload:Harmful-v0' there, 'CombinationLock-v0' here" in answer.err.replace("\n", " ")
    outcome = perform(job_of(plan.cells[0], out / "cells" / plan.cells[0].id) | {"shared": True}, Boss())
    assert outcome["state"] == "failed" and not outcome["again"] and "is not the plan's" in outcome["cause"]
    assert not mark.exists()


def test_a_cell_with_other_settings_than_the_plan_is_refused_with_the_difference(sweep: tuple[Path, Plan]):
    out, plan = sweep
    forge(out, plan.cells[0], lambda config: config["agent"]["explore"].update(max_policies=2))
    with pytest.raises(FolderTaken, match=r"agent\.explore\.max_policies is 2 there, 8 here"):
        run_sweep(plan, SweepFolder(out), NoEngine())


CLAIMS = [name for name, home in EXPERIMENTS.items() if home.endswith(":CLAIM")]  # the others keep no run folders


@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_does_not_import_what_a_run_below_its_folder_names(name: str, tmp_path: Path, mark: Path):
    module, _, claim = EXPERIMENTS[name].partition(":")
    claim = getattr(importlib.import_module(module), claim)
    flags = claim.flags(out=str(tmp_path / "out"))
    pytest.importorskip("minigrid") if name == "levels" else None
    cell = next(claim.cells(flags, []))
    config = json.loads(json.dumps(cell.config.resolved().to_json())) | {"env": HOSTILE, "env_options": {}}
    RunFolder.create(tmp_path / "out" / "runs" / cell.name, config)
    with pytest.raises(FolderTaken, match=r"config is not the claim's \(env is 'gymnasium:payload:Harmful-v0' there"):
        reproduce(claim, flags)
    assert not mark.exists()


CELL = "0123456789abcdef"
TIMING = '{"cells": {"a": {"state": "done", "seconds": SECONDS}}}'
HOSTILE_JSON = (
    *("", "{", "[]", "3", '"x"', "null", "{}", "[" * 9999 + "]" * 9999, '{"cells": ' + '{"a":' * 99 + "1" + "}" * 100),
    *(
        '{"cells": 3}',
        '{"cells": {"a": 3}}',
        '{"cells": [3]}',
        '{"cells": [{}], "cores": 1, "gpus": 0}',
        '{"cells": NaN}',
    ),
    *(TIMING.replace("SECONDS", value) for value in ('"x"', "1e999", "9" * 400, "-1", "[]")),
)
IDS = ("../..", "..", "", ".", "/etc", "a/b", "a\0b", 3, None, ["x"], {"a": 1})


def strange(path: Path, kind: str) -> None:
    """Put something that is no file of ours in the place of a path."""
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "sparse":
        path.touch()
        os.truncate(path, 10 << 30)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to({"zero": "/dev/zero", "nowhere": "/nowhere", "root": "/"}[kind])


@pytest.fixture
def status(tmp_path: Path, cli: Any) -> Callable[[Callable[[Path], object]], Any]:
    """`pcpg sweep status` on the folder of a sweep with one file of each kind; the folder is made anew each time."""
    cell = {"id": CELL, "label": "a", "group": "b", "config": {}}

    def ask(change: Callable[[Path], object]) -> Any:
        out = tmp_path / "out"
        shutil.rmtree(out, ignore_errors=True)
        (out / "cells" / CELL).mkdir(parents=True)
        (out / "failed").mkdir()
        (out / "sweep.json").write_text(json.dumps({"cells": [cell], "cores": 1, "gpus": None}))
        (out / "working.json").write_text("{}")
        (out / "timings.json").write_text('{"cells": {}}')
        (out / "failed" / f"{CELL}.json").write_text('{"cause": "x"}')
        (out / "cells" / CELL / "manifest.json").write_text("{}")
        with hold_lock(out):  # as while a sweep runs
            change(out)
            found = cli("sweep", "status", out)
        assert found.code in (0, 2) and found.err.count("\n") <= 1, found.err
        return found

    return ask


def test_the_status_of_a_whole_sweep_is_told(status: Any):
    assert status(lambda out: None).code == 0


@pytest.mark.parametrize("kind", ["pipe", "zero", "nowhere", "root", "sparse", "folder"])
@pytest.mark.parametrize(
    "name",
    [
        *("sweep.json", "working.json", "timings.json", f"failed/{CELL}.json", f"cells/{CELL}/manifest.json"),
        *("failed", "cells", f"cells/{CELL}"),
    ],
)
def test_the_status_of_a_sweep_follows_no_link_and_waits_for_no_pipe(status: Any, name: str, kind: str):
    found = status(lambda out: strange(out / name, kind))
    is_harmless = kind == "folder" and "json" not in name  # an empty one
    is_unread = kind in ("sparse", "folder") and name.endswith("manifest.json")  # a cell without a checkpoint
    is_unread |= kind == "sparse" and name in ("failed", "cells", f"cells/{CELL}")
    assert found.code == (0 if is_harmless or is_unread else 2)
    if found.code:
        assert Path(name).name in found.err


@pytest.mark.parametrize("kind", ["pipe", "zero", "nowhere", "folder"])
def test_the_lock_of_a_sweep_is_a_plain_file(status: Any, kind: str):
    found = status(lambda out: strange(out / LOCK, kind))
    assert found.code == 2 and LOCK in found.err, found.err


@pytest.mark.parametrize("name", ["sweep.json", "working.json", "timings.json", f"failed/{CELL}.json"])
def test_the_status_of_a_sweep_names_the_file_that_is_not_json_of_ours(status: Any, name: str):
    for text in HOSTILE_JSON:
        found = status(lambda out, text=text: (out / name).write_text(text))
        assert found.code == 0 or Path(name).name in found.err, (text[:60], found.err)
        assert found.code == 2 or (text.startswith("{") and name != "sweep.json"), text[:60]


def test_the_id_of_a_cell_leads_nowhere(status: Any):
    for name in IDS:
        cell = {"id": name, "label": "a", "group": "b", "config": {}}
        text = json.dumps({"cells": [cell], "cores": 1, "gpus": None})
        found = status(lambda out, text=text: (out / "sweep.json").write_text(text))
        assert found.code == 2 and "sweep.json" in found.err, (name, found.err)


def test_a_sweep_does_not_write_through_links_in_its_folder(sweep: tuple[Path, Plan], tmp_path: Path):
    out, plan = sweep
    path = out / "cells" / plan.cells[0].id
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DamagedFile, match="is a link"):
        run_sweep(plan, SweepFolder(out), NoEngine())


class NoEngine:
    """An engine that is never asked for a worker."""

    def slots(self) -> int:
        pytest.fail("a cell was about to run")

    hire: Any = None

    def close(self) -> None:
        pass


@pytest.mark.parametrize("algo", ["pcpg", "ppo", "ppo-rnd"])
def test_a_run_begins_with_the_very_settings_of_its_cell(tmp_path: Path, tiny: Callable[..., Any], algo: str):
    cell = plan_of({"base": tiny(algo, seeds=1)}).cells[0]
    assert start_run(RunConfig.from_json(cell.config), tmp_path / "run").config == cell.config


@pytest.mark.parametrize("name", CLAIMS)
def test_a_record_that_says_something_else_is_refused_in_words(name: str, tmp_path: Path):
    module, _, claim = EXPERIMENTS[name].partition(":")
    claim = getattr(importlib.import_module(module), claim)
    (tmp_path / "cells").mkdir()
    for text in ("{}", '{"seeds": [0], "config": {}}', "[1]"):
        (tmp_path / "cells" / "zzz.json").write_text(text)
        with pytest.raises(DamagedFile, match=r"zzz\.json.*rerun its cell, or remove it"):
            summarised(claim, tmp_path)


@pytest.mark.parametrize(
    "text", ["{}", '{"arguments": 3, "name": "linear"}', '{"name": "x", "arguments": {}, "runs": 3}']
)
def test_a_case_that_says_something_else_is_refused_in_words(text: str, tmp_path: Path):
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "linear.json").write_text(text)
    for read in (lambda: certificates.write_all(tmp_path), lambda: run_case(SMOKE[0], 0.05, tmp_path, 1, "")):
        with pytest.raises(DamagedFile, match=r"linear\.json: intact, but not what a run stores there"):
            read()


@pytest.mark.parametrize("text", ["{}", '{"arguments": 3}', '{"arguments": {"algo": []}}'])
def test_a_cell_of_table1_that_says_something_else_is_refused_in_words(text: str, tmp_path: Path):
    (tmp_path / "cells").mkdir()
    (tmp_path / "cells" / "zzz.json").write_text(text)
    with pytest.raises(DamagedFile, match=r"zzz\.json: intact, but not what a run stores there"):
        Store(tmp_path, "").all()


def test_figures_are_written_through_no_link(tmp_path: Path):
    (tmp_path / "victim").write_text("precious")
    for name in ("a.png", "a.svg"):
        (tmp_path / name).symlink_to(tmp_path / "victim")
    figure, _ = new_figure(1, 1, width=1, height=1)
    for path in save(figure, tmp_path / "a"):
        assert path.stat().st_size > 100 and not path.is_symlink()
    assert (tmp_path / "victim").read_text() == "precious"


@pytest.mark.parametrize("name", ["cells", "runs", "sweep", "summary.json"])
def test_a_claim_follows_no_link_out_of_its_folder(name: str, tmp_path: Path, cli: Any):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).symlink_to(tmp_path / "elsewhere")
    found = cli("reproduce", "lock", "--scale", "smoke", "--out", tmp_path / "out")
    assert found.code == 2 and f"{name}: is a link" in found.err and not list((tmp_path / "elsewhere").iterdir())


def test_a_grid_of_more_cells_than_anybody_runs_is_refused_at_once():
    grid = {f"agent.a{i}": list(range(10)) for i in range(9)}
    with pytest.raises(ConfigError, match="at most 10,000 cells, got 1,000,000,000"):
        plan_of({"base": {"env": "CombinationLock-v0"}, "grid": grid})


def test_a_plan_that_is_nested_too_deeply_is_refused(tmp_path: Path):
    (tmp_path / "s.py").write_text("SWEEP = {}\nSWEEP['base'] = SWEEP")
    with pytest.raises(ConfigError, match=r"s\.py is nested too deeply"):
        read_plan(tmp_path / "s.py")


def test_what_a_plan_names_begins_no_line_of_its_status(status: Any):
    cell = {"id": CELL, "label": "a\nerror: b", "group": "b", "config": {}}

    def change(out: Path) -> None:
        (out / "sweep.json").write_text(json.dumps({"cells": [cell], "cores": 1, "gpus": None}))
        (out / "failed" / f"{CELL}.json").write_text(json.dumps({"cause": "x\nall cells done"}))

    found = status(change)
    assert "failed: a\\nerror: b: x\\nall cells done" in found.out


@pytest.mark.parametrize("kind", ["link", "open to all"])
def test_cores_are_not_noted_in_a_folder_that_may_be_a_strangers(kind: str, tmp_path: Path, monkeypatch: Any):
    (tmp_path / "elsewhere").mkdir()
    folder = tmp_path / f"pcpg-cores-{os.getuid()}"
    folder.symlink_to(tmp_path / "elsewhere") if kind == "link" else folder.mkdir()
    if kind != "link":
        folder.chmod(0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(crew, "available_cores", lambda: [0, 1])
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: pytest.fail("it was pinned"))
    assert pin(1) == [0, 1] and not list(folder.iterdir())
