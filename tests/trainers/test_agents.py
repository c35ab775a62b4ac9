"""Agents as their processes run them: what they are told, what they earn, and what their faults cost."""

from __future__ import annotations

import io
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from agent_support import SETTINGS, Table, user
from trainer_support import ROOT

from rltui.layout.load import load_layout
from trainers.agents import NEVER_ASKED
from trainers.data.batch import ADVANTAGES
from trainers.data.prompts import Prompt
from trainers.environments import agent_host
from trainers.environments.agent_host import AgentHost
from trainers.environments.agents import DIED, AgentProcess
from trainers.groups import Drawn
from trainers.grpo import Grpo, owners_of
from trainers.roles.completions import Completion
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

TINY = ROOT / "layouts" / "local" / "grpo-agent-tiny.yaml"
pytestmark = pytest.mark.trainers


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
    table.turns._limit_s = 3.0
    hangs = threading.Thread(target=lambda: found.append(table.play("hangs", pids=str(tmp_path / "pids"))))
    hangs.start()
    eventually(lambda: table.turns._place._process._under_way, "the agent's start")
    table.turns._limit_s = 600.0  # nobody else's end is a matter of this machine's speed
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


def test_agents_are_ended_with_the_run(table: Table, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    hangs = threading.Thread(target=table.play, args=("hangs",), kwargs={"pids": str(pids)})
    hangs.start()
    found = eventually(lambda: pids.exists() and pids.read_text().split(), "the agent's child")
    assert not any(is_gone(int(pid)) for pid in found)
    table.turns.close()
    hangs.join(300)
    for pid in found:
        eventually(lambda pid=pid: is_gone(int(pid)), "the end of what was ended")


def test_an_agent_ends_with_the_process_that_it_was_forked_from(table: Table, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    hangs = threading.Thread(target=table.play, args=("hangs",), kwargs={"pids": str(pids)})
    hangs.start()
    agent, child = map(int, eventually(lambda: pids.exists() and pids.read_text().split(), "the agent's child"))
    process = table.turns._place._process._process
    assert process is not None
    try:
        process.kill()
        eventually(lambda: is_gone(agent), "the end of the agent")
    finally:
        os.kill(child, signal.SIGKILL)
    hangs.join(300)


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
    process = table.turns._place._process
    eventually(go.with_suffix(".awaited").exists, "the agent's start")  # it goes on when that process is gone
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


def test_a_sample_asked_while_that_process_is_just_ending_is_played_by_the_next(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = table.turns._place._process
    ending = process._process
    assert ending is not None
    monkeypatch.setattr(ending, "poll", lambda: None)  # nobody may wait for it yet
    ending.kill()
    eventually(lambda: process._over is process._said, "its pipes to be closed")
    found = table.play("said")
    assert found.outcome is not None
    assert found.outcome.reward == 1.0
    assert process._process is not ending


def test_samples_of_a_process_that_ended_are_lost_also_where_the_next_one_is_there_before_its_end_is_heard() -> None:
    process = object.__new__(AgentProcess)
    process._lock, process._said = threading.Lock(), queue.Queue()
    before: queue.Queue[str] = queue.Queue()
    of_one: Future[dict[str, Any]] = Future()
    of_next: Future[dict[str, Any]] = Future()
    process._under_way = {1: (before, of_one), 2: (process._said, of_next)}
    before.put("")
    process._hear(before)
    assert of_one.result(0) == {"error": DIED}
    assert not of_next.done()


def test_a_sample_that_cannot_be_started_costs_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    said = io.StringIO()
    host = AgentHost(lambda _task, _policy: 0.0, said)

    def full() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    made, closed, pipe, close = list[int](), list[int](), os.pipe, os.close
    monkeypatch.setattr(agent_host.os, "fork", full)
    monkeypatch.setattr(agent_host.os, "pipe", lambda: made.extend(pipe()) or tuple(made))
    monkeypatch.setattr(agent_host.os, "close", lambda descriptor: closed.append(descriptor) or close(descriptor))
    host._start({"key": 4, "limit_s": 5.0})
    assert set(made) <= set(closed)
    assert len(made) == 2
    error = "it could not be started: [Errno 11] Resource temporarily unavailable"
    assert json.loads(said.getvalue()) == {"key": 4, "error": error}
    assert host._running == {}


def test_thousands_of_samples_may_have_files_open() -> None:
    program = """
import resource
from trainers.environments.agent_host import MOST_FILES, allow_files
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
allow_files()
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (min(hard, MOST_FILES), hard)
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


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
    server = table.turns._place._endpoint._server
    assert server.server_address[0] == "127.0.0.1"
    assert key not in repr(table.events)
    assert key not in repr(table.episode()[1])


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
    found = table.turns.play(0, 0, prompt, replace(SETTINGS, max_tokens=200), 0, table.sample)
    assert found.outcome is not None
    assert (found.outcome.reward, found.outcome.turns, found.outcome.failed) == (1.0, 2, False)
    asked = table.codec.transcript(table.asked[1][0])
    assert asked.startswith("<user>3+4?<eos><user>Think it over")
    assert "<assistant>12<eos><user>Check it" in asked


def test_what_a_sample_is_penalised_by_is_that_of_all_its_sequences_and_each_has_its_advantage() -> None:
    words = ["grpo.kl=reward", "grpo.kl_coefficient=0.5", "roles.reference={model: builtin/tiny-qwen3}"]
    grpo: Any = object.__new__(Grpo)
    grpo.layout = load_layout(TINY, [*words, "train.prompts_per_step=1", "grpo.filter_zero_std=false"]).layout
    kl, mask = (
        torch.tensor([[1.0, 2.0], [3.0, 100.0], [5.0, 0.0]]),
        torch.tensor([[True] * 2, [True, False], [True] * 2]),
    )
    grpo._kl = lambda samples: (kl, mask)
    grpo.with_log_probs = lambda samples: (list(samples), {})
    first = Completion(0, (3, 2), (-1.0, -1.0), "stop", 0, prompt_ids=(5,))
    again = replace(first, token_ids=(4, 2), prompt_ids=(5, 6), earlier=(first,))
    never = Completion(0, (), (), "stop", -1)
    drawn = Drawn([Prompt((1,), "")], [[again, first, never]], [[1.0, 0.0, 0.0]], [[1.0, 0.0, 0.0]], [True])
    rewards = grpo.less_kl(torch.tensor([[1.0, 0.0, 0.0]]), [None] * 3, owners_of(drawn, [0]))
    assert rewards.tolist() == [[1.0 - 0.5 * (3.0 + 3.0), -0.5 * 5.0, 0.0]]
    trained, measured, _ = grpo.with_advantages(drawn)
    assert measured == []
    assert [one.prompt_ids for one in trained] == [(5,), (5, 6), (5,)]
    advantages = [one.columns[ADVANTAGES] for one in trained]
    assert advantages[0] == advantages[1]
    mean, deviation = rewards.mean(), rewards.std()
    assert advantages[::2] == pytest.approx([float((rewards[0, n] - mean) / deviation) for n in (0, 1)], abs=1e-4)
