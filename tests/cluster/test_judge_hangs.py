"""A judge that hangs in a real run: the run goes on without its word, and what holds it up is named."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from test_local_cluster import ROOT, Shell

from rltui.onnode import processes
from waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.trainers]

JUDGE = """
import os, time

def judge(prompt, response, answer, row):
    if os.path.exists({flag!r}):
        time.sleep(3600)
    return float(response[:1] == answer[:1])
"""


WORDS = (
    "train.steps=100000", "checkpoint.every=0", "tracking.wandb=disabled", "roles.learner.gpus=[1]",
    "train.prompts_per_step=4", "train.samples_per_prompt=4", "grpo.filter_zero_std=false", "lengths.prompt=8",
    "data.reward=strict:judge", "data.reward_timeout_s=0.3",
)  # fmt: skip
"""Sixteen answers a step, each judged for less than a third of a second."""


class Elsewhere(Shell):
    """Runs rltui in a folder of its own, where the user's judge lies."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder = folder
        self.environment["PYTHONPATH"] = str(ROOT)


def test_a_judge_that_hangs_is_named_as_what_holds_up_the_run(tmp_path: Path) -> None:
    flag = tmp_path / "hang"
    (tmp_path / "strict.py").write_text(JUDGE.format(flag=str(flag)))
    shell = Elsewhere(tmp_path)
    rows = [{"prompt": f"{number:03}", "answer": "".join(sorted(f"{number:03}"))} for number in range(100, 1000)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    try:
        shell.run("launch", "local/grpo-tiny", *WORDS, f"data.train={tmp_path}/rows.jsonl")
        eventually(lambda: shell.step() > 5, "steps with a judge that is well")
        run = shell.only_run()["run_id"]
        assert "reward_bound" not in shell.causes(run)
        flag.touch()
        said = eventually(lambda: shell.causes(run).get("reward_bound"), "the verdict", poll_s=1.0)
        assert "waiting for rewards takes" in said
        events = (shell.runs / run / "attempts/01/events.jsonl").read_text()
        assert "the reward strict:judge failed, and such answers earn 0: took more than 0.3 s" in events
        before = shell.step()
        eventually(lambda: shell.step() > before, "a step without the judge's word")
        shell.run("cancel", run, "--yes")
    finally:
        for uuid in shell.uuids():
            processes.end_all(uuid, grace_s=5.0)
