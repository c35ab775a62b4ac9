"""A dry run of every preset: placement, integers that add up, memory, and nothing of the training stack."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest
from trainer_support import ROOT

from rltui.check.bundled import unsupported
from rltui.layout.load import load_layout
from rltui.layout.presets import preset_files
from rltui.memory.layouts import estimate_layout
from rltui.placement.simulate import place

pytestmark = pytest.mark.trainers

PRESETS = dict(preset_files())

PROGRAM = """
import contextlib, importlib, io, json, sys
found = {}
for name, (algorithm, path) in json.loads(sys.argv[1]).items():
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = importlib.import_module("trainers." + algorithm).main(["--dry-run", path])
    found[name] = [code, out.getvalue().splitlines()]
heavy = sorted({"torch", "ray", "deepspeed", "transformers", "vllm", "wandb"} & set(sys.modules))
print(json.dumps({"found": found, "heavy": heavy}))
"""


@pytest.fixture(scope="module")
def printed() -> dict[str, list[str]]:
    """The lines of each preset, by the program itself: all of them in one process, which stays light."""
    wanted = {name: (load_layout(path).layout.algorithm, str(path)) for name, path in PRESETS.items()}
    got = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(wanted)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""},
    )
    assert got.returncode == 0, got.stderr
    answer = json.loads(got.stdout)
    assert answer["heavy"] == []
    assert {code for code, _ in answer["found"].values()} == {0}
    return {name: lines for name, (_, lines) in answer["found"].items()}


def numbers(lines: list[str], head: str) -> list[int]:
    """The integers of the line that begins with ``head``; a fraction has no place there."""
    (line,) = [line for line in lines if line.startswith(f"{head} ")]
    assert not re.search(r"\d\.\d", line), line
    return [int(number) for number in re.findall(r"\d+", line)]


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_placed_and_its_batches_add_up(name: str, printed: dict[str, list[str]]) -> None:
    layout, lines = load_layout(PRESETS[name]).layout, printed[name]
    train = layout.train
    assert not place(layout).unplaced
    assert re.match(r"node0 +┃", lines[0])
    steps, prompts, group, samples, total = numbers(lines, "steps")
    assert (steps, prompts * group, samples * steps) == (train.steps, samples, total)
    for head in ["learners"] + ["critics"] * (layout.roles.critic is not None):
        ranks, per_rank, *_, fill = numbers(lines, head)
        assert ranks * per_rank - fill == -(-samples // train.optimizer_steps)
        assert 0 <= fill < ranks
    engines, asked, _ = numbers(lines, "engines")
    assert engines == layout.num_engines
    assert asked * engines >= prompts or asked * group > 128
    assert numbers(lines, "optimizer")[0] == steps * train.optimizer_steps * train.epochs
    assert numbers(lines, "tokens") == [samples * (layout.lengths.prompt + layout.lengths.response)]


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_says_its_memory_and_what_is_not_run_yet(name: str, printed: dict[str, list[str]]) -> None:
    layout, text = load_layout(PRESETS[name]).layout, "\n".join(printed[name])
    estimate = estimate_layout(layout)
    for role in estimate.roles:
        assert re.search(rf"^{role.role} +{role.gpus} GPU", text, re.MULTILINE)
        for moment in role.moments:
            assert re.search(rf"^  {moment.moment} .* {moment.total_gib:.1f} GiB", text, re.MULTILINE)
    assert bool(estimate.roles) is not layout.hardware.on_cpu
    assert text.count("(E390)") == len(unsupported(layout))


@pytest.mark.parametrize("name", PRESETS)
def test_groups_are_left_out_only_where_the_algorithm_does_so(name: str, printed: dict[str, list[str]]) -> None:
    layout, text = load_layout(PRESETS[name]).layout, "\n".join(printed[name])
    assert ("groups without signal" in text) is (layout.algorithm == "grpo" and layout.grpo.filter_zero_std)
