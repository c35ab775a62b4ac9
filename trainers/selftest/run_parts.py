"""Parts that are short runs of the trainer itself, by ``python -m trainers.grpo``, each with a few settings changed."""

from __future__ import annotations

import importlib.util
import json
import math
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rltui.hardware.gpus import find_gpu
from rltui.layout.load import dump_layout, load_layout
from rltui.layout.selftest import OFFLOADED
from rltui.memory.measured import peaks_of
from rltui.onnode import rundir
from rltui.onnode.checkpoints import step_name
from trainers.selftest.found import FOLDER, Found, SkippedError, middle

STEPS = 4
SAVED = 2
SAME = 1e-3
"""Steps of a resumed run in fp32 differ by no more of their size: the order of sums on a card is not fixed."""
ALONE = ("selftest=null", "checkpoint.every=0", "tracking.wandb=disabled", "deadlines.place_s=60")
PLAIN = ("roles.learner.precision=fp32", "roles.rollout.precision=fp32")
SHORT_TOKENS = 32
MOVED = 1e-2
"""KL a token between a policy that has made no step and its reference, in half precision."""
VISION = "builtin/tiny-qwen3-vl"
OVER_ESTIMATE = 1.15
"""Of what was estimated, above which plans cannot be trusted (docs/memory.md, how far off)."""


@dataclass(frozen=True)
class Run:
    """A run that has ended."""

    path: Path
    metrics: list[dict[str, Any]]

    def lines(self, name: str) -> list[dict[str, Any]]:
        """The objects of a JSON lines file of the attempt."""
        return lines_of(self.path / name)

    @property
    def load_s(self) -> float:
        """From the first role that loads to the first step: engines start, and make their CUDA graphs."""
        stages = (rundir.read_json(str(self.path / rundir.STAGE)) or {}).get("history", [])
        at = {stage["stage"]: stage["at"] for stage in stages}
        return float(at["training"] - at["loading"])

    def middle(self, name: str) -> float:
        """Median of a metric without the first step, which compiles."""
        return middle([line[name] for line in self.metrics[1:] if isinstance(line.get(name), (int, float))])


def train(found: Found, name: str, words: Sequence[str], *, number: int = 1, program: str = "trainers.grpo") -> Run:
    """Run the trainer to its end, with ``words`` on top of the self-test's layout.

    Raises:
        RuntimeError: It failed; the text is its own last word.
    """
    run = found.attempt / FOLDER / name
    path = run / rundir.ATTEMPTS / f"{number:02d}"
    path.mkdir(parents=True, mode=0o700)
    settings = [*ALONE, f"name={name}", f"train.steps={STEPS}", *words]
    layout = load_layout(found.attempt / rundir.LAYOUT, settings).layout
    (path / rundir.LAYOUT).write_text(dump_layout(layout), encoding="utf-8")
    command = [sys.executable, "-m", program, "--attempt", str(path)]
    code = subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode
    done = Run(path, lines_of(path / rundir.METRICS))
    if code:
        errors = [event["text"] for event in done.lines(rundir.EVENTS) if event["kind"] == "error"]
        raise RuntimeError(errors[-1].splitlines()[0] if errors else f"the trainer ended with code {code}")
    if not done.metrics or done.metrics[-1]["step"] != STEPS:
        raise RuntimeError(f"the trainer ended after {len(done.metrics)} of {STEPS} steps")
    return done


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSON lines file; none where there is no such file."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines() if line]


def agreement(found: Found, what: str, run: Run) -> None:
    """Say how far trainer and engine were apart; a run that they were too far apart for has failed by itself."""
    worst = max(line.get("parity_max_abs", math.nan) for line in run.metrics)
    divergence = max(line.get("fresh_mismatch_kl", math.nan) for line in run.metrics)
    roles = load_layout(run.path / rundir.LAYOUT).layout.roles
    words = f"{worst:.1e} apart at most, mean KL {divergence:.1e} ({roles.learner.precision}, {roles.rollout.engine})"
    found.ok(what, words, parity_max_abs=worst, fresh_mismatch_kl=divergence)


def has_room(found: Found, slots: int) -> None:
    """Skip the part where the job has fewer cards."""
    there = found.layout.hardware.nodes * found.layout.hardware.ray_gpus_per_node
    if there < slots:
        raise SkippedError(f"it takes {slots} cards, there are {there}")


def wants_module(name: str) -> None:
    """Skip the part where this Python does not have a package."""
    if importlib.util.find_spec(name) is None:
        raise SkippedError(f"{name} is not installed")


def best_engine(found: Found) -> str:
    """What generates where nothing else is asked for: vLLM on cards, where it is installed."""
    return "vllm" if not found.on_cpu and importlib.util.find_spec("vllm") else "hf"


def by_transformers(found: Found) -> list[str]:
    """The transformers engine, which is there at once, and is slow: a real model's responses are cut short."""
    is_tiny = found.layout.roles.learner.model.startswith("builtin/")
    return ["roles.rollout.engine=hf", *([] if is_tiny else [f"lengths.response={SHORT_TOKENS}"])]


def grpo(found: Found) -> None:
    """The short run, with vLLM and its CUDA graphs where there is a card."""
    engine = best_engine(found)
    run = train(found, "grpo", (f"checkpoint.every={SAVED}", f"roles.rollout.engine={engine}"))
    agreement(found, "trainer and engine agree", run)
    tokens, generated = run.middle("learner_tokens_per_second_step"), run.middle("actor_tokens_per_second")
    syncs = run.middle("time/weight_sync")
    words = f"{tokens:,.0f} tokens/s trained, {generated:,.0f} generated, weights in {syncs:.2g} s"
    mfu = run.middle("learner_mfu")
    words += f", MFU {mfu:.2g} %" if mfu else ", no MFU: the card or the model has no data sheet here"
    found.ok("speed", f"{words}; {engine} ready after {run.load_s:.0f} s", tokens_per_s=tokens,
             generated_tokens_per_s=generated, weight_sync_s=syncs, load_s=run.load_s)  # fmt: skip
    _memory(found, run)


def _memory(found: Found, run: Run) -> None:
    document = rundir.read_json(str(run.path / rundir.MEMORY)) or {}
    peaks = list(peaks_of("", document))
    if not peaks:
        found.skipped("memory", "torch measures it on cards only" if found.on_cpu else "no role measured it")
        return
    worst = max(peaks, key=lambda peak: peak.measured_gib / peak.expected_gib)
    words = f"{worst.kind}, {worst.moment}: {worst.measured_gib:.1f} GiB, estimate {worst.expected_gib:.1f}"
    measured = {"memory_measured_gib": worst.measured_gib, "memory_expected_gib": worst.expected_gib}
    if worst.measured_gib > OVER_ESTIMATE * worst.expected_gib + 0.5:
        found.failed("memory", words, "leave more of the card free than `rltui mem` says", **measured)
    else:
        found.ok("memory", words, **measured)


def resume(found: Found) -> None:
    """In fp32 by the transformers engine, whose steps can be repeated: is the second half the same again?"""
    whole, name = found.attempt / FOLDER / "grpo", "grpo"
    is_plain = found.on_cpu and found.layout.roles.learner.model.startswith("builtin/")
    words = [*PLAIN, *by_transformers(found), f"checkpoint.every={SAVED}"]
    if is_plain and (whole / rundir.CHECKPOINTS).is_dir():
        first = whole / rundir.ATTEMPTS / "01"
        before = Run(first, lines_of(first / rundir.METRICS))
    else:
        name = "resume"
        before = train(found, name, words)
        whole = found.attempt / FOLDER / name
    shutil.rmtree(whole / rundir.CHECKPOINTS / step_name(STEPS))
    again = train(found, name, words, number=2)
    steps = [line["step"] for line in again.metrics]
    if steps != list(range(SAVED + 1, STEPS + 1)):
        found.failed("", f"it went on with steps {steps} from the checkpoint of step {SAVED}")
        return
    for key in ("reward", "loss", "response_length", "grad_norm"):
        for one, other in zip(before.metrics[SAVED:], again.metrics, strict=True):
            if not math.isclose(one[key], other[key], rel_tol=SAME, abs_tol=SAME * SAME):
                found.failed("", f"step {one['step']}: {key} is {other[key]:.6g}, without the restart {one[key]:.6g}")
                return
    saving = middle([line["time/saving"] for line in before.metrics if line.get("time/saving")])
    found.ok("", f"steps {SAVED + 1} to {STEPS} are the same again; saving took {saving:.2g} s", saving_s=saving)


def half_precision(found: Found) -> None:
    """The half precision that the short run did not have, where the card computes in it."""
    gpu = None if found.on_cpu else find_gpu(found.layout.hardware.gpu)
    kinds = ["bf16"] if found.on_cpu else ["bf16", "fp16"] if gpu is None or gpu.bf16 else ["fp16"]
    kinds = [kind for kind in kinds if kind != found.layout.roles.learner.precision]
    if not kinds:
        raise SkippedError("the short run has it")
    for kind in kinds:
        words = (f"roles.learner.precision={kind}", f"roles.rollout.precision={kind}", *by_transformers(found))
        agreement(found, kind, train(found, kind, words))


def offload(found: Found) -> None:
    """AdamW's states in host memory."""
    run = train(found, "offload", (*OFFLOADED, *by_transformers(found)))
    update = run.middle("time/train") or run.middle("time/update_actor")
    found.ok("", f"{run.middle('learner_tokens_per_second_step'):,.0f} tokens/s, {update:.2g} s of training a step")
    _memory(found, run)


def lora(found: Found) -> None:
    """Adapters; that the engine agrees proves the merge."""
    wants_module("peft")
    run = train(found, "lora", ("roles.learner.lora_rank=8", *by_transformers(found)))
    agreement(found, "", run)
    _memory(found, run)


def divided(found: Found) -> None:
    """Two learners on which everything is shared out; the exchanges go over the links between their cards."""
    has_room(found, 2)
    if found.layout.hardware.ray_gpus_per_node < 2:
        raise SkippedError("a node has one card")
    pools = ("pools={shared: {gpus: [2]}}", "roles.learner.pool=shared", "roles.learner.gpus=[]",
             "roles.rollout.pool=shared", "roles.rollout.engines=2", "roles.rollout.sleep_while_training=true",
             f"roles.reference={{precision: {found.layout.roles.learner.precision}}}", "grpo.kl_coefficient=0.01",
             "roles.learner.zero_stage=3", "roles.learner.sequence_parallel=2")  # fmt: skip
    run = train(found, "divided", (*pools, *by_transformers(found)))
    apart = max(abs(line["kl"]) for line in run.metrics[:1])
    agreement(found, "trainer and engine agree", run)
    if apart > MOVED:
        found.failed("reference", f"the KL to the reference is {apart:.1e} a token before the first step, not 0")
    else:
        found.ok("reference", f"it says what the policy says before the first step, to a KL of {apart:.1e} a token")


def vision(found: Found) -> None:
    """The bundled model of images, whatever model the test is about: what fails is the path of the images."""
    words = (f"roles.learner.model={VISION}", "data.train=builtin/read-digits", "data.digits=2",
             "lengths={prompt: 8, response: 3, images: 4}", f"roles.rollout.engine={best_engine(found)}")  # fmt: skip
    agreement(found, "", train(found, "vision", words))


def engine_killed(found: Found) -> None:
    """An engine's process is killed as weights are sent to it."""
    run = train(found, "engine-killed", by_transformers(found), program="trainers.selftest.engine_killed")
    restarts = [event for event in run.lines(rundir.EVENTS) if event["kind"] == rundir.RESTART]
    if len(restarts) < 2:
        found.failed("", "the run went on, but no engine was started again")
        return
    seconds = restarts[-1]["time"] - restarts[0]["time"]
    found.ok("", f"the learner lived on, another engine had its weights after {seconds:.1f} s", restart_s=seconds)


def sleep(found: Found) -> None:
    """Learner and engine in one pool; CUDA graphs, which must find everything where it was, where there is time."""
    words = ("pools={shared: {gpus: [1]}}", "roles.learner.pool=shared", "roles.learner.gpus=[]",
             "roles.rollout.pool=shared", "roles.rollout.engines=1",
             "roles.rollout.sleep_while_training=true",
             f"roles.rollout.enforce_eager={bool(found.size(1, 1, 0))}")  # fmt: skip
    engine = best_engine(found)
    run = train(found, "sleep", (*words, f"roles.rollout.engine={engine}"))
    asleep, awake = run.middle("time/sleep"), run.middle("time/wake")
    found.ok("", f"{engine}: {asleep:.2g} s to sleep, {awake:.2g} s to wake", sleep_s=asleep, wake_s=awake)
    agreement(found, "engines agree after waking", run)


def tensor_parallel(found: Found) -> None:
    """An engine over two cards of one node."""
    if found.on_cpu:
        raise SkippedError("there is no card: over CPU slots it says nothing of one")
    wants_module("vllm")
    has_room(found, 3)
    if found.layout.hardware.ray_gpus_per_node < 2:
        raise SkippedError("a node has one card")
    words = ("roles.rollout.engine=vllm", "roles.rollout.tensor_parallel=2", "roles.rollout.engines=1",
             "roles.rollout.enforce_eager=true", "roles.learner.gpus=[1]")  # fmt: skip
    agreement(found, "", train(found, "tensor-parallel", words))


def vllm(found: Found) -> None:
    """The engine vLLM, without CUDA graphs."""
    wants_module("vllm")
    words = ("roles.rollout.engine=vllm", "roles.rollout.enforce_eager=true")
    run = train(found, "vllm", words)
    speed = run.middle("actor_tokens_per_second")
    found.ok("without CUDA graphs", f"ready after {run.load_s:.0f} s, {speed:,.0f} tokens/s", load_s=run.load_s,
             generated_tokens_per_s=speed)  # fmt: skip
    agreement(found, "trainer and vLLM agree", run)
