"""``rltui export``: write a run's checkpoint as a Hugging Face folder."""

from __future__ import annotations

import argparse
import os
import subprocess

from rltui.cli.output import add_json, add_run, answer
from rltui.cluster.profile import LOCAL
from rltui.errors import UsageError
from rltui.paths import with_home
from rltui.service.all_clusters import open_run
from rltui.service.exports import plan_export


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("--step", type=int, metavar="N", help="of the checkpoint (default: the newest)")
    parser.add_argument("--to", default="", metavar="DIR", help="the folder to make (default: export/ in the run's)")
    parser.add_argument("--precision", choices=("fp32", "bf16", "fp16"), default="", help="default: the learner's")
    parser.add_argument("--adapter", action="store_true", help="the LoRA adapters alone, in peft's format")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Write a checkpoint as a Hugging Face folder; 1 where the exporter could not."""
    target = str(with_home(options.to).resolve()) if options.to else ""
    with open_run(options.cluster, options.run) as (context, summary):
        where = context.name
        export = plan_export(
            context,
            summary,
            step=options.step,
            target=target,
            precision=options.precision,
            adapter=options.adapter,
        )
    if where != LOCAL:
        raise UsageError(
            f"The files of {summary.run_id} are on {where}, and so is the work: it reads the whole checkpoint.",
            f"Run this there, on a node with some memory: {export.words}",
        )
    # Python puts the working directory first: it must be the run's own code, too.
    environment = {**os.environ, "PYTHONPATH": export.code}
    done = subprocess.run(export.argv, cwd=export.code, env=environment, stdout=subprocess.DEVNULL, check=False)
    if done.returncode:
        return 1
    answer(options, {"run_id": summary.run_id, "step": export.step, "path": export.target}, [export.target])
    return 0
