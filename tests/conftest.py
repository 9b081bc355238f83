"""What tests of whole runs share: one compilation cache, tiny settings, and the command line."""

import copy
import dataclasses
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jaxtyping
import pytest

ROOT = Path(__file__).parents[1]

# Before JAX is imported. Compiled programs are kept for the next time, in this clone and never in the user's folder.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "jax"))
Path(os.environ["JAX_COMPILATION_CACHE_DIR"]).mkdir(mode=0o700, parents=True, exist_ok=True)

# Notes of who made a run are made with a secret of these tests, not with the user's.
os.environ["XDG_STATE_HOME"] = str(ROOT / ".cache" / "state")

# Before JAX is imported. Half of a first run of the tests is compilation: like this it takes a quarter of its time.
# `XLA_FLAGS= make test` compiles as users do.
if version("jaxlib").startswith("0.10."):  # an unknown flag would end the process
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=0")

# Before pcpg is imported: shapes and types in the signatures of these modules are checked at every call. The design is
# left out: it checks its arguments itself, and its many small functions are timed.
CHECKED = [
    "pcpg.learners.update",
    "pcpg.kernel.fitting",
    "pcpg.bonuses",
    "pcpg.kernel.landmarks",
    "pcpg.kernel.pairs",
    "pcpg.kernel.policies",
    "pcpg.cover.bonus",
    "pcpg.cover.cover",
    "pcpg.policies",
    "pcpg.features",
]
jaxtyping.install_import_hook(CHECKED, "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))")

PPO = {"num_updates": 3, "num_episodes": 64, "hidden": [16, 16]}
AGENTS: dict[str, dict[str, Any]] = {
    "pcpg": {
        "ppo": PPO,
        "explore": {"visit_episodes": 32, "num_groups": 16, "max_policies": 8, "patience": 8},
        "exploit": {"num_rounds": 6},
    },
    "ppo": {"ppo": PPO, "visit_episodes": 32, "budget": 9000},
    "ppo-rnd": {"ppo": PPO, "visit_episodes": 32, "budget": 9000},
}


# The files that take longest begin first, so that no worker is left with one of them at the end.
LONGEST = (
    "docs/test_docs.py",
    "training/test_resume.py",
    "lab/test_on_ray.py",
    "algos/test_replay.py",
    "engine/test_tabulated.py",
    "lab/test_lock.py",
    "lab/test_maze.py",
    "training/test_failures.py",
    "training/test_kills.py",
    "training/test_old_runs.py",
    "training/test_exploit.py",
    "training/test_own_environments.py",
    "cli/test_cli.py",
    "test_doctests.py",
    "theory/test_theory_as_oracle.py",
    "lab/test_mountaincar.py",
    "bonuses/test_e3b.py",
    "lab/test_table1.py",
    "learners/test_ppo.py",
    "runs/test_fuzz.py",
    "engine/test_program.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort by file alone, and the others as they were."""
    place = {ROOT / "tests" / name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path, len(place)))


@pytest.fixture(scope="session", autouse=True)
def no_network() -> Iterator[None]:
    """No test reaches beyond this machine: a connection to anything but itself is refused."""

    def refusing(call: Callable[..., Any]) -> Callable[..., Any]:
        def connect(self: socket.socket, *arguments: Any) -> Any:
            address = arguments[-1]
            host = address[0] if isinstance(address, tuple) else ""
            if self.family in (socket.AF_INET, socket.AF_INET6) and host not in ("127.0.0.1", "::1", "localhost"):
                raise RuntimeError(f"a test wants to reach {address}: the network is cut while tests run")
            return call(self, *arguments)

        return connect

    with pytest.MonkeyPatch.context() as patch:
        for name in ("connect", "connect_ex", "sendto"):
            patch.setattr(socket.socket, name, refusing(getattr(socket.socket, name)))
        yield


@pytest.fixture(scope="session", autouse=True)
def probes() -> None:
    """Probe environments have ids while tests run."""
    from tests.probes import register_probes

    register_probes()


@pytest.fixture(scope="module")
def compile_once() -> Iterator[None]:
    """Runs of a file compile each program once; not for a file that puts functions in the place of others."""
    from tests.programs import shared_programs

    with shared_programs():
        yield


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """No signatures are checked: for what the library itself refuses."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.fixture(scope="session")
def tiny() -> Callable[..., dict[str, Any]]:
    """A configuration of 14 rounds of milliseconds, by algorithm; entries can be replaced."""

    def config(algo: str = "pcpg", **entries: Any) -> dict[str, Any]:
        made = {"env": "CombinationLock-v0", "algo": algo, "env_options": {"horizon": 2}, "seeds": 2}
        return copy.deepcopy(made | {"agent": AGENTS[algo]} | entries)

    return config


@pytest.fixture(scope="session")
def config_file(tmp_path_factory: pytest.TempPathFactory, tiny: Callable[..., dict[str, Any]]) -> Callable[..., str]:
    """The path of a file with such a configuration."""
    folder = tmp_path_factory.mktemp("configs")

    def write(algo: str = "pcpg", **entries: Any) -> str:
        path = folder / f"{algo}-{len(list(folder.iterdir()))}.json"
        path.write_text(json.dumps(tiny(algo, **entries)))
        return str(path)

    return write


@pytest.fixture(scope="session")
def unseal() -> Callable[[Path], None]:
    """Make a run folder one of a version without manifests."""

    def make_old(path: Path) -> None:
        from pcpg.runs.documents import read_json, write_json

        (path / "manifest.json").unlink(missing_ok=True)
        (path / "environment.json").unlink(missing_ok=True)
        write_json(path / "config.json", read_json(path / "config.json").content)

    return make_old


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a command said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one JSON object that stdout holds, and nothing else."""
        assert self.code == 0, self.err
        assert self.out.count("\n") == 1 and self.out.endswith("\n"), self.out
        return json.loads(self.out)


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Answer]]:
    """The command line, called in this process."""
    from pcpg.cli.main import main

    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments: object) -> Answer:
        capfd.readouterr()
        with pytest.raises(SystemExit) as done:
            main([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        assert "Traceback" not in err
        return Answer(int(done.value.code or 0), out, err)

    yield run


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Send this process a signal, and wait until the thread that listens during training has taken it up."""
    from pcpg.training.interrupt import Stop

    taken_up = threading.Event()

    def heard(stop: threading.Event) -> None:
        threading.Event.set(stop)
        taken_up.set()

    def send(signum: int) -> None:
        os.kill(os.getpid(), signum)
        assert taken_up.wait(60)

    monkeypatch.setattr(Stop, "set", heard)
    return send


@pytest.fixture(scope="session")
def start_pcpg() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """The command line in a process of its own; whatever still runs at the end is killed."""
    # The package of this clone, installed or not.
    own = os.environ | {"PYTHONPATH": str(ROOT / "src"), "COLUMNS": "100"}
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: object, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "pcpg", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=own | environment,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
