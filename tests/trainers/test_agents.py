"""Agents: what they are answered over HTTP, what is trained of it, and what their faults cost."""

from __future__ import annotations

import json
import re
import threading
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from trainer_support import ROOT

from rltui.layout.load import load_layout
from trainers.agents import NEVER_ASKED, AgentPlaying
from trainers.data.batch import sampled
from trainers.data.codec import Codec
from trainers.data.prompts import Prompt
from trainers.data.tiny_qwen3 import VOCABULARY, new_tokenizer
from trainers.episodes import Episode, Limits
from trainers.groups import Drawn
from trainers.grpo import owners_of
from trainers.metrics import sample_metrics
from trainers.roles.engine import Completion, derive_seed
from trainers.roles.sampling import SamplingSettings
from trainers.staleness import StalenessCounter
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.trainers

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
    """Until the test says so, and then answers with what the test wrote."""
    while not os.path.exists(task.row["go"]):
        time.sleep(0.01)
    return float(open(task.row["go"]).read())

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
    with open(task.row["pids"], "w") as file:
        file.write(f"{os.getpid()} {child.pid}")
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

    def __init__(self, folder: Path, *words: str) -> None:
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
        self.playing = AgentPlaying(session, self.codec)
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
        codec, renderer = self.codec, self.playing._renderer
        episode = Episode(3, is_chat, sampling, Limits(4, 40), codec, renderer, self.sample)
        return episode, self.playing._endpoint.open(episode)

    def play(self, kind: str, **row: Any) -> Completion:
        prompt = Prompt(tuple(self.codec.encode("1>")), "", "1>", row={"as": kind, **row})
        return self.playing.play(0, 0, prompt, SETTINGS, 0, self.sample)


@pytest.fixture
def make_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Table]]:
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{tmp_path}")
    made: list[Table] = []

    def make(*words: str) -> Table:
        made.append(Table(tmp_path, *words))
        return made[-1]

    yield make
    for table in made:
        table.playing.close()


@pytest.fixture
def table(make_table: Callable[..., Table]) -> Table:
    return make_table()


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


def test_what_is_trained_are_the_very_tokens_that_were_sampled(table: Table) -> None:
    """The policy spells an answer in tokens that its text would not give: they stay as they are in all later turns."""
    episode, policy = table.episode()
    odd = table.codec.encode("4")[0]
    special = table.codec.encode("<bos>")[0]
    answers = [(odd, special, odd, 2), (odd, 2)]

    def sample(token_ids: list[int], settings: SamplingSettings) -> Completion:
        table.asked.append((token_ids, settings))
        ids = answers[len(table.asked) - 1]
        return Completion(0, ids, tuple(-0.5 - n for n in range(len(ids))), "stop", len(table.asked), len(table.asked))

    episode._sample = sample
    chat = [user("1>")]
    said = policy.chat(chat)
    chat += [{**said, "refusal": None, "tool_calls": None}, user("2>")]  # as OpenAI's client writes it back
    policy.chat(chat)
    first, second = table.asked
    heard = table.codec.encode("2>")
    assert second[0] == [*first[0], *answers[0], *heard]
    assert [one[1].seed for one in table.asked] == [derive_seed(5, 3, turn) for turn in (1, 2)]
    assert [one[1].max_tokens for one in table.asked] == [40, 40 - 4 - len(heard)]
    found = episode.over(7, 0.5, failed=False)
    assert found.sequences == (found,)
    assert found.token_ids == (*answers[0], *heard, *answers[1])
    assert found.response_mask == (True,) * 4 + (False,) * len(heard) + (True,) * 2
    chosen = [value for value, own in zip(found.log_probs, found.response_mask, strict=True) if own]
    assert chosen == [-0.5, -1.5, -2.5, -3.5, -0.5, -1.5]
    assert (found.prompt_index, found.weight_version, found.newest_version) == (7, 1, 2)
    row = sampled(Prompt((9, 9), ""), found)
    assert (row.prompt_ids, row.response_ids) == (tuple(first[0]), found.token_ids)


def test_a_chat_that_was_rewritten_begins_a_new_sequence(table: Table) -> None:
    episode, policy = table.episode()
    table.texts = ["11<eos>", "22<eos>", "33<eos>"]
    chat = [user("1>")]
    chat.append(policy.chat(chat))
    chat.append(user("2>"))
    chat.append(policy.chat(chat))
    table.version = 1
    policy.chat([user("12>"), chat[1], user("3>")])
    found = episode.over(0, 1.0, failed=False)
    texts = [(table.codec.transcript(one.prompt_ids), table.codec.transcript(one.token_ids)) for one in found.sequences]
    assert texts == [("1>", "11<eos>2>22<eos>"), ("12>113>", "33<eos>")]
    assert found.sampled_tokens == 9
    other = Completion(0, (4, 2), (-1.0, -1.0), "stop", 1, 1, outcome=found.outcome)
    [[aged, _]] = StalenessCounter(1).note([[found, other]], 1)
    assert [one.staleness for one in aged.sequences] == [1, 0]
    drawn = Drawn([Prompt((1,), "")], [[other, aged]])
    assert owners_of(drawn, [0]) == [0, 1, 1]
    metrics = sample_metrics([[aged, other]], [[1.0, 0.0]])
    assert (metrics["sequences"], metrics["turns"], metrics["environment_length"]) == (1.5, 3.0, 1.0)


def test_tools_go_through_the_template_and_calls_come_back_read(table: Table) -> None:
    episode, policy = table.episode(is_chat=True, room=120)
    call = '<tool_call>{"name":"add","arguments":{"a":1}}</tool_call>'
    table.texts = [f"so{call}<eos>", "2<eos>"]
    chat = [user("1+1?")]
    status, body = post(policy, {"model": "any", "messages": chat, "tools": [TOOL], "logprobs": True})
    [choice] = json.loads(body)["choices"]
    assert (status, choice["finish_reason"], choice["message"]["content"]) == (200, "tool_calls", "so")
    [asked] = choice["message"]["tool_calls"]
    assert (asked["function"]["name"], json.loads(asked["function"]["arguments"])) == ("add", {"a": 1})
    tokens = choice["logprobs"]["content"]
    assert "".join(one["token"] for one in tokens) == f"so{call}<eos>"
    assert [one["logprob"] for one in tokens] == [-0.1 - n for n in range(len(tokens))]
    asked["function"]["arguments"] = '{ "a" : 1 }'  # clients write arguments in their own way
    chat += [choice["message"]]
    chat += [{"role": "tool", "tool_call_id": asked["id"], "content": [{"type": "text", "text": "2"}]}]
    _, body = post(
        policy, {"messages": chat, "tools": [TOOL], "stream": True, "stream_options": {"include_usage": True}}
    )
    lines = [line.removeprefix(b"data: ") for line in body.split(b"\n\n") if line]
    events = [json.loads(line) for line in lines[:-1]]
    assert lines[-1] == b"[DONE]"
    assert [event["choices"][0]["delta"].get("content") for event in events[:2]] == ["2", None]
    assert events[1]["choices"][0]["finish_reason"] == "stop"
    assert events[2]["usage"]["completion_tokens"] == 2
    found = episode.over(0, 1.0, failed=False)
    assert found.sequences == (found,)
    assert table.codec.transcript(found.prompt_ids) == "[add]<user>1+1?<eos><assistant>"
    assert table.codec.transcript(found.token_ids) == f"so{call}<eos><tool>2<eos><assistant>2<eos>"


def test_what_cannot_be_answered_is_refused_and_costs_nothing(table: Table) -> None:
    episode, policy = table.episode()
    chat = [user("1>")]
    assert post(policy, {"messages": chat}, key="wrong")[0] == 401
    assert post(policy, {"messages": chat}, key="")[0] == 401
    assert post(policy, None, key="wrong", path="/models")[0] == 401
    assert json.loads(post(policy, None, path="/models")[1])["data"][0]["id"] == "policy"
    assert post(policy, {"messages": chat}, path="/completions")[0] == 404
    for body in (
        [],
        {},
        {"messages": []},
        {"messages": ["x"]},
        {"messages": chat, "n": 2},
        {"messages": chat, "stop": "x"},
    ):
        assert post(policy, body)[0] == 400
    assert post(policy, {"messages": chat, "max_tokens": "many"})[0] == 400
    picture = [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]
    assert post(policy, {"messages": picture})[0] == 400
    assert post(policy, {"messages": [user("1" * 41)]})[1]["code"] == "context_length_exceeded"
    assert table.asked == []
    chat.append(policy.chat(chat, max_tokens=1))
    assert table.asked[0][1].max_tokens == 1
    assert post(policy, {"messages": [*chat, user("1" * 39)]})[1]["code"] == "context_length_exceeded"
    assert len(table.asked) == 1
    for _ in range(3):
        policy.chat([user("1>")])
    assert post(policy, {"messages": [user("1>")]})[1]["code"] == "episode_over"
    found = episode.over(0, 1.0, failed=False)
    assert len(found.sequences) == 4
    assert found.outcome is not None
    assert found.outcome.turns == 4
    table.playing._endpoint.end(policy)
    assert post(policy, {"messages": [user("1>")]})[0] == 401


def test_a_chat_that_ran_into_its_limit_is_cut_unless_it_was_begun_anew(table: Table) -> None:
    for is_begun_anew, reason in ((False, "length"), (True, "stop")):
        episode, policy = table.episode()
        chat = [user("1>")]
        chat.append(policy.chat(chat))
        assert post(policy, {"messages": [*chat, user("1" * 39)]})[0] == 400
        if is_begun_anew:
            policy.chat([user("2>")])
        found = episode.over(0, 1.0, failed=False)
        assert found.finish_reason == reason
        assert all(one.response_mask == () for one in found.sequences)


def test_two_chats_of_one_episode_at_once_are_kept_apart(table: Table) -> None:
    episode, policy = table.episode()
    both, answer = threading.Barrier(2, timeout=120), table.sample

    def together(token_ids: list[int], settings: SamplingSettings) -> Completion:
        both.wait()  # both requests are with the engine now
        return answer(token_ids, settings)

    episode._sample = together
    threads = [threading.Thread(target=policy.chat, args=([user("1>")],)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    found = episode.over(0, 1.0, failed=False)
    assert [table.codec.transcript(one.prompt_ids) for one in found.sequences] == ["1>", "1>"]
    assert len({settings.seed for _, settings in table.asked}) == 2


def test_an_answer_that_comes_after_the_end_is_not_trained(table: Table) -> None:
    episode, policy = table.episode()
    chat = [user("1>")]
    chat.append(policy.chat(chat))
    begun, ended, answer = threading.Event(), threading.Event(), table.sample

    def late(token_ids: list[int], settings: SamplingSettings) -> Completion:
        begun.set()
        assert ended.wait(120)
        return answer(token_ids, settings)

    episode._sample = late
    thread = threading.Thread(target=post, args=(policy, {"messages": [*chat, user("2>")]}))
    thread.start()
    assert begun.wait(120)
    found = episode.over(0, 1.0, failed=False)
    ended.set()
    thread.join(120)
    assert table.codec.transcript(found.token_ids) == "7<eos>"
    assert (found.response_mask, len(found.log_probs)) == ((), 2)


def test_agents_are_paid_for_what_they_say_and_faults_cost_their_own_samples(table: Table) -> None:
    right, turns = table.play("said"), table.play("by_turns")
    assert right.outcome is not None
    assert turns.outcome is not None
    assert (right.outcome.reward, right.outcome.turns, right.outcome.failed) == (1.0, 1, False)
    assert (turns.outcome.reward, turns.outcome.failed) == (0.75, False)
    for kind in ("raises", "ends", "leaves", "silent", "nonsense"):
        found = table.play(kind)
        assert found.outcome is not None
        assert (found.outcome.reward, found.outcome.failed) == (0.0, True), kind
        assert len(found.sequences) == (kind in ("raises", "nonsense"))
    said = [text.partition(": ")[2] for kind, text in table.events if kind == "environment"]
    assert said[0] == "ValueError: lost the thread"
    assert said[1] == "it ended its process, exit code 3"
    assert said[2] == "SystemExit: had enough"
    assert said[3] == NEVER_ASKED
    assert "the reward is nan" in said[4]
    assert table.play("said").outcome == right.outcome
    cut = table.play("talks_on")  # that there was no room is no fault of the agent
    assert cut.outcome is not None
    assert (cut.outcome.reward, cut.outcome.turns, cut.outcome.failed, cut.finish_reason) == (0.0, 2, False, "length")


def test_an_agent_that_hangs_is_ended_with_what_it_started_and_holds_up_nobody(table: Table, tmp_path: Path) -> None:
    found: list[Completion] = []
    table.playing._limit_s = 3.0
    hangs = threading.Thread(target=lambda: found.append(table.play("hangs", pids=str(tmp_path / "pids"))))
    hangs.start()
    eventually(lambda: table.playing._process._under_way, "the agent's start")
    table.playing._limit_s = 600.0  # nobody else's end is a matter of this machine's speed
    other = table.play("said")
    assert other.outcome is not None
    assert other.outcome.reward == 1.0
    hangs.join(300)
    [hung] = found
    assert hung.outcome is not None
    assert hung.outcome.failed
    assert [text.partition(": ")[2] for _, text in table.events] == ["it took more than 3 s"]
    if (tmp_path / "pids").exists():  # a slow machine may have been late for it
        for pid in (tmp_path / "pids").read_text().split():
            eventually(lambda pid=pid: is_gone(int(pid)), "the end of what was ended")


def is_gone(pid: int) -> bool:
    """Whether a process has ended; who has to hear of it may not have come to it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_the_process_of_all_agents_is_started_again_where_it_ended(table: Table, tmp_path: Path) -> None:
    found: list[Completion] = []
    go = tmp_path / "go"
    waits = threading.Thread(target=lambda: found.append(table.play("waits", go=str(go))))
    waits.start()
    process = table.playing._process
    eventually(lambda: process._under_way, "the agent's start")
    assert process._process is not None
    process._process.kill()
    waits.join(300)
    go.write_text("1")
    [lost] = found
    assert lost.outcome is not None
    assert lost.outcome.failed
    again = table.play("said")
    assert again.outcome is not None
    assert again.outcome.reward == 1.0


def test_agents_are_told_where_the_policy_is_and_keys_stand_in_no_list_of_processes(
    table: Table, tmp_path: Path
) -> None:
    found = table.play("told", told=str(tmp_path / "told"))
    url, model, key = (tmp_path / "told").read_text().split("\n")
    assert url.startswith("http://127.0.0.1:")
    assert model == "policy"
    assert len(key) > 30
    assert found.outcome is not None
    assert found.outcome.reward == 1.0
    server = table.playing._endpoint._server
    assert server.server_address[0] == "127.0.0.1"
    assert key not in repr(table.events)
    assert key not in repr(table.playing._endpoint.open(table.episode()[0]))


def test_an_agent_that_cannot_be_imported_is_named(make_table: Callable[..., Table]) -> None:
    with pytest.raises(ValueError, match=r"the agent own_agents:absent cannot start: .*absent"):
        make_table("data.environment=own_agents:absent")


def test_the_example_of_the_documentation_works_as_written(make_table: Callable[..., Table], tmp_path: Path) -> None:
    [source] = re.findall(r"```python\n(# my_agents\.py.*?)```", (ROOT / "docs/rewards.md").read_text(), re.DOTALL)
    assert len(source.splitlines()) <= 20
    (tmp_path / "my_agents.py").write_text(source)
    table = make_table("data.environment=my_agents:solve", "lengths.prompt=200", "lengths.response=200")
    table.texts = ["12<eos>", " 7\n<eos>"]
    prompt = Prompt(tuple(table.codec.encode("3+4?")), "7", "3+4?", messages=(user("3+4?"),), is_chat=True)
    found = table.playing.play(0, 0, prompt, replace(SETTINGS, max_tokens=200), 0, table.sample)
    assert found.outcome is not None
    assert (found.outcome.reward, found.outcome.turns, found.outcome.failed) == (1.0, 2, False)
    asked = table.codec.transcript(table.asked[1][0])
    assert asked.startswith("<user>3+4?<eos><user>Think it over")
    assert "<assistant>12<eos><user>Check it" in asked
