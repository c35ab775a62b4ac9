"""Canned pictures for tests and screenshots: runs in every state, GPU and CPU runs, hostile names."""

from __future__ import annotations

from canned_history import HISTORY, NOW
from canned_nodes import ROLE_MEMORY, cpu_hosts, gpu_hosts, wave

from rltui.cluster.jobs import JobSnapshot
from rltui.watch.owners import ActorSnapshot
from rltui.watch.snapshots import (
    EndSnapshot,
    LogFile,
    LogSnapshot,
    MetricsSnapshot,
    QueueSnapshot,
    RunSnapshot,
    RunSummary,
    StageSnapshot,
    StatusSnapshot,
)

STAGES = ("submitted", "queued", "preflight", "ray-up", "placing", "loading", "training", "ended")


def history(began: float, upto: str, step_s: float = 9.0) -> tuple[dict[str, object], ...]:
    last = STAGES.index("training" if upto == "saving" else upto)
    return tuple({"stage": name, "at": began + index * step_s} for index, name in enumerate(STAGES[: last + 1]))


def summary(run_id: str, state: str, stage: str, age_s: float, **more: object) -> RunSummary:
    began = NOW - age_s
    step, steps = more.pop("step", None), more.pop("steps", None)
    detail, end = str(more.pop("detail", "")), more.pop("end", None)
    roles, progress = more.pop("roles", {}), more.pop("progress", None)
    known: dict[str, object] = {
        "name": run_id.rsplit("-", 1)[0],
        "algorithm": "grpo",
        "cluster": "local",
        "attempt": 1,
        "nodes": 1,
        "gpus_per_node": 3,
        "gpu": "cpu",
        "path": f"/home/ada/runs/{run_id}",
    }
    return RunSummary(
        run_id=run_id,
        state=state,
        created_at=began,
        end=end,
        stage=StageSnapshot(
            stage=stage,
            since=began,
            updated=NOW,
            detail=detail,
            step=step,
            steps=steps,
            roles=roles,
            progress=progress,
            history=history(began, stage),
        ),
        **(known | more),
    )


NODES = ("nid010701", "nid010702")


def job(state: str, **more: object) -> JobSnapshot:
    """A Slurm job of a GPU run."""
    known: dict[str, object] = {"job_id": "4711198", "partition": "gpu", "account": "a5k", "time_limit_s": 86400.0}
    return JobSnapshot(state=state, **(known | more))


GPU = {"nodes": 2, "gpus_per_node": 4, "gpu": "H100-SXM-80GB", "cluster": "isambard"}

RUNS: tuple[RunSummary, ...] = (
    summary(
        "grpo-tiny-4f2a",
        "running",
        "training",
        134,
        step=412,
        steps=1000,
        reward=0.812,
        tokens_per_second=9412.0,
        tokens_per_second_history=wave(64, 7000, 9800, 1),
        attempt=2,
    ),
    summary(
        "grpo-7b-2x4-uneven-91c0",
        "running",
        "training",
        8040,
        step=118,
        steps=1000,
        reward=0.4312,
        tokens_per_second=38104.0,
        tokens_per_second_history=wave(64, 21000, 41000, 2),
        job=job("running", word="RUNNING", nodes=NODES, started_at=NOW - 7900, restarts=1),
        **GPU,
    ),
    summary(
        "grpo-7b-2x4-b7e1",
        "starting",
        "loading",
        71,
        detail="2 of 3 roles ready",
        progress=0.67,
        roles={"learner 0": "ready", "learner 1": "ready", "engine 0": "loading weights"},
        job=job("running", job_id="4711199", nodes=("nid010711", "nid010712"), started_at=NOW - 60),
        **GPU,
    ),
    summary("grpo-tiny-88d0", "queued", "queued", 190, detail="2 ahead of it, 3 CPU slots wanted"),
    summary(
        "grpo-tiny-stopping-07aa",
        "stopping",
        "saving",
        600,
        step=871,
        steps=1000,
        reward=0.955,
        tokens_per_second=9010.0,
        tokens_per_second_history=wave(40, 7000, 9500, 3),
        detail="saving a checkpoint",
    ),
    summary(
        "grpo-7b-r2-30b9",
        "failed",
        "ended",
        2460,
        step=37,
        steps=500,
        reward=0.22,
        tokens_per_second_history=wave(30, 20000, 36000, 4),
        failure="cuda_oom_gpu_shared",
        job=job("failed", job_id="4711019", word="FAILED", nodes=("nid010701", "nid010798")),
        **GPU,
        end=EndSnapshot(
            outcome="failed", exit_code=1, reason="CUDA out of memory in engine 3 on nid010798", at=NOW - 300
        ),
    ),
    summary(
        "grpo-tiny-coin-5d11",
        "finished",
        "ended",
        5000,
        step=1000,
        steps=1000,
        reward=0.503,
        tokens_per_second_history=wave(64, 8000, 9000, 5),
        end=EndSnapshot(outcome="finished", exit_code=0, at=NOW - 4000),
    ),
    summary(
        "grpo-tiny-c0de",
        "cancelled",
        "ended",
        7000,
        step=55,
        steps=1000,
        reward=0.31,
        end=EndSnapshot(outcome="cancelled", exit_code=143, reason="", at=NOW - 6900),
    ),
    summary(
        "grpo-tiny-dead",
        "lost",
        "ended",
        90000,
        step=12,
        steps=1000,
        end=EndSnapshot(outcome="lost", reason="its processes are gone without a word", at=NOW - 80000),
    ),
    summary(
        "grpo-32b-16x4-0c1d",
        "queued",
        "queued",
        5400,
        job=job(
            "pending",
            job_id="4711301",
            reason="Priority",
            queue_position=31,
            partition_pending=1284,
            expected_start_at=NOW + 7800,
            node_count=16,
        ),
        **(GPU | {"nodes": 16}),
    ),
    summary("grpo-weird-0000", "unknown", "submitted", 400, cluster="away"),
)

HOSTILE_LOG = (
    "[bold red]not markup[/] and [link=file:///etc/passwd]no link[/link]",
    "\x1b[2J\x1b[31mescape\x1b[0m \x1b]0;title\x07 \x1b]52;c;aGk=\x07 bell\x07 \u202eright to left\u202c",
    "wide 日本語 テスト 모델 👩‍🔬 tab\there" + "x" * 400,
)

HOSTILE_RUNS = tuple(
    summary(run_id, "running", "training", 60, step=1, steps=2, detail=run_id, cluster=run_id)
    for run_id in (
        "[red]markup[/red]-[@click=app.quit]x[/]",
        "esc\x1b[2J\x1b]0;hi\x07-1",
        "x" * 300,
        "日本語の実験-長い名前-0001",
        "\u202ertl",
    )
)


def log_lines(count: int = 400) -> tuple[str, ...]:
    lines = []
    for step in range(count):
        clock = f"09:{step // 60 % 60:02d}:{step % 60:02d}"
        reward, tens = 0.2 + step / 500, step % 90 + 10
        lines.append(f"{clock} step {step} reward {reward:.3f} loss 0.0{tens} len 3.9 tok/s 94{tens}")
        if step % 97 == 50:
            lines.append(f"{clock} engine 0: WARNING preempted 12 sequences, KV cache 96 % used")
        if step % 100 == 40:
            lines.append(f"{clock} learner 1: checkpoint step-{step:06d} complete in 0.4 s")
    return tuple(lines)


def metrics(run: RunSummary) -> MetricsSnapshot:
    done = run.stage.step or 0
    if not done:
        return MetricsSnapshot(taken_at=NOW)
    count = min(done, 512)
    steps = tuple(range(1, done + 1, max(1, done // count)))[:count]
    count = len(steps)
    rate = run.tokens_per_second or 9000.0
    series = {
        "reward": wave(count, 0.1, (run.reward or 0.5) * 1.05, 11, rise=True),
        "reward_std": wave(count, 0.05, 0.4, 12),
        "loss": wave(count, -0.02, 0.03, 13),
        "grad_norm": wave(count, 0.2, 1.6, 14),
        "clip_fraction": wave(count, 0.0, 0.08, 15),
        "entropy": tuple(reversed(wave(count, 0.4, 2.1, 16, rise=True))),
        "learning_rate": tuple(5e-4 for _ in range(count)),
        "response_length": wave(count, 3.4, 4.0, 17),
        "zero_std_fraction": wave(count, 0.0, 0.6, 18, rise=True),
        "parity_max_abs": wave(count, 1e-6, 4e-6, 19),
        "actor_tokens_per_second": wave(count, rate * 0.6, rate * 1.1, 20),
        "learner_tokens_per_second_step": wave(count, rate * 1.2, rate * 1.9, 21),
    }
    scale = 120.0 if run.gpu != "cpu" else 1.0
    split = {"time/generate": 0.17, "time/train": 0.09, "time/weight_sync": 0.02}
    for name, seconds in split.items():
        series[name] = tuple(value * scale for value in wave(count, seconds * 0.6, seconds, len(name)))
    series["time/total"] = tuple(0.29 * scale for _ in range(count))
    if run.gpu != "cpu":
        series |= {"learner_mfu": wave(count, 24, 38, 22), "actor_mfu": wave(count, 4, 9, 23)}
    latest = {name: values[-1] for name, values in series.items()}
    latest |= {"reward": run.reward or 0.0, "actor_tokens_per_second": rate, "time/saving": 0.0}
    latest |= {name: seconds * scale for name, seconds in split.items()} | {"time/total": 0.29 * scale}
    times = tuple(NOW - 7000.0 + 0.29 * scale * step for step in steps)
    return MetricsSnapshot(steps=steps, series=series, times=times, latest=latest, taken_at=NOW)


LOG_FILES = (
    LogFile(name="out.log", size=40_000),
    LogFile(name="node-nid010701.log", size=2_100, node="nid010701"),
    LogFile(name="node-nid010702.log", size=2_200_000, node="nid010702"),
    LogFile(name="ray-logs/worker-7f.err", size=812, node=""),
)


def actors(run: RunSummary) -> tuple[ActorSnapshot, ...]:
    if run.gpu == "cpu":
        named = [("Learner", "learner 0", 21011), ("Learner", "learner 1", 21012), ("Engine", "engine 0", 21013)]
        placed = [(kind, name, pid, "ada-laptop") for kind, name, pid in named]
    else:
        placed = []
        for node in range(run.nodes):
            for index in range(4):
                if (node, index) != (1, 1):
                    kind = "Learner" if index < 2 else "Engine"
                    placed.append(
                        (kind, f"{kind.lower()} {len(placed)}", 211034 + node * 10 + index, f"nid{10701 + node:06d}")
                    )
        placed.append(("StatusBoard", "status", 211000, "nid010701"))
    return tuple(
        ActorSnapshot(actor_id=f"{pid:08x}", class_name=kind, name=name, state="ALIVE", node=node, pid=pid)
        for kind, name, pid, node in placed
    )


def snapshot(run: RunSummary, lines: tuple[str, ...] | None = None) -> RunSnapshot:
    """The picture of one run, as its state would have it."""
    if run.state in ("queued", "unknown"):  # nothing has spoken yet
        return RunSnapshot(summary=run, taken_at=NOW)
    alive = run.state in ("running", "stopping", "starting")
    ended: list[dict[str, object]] = [
        {"time": NOW - 134 + index * 9, "kind": "stage", "text": name} for index, name in enumerate(STAGES[:7])
    ]
    ended.append({"time": NOW - 60, "kind": "checkpoint", "text": "step-000350 is complete", "seconds": 0.4})
    if run.end is not None and run.end.outcome == "failed":
        ended.append({"time": NOW - 10, "kind": "error", "text": run.end.reason})
    return RunSnapshot(
        summary=run,
        hosts=(gpu_hosts(run.nodes) if run.gpu != "cpu" else cpu_hosts()) if alive else (),
        role_memory=ROLE_MEMORY if alive and run.gpu != "cpu" else (),
        actors=actors(run) if alive else (),
        status=StatusSnapshot(
            taken_at=NOW,
            phase="generate" if alive else "",
            phase_since=NOW - 1.2,
            queues=(
                QueueSnapshot(name="Prompt Queue", current=29, maxsize=32),
                QueueSnapshot(name="Inference Results Queue", current=3, maxsize=32),
            )
            if alive
            else (),
            learner_weight_version=412 if alive else None,
            engine_weight_versions={"engine 0": 411} if alive else {},
        ),
        metrics=metrics(run),
        log=LogSnapshot(lines=log_lines() if lines is None else lines, offset=40_000),
        logs=LOG_FILES if run.gpu != "cpu" else LOG_FILES[:1],
        events=tuple(ended),
        history=HISTORY,
        taken_at=NOW,
    )
