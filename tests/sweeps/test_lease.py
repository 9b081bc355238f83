"""One process at a time works on a cell, and one that has gone is replaced."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pcpg.sweeps import lease
from pcpg.sweeps.lease import take


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lease, "BEAT", 0.05)


def test_of_many_that_want_a_cell_one_has_it_at_a_time(tmp_path: Path):
    inside, most, times = 0, 0, 0
    lock = threading.Lock()

    def work() -> None:
        nonlocal inside, most, times
        held, _ = take(tmp_path, "cell", lambda: None, patience=5.0)
        with lock:
            inside, times = inside + 1, times + 1
            most = max(most, inside)
        time.sleep(0.05)
        with lock:
            inside -= 1
        held.release()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, times) == (1, 4)
    assert not list(tmp_path.iterdir())


def test_the_lease_of_a_process_that_was_killed_is_taken_over_at_once(tmp_path: Path):
    code = f"""
import os, pathlib
from pcpg.sweeps.lease import take
take(pathlib.Path({str(tmp_path)!r}), "cell", lambda: None)
os.kill(os.getpid(), 9)
"""
    own = os.environ | {"PYTHONPATH": str(Path(lease.__file__).parents[2])}
    subprocess.run([sys.executable, "-c", code], env=own, check=False)
    began = time.monotonic()
    held, before = take(tmp_path, "cell", lambda: None, patience=60.0)
    assert time.monotonic() - began < 30
    assert before is not None and before.number == 1 and held.number == 2
    held.release()


def test_a_holder_elsewhere_that_no_longer_beats_loses_its_lease_and_learns_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    lost = threading.Event()
    first, _ = take(tmp_path, "cell", lost.set)
    # Of another machine: nobody here can tell whether its process lives.
    monkeypatch.setattr(lease, "machine", lambda: "elsewhere")
    beat = lease.os.open
    asleep = threading.Event()

    def sleeping(path, flags, *rest):
        while not asleep.is_set() and threading.current_thread() is first._thread:
            time.sleep(0.01)
        return beat(path, flags, *rest)

    monkeypatch.setattr(lease.os, "open", sleeping)
    time.sleep(0.1)
    second, before = take(tmp_path, "cell", lambda: None, patience=0.3)
    assert before is not None and second.number == 2 and second.is_mine()
    asleep.set()
    assert lost.wait(5.0)
    second.release()


def test_a_holder_that_beats_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    first, _ = take(tmp_path, "cell", lambda: None)
    monkeypatch.setattr(lease, "is_dead", lambda owner: False)
    got: list[int] = []
    waiter = threading.Thread(target=lambda: got.append(take(tmp_path, "cell", lambda: None, patience=0.4)[0].number))
    waiter.start()
    waiter.join(1.0)
    assert not got
    first.release()
    waiter.join(5.0)
    assert got == [1]
