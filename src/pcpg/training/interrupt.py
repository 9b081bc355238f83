"""Ctrl-C while training: the first asks to stop after the round, the second ends the process at once."""

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

FIRST = "stopping after this round, to lose nothing; press Ctrl-C again to stop at once and lose this round"


@contextmanager
def stop_on_interrupt(say: Callable[[str], None], leave: Callable[[], None] | None = None) -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets; the second calls `leave`, or is a KeyboardInterrupt as usual.

    Python runs its own handlers between two instructions of the main thread, which compiles or computes for minutes
    without one. So a thread listens at the pipe into which the system's handler writes, and answers at once.
    """
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def answer() -> None:
        if stop.is_set():
            if leave is not None:
                leave()
            return
        stop.set()
        say(FIRST)

    def handle(signum: int, frame: Any) -> None:
        nonlocal count
        count += 1
        if count > 1 and leave is None:
            raise KeyboardInterrupt

    count = 0
    listener, signals = socket.socketpair()
    signals.setblocking(False)
    before = signal.signal(signal.SIGINT, handle)
    pipe = signal.set_wakeup_fd(signals.fileno(), warn_on_full_buffer=False)
    watcher = threading.Thread(target=_listen, args=(listener, answer), daemon=True)
    watcher.start()
    try:
        yield stop
    finally:
        signal.set_wakeup_fd(pipe)
        signal.signal(signal.SIGINT, before)
        signals.close()  # the listener reads the end and returns
        watcher.join()
        listener.close()


def _listen(listener: socket.socket, answer: Callable[[], None]) -> None:
    while received := listener.recv(1):
        if received[0] == signal.SIGINT:
            answer()
