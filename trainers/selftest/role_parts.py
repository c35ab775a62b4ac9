"""Parts that are short runs of the trainer in which something besides learner and engine has a say."""

from __future__ import annotations

from pathlib import Path

from rltui.hardware.gpus import find_gpu
from trainers.data.models import BUILTIN_SORTER, BUILTIN_TINY
from trainers.data.tiny_qwen3 import VOCABULARY, TinySettings, new_tokenizer, tiny_config
from trainers.selftest.found import FOLDER, Found, SkippedError
from trainers.selftest.run_parts import agreement, best_engine, train, wants_module

TASK = (f"roles.learner.model={BUILTIN_TINY}", "data.train=builtin/sort-digits", "data.digits=3",
        "lengths={prompt: 4, response: 4}")  # fmt: skip
"""The bundled task, whatever model the test is about: what fails is the path."""
JUDGED = (
    "data.reward=judge",
    'data.judge={chat: false, prompt: "{question}", verdict: likelihood, continuation: "{answer}<eos>"}',
)
SHARED = ("pools={shared: {gpus: [1]}}", "roles.learner.pool=shared", "roles.learner.gpus=[]",
          "roles.rollout.pool=shared", "roles.rollout.engines=1", "roles.rollout.sleep_while_training=true",
          "roles.rollout.memory_utilization=0.4", "roles.rollout.enforce_eager=true")  # fmt: skip
PLAYED = ("data.environment=builtin/guess-order-agent", "data.environment_kind=agent", "data.max_turns=2",
          "lengths={prompt: 4, response: 12}", "roles.rollout.enforce_eager=true")  # fmt: skip
EXPERTS, EXPERTS_TAKEN = 8, 2
FP8 = "fp8_per_tensor"


def agents(found: Found) -> None:
    """Agents ask the policy over HTTP."""
    engine = best_engine(found)
    run = train(found, "agents", (*TASK, *PLAYED, f"roles.rollout.engine={engine}"))
    failures = sum(line["environment_failures"] for line in run.metrics)
    turns, waited = run.middle("turns"), run.middle("time/generate")
    if failures:
        found.failed("games", f"{failures:.0f} agents failed")
    else:
        found.ok("games", f"{engine}: {turns:.2g} answers a sample, {waited:.2g} s a step")
    agreement(found, "trainer and engine agree", run)


def judge(found: Found) -> None:
    """Learner, engine and judge on one card, the last two by the same kind of engine, each with its own share."""
    engine = best_engine(found)
    precision = found.layout.roles.learner.precision
    role = f"{{model: {BUILTIN_SORTER}, pool: shared, engine: {engine}, context: 64, precision: {precision}"
    role += "}" if engine == "hf" else ", memory_utilization: 0.2}"
    run = train(found, "judge", (*TASK, *JUDGED, *SHARED, f"roles.judge={role}", f"roles.rollout.engine={engine}"))
    asked = run.middle("time/reward")
    found.ok("", f"{engine}: ready after {run.load_s:.0f} s, {asked:.2g} s a step", load_s=run.load_s)
    agreement(found, "engines agree beside it", run)


def router_replay(found: Found) -> None:
    """A mixture of random experts: does the engine tell which ones it took, and does the trainer take them?"""
    folder = found.attempt / FOLDER / "experts"
    write_experts(folder)
    words = (*TASK, f"roles.learner.model={folder}", "roles.rollout.router_replay=true",
             f"roles.rollout.engine={best_engine(found)}", "roles.rollout.enforce_eager=true",
             "grpo.filter_zero_std=false")  # fmt: skip
    agreement(found, "", train(found, "router-replay", words))


def fp8(found: Found) -> None:
    """What the engine quantizes at each transfer has to be the learner's weights."""
    gpu = find_gpu(found.layout.hardware.gpu)
    if found.on_cpu:
        raise SkippedError("there is no card: vLLM's build for CPUs cannot quantize")
    if gpu is not None and not gpu.fp8:
        raise SkippedError(f"{gpu.name} does not compute in fp8")
    wants_module("vllm")
    words = ["roles.rollout.engine=vllm", "roles.rollout.enforce_eager=true", f"roles.rollout.quantization={FP8}"]
    agreement(found, "weights", train(found, "fp8", words))
    agreement(found, "and cache", train(found, "fp8-cache", (*words, "roles.rollout.kv_cache_dtype=fp8")))


def write_experts(folder: Path) -> None:
    """Write a mixture of experts of the tiny model's size, whose weights are random."""
    import torch
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    settings = TinySettings(digits=3, seed=0)
    shape = tiny_config(settings).to_dict()
    del shape["model_type"], shape["architectures"]
    own = {"num_experts": EXPERTS, "num_experts_per_tok": EXPERTS_TAKEN, "moe_intermediate_size": settings.hidden_size}
    torch.manual_seed(settings.seed)
    Qwen3MoeForCausalLM(Qwen3MoeConfig(**shape, **own, norm_topk_prob=True)).save_pretrained(folder)
    new_tokenizer(VOCABULARY, settings.max_positions).save_pretrained(folder)
