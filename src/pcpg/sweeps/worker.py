"""A process that runs cells, one after the other: `python -m pcpg.sweeps.worker CORES`.

It reads jobs from stdin, a JSON object a line, and answers on stdout likewise; what else is printed goes to stderr. It
keeps JAX and its compiled programs from cell to cell. When stdin is closed, whoever sent the jobs has gone: it ends.
"""

import json
import os
import queue
import sys
import threading
from typing import Any, TextIO

from pcpg.sweeps.resources import pin


class Jobs:
    """What comes in, and whether the cell at work is to stop after its round."""

    def __init__(self, source: TextIO, answers: TextIO) -> None:
        self._source, self._answers = source, answers
        self._jobs: queue.Queue[dict[str, Any]] = queue.Queue()
        self._acknowledged = threading.Semaphore(0)
        self.stop = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._source:
            said = json.loads(line)
            if said.get("stop"):
                self.stop.set()
            elif said.get("seen"):
                self._acknowledged.release()
            else:
                self.stop.clear()  # that was for the cell before
                self._jobs.put(said)
        os._exit(1)

    def get(self) -> dict[str, Any]:
        """The next job."""
        return self._jobs.get()

    def saved(self, step: int) -> None:
        """Say that a checkpoint is there, and wait until it was looked at."""
        self.answer({"saved": step})
        self._acknowledged.acquire()

    def answer(self, said: dict[str, Any]) -> None:
        """Send something back."""
        print(json.dumps(said), file=self._answers, flush=True)


def main() -> None:
    """Run cells until nobody has any."""
    cores = pin(int(sys.argv[1]))
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    jobs = Jobs(sys.stdin, answers)
    from pcpg.sweeps.cells import run_cell

    jobs.answer({"ready": os.getpid(), "cores": cores})
    while True:
        jobs.answer(run_cell(jobs.get(), jobs))


if __name__ == "__main__":
    main()
