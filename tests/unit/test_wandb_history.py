"""Histories of W&B runs: a real offline file, and an API that answers as W&B's does (its server is not free to run)."""

from __future__ import annotations

import http.server
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rltui.cli.main import main
from rltui.errors import ClusterError, UsageError
from rltui.service import wandb_history
from rltui.service.wandb_history import read_history
from rltui.watch.snapshots import MetricsSnapshot

OFFLINE_RUN = """
import wandb
run = wandb.init(project="old", mode="offline", settings=wandb.Settings(silent=True, console="off"))
for step in range(1, 4):
    run.log({"training/global_step": step, "critic/rewards/mean": step / 10, "timing_s/gen": 2.0, "note": "text"})
run.finish()
"""

HISTORY = [{"_step": step, "reward": step / 4, "name\x1b[31m": 1.0, "_timestamp": 100.0 + step} for step in range(3)]


@pytest.fixture(scope="module")
def offline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """W&B's folder with one finished offline run in it."""
    folder = tmp_path_factory.mktemp("offline")
    subprocess.run([sys.executable, "-c", OFFLINE_RUN], cwd=folder, check=True, timeout=120)
    return folder / "wandb"


class Answers(http.server.BaseHTTPRequestHandler):
    """Answers the queries of ``wandb.Api().run(…).history(…)``; of run ``none`` it knows nothing."""

    def do_POST(self) -> None:
        """Answer one query."""
        asked = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = json.loads(asked) if self.path == "/graphql" else {"query": ""}
        data = json.dumps({"data": _answer(body["query"], body.get("variables") or {})}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def _answer(query: str, variables: dict[str, Any]) -> dict[str, Any]:
    if "viewer" in query:
        return {"viewer": {"id": "VQ==", "entity": "us", "username": "us", "email": "", "flags": "{}", "teams": {}}}
    if variables.get("name") == "none":
        return {"project": {"run": None}}
    run = {"id": "UQ==", "name": "abc", "displayName": "x", "state": "running", "config": "{}", "projectId": "1"}
    user = {"name": "us", "username": "us"}
    more = {
        "tags": [],
        "group": None,
        "jobType": None,
        "commit": None,
        "readOnly": False,
        "createdAt": "",
        "user": user,
    }
    history = [json.dumps(line) for line in HISTORY]
    return {"project": {"internalId": "1", "run": {**run, **more, "history": history}}}


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """The API on this machine's loopback."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    monkeypatch.chdir(tmp_path)
    yield
    server.shutdown()
    server.server_close()


def test_an_offline_file_gives_curves_by_our_names(offline: Path) -> None:
    [run] = offline.glob("offline-run-*")
    [file] = run.glob("*.wandb")
    seen = read_history(str(file))
    assert seen.steps == (1, 2, 3)
    assert seen.series["reward"] == pytest.approx((0.1, 0.2, 0.3))
    assert seen.latest["time/generate"] == 2.0
    assert "note" not in seen.series
    assert read_history(str(run)).series == read_history(str(offline)).series == seen.series


def test_a_reader_that_complains_of_each_record_is_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = json.dumps({"type": "history", "history": {"item": {"_step": 1, "reward": 0.5}}}, separators=(",", ":"))
    program = f"import sys; sys.stderr.write('a record is damaged\\n' * 20_000); print({line!r})"  # a pipe holds 64 KiB
    monkeypatch.setattr(wandb_history, "COMMAND", (sys.executable, "-c", program))
    found: list[MetricsSnapshot] = []
    reading = threading.Thread(target=lambda: found.append(read_history(str(tmp_path))), daemon=True)
    reading.start()
    reading.join(20)
    assert [one.series["reward"] for one in found] == [(0.5,)]


def test_it_is_printed(offline: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["metrics", "--wandb", str(offline)]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["reward", "0.3", "0.1", "0.2", "0.3"] in rows
    assert main(["metrics", "--wandb", str(offline), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == [1, 2, 3]


@pytest.mark.parametrize("source", ["us/old/abc", "https://wandb.ai/us/old/runs/abc?nw=1"])
def test_the_api_is_asked_where_a_run_is_named(api: None, source: str) -> None:
    seen = read_history(source)
    assert (seen.steps, seen.series["reward"]) == ((0, 1, 2), (0.0, 0.25, 0.5))
    assert not any("\x1b" in name for name in seen.series)


def test_what_is_no_run_is_said(api: None, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="W&B has no run us/old/none"):
        read_history("us/old/none")
    with pytest.raises(UsageError, match="there is no file"):
        read_history("nothing")
    (tmp_path / "text").write_text("text")
    with pytest.raises(UsageError, match="cannot be read as a W&B run"):
        read_history(str(tmp_path / "text"))


def test_a_server_that_is_away_is_said(monkeypatch: pytest.MonkeyPatch, api: None) -> None:
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setattr(wandb_history, "API_TIMEOUT_S", 2)
    with pytest.raises(ClusterError, match="W&B did not give the history"):
        read_history("us/old/abc")


def test_one_of_the_two_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["metrics"]) == 2
    assert main(["metrics", "run-1", "--wandb", "x"]) == 2
    assert "Name a run, or a W&B run" in capsys.readouterr().err
