"""A real browser for the tests of pages: headless chromium, spoken to through a pipe."""

import base64
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


class Browser:
    """One tab of a headless chromium, by the DevTools protocol: JSON messages that end with a zero byte."""

    def __init__(self, program: str, profile: Path) -> None:
        to_read, self.to_browser = os.pipe()
        self.from_browser, to_write = os.pipe()

        # Chromium reads from 3 and writes to 4. A process of its own places them there: JAX does not like forks.
        place = (
            "import os, sys; pipes = [os.dup(int(fd)) for fd in sys.argv[1:3]]; "
            "[(os.dup2(pipe, fd), os.set_inheritable(fd, True)) for fd, pipe in zip((3, 4), pipes)]; "
            "os.execv(sys.argv[3], sys.argv[3:])"
        )
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe"]
        flags += [f"--user-data-dir={profile}", "about:blank"]
        self.process = subprocess.Popen(
            [sys.executable, "-c", place, str(to_read), str(to_write), program, *flags],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(to_read, to_write),
        )
        os.close(to_read)
        os.close(to_write)
        self.numbers = itertools.count(1)
        self.rest = b""
        self.complaints: list[str] = []
        targets = self.ask("Target.getTargets", session=None)["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self.session = self.ask("Target.attachToTarget", session=None, targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        self.ask("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0)

    def ask(self, method: str, *, session: str | None = "", **parameters: Any) -> dict[str, Any]:
        """The answer to one command."""
        answer = self.answer(method, session=session, **parameters)
        assert "error" not in answer, answer
        return answer["result"]

    def answer(self, method: str, *, session: str | None = "", **parameters: Any) -> dict[str, Any]:
        """The answer to one command, which may be an error."""
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = self.session
        os.write(self.to_browser, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == number:
                return answer

    def receive(self) -> dict[str, Any]:
        """The next message; complaints of the page are kept."""
        while b"\0" not in self.rest:
            data = os.read(self.from_browser, 1 << 20)
            assert data, "the browser has gone"
            self.rest += data
        message, _, self.rest = self.rest.partition(b"\0")
        event = json.loads(message)
        if event.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled"):
            self.complaints.append(json.dumps(event["params"]))
        return event

    def open(self, path: Path, width: int, *, dark: bool = False) -> None:
        """Load the page in a file at a width; `complaints` are of this page."""
        self.go(path.resolve().as_uri(), width, dark=dark)

    def go(self, url: str, width: int, *, dark: bool = False) -> None:
        """Load a page at a width."""
        self.complaints = []
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=844, deviceScaleFactor=1, mobile=width < 600)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.ask("Page.navigate", url=url)
        while self.receive().get("method") != "Page.loadEventFired":
            pass

    def evaluate(self, script: str, *, at_rest: bool = True) -> Any:
        """The value of a script of the page; None where the page is not at rest and another takes its place."""
        answer = self.answer("Runtime.evaluate", expression=script, returnByValue=True)
        found = answer.get("result", {"exceptionDetails": answer})
        if not at_rest and "exceptionDetails" in found:
            return None
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def screenshot(self, path: Path) -> None:
        """The whole page as a PNG, to look at."""
        answer = self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    def close(self) -> None:
        """End the browser."""
        os.close(self.to_browser)
        self.process.terminate()
        self.process.wait(timeout=20)
        os.close(self.from_browser)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Chromium, where there is one."""
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next((found for name in names if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip(f"no browser here: none of {', '.join(names)} is installed")
    tab = Browser(program, tmp_path_factory.mktemp("profile"))
    yield tab
    tab.close()
