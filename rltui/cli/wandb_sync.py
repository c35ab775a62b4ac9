"""``rltui wandb-sync``: upload what W&B kept offline of a run, by W&B's own sync."""

from __future__ import annotations

import argparse

from rltui.cli.output import add_json, add_run, answer, print_lines
from rltui.cluster.local_transport import SSH_LOST
from rltui.errors import ClusterError, MissingExtraError, RltuiError
from rltui.service.all_clusters import open_run
from rltui.service.wandb_place import wandb_place

STDERR = 2
"""What W&B prints as it goes; ``--json`` has stdout to itself."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("--print", action="store_true", dest="only_print", help="print the command and do not run it")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Let ``wandb sync`` upload a run's offline folders where they lie; W&B itself finds or asks for the key."""
    with open_run(options.cluster, options.run) as (context, summary):
        context.require_own(summary)
        place = wandb_place(context, summary)
        if options.only_print:
            print_lines([place.send_command] if place.send_command else [])
            return 0
        if place.send is None and place.unsent:
            raise MissingExtraError("W&B's files are sent by its own package, which is not here", "pip install wandb")
        code = place.send.run(STDERR) if place.send is not None else 0
        left = wandb_place(context, summary).unsent if code == 0 and place.unsent else ()
    if code == SSH_LOST:
        raise ClusterError(f"{context.name} cannot be reached by ssh.", place.send_command)
    # a file that grows meanwhile is no failure of W&B's
    _require_sent(summary.run_id, code, () if summary.is_live else left)
    told = {"run_id": summary.run_id, "uploaded": place.unsent, "page": place.page}
    answer(options, told, place.unsent or [f"W&B has all of {summary.run_id} already."])
    return 0


def _require_sent(run_id: str, code: int, left: tuple[str, ...]) -> None:
    if code or left:
        why = f"its sync ended with code {code}" if code else f"{', '.join(left)} has no mark of W&B's"
        hint = f"`wandb login` stores a key, WANDB_BASE_URL names another server. Then: rltui wandb-sync {run_id}"
        raise RltuiError(f"W&B has not taken all of {run_id}: {why}; its words are above.", hint)
