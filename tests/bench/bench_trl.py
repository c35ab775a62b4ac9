"""Samples a second of the bundled trainers and of TRL's, on the same task: ``python tests/bench/bench_trl.py``.

Both train the same warm model on the same prompts, 32 x 8 samples a step, in fp32 on the same two cores, one after the
other. Ours is the whole stack: Ray, DeepSpeed, an engine of its own, weights sent at each step. What is counted is the
steady state: start-up and the first steps are left out on both sides. Each line also tells the reward reached, because
a fast trainer that does not learn is no trainer, and the CPU time of a step, which other load moves least.

TRL comes with the extra ``peers``; without it: ``pip install trl==1.16.0`` beside the trainers' libraries, or
``pip install --no-deps --target FOLDER trl==1.16.0`` and this folder in ``PYTHONPATH``. Words choose lines: ``grpo``,
``opd``, ``vllm``. The exit code is 1 where a trainer did not learn.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "trainers")]

from trainer_support import Attempt, ray_cluster  # noqa: E402

from waiting import eventually  # noqa: E402

STEPS, SKIPPED, SAMPLES, CORES = 100, 20, 32 * 8, 2
LEARNED = 0.6
"""Least mean reward of the last ten steps; all trainers start at about 0.16 and reach 0.85 and more."""
DEADLINE_S = 1200

ONE, TWO = "roles.learner.gpus=[1]", "roles.learner.gpus=[2]"
AHEAD, VLLM = "train.async_steps=1", "roles.rollout.engine=vllm"
OURS: dict[str, list[tuple[str, list[str]]]] = {
    "grpo": [
        ("hf, in turns, 2 learners", [TWO]),
        ("hf, one step ahead", [ONE, AHEAD]),
        ("vllm, one step ahead", [ONE, AHEAD, VLLM]),
    ],
    "opd": [("hf, in turns", [ONE]), ("hf, one step ahead", [ONE, AHEAD])],
}
PEERS = {"grpo": [("grpo", 1), ("grpo", 2)], "opd": [("distillation", 1)]}
"""TRL's trainer and its threads."""


@dataclass(frozen=True)
class Line:
    """What one trainer did."""

    name: str
    steps_a_second: float
    cpu_s: float
    reward: float
    idle: str = ""

    def show(self, peer: Line | None) -> str:
        """The line, beside the best of the peer's."""
        ratio = f"{self.steps_a_second / peer.steps_a_second:5.2f} x" if peer else ""
        return (
            f"  {self.name:36s}{self.steps_a_second * SAMPLES:7.0f} samples/s {ratio:8s} reward {self.reward:.2f}  "
            f"CPU {1000 * self.cpu_s:4.0f} ms a step  load {os.getloadavg()[0]:4.1f}  {self.idle}"
        )


def run_peer(kind: str, threads: int, models: Mapping[str, str], environment: Mapping[str, str]) -> Line:
    """TRL's trainer in a process of its own."""
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    own = {**environment, "PYTHONPATH": paths, "OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"}
    words = [kind, str(threads), str(STEPS), models["learner"], models["teacher"]]
    command = [sys.executable, str(Path(__file__).with_name("peer_trl.py")), *words]
    done = subprocess.run(command, env=own, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    if done.returncode:
        raise SystemExit(f"TRL's trainer failed:\n{done.stderr[-3000:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    (began, cpu_began), (ended, cpu_ended) = found["ended"][SKIPPED - 1], found["ended"][-1]
    steps = STEPS - SKIPPED
    name = f"TRL {found['version']} {kind}, {threads} thread{'s' if threads > 1 else ''}"
    return Line(name, steps / (ended - began), (cpu_ended - cpu_began) / steps, found["reward"])


def run_ours(algorithm: str, name: str, words: list[str], environment: dict[str, str]) -> Line:
    """Our trainer as the program that it is."""
    layout = ROOT / "layouts" / "local" / f"{algorithm}-tiny.yaml"
    words = [f"train.steps={STEPS}", "checkpoint.every=0", "tracking.wandb=disabled", *words]
    with tempfile.TemporaryDirectory() as folder:
        attempt = Attempt(Path(folder) / "run-1", 1, words, layout).start(environment)
        try:
            early, late = (cpu_at(attempt, step) for step in (SKIPPED, STEPS - 10))
            if attempt.wait(DEADLINE_S):
                raise SystemExit(f"our trainer failed:\n{attempt.log()[-3000:]}")
            lines = attempt.metrics()
        finally:
            if attempt.running.poll() is None:
                attempt.running.kill()
                attempt.running.wait()
    counted = lines[SKIPPED - 1 :]
    pace = (len(counted) - 1) / (counted[-1]["time"] - counted[0]["time"])
    cpu_s = (late[1] - early[1]) / max(1, late[0] - early[0])
    return Line(f"rltui {algorithm}, {name}", pace, cpu_s, attempt_reward(lines), idle_times(counted[1:]))


def attempt_reward(lines: list[dict[str, Any]]) -> float:
    """The mean reward of the last ten steps."""
    return statistics.fmean(line["reward"] for line in lines[-10:])


def idle_times(lines: list[dict[str, Any]]) -> str:
    """Median times of a step in which somebody waited."""
    shown = {"engine idle": "time/engine_idle", "learner idle": "time/learner_idle", "sync": "time/weight_sync"}
    found = {words: [1000 * line[name] for line in lines if name in line] for words, name in shown.items()}
    return ", ".join(f"{words} {statistics.median(values):.0f} ms" for words, values in found.items() if values)


def cpu_at(attempt: Attempt, step: int) -> tuple[int, float]:
    """The step that is done when ``step`` is, and the seconds of CPU of driver and roles until then."""
    eventually(lambda: attempt.running.poll() is not None or len(attempt.metrics()) >= step, f"step {step}", DEADLINE_S)
    [roles] = [event["roles"] for event in attempt.lines("events.jsonl") if event["kind"] == "roles"][:1]
    pids = [attempt.running.pid, *(int(role["pid"]) for role in roles)]
    return len(attempt.metrics()), sum(cpu_seconds(pid) for pid in pids)


def cpu_seconds(pid: int) -> float:
    """User and system time of a process; 0 where it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def models_of(algorithm: str) -> dict[str, str]:
    """Folders of the models of the layout, made where they are missing."""
    from rltui.layout.load import load_layout
    from trainers.data.models import model_names, resolve_model

    layout = load_layout(ROOT / "layouts" / "local" / f"{algorithm}-tiny.yaml", []).layout
    return {kind: resolve_model(name, layout, lambda *_: None) for kind, name in model_names(layout).items()}


def race(algorithm: str, with_vllm: bool, environment: dict[str, str]) -> Iterator[Line]:
    """The trainers of an algorithm, TRL's first; the best of these is what ours are compared with."""
    models = {"teacher": "", **models_of(algorithm)}
    peers = []
    for kind, threads in PEERS[algorithm]:
        peers.append(run_peer(kind, threads, models, environment))
        print(peers[-1].show(None), flush=True)
    yield from peers
    best = max(peers, key=lambda line: line.steps_a_second)
    for name, words in OURS[algorithm]:
        if with_vllm or VLLM not in words:
            line = run_ours(algorithm, name, words, environment)
            print(line.show(best), flush=True)
            yield line


def main() -> int:
    """Print a line a trainer; return 1 where one did not learn, 2 where there is no TRL."""
    if importlib.util.find_spec("trl") is None:
        print("there is no TRL: pip install trl==1.16.0 beside the trainers' libraries", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that Ray is ended too
    chosen = set(sys.argv[1:]) or {"grpo", "opd", "vllm"}
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    print(f"{STEPS} steps of {SAMPLES} samples, the first {SKIPPED} not counted, on {CORES} cores", flush=True)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["RLTUI_CACHE_DIR"] = cache
        with ray_cluster(num_cpus=4, cache=Path(cache)) as environment:
            lines = [
                line
                for algorithm in OURS
                if algorithm in chosen
                for line in race(algorithm, "vllm" in chosen or VLLM in chosen, environment)
            ]
    return int(any(line.reward < LEARNED for line in lines))


if __name__ == "__main__":
    sys.exit(main())
