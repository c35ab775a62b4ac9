"""Canned clusters, previews and diagnoses for tests and screenshots."""

from __future__ import annotations

from rltui.check.findings import Finding
from rltui.cluster.prompts import Field, Question
from rltui.diagnose.verdicts import Change, Diagnosis, Evidence, Remedy
from rltui.service.cockpit import ActionPreview, ClusterSummary, WhyReport
from rltui.watch.snapshots import RunIdentity

NOBODYS = RunIdentity("", "")
"""For previews that are made for the run which asks for them."""

NOW = 1_793_000_000.0

CLUSTERS = (
    ClusterSummary(name="local", summary="this machine", place="this machine", answered_at=NOW),
    ClusterSummary(name="isambard", scheduler="slurm", place="login02.isambard.ac.uk", answered_at=NOW),
)

AWAY = (
    *CLUSTERS[:1],
    ClusterSummary(
        name="isambard", scheduler="slurm", place="login02", problem="login02 does not answer", answered_at=NOW - 185
    ),
    ClusterSummary(
        name="mila",
        scheduler="slurm",
        place="login.mila.quebec",
        problem="login.mila.quebec wants a one-time code",
        needs_attention=True,
    ),
)
CODE = Question(kind="interactive", title="ada@login.mila.quebec", fields=(Field("Password:"), Field("Code:", True)))
"""What a way in asks: a password, and a code that may be seen."""


def quoted(file: str, line: int, text: str) -> Evidence:
    """A line of a log."""
    return Evidence(file=file, line=line, text=text)


LOWER = Remedy(
    id="lower-memory-utilization",
    summary="Give the engine less of the GPU, so that the learner's peak fits beside it.",
    changes=(Change("roles.rollout.memory_utilization", "set", 0.55),),
    safe="confirm",
)

EXCLUDE = Remedy(
    id="exclude-node",
    summary="Keep away from the node, and report it to the site.",
    changes=(Change("slurm.exclude", "plus", "nid010798"),),
    commands=("sbatch --exclude=nid010798 …",),
    safe="confirm",
)

BY_HAND = Remedy(
    id="shorter", summary="Shorter responses need less of everything.", commands=("rltui mem LAYOUT",), safe="never"
)

WHY = WhyReport(
    run=RunIdentity("isambard", "grpo-7b-r2-30b9"),
    headline="Engine 3 ran out of GPU memory on nid010798 while it generated: it asked for 2.10 GiB, 0.41 were free.",
    findings=(
        Diagnosis(
            id="cuda_oom_gpu_shared",
            summary="Engine 3 ran out of GPU memory on nid010798 while it generated: it asked for 2.10 GiB.",
            confidence=0.95,
            evidence=(
                Evidence(
                    file="out.log",
                    line=1043,
                    text="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.10 GiB.",
                ),
                Evidence(
                    file="ray-logs/worker-7f.err",
                    line=12,
                    text="ray.exceptions.RayTaskError(OutOfMemoryError): ray::Engine.generate()",
                ),
            ),
            remedies=(LOWER, BY_HAND),
        ),
        Diagnosis(
            id="ecc_uncorrectable",
            summary="GPU 2 of nid010798 had 14 uncorrectable memory errors (Xid 63, Xid 94).",
            confidence=0.7,
            evidence=(
                Evidence(
                    file="node-nid010798.log",
                    line=88,
                    text="NVRM: Xid (PCI:0000:4f:00): 94, pid=21377, Contained ECC error",
                ),
            ),
            remedies=(EXCLUDE,),
        ),
        Diagnosis(
            id="ray_actor_died",
            summary="The actor of engine 3 died with it.",
            confidence=0.9,
            secondary=True,
            evidence=(quoted("end.json", 1, "outcome: failed"),),
        ),
    ),
)

LOWER_MEMORY = ActionPreview(
    run=NOBODYS,
    title="Lower the memory peak of grpo-7b-r2-30b9 and resubmit it?",
    consequences=(
        "The engine of nid010798 shares no GPU with a learner: its own peak is in the way.",
        "memory_utilization 0.90 → 0.80 frees 8.0 GiB on each engine's GPU; its KV cache shrinks by 21 %.",
        "Attempt 3 goes on from the checkpoint at step 25.",
    ),
    commands=("rltui resubmit grpo-7b-r2-30b9 roles.rollout.memory_utilization=0.8",),
    diff=("- roles.rollout.memory_utilization: 0.9", "+ roles.rollout.memory_utilization: 0.8"),
    overrides=("roles.rollout.memory_utilization=0.8",),
)


FIX = ActionPreview(
    run=NOBODYS,
    title="Fix grpo-7b-r2-30b9?",
    consequences=(
        "cuda_oom_gpu_shared: roles.rollout.memory_utilization=0.55: the engine holds its share of the same cards",
        "ecc_uncorrectable: Exclude the node for your jobs (for a day), resubmit from the newest checkpoint.",
        "starts attempt 3 of grpo-7b-r2-30b9, changed as shown",
        "it goes on from the checkpoint at step 25",
    ),
    commands=("rltui resubmit grpo-7b-r2-30b9 roles.rollout.memory_utilization=0.55 --exclude nid010798",),
    diff=("- roles.rollout.memory_utilization: 0.9", "+ roles.rollout.memory_utilization: 0.55"),
    overrides=("roles.rollout.memory_utilization=0.55",),
    exclude=("nid010798",),
)


def resubmission(run_id: str, overrides: tuple[str, ...], exclude: tuple[str, ...], live: bool) -> ActionPreview:
    """What the services say of a resubmission; a change of a key that there is not is an error."""
    findings = tuple(
        Finding(code="L102", severity="error", message=f"there is no key {word.partition('=')[0]!r}")
        for word in overrides
        if not word.startswith(("roles.", "train."))
    )
    words = ["Attempt 3 starts from checkpoint step 400 of 1000."]
    words += [f"keeps away from {', '.join(exclude)}: 62 of 64 nodes of gpu are left"] if exclude else []
    return ActionPreview(
        run=NOBODYS,
        title=f"Resubmit {run_id}?",
        consequences=(*(("It is still alive: it is cancelled first.",) if live else ()), *words),
        commands=(
            f"python3 -m rltui.onnode.supervise /home/ada/runs/{run_id}/attempts/03",
            *(f"sbatch --exclude={node} job.sbatch" for node in exclude),
        ),
        diff=tuple(f"+ {word.replace('=', ': ', 1)}" for word in overrides),
        findings=findings,
        overrides=overrides,
        exclude=exclude,
    )
