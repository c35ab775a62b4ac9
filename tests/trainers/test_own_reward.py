"""A user's own reward function: carried along, called in workers, and its faults cost its own answers only."""

from __future__ import annotations

import io
import math
import os
import pickle
import sys
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs
from trainer_support import LAYOUT, ROOT

from rltui.check.bundled import unsupported
from rltui.errors import RltuiError
from rltui.layout.errors import LayoutError
from rltui.layout.load import load_layout
from rltui.onnode import rundir
from rltui.runs import code_snapshot
from rltui.runs.code_snapshot import own_code
from trainers.attempt import find_own_code
from trainers.data.prompts import Prompt
from trainers.rewards.actors import GRACE_S, grace_of
from trainers.rewards.answers import Answer
from trainers.rewards.composed import make_reward
from trainers.rewards.formats import FORM, WithFormat
from trainers.rewards.own import Own
from trainers.rewards.parts import SumOfParts, has_failed
from trainers.rewards.workers import START_S, WorkerError
from waiting import WAIT_S, eventually, slowness

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.trainers

SOURCE = """
import os, time
from .scale import FACTOR

print("noise on stdout while it is imported")

def grade(prompt, response, answer, row):
    print("noise on stdout")
    if response == "slow":
        time.sleep(3600)
    if response == "dies":
        os._exit(3)
    if response == "nan":
        return float("nan")
    if response == "parts":
        return {"right": 1, "short": 0.25}
    return FACTOR * (response == answer) + len(prompt) + row.get("bonus", 0)
"""
LIMIT_S = math.ceil(3 * slowness())
"""Beside an answer, a process that starts again has to keep it."""
LAYOUT_OF = load_layout(LAYOUT, ["data.reward=graders.main:grade", f"data.reward_timeout_s={LIMIT_S}"]).layout


@pytest.fixture
def carried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package in the archive of an attempt, which the process has found."""
    package = tmp_path / "user" / "graders"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "main.py").write_text(SOURCE)
    (package / "scale.py").write_text("FACTOR = 0.5\n")
    archive = own_code(LAYOUT_OF, tmp_path / "user")
    assert archive is not None
    assert archive == own_code(LAYOUT_OF, tmp_path / "user")
    (tmp_path / rundir.OWN_CODE).write_bytes(archive)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    find_own_code(tmp_path)
    assert os.environ["PYTHONPATH"] == f"{ROOT}:{tmp_path / rundir.OWN_CODE}"


@pytest.mark.usefixtures("carried")
def test_it_is_called_with_texts_and_row_and_its_faults_earn_nothing() -> None:
    events: list[tuple[str, str]] = []
    reward = make_reward(LAYOUT_OF, lambda *words: events.append(words), workers=2)
    asked = Prompt((1,), "42", "6*7", row={"bonus": 1, "picture": b"bytes stay here"})
    said = ["42", "41", "slow", "dies", "nan", "42"]
    found = reward.score([Answer(asked, text, True) for text in said])
    assert found == [4.5, 4.0, 0.0, 0.0, 0.0, 4.5]
    assert [has_failed(one) for one in found] == [False, False, True, True, True, False]
    [formed] = WithFormat(reward, "boxed", 0.2).score([Answer(asked, "nan", True)])
    assert has_failed(pickle.loads(pickle.dumps(formed)))  # as a reward worker sends it
    faults = [text.rpartition(": ")[2] for _, text in events]
    assert faults == [f"took more than {LIMIT_S} s, or ended its process", "nan"]
    parts = {"right": (1.0, 1.0), "short": (0.25, 1.0)}
    [several] = WithFormat(reward, "boxed", 0.2).score([Answer(asked, "parts", True)])
    assert isinstance(several, SumOfParts)
    assert pickle.loads(pickle.dumps(several)).parts == {
        **{name: (value, 0.8 * weight) for name, (value, weight) in parts.items()}, FORM: (0.0, 0.2)
    }  # fmt: skip
    assert several == pytest.approx(1.0)
    broken = Prompt((1,), "42", "6*7", row={"bonus": "text"})
    assert reward.score([Answer(broken, "42", True)] * 2) == [0.0] * 2
    assert len(events) == 3
    assert "TypeError" in events[2][1]
    reward.close()


CARELESS = """
import subprocess, sys, time

sys.stderr.write("a library that warns of much\\n" * 10_000)

def reads(prompt, response, answer, row):
    return float(subprocess.run(["cat"], stdout=subprocess.PIPE).stdout == b"")

def sleeps(prompt, response, answer, row):
    open(response, "w").close()
    time.sleep(600)
"""


@pytest.fixture
def careless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that says more than a pipe takes, and functions that do what they had better not."""
    (tmp_path / "careless.py").write_text(CARELESS)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{tmp_path}")


@pytest.mark.usefixtures("careless")
def test_what_a_function_starts_finds_an_empty_input_and_no_question() -> None:
    reward = Own("careless:reads", 1, WAIT_S, lambda *words: pytest.fail(str(words)))
    assert reward.score([Answer(Prompt((1,), ""), "x", True)] * 2) == [1.0, 1.0]
    reward.close()


@pytest.mark.usefixtures("careless")
def test_functions_that_are_called_end_with_the_run(tmp_path: Path) -> None:
    events: list[Any] = []
    reward, began = Own("careless:sleeps", 1, WAIT_S, lambda *words: events.append(words)), tmp_path / "began"
    pool = ThreadPoolExecutor(1)
    judged = pool.submit(reward.score, [Answer(Prompt((1,), ""), str(began), True)])
    eventually(began.exists, "the function's call")
    before = time.monotonic()
    reward.close()
    assert isinstance(judged.exception(WAIT_S), WorkerError)
    assert time.monotonic() - before < 60 * slowness()
    assert events == []


def test_a_worker_is_given_the_time_to_start_its_process_again_where_it_has_one() -> None:
    assert grace_of(["exact", "code"]) == GRACE_S
    assert grace_of(["exact", "graders:grade"]) == grace_of(["math"]) == GRACE_S + START_S


def test_a_function_that_cannot_be_imported_is_named() -> None:
    with pytest.raises(ValueError, match=r"the reward graders\.main:grade cannot start: .*No module named 'graders'"):
        make_reward(LAYOUT_OF, lambda *_: None, workers=1)


def test_a_name_that_no_reward_has_is_refused_rather_than_graded_in_another_way() -> None:
    layout = load_layout(LAYOUT, []).layout  # whose names are checked: one that is new there has no maker yet
    layout = structs.replace(layout, data=structs.replace(layout.data, reward="nothing_here"))
    with pytest.raises(ValueError, match="nothing_here"):
        make_reward(layout, lambda *_: None, workers=1)


def test_only_what_is_named_and_there_is_carried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert own_code(LAYOUT_OF, tmp_path) is None
    (tmp_path / "graders.py").write_text("def grade(): pass\n")
    (tmp_path / "other.py").write_text("secret\n")
    assert own_code(load_layout(LAYOUT, []).layout, tmp_path) is None
    archive = own_code(LAYOUT_OF, tmp_path)
    assert archive is not None
    (tmp_path / "x.zip").write_bytes(archive)
    assert zipfile.ZipFile(tmp_path / "x.zip").namelist() == ["graders.py"]
    words = ["grpo.ratio=other:ratio", "grpo.filter=graders:filter"]
    archive = own_code(load_layout(LAYOUT, words).layout, tmp_path)
    assert archive is not None
    assert zipfile.ZipFile(io.BytesIO(archive)).namelist() == ["other.py", "graders.py"]
    monkeypatch.setattr(code_snapshot, "MOST_BYTES", 3)
    with pytest.raises(RltuiError, match="MiB of Python"):
        own_code(LAYOUT_OF, tmp_path)


def test_layouts_name_it_and_nothing_else() -> None:
    assert not any("reward" in reason for reason in unsupported(LAYOUT_OF))
    for wrong in ("exactly", "a:b:c", "../a:b", "a.b", ":f"):
        with pytest.raises(LayoutError, match=r"package\.module:function"):
            load_layout(LAYOUT, [f"data.reward={wrong}"])
