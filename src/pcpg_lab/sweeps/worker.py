"""A process that does jobs, one after the other: `python -m pcpg_lab.sweeps.worker CORES`.

It reads jobs from stdin, one JSON object a line, and answers on stdout; all other output goes to stderr. JAX and its
compiled programs stay loaded from job to job. The process ends when stdin is closed: the sender is gone.
"""

import json
import os
import queue
import sys
import threading
from collections.abc import Mapping
from typing import TextIO

from pcpg_lab.sweeps.crew import Boss, Job, perform
from pcpg_lab.sweeps.resources import pin


class Jobs(Boss):
    """The jobs that come in, and whether the current one is to stop after its round."""

    def __init__(self, source: TextIO, answers: TextIO) -> None:
        super().__init__()
        self._source, self._answers = source, answers
        self._jobs: queue.Queue[Job] = queue.Queue()
        self._acknowledged = threading.Semaphore(0)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._source:
            said = json.loads(line)
            if said.get("stop"):
                self.stop.set()
            elif said.get("seen"):
                self._acknowledged.release()
            else:
                self.stop.clear()  # that was for the job before
                self._jobs.put(said)
        os._exit(1)

    def get(self) -> Job:
        """The next job."""
        return self._jobs.get()

    def saved(self, step: int) -> None:
        """Report a checkpoint, and wait until it was fetched."""
        self.answer({"saved": step})
        self._acknowledged.acquire()

    def answer(self, said: Mapping[str, object]) -> None:
        """Send a message back."""
        print(json.dumps(said), file=self._answers, flush=True)


def main() -> None:
    """Do jobs until the sender is gone."""
    cores = pin(int(sys.argv[1]))
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    jobs = Jobs(sys.stdin, answers)
    jobs.answer({"ready": os.getpid(), "cores": cores})
    while True:
        jobs.answer(perform(jobs.get(), jobs))


if __name__ == "__main__":
    main()
