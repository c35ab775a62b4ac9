"""Each rule fires where it must, stays silent on the nearest sound layout, and its fix settles it."""

import pytest

from rltui.check.run import REGISTRY, Report, check_layout, check_text
from rltui.layout.load import load_layout
from rltui.layout.presets import preset_files, resolve

TINY = resolve("local/grpo-tiny")

WIDE = ["hardware.nodes=3", "roles.rollout.engines=2", "roles.rollout.tensor_parallel=3"]

CASES = [
    # code, overrides with which it fires, nearest overrides with which it is silent
    ("P101", ["roles.rollout.engines=2"], ["roles.rollout.engines=1"]),
    ("P102", ["roles.learner.gpus=[4]"], ["roles.learner.gpus=[2]"]),
    ("P103", ["roles.learner.gpus=[1,1]"], ["roles.learner.gpus=[1,1]", "hardware.nodes=2"]),
    ("P104", ["roles.rollout.tensor_parallel=4", "roles.rollout.engine=vllm"], ["roles.rollout.engine=vllm"]),
    (
        "P105",
        [*WIDE, "roles.learner.gpus=[1,1,1]"],
        [*WIDE, "roles.learner.gpus=[1]"],
    ),
    ("P106", ["hardware.gpus_per_node=5"], []),
    ("P107", ["hardware.cpus_per_node=2"], ["hardware.cpus_per_node=3"]),
    ("B201", ["train.steps=0"], ["train.steps=1"]),
    ("B202", ["train.prompts_per_step=3", "train.samples_per_prompt=3"], ["train.prompts_per_step=4"]),
    ("B203", ["roles.learner.micro_batch=48"], ["roles.learner.micro_batch=64"]),
    ("B204", ["train.samples_per_prompt=1"], ["train.samples_per_prompt=2"]),
    ("B205", ["checkpoint.every=2000"], ["checkpoint.every=1999"]),
    ("B206", ["hardware.gpus_per_node=6", "roles.rollout.engines=4", "train.prompts_per_step=2"],
     ["hardware.gpus_per_node=6", "roles.rollout.engines=4", "train.prompts_per_step=4"]),
    ("B207", ["train.warmup_steps=2000"], ["train.warmup_steps=1999"]),
    ("E301", ["roles.rollout.tensor_parallel=2"], ["roles.rollout.tensor_parallel=2", "roles.rollout.engine=vllm"]),
    ("E302", ["hardware.gpu=H100", "roles.rollout.engine=vllm", "roles.rollout.memory_utilization=0.97"],
     ["hardware.gpu=H100", "roles.rollout.engine=vllm", "roles.rollout.memory_utilization=0.95"]),
    ("E303", ["roles.rollout.precision=bf16"], ["roles.rollout.precision=bf16", "roles.learner.precision=bf16"]),
    ("H401", ["hardware.gpu=Tesla V100-SXM2-32GB", "roles.learner.precision=bf16"],
     ["hardware.gpu=H100", "roles.learner.precision=bf16"]),
    ("H402", ["roles.learner.precision=fp16"], ["roles.learner.precision=bf16"]),
    ("D501", ["data.train=builtin/sort-letters"], []),
    ("D502", ["data.digits=4"], ["data.digits=4", "lengths.prompt=5", "lengths.response=5"]),
    ("D503", ["roles.learner.model=builtin/tiny-qwen"], ["roles.learner.model=Qwen/Qwen3-0.6B"]),
    ("D504", ["data.reward=coin"], ["data.reward=exact"]),
    ("S601", ["slurm.time=one day"], ["slurm.time=1-00:00:00"]),
    ("T701", ["tracking.wandb=online"], ["tracking.wandb=disabled"]),
    ("X801", ["tracking.entity=hf_" + "a" * 30], ["tracking.entity=hf_team"]),
]  # fmt: skip


def report(overrides: list[str]) -> Report:
    return check_layout(load_layout(TINY, overrides))


def codes(overrides: list[str]) -> set[str]:
    return {finding.code for finding in report(overrides).findings}


@pytest.mark.parametrize(("code", "fires", "silent"), CASES, ids=[case[0] for case in CASES])
def test_rule_fires_and_stays_silent(code: str, fires: list[str], silent: list[str]) -> None:
    assert code in codes(fires)
    assert code not in codes(silent)


@pytest.mark.parametrize(("code", "fires"), [case[:2] for case in CASES], ids=[case[0] for case in CASES])
def test_a_fix_settles_its_finding(code: str, fires: list[str]) -> None:
    finding = next(finding for finding in report(fires).findings if finding.code == code)
    if finding.fix:
        assert code not in codes([*fires, *finding.fix])


def test_every_rule_has_a_case_and_a_story() -> None:
    assert set(REGISTRY) == {case[0] for case in CASES}
    assert all(rule.title.endswith(".") for rule in REGISTRY.values())


@pytest.mark.parametrize("path", [path for _, path in preset_files()], ids=[name for name, _ in preset_files()])
def test_presets_have_no_errors(path: object) -> None:
    assert check_layout(load_layout(str(path))).ok


def test_findings_carry_the_line() -> None:
    text = TINY.read_text().replace("steps: 2000", "steps: 0")
    finding = next(f for f in check_text(text, "my.yaml").findings if f.code == "B201")
    assert finding.line == next(n for n, line in enumerate(text.splitlines(), 1) if line.startswith("train:"))


def test_unreadable_layouts_are_findings_too() -> None:
    report_ = check_text("layout: 2\n", "my.yaml")
    assert not report_.ok
    assert not report_.readable
    assert {finding.code for finding in report_.findings} == {"L001"}


def test_arithmetic_names_what_is_padded() -> None:
    arithmetic = report(["train.prompts_per_step=3", "train.samples_per_prompt=3"]).arithmetic
    assert arithmetic is not None
    assert (arithmetic.samples_per_rank, arithmetic.padding_samples_per_step) == (5, 1)
    assert report([]).arithmetic_lines[2] == "2000 steps = 512000 samples, 20 checkpoints"
