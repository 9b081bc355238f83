"""`pcpg watch` serves one page to this machine, renewed after each round, and no file."""

import contextlib
import http.client
import shutil
import socket
import struct
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pcpg
from pcpg.cli.watch import HERE, serving
from pcpg.config import ConfigError

SMALL = {"ppo": {"num_updates": 1, "num_episodes": 32, "hidden": [8]}, "visit_episodes": 8, "budget": 400}

UNFINISHED = "document.readyState != 'complete' || document.body.innerText.includes('not finished')"


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped after some rounds, with two seeds."""
    path = tmp_path_factory.mktemp("watched") / "run"
    stop = {"observer": lambda seen: seen.step < 2, "quiet": True}
    pcpg.train("CombinationLock-v0", "ppo", horizon=2, seeds=2, config=SMALL, out=path, **stop)
    return path


@contextlib.contextmanager
def served(path: Path) -> Iterator[str]:
    with serving(path, 0) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            assert server.server_address[0] == HERE == "127.0.0.1"
            yield f"http://{HERE}:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=120) as answer:
        return answer.read().decode()


def test_the_page_is_the_report_of_the_run_so_far_and_renews_itself(unfinished: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    shutil.copytree(unfinished, path)
    with served(path) as url:
        page, stamp = read(f"{url}/"), read(f"{url}/stamp")
        assert "not finished" in page and "pcpg report" in page and "/stamp" in page
        assert read(f"{url}/stamp") == stamp and read(f"{url}/") == page
        pcpg.resume(path, quiet=True)
        assert read(f"{url}/stamp") != stamp
        assert "not finished" not in read(f"{url}/")


def test_failed_seeds_and_damage_are_told(unfinished: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    shutil.copytree(unfinished, path)
    metrics = path / "metrics.jsonl"
    metrics.write_text(metrics.read_text() + '{"step": 3, "seed')
    with served(path) as url:
        assert "<h1>" in read(f"{url}/"), "a line that is being written"
        (path / "config.json").write_text("{")
        assert "config.json" in read(f"{url}/")


def test_nothing_but_the_page_is_served(unfinished: Path) -> None:
    with served(unfinished) as url:
        for name in (
            "config.json",
            "metrics.jsonl",
            "../run/config.json",
            "%2e%2e/run/config.json",
            "//etc/passwd",
            "?",
        ):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                read(f"{url}/{name}")
        with pytest.raises(urllib.error.HTTPError, match="501"):
            urllib.request.urlopen(urllib.request.Request(f"{url}/", data=b"x", method="POST"), timeout=20)


@pytest.mark.parametrize("host", ["evil.example:80", "evil.example", "", "127.0.0.1.evil.example:80"])
def test_a_page_of_another_name_for_this_address_is_refused(unfinished: Path, host: str) -> None:
    with served(unfinished) as url:
        asking = http.client.HTTPConnection(url.removeprefix("http://"), timeout=20)
        asking.putrequest("GET", "/", skip_host=True)
        asking.putheader("Host", host)
        asking.endheaders()
        assert asking.getresponse().status == 403


def test_a_name_of_markup_is_text_and_what_cannot_be_rendered_is_said(
    unfinished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shutil.copytree(unfinished, tmp_path / "<img src=x onerror=alert(1)>")
    with served(path) as url:
        assert "<img src=x" not in read(f"{url}/")

    def refuse(path: Path) -> None:
        raise ConfigError("<b>not a number</b>")

    monkeypatch.setattr("pcpg.reports.read.read_run", refuse)
    with served(path) as url:
        assert "&lt;b&gt;not a number" in read(f"{url}/")


def test_a_browser_that_leaves_before_its_answer_is_no_error(unfinished: Path, capfd: Any) -> None:
    with served(unfinished) as url:
        for asked in (b"GET / HTTP/1.1\r\nHost: localhost:1\r\n\r\n", b"GET / HT", b""):
            with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=20) as leaving:
                leaving.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # at once
                leaving.sendall(asked)
        assert "<h1>" in read(f"{url}/")
    assert "Traceback" not in capfd.readouterr().err


def test_mistakes_are_refused_before_anything_is_served(cli: Any, tmp_path: Path, unfinished: Path) -> None:
    assert cli("watch", tmp_path).code == 2
    assert "port must be from 0 to 65535" in cli("watch", unfinished, "--port", "70000").err
    with served(unfinished) as url:
        taken = cli("watch", unfinished, "--port", url.rpartition(":")[2])
        assert taken.code == 2 and "--port 0 takes any that is free" in taken.err


def test_a_browser_shows_the_page_and_loads_it_again_after_a_round(
    browser: Any, unfinished: Path, tmp_path: Path
) -> None:
    path = tmp_path / "run"
    shutil.copytree(unfinished, path)
    online = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    browser.ask("Network.emulateNetworkConditions", **online)
    with served(path) as url:
        browser.go(f"{url}/", 1400)
        assert browser.evaluate(UNFINISHED)
        pcpg.resume(path, quiet=True)
        while browser.evaluate(UNFINISHED, at_rest=False) is not False:
            time.sleep(0.1)  # a page for each round
        assert browser.complaints == []
    browser.ask("Network.emulateNetworkConditions", **online | {"offline": True})
