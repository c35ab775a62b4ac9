"""Learners on ranks without Ray, for what only DeepSpeed has a part in."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any
from unittest import mock

import rank_program
from trainer_support import LAYOUT

from forks import IMPORTED, READ_AT_IMPORT
from free_ports import free_ports
from waiting import WAIT_S

VOCABULARY = 97


def forking() -> ForkServerContext:
    """Python's own for processes of functions, forked from one that has imported what each would; one a session.

    Adapters' library takes 4 CPU seconds, as it imports that of 8-bit optimizers, which imports the compiler.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*IMPORTED, "peft"])
    with mock.patch.dict(os.environ, READ_AT_IMPORT):
        forkserver.ensure_running()
    return context


def make_model(folder: Path, *, tied: bool = True, hidden_size: int = 32, experts: int = 0) -> str:
    """A small Qwen3 with random weights, without a tokenizer."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": hidden_size, "intermediate_size": 50, "num_hidden_layers": 2, "head_dim": 16}
    shape = {**sizes, "num_attention_heads": 2, "num_key_value_heads": 1, "tie_word_embeddings": tied}
    if experts:
        own = {"num_experts": experts, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
        made: Any = Qwen3MoeForCausalLM(Qwen3MoeConfig(vocab_size=VOCABULARY, **shape, **own))
    else:
        made = Qwen3ForCausalLM(Qwen3Config(vocab_size=VOCABULARY, **shape))
    made.save_pretrained(folder)
    return str(folder)


def learner_ranks(
    world: int,
    model: str,
    variants: Mapping[str, Sequence[str]],
    steps: Sequence[int],
    *,
    folder: Path,
    saves: Mapping[int, Path] | None = None,
    restore: Path | None = None,
    resharded: bool = False,
) -> dict[str, list[dict[str, Any]]]:
    """Train ``steps`` on ``world`` ranks; by variant and step, the loss of all ranks, gradient norm, learning rate.

    Where a step was saved, also the log-probabilities of the rows of ``samples(99)`` after it.

    Args:
        world: Number of ranks.
        model: Folder of the model, where a variant names no other.
        variants: By name, overrides of the tiny layout.
        steps: Numbers of the steps; each has its own samples, whatever the number of ranks.
        folder: For the files of this call.
        saves: By step, the folder to save to after it.
        restore: Folder to restore from before the first.
        resharded: Whether another number of ranks wrote it.
    """
    folder.mkdir(parents=True)
    job: dict[str, Any] = {
        "world": world,
        "model": model,
        "layout": str(LAYOUT),
        "variants": {name: list(words) for name, words in variants.items()},
        "steps": list(steps),
        "saves": {str(step): str(path) for step, path in (saves or {}).items()},
        "folders": {"restore": str(restore) if restore else ""},
        "resharded": resharded,
        "port": free_ports(1)[0],
    }
    file = folder / "job.json"
    file.write_text(json.dumps(job))
    logs = [folder / f"rank-{rank}.log" for rank in range(world)]
    processes = [
        forking().Process(target=rank_program.main, args=(str(file), rank, str(log))) for rank, log in enumerate(logs)
    ]
    try:
        for process in processes:
            process.start()
        for process, log in zip(processes, logs, strict=True):
            process.join(WAIT_S)
            assert process.exitcode == 0, log.read_text()[-3000:]
    finally:
        for process in processes:
            process.kill()
            process.join()
    ranks = [json.loads(Path(f"{file}.{rank}").read_text()) for rank in range(world)]
    return {name: [_joined([rank[name][step] for rank in ranks]) for step in range(len(steps))] for name in variants}


def _joined(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The step of all ranks: each has a share of the loss, and the rest in common."""
    return {**reports[0], "loss": sum(report["loss"] for report in reports)}
