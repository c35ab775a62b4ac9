"""A model on its way to a hub, whose place a server of this machine takes; the client is the real one."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from trainer_support import LAYOUT

from rltui.layout.load import load_layout
from trainers.publishing import push
from waiting import DEADLINE_S

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.trainers

TOKEN = "hf_" + "t" * 34


class Hub(ThreadingHTTPServer):
    """What of the hub a push asks for; ``files`` are those of the commit."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.made: list[dict[str, Any]] = []
        self.tokens: set[str] = set()
        self.files: dict[str, bytes] = {}
        self.message = ""
        self.refuses = False
        self.answers = threading.Event()
        self.answers.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Answers(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        hub, body = self.server, self.rfile.read(int(self.headers.get("Content-Length") or 0))
        hub.tokens.add(self.headers.get("Authorization", ""))
        hub.answers.wait(DEADLINE_S)
        if hub.refuses:
            self.say(403, {"error": "no"})
        elif self.path.endswith("/repos/create"):
            self.say(409 if hub.made else 200, {"url": f"{hub.url}/team/tiny", "name": "team/tiny"})
            hub.made.append(json.loads(body))
        elif "/preupload/" in self.path:
            files = json.loads(body)["files"]
            told = [{"path": one["path"], "uploadMode": "regular", "shouldIgnore": False} for one in files]
            self.say(200, {"files": told})
        elif "/commit/" in self.path:
            for line in map(json.loads, body.decode().splitlines()):
                if line["key"] == "file":
                    hub.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
                elif line["key"] == "header":
                    hub.message = line["value"]["summary"]
            commit = {"commitOid": "a" * 40, "commitUrl": f"{hub.url}/team/tiny/commit/{'a' * 40}"}
            self.say(200, {"success": True, **commit})
        else:
            self.say(404, {"error": self.path})

    def do_GET(self) -> None:
        self.say(200, {"id": "team/tiny", "sha": "b" * 40, "siblings": []})

    def say(self, code: int, body: dict[str, Any]) -> None:
        text = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    made = Hub()
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", made.url)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", made.url)  # read once, by whoever imports it first
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.delenv("RLTUI_OFFLINE", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    yield made
    made.answers.set()
    made.shutdown()
    made.server_close()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "step-000120"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(bytes(range(256)))
    return folder


def pushed(model: Path, *words: str, deadline_s: float = DEADLINE_S) -> str:
    layout = load_layout(LAYOUT, ["checkpoint.push_to_hub=team/tiny", *words]).layout
    return push(model, layout.checkpoint, "run-1", deadline_s)


@pytest.mark.parametrize("public", [False, True])
def test_the_folder_is_pushed_with_the_token_of_the_environment(hub: Hub, model: Path, public: bool) -> None:
    text = pushed(model, f"checkpoint.push_public={str(public).lower()}")
    assert text == f"the model is at {hub.url}/team/tiny/commit/{'a' * 40}"
    assert hub.files == {one.name: one.read_bytes() for one in model.iterdir()}
    visibility = "public" if public else "private"
    assert hub.made == [{"name": "tiny", "organization": "team", "visibility": visibility}]
    assert hub.tokens == {f"Bearer {TOKEN}"}
    assert hub.message == "run-1, step-000120"


def test_a_later_run_is_pushed_to_the_place_that_an_earlier_one_made(hub: Hub, model: Path) -> None:
    pushed(model)
    (model / "model.safetensors").write_bytes(b"later")
    assert pushed(model).startswith("the model is at ")
    assert hub.files["model.safetensors"] == b"later"
    assert len(hub.made) == 2


def test_what_hinders_it_is_said_and_the_run_goes_on(hub: Hub, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.answers.clear()
    assert "within deadlines.push_s = 0.2 s" in pushed(model, deadline_s=0.2)
    hub.answers.set()
    hub.refuses = True
    refused = pushed(model)
    assert "was not pushed to team/tiny: HfHubHTTPError" in refused
    assert TOKEN not in refused
    asked = len(hub.tokens)
    monkeypatch.delenv("HF_TOKEN")
    assert "there is no HF_TOKEN; a line of the cluster's env_file sets it" in pushed(model)
    monkeypatch.setenv("RLTUI_OFFLINE", "1")
    assert "nodes have no internet" in pushed(model)
    assert len(hub.tokens) == asked
    assert hub.files == {}
