"""Environments as their processes run them: tools, faults, instances, and what comes with the trainers."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest
from trainer_support import ROOT

from rltui.check.bundled import ENVIRONMENTS
from rltui.layout.load import load_layout
from rltui.runs.code_snapshot import own_code
from trainers.environments import Environment, Task, parse_tool_call
from trainers.environments.calculator import Calculator, value_of
from trainers.environments.pool import BUILTIN, Environments, Episode, EpisodeStep, class_of, ensure_walls, start_worker
from trainers.environments.python import Python
from trainers.environments.worker import Instances
from waiting import slowness

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.trainers

TINY = ROOT / "layouts" / "local" / "grpo-tools-tiny.yaml"
TOOL_CALLS = [
    ("12", None),
    ('x <tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>', ("add", {"a": 1})),
    ('<tool_call>\n{"name": "now"}\n</tool_call> and <tool_call>{"name": "later"}</tool_call>', ("now", {})),
    ('<tool_call>{"name": "open"}', ("open", {})),
    ("<tool_call>add(1, 2)</tool_call>", "not JSON"),
    ("<tool_call></tool_call>", "not JSON"),
    ("<tool_call>[1]</tool_call>", 'needs a "name"'),
    ('<tool_call>{"name": 3}</tool_call>', 'needs a "name"'),
    ('<tool_call>{"name": "add", "arguments": "1+1"}</tool_call>', "must be an object"),
    ("<tool_call>" + "[" * 100_000, "not JSON"),
]


@pytest.mark.parametrize(("answer", "expected"), TOOL_CALLS)
def test_tool_calls_are_read_or_answered_with_what_is_wrong(answer: str, expected: Any) -> None:
    found = parse_tool_call(answer)
    if expected is None:
        assert found is None
    elif isinstance(expected, str):
        assert found is not None
        assert expected in found.error
        assert "<tool_call>" in found.error
    else:
        assert found is not None
        assert (found.name, found.arguments, found.error) == (*expected, "")


@pytest.mark.parametrize(
    ("expression", "value"), [("2*(3+4)", 14), ("-1/3 + 1/3", 0), ("0.1+0.2", Fraction(3, 10)), ("10-2-3", 5)]
)
def test_the_calculator_is_exact(expression: str, value: Fraction) -> None:
    assert value_of(expression) == value


def test_the_calculator_answers_whatever_it_is_asked_and_pays_for_the_last_number() -> None:
    environment = Calculator()
    environment.reset(Task([{"role": "user", "content": "6*7?"}], "42"))
    for expression in (
        "__import__('os')",
        "9**9**9",
        "1/0",
        "(" * 150,
        "1e999",
        "x",
        "",
        "True",
        "*".join(["99999"] * 40),
    ):
        call = json.dumps({"name": "calculate", "arguments": {"expression": expression}})
        step = environment.step(f"<tool_call>{call}</tool_call>")
        assert not step.done
        assert step.messages[0]["role"] == "tool"  # type: ignore[index]
        assert "annot be calculated" in str(step.messages)
    said = environment.step('<tool_call>{"name": "calculate", "arguments": {"expression": "6*7"}}</tool_call>')
    assert said.messages == [{"role": "tool", "content": "42"}]
    assert "no tool search" in str(environment.step('<tool_call>{"name": "search"}</tool_call>').messages)
    assert environment.step("it is 42").reward == 1.0
    assert environment.step("it is 42 or 41") == ("", 0.0, True)
    assert set(BUILTIN) == set(ENVIRONMENTS)


def test_python_runs_in_the_sandbox_and_the_last_answer_is_judged() -> None:
    def said(environment: Environment, code: str, name: str = "python") -> Any:
        call = json.dumps({"name": name, "arguments": {"code": code}})
        [message] = environment.step(f"let me see <tool_call>{call}</tool_call>").messages
        assert isinstance(message, dict)
        return message["content"]

    counts = Python()
    counts.reset(Task([{"role": "user", "content": "6*7?"}], "42"))
    assert said(counts, "print(6 * 7)") == "42\n"
    assert "ZeroDivisionError" in said(counts, "1/0")
    assert "printed nothing" in said(counts, "x = 1")
    assert "PermissionError" in said(counts, "open('/home/x', 'w')") or "No such file" in said(
        counts, "open('/home/x')"
    )
    assert "no tool shell" in said(counts, "", name="shell")
    assert counts.step("so it is 42") == ("", 1.0, True)
    writes = Python()
    writes.reset(Task([], row={"tests": ["assert double(2) == 4", "assert double(0) == 1"]}))
    assert writes.step("```python\ndef double(x):\n    return 2 * x\n```") == ("", 0.5, True)
    events: list[tuple[str, str]] = []
    ensure_walls(load_layout(TINY).layout.data, lambda *words: events.append(words))
    assert events == []
    ensure_walls(
        load_layout(TINY, ["data.environment=builtin/python"]).layout.data, lambda *words: events.append(words)
    )
    assert "reward sandbox: closed" in events[0][1]


GAMES = """
import os, time
from trainers.environments import Environment, Step

class Game(Environment):
    def reset(self, task):
        print("noise on stdout")
        self.start, self.said = os.getpid(), []
        if task.answer == "no game":
            raise LookupError("there is no such game")
        return f"play {task.row['level']}>"

    def step(self, answer):
        if answer == "raises":
            raise ValueError("no such move")
        if answer == "dies":
            os._exit(3)
        if answer == "hangs":
            time.sleep(3600)
        if answer == "nan":
            return Step(reward=float("nan"))
        if answer == "nonsense":
            return Step(messages=[{"text": "no role"}])
        if answer == "nothing":
            return None
        self.said.append(answer)
        return Step(messages="".join(self.said), reward=0.5, done=len(self.said) == 3)
"""


LIMIT_S = math.ceil(1.5 * slowness())
"""A healthy answer keeps it; one that hangs costs it."""


@pytest.fixture
def games(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Environments, list[tuple[str, str]]]]:
    """One process for all samples, so that each fault is in everybody's way."""
    (tmp_path / "games.py").write_text(GAMES)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{tmp_path}")
    events: list[tuple[str, str]] = []
    made = Environments("games:Game", [start_worker("games:Game")], LIMIT_S, lambda *words: events.append(words))
    yield made, events
    made.close()


def test_a_fault_costs_its_own_sample_only(games: tuple[Environments, list[tuple[str, str]]]) -> None:
    environments, events = games
    task = Task([{"role": "user", "content": "?"}], row={"level": 3})
    opened = environments.open([task, replace(task, answer="no game"), task])
    assert opened == [[{"role": "user", "content": "play 3>"}], None, [{"role": "user", "content": "play 3>"}]]
    good, plays = Episode(0, task), []
    for number, fault in enumerate(("raises", "dies", "nan", "hangs", "nonsense", "nothing"), 1):
        good.answers.append("abc"[len(good.answers)] if len(good.answers) < 3 else "d")
        if number <= 3:
            told = environments.step(good, last=False).result()
            said = "" if number == 3 else "abc"[:number]
            assert told == EpisodeStep([{"role": "user", "content": said}] if said else [], 0.5, done=number == 3)
        plays.append(Episode(number, task, [fault]))
        assert environments.step(plays[-1], last=False).result() == EpisodeStep([], failed=True)
    assert len(events) == 5  # different words only, and no more than that
    assert {kind for kind, _ in events} == {"environment"}
    assert any("LookupError: there is no such game" in text for _, text in events)
    assert any(f"more than {LIMIT_S} s, or ended its process" in text for _, text in events)
    again = Episode(9, task, ["x"])
    assert environments.step(again, last=True).result() == EpisodeStep([], 0.5, done=False)


def test_an_environment_that_cannot_be_imported_is_named() -> None:
    with pytest.raises(ValueError, match=r"the environment no_games:Chess cannot start: .*No module named 'no_games'"):
        start_worker("no_games:Chess")
    with pytest.raises(ValueError, match=r"no environment 'builtin/chess'; bundled are: builtin/guess-order"):
        class_of("builtin/chess")


def test_instances_are_closed_once_their_sample_is_over() -> None:
    closed: list[int] = []

    class Counted(Environment):
        def step(self, answer: str) -> Any:
            return answer, 0.0, answer == "end"

        def close(self) -> None:
            closed.append(id(self))
            raise RuntimeError("nobody minds")

    instances, task = Instances(Counted), {"messages": [], "answer": "", "row": {}, "seed": 0}

    def step(key: int, *answers: str, last: bool = False, over: Sequence[int] = ()) -> Any:
        asked = {"do": "step", "key": key, "task": task, "answers": answers, "last": last, "over": over}
        return json.loads(instances.answer(asked))

    assert step(1, "a")["messages"] == [{"role": "user", "content": "a"}]
    assert step(2, "a", last=True)["messages"] == []
    assert len(closed) == 1
    assert step(1, "a", "end")["done"]
    assert len(closed) == 2
    step(3, "a")
    step(4, "a", over=[3, 99])
    assert len(closed) == 3


def test_the_example_of_the_documentation_works_as_written() -> None:
    [source] = re.findall(r"```python\n(# my_envs\.py.*?)```", (ROOT / "docs/rewards.md").read_text(), re.DOTALL)
    found: dict[str, Any] = {}
    exec(source, found)
    environment = found["Dictionary"]()
    task = Task([{"role": "user", "content": "What is Hund in English?"}], "dog", {"words": {"Hund": "dog"}})
    assert environment.reset(task) == task.messages
    call = '<tool_call>{"name": "look_up", "arguments": {"word": "Hund"}}</tool_call>'
    assert environment.step(call).messages == [{"role": "tool", "content": "dog"}]
    assert "cannot be read" in environment.step("<tool_call>Hund").messages[0]["content"]
    assert environment.step(" dog\n") == ("", 1.0, True)
    assert json.dumps(found["Dictionary"].tools)


def test_packages_of_reward_and_environment_are_carried(tmp_path: Path) -> None:
    (tmp_path / "games").mkdir()
    (tmp_path / "games" / "chess.py").write_text("class Chess: pass\n")
    layout = load_layout(TINY, ["data.environment=games.chess:Chess"]).layout
    assert own_code(layout, tmp_path) is not None
    assert own_code(load_layout(TINY).layout, tmp_path) is None


def test_environments_are_found_without_the_training_stack() -> None:
    """A worker starts in the time that Python takes; torch would take seconds."""
    import subprocess

    program = (
        "import sys, trainers.environments.worker; print([m for m in ('torch', 'ray', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"


def test_a_step_that_the_end_of_the_run_breaks_off_is_no_failure_of_its_environment() -> None:
    class Ended:
        def ask(self, question: Any, timeout_s: float) -> Any:
            return None

        def close(self) -> None:
            pass

    events: list[tuple[str, str]] = []
    environments = Environments("mine:Game", [Ended()], 1.0, lambda *words: events.append(words))
    environments.close()
    assert environments._step(0, Episode(0, Task([]), ["1"]), last=True).failed
    assert events == []
    environments = Environments("mine:Game", [Ended()], 1.0, lambda *words: events.append(words))
    assert environments.step(Episode(0, Task([]), ["1"]), last=True).result().failed
    assert len(events) == 1
    environments.close()
