"""Ranks of a learner without Ray: what ``learner_ranks`` of ``rank_support`` starts, one process a rank.

Several learners, one for each variant, share the processes, because most of a start is imports.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def samples(step: int) -> list[Any]:
    """Eight random samples of step ``step``, the same for any number of ranks."""
    import random

    from trainers.data.batch import ADVANTAGES, ENGINE_LOG_PROBS, Sample

    source = random.Random(f"samples/{step}")

    def sample() -> Sample:
        prompt, response = ([source.randrange(97) for _ in range(source.randint(2, 6))] for _ in range(2))
        columns = {ENGINE_LOG_PROBS: [-4.6] * len(response), ADVANTAGES: source.uniform(-1.0, 1.0)}
        return Sample(tuple(prompt), tuple(response), columns)

    return [sample() for _ in range(8)]


def carry_out(job: dict[str, Any], rank: int) -> dict[str, Any]:
    """Load the job's learners, restore, train and save as it says; what each step said, by variant."""
    from rltui.layout.load import load_layout
    from trainers.data.batch import pad, shard
    from trainers.losses import token_mean
    from trainers.roles.learner import Learner

    found: dict[str, Any] = {}
    for number, (name, words) in enumerate(job["variants"].items()):
        words = [f"roles.learner.model={job['model']}", *words, f"roles.learner.gpus=[{job['world']}]"]
        layout = load_layout(job["layout"], words).layout
        learner = Learner(layout, rank, layout.roles.learner.model)
        learner.load("127.0.0.1", job["port"] + number)
        folder = job["folders"].get("restore", "")
        if folder and job["resharded"]:
            if rank == 0:
                learner.reshard(f"{folder}/{name}")
            barrier()
            learner.restore_resharded(f"{folder}/{name}", job["steps"][0])
        elif folder:
            learner.restore(f"{folder}/{name}")
        reports: list[dict[str, Any]] = []
        for step in job["steps"]:
            report = learner.train(shard(samples(step), [], job["world"], token_mean)[rank])
            reports.append({"loss": report.loss, "grad_norm": report.grad_norm, "learning_rate": report.learning_rate})
            if str(step) in job["saves"]:
                learner.begin_save(f"{job['saves'][str(step)]}/{name}")
                learner.finish_save()
                reports[-1]["log_probs"] = learner.log_probs(pad(samples(99))).tolist()
        found[name] = reports
    return found


def barrier() -> None:
    """Wait for all ranks."""
    import torch.distributed

    torch.distributed.barrier()


def main(file: str, rank: int, log: str) -> None:
    """Carry out the job in ``file`` as one of its ranks, whose output goes to ``log``."""
    with Path(log).open("wb") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    Path(f"{file}.{rank}").write_text(json.dumps(carry_out(json.loads(Path(file).read_text()), rank)))
