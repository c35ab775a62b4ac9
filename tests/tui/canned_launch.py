"""Canned presets and reviews for tests and screenshots."""

from __future__ import annotations

import msgspec

from rltui.check.findings import Finding
from rltui.service.launch_review import LaunchReview, PresetSummary
from rltui.service.sweep_points import Sweep, points_of

PRESETS = (
    PresetSummary(
        name="local/grpo-tiny",
        summary="A 105 k parameter model learns to sort three digits, on CPU, in about a minute.",
        algorithm="grpo",
        nodes=1,
        gpus_per_node=3,
        gpu="cpu",
    ),
    PresetSummary(
        name="local/grpo-tiny-coin",
        summary="The control: rewards are coin flips, so nothing can be learnt.",
        algorithm="grpo",
        nodes=1,
        gpus_per_node=3,
        gpu="cpu",
    ),
    PresetSummary(
        name="guide-2/grpo-7b-2x4-uneven",
        summary="Two nodes of four. Three GPUs train, five generate.",
        algorithm="grpo",
        nodes=2,
        gpus_per_node=4,
        gpu="H100-SXM-80GB",
    ),
    PresetSummary(
        name="guide-2/grpo-32b-16x4",
        summary="Sixteen nodes of four for a 32B model.",
        algorithm="grpo",
        nodes=16,
        gpus_per_node=4,
        gpu="H100-SXM-80GB",
    ),
)


PLAN = (
    "138 (76.9–249) s a step: generate 158 s, train 91 s, sync 11.7 s, rollouts 1 step ahead; 4% of GPU time idle",
    "7570 (4210–13600) response tokens/s",
    "1000 steps: 38.4 (21.3–69.1) h on 8 GPUs",
    "307 (171–552) GPU-hours",
)

SCRIPT = """#!/bin/bash
#SBATCH --job-name=rltui-{name}
#SBATCH --nodes={nodes}
#SBATCH --gres=gpu:h100:{gpus}
#SBATCH --time=24:00:00
#SBATCH --signal=B:USR2@600
# every node is checked before a GPU is used
srun --ntasks-per-node=1 python3 -m rltui.onnode.node_check
exec python3 -m rltui.onnode.slurm_job
"""


def review(preset: PresetSummary, overrides: tuple[str, ...], cluster: str = "local") -> LaunchReview:
    findings: list[Finding] = []
    for override in overrides:
        key, _, value = override.partition("=")
        if not key.startswith(("train.", "roles.", "hardware.", "lengths.", "checkpoint.")):
            findings.append(
                Finding(
                    code="L102",
                    severity="error",
                    message=f"there is no key {key!r}; did you mean train.steps?",
                    key=key,
                )
            )
        elif not value[:1].isdigit() and value[:1] != "[":
            findings.append(Finding(code="L103", severity="error", message=f"{value!r} is no number", key=key))
    if "uneven" in preset.name and not overrides:
        findings.append(
            Finding(
                code="P107",
                severity="warning",
                message="1 of 8 GPUs is idle: learners take 3, engines 4×1.",
                key="roles.rollout.engines",
                file="layouts/guide-2/grpo-7b-2x4-uneven.yaml",
                line=11,
                fix=("roles.rollout.engines=5",),
            )
        )
    if "32b" in preset.name:
        findings.append(
            Finding(
                code="P101",
                severity="error",
                message="learner.gpus lists 8 bundles but there are 16 nodes.",
                key="roles.learner.gpus",
                file="layouts/guide-2/grpo-32b-16x4.yaml",
                line=9,
            )
        )
    cells = ["L0", "L1", "E0", "E1"] if preset.gpus_per_node == 4 else ["L0", "L1", "E0"]
    drawing = tuple(f"node{node} ┃ {' ┃ '.join(cells)} ┃" for node in range(preset.nodes))
    return LaunchReview(
        preset=preset.name,
        overrides=overrides,
        findings=tuple(findings),
        drawing=drawing,
        arithmetic=("1000 steps × 32 prompts × 8 samples = 256 000 samples", "2 learners × 128 samples each, one pass"),
        plan=PLAN if preset.gpu != "cpu" else (),
        commands=(
            (f"python3 -m rltui.onnode.supervise /home/ada/runs/{preset.name.split('/')[-1]}-xxxx/attempts/01",)
            if cluster == "local"
            else (f"sbatch --parsable /scratch/ada/runs/{preset.name.split('/')[-1]}-xxxx/attempts/01/job.sbatch",)
        ),
        cluster=cluster,
        script=""
        if cluster == "local"
        else SCRIPT.format(name=preset.name, nodes=preset.nodes, gpus=preset.gpus_per_node),
    )


def swept_review(preset: PresetSummary, overrides: tuple[str, ...], cluster: str, sweep: Sweep) -> LaunchReview:
    points = [point.settings for point in points_of(sweep.words)]
    reviews = [review(preset, (*overrides, *settings), cluster) for settings in points]
    errors = [next((one.message for one in each.findings if one.severity == "error"), "") for each in reviews]
    return msgspec.structs.replace(
        reviews[0],
        overrides=overrides,
        findings=tuple({one.message: one for each in reviews for one in each.findings}.values()),
        sweep=sweep,
        swept=tuple((" ".join(settings), error) for settings, error in zip(points, errors, strict=True)),
        first=(*overrides, *points[0]),
    )


def script_review(path: str, words: tuple[str, ...], cluster: str) -> LaunchReview:
    problem = "--nodes: expected one argument" if words[-1:] == ("--nodes",) else ""
    errors = (Finding(code="SCRIPT", severity="error", message=problem),) if problem else ()
    warning = Finding(code="M501", severity="warning", message="the learner takes 92 of 80 GiB.", key="actor.param")
    return LaunchReview(
        preset=path,
        overrides=words,
        findings=(*errors, warning),
        notes=("read as a script of verl", "2 nodes with 8 GPUs each, by its #SBATCH lines"),
        drawing=("node0 ┃ L0 ┃ L1 ┃ E0 ┃",),
        commands=(f"rltui launch --script {path} {' '.join(words)}".strip(),),
        cluster=cluster,
        script="#!/bin/bash\npython3 -m verl.trainer.main_ppo\n",
    )
