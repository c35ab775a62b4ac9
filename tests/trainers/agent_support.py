"""Agents, the real endpoint and a policy whose answers a test knows."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from trainer_support import ROOT

from rltui.layout.load import load_layout
from trainers.agents import AgentTurns
from trainers.chat_endpoint import answers
from trainers.data.codec import Codec
from trainers.data.prompts import Prompt
from trainers.data.tiny_qwen3 import VOCABULARY, new_tokenizer
from trainers.episodes import Episode, Limits
from trainers.roles.completions import Completion
from trainers.roles.sampling import SamplingSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

TINY = ROOT / "layouts" / "local" / "grpo-agent-tiny.yaml"
SETTINGS = SamplingSettings(1.0, 40, 1, (2,), seed=5)
CHAT = (
    "{% for t in tools or [] %}[{{ t.function.name }}]{% endfor %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}<eos>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
AGENTS = '''
import os, subprocess, sys, time

def waits(task, policy):
    """Says that it is there, waits until the test says so, and then answers with what the test wrote."""
    open(task.row["go"] + ".awaited", "w").close()
    while not os.path.exists(task.row["go"]):
        time.sleep(0.01)
    return float(open(task.row["go"]).read())

def asks_late(task, policy):
    """The same, and asks before that what it was told to wait with."""
    found = waits(task, policy)
    policy.chat([{"role": "user", "content": "1>"}])
    return found

def said(task, policy):
    return policy.chat([{"role": "user", "content": "1>"}])["content"] == "7"

async def by_turns(task, policy):
    print("noise on stdout")
    policy.chat([{"role": "user", "content": "1>"}])
    return [0.25, 0.5]

def raises(task, policy):
    policy.chat([{"role": "user", "content": "1>"}])
    raise ValueError("lost the thread")

def ends(task, policy):
    os._exit(3)

def leaves(task, policy):
    sys.exit("had enough")

def hangs(task, policy):
    policy.chat([{"role": "user", "content": "1>"}])
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with open(task.row["pids"] + ".new", "w") as file:
        file.write(f"{os.getpid()} {child.pid}")
    os.rename(file.name, task.row["pids"])
    time.sleep(600)

def talks_on(task, policy):
    chat = [{"role": "user", "content": "1>"}]
    while True:
        chat += [policy.chat(chat), {"role": "user", "content": "2" * 20}]

def silent(task, policy):
    return 1.0

def nonsense(task, policy):
    policy.chat([{"role": "user", "content": "1>"}])
    return float("nan")

def told(task, policy):
    from pathlib import Path
    with open(task.row["told"], "w") as file:
        file.write("\\n".join(os.environ[f"OPENAI_{name}"] for name in ("BASE_URL", "MODEL", "API_KEY")))
    key = os.environ["OPENAI_API_KEY"].encode()
    lines = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in (os.getpid(), os.getppid())]
    policy.chat([{"role": "user", "content": "1>"}])
    return float(not any(key in line for line in lines))

def play(task, policy):
    return globals()[task.row["as"]](task, policy)
'''


class Table:
    """Agents, the real endpoint and a policy whose answers the test knows.

    Attributes:
        asked: What engines were asked: tokens and settings, oldest first.
        texts: What the policy says next, oldest first; "7" once there is nothing left.
    """

    def __init__(self, folder: Path, *words: str, workers: Sequence[Any] = ()) -> None:
        (folder / "own_agents.py").write_text(AGENTS)
        tokenizer = new_tokenizer(VOCABULARY, 512)
        tokenizer.chat_template = CHAT
        tokenizer.save_pretrained(folder / "model")
        (folder / "model" / "config.json").write_text(json.dumps({"eos_token_id": 2}))
        self.codec = Codec(str(folder / "model"))
        named = ["data.environment=own_agents:play", "lengths.prompt=40", "lengths.response=40", "data.max_turns=4"]
        layout = load_layout(TINY, [*named, *words]).layout
        self.events: list[tuple[str, str]] = []
        session: Any = SimpleNamespace(layout=layout, event=lambda *words: self.events.append(words))
        self.layout = layout
        self.turns = AgentTurns(session, self.codec, workers)
        self.asked: list[tuple[list[int], SamplingSettings]] = []
        self.texts: list[str] = []
        self.version, self._lock = 0, threading.Lock()

    def sample(self, token_ids: list[int], settings: SamplingSettings) -> Completion:
        with self._lock:
            self.asked.append((token_ids, settings))
            said = self.texts.pop(0) if self.texts else "7<eos>"
            ids = tuple(self.codec.encode(said))[: settings.max_tokens]
            reason: Any = "stop" if ids[-1] == self.codec.stop_token_id else "length"
            return Completion(0, ids, tuple(-0.1 - n for n in range(len(ids))), reason, self.version, self.version)

    def episode(self, *, is_chat: bool = False, room: int = 40) -> Any:
        """An episode that the test itself plays: it, and where it is reached."""
        sampling = SamplingSettings(1.0, room, 1, (2,), seed=5)
        codec, renderer = self.codec, self.turns._renderer
        episode = Episode(3, is_chat, sampling, Limits(4, 40), codec, renderer, self.sample)
        text = lambda token: codec.transcript([token])  # noqa: E731
        return episode, self.turns._place._endpoint.open(answers(episode, text))

    def play(self, kind: str, **row: Any) -> Completion:
        prompt = Prompt(tuple(self.codec.encode("1>")), "", "1>", row={"as": kind, **row})
        return self.turns.play(0, 0, prompt, SETTINGS, 0, self.sample)


def post(policy: Any, body: Any, key: str | None = None, path: str = "/chat/completions") -> tuple[int, Any]:
    """Status and answer of a request as a client sends it."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {policy.api_key if key is None else key}"}
    request = urllib.request.Request(f"{policy.base_url}{path}", data, headers)
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as said:
            return said.status, said.read()
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["error"]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def tables(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Table]]:
    """Makes tables with further words for the layout, and closes them."""
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{folder}")
    made: list[Table] = []

    def make(*words: str, workers: Sequence[Any] = ()) -> Table:
        made.append(Table(folder, *words, workers=workers))
        return made[-1]

    yield make
    for table in made:
        table.turns.close()
