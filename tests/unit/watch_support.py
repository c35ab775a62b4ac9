"""A local HTTP server with a token, and small helpers, for tests of the relay and of what reads through it."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TOKEN = "t0ken-of-a-test"


def await_that(condition: Callable[[], object], what: str, deadline_s: float = 10.0) -> None:
    """Wait until ``condition`` holds."""
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {deadline_s} s in vain until {what}"
        time.sleep(0.01)


class Server:
    """Answers GET by path; counts what it was asked.

    Attributes:
        pages: Status and body by path with query; a body of None is never sent, nor is the connection closed.
        asked: Paths in the order in which they were asked for.
    """

    def __init__(self) -> None:
        self.pages: dict[str, tuple[int, bytes | None]] = {}
        self.asked: list[str] = []
        self.url = ""
        self.ending = threading.Event()

    @contextlib.contextmanager
    def running(self) -> Iterator[Server]:
        """Serve on a free port of loopback."""
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                status, body = outer.pages.get(self.path, (404, b""))
                if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                    status, body = 401, b"Unauthorized"
                if body is None:
                    outer.ending.wait(20)
                    return
                self.send_response(status)
                if status in (301, 302):
                    self.send_header("Location", outer.url + "/elsewhere")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            self.url = f"http://127.0.0.1:{server.server_address[1]}"
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            try:
                yield self
            finally:
                self.ending.set()
                server.shutdown()


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` to ``path`` as the node's side does, its directory made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".tmp-{path.name}")
    temporary.write_text(json.dumps(value))
    os.replace(temporary, path)


def append(path: Path, *lines: Any) -> None:
    """Append each of ``lines`` as JSON, or as it is where it is bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as stream:
        for line in lines:
            stream.write(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")
