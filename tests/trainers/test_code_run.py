"""The two-GPU trainer of field guide 3 at the size of a CPU: two learners that share their slots with the engines write
programs, reward workers run these in the sandbox, and the evaluation counts what passes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from trainer_support import ROOT, kill_at

from rltui.onnode import rundir
from trainers.data.tiny_qwen3 import VOCABULARY, TinySettings, _new_model, new_tokenizer
from waiting import eventually

if TYPE_CHECKING:
    from trainer_support import Attempt

pytestmark = [pytest.mark.trainers, pytest.mark.slow]

GUIDE = ROOT / "layouts/v100-code/grpo-1.5b-2xv100.yaml"
PROGRAMS = ROOT / "tests/fixtures/data/programs.jsonl"
STEPS = 2
SMALL = [
    "hardware={nodes: 1, gpus_per_node: 2, gpu: cpu, cpus_per_node: 4}", "roles.learner.precision=fp32",
    "roles.rollout={pool: all, engine: hf, precision: fp32}", "roles.reward.workers=2", f"data.train={PROGRAMS}",
    f"data.eval={PROGRAMS}", "data.eval_every=2", "data.eval_samples=4", "data.eval_temperature=1.0",
    f"train.steps={STEPS}", "train.prompts_per_step=8", "train.learning_rate=1.0e-5", "data.all_tests=true",
    "data.chat=false", "lengths={prompt: 40, response: 100}", "checkpoint.every=0", "tracking.wandb=disabled",
]  # fmt: skip
HANG_ONCE = """
import os, time
from contextlib import suppress
from trainers.roles import processes
from trainers.roles.reward_worker import RewardWorker

class Hangs(RewardWorker):
    def score(self, answer, name):
        flag = {flag!r}
        if answer.prompt.text.startswith("root"):
            with suppress(FileExistsError):  # of two workers that get here at once, one hangs
                open(flag, "x").close()
                time.sleep(1e6)  # beyond the reach of the reward's own limit
        return super().score(answer, name)

processes.RewardWorker = Hangs
"""


@pytest.fixture(scope="module")
def novice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that has seen solutions of the problems: some of the programs that it writes are right."""
    import torch

    rows = [json.loads(line) for line in PROGRAMS.read_text().splitlines()]
    pairs = [[[VOCABULARY.index(c) for c in row[key]] for key in ("text", "code")] for row in rows]
    longest = max(len(text) + len(code) + 1 for text, code in pairs)
    token_ids, labels = torch.zeros(len(pairs), longest, dtype=torch.long), torch.full((len(pairs), longest), -100)
    for row, (text, code) in enumerate(pairs):
        whole = torch.tensor([*text, *code, VOCABULARY.index("<eos>")])
        token_ids[row, : len(whole)] = whole
        labels[row, len(text) : len(whole)] = whole[len(text) :]
    torch.set_num_threads(1)  # one thread is faster on matrices this small
    torch.manual_seed(0)
    model = _new_model(TinySettings(digits=3, seed=1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(100):
        logits = model(input_ids=token_ids[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    folder = tmp_path_factory.mktemp("novice")
    model.save_pretrained(folder)
    new_tokenizer(VOCABULARY, 512).save_pretrained(folder)
    return folder


def check_rewards(kept: Path) -> None:
    """A known solution passes; what is no program does not."""
    solutions = {row["text"]: row["code"] for row in map(json.loads, PROGRAMS.read_text().splitlines())}
    answers = [json.loads(line) for line in kept.read_text().splitlines()]
    known = [line["reward"] for line in answers if line["answer"] == solutions[line["prompt"]]]
    assert known.count(1.0) >= max(1, len(known) - 1)  # the one answer that a worker hung at earned 0
    for line in answers:
        if line["reward"]:
            compile(line["answer"], "answer", "exec")
            assert line["answer"].startswith(f"def {line['prompt'].partition('(')[0]}(")


def test_programs_are_judged_whatever_befalls_the_reward_workers(
    novice: Path, launch: Callable[..., Attempt], tmp_path: Path
) -> None:
    # it hangs in the evaluation that comes before the first step
    preamble = HANG_ONCE.format(flag=str(tmp_path / "hung")) + kill_at(2, "reward 1")
    attempt = launch(1, *SMALL, f"roles.learner.model={novice}", base=GUIDE, preamble=preamble)
    assert attempt.wait() == 0, attempt.log()[-3000:]

    metrics: list[dict[str, Any]] = attempt.metrics()
    passed = {line["step"]: line["eval/pass_at_1"] for line in metrics if "eval/pass_at_1" in line}
    assert sorted(passed) == [0, STEPS]
    assert all(0.05 < share < 0.95 for share in passed.values())
    assert metrics[0]["eval/pass_at_4"] > passed[0] + 0.05
    assert all(0 < line["reward_latency_p99_s"] < 60 for line in metrics[1:])
    check_rewards(attempt.run / rundir.EVALUATIONS / "step-000000.jsonl")

    restarts = attempt.events(rundir.RESTART)
    assert any("judged an answer for more than 10 s, which therefore earns 0" in text for text in restarts)
    [killed] = filter(None, (re.match(r"reward 1 \(pid (\d+) on .* died; reward 1 \(pid ", text) for text in restarts))
    (sandbox,) = attempt.events("reward_sandbox")  # proven once, for both workers are on one node
    assert sandbox.startswith("reward sandbox: closed")
    assert attempt.stage()["roles"]["reward 0"] == "ready"
    eventually(lambda: not Path("/proc", killed[1]).exists(), "the end of the killed worker")
