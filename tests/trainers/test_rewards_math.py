"""Rewards other than code: what counts as equal, in form, from afar; and that no answer can stall or break them."""

from __future__ import annotations

import importlib.util
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar

import pytest

from trainers.data.prompts import Prompt
from trainers.rewards.answers import Answer, boxed, code_of, last_number
from trainers.rewards.exact import Exact, Nothing
from trainers.rewards.formats import WithFormat, has_format
from trainers.rewards.math import Math, gold_of, quick
from trainers.rewards.remote import TRIES, Remote, RemoteRewardError

HAS_ALGEBRA = importlib.util.find_spec("math_verify") is not None


def answer(text: str, right: str = "", prompt: Prompt | None = None, stopped: bool = True) -> Answer:
    return Answer(prompt or Prompt((1,), right, "2+2="), text, stopped)


@pytest.fixture(scope="module")
def algebra() -> Iterator[Math | None]:
    """The reward, or None where math-verify is missing: then only its absence can be looked at."""
    if not HAS_ALGEBRA:
        yield None
        return
    reward = Math(1, 120.0)
    yield reward
    reward.close()


CASES = [
    (r"so \boxed{42}", "42", 1.0),
    (r"so \boxed{41}, not 42", "42", 0.0),
    (r"\boxed{1} no, \boxed{\frac{1}{2}}", "0.5", 1.0),
    (r"\boxed{\dfrac{\sqrt{8}}{2}}", r"\sqrt{2}", 1.0),
    (r"$x^2+2x+1$", "(x+1)^2", 1.0),
    (r"\boxed{(1, 2)}", "(2, 1)", 0.0),
    ("it is 1,234.50", "1234.5", 1.0),
    ("it is 12 or 13", "12", 0.0),
    ("she has 18 left", "6*3 is 18\n#### 18", 1.0),
    ("she has 1800 left", "100 times 18 #### $1,800\n", 1.0),
    (r"\boxed{5}", "#### Solution\nThey add up, so \\boxed{5}.", 1.0),
    ("", "18", 0.0),
    ("\\boxed{", "18", 0.0),
    ("\x00 ￿ \\frac{{{{", "18", 0.0),
]


@pytest.mark.parametrize(("text", "right", "wanted"), CASES)
def test_answers_are_compared_by_value(algebra: Math | None, text: str, right: str, wanted: float) -> None:
    if algebra is None:
        with pytest.raises(ValueError, match="pip install math-verify"):
            Math(1, 10.0)
        return
    assert algebra.score([answer(text, right)]) == [wanted]


def test_an_answer_that_never_ends_is_zero_and_the_next_one_is_judged() -> None:
    if not HAS_ALGEBRA:
        return
    reward = Math(1, 120.0)
    try:
        reward.score([answer(r"\boxed{2x}", "x+x")])  # libraries are loaded
        impatient = Math.__new__(Math)
        impatient.__dict__ |= {**reward.__dict__, "_timeout_s": 3.0}
        tower, fine = answer(r"\boxed{9^{9^{9^{9^9}}}}", "7"), answer(r"\boxed{2x}", "x+x")
        began = time.monotonic()
        assert impatient.score([tower])[0] == 0.0
        assert time.monotonic() - began < 60
        assert reward.score([fine]) == [1.0]
    finally:
        reward.close()


def test_plain_answers_need_no_algebra() -> None:
    assert quick("42", r"\boxed{42.0}") == 1.0
    assert quick("42", "so 42") == 1.0
    assert quick("42", "") == 0.0
    assert quick("1/2", r"\boxed{0.5}") is None
    assert quick("1234", r"\boxed{$1,234.0}") == 1.0
    assert quick("-1,234,567", r"\boxed{$-1234567}") == 1.0
    assert quick("12", r"\boxed{1,2}") is None
    assert quick("3,5,7", r"\boxed{357}") is None
    assert gold_of(r"thus \boxed{\frac{1}{2}}.") == r"\frac{1}{2}"
    assert boxed(r"\boxed{a{b}c} and \fbox{d}") == "d"
    assert boxed(r"\boxed{a{b}") is None
    assert last_number("no 1, not 2,000, but -3.5") == "-3.5"
    assert code_of("a\n```python\nx = 1\n```\n```\ny = 2\n```") == "y = 2\n"
    assert code_of("x = 1") == "x = 1"


FORMS = [
    ("boxed", r"\boxed{1}", "boxed 1"),
    ("answer_tags", "so <answer>1</answer>\n", "<answer>1</answer> or <answer>2</answer>"),
    ("answer_tags", "<answer>1</answer>", "<answer>1</answer> I think"),
    ("answer_tags", "<think>a</think><answer>1</answer>", "<answer>1</answer> <b>I think</b>"),
    ("think_answer", "<think>hm</think>\n<answer>1</answer>", "hm <think>hm</think><answer>1</answer>"),
    ("think_answer", "<think>a\nb</think><answer>1</answer>", "<think></think><answer>1</answer>"),
    ("code_block", "```python\nx\n```", "```python\nx\n```\n```\ny\n```"),
]


@pytest.mark.parametrize(("kind", "good", "bad"), FORMS)
def test_form(kind: str, good: str, bad: str) -> None:
    assert has_format(kind, good)
    assert not has_format(kind, bad)
    both = WithFormat(Nothing(), kind, 0.25).score([answer(good), answer(bad)])
    assert both == [0.25, 0.0]


def test_exact_asks_the_task_where_it_can_grade() -> None:
    graded = Prompt((1,), "4", grade=lambda said: len(said) / 10)
    found = Exact().score([answer("4", "4"), answer("4", "4", stopped=False), answer("12345", prompt=graded)])
    assert found == [1.0, 0.0, 0.5]


class Judge(BaseHTTPRequestHandler):
    """Answers with the next of ``plan``: a status and a body; notes what it was asked."""

    plan: ClassVar[list[tuple[int, object]]] = []
    asked: ClassVar[list[tuple[str, dict[str, object]]]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append((self.headers.get("Authorization", ""), body))
        status, answer = self.plan.pop(0)
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/elsewhere")
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def judge() -> Iterator[str]:
    Judge.plan.clear()
    Judge.asked.clear()
    server = HTTPServer(("127.0.0.1", 0), Judge)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/score"
    server.shutdown()
    server.server_close()


def test_a_server_may_judge_and_may_stumble(judge: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_TOKEN", "s3cret")
    Judge.plan += [(503, {}), (200, {"rewards": [1]}), (200, {"rewards": [0.5, -1]})]
    events: list[tuple[str, str]] = []
    pauses: list[float] = []
    remote = Remote(judge, 5.0, "JUDGE_TOKEN", lambda kind, text: events.append((kind, text)), pauses.append)
    assert remote.score([answer("4", "4"), answer("5", "4")]) == [0.5, -1.0]
    assert Judge.asked[-1] == (
        "Bearer s3cret",
        {"prompts": ["2+2="] * 2, "responses": ["4", "5"], "answers": ["4", "4"]},
    )
    assert pauses == [0.5, 1.0]
    assert [kind for kind, _ in events] == ["error", "error"]
    assert "s3cret" not in str(events)


@pytest.mark.parametrize(("plan", "tries"), [([(500, {})] * TRIES, TRIES), ([(401, {})], 1), ([(302, {})] * 4, 4)])
def test_a_server_that_fails_ends_the_training(judge: str, plan: list[tuple[int, object]], tries: int) -> None:
    Judge.plan += plan
    events: list[str] = []
    with pytest.raises(RemoteRewardError, match="failed"):
        Remote(judge, 5.0, "NO_TOKEN", lambda _, text: events.append(text), lambda _: None).score([answer("4")])
    assert len(events) == len(Judge.asked) == tries


@pytest.mark.parametrize("rewards", [["1"], [float("nan")], [10**400], [True], [1, 2], None])
def test_rewards_that_are_no_numbers_are_refused(judge: str, rewards: object) -> None:
    Judge.plan += [(200, {"rewards": rewards})] * TRIES
    with pytest.raises(RemoteRewardError):
        Remote(judge, 5.0, "NO_TOKEN", lambda *_: None, lambda _: None).score([answer("4")])


def test_only_web_addresses_are_asked() -> None:
    with pytest.raises(ValueError, match="http"):
        Remote("file:///etc/passwd", 5.0, "NO_TOKEN", lambda *_: None)
