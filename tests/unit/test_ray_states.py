"""Ray's tasks and actors in the evidence: asked with Ray's own token, without secrets, and never for long."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from rltui.onnode import ray_states

TOKEN = "5f" * 32


class Dashboard(BaseHTTPRequestHandler):
    """Ray's State API as far as the evidence asks it."""

    asked: list[str]
    hold: threading.Event

    def do_GET(self) -> None:
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self.send_error(401)
            return
        self.asked.append(self.path)
        if self.path.startswith("/api/jobs/"):
            said: Any = {"job_id": "03000000"}
        elif "tasks" in self.path:
            said = [{"name": "update", "state": "RUNNING", "worker_pid": 7, "runtime_env_info": {"secret": "x"}}]
        else:
            self.hold.wait(60)
            said = [{"class_name": "Learner", "state": "ALIVE", "serialized_runtime_env": "secret", "pid": 7}]
        body = json.dumps(said if isinstance(said, dict) else {"data": {"result": {"result": said}}}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def dashboard() -> Iterator[str]:
    Dashboard.asked, Dashboard.hold = [], threading.Event()
    Dashboard.hold.set()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Dashboard)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    Dashboard.hold.set()
    server.shutdown()
    server.server_close()


def write(attempt: Path, **ray: str) -> str:
    (attempt / "ray.json").write_text(json.dumps(ray))
    (attempt / "job.json").write_text('{"uuid": "abc"}')
    return str(attempt)


def test_a_ray_of_ours_is_asked_on_its_head_only(tmp_path: Path, dashboard: str) -> None:
    attempt = write(tmp_path, dashboard=dashboard, token=TOKEN, host="n1.site")
    assert ray_states.states(attempt, "n2") == {}
    assert Dashboard.asked == []
    assert ray_states.states(attempt, "n1") == {
        "problems": [],
        "tasks": [{"name": "update", "state": "RUNNING", "worker_pid": 7}],
        "actors": [{"class_name": "Learner", "state": "ALIVE", "pid": 7}],
    }
    assert all("filter_values=FINISHED" in path for path in Dashboard.asked if "tasks" in path)


def test_of_a_standing_ray_only_the_attempts_own_job_is_asked_for_with_the_users_token(
    tmp_path: Path, dashboard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    assert ray_states.states(write(tmp_path, dashboard=dashboard), "n1")["actors"]
    assert Dashboard.asked[0] == "/api/jobs/abc"
    assert all("filter_values=03000000" in path for path in Dashboard.asked[1:])
    (tmp_path / "token").write_text("another")
    assert ray_states.states(str(tmp_path), "n1") == {"problems": [f"{dashboard} answered 401."] * 2}


def test_a_dashboard_that_hangs_holds_up_nothing(
    tmp_path: Path, dashboard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Dashboard.hold.clear()
    monkeypatch.setattr(ray_states, "ALL_S", 1.0)
    monkeypatch.setattr(ray_states, "ASK_S", 60.0)
    said = ray_states.states(write(tmp_path, dashboard=dashboard, token=TOKEN, host="n1"), "n1")
    assert said["problems"] == [f"{dashboard} did not answer within 1 s."]
    assert "actors" not in said


def test_an_answer_that_is_too_long_is_none(tmp_path: Path, dashboard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_states, "MOST_BYTES", 20)
    said = ray_states.states(write(tmp_path, dashboard=dashboard, token=TOKEN, host="n1"), "n1")
    assert len(said["problems"]) == 2
    assert set(said) == {"problems"}
