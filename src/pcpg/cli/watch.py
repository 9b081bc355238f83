"""`pcpg watch`: the report of a run in progress, for a browser on this machine.

It serves no files, only the rendered page and a stamp that changes after each round; the page reloads when the stamp
changes. The page is that of `pcpg report`, so nothing untrusted is imported.
"""

import dataclasses
import html
import json
import sys
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console

from pcpg.cli.display import answer, loading, print_json
from pcpg.cli.flags import Arg, Folder, JsonFlag, Mistake
from pcpg.runs.errors import RunError
from pcpg.runs.folder import RunFolder
from pcpg.training.display import say

HERE = "127.0.0.1"
SECONDS = 2
"""Time between two checks of the stamp."""
RENEW = f"""<script>
(() => {{
  const shown = STAMP;
  setInterval(async () => {{
    try {{
      const now = await (await fetch("/stamp", {{cache: "no-store"}})).text();
      if (now !== shown) location.reload();
    }} catch {{ document.title = "not running: " + document.title.replace("not running: ", ""); }}
  }}, {1000 * SECONDS});
}})();
</script>
"""
INLINE = "'unsafe-inline'"
POLICY = f"default-src 'none'; style-src {INLINE}; script-src {INLINE}; img-src data:; connect-src 'self'"


@dataclasses.dataclass(frozen=True)
class Watch:
    """Show the report of a run in a browser on this machine, updated after each round; Ctrl-C stops it."""

    dir: Folder
    port: Annotated[int, Arg("INT")] = 8765
    """Port on 127.0.0.1; 0: any that is free."""
    json: JsonFlag = False

    def __call__(self, console: Console) -> int:
        folder = RunFolder.open(self.dir)
        if not 0 <= self.port < 2**16:
            raise Mistake(f"port must be from 0 to 65535, got {self.port}")
        with loading(console):
            server = serving(folder.path, self.port)
        with server:
            url = f"http://{HERE}:{server.server_port}/"
            print_json({"run": folder.name, "url": url}, self.json)
            say(answer(console, self.json), f"watch {folder.name} at {url} (Ctrl-C ends it)")
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                return 0
        return 0


def serving(path: Path, port: int) -> ThreadingHTTPServer:
    """Serves the report of a run on the loopback address only."""
    page = Page(path)

    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version, timeout = "pcpg", "", 60

        def do_GET(self) -> None:
            asked: dict[str, Callable[[], str]] = {"/": page.text, "/stamp": page.stamp}
            # DNS rebinding: another site may point its own name at this address to read the report.
            name = self.headers.get("Host", "").rpartition(":")[0]
            if name not in (HERE, "localhost"):
                self.send_error(HTTPStatus.FORBIDDEN)
            elif self.path not in asked:
                self.send_error(HTTPStatus.NOT_FOUND)
            else:
                self._send(asked[self.path]().encode("utf-8", "replace"))

        def _send(self, body: bytes) -> None:
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("Content-Security-Policy", POLICY)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """No output: a training run may use the same terminal."""

    try:
        return Server((HERE, port), Handler)
    except OSError as error:
        raise Mistake(
            f"cannot use port {port} of {HERE} ({error.strerror}); --port 0 takes any that is free"
        ) from error


class Server(ThreadingHTTPServer):
    """A server that ignores a browser closing the connection early."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class Page:
    """The current report of a run, rendered once per stamp."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rendered = ("", "")
        self.lock = threading.Lock()

    def stamp(self) -> str:
        """Changes when a round or the run ends."""
        names = ("metrics.jsonl", "manifest.json", "summary.json", "config.json")
        found = [path.stat() for name in names if (path := self.path / name).exists()]
        return " ".join(f"{one.st_mtime_ns}:{one.st_size}" for one in found)

    def text(self) -> str:
        """The page."""
        from pcpg.play import portraits
        from pcpg.reports.page import render
        from pcpg.reports.read import read_run

        with self.lock:
            stamp = self.stamp()
            if self.rendered[0] != stamp:
                try:
                    text = render([read_run(self.path)], portraits([self.path]))
                except (RunError, ValueError) as error:  # read between two writes of a round, or damaged
                    text = f"<!DOCTYPE html><title>pcpg</title><body><p>{html.escape(str(error))}</p></body></html>"
                self.rendered = (stamp, text.replace("</body>", f"{RENEW.replace('STAMP', json.dumps(stamp))}</body>"))
            return self.rendered[1]
