"""A chat's webhook for tests: a real server on this machine."""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

SECRET = "T01234567/B01234567/abcdefghijklmnopqrstuvwx"


class Hook:
    """A chat's webhook: keeps what it was sent, answers with ``status``."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.status, self.answer = 200, b"ok"
        self.headers: dict[str, str] = {}
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                told = {"type": self.headers["Content-Type"], "user": self.headers["Proxy-Authorization"]}
                hook.got.append({"path": self.path, **told, **json.loads(body)})
                self.send_response(hook.status)
                for name, value in hook.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(hook.answer)

            def do_CONNECT(self) -> None:
                hook.got.append({"path": self.path, "user": self.headers["Proxy-Authorization"]})
                self.send_error(403)

            def do_GET(self) -> None:
                hook.got.append({"path": self.path})
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/services/{SECRET}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def hang_up(server: socket.socket) -> None:
    """Take what is sent, and answer nothing."""
    with server.accept()[0] as connection:
        assert connection.recv(1 << 16)
