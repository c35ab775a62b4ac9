"""Answers of training steps, as lines that people can read."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from rltui.onnode import rundir
from trainers import samples as samples_module
from trainers.data.prompts import Prompt
from trainers.roles.completions import Completion
from trainers.samples import KEPT_PROMPTS, SampleLog

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.trainers


def test_some_answers_of_a_step_are_written_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(samples_module.time, "monotonic", lambda: now[0])
    codec: Any = SimpleNamespace(
        decode=lambda ids: "".join(map(chr, ids)), transcript=lambda ids: "".join(map(chr, ids))
    )
    sent: list[list[Any]] = []
    log = SampleLog(tmp_path, codec, sent.append)
    prompts = [Prompt((1,), text=f"{number}?", answer=str(number)) for number in range(20)]
    groups = [
        [Completion(n, (65, 66), (-1.0, -1.0), "stop", 7), Completion(n, (67,), (-1.0,), "stop", 7)] for n in range(20)
    ]
    for step in (1, 2):
        log.write(step, prompts, groups, [[0.5, 0.0]] * 20)  # the second is too soon
    now[0] += samples_module.INTERVAL_S
    with (tmp_path / rundir.SAMPLES).open("a") as file:
        file.write('{"step": 2, "cut by a full disk')
    log.write(3, prompts[:1], groups[:1], [[1.0, 0.0]])
    lines = [json.loads(line) for line in (tmp_path / rundir.SAMPLES).read_text().splitlines() if "cut" not in line]
    assert [line for told in sent for line in told] == lines
    assert [line["step"] for line in lines] == [1] * (1 + KEPT_PROMPTS) + [3, 3]
    assert [line["prompt"] for line in lines[:4]] == ["0?", "0?", "1?", "2?"], "all answers to the first prompt"
    assert lines[-2] == {
        "step": 3, "prompt": "0?", "answer": "AB", "right_answer": "0", "reward": 1.0, "tokens": 2,
        "finish_reason": "stop", "weight_version": 7,
    }  # fmt: skip
