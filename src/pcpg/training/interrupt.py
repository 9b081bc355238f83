"""Ctrl-C, SIGTERM and SIGHUP during training: the first stops after the round, the second immediately.

Clusters send SIGTERM before they take a machine away, terminals SIGHUP when they are closed.
"""

import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

FIRST = "stopping after this round; press Ctrl-C again to stop now and lose this round"
SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class Stop(threading.Event):
    """Set when training should stop after the round; `signal` is the signal received."""

    signal = 0


@contextmanager
def stop_on_interrupt(say: Callable[[str], None], leave: Callable[[], None] | None = None) -> Iterator[Stop]:
    """An event set by the first Ctrl-C; the second calls `leave`, or raises KeyboardInterrupt as usual.

    Python runs signal handlers between two instructions of the main thread, which may compile for minutes without
    one. So a thread listens on the wakeup pipe and reacts at once.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def answer(signum: int) -> None:
        if stop.is_set():
            if leave is not None:
                leave()
            return
        stop.signal = signum
        stop.set()
        with contextlib.suppress(OSError, ValueError):  # the terminal may be gone: that is what SIGHUP says
            say(FIRST)

    def handle(signum: int, frame: object) -> None:
        nonlocal count
        count += 1
        if count > 1 and leave is None:
            raise KeyboardInterrupt

    count = 0
    listener, signals = socket.socketpair()
    signals.setblocking(False)
    # If the parent process ignores the end of the terminal, as nohup does, it stays ignored.
    mine = [s for s in SIGNALS if s == signal.SIGINT or signal.getsignal(s) is not signal.SIG_IGN]
    before = {signum: signal.signal(signum, handle) for signum in mine}
    pipe = signal.set_wakeup_fd(signals.fileno(), warn_on_full_buffer=False)
    watcher = threading.Thread(target=_listen, args=(listener, answer), daemon=True)
    watcher.start()
    try:
        yield stop
    finally:
        signal.set_wakeup_fd(pipe)
        for signum, handler in before.items():
            signal.signal(signum, signal.SIG_DFL if handler is None else handler)
        signals.close()  # the listener reads the end and returns
        watcher.join()
        listener.close()


def _listen(listener: socket.socket, answer: Callable[[int], None]) -> None:
    while received := listener.recv(1):
        if received[0] in SIGNALS:
            answer(received[0])
