"""Real runs on this machine tell of themselves, each event once, whoever else sees it: supervisor, guard, cockpit."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from json_lines import records
from verbs import rltui

from rltui.onnode import processes
from rltui.onnode.progress import SCALE
from rltui.service.live_cockpit import LiveCockpit
from rltui.service.run_events import Event
from waiting import eventually

if TYPE_CHECKING:
    from rltui.watch.snapshots import RunSummary

ROOT = Path(__file__).parents[2]
SECRET = "T01234567/B01234567/abcdefghijklmnopqrstuvwx"
SCRIPT = """#!/bin/bash
echo "step 1/2 loss: 0.5"
while [ ! -e go ]; do sleep 0.1; done
echo "step 2/2 loss: 0.4"
"""
LOST_NUMBERS = """#!/bin/bash
for n in {1..10}; do echo "step $n/15 loss: 0.5"; done
for n in {11..15}; do echo "step $n/15 loss: nan"; done
while [ ! -e go ]; do sleep 0.1; done
"""
PROFILE = "local: {env_file: %s, notify: {webhook: HOOK, events: [started, ended, stalled, warned]}}\n"


class Place:
    """A user's folder with a script and a chat whose webhook keeps what it gets."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.texts: list[str] = []
        place = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                place.texts.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["text"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        for name, value in (("RLTUI_RUN_ROOT", "runs"), ("RLTUI_STATE_DIR", "state"), ("RLTUI_CONFIG_DIR", "config")):
            monkeypatch.setenv(name, str(folder / value))
        monkeypatch.setenv("PYTHONPATH", str(ROOT))
        monkeypatch.chdir(folder)
        (folder / "train.sh").write_text(SCRIPT)
        (folder / "config").mkdir()
        (folder / "config/clusters.yaml").write_text(PROFILE % (folder / "secrets"))
        self.reach(self.server.server_port)

    def reach(self, port: int) -> None:
        """Let the webhook be at this port of this machine."""
        path = self.folder / "secrets"
        path.write_text(f"HOOK=http://127.0.0.1:{port}/services/{SECRET}\n")
        path.chmod(0o600)

    def rltui(self, *words: str) -> str:
        done = rltui(words, self.folder, os.environ, codes=(0,))
        return done.stdout + done.stderr

    def launch(self) -> Path:
        """Launch the script; returns its attempt's folder."""
        before = set(self.folder.glob("runs/*/attempts/01"))
        self.rltui("launch", "train.sh")
        [attempt] = set(self.folder.glob("runs/*/attempts/01")) - before
        return attempt

    def events(self, attempt: Path) -> list[str]:
        path = attempt / "events.jsonl"
        lines = records(path.read_text()) if path.exists() else []
        return [line["text"] for line in lines if line["kind"] == "notify"]

    def until_events(self, attempt: Path, number: int) -> list[str]:
        eventually(lambda: len(self.events(attempt)) >= number, f"{number} notifications")
        return self.events(attempt)

    def row(self, cockpit: LiveCockpit, attempt: Path) -> RunSummary:
        """The run's row; a cluster that does not answer in time is there the next time."""

        def found() -> RunSummary | None:
            return next((run for run in cockpit.runs().runs if run.run_id == attempt.parts[-3]), None)

        return eventually(found, "its row")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    place = Place(tmp_path, monkeypatch)
    yield place
    place.server.shutdown()
    place.server.server_close()
    for path in tmp_path.glob("runs/*/attempts/*/job.json"):
        processes.end_all(json.loads(path.read_text())["uuid"], grace_s=0.5, exclude=())


@pytest.fixture
def cockpit(place: Place) -> Iterator[LiveCockpit]:
    cockpit = LiveCockpit()
    yield cockpit
    cockpit.close()


def everything_written(folder: Path) -> str:
    """All files of runs and state, and all command lines of this machine."""
    files = [path for name in ("runs", "state") for path in (folder / name).rglob("*") if path.is_file()]
    words = [Path(entry.path, "cmdline") for entry in os.scandir("/proc") if entry.name.isdigit()]
    found = []
    for path in (*files, *words):
        with contextlib.suppress(OSError):  # a process that has ended, a file that was there for a moment
            found.append(path.read_bytes().decode(errors="replace"))
    return "".join(found)


def test_start_and_end_are_told_once_whoever_sees_them(place: Place, cockpit: LiveCockpit) -> None:
    attempt = place.launch()
    run_id = attempt.parts[-3]
    eventually(lambda: place.texts, "the start")
    assert place.texts == [f"{run_id}: started\nattempt 1 on local"]
    assert SECRET not in everything_written(place.folder)
    stalled = Event(kind="stalled", run=place.row(cockpit, attempt), text="no step for 12 min")
    assert [cockpit.tell(stalled), cockpit.tell(stalled)] == ["", ""]
    assert len(place.texts) == 2
    assert place.texts[1].startswith(f"{run_id}: stalled\nno step for 12 min\nattempt 1 on local")

    (place.folder / "go").touch()
    eventually(lambda: len(place.texts) > 2, "the end")
    assert place.texts[2].startswith(f"{run_id}: finished\nall steps done\nattempt 1 on local, step 2 of 2")
    said = place.until_events(attempt, 3)
    assert said == [f"{kind}: told by webhook: HTTP 200" for kind in ("started", "stalled", "ended")]
    assert cockpit.tell(Event(kind="ended", run=place.row(cockpit, attempt))) == ""
    assert len(place.texts) == 3
    assert "told by webhook" in place.rltui("events", run_id)
    assert SECRET not in everything_written(place.folder)


def test_a_lost_run_is_told_by_its_guard_and_what_could_not_be_told_by_the_cockpit(
    place: Place, cockpit: LiveCockpit
) -> None:
    place.reach(9)  # as on a compute node without a network
    attempt = place.launch()
    said = place.until_events(attempt, 1)
    assert said == ["started: not told by webhook: not reached: [Errno 111] Connection refused"]
    started = Event(kind="started", run=place.row(cockpit, attempt))
    place.reach(place.server.server_port)
    assert [cockpit.tell(started), cockpit.tell(started)] == ["", ""]
    assert len(place.texts) == 1

    os.kill(json.loads((attempt / "supervisor.json").read_text())["pid"], signal.SIGKILL)
    eventually(lambda: len(place.texts) > 1, "the end by the guard")
    assert ": lost\nthe supervisor was killed" in place.texts[1]
    place.until_events(attempt, 3)
    assert cockpit.tell(Event(kind="ended", run=place.row(cockpit, attempt))) == ""
    assert len(place.texts) == 2


def test_what_goes_wrong_silently_is_told_once_a_run_and_stands_in_the_events_of_each_attempt(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SCALE, "0.005")  # of the ten minutes between two looks; of those of a standstill, too
    (place.folder / "train.sh").write_text(LOST_NUMBERS)
    attempt = place.launch()
    run_id, words = attempt.parts[-3], "NaN: loss has been no number for 5 steps"
    warned = f"{run_id}: warned\n{words}\nattempt 1 on local, step 15 of 15"
    eventually(lambda: warned in place.texts, "the warning")
    (place.folder / "go").touch()
    eventually((attempt / "end.json").exists, "the end")
    (place.folder / "go").unlink()
    place.rltui("resubmit", run_id)
    again = attempt.with_name("02") / "events.jsonl"
    eventually(lambda: again.exists() and words in again.read_text(), "the warning of the second attempt")
    (place.folder / "go").touch()
    eventually((attempt.with_name("02") / "end.json").exists, "the end of the second attempt")
    assert place.texts.count(warned) == 1
    assert len([text for text in place.texts if ": warned" in text]) == 1
