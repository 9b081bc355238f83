"""Kills and full disks: the newest checkpoint is whole afterwards, and nothing half-written is left."""

import errno
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pcpg.runs import checkpoints
from pcpg.runs.errors import DiskFull, RunError
from tests.runs.test_checkpoints import is_whole, leftovers, save


def test_a_removal_killed_halfway_does_not_look_like_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 1, 2)

    def killed(path: Path, **_: Any) -> None:
        if path.exists():
            (path / "state.json").unlink()
            raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path, 3)
    monkeypatch.undo()
    assert checkpoints.steps(tmp_path) == [2, 3]
    save(tmp_path, 3)
    assert not leftovers(tmp_path)


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="needs the names of open files")
def test_content_is_synced_before_it_gets_its_name_and_older_ones_go_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 1)
    done: list[str] = []

    def recorded(name: str, say: Callable[..., str]) -> None:
        call = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *args: (done.append(f"{name} {say(*args)}"), call(*args))[1])

    recorded("fsync", lambda descriptor: Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
    recorded("replace", lambda _, target: target.name)
    recorded("rename", lambda _, target: target.name)
    save(tmp_path, 2, keep=1)
    pid = os.getpid()
    assert done == [
        f"fsync .tmp-arrays.safetensors-{pid}",
        "replace arrays.safetensors",
        f"fsync .tmp-state.json-{pid}",
        "replace state.json",
        f"fsync .tmp-000002-{pid}",
        "rename 000002",
        f"fsync {tmp_path.name}",
        f"rename .tmp-old-000001-{pid}",
    ]


class FillingDisk:
    """Lets `room` calls that need space through, a write at the end only in part; then it is full."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
        self.room = room
        self.refused = 0
        for name in ("open", "write", "fsync", "mkdir", "rename", "replace"):
            monkeypatch.setattr(os, name, self.limited(name, getattr(os, name)))

    def limited(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def limited_call(*args: Any, **kwargs: Any) -> Any:
            if name == "open" and not args[1] & os.O_CREAT:
                return call(*args, **kwargs)
            self.room -= 1
            if self.room < 0:
                self.refused += 1
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if name == "write" and self.room == 0:
                return call(args[0], args[1][: len(args[1]) // 2])
            return call(*args, **kwargs)

        return limited_call


def test_wherever_the_disk_gets_full_the_last_checkpoint_stays(tmp_path: Path) -> None:
    refusals = 0
    for room in range(100):
        root = tmp_path / str(room)
        save(root, 4, 5)
        with pytest.MonkeyPatch.context() as patch:
            disk = FillingDisk(patch, room)
            try:
                save(root, 6)
            except DiskFull as error:
                message = str(error)
            else:
                message = ""
        assert bool(message) == bool(disk.refused)
        latest = checkpoints.load_latest(root)
        assert latest is not None and is_whole(latest) and not latest.skipped
        if not message:
            break
        refusals += 1
        assert message.startswith(f"disk full while writing {root}")
        assert f"the last good checkpoint {latest.step} is kept" in message
        assert not any(name.startswith(".tmp-000006") for name in leftovers(root))
        save(root, 6)
        assert checkpoints.steps(root) == [5, 6] and not leftovers(root)
    assert refusals >= 10


def test_a_disk_that_is_full_before_the_first_checkpoint_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FillingDisk(monkeypatch, 4)
    with pytest.raises(DiskFull, match=r"000006/arrays\.safetensors; there is no earlier checkpoint"):
        save(tmp_path, 6)


def test_another_refusal_of_the_system_names_file_and_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 5)

    def refuse(*_: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(RunError, match=r"cannot write .*arrays\.safetensors: Input/output error"):
        save(tmp_path, 6)
    assert checkpoints.steps(tmp_path) == [5] and not leftovers(tmp_path)


def run_python(script: str, *arguments: str, prefix: tuple[str, ...] = ()) -> str:
    command = [*prefix, sys.executable, "-W", "ignore", "-c", script, *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


SMALL_DISK = """
import os, sys
from pathlib import Path
import numpy as np
from pcpg.runs import checkpoints
from pcpg.runs.errors import DiskFull
root = Path(sys.argv[1]) / "checkpoints"
for step in range(100):
    try:
        checkpoints.save(root, step, {"w": np.full(1000 * (step + 1), step, np.float32)}, {}, keep=1)
    except DiskFull as error:
        latest = checkpoints.load_latest(root)
        assert latest.step == step - 1 and (latest.arrays["w"] == step - 1).all(), latest
        assert os.listdir(root) == [f"{step - 1:06d}"], os.listdir(root)
        print(error)
        break
"""


def test_a_disk_that_is_really_full_leaves_the_last_checkpoint(tmp_path: Path) -> None:
    mount = ("unshare", "--map-root-user", "--mount", "sh", "-c")
    tmpfs = 'mount -t tmpfs -o size=256k tmpfs "$0" && exec "$@"'
    try:
        subprocess.run([*mount, tmpfs, str(tmp_path), "true"], check=True, capture_output=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        pytest.skip("a small disk cannot be mounted here")
    output = run_python(SMALL_DISK, str(tmp_path), prefix=(*mount, tmpfs, str(tmp_path)))
    assert re.search(r"disk full while writing .*/0000\d\d/\S+; the last good checkpoint \d+ is kept", output)


# The writers are forked from a process that has imported everything, so that a kill costs milliseconds.
KILLED_WRITERS = """
import os, random, signal, sys, time
from pathlib import Path
import numpy as np
from pcpg.runs import checkpoints
root = Path(sys.argv[1])
rng = random.Random(0)
arrays = lambda step: {"w": np.full(50_000, step, np.float32), "v": np.arange(step % 7)}
checkpoints.save(root, 0, arrays(0), {"step": 0})
reached = [0]
for kill in range(300):
    if kill >= 25 and reached[-1] > 0:  # a busy machine may start no writer in time
        break
    start = checkpoints.load_latest(root).step
    writer = os.fork()
    if writer == 0:
        for step in range(start + 1, start + 10_000):
            checkpoints.save(root, step, arrays(step), {"step": step}, keep=1 + kill % 2)
        os._exit(0)
    time.sleep(rng.uniform(0.002, 0.08) * (1 + kill // 25))  # the slower the disk, the longer it may take
    os.kill(writer, signal.SIGKILL)
    os.waitpid(writer, 0)
    latest = checkpoints.load_latest(root)
    assert latest.skipped == () and latest.step >= start, latest
    assert latest.state == {"step": latest.step}
    assert (latest.arrays["w"] == latest.step).all() and latest.arrays["w"].size == 50_000
    assert len(latest.arrays["v"]) == latest.step % 7
    reached.append(latest.step)
checkpoints.save(root, reached[-1] + 1, arrays(1), {})
assert not [name for name in os.listdir(root) if name.startswith(".")], os.listdir(root)
print(reached[-1])
"""


def test_after_a_kill_at_any_moment_the_newest_checkpoint_is_whole(tmp_path: Path) -> None:
    assert int(run_python(KILLED_WRITERS, str(tmp_path))) > 0
